//! The command language of simulated processes: how long they run and how they end.

use std::fmt;
use std::str::FromStr;

use muster_core::time::Span;

use crate::chance::Chance;

/// `run 90s exit 0`, or `broken` for one that cannot even be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) seconds: u64,
    pub(crate) exit: Option<i32>,
}

impl Command {
    /// Most are short, a few take most of a working day. Whole numbers only, so that every machine draws
    /// the same ones.
    pub(super) fn draw(chance: &mut Chance) -> Command {
        const TIMES: [(u64, (u64, u64)); 5] = [
            (40, (5, 30)),
            (35, (30, 300)),
            (18, (300, 1_800)),
            (6, (1_800, 10_800)),
            (1, (10_800, 28_800)),
        ];
        let (least, most) = chance.weighted(&TIMES);
        let seconds = chance.span(Span::seconds(least), Span::seconds(most)).as_seconds();
        let exit = chance.weighted(&[(86, Some(0)), (8, Some(1)), (4, Some(137)), (2, None)]);
        Command { seconds, exit }
    }

    pub(super) fn time_limit(self) -> Span {
        Span::seconds(self.seconds / 2 + 1)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Some(code) => write!(f, "run {}s exit {code}", self.seconds),
            None => f.write_str("broken"),
        }
    }
}

/// A text that is no command of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotACommand;

impl FromStr for Command {
    type Err = NotACommand;

    fn from_str(text: &str) -> Result<Command, NotACommand> {
        if text == "broken" {
            return Ok(Command { seconds: 0, exit: None });
        }
        let rest = text.strip_prefix("run ").ok_or(NotACommand)?;
        let (seconds, code) = rest.split_once("s exit ").ok_or(NotACommand)?;
        Ok(Command {
            seconds: seconds.parse().map_err(|_| NotACommand)?,
            exit: Some(code.parse().map_err(|_| NotACommand)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_back() {
        for command in [
            Command { seconds: 90, exit: Some(0) },
            Command { seconds: 1, exit: Some(137) },
            Command { seconds: 0, exit: None },
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        assert_eq!("sleep 5".parse::<Command>(), Err(NotACommand));
    }
}
