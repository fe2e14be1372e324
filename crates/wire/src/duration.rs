//! ISO 8601 durations of a fixed length: weeks, days, hours, minutes, seconds. They are read and written by jiff.

use jiff::fmt::temporal::SpanParser;
use jiff::{SpanRelativeTo, SpanRound, Unit};
use muster_core::time::Span;

use crate::json::shorten;

/// Longer than every sensible duration; a longer text is not one.
const TEXT_BYTES_MAX: usize = 64;
/// 10,000 years, which is about half of what jiff can represent. Every property has a limit of its own far below.
const LONGEST: Span = Span::seconds(LONGEST_DAYS * 24 * 3_600);
const LONGEST_DAYS: u64 = 3_652_425;

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
    #[error("the duration '{text}' is longer than P{LONGEST_DAYS}D (10,000 years); shorten it")]
    Overflow { text: String },
    #[error(
        "'{text}' is not an ISO 8601 duration of at most P{LONGEST_DAYS}D; write it like PT2M, \
         PT1H30M or P1DT12H (at most nine decimals, and only in hours, minutes or seconds)"
    )]
    Malformed { text: String },
}

pub fn parse(text: &str) -> Result<Span, DurationError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(DurationError::TooLong { got: text.chars().count() });
    }
    if text.starts_with('-') || text.contains('-') && text.starts_with(['P', 'p']) {
        return Err(DurationError::Negative { text: shorten(text) });
    }
    let malformed = |_| DurationError::Malformed { text: shorten(text) };
    let span = SpanParser::new().parse_span(text).map_err(malformed)?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(DurationError::NotFixed { text: shorten(text) });
    }
    let overflow = || DurationError::Overflow { text: shorten(text) };
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| overflow())?;
    let us = u64::try_from(duration.as_micros()).ok().map(Span);
    us.filter(|us| *us <= LONGEST).ok_or_else(overflow)
}

/// The shortest form: `PT2M`, `PT1M30S`, `P1DT1H`, `PT0S`. A span that is longer than any duration that can be given is
/// written as the longest one.
pub fn format(span: Span) -> String {
    let us = i64::try_from(span.min(LONGEST).0).expect("the limit is below that of the type");
    let in_days = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = jiff::Span::new().microseconds(us).round(in_days);
    span.expect("the limit is below that of jiff").to_string()
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
            ("PT0.1234567S", 123_456),
            ("PT0.123456789S", 123_456),
            ("P3652425D", LONGEST.0),
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
            "P0.5D",
            "P0.5Y",
            "PT0.1234567891S",
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
            "P99999999999999W",
            "PT18446744073710S",
            "PT99999999999999999999999S",
        ] {
            assert_eq!(parse(bad), Err(E::Malformed { text: text(bad) }), "{bad}");
        }
        for bad in ["-PT2M", "P-1D", "PT-2M"] {
            assert_eq!(parse(bad), Err(E::Negative { text: text(bad) }), "{bad}");
            assert!(parse(bad).unwrap_err().to_string().contains(bad));
        }
        for bad in ["P1Y", "P1M", "P1M1D"] {
            assert_eq!(parse(bad), Err(E::NotFixed { text: text(bad) }), "{bad}");
        }
        for bad in ["P3652425DT0.000001S", "P521776W", "P5000000DT99999999H", "PT631107417600S"] {
            assert_eq!(parse(bad), Err(E::Overflow { text: text(bad) }), "{bad}");
        }
        let message = parse("PT18446744073710S").unwrap_err().to_string();
        assert!(message.contains("at most P3652425D; write it like PT2M"), "{message}");
        let message = parse("P3652426D").unwrap_err().to_string();
        assert!(message.contains("'P3652426D' is longer than P3652425D"), "{message}");
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
        assert_eq!(format(Span(u64::MAX)), "P3652425D");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(us in 0..=LONGEST.0) {
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
