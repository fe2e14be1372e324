//! The values of flags, as far as the server cannot check them itself.

use std::collections::BTreeMap;

use clap::ValueEnum;
use muster_core::model::Tier;
use muster_core::time::Span;

use crate::failure::{Failure, Outcome, quoted};

/// A part of a resource's path. What is left to the server are the rules about names; but an empty part or
/// a dot would name another resource before the server could refuse it.
pub fn name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty; give a name".to_owned()),
        "." | ".." => Err("dots alone are no name; give a name of letters and digits".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The name of a cluster, which is put into an id: a slash would make another id of it.
pub fn compute(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err("give the cluster's name alone, such as cpu-cluster".to_owned());
    }
    name(text)
}

/// A count; how large it may be is up to the server.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u32::MAX))
}

pub fn at_least_one(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("give a whole number from 1 to {}", u32::MAX))
}

pub fn seconds(text: &str) -> Result<Span, String> {
    let seconds: u32 = text
        .parse()
        .map_err(|_| format!("give whole seconds from 0 to {}, such as 120", u32::MAX))?;
    Ok(Span::seconds(u64::from(seconds)))
}

/// Also as Python writes it.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// In both spellings that Azure's clients use; `-`, `_` and case make no difference.
pub fn tier(text: &str) -> Result<Tier, String> {
    let folded: String =
        text.to_ascii_lowercase().chars().filter(|c| !matches!(c, '-' | '_')).collect();
    match folded.as_str() {
        "dedicated" => Ok(Tier::Dedicated),
        "lowpriority" => Ok(Tier::LowPriority),
        _ => Err("give dedicated or low_priority".to_owned()),
    }
}

/// The one kind of compute that there is so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComputeType {
    #[value(name = "AmlCompute")]
    AmlCompute,
}

pub fn tags(arguments: &[String]) -> Outcome<BTreeMap<String, String>> {
    pairs("--tags", "team=blue", arguments)
}

/// The `key=value` arguments of a flag, such as its `example`. One empty argument means "none at all".
pub fn pairs(flag: &str, example: &str, arguments: &[String]) -> Outcome<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    if let [only] = arguments
        && only.is_empty()
    {
        return Ok(pairs);
    }
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::refused(format!(
                "{flag}: {} is not of the form key=value; write it so, for example {flag} {example}",
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
    fn numbers_are_whole_and_not_negative() {
        assert_eq!(count("4"), Ok(4));
        assert_eq!(seconds("120"), Ok(Span::seconds(120)));
        for bad in ["", "-1", "1.5", "four", "4294967296", "0x4", " 4"] {
            assert!(count(bad).is_err(), "{bad:?}");
            assert!(seconds(bad).is_err(), "{bad:?}");
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
