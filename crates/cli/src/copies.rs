//! Copies of memory as fast as the machine makes them.
//!
//! Before version 2.40 glibc copies more than two kilobytes with `rep movsb`. AMD's processors do that at a twentieth of their
//! speed where the target is not aligned, and what is in a TLS record never is: a fifth of what a server does while files go
//! through it. Only a variable that a program starts with changes that, so a server starts itself once more, in its own place.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
/// From how many bytes on `rep movsb` is used: never.
const NEVER: &str = "glibc.cpu.x86_rep_movsb_threshold=4294967296";

/// Returns if nothing is to be gained, or nothing can be done. Whoever has set the variable has decided.
pub fn hurry() {
    if std::env::var_os(VARIABLE).is_some() || !is_slow() {
        return;
    }
    // By its name, which is what people see of it in a list of processes.
    let Ok(program) = std::env::current_exe() else { return };
    let mut words = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = words.next() {
        again.arg0(name);
    }
    // A server that copies slowly is better than none.
    let _ = again.args(words).env(VARIABLE, NEVER).exec();
}

fn is_slow() -> bool {
    let mut beginning = [0; 256];
    let read = File::open("/proc/cpuinfo").and_then(|mut file| file.read(&mut beginning));
    let read = &beginning[..read.unwrap_or(0)];
    cfg!(all(target_arch = "x86_64", target_env = "gnu"))
        && read.windows(b"AuthenticAMD".len()).any(|word| word == b"AuthenticAMD")
}
