//! JSON text of records in a compact form, about a sixth of its size. Entries of the event log repeat the same names of
//! fields a million times, and their values are mostly IDs and times that differ little from one another.
//!
//! Each text is packed by itself, so that any of them can be read and deleted without the others. What most texts have
//! in common is in a list of phrases, which is part of the format: a released list never changes. The first byte says
//! which list a text was packed with, so another one can be added.
//!
//! Every text can be packed and comes back byte for byte, whatever it contains.

mod numbers;
mod phrases;

use numbers::Numbers;
use phrases::Phrases;

/// The list of phrases that new texts are packed with.
const VERSION: u8 = 1;

// The first byte of an instruction. The lowest bits of the first three contain a length.
const LITERAL: u8 = 0x00;
const PHRASE: u8 = 0x40;
const NEXT_PHRASE: u8 = 0x80;
/// With the number of the slot that it is near to.
const NUMBER: u8 = 0xc0;
const LARGE_NUMBER: u8 = 0xd0;
const HEX: u8 = 0xd1;
const UUID: u8 = 0xd2;

/// The largest length that fits into the lowest six bits. The next byte is added to it.
const SHORT_MAX: usize = 63;
const LITERAL_MAX: usize = 64;
/// A shorter phrase is not worth the two bytes of its position.
const PHRASE_MIN: usize = 4;
const NEXT_PHRASE_MIN: usize = 2;
const PHRASE_MAX: usize = SHORT_MAX + 255;
/// Shorter numbers are copied.
const DIGITS_MIN: usize = 3;
/// The most digits that a number of 64 bits can have.
const DIGITS_MAX: usize = 20;
const HEX_MIN: usize = 16;
const HEX_MAX: usize = 254;
/// The lengths of the groups of a UUID in digits.
const UUID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
const UUID_LENGTH: usize = 36;

/// `near` is a number that the text probably contains numbers close to, such as its time. The same one is needed to
/// unpack it.
pub(super) fn pack(text: &str, near: u64) -> Vec<u8> {
    let mut packer = Packer {
        text: text.as_bytes(),
        at: 0,
        copied: 0,
        packed: Vec::with_capacity(text.len() / 4 + 16),
        numbers: Numbers::new(near),
        phrases: phrases::first(),
        next_phrase: None,
    };
    packer.packed.push(VERSION);
    while packer.at < packer.text.len() {
        packer.step();
    }
    packer.flush();
    packer.packed
}

/// `None` if this was not packed by [`pack`].
pub(super) fn unpack(packed: &[u8], near: u64) -> Option<String> {
    let (&version, packed) = packed.split_first()?;
    if version != VERSION {
        return None;
    }
    let mut unpacker = Unpacker {
        packed,
        text: Vec::with_capacity(packed.len() * 6),
        numbers: Numbers::new(near),
        phrases: phrases::first(),
        next_phrase: None,
    };
    while !unpacker.packed.is_empty() {
        unpacker.step()?;
    }
    String::from_utf8(unpacker.text).ok()
}

struct Packer<'t> {
    text: &'t [u8],
    at: usize,
    /// The text from here to `at` has not been packed yet, because it has to be copied.
    copied: usize,
    packed: Vec<u8>,
    numbers: Numbers,
    phrases: &'static Phrases,
    /// Where the phrase would go on after one character that differs.
    next_phrase: Option<usize>,
}

impl Packer<'_> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        let is_inside = self.at > 0 && self.text[self.at - 1].is_ascii_hexdigit();
        if !is_inside && let Some(bytes) = uuid(rest) {
            self.flush();
            self.packed.push(UUID);
            self.packed.extend_from_slice(&bytes);
            self.at += UUID_LENGTH;
        } else if !is_inside && let Some((digits, bytes)) = hex(rest) {
            self.flush();
            self.packed.extend([HEX, bytes.len() as u8]);
            self.packed.extend_from_slice(&bytes);
            self.at += digits;
        } else if let Some((digits, number)) = number(rest) {
            self.flush();
            self.number(number);
            self.at += digits;
        } else if let Some((position, length)) = self.phrase(rest) {
            let is_next = self.next_phrase == Some(position);
            self.flush();
            if is_next {
                self.length(NEXT_PHRASE, length);
            } else {
                self.length(PHRASE, length);
                self.packed.extend((position as u16).to_le_bytes());
            }
            self.next_phrase = Some(position + length + 1);
            self.at += length;
        } else {
            self.at += 1;
            return;
        }
        self.copied = self.at;
    }

    /// The phrase that goes on after the last one, or else the longest.
    fn phrase(&self, rest: &[u8]) -> Option<(usize, usize)> {
        let next = self.next_phrase.and_then(|position| {
            let length = self.phrases.common(position, rest, PHRASE_MAX);
            (length >= NEXT_PHRASE_MIN).then_some((position, length))
        });
        next.or_else(|| {
            self.phrases.longest(rest, PHRASE_MAX).filter(|found| found.1 >= PHRASE_MIN)
        })
    }

    /// Copies what no instruction was found for.
    fn flush(&mut self) {
        for piece in self.text[self.copied..self.at].chunks(LITERAL_MAX) {
            self.packed.push(LITERAL | (piece.len() - 1) as u8);
            self.packed.extend_from_slice(piece);
        }
        self.copied = self.at;
    }

    fn length(&mut self, instruction: u8, length: usize) {
        if length < SHORT_MAX {
            self.packed.push(instruction | length as u8);
        } else {
            self.packed.extend([instruction | SHORT_MAX as u8, (length - SHORT_MAX) as u8]);
        }
    }

    fn number(&mut self, number: u64) {
        match self.numbers.near(number) {
            Some((slot, delta)) => {
                self.packed.push(NUMBER | slot);
                numbers::write(&mut self.packed, delta);
            }
            None => {
                self.packed.push(LARGE_NUMBER);
                self.packed.extend(number.to_le_bytes());
            }
        }
        self.numbers.add(number);
    }
}

