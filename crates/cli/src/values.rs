//! Parsers for flag values. They check only what the server cannot check itself.

use std::collections::BTreeMap;

use clap::ValueEnum;
use muster_core::model::{ArrayPlan, ComputeKind, OnEviction, Priority, ScaleUp, Tier};
use muster_core::nearest;
use muster_core::time::{Span, Wall};

use crate::failure::{CliResult, Failure, quoted};

/// Units of time and their lengths in seconds.
const UNITS: [(char, u64); 5] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400), ('w', 604_800)];

/// One segment of a resource's path. The server enforces the naming rules, but an empty segment or a dot would address
/// a different resource before the server could refuse it.
pub fn name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name is empty; give a name".to_owned()),
        "." | ".." => Err("dots alone are not a name; use letters and digits".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The name of a cluster. It becomes part of an id, so a slash would change which resource the id refers to.
pub fn compute(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err("give only the cluster's name, such as cpu-cluster".to_owned());
    }
    name(text)
}

/// A count. The server decides how large it may be.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u32::MAX))
}

pub fn at_least_one(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("give a whole number from 1 to {}", u32::MAX))
}

pub fn seconds(text: &str) -> Result<Span, String> {
    let seconds: u32 = text.parse().map_err(|_| {
        format!("give a whole number of seconds from 0 to {}, such as 120", u32::MAX)
    })?;
    Ok(Span::seconds(u64::from(seconds)))
}

/// A point in the past: a date, a time, or a duration before now.
pub fn when(text: &str) -> Result<Wall, String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.ok().and_then(|now| u64::try_from(now.as_micros()).ok()).unwrap_or_default();
    when_at(text, Wall(now))
}

pub fn when_at(text: &str, now: Wall) -> Result<Wall, String> {
    let span = UNITS.into_iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Span::seconds(count.checked_mul(seconds)?))
    });
    if let Some(span) = span {
        return Ok(Wall(now.0.saturating_sub(span.0)));
    }
    // A bare number could mean seconds or a year, so it is not accepted here.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let time = muster_wire::cost::parse_since(text).filter(|_| !is_number);
    time.ok_or_else(|| {
        "give a date such as 2026-11-15, a time such as 2026-11-15T19:52:12Z, or a duration such as 90m, 24h \
         or 7d"
            .to_owned()
    })
}

/// A duration in the form of az (`1d12h`), which may also use weeks, minutes and seconds.
pub fn span(text: &str) -> Result<Span, String> {
    let mut rest = text;
    let mut seconds: u64 = 0;
    let add = |rest: &mut &str, seconds: &mut u64| -> Option<()> {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, after) = rest.split_at(digits);
        let unit = after.chars().next()?;
        let (_, length) = UNITS.into_iter().find(|(known, _)| *known == unit)?;
        *seconds = seconds.checked_add(count.parse::<u64>().ok()?.checked_mul(length)?)?;
        *rest = &after[unit.len_utf8()..];
        Some(())
    };
    while !rest.is_empty() {
        if add(&mut rest, &mut seconds).is_none() {
            seconds = 0;
            break;
        }
    }
    match seconds.checked_mul(1_000_000) {
        None | Some(0) => Err("give a duration such as 90m, 6h or 1d12h".to_owned()),
        Some(_) => Ok(Span::seconds(seconds)),
    }
}

/// A boolean, also in Python's spelling.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// The error for a word that is not among `words`, with the most similar one.
fn one_of(text: &str, words: &[&str]) -> String {
    let last = words.len().saturating_sub(1);
    let wanted = format!("give {} or {}", words[..last].join(", "), words[last..].join(""));
    match nearest::suggestion(text, words.iter().copied()) {
        Some(suggestion) => format!("{wanted}; {suggestion}"),
        None => wanted,
    }
}

/// Accepts both spellings that Azure's clients use; `-`, `_` and case make no difference.
pub fn tier(text: &str) -> Result<Tier, String> {
    let folded: String =
        text.to_ascii_lowercase().chars().filter(|c| !matches!(c, '-' | '_')).collect();
    match folded.as_str() {
        "dedicated" => Ok(Tier::Dedicated),
        "lowpriority" => Ok(Tier::LowPriority),
        _ => Err(one_of(text, &["dedicated", "low_priority"])),
    }
}

pub fn scale_up(text: &str) -> Result<ScaleUp, String> {
    match text.to_ascii_lowercase().as_str() {
        "immediate" => Ok(ScaleUp::Immediate),
        "predictive" => Ok(ScaleUp::Predictive),
        _ => Err(one_of(text, &["immediate", "predictive"])),
    }
}

/// The indices of an array and, after `%`, how many of its tasks may run at once.
pub fn array(text: &str) -> Result<ArrayPlan, String> {
    muster_wire::job::parse_plan(text)
}

pub fn priority(text: &str) -> Result<Priority, String> {
    let all = [Priority::Low, Priority::Medium, Priority::High];
    let found = all.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| one_of(text, &all.map(Priority::as_str)))
}

/// What happens to a job whose node is evicted.
pub fn on_eviction(text: &str) -> Result<OnEviction, String> {
    match text.to_ascii_lowercase().as_str() {
        "requeue" => Ok(OnEviction::Requeue),
        "fail" => Ok(OnEviction::Fail),
        _ => Err(one_of(text, &["requeue", "fail"])),
    }
}

/// Memory, in MB.
pub fn memory(text: &str) -> Result<u64, String> {
    muster_wire::job::parse_memory(text).ok_or_else(|| "write it as 4GB or 512MB".to_owned())
}

/// A limit, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

