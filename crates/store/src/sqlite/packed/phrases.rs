//! What most texts have in common, and how to find it in one of them.

use std::sync::LazyLock;

/// Where there is one character that usually differs (a digit or a name), a phrase goes on after it.
const FIRST: &str = include_str!("phrases_1.txt");
/// How many characters are looked up at once.
const KEY: usize = 4;
const BUCKETS: usize = 1 << 12;
const NONE: u16 = u16::MAX;
/// How many places with the same beginning are compared at most.
const TRIES: usize = 24;

pub(super) struct Phrases {
    text: &'static [u8],
    /// The last place of each bucket.
    last: Vec<u16>,
    /// For each place, the one before it in the same bucket.
    before: Vec<u16>,
}

/// The first list. It is part of the format of the store: add another list instead of changing it.
pub(super) fn first() -> &'static Phrases {
    static PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::new(FIRST));
    &PHRASES
}

#[cfg(test)]
pub(super) fn first_text() -> &'static str {
    FIRST
}

impl Phrases {
    fn new(text: &'static str) -> Phrases {
        let text = text.as_bytes();
        let (mut last, mut before) = (vec![NONE; BUCKETS], vec![NONE; text.len()]);
        for (place, key) in (0u16..NONE).zip(text.windows(KEY)) {
            let bucket = bucket(key);
            before[usize::from(place)] = last[bucket];
            last[bucket] = place;
        }
        Phrases { text, last, before }
    }

    pub(super) fn get(&self, position: usize, length: usize) -> Option<&'static [u8]> {
        self.text.get(position..position.checked_add(length)?)
    }

    /// The longest phrase that the text begins with: its position and its length.
    pub(super) fn longest(&self, text: &[u8], most: usize) -> Option<(usize, usize)> {
        let mut place = self.last[bucket(text.get(..KEY)?)];
        let mut found = None;
        for _ in 0..TRIES {
            if place == NONE {
                break;
            }
            let position = usize::from(place);
            let length = self.common(position, text, most);
            if found.is_none_or(|(_, longest)| length > longest) {
                found = Some((position, length));
            }
            place = self.before[position];
        }
        found
    }

    /// How many characters of the text are the same as from this position on. It does not end within a number, because
    /// the rest of a number is further away from others than the whole.
    pub(super) fn common(&self, position: usize, text: &[u8], most: usize) -> usize {
        let phrase = self.text.get(position..).unwrap_or_default();
        let mut length =
            phrase.iter().zip(text).take(most).take_while(|(ours, theirs)| ours == theirs).count();
        if text.get(length).is_some_and(u8::is_ascii_digit) {
            while length > 0 && text[length - 1].is_ascii_digit() {
                length -= 1;
            }
        }
        length
    }
}

fn bucket(key: &[u8]) -> usize {
    let key = key.iter().fold(0u32, |key, byte| key << 8 | u32::from(*byte));
    (key.wrapping_mul(0x9e37_79b1) >> 20) as usize
}
