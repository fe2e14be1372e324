//! The hashes with which azure-ai-ml identifies uploads.

use std::fs::File;
use std::io::Read as _;

use sha2::{Digest as _, Sha256};

use crate::failure::{CliResult, Failure, quoted};

const PIECE_BYTES: usize = 256 << 10;
/// azure-ai-ml's hash starts with this text.
const OBJECT_START: &[u8] = b"Initialize for october 2021 AML CLI version";
/// The version of the code hash that clients send to the server.
pub const CONTENT_VERSION: &str = "202208";

pub struct Hasher(Sha256);

impl Hasher {
    pub fn of_object() -> Hasher {
        Hasher(Sha256::new_with_prefix(OBJECT_START))
    }

    pub fn of_content() -> Hasher {
        Hasher(Sha256::new())
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn add_file(&mut self, mut file: File, name: &str) -> CliResult {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.0.update(&piece[..bytes]),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => {
                    return Err(Failure::error(format!("cannot read {}: {why}", quoted(name))));
                }
            }
        }
    }

    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The hash of a text, in hexadecimal.
pub fn of_text(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
