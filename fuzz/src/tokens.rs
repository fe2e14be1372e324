//! Bearer tokens: any change makes a token invalid.

use std::cell::OnceCell;

use muster_core::access::Directory;
use muster_server::tokens::{self, Audiences, Keyring};
use muster_wire::ArmError;

use crate::oracle;

const BASE: &str = "https://localhost:8443";
const NOW: u64 = 1_800_000_000;

struct Good {
    keyring: Keyring,
    audiences: Audiences,
    token: String,
}

thread_local! {
    static GOOD: OnceCell<Good> = const { OnceCell::new() };
}

impl Good {
    fn new() -> Good {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let keyring = tokens::load_or_create(folder.path()).expect("a new keyring");
        let key = std::fs::read_to_string(folder.path().join(tokens::OWNER_KEY_FILE));
        let key = key.expect("the owner's key");
        let directory = Directory::default();
        let owner = keyring.authenticate_key(key.trim(), &directory).expect("the owner");
        let audiences = Audiences::for_base(BASE);
        let issued = keyring.issue(&owner, BASE, &audiences, NOW, &directory).expect("a token");
        Good { keyring, audiences, token: issued.token }
    }

    fn check(&self, token: &str) {
        let accepted = [&self.audiences.arm[..]];
        match self.keyring.verify(token, &accepted, NOW, &Directory::default(), |_| true) {
            Ok(_) => assert_eq!(token, self.token, "a token that was not issued"),
            Err(why) => oracle::refusal(&ArmError::unauthorized(BASE, &why.to_string())),
        }
    }
}

/// Uses the bytes as a token, and as changes to a valid one: a position of two bytes, and the byte to put there.
pub fn token(data: &[u8]) {
    GOOD.with(|good| {
        let good = good.get_or_init(Good::new);
        good.check(&good.token);
        if let Ok(text) = std::str::from_utf8(data) {
            good.check(text);
            match tokens::bearer(Some(text)) {
                Ok(token) => good.check(token),
                Err(why) => oracle::words(&why.to_string()),
            }
        }
        let mut changed = good.token.clone().into_bytes();
        for change in data.chunks_exact(3) {
            let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % changed.len();
            changed[place] = change[2];
        }
        if let Ok(changed) = String::from_utf8(changed) {
            good.check(&changed);
        }
    });
}
