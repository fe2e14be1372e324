//! ISO 8601 durations of a fixed length: weeks, days, hours, minutes, seconds.
//!
//! This is not left to jiff, whose spans are shorter than ours and which takes no fraction of a day: see
//! docs/adr/0008.

use std::fmt::Write as _;

use muster_core::time::Span;

use crate::json::shorten;

/// Longer than every sensible duration; a longer text is not one.
const TEXT_BYTES_MAX: usize = 64;
/// Further digits cannot change a microsecond of the largest unit.
const FRACTION_DIGITS_MAX: usize = 18;
const SECOND_US: u128 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("the duration has {got} characters; at most {TEXT_BYTES_MAX} are allowed")]
    TooLong { got: usize },
    #[error("the duration '{text}' is negative; give PT0S or more")]
    Negative { text: String },
    #[error(
        "the duration '{text}' has years or months, whose length is not fixed; \
         give weeks, days, hours, minutes and seconds, for example P30D"
    )]
    NotFixed { text: String },
    #[error("the duration '{text}' is too long to be represented; shorten it")]
    Overflow { text: String },
    #[error("'{text}' is not an ISO 8601 duration; write it like PT2M, PT1H30M or P1DT12H")]
    Malformed { text: String },
}

pub fn parse(text: &str) -> Result<Span, DurationError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(DurationError::TooLong { got: text.chars().count() });
    }
    let malformed = || DurationError::Malformed { text: shorten(text) };
    if text.starts_with('-') || text.contains('-') && text.starts_with(['P', 'p']) {
        return Err(DurationError::Negative { text: shorten(text) });
    }
    let body = text.strip_prefix(['P', 'p']).ok_or_else(malformed)?;
    let (date, time) = match body.split_once(['T', 't']) {
        Some((_, "")) => return Err(malformed()),
        Some((date, time)) => (date, time),
        None if body.is_empty() => return Err(malformed()),
        None => (body, ""),
    };
    let mut sum = Sum { text, us: 0, is_closed: false };
    sum.add_parts(date, &[('Y', 0), ('M', 0), ('W', 604_800), ('D', 86_400)])?;
    sum.add_parts(time, &[('H', 3_600), ('M', 60), ('S', 1)])?;
    u64::try_from(sum.us).map(Span).map_err(|_| DurationError::Overflow { text: shorten(text) })
}

/// The shortest form: `PT2M`, `PT1M30S`, `P1DT1H`, `PT0S`.
pub fn format(span: Span) -> String {
    let (seconds, us) = (span.0 / 1_000_000, span.0 % 1_000_000);
    let mut text = String::from("P");
    let part = |text: &mut String, count: u64, unit: char| {
        if count > 0 {
            write!(text, "{count}{unit}").expect("writing to a string cannot fail");
        }
    };
    part(&mut text, seconds / 86_400, 'D');
    let mut time = String::new();
    part(&mut time, seconds / 3_600 % 24, 'H');
    part(&mut time, seconds / 60 % 60, 'M');
    if us > 0 {
        let fraction = format!("{us:06}");
        let fraction = fraction.trim_end_matches('0');
        write!(time, "{}.{fraction}S", seconds % 60).expect("writing to a string cannot fail");
    } else {
        part(&mut time, seconds % 60, 'S');
    }
    if time.is_empty() && text.len() == 1 {
        time.push_str("0S");
    }
    if !time.is_empty() {
        text.push('T');
        text.push_str(&time);
    }
    text
}

struct Sum<'a> {
    text: &'a str,
    us: u128,
    /// A fraction was read, so nothing may follow it.
    is_closed: bool,
}

