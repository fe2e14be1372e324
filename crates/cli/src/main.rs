//! The `muster` binary; everything is in the library.

use std::process::ExitCode;

/// Decisions allocate a lot for short times; with the system allocator, starting with many jobs takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    muster_cli::main()
}
