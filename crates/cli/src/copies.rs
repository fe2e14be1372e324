//! Copies memory as fast as the machine can.
//!
//! Before version 2.40, glibc copies more than two kilobytes with `rep movsb`. AMD's processors do that at a twentieth
//! of their speed if the target is not aligned, and the content of a TLS record never is: this would be a fifth of a
//! server's work while files pass through it. Only an environment variable at the start of a program changes that, so a
//! server executes itself once more.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
/// The size from which `rep movsb` is used: never.
const NEVER: &str = "glibc.cpu.x86_rep_movsb_threshold=4294967296";

/// Returns if there is nothing to gain or nothing can be done. If the variable is already set, its value is kept.
pub fn use_fast_copies() {
    if std::env::var_os(VARIABLE).is_some() || !is_slow() {
        return;
    }
    // Keeps the program's name, which is what users see in the process list.
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
