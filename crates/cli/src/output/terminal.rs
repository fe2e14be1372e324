//! The output of a job for a terminal: its text and its colours. All other control sequences (titles, the clipboard,
//! input on behalf of the user, clearing the screen) are left out.
//!
//! A sequence that never ends must neither swallow the rest of the log nor use up memory: a newline ends every
//! sequence, and so does a maximum length. What follows is text, which is harmless.

/// Filters a log piece by piece: a character or a sequence may begin in one piece and end in the next.
#[derive(Default)]
pub struct Safe {
    /// The first bytes of a character whose last ones have not arrived yet.
    partial: Vec<u8>,
    state: State,
    shown: String,
    is_coloured: bool,
}

/// What precedes the next character.
#[derive(Default)]
enum State {
    #[default]
    Text,
    /// ESC, and possibly characters that select a character set.
    Escape,
    /// ESC [, and the parameters of the sequence so far.
    Control(String),
    /// ESC ], P, X, ^ or _, and the number of characters of the string so far.
    Skipped(usize),
}

const ESCAPE: char = '\x1b';
/// Colour sequences have about 40 characters at most.
const PARAMETERS_MAX: usize = 128;
/// Titles and links are shorter.
const STRING_CHARS_MAX: usize = 4096;

/// Characters that a terminal interprets instead of displaying them: control characters, and those that change the
/// direction of the text, so that it reads differently.
pub fn is_command(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl Safe {
    /// Returns the displayable part of the next piece.
    pub fn take(&mut self, piece: &[u8]) -> Vec<u8> {
        for byte in piece {
            self.byte(*byte);
        }
        std::mem::take(&mut self.shown).into_bytes()
    }

    /// Resets a colour that was left on.
    pub fn end(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.is_coloured) { b"\x1b[0m" } else { b"" }
    }

    fn byte(&mut self, byte: u8) {
        self.partial.push(byte);
        match std::str::from_utf8(&self.partial).map(|text| text.chars().next()) {
            Ok(character) => {
                self.partial.clear();
                character.into_iter().for_each(|character| self.character(character));
            }
            Err(why) => {
                // Without a length, the character may still be completed.
                let Some(broken) = why.error_len() else { return };
                let rest = self.partial.split_off(broken);
                self.partial.clear();
                self.character(char::REPLACEMENT_CHARACTER);
                rest.into_iter().for_each(|byte| self.byte(byte));
            }
        }
    }

    fn character(&mut self, character: char) {
        self.state = match (std::mem::take(&mut self.state), character) {
            // Progress bars return to the start of their line.
            (_, '\n' | '\r') => {
                self.shown.push(character);
                State::Text
            }
            (_, ESCAPE) => State::Escape,
            // CAN and SUB abort a sequence, and ST ends it.
            (_, '\x18' | '\x1a' | '\u{9c}') => State::Text,
            (_, '\u{9b}') => State::Control(String::new()),
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => State::Skipped(0),
            (State::Text, _) => self.text(character),
            (State::Escape, _) => self.escaped(character),
            (State::Control(parameters), _) => self.control(parameters, character),
            (State::Skipped(_), '\x07') => State::Text,
            (State::Skipped(count), _) if count < STRING_CHARS_MAX => State::Skipped(count + 1),
            (State::Skipped(_), _) => self.text(character),
        };
    }

    fn text(&mut self, character: char) -> State {
        if character == '\t' || !is_command(character) {
            self.shown.push(character);
        }
        State::Text
    }

    fn escaped(&mut self, character: char) -> State {
        match character {
            '[' => State::Control(String::new()),
            ']' | 'P' | 'X' | '^' | '_' => State::Skipped(0),
            ' '..='/' => State::Escape,
            '0'..='~' => State::Text,
            _ => self.text(character),
        }
    }

    fn control(&mut self, mut parameters: String, character: char) -> State {
        match character {
            ' '..='?' if parameters.len() < PARAMETERS_MAX => {
                parameters.push(character);
                State::Control(parameters)
            }
            '@'..='~' => {
                if character == 'm' {
                    self.colour(&parameters);
                }
                State::Text
            }
            _ => self.text(character),
        }
    }

    fn colour(&mut self, parameters: &str) {
        if !parameters.chars().all(|c| c.is_ascii_digit() || matches!(c, ';' | ':')) {
            return;
        }
        let parameters = if parameters.is_empty() { "0" } else { parameters };
        self.is_coloured = parameters != "0";
        self.shown.push_str("\x1b[");
        self.shown.push_str(parameters);
        self.shown.push('m');
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
            "\x1b]8;;größe ✓\u{9c}",
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
            "\u{9b}38;2;1;2;3;20h",
            "\u{90}$qm\x1b\\",
            "\u{84}\u{85}\u{8d}",
            "\u{9d}0;title\u{9c}",
            "\x07\x08\x0b\x0c\x0e\x7f",
        ] {
            let text = format!("before{hostile}after");
            assert_eq!(shown(&[text.as_bytes()]), "beforeafter", "{hostile:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(shown(&single), "beforeafter", "{hostile:?} in pieces");
        }
    }

    #[test]
    fn a_sequence_without_end_hides_one_line_at_most() {
        for begin in
            ["\x1b]", "\x1bP", "\x1bX", "\x1b^", "\x1b_", "\x1b[", "\x1b", "\u{9d}", "\u{9b}"]
        {
            let text = format!("before{begin}\nthe next line\n");
            assert_eq!(shown(&[text.as_bytes()]), "before\nthe next line\n", "{begin:?}");
            // The same holds for a line without an end.
            let text = format!("{begin}{};the end", ";".repeat(2 * STRING_CHARS_MAX));
            assert!(shown(&[text.as_bytes()]).ends_with(";the end"), "{begin:?}");
        }
    }

    #[test]
    fn whatever_follows_half_a_character_is_shown() {
        for (bytes, wanted) in [
            (&b"\xe2\x82\nnext"[..], "\u{fffd}\nnext"),
            (b"\xc3A", "\u{fffd}A"),
            (b"\xf0\x9f\x98\xe2\x9c\x93", "\u{fffd}\u{2713}"),
            (b"\xf0\x9f\x98\x1b[2Jtext", "\u{fffd}text"),
            (b"x\xe9 y\xe9.", "x\u{fffd} y\u{fffd}."),
            (b"\xed\xa0\x80.", "\u{fffd}\u{fffd}\u{fffd}."),
        ] {
            assert_eq!(shown(&[bytes]), wanted, "{bytes:?}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(shown(&single), wanted, "{bytes:?} in pieces");
        }
    }

    #[test]
    fn text_keeps_its_direction() {
        assert_eq!(
            shown(&["pay \u{202e}001\u{202c} \u{5d0}\u{200f}".as_bytes()]),
            "pay 001 \u{5d0}\u{200f}"
        );
    }

    #[test]
    fn what_is_no_text_does_no_harm() {
        let all: Vec<u8> = (0..=255).collect();
        let shown = shown(&[&all, b"\xff\xfe\x9b2J", b"\xc2", b"\x9b2J"]);
        let allowed = |c: char| matches!(c, '\n' | '\r' | '\t');
        assert!(shown.chars().all(|c| !c.is_control() || allowed(c)), "{shown:?}");
    }
}
