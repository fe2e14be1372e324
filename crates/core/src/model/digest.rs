//! Types that are identified by the BLAKE3 digest of their bytes. Digests are shown and stored in hex.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::BadId;

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// A digest for tests, derived from a word. Different words of up to 32 bytes have different digests.
            #[doc(hidden)]
            pub fn made_up(word: &str) -> $name {
                let mut bytes = [0; 32];
                for (place, byte) in word.bytes().enumerate() {
                    bytes[place % 32] ^= byte.rotate_left(u32::try_from(place / 32 % 8).unwrap_or(0));
                }
                $name(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<$name, BadId> {
                from_hex(text).map($name)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::custom("not a digest of 32 bytes in hex"))
            }
        }
    };
}

digest!(
    /// The digest of a specification's stored text, by which an agent fetches it.
    SpecHash
);

digest!(
    /// The digest of a file's bytes.
    BlobId
);

digest!(
    /// The digest of the text of a file list, which identifies a whole folder.
    TreeId
);

digest!(
    /// The digest of a recipe's text, which identifies the environment built from it.
    RecipeId
);

digest!(
    /// The digest of an API key. Keys are random, so the key cannot be recovered from it.
    KeyDigest
);

fn from_hex(text: &str) -> Result<[u8; 32], BadId> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(BadId);
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| BadId)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| BadId)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_refuses_what_is_no_hash() {
        let hash = SpecHash::made_up("a specification");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!("00".parse::<SpecHash>(), Err(BadId));
        assert_eq!("+f".repeat(32).parse::<SpecHash>(), Err(BadId));
        assert_eq!("é".repeat(32).parse::<SpecHash>(), Err(BadId));
    }
}
