//! The clock: whether somebody keeps it right, and whether it went back.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::finding::Finding;

/// The start of 2026, before which there was no such program: a clock that says so was never set.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// What a clock is set back by while it is kept right.
const BACK_MAX: Duration = Duration::from_secs(60);
/// `STA_UNSYNC` and `TIME_ERROR` of the kernel.
const UNSYNCHRONISED: i32 = 0x40;
const TIME_ERROR: i32 = 5;

pub struct Clock {
    pub now: SystemTime,
    /// `None` where the kernel does not say.
    pub is_synchronised: Option<bool>,
    /// What the state directory was last written to, and when.
    pub newest: Option<(PathBuf, SystemTime)>,
}

pub fn look(now: SystemTime, newest: Option<(PathBuf, SystemTime)>) -> Clock {
    // SAFETY: all zeros is a value of this struct, and asks for nothing to be changed; the call fills it.
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
        "tokens, certificates and bills depend on the time, also between machines";
    match clock.is_synchronised {
        Some(true) => Finding::ok(ID, "yes", MEANING),
        Some(false) => Finding::warning(ID, "no: nobody keeps the clock right", MEANING)
            .fix("apt install systemd-timesyncd && timedatectl set-ntp true"),
        None => Finding::note(ID, "the kernel does not say (in a container it may not)", MEANING),
    }
}

fn plausible(clock: &Clock) -> Finding {
    const ID: &str = "clock";
    const MEANING: &str = "certificates made by a wrong clock are not valid, and time that goes back is billed once only";
    const FIX: &str = "timedatectl set-ntp true, or timedatectl set-time 'YYYY-MM-DD hh:mm:ss'";
    if clock.now < UNIX_EPOCH + EARLIEST {
        return Finding::failure(ID, "says a time before 2026: it was never set", MEANING).fix(FIX);
    }
    let newest = clock.newest.as_ref();
    let back = newest.and_then(|(path, then)| Some((path, then.duration_since(clock.now).ok()?)));
    match back {
        Some((path, back)) if back > BACK_MAX => {
            let told = format!("{} was written {} s after now", path.display(), back.as_secs());
            Finding::warning(ID, format!("went back: {told}"), MEANING).fix(FIX)
        }
        _ => Finding::ok(ID, "plausible", MEANING),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_bad_clock_is_told() {
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
        // Twice the same: the first look changed nothing.
        assert_eq!(clock.is_synchronised, look(before, None).is_synchronised);
    }
}