impl Sum<'_> {
    fn malformed(&self) -> DurationError {
        DurationError::Malformed { text: shorten(self.text) }
    }

    /// Adds `number unit` pairs. `units` are the allowed units in the order in which they must occur, with their
    /// seconds; 0 marks a unit without a fixed length.
    fn add_parts(&mut self, parts: &str, units: &[(char, u64)]) -> Result<(), DurationError> {
        let mut units = units.iter();
        let mut rest = parts;
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_ascii_alphabetic());
            let (number, tail) = rest.split_at(end.ok_or_else(|| self.malformed())?);
            let unit = tail.chars().next().ok_or_else(|| self.malformed())?.to_ascii_uppercase();
            rest = &tail[1..];
            let seconds = units.find(|(known, _)| *known == unit).map(|(_, seconds)| *seconds);
            match seconds {
                None => return Err(self.malformed()),
                Some(0) => return Err(DurationError::NotFixed { text: shorten(self.text) }),
                Some(_) if self.is_closed => return Err(self.malformed()),
                Some(seconds) => self.add(number, u128::from(seconds) * SECOND_US)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, number: &str, unit_us: u128) -> Result<(), DurationError> {
        let (whole, fraction) = match number.split_once(['.', ',']) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (number, None),
        };
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || fraction.is_some_and(|fraction| !is_digits(fraction)) {
            return Err(self.malformed());
        }
        let overflow = || DurationError::Overflow { text: shorten(self.text) };
        let count: u64 = whole.parse().map_err(|_| overflow())?;
        let mut us = u128::from(count) * unit_us;
        if let Some(fraction) = fraction {
            self.is_closed = true;
            let digits = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
            let scale = digits.bytes().fold(1u128, |scale, _| scale * 10);
            let count: u128 = digits.parse().map_err(|_| overflow())?;
            us += count * unit_us / scale;
        }
        // Each part is below 2^64 weeks and there are at most seven, so u128 holds the sum.
        self.us += us;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read() {
        let cases = [
            ("PT2M", 120_000_000),
            ("PT120S", 120_000_000),
            ("PT1M30S", 90_000_000),
            ("PT1H1M1S", 3_661_000_000),
            ("P1D", 86_400_000_000),
            ("P1DT1H1M1S", 90_061_000_000),
            ("P1W", 604_800_000_000),
            ("P1WT1S", 604_801_000_000),
            ("PT0S", 0),
            ("P0D", 0),
            ("PT0.5S", 500_000),
            ("PT1,5M", 90_000_000),
            ("PT1.5H", 5_400_000_000),
            ("P0.5D", 43_200_000_000),
            ("PT0.1234567S", 123_456),
            ("pt2m", 120_000_000),
            ("PT36H", 129_600_000_000),
        ];
        for (text, us) in cases {
            assert_eq!(parse(text), Ok(Span(us)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_value() {
        use DurationError as E;
        let text = |text: &str| text.to_owned();
        for bad in [
            "",
            "P",
            "PT",
            "P1DT",
            "2M",
            "PT2",
            "PT2X",
            "PTM",
            "PT2M1H",
            "PT2M2M",
            "P1H",
            "PT1D",
            "PT1.5H2M",
            "PT1.S",
            "PT.5S",
            "PT1..5S",
            "PT+1S",
            "PT 1S",
            "120",
            "two minutes",
            "PT1S ",
            "P\u{661}D",
            "PT1\u{dc}S",
        ] {
            assert_eq!(parse(bad), Err(E::Malformed { text: text(bad) }), "{bad}");
        }
        for bad in ["-PT2M", "P-1D", "PT-2M"] {
            assert_eq!(parse(bad), Err(E::Negative { text: text(bad) }), "{bad}");
            assert!(parse(bad).unwrap_err().to_string().contains(bad));
        }
        for bad in ["P1Y", "P1M", "P1M1D", "P0.5Y"] {
            assert_eq!(parse(bad), Err(E::NotFixed { text: text(bad) }), "{bad}");
        }
        for bad in ["P99999999999999W", "PT18446744073710S", "PT99999999999999999999999S"] {
            assert_eq!(parse(bad), Err(E::Overflow { text: text(bad) }), "{bad}");
        }
        let long = format!("PT{}S", "1".repeat(100));
        assert_eq!(parse(&long), Err(E::TooLong { got: 103 }));
    }

    #[test]
    fn the_shortest_form_is_written() {
        let cases = [
            (0, "PT0S"),
            (120, "PT2M"),
            (90, "PT1M30S"),
            (3_600, "PT1H"),
            (86_400, "P1D"),
            (90_061, "P1DT1H1M1S"),
            (604_800, "P7D"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format(Span::seconds(seconds)), text);
        }
        assert_eq!(format(Span(1_500_000)), "PT1.5S");
        assert_eq!(format(Span(60_000_001)), "PT1M0.000001S");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(us: u64) {
            prop_assert_eq!(parse(&format(Span(us))), Ok(Span(us)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,70}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_near_miss_panics(text in "-?[Pp][0-9.,YMWDTHSé-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