struct Unpacker<'p> {
    packed: &'p [u8],
    text: Vec<u8>,
    numbers: Numbers,
    phrases: &'static Phrases,
    next_phrase: Option<usize>,
}

impl Unpacker<'_> {
    fn step(&mut self) -> Option<()> {
        let instruction = self.take(1)?[0];
        match instruction {
            LITERAL..PHRASE => {
                let piece = self.take(usize::from(instruction) + 1)?;
                self.text.extend_from_slice(piece);
            }
            PHRASE..NEXT_PHRASE => {
                let length = self.length(instruction)?;
                let position = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
                self.phrase(usize::from(position), length)?;
            }
            NEXT_PHRASE..NUMBER => {
                let length = self.length(instruction)?;
                self.phrase(self.next_phrase?, length)?;
            }
            NUMBER..LARGE_NUMBER => {
                let delta = numbers::read(&mut self.packed)?;
                let number = self.numbers.at(instruction - NUMBER, delta)?;
                self.number(number);
            }
            LARGE_NUMBER => {
                let number = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
                self.number(number);
            }
            HEX => {
                let length = self.take(1)?[0];
                let bytes = self.take(usize::from(length))?;
                push_hex(&mut self.text, bytes);
            }
            UUID => {
                let mut bytes = self.take(UUID_LENGTH / 2 - 2)?;
                for (group, digits) in UUID_GROUPS.into_iter().enumerate() {
                    if group > 0 {
                        self.text.push(b'-');
                    }
                    let (now, later) = bytes.split_at(digits / 2);
                    push_hex(&mut self.text, now);
                    bytes = later;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn length(&mut self, instruction: u8) -> Option<usize> {
        let length = usize::from(instruction) & SHORT_MAX;
        match length {
            SHORT_MAX => Some(length + usize::from(self.take(1)?[0])),
            _ => Some(length),
        }
    }

    fn phrase(&mut self, position: usize, length: usize) -> Option<()> {
        self.text.extend_from_slice(self.phrases.get(position, length)?);
        self.next_phrase = Some(position + length + 1);
        Some(())
    }

    fn number(&mut self, number: u64) {
        self.text.extend_from_slice(number.to_string().as_bytes());
        self.numbers.add(number);
    }
}

impl<'p> Unpacker<'p> {
    fn take(&mut self, length: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.packed.split_at_checked(length)?;
        self.packed = rest;
        Some(taken)
    }
}

/// The number that a text begins with, and how many digits it has. Written again, it must have the same digits.
fn number(text: &[u8]) -> Option<(usize, u64)> {
    // This is called at every byte, so a long row of digits must not be counted to its end each time.
    let digits = text.iter().take(DIGITS_MAX + 1);
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    if !(DIGITS_MIN..=DIGITS_MAX).contains(&digits) || text[0] == b'0' {
        return None;
    }
    let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((digits, number))
}

/// The digest that a text begins with, and how many digits of it were read.
fn hex(text: &[u8]) -> Option<(usize, Vec<u8>)> {
    let is_digit = |byte: &&u8| digit(**byte).is_some();
    let digits = text.iter().take(HEX_MAX).take_while(is_digit).count() & !1;
    let is_number = || text[..digits].iter().all(u8::is_ascii_digit);
    if digits < HEX_MIN || is_number() {
        return None;
    }
    Some((digits, bytes_of(&text[..digits])?))
}

fn uuid(text: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text.get(..UUID_LENGTH)?;
    // Most texts differ here.
    if rest[UUID_GROUPS[0]] != b'-' {
        return None;
    }
    let mut bytes = Vec::with_capacity(UUID_LENGTH / 2 - 2);
    for (group, digits) in UUID_GROUPS.into_iter().enumerate() {
        if group > 0 {
            rest = rest.strip_prefix(b"-")?;
        }
        let (now, later) = rest.split_at(digits);
        bytes.extend(bytes_of(now)?);
        rest = later;
    }
    Some(bytes)
}

fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    digits.chunks(2).map(|two| Some(digit(two[0])? << 4 | digit(two[1])?)).collect()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn push_hex(text: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
    }
}

#[cfg(test)]
mod tests;
