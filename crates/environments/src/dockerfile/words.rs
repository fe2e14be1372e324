//! Splits text into words as Docker and a shell do: quotes, variables, and operators between commands.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// The largest size of one word, and of a variable.
pub const WORD_BYTES_MAX: usize = 4 << 10;
/// The largest size of all words of a Dockerfile: variables that refer to variables grow fast.
pub const EXPANDED_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// A part that only a build would know: a variable of the image, or the output of a command.
    pub unknown: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Word(Word),
    /// `&&`, `;` or `&`: the next command follows.
    Next,
    /// `||`: the next command runs if this one fails.
    Or,
    Pipe,
    /// Commands inside commands.
    Bracket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadWords {
    #[error("a quote {0} is not closed; close it")]
    Open(char),
    #[error("a variable is not closed; write $NAME or ${{NAME}}")]
    OpenVariable,
    #[error(
        "a word has more than {WORD_BYTES_MAX} bytes after its variables are replaced; shorten it"
    )]
    LongWord,
    #[error(
        "the words of the Dockerfile have more than {EXPANDED_BYTES_MAX} bytes after their variables are replaced; shorten it"
    )]
    LongText,
}

/// The values of variables, and how much of the Dockerfile has been expanded so far.
#[derive(Debug, Clone)]
pub struct Scope<'a> {
    pub values: BTreeMap<String, String>,
    pub spent: &'a Cell<usize>,
}

impl Scope<'_> {
    /// Splits a line of the Dockerfile into words.
    pub fn words(&self, text: &str) -> Result<Vec<Word>, BadWords> {
        let tokens = Splitter { scope: self, left: text.chars().peekable(), is_shell: false }.all();
        let word = |token| match token {
            Token::Word(word) => Some(word),
            Token::Next | Token::Or | Token::Pipe | Token::Bracket => None,
        };
        Ok(tokens?.into_iter().filter_map(word).collect())
    }

    /// Splits a line of a shell into words and operators.
    pub fn shell(&self, text: &str) -> Result<Vec<Token>, BadWords> {
        Splitter { scope: self, left: text.chars().peekable(), is_shell: true }.all()
    }

    fn spend(&self, word: &Word) -> Result<(), BadWords> {
        self.spent.set(self.spent.get() + word.text.len());
        match self.spent.get() > EXPANDED_BYTES_MAX {
            true => Err(BadWords::LongText),
            false => Ok(()),
        }
    }
}

struct Splitter<'a> {
    scope: &'a Scope<'a>,
    left: Peekable<Chars<'a>>,
    is_shell: bool,
}