pub fn limit(text: &str) -> Result<Limit, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Limit(None));
    }
    // The wire format cannot carry larger numbers. The server decides how large a limit may be.
    let limit = text.parse::<u64>().ok().filter(|limit| i64::try_from(*limit).is_ok());
    limit
        .map(|limit| Limit(Some(limit)))
        .ok_or_else(|| "give a number of vCPUs, or none".to_owned())
}

/// Azure's kinds of compute that Muster supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComputeType {
    /// A cluster of nodes that grows and shrinks with its jobs
    #[value(name = "AmlCompute")]
    AmlCompute,
    /// A single node that you start and stop
    #[value(name = "ComputeInstance")]
    ComputeInstance,
}

impl ComputeType {
    pub fn as_str(self) -> &'static str {
        match self {
            ComputeType::AmlCompute => "AmlCompute",
            ComputeType::ComputeInstance => "ComputeInstance",
        }
    }

    pub fn kind(self) -> ComputeKind {
        match self {
            ComputeType::AmlCompute => ComputeKind::Cluster,
            ComputeType::ComputeInstance => ComputeKind::Instance,
        }
    }
}

pub fn tags(arguments: &[String]) -> CliResult<BTreeMap<String, String>> {
    pairs("--tags", "team=blue", arguments)
}

/// Parses the `key=value` arguments of a flag, as in its `example`. A single empty argument means no values at all.
pub fn pairs(
    flag: &str,
    example: &str,
    arguments: &[String],
) -> CliResult<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    if let [only] = arguments
        && only.is_empty()
    {
        return Ok(pairs);
    }
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::refused(format!(
                "{flag}: {} is not in the form key=value; write it as in {flag} {example}",
                quoted(argument)
            )));
        };
        if let Some(earlier) = pairs.insert(key.to_owned(), value.to_owned()) {
            return Err(Failure::refused(format!(
                "{flag}: {} is given twice, as {} and as {}; give it once",
                quoted(key),
                quoted(&earlier),
                quoted(value)
            )));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        for bad in ["", ".", ".."] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "...", "a b", "ü", "a/b"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
    }

    #[test]
    fn a_misspelt_word_of_a_fixed_set_brings_the_nearest() {
        let wanted = "give low, medium or high; did you mean 'high'?";
        assert_eq!(priority("hihg"), Err(wanted.to_owned())); // misspelt on purpose
        assert_eq!(priority("urgent"), Err("give low, medium or high".to_owned()));
        let wanted = "give dedicated or low_priority; did you mean 'low_priority'?";
        assert_eq!(tier("lowpriorty"), Err(wanted.to_owned())); // misspelt on purpose
        assert!(scale_up("imediate").is_err_and(|why| why.ends_with("'immediate'?"))); // misspelt on purpose
        assert!(on_eviction("requeu").is_err_and(|why| why.ends_with("'requeue'?")));
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        assert_eq!(count("4"), Ok(4));
        assert_eq!(seconds("120"), Ok(Span::seconds(120)));
        for bad in ["", "-1", "1.5", "four", "4294967296", "0x4", " 4"] {
            assert!(count(bad).is_err(), "{bad:?}");
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_time_is_a_date_a_moment_or_so_long_ago() {
        let now = Wall(1_794_772_332_000_000);
        let ago = |seconds: u64| Ok(Wall(now.0 - seconds * 1_000_000));
        for (text, wanted) in [
            ("90m", ago(5_400)),
            ("24h", ago(86_400)),
            ("7d", ago(604_800)),
            ("1w", ago(604_800)),
            ("30s", ago(30)),
            ("2026-11-15T19:52:12Z", Ok(now)),
            ("2026-11-15", Ok(Wall(1_794_700_800_000_000))),
            ("99999999999d", Ok(Wall(0))),
        ] {
            assert_eq!(when_at(text, now), wanted, "{text}");
        }
        for bad in ["", "h", "-1h", "1.5h", "yesterday", "2026", "1h30m", "99999999999999999999d"] {
            assert!(when_at(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_is_counts_with_units() {
        for (text, seconds) in
            [("6h", 21_600), ("1d12h", 129_600), ("90m", 5_400), ("1w30s", 604_830)]
        {
            assert_eq!(span(text), Ok(Span::seconds(seconds)), "{text}");
        }
        for bad in ["", "6", "h", "-6h", "6h3", "1.5h", "0h", "6 h", "6ü", "99999999999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_are_read_in_any_case() {
        assert_eq!(boolean("True"), Ok(true));
        assert_eq!(boolean("false"), Ok(false));
        assert!(boolean("yes").is_err());
        for text in ["low_priority", "LowPriority", "low-priority"] {
            assert_eq!(tier(text), Ok(Tier::LowPriority), "{text}");
        }
        assert_eq!(tier("Dedicated"), Ok(Tier::Dedicated));
        assert!(tier("spot").is_err());
        assert_eq!(scale_up("Predictive"), Ok(ScaleUp::Predictive));
        assert!(scale_up("later").is_err());
        assert_eq!(priority("HIGH"), Ok(Priority::High));
        assert!(priority("urgent").is_err());
        assert_eq!((limit("24"), limit("none")), (Ok(Limit(Some(24))), Ok(Limit(None))));
        for bad in ["", "-1", "all", "1.5", "99999999999999999999"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs_are_taken_apart_at_the_first_sign() {
        let parse = |parts: &[&str]| {
            let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            pairs("--tags", "team=blue", &parts)
        };
        let two = parse(&["a=1", "b=x=y"]).unwrap();
        assert_eq!(
            two.into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x=y".to_owned())]
        );
        assert!(parse(&[""]).unwrap().is_empty());
        for bad in [&["a"][..], &["=1"], &["a=1", ""], &["a=1", "a=2"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
