//! Simulated days, one module for each subject.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod determinism;
mod evictions;
mod found;
#[cfg(feature = "planted-bugs")]
mod planted;
mod replay;
mod replay_hostile;
mod replay_reference;
mod seeds;
mod soak;
