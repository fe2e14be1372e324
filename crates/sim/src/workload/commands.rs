//! The command language of simulated processes: how long they run and how they end.

use std::fmt;
use std::str::FromStr;

use muster_core::time::Span;

use crate::chance::Chance;

/// `run 90s exit 0`, `hang`, `poison 30s`, or `broken` for one that cannot even be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) seconds: u64,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    /// It cannot be started.
    Broken,
    /// It never ends by itself.
    Hang,
    /// It kills the agent that runs it.
    Poison,
}

impl Command {
    /// Most are short, a few take most of a working day. It uses whole numbers only, so that every host draws the same
    /// ones.
    pub(super) fn draw(chance: &mut Chance, has_faults: bool) -> Command {
        const TIMES: [(u64, (u64, u64)); 5] = [
            (40, (5, 30)),
            (35, (30, 300)),
            (18, (300, 1_800)),
            (6, (1_800, 10_800)),
            (1, (10_800, 28_800)),
        ];
        const ENDS: [(u64, End); 6] = [
            (845, End::Exit(0)),
            (80, End::Exit(1)),
            (40, End::Exit(137)),
            (20, End::Broken),
            (10, End::Hang),
            (5, End::Poison),
        ];
        let (least, most) = chance.weighted(&TIMES);
        let seconds = chance.span(Span::seconds(least), Span::seconds(most)).as_seconds();
        match chance.weighted(&ENDS) {
            End::Poison | End::Hang if !has_faults => Command { seconds, end: End::Exit(0) },
            End::Poison => Command { seconds: seconds.min(120), end: End::Poison },
            end => Command { seconds, end },
        }
    }

    /// Half of what it needs, so that the limit always ends it. A command that hangs gets as long as was drawn.
    pub(super) fn time_limit(self) -> Span {
        match self.end {
            End::Hang => Span::seconds(self.seconds + 60),
            End::Exit(_) | End::Broken | End::Poison => Span::seconds(self.seconds / 2 + 1),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Exit(code) => write!(f, "run {}s exit {code}", self.seconds),
            End::Broken => f.write_str("broken"),
            End::Hang => f.write_str("hang"),
            End::Poison => write!(f, "poison {}s", self.seconds),
        }
    }
}

/// A text that is not a command of the simulation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotACommand;

impl FromStr for Command {
    type Err = NotACommand;

    fn from_str(text: &str) -> Result<Command, NotACommand> {
        match text {
            "broken" => return Ok(Command { seconds: 0, end: End::Broken }),
            "hang" => return Ok(Command { seconds: 0, end: End::Hang }),
            _ => {}
        }
        let seconds = |text: &str| text.parse().map_err(|_| NotACommand);
        if let Some(text) = text.strip_prefix("poison ").and_then(|text| text.strip_suffix('s')) {
            return Ok(Command { seconds: seconds(text)?, end: End::Poison });
        }
        let rest = text.strip_prefix("run ").ok_or(NotACommand)?;
        let (text, code) = rest.split_once("s exit ").ok_or(NotACommand)?;
        let code = code.parse().map_err(|_| NotACommand)?;
        Ok(Command { seconds: seconds(text)?, end: End::Exit(code) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_back() {
        for command in [
            Command { seconds: 90, end: End::Exit(0) },
            Command { seconds: 1, end: End::Exit(137) },
            Command { seconds: 0, end: End::Broken },
            Command { seconds: 0, end: End::Hang },
            Command { seconds: 12, end: End::Poison },
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        assert_eq!("sleep 5".parse::<Command>(), Err(NotACommand));
    }
}