impl Splitter<'_> {
    fn all(mut self) -> Result<Vec<Token>, BadWords> {
        let mut tokens = Vec::new();
        let mut open: Option<Word> = None;
        // The target of a redirection is not a word of the command.
        let mut is_target = false;
        while let Some(c) = self.left.next() {
            let is_operator = self.is_shell && ";&|<>()\n".contains(c);
            if c.is_whitespace() || is_operator {
                if let Some(word) = open.take() {
                    let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
                    let is_stream = "<>".contains(c) && is_number && !word.text.is_empty();
                    self.scope.spend(&word)?;
                    if !is_target && !is_stream {
                        tokens.push(Token::Word(word));
                    }
                    is_target = false;
                }
                if is_operator {
                    is_target = self.operator(c, &mut tokens);
                }
                continue;
            }
            if self.is_shell && c == '#' && open.is_none() {
                break;
            }
            let word = open.get_or_insert_default();
            self.letter(c, word)?;
            if word.text.len() > WORD_BYTES_MAX {
                return Err(BadWords::LongWord);
            }
        }
        if let Some(word) = open {
            self.scope.spend(&word)?;
            if !is_target {
                tokens.push(Token::Word(word));
            }
        }
        Ok(tokens)
    }

    /// Returns true if the next word is the target or source of a redirection.
    fn operator(&mut self, c: char, tokens: &mut Vec<Token>) -> bool {
        let twice = self.left.next_if_eq(&c).is_some();
        let token = match (c, twice) {
            ('<' | '>', _) => {
                self.left.next_if_eq(&'&');
                return true;
            }
            ('&', false) if self.left.next_if_eq(&'>').is_some() => {
                self.left.next_if_eq(&'>');
                return true;
            }
            ('|', true) => Token::Or,
            ('|', false) => Token::Pipe,
            ('(' | ')', _) => Token::Bracket,
            _ => Token::Next,
        };
        tokens.push(token);
        false
    }

    fn letter(&mut self, c: char, word: &mut Word) -> Result<(), BadWords> {
        match c {
            '\\' => word.text.extend(self.left.next()),
            '\'' => loop {
                match self.left.next().ok_or(BadWords::Open('\''))? {
                    '\'' => break,
                    c => word.text.push(c),
                }
            },
            '"' => loop {
                match self.left.next().ok_or(BadWords::Open('"'))? {
                    '"' => break,
                    '\\' => {
                        let next = self.left.next().ok_or(BadWords::Open('"'))?;
                        if !"$`\"\\".contains(next) {
                            word.text.push('\\');
                        }
                        word.text.push(next);
                    }
                    '$' => self.variable(word)?,
                    '`' => self.command('`', word)?,
                    c => word.text.push(c),
                }
            },
            '$' => self.variable(word)?,
            '`' => self.command('`', word)?,
            c => word.text.push(c),
        }
        Ok(())
    }

    /// Parses what follows a `$`.
    fn variable(&mut self, word: &mut Word) -> Result<(), BadWords> {
        let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        match self.left.peek() {
            Some('(') => {
                self.left.next();
                self.command(')', word)
            }
            Some('{') => {
                self.left.next();
                let mut inner = String::new();
                loop {
                    match self.left.next().ok_or(BadWords::OpenVariable)? {
                        '}' => break,
                        c => inner.push(c),
                    }
                }
                self.braced(&inner, word);
                Ok(())
            }
            Some(c) if is_name(c) => {
                let mut name = String::new();
                while let Some(c) = self.left.next_if(is_name) {
                    name.push(c);
                }
                match self.scope.values.get(&name) {
                    Some(value) => word.text.push_str(value),
                    None => unknown(word, &name),
                }
                Ok(())
            }
            // `$?`, `$@` and the like, or a lone `$`.
            Some(c) if self.is_shell && "?@*#$!-".contains(*c) => {
                let name = c.to_string();
                self.left.next();
                unknown(word, &name);
                Ok(())
            }
            _ => {
                word.text.push('$');
                Ok(())
            }
        }
    }

    /// Handles `NAME`, `NAME:-else`, `NAME-else`, `NAME:+then`, `NAME+then`.
    fn braced(&self, inner: &str, word: &mut Word) {
        let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = inner.split_at(end.unwrap_or(inner.len()));
        let (has_colon, rest) = rest.strip_prefix(':').map_or((false, rest), |rest| (true, rest));
        let value = self.scope.values.get(name).map(String::as_str);
        let value = value.filter(|value| !(has_colon && value.is_empty()));
        // The alternative may contain another variable, which is not expanded.
        let plain = |text: &str| (!text.contains(['$', '`'])).then(|| text.to_owned());
        let found = match (rest.chars().next(), value) {
            _ if name.is_empty() => None,
            (None, value) if !has_colon => value.map(str::to_owned),
            (Some('-'), Some(value)) => Some(value.to_owned()),
            (Some('-'), None) => plain(rest[1..].trim_matches(['"', '\''])),
            (Some('+'), Some(_)) => plain(&rest[1..]),
            (Some('+'), None) => Some(String::new()),
            _ => None,
        };
        match found {
            Some(text) => word.text.push_str(&text),
            None => unknown(word, inner),
        }
    }

    /// Skips a command substitution, because its output is not known.
    fn command(&mut self, end: char, word: &mut Word) -> Result<(), BadWords> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.left.next().ok_or(BadWords::Open(end))? {
                c if c == end => depth -= 1,
                '(' if end == ')' => depth += 1,
                _ => {}
            }
        }
        unknown(word, "(…)");
        Ok(())
    }
}

fn unknown(word: &mut Word, name: &str) {
    word.unknown.get_or_insert_with(|| format!("${}", crate::shown(name)));
}
