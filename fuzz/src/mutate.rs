//! Mutations of a valid input, the same for the same seed: on its bytes and, if it is JSON, on its values. The latter
//! get further, because the odd value is in a valid place.

use serde_json::{Map, Number, Value};

/// The size limit for an input that is made much longer.
const LONG_BYTES: usize = 16 << 10;
const EDITS_MAX: usize = 4;

/// A small pseudo-random generator (splitmix64).
pub struct Random(u64);

impl Random {
    /// A different sequence for every text.
    pub fn new(seed: &str) -> Random {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(seed.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("it is below a usize")
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// An input after a few edits; `others` are inputs of the same parser.
pub fn changed(input: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0
        && let Ok(mut value) = serde_json::from_slice::<Value>(input)
    {
        for _ in 0..=random.below(EDITS_MAX) {
            edit_value(&mut value, random);
        }
        return value.to_string().into_bytes();
    }
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(EDITS_MAX) {
        edit_bytes(&mut bytes, others, random);
    }
    bytes
}

fn edit_bytes(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    const WORDS: [&[u8]; 20] = [
        b"\0",
        b"\n",
        b"\r\n",
        b"\x7f",
        b"\xff",
        b"\xc0\xaf",
        "\u{85}".as_bytes(),
        "é".as_bytes(),
        "\u{202e}".as_bytes(),
        b"%",
        b"%2f",
        b"%00",
        b"..",
        b"'",
        b"\"",
        b"-",
        b"18446744073709551616",
        b" and ",
        b"null",
        b"[[[[[[[[",
    ];
    let place = random.below(bytes.len() + 1);
    let until = place + random.below(bytes.len() - place + 1);
    match random.below(7) {
        0 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
        1 => drop(bytes.drain(place..until)),
        2 => drop(bytes.splice(place..place, random.one_of(&WORDS).iter().copied())),
        3 => drop(bytes.splice(place..until, random.one_of(&WORDS).iter().copied())),
        4 => bytes.truncate(place),
        5 if !others.is_empty() => {
            let other = random.one_of(others);
            let from = random.below(other.len() + 1);
            bytes.splice(place..until, other[from..].iter().copied());
        }
        // Repeats a part many times, which reveals quadratic run times.
        _ if until > place => {
            let piece = bytes[place..until].to_vec();
            let times = (1 + random.below(1_000)).min(LONG_BYTES / piece.len());
            bytes.splice(place..place, piece.repeat(times));
        }
        _ => {}
    }
    bytes.truncate(2 * LONG_BYTES);
}

fn edit_value(value: &mut Value, random: &mut Random) {
    let count = count(value);
    let copy = nth(value, random.below(count)).map(|found| found.clone());
    let Some(place) = nth(value, random.below(count)) else { return };
    match (random.below(8), &mut *place) {
        (0, Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len())).cloned();
            map.remove(&key.unwrap_or_default());
        }
        (1, Value::Object(map)) => {
            map.insert("é\u{1}".to_owned(), odd(random));
        }
        (2, _) => *place = copy.unwrap_or_default(),
        _ => *place = odd(random),
    }
}

fn odd(random: &mut Random) -> Value {
    let number = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match random.below(16) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 => Value::from(-1),
        3 => Value::from(0),
        4 => Value::from(u64::MAX),
        5 => Value::from(i64::MAX),
        6 => number(1e308),
        7 => number(0.5),
        8 => Value::from(""),
        9 => Value::from("\u{0}\n\u{7f}\u{85}"),
        10 => Value::from("é".repeat(1 + random.below(3_000))),
        11 => Value::from("P18446744073709551615W"),
        12 => Value::from("/subscriptions/s/resourceGroups/g/providers/p/x/y"),
        13 => Value::Array(Vec::new()),
        14 => Value::Object(Map::new()),
        _ => (0..random.below(200)).fold(Value::Null, |inner, _| Value::Array(vec![inner])),
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// Numbers the values: each has its own number before those inside of it.
fn nth(value: &mut Value, mut number: usize) -> Option<&mut Value> {
    if number == 0 {
        return Some(value);
    }
    number -= 1;
    let mut inner: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(map) => Box::new(map.values_mut()),
        _ => return None,
    };
    inner.find_map(|inner| {
        let within = count(inner);
        if number < within {
            return nth(inner, number);
        }
        number -= within;
        None
    })
}
