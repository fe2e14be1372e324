//! Reduces a process to what a job may do: an ordinary user with limits, which it can never exceed.

use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities,
    set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::{Limits, explain};

/// When memory runs out, the kernel kills a job before its agent. Child processes inherit this.
const OOM_SCORE: &str = "500";

pub(super) fn prefer_as_oom_victim() -> Result<(), String> {
    let written = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    explain(written, || "write to /proc/self/oom_score_adj".into(), "")
}

/// Becomes this user, but keeps the capabilities over its own namespaces for now.
pub(super) fn become_user((user, group): (u32, u32), has_range: bool) -> Result<(), String> {
    // With only one user, the kernel does not allow a process to drop its groups.
    if has_range {
        explain(set_thread_groups(&[]), || "setgroups".into(), "")?;
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    explain(set_thread_res_gid(group, group, group), || "setresgid".into(), "")?;
    explain(set_thread_res_uid(user, user, user), || "setresuid".into(), "")
}

/// Ensures that no capability can be regained by becoming root. None of this can be undone.
pub(super) fn lock_root_out() -> Result<(), String> {
    // From here on user 0 has no special rights.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    explain(set_capabilities_secure_bits(bits), || "prctl(PR_SET_SECUREBITS)".into(), "")
}

/// Ensures that this process and its descendants can gain no capability by running another program. Those that it has
/// remain, and a new user namespace has all of its own again. This cannot be undone.
pub(super) fn bar_capabilities() -> Result<(), String> {
    for capability in 0..64 {
        // SAFETY: takes a number and no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            // This is beyond the last capability that the kernel knows.
            if error.raw_os_error() == Some(libc::EINVAL) && capability > 0 {
                break;
            }
            return explain(Err(error), || "prctl(PR_CAPBSET_DROP)".into(), "");
        }
    }
    Ok(())
}

/// Gives up every capability.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    explain(set_capabilities(None, none), || "capset".into(), "")
}

/// Prevents other processes of the same user from tracing or reading this one, and disables core dumps.
pub(super) fn become_opaque() -> Result<(), String> {
    // SAFETY: takes a number and no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let done = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    explain(done, || "prctl(PR_SET_DUMPABLE)".into(), "")
}

/// Limits are only ever lowered, because raising one takes a privilege that even root may lack.
pub(super) fn set_limits(limits: &Limits) -> Result<(), String> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    let at_most = |resource, value: u64| {
        let hard = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        explain(
            setrlimit(resource, both(value.min(hard))),
            || format!("setrlimit({resource:?})"),
            "",
        )
    };
    at_most(Resource::Core, 0)?;
    // The soft limit is often low for programs that depend on it; the hard limit is what the host allows.
    let files = getrlimit(Resource::Nofile).maximum;
    let files = Rlimit { current: files, maximum: files };
    explain(setrlimit(Resource::Nofile, files), || "setrlimit(Nofile)".into(), "")?;
    if let Some(processes) = limits.processes {
        at_most(Resource::Nproc, processes)?;
    }
    if let Some(bytes) = limits.file_bytes {
        at_most(Resource::Fsize, bytes)?;
    }
    Ok(())
}
