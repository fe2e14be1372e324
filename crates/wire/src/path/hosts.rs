//! The paths of hosts. Azure has no such resource, so the paths are Muster's own.

use super::segments::encode;

const PROVIDER: &str = "Muster.Hosts";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRoute {
    Hosts,
    Host {
        name: Box<str>,
    },
    HostAction {
        name: Box<str>,
        action: HostAction,
    },
    /// A join token for another machine.
    HostToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAction {
    Cordon,
    Uncordon,
    Drain,
    /// Removes the host together with everything that runs on it.
    GiveUp,
}

impl HostAction {
    const ALL: [HostAction; 4] =
        [HostAction::Cordon, HostAction::Uncordon, HostAction::Drain, HostAction::GiveUp];

    pub fn as_str(self) -> &'static str {
        match self {
            HostAction::Cordon => "cordon",
            HostAction::Uncordon => "uncordon",
            HostAction::Drain => "drain",
            HostAction::GiveUp => "giveUp",
        }
    }
}

impl HostRoute {
    /// `words` are the segments in lower case.
    pub(super) fn of(segments: &[String], words: &[&str]) -> Option<HostRoute> {
        let ["providers", provider, rest @ ..] = words else { return None };
        if !provider.eq_ignore_ascii_case(PROVIDER) {
            return None;
        }
        let name = || segments[3].as_str().into();
        match rest {
            ["hosts"] => Some(HostRoute::Hosts),
            ["hosts", _] => Some(HostRoute::Host { name: name() }),
            ["hosts", _, word] => {
                let mut all = HostAction::ALL.into_iter();
                let action = all.find(|action| action.as_str().eq_ignore_ascii_case(word))?;
                Some(HostRoute::HostAction { name: name(), action })
            }
            ["token"] => Some(HostRoute::HostToken),
            _ => None,
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            HostRoute::Hosts => "GET",
            HostRoute::Host { .. } => "GET, DELETE",
            HostRoute::HostAction { .. } | HostRoute::HostToken => "POST",
        }
    }

    pub(super) fn path(&self) -> String {
        match self {
            HostRoute::Hosts => format!("/providers/{PROVIDER}/hosts"),
            HostRoute::Host { name } => format!("/providers/{PROVIDER}/hosts/{}", encode(name)),
            HostRoute::HostAction { name, action } => {
                format!("/providers/{PROVIDER}/hosts/{}/{}", encode(name), action.as_str())
            }
            HostRoute::HostToken => format!("/providers/{PROVIDER}/token"),
        }
    }
}
