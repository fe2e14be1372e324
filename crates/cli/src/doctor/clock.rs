//! The clock: whether it is synchronised, and whether it was set back.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::finding::Finding;

/// The start of 2026. This program did not exist before, so an earlier time means that the clock was never set.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// How far time synchronisation may set the clock back.
const BACK_MAX: Duration = Duration::from_secs(60);
/// `STA_UNSYNC` and `TIME_ERROR` of the kernel.
const UNSYNCHRONISED: i32 = 0x40;
const TIME_ERROR: i32 = 5;

pub struct Clock {
    pub now: SystemTime,
    /// `None` if the kernel does not report it.
    pub is_synchronised: Option<bool>,
    /// The most recently written entry of the state directory, and its time.
    pub newest: Option<(PathBuf, SystemTime)>,
}

pub fn look(now: SystemTime, newest: Option<(PathBuf, SystemTime)>) -> Clock {
    // SAFETY: all zeros is a valid value of this struct and requests no change; the call fills it.
    let (state, status) = unsafe {
        let mut asked: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut asked), asked.status)
    };
    let is_synchronised =
        (state >= 0).then_some(state != TIME_ERROR && status & UNSYNCHRONISED == 0);
    Clock { now, is_synchronised, newest }
}

pub fn check(clock: &Clock) -> Vec<Finding> {
    vec![kept(clock), plausible(clock)]
}

fn kept(clock: &Clock) -> Finding {
    const ID: &str = "clock-synchronised";
    const MEANING: &str =
        "tokens, certificates and costs depend on the time, also between machines";
    match clock.is_synchronised {
        Some(true) => Finding::ok(ID, "yes", MEANING),
        Some(false) => Finding::warning(ID, "the clock is not synchronised", MEANING)
            .fix("apt install systemd-timesyncd && timedatectl set-ntp true"),
        None => {
            Finding::note(ID, "the kernel does not report it (in a container it may not)", MEANING)
        }
    }
}

fn plausible(clock: &Clock) -> Finding {
    const ID: &str = "clock";
    const MEANING: &str = "certificates created with a wrong clock are not valid, and time that is repeated is charged only once";
    const FIX: &str = "timedatectl set-ntp true, or timedatectl set-time 'YYYY-MM-DD hh:mm:ss'";
    if clock.now < UNIX_EPOCH + EARLIEST {
        return Finding::failure(ID, "is before 2026, so it was never set", MEANING).fix(FIX);
    }
    let newest = clock.newest.as_ref();
    let back = newest.and_then(|(path, then)| Some((path, then.duration_since(clock.now).ok()?)));
    match back {
        Some((path, back)) if back > BACK_MAX => {
            let file = format!("{} was written {} s after now", path.display(), back.as_secs());
            Finding::warning(ID, format!("was set back: {file}"), MEANING).fix(FIX)
        }
        _ => Finding::ok(ID, "plausible", MEANING),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_bad_clock_is_reported() {
        let now = UNIX_EPOCH + EARLIEST + Duration::from_secs(86_400);
        let file = PathBuf::from("/s/muster.db");
        let written = |after: u64| Some((file.clone(), now + Duration::from_secs(after)));
        let check = |now, is_synchronised, newest| {
            let findings = check(&Clock { now, is_synchronised, newest });
            for finding in &findings {
                assert!(finding.fix.is_some() || finding.state <= State::Note, "{finding:?}");
            }
            [findings[0].state, findings[1].state]
        };
        assert_eq!(check(now, Some(true), None), [State::Ok, State::Ok]);
        assert_eq!(check(now, Some(true), written(60)), [State::Ok, State::Ok]);
        assert_eq!(check(now, Some(false), written(61)), [State::Warning, State::Warning]);
        assert_eq!(check(UNIX_EPOCH, None, None), [State::Note, State::Failure]);
    }

    #[test]
    fn the_kernel_is_asked_and_nothing_is_set() {
        let before = SystemTime::now();
        let clock = look(before, None);
        assert_eq!(clock.now, before);
        // The second result is the same: looking changes nothing.
        assert_eq!(clock.is_synchronised, look(before, None).is_synchronised);
    }
}
