//! `muster`: see the library.

use std::process::ExitCode;

/// Decisions allocate much and briefly: with the system's allocator a start with many jobs takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    muster_cli::main()
}
