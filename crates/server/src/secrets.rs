//! Digests and random values. Passwords of clusters are stored only as digests.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, pbkdf2, rand};

const ROUNDS: NonZeroU32 = NonZeroU32::new(600_000).expect("not zero");

/// A password in the form that is stored: salted, slow to guess, in the usual text format.
pub fn digest(password: &str) -> String {
    let mut salt = [0u8; 16];
    rand::fill(&mut salt).expect("the system has random numbers");
    let mut derived = [0u8; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, password.as_bytes(), &mut derived);
    format!("$pbkdf2-sha256$i={ROUNDS}${}${}", hex(&salt), hex(&derived))
}

/// Random bytes that cannot be guessed.
pub fn random() -> [u8; 16] {
    let mut bytes = [0u8; 16];
    rand::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A random number that is practically unique.
pub fn random_number() -> u64 {
    u64::from_le_bytes(random()[..8].try_into().expect("8 bytes"))
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// `None` if the text is not hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
