//! Tables that fit a terminal: the least important columns are removed first, then long texts are truncated.

use std::io::stdout;

use rustix::termios::tcgetwinsize;

/// The width that is assumed if there is no terminal, or if it does not report its size.
pub const SIZE_DEFAULT: (usize, usize) = (80, 24);
/// The space between two columns.
const GAP: usize = 2;
/// Columns are not truncated below this width.
const CUT_MIN: usize = 8;

/// Columns and rows of the terminal.
pub fn size() -> (usize, usize) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        Ok(_) | Err(_) => SIZE_DEFAULT,
    }
}

/// The remaining columns, in their order, when those in `expendable` are removed one by one until the rest fits.
pub fn kept(
    header: &[&str],
    rows: &[Vec<String>],
    width: usize,
    expendable: &[&str],
) -> Vec<usize> {
    let widths = widths(header, rows);
    let mut kept: Vec<usize> = (0..header.len()).collect();
    for name in expendable {
        if total(&widths, &kept) <= width {
            break;
        }
        kept.retain(|index| header[*index] != *name);
    }
    kept
}

/// The rows with their widest cells truncated until the table fits. The widest column is truncated first.
pub fn cut(
    header: &[&str],
    rows: Vec<Vec<String>>,
    width: usize,
    cuttable: &[&str],
) -> Vec<Vec<String>> {
    let mut widths = widths(header, &rows);
    let all: Vec<usize> = (0..header.len()).collect();
    loop {
        let excess = total(&widths, &all).saturating_sub(width);
        let widest = all
            .iter()
            .copied()
            .filter(|index| cuttable.contains(&header[*index]) && widths[*index] > CUT_MIN)
            .max_by_key(|index| widths[*index]);
        match widest {
            Some(index) if excess > 0 => {
                // Down to the next widest, so that no column is truncated while another is much wider.
                let next = all
                    .iter()
                    .filter(|other| **other != index && cuttable.contains(&header[**other]));
                let next = next.map(|other| widths[*other]).max().unwrap_or(CUT_MIN);
                let step = widths[index].saturating_sub(next).clamp(1, excess);
                widths[index] = (widths[index] - step).max(CUT_MIN);
            }
            _ => break,
        }
    }
    let cell = |(index, text): (usize, String)| shortened(text, widths[index]);
    rows.into_iter().map(|row| row.into_iter().enumerate().map(cell).collect()).collect()
}

/// A text in lines of at most `width` characters, broken between words if possible.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let used = lines.last().map_or(width, |line| line.chars().count());
            if used + usize::from(used > 0) + rest.len() > width {
                let taken: String = rest.drain(..rest.len().min(width.max(1))).collect();
                lines.push(taken);
                continue;
            }
            if let Some(line) = lines.last_mut() {
                line.push(' ');
                line.extend(rest.drain(..));
            }
        }
    }
    lines
}

fn widths(header: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let cells = |index: usize| rows.iter().filter_map(move |row| row.get(index));
    let widest = |(index, name): (usize, &&str)| {
        cells(index).map(|cell| cell.chars().count()).chain([name.chars().count()]).max()
    };
    header.iter().enumerate().filter_map(widest).collect()
}

fn total(widths: &[usize], kept: &[usize]) -> usize {
    let sum: usize = kept.iter().map(|index| widths[*index]).sum();
    // The line below the header is one character longer than the cells above it.
    (sum + GAP * kept.len()).saturating_sub(1)
}

fn shortened(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let kept = width.saturating_sub(1);
    // The important part of a path is its end.
    if text.contains('/') {
        let skipped = text.chars().count() - kept;
        return format!("…{}", text.chars().skip(skipped).collect::<String>());
    }
    let mut cut: String = text.chars().take(kept).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_go_only_while_the_table_is_too_wide() {
        let rows = [row(&["a-long-name", "Standard_DS3_v2", "1"])];
        let header = ["Name", "Size", "Nodes"];
        assert_eq!(kept(&header, &rows, 80, &["Size", "Nodes"]), [0, 1, 2]);
        assert_eq!(kept(&header, &rows, 20, &["Size", "Nodes"]), [0, 2]);
        assert_eq!(kept(&header, &rows, 5, &["Size", "Nodes"]), [0]);
    }

    #[test]
    fn the_widest_cells_are_cut_first() {
        let rows = vec![row(&["short", &"x".repeat(60), &"y".repeat(20)])];
        let cut = cut(&["A", "B", "C"], rows, 50, &["B", "C"]);
        let lengths: Vec<usize> = cut[0].iter().map(|cell| cell.chars().count()).collect();
        assert_eq!(lengths.iter().sum::<usize>() + 3 * GAP - 1, 50, "{cut:?}");
        assert!(cut[0][1].ends_with('…') && cut[0][0] == "short", "{cut:?}");
    }

    #[test]
    fn a_text_is_folded_between_words() {
        assert_eq!(folded("one two three", 8), ["one two", "three"]);
        assert_eq!(folded("a-word-that-is-long", 8), ["a-word-t", "hat-is-l", "ong"]);
        assert_eq!(folded("", 8), [""; 0]);
    }
}
