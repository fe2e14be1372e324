//! Numbers as their distance to others that came before.

/// Slots with numbers that do not change: the one that the caller expects, and zero.
const FIXED: usize = 2;
const SLOTS: usize = 8;
/// Numbers further away are written in full.
const BYTES_MAX: usize = 8;
/// Numbers closer to another one are not remembered themselves.
const REMEMBERED_MIN: u64 = 1 << 14;

/// The numbers that the next one is compared with.
pub(super) struct Numbers {
    slots: [u64; SLOTS],
    used: usize,
    oldest: usize,
}

impl Numbers {
    pub(super) fn new(near: u64) -> Numbers {
        let mut slots = [0; SLOTS];
        slots[0] = near;
        Numbers { slots, used: FIXED, oldest: FIXED }
    }

    /// The slot with the nearest number, and the distance to it, if that is shorter than the number.
    pub(super) fn near(&self, number: u64) -> Option<(u8, u64)> {
        let distances =
            self.slots[..self.used].iter().map(|slot| zigzag(number.wrapping_sub(*slot)));
        let (slot, distance) = (0u8..).zip(distances).min_by_key(|(_, distance)| *distance)?;
        (distance < 1 << (7 * BYTES_MAX)).then_some((slot, distance))
    }

    pub(super) fn at(&self, slot: u8, distance: u64) -> Option<u64> {
        let slot = self.slots[..self.used].get(usize::from(slot))?;
        Some(slot.wrapping_add(unzigzag(distance)))
    }

    pub(super) fn add(&mut self, number: u64) {
        if self.near(number).is_some_and(|(_, distance)| distance < REMEMBERED_MIN) {
            return;
        }
        if self.used < SLOTS {
            self.slots[self.used] = number;
            self.used += 1;
        } else {
            self.slots[self.oldest] = number;
            self.oldest = if self.oldest + 1 < SLOTS { self.oldest + 1 } else { FIXED };
        }
    }
}

/// Small distances in both directions become small numbers.
fn zigzag(distance: u64) -> u64 {
    (distance << 1) ^ (distance.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Seven bits in each byte; the highest bit says that another one follows.
pub(super) fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(super) fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..7 * BYTES_MAX).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
