//! The name that a user most likely meant, by edit distance. Refusals of a value that is not in a fixed set suggest the
//! nearest one.

/// No known name is longer. A longer input is not a misspelling, and the work stays bounded.
const NAME_BYTES_MAX: usize = 64;

/// Every size name starts with this, so it does not help to tell which size is meant.
const PREFIX: &str = "standard_";

/// The closest of `names` to `wanted`, or `None` when more than a third of what was written (its
/// prefix aside) would have to change. The first of equally close names wins.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.trim().to_ascii_lowercase();
    if wanted.is_empty() || wanted.len() > NAME_BYTES_MAX {
        return None;
    }
    let (stem, prefixed) = match wanted.strip_prefix(PREFIX) {
        Some(stem) => (stem, true),
        None => (wanted.as_str(), false),
    };

    // One more than the largest distance that still counts as close.
    let mut bound = stem.len().div_ceil(3) + 1;
    let mut best = None;
    for name in names {
        let full = name.to_ascii_lowercase();
        let candidate = full.strip_prefix(PREFIX).unwrap_or(&full);
        let mut found = distance_below(stem, candidate, bound);
        if !prefixed {
            // The prefix may be missing (compared above) or itself misspelt.
            found = distance_below(stem, &full, found.unwrap_or(bound)).or(found);
        }
        if let Some(distance) = found {
            bound = distance;
            best = Some(name);
        }
    }
    best
}

/// The nearest of these names as a question, for a refusal.
pub fn suggestion<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(wanted, names).map(|near| format!("did you mean '{near}'?"))
}

/// The Levenshtein distance of two strings in bytes, if it is below `bound`.
fn distance_below(left: &str, right: &str, bound: usize) -> Option<usize> {
    // Most names already differ too much in length, which avoids computing the table.
    if left.len().abs_diff(right.len()) >= bound {
        return None;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, left_byte) in left.bytes().enumerate() {
        let mut diagonal = above;
        let mut beside = above + 1;
        row[0] = beside;
        for (cell, right_byte) in row[1..].iter_mut().zip(right.bytes()) {
            let replaced = diagonal + usize::from(left_byte != right_byte);
            diagonal = *cell;
            beside = replaced.min(diagonal + 1).min(beside + 1);
            *cell = beside;
        }
    }
    row.last().copied().filter(|distance| *distance < bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (left, right, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ds3v2", "ds3_v2", 1),
            ("same", "same", 0),
        ] {
            assert_eq!(distance_below(left, right, 100), Some(distance), "{left} {right}");
            assert_eq!(distance_below(right, left, 100), Some(distance), "{right} {left}");
            assert_eq!(distance_below(left, right, distance), None, "{left} {right}");
        }
    }

    #[test]
    fn the_first_of_equally_close_names_wins() {
        let names = ["Standard_D2", "Standard_D4", "Standard_D8"];
        assert_eq!(nearest("Standard_D6", names.into_iter()), Some("Standard_D2"));
        assert_eq!(nearest("Standard_D8", names.into_iter()), Some("Standard_D8"));
    }

    #[test]
    fn what_is_no_size_gets_no_suggestion() {
        let names = ["Standard_DS3_v2"];
        let long = "x".repeat(10_000);
        for wanted in ["", " ", "Standard_", "banana", "Größe", long.as_str()] {
            assert_eq!(nearest(wanted, names.into_iter()), None, "{wanted}");
        }
    }
}
