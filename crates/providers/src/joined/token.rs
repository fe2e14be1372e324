//! The join token: a secret that is valid once, and the means to recognize the server.

use std::fmt;
use std::str::FromStr;

/// Allows secret scanners to recognize it.
const PREFIX: &str = "mjt_";
/// The length of both parts, which are 256 bits in hexadecimal digits.
const DIGITS: usize = 64;

#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub secret: String,
    /// SHA-256 of the public key of the server's certificate authority. The key is kept when its certificate is
    /// renewed.
    pub authority: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a join token: those begin with {PREFIX}, followed by two groups of {DIGITS} hexadecimal digits with a \
     point between them; `muster host token` on the server creates one"
)]
pub struct BadToken;

impl FromStr for JoinToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<JoinToken, BadToken> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(BadToken)?;
        let (secret, authority) = rest.split_once('.').ok_or(BadToken)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_good = |part: &str| part.len() == DIGITS && part.bytes().all(is_digit);
        if !is_good(secret) || !is_good(authority) {
            return Err(BadToken);
        }
        Ok(JoinToken { secret: secret.to_owned(), authority: authority.to_owned() })
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}.{}", self.secret, self.authority)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("authority", &self.authority).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_nothing_else_is_one() {
        let token = JoinToken { secret: "0f".repeat(32), authority: "a1".repeat(32) };
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert_eq!(format!(" {token}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
        let text = token.to_string();
        for bad in ["", "mjt_", &text[4..], &text[..text.len() - 1], &text.replace('.', "-")] {
            assert_eq!(bad.parse::<JoinToken>(), Err(BadToken), "{bad}");
        }
        assert_eq!(text.to_uppercase().parse::<JoinToken>(), Err(BadToken));
    }
}
