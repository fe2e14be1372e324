//! What a job writes, for a terminal: its text and its colours. Whatever else a terminal would obey (titles, the clipboard,
//! answers typed for the user, a cleared screen) is left out.

use anstyle_parse::{Params, Parser, Perform};

/// Takes a log piece by piece: a sequence may begin in one piece and end in the next.
#[derive(Default)]
pub struct Safe {
    parser: Parser,
    text: Text,
}

impl Safe {
    /// What of the next piece may be shown.
    pub fn take(&mut self, piece: &[u8]) -> Vec<u8> {
        for byte in piece {
            self.parser.advance(&mut self.text, *byte);
        }
        std::mem::take(&mut self.text.shown).into_bytes()
    }

    /// What takes back a colour that was left on.
    pub fn end(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.text.is_coloured) { b"\x1b[0m" } else { b"" }
    }
}

#[derive(Default)]
struct Text {
    shown: String,
    is_coloured: bool,
}

impl Perform for Text {
    fn print(&mut self, character: char) {
        // Some control characters are written as text.
        if !character.is_control() {
            self.shown.push(character);
        }
    }

    fn execute(&mut self, byte: u8) {
        // Progress bars go back to the start of their line.
        if let b'\n' | b'\r' | b'\t' = byte {
            self.shown.push(char::from(byte));
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: u8) {
        if action != b'm' || ignore || !intermediates.is_empty() {
            return;
        }
        let numbers = |parts: &[u16]| {
            let parts: Vec<String> = parts.iter().map(u16::to_string).collect();
            parts.join(":")
        };
        let params: Vec<String> = params.iter().map(numbers).collect();
        self.is_coloured = params != ["0"];
        self.shown.push_str(&format!("\x1b[{}m", params.join(";")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut safe = Safe::default();
        let bytes = pieces.iter().flat_map(|piece| safe.take(piece)).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_and_colours_stay() {
        for text in [
            "plain\n",
            "größe 雪 ✓\ttab\r\n",
            "\x1b[31mred\x1b[0m \x1b[1;38;5;208mbold orange\x1b[0m",
            "\x1b[38:2:1:2:3mtrue colour\x1b[0m",
            "10 %\r20 %\r",
        ] {
            assert_eq!(shown(&[text.as_bytes()]), text);
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(shown(&single), text, "in pieces");
        }
        assert_eq!(shown(&[b"\x1b[mreset"]), "\x1b[0mreset");
    }

    #[test]
    fn a_colour_that_was_left_on_is_taken_back() {
        for (text, end) in [
            ("plain", ""),
            ("\x1b[31mred\x1b[0m", ""),
            ("\x1b[1;31mred\x1b[m", ""),
            ("\x1b[31mred", "\x1b[0m"),
        ] {
            let mut safe = Safe::default();
            safe.take(text.as_bytes());
            assert_eq!(safe.end(), end.as_bytes(), "{text:?}");
            assert_eq!(safe.end(), b"", "once");
        }
    }

    #[test]
    fn whatever_else_a_terminal_obeys_is_left_out() {
        for hostile in [
            "\x1b]0;title\x07",
            "\x1b]52;c;cm0gLXJmIC8K\x07",
            "\x1b]8;;https://example.org\x1b\\",
            "\x1b[2J\x1b[H",
            "\x1b[6n",
            "\x1b[?1049h\x1b[?25l",
            "\x1b[1A\x1b[2K",
            "\x1b[>4;1m",
            "\x1bP$qm\x1b\\",
            "\x1b_payload\x1b\\",
            "\x1b^payload\x1b\\",
            "\x1bXpayload\x1b\\",
            "\x1bc",
            "\x1b(0",
            "\u{9b}2J",
            "\u{9d}0;title\u{9c}",
            "\x07\x08\x0b\x0c\x0e\x7f",
        ] {
            let text = format!("before{hostile}after");
            let shown = shown(&[text.as_bytes()]);
            assert!(
                shown.starts_with("before") && !shown.contains('\x1b'),
                "{hostile:?} became {shown:?}"
            );
            assert!(!shown.chars().any(char::is_control), "{hostile:?} became {shown:?}");
        }
    }

    #[test]
    fn what_is_no_text_does_no_harm() {
        let all: Vec<u8> = (0..=255).collect();
        let shown = shown(&[&all, b"\xff\xfe\x9b2J", b"\xc2", b"\x9b2J"]);
        let allowed = |c: char| matches!(c, '\n' | '\r' | '\t');
        assert!(shown.chars().all(|c| !c.is_control() || allowed(c)), "{shown:?}");
    }
}
