//! Points in time as Azure writes them: RFC 3339, UTC.

use jiff::Timestamp;
use muster_core::time::Wall;

/// `2026-11-15T19:52:12Z`, with as many decimals as the time has.
pub fn format(wall: Wall) -> String {
    let us = i64::try_from(wall.0).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX).to_string()
}

/// Any RFC 3339 time from 1970 on; an offset is taken into account.
pub fn parse(text: &str) -> Option<Wall> {
    let timestamp: Timestamp = text.parse().ok()?;
    u64::try_from(timestamp.as_microsecond()).ok().map(Wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_read_back() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (1_794_772_332_000_000, "2026-11-15T19:52:12Z"),
            (1_794_772_332_345_922, "2026-11-15T19:52:12.345922Z"),
        ];
        for (us, text) in cases {
            assert_eq!(format(Wall(us)), text);
            assert_eq!(parse(text), Some(Wall(us)));
        }
        assert_eq!(parse("2026-11-15T20:52:12+01:00"), Some(Wall(1_794_772_332_000_000)));
        for bad in ["", "yesterday", "1969-12-31T23:59:59Z", "2026-11-15"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_time_beyond_every_calendar_does_not_panic() {
        assert!(format(Wall(u64::MAX)).starts_with("9999"));
    }
}
