//! Splits the text of a Dockerfile into instructions, without comments and with continued lines joined.

use super::{BadDockerfile, INSTRUCTIONS_MAX, Refusal, TEXT_BYTES_MAX};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The number of its first line, from 1.
    pub line: usize,
    /// In upper case.
    pub name: String,
    pub rest: String,
}

impl Instruction {
    pub fn shown(&self) -> String {
        format!("{} {}", self.name, self.rest)
    }

    pub fn refused(&self, why: Refusal) -> BadDockerfile {
        let why = Box::new(why);
        BadDockerfile::Line { line: self.line, text: crate::brief(&self.shown()), why }
    }
}

pub fn instructions(text: &str) -> Result<Vec<Instruction>, BadDockerfile> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(BadDockerfile::TooLong { bytes: text.len() });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let escape = escape_of(text);
    let mut all: Vec<Instruction> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        // Comments and empty lines may occur between continued lines.
        let is_nothing = line.trim().is_empty() || line.trim_start().starts_with('#');
        if is_nothing {
            continue;
        }
        let (number, mut whole) = open.take().unwrap_or((index + 1, String::new()));
        match line.trim_end().strip_suffix(escape) {
            Some(part) => {
                whole.push_str(part);
                open = Some((number, whole));
            }
            None => {
                whole.push_str(line);
                all.push(instruction(number, &whole)?);
            }
        }
        if all.len() > INSTRUCTIONS_MAX {
            return Err(BadDockerfile::TooMany);
        }
    }
    if let Some((number, whole)) = open {
        all.push(instruction(number, &whole)?);
    }
    Ok(all)
}

/// The first lines may define the character that continues a line.
fn escape_of(text: &str) -> char {
    for line in text.lines() {
        let Some((key, value)) = line.trim().strip_prefix('#').and_then(|it| it.split_once('='))
        else {
            break;
        };
        if key.trim().eq_ignore_ascii_case("escape") && value.trim() == "`" {
            return '`';
        }
    }
    '\\'
}

fn instruction(line: usize, whole: &str) -> Result<Instruction, BadDockerfile> {
    let whole = whole.trim();
    let (name, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
    let found = Instruction { line, name: name.to_ascii_uppercase(), rest: rest.trim().to_owned() };
    // The lines of a heredoc are not instructions, and must not be read as such.
    let takes_heredoc = ["RUN", "COPY", "ADD"].contains(&found.name.as_str());
    if takes_heredoc && found.rest.split_whitespace().any(is_heredoc) {
        return Err(found.refused(Refusal::Heredoc));
    }
    Ok(found)
}

fn is_heredoc(word: &str) -> bool {
    let after = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<");
    after.is_some_and(|name| {
        let name = name.strip_prefix('-').unwrap_or(name);
        !name.is_empty() && !name.contains('<')
    })
}
