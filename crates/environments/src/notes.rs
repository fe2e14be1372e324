//! Notes about how an environment was derived: lines for the log of each job that uses it.

/// They are sent with every job that uses the environment.
pub const NOTES_MAX: usize = 100;

#[derive(Debug, Default)]
pub struct Notes {
    all: Vec<Box<str>>,
    left_out: usize,
}

impl Notes {
    pub fn add(&mut self, text: &str) {
        // It may quote a user's text, and becomes a line of a log.
        let text = text.replace(char::is_control, " ");
        if self.all.iter().any(|known| **known == *text) {
            return;
        }
        match self.all.len() < NOTES_MAX {
            true => self.all.push(text.into()),
            false => self.left_out += 1,
        }
    }

    /// `what` names the things of which there were too many.
    pub fn finish(mut self, what: &str) -> Vec<Box<str>> {
        if self.left_out > 0 {
            self.all.push(format!("and {} more {what} likewise", self.left_out).into());
        }
        self.all
    }
}
