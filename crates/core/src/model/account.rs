//! How much of a cluster each user has used: the basis of fair share and of predictions.
//!
//! Use decays: with a half-life of one day, a node-hour of yesterday counts half as much as one of today. Instead of
//! decaying past use, later use is given more weight ("forward decay"): the weight of a moment doubles with every
//! half-life since the Unix epoch. So no figure changes while nothing happens, and the order between users changes only
//! at events.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, PrincipalId};
use crate::time::{Span, Wall};

/// One user's account with one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub cluster: ClusterId,
    pub principal: PrincipalId,
    pub used: Use,
    /// How long the last two runs held their nodes, the latest first.
    pub runs: [Option<Span>; 2],
}

impl Account {
    pub fn new(cluster: ClusterId, principal: PrincipalId) -> Account {
        Account { cluster, principal, used: Use::ZERO, runs: [None; 2] }
    }

    /// How long the next run of this user will probably take: the mean of the last two.
    pub fn prediction(&self) -> Option<Span> {
        match self.runs {
            [Some(last), Some(before)] => Some(Span(last.0 / 2 + before.0 / 2)),
            [Some(last), None] => Some(last),
            [None, _] => None,
        }
    }

    pub fn note_run(&mut self, span: Span) {
        self.runs = [Some(span), self.runs[0]];
    }
}

/// Decayed use: `mantissa` × 2^`exponent`, with the mantissa's top bit set, or zero. It uses integers throughout, so
/// that every host computes the same order, and its fields are in this order so that they compare as numbers do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Use {
    exponent: u32,
    mantissa: u64,
}

/// 2^(1/2), 2^(1/4), 2^(1/8), … with 63 fractional bits.
const ROOTS_OF_TWO: [u64; 16] = [
    13_043_817_825_332_782_212,
    10_968_499_650_544_839_023,
    10_058_158_527_438_640_870,
    9_631_725_603_661_576_980,
    9_425_337_585_438_007_767,
    9_323_807_973_325_342_579,
    9_273_454_034_941_487_980,
    9_248_379_135_337_035_440,
    9_235_867_122_425_417_552,
    9_229_617_465_154_500_136,
    9_226_494_222_562_136_016,
    9_224_932_997_620_185_949,
    9_224_152_484_218_207_414,
    9_223_762_252_282_022_472,
    9_223_567_142_504_825_507,
    9_223_469_589_163_912_706,
];

impl Use {
    pub const ZERO: Use = Use { exponent: 0, mantissa: 0 };

    /// `amount` (node-microseconds) used at `at`.
    pub fn of(amount: u64, at: Wall, half_life: Span) -> Use {
        if amount == 0 {
            return Use::ZERO;
        }
        let half_life = half_life.0.max(1);
        let (whole, rest) = (at.0 / half_life, at.0 % half_life);
        let fraction = u64::try_from(u128::from(rest) * 65_536 / u128::from(half_life));
        let fraction = fraction.expect("a remainder is smaller than what it is divided by");
        let mut weight: u64 = 1 << 63;
        for (bit, root) in ROOTS_OF_TWO.iter().enumerate() {
            if fraction & (1 << (15 - bit)) != 0 {
                weight = ((u128::from(weight) * u128::from(*root)) >> 63) as u64;
            }
        }
        // Both factors are at least 2^63, so the product's top bit is at 126 or 127.
        let zeros = amount.leading_zeros();
        let product = u128::from(amount << zeros) * u128::from(weight);
        let shift = 64 - product.leading_zeros();
        let mantissa = (product >> shift) as u64;
        let whole = u32::try_from(whole).unwrap_or(u32::MAX / 2);
        Use { exponent: (whole + 64 + shift).saturating_sub(zeros), mantissa }
    }

    #[must_use]
    pub fn plus(self, other: Use) -> Use {
        let (large, small) = if self >= other { (self, other) } else { (other, self) };
        let (sum, carried) = large.mantissa.overflowing_add(small.scaled_to(large.exponent));
        if carried {
            Use { exponent: large.exponent + 1, mantissa: sum >> 1 | 1 << 63 }
        } else {
            Use { mantissa: sum, ..large }
        }
    }

    /// Never below zero: what is subtracted was added before, but bits may have been lost to rounding in between.
    #[must_use]
    pub fn minus(self, other: Use) -> Use {
        if other >= self {
            return Use::ZERO;
        }
        let mantissa = self.mantissa - other.scaled_to(self.exponent);
        let zeros = mantissa.leading_zeros();
        match self.exponent.checked_sub(zeros) {
            Some(exponent) if mantissa != 0 => Use { exponent, mantissa: mantissa << zeros },
            Some(_) | None => Use::ZERO,
        }
    }

    fn scaled_to(self, exponent: u32) -> u64 {
        self.mantissa.checked_shr(exponent - self.exponent).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Span = Span::seconds(86_400);
    const START: Wall = Wall(1_700_000_000_000_000);

    /// The value as a float relative to `START`, which is precise enough for comparisons.
    fn value(used: Use) -> f64 {
        let landmark = Use::of(1 << 40, START, DAY);
        let scale = f64::from(used.exponent) - f64::from(landmark.exponent);
        used.mantissa as f64 / landmark.mantissa as f64 * scale.exp2() * (1u64 << 40) as f64
    }

    #[test]
    fn the_weight_doubles_with_every_half_life() {
        for (hours, weight) in
            [(0, 1.0), (6, 1.189_207), (12, std::f64::consts::SQRT_2), (24, 2.0), (240, 1024.0)]
        {
            let used = Use::of(3_600_000_000, START + Span::seconds(3_600 * hours), DAY);
            let ratio = value(used) / 3.6e9;
            assert!((ratio / weight - 1.0).abs() < 1e-4, "{hours} h: {ratio} against {weight}");
        }
    }

    #[test]
    fn sums_and_differences_are_those_of_numbers() {
        let amounts = [1u64, 7, 1_000, 86_400_000_000, 123_456_789_012_345];
        for a in amounts {
            for b in amounts {
                let at = START + Span::seconds(a % 90_000);
                let (x, y) = (Use::of(a, at, DAY), Use::of(b, START, DAY));
                let sum = x.plus(y);
                assert!((value(sum) / (value(x) + value(y)) - 1.0).abs() < 1e-9);
                assert!((value(sum.minus(y)) - value(x)).abs() <= value(sum) * 1e-15);
                assert_eq!(x < y, value(x) < value(y));
            }
        }
        assert_eq!(Use::ZERO.plus(Use::of(5, START, DAY)), Use::of(5, START, DAY));
        assert_eq!(Use::of(5, START, DAY).minus(Use::of(5, START, DAY)), Use::ZERO);
        assert!(Use::ZERO < Use::of(1, Wall(0), DAY));
    }

    #[test]
    fn the_prediction_is_the_mean_of_the_last_two_runs() {
        let mut account = Account::new(ClusterId(1), PrincipalId(2));
        assert_eq!(account.prediction(), None);
        account.note_run(Span::seconds(10));
        assert_eq!(account.prediction(), Some(Span::seconds(10)));
        account.note_run(Span::seconds(20));
        account.note_run(Span::seconds(40));
        assert_eq!(account.prediction(), Some(Span::seconds(30)));
    }
}
