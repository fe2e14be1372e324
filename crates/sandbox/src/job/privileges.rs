//! What a job may do: as nobody in particular, within limits, and never more.

use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities,
    set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::{Limits, told};

/// When memory runs out, a job goes before its agent. Its children inherit it.
const OOM_SCORE: &str = "500";

pub(super) fn first_to_go_without_memory() -> Result<(), String> {
    let written = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    told(written, || "write to /proc/self/oom_score_adj".into(), "")
}

/// Becomes this user, and keeps the capabilities over its own walls for now.
pub(super) fn become_user((user, group): (u32, u32), has_range: bool) -> Result<(), String> {
    // Where there is one user only, the kernel does not let groups be left.
    if has_range {
        told(set_thread_groups(&[]), || "setgroups".into(), "")?;
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    told(set_thread_res_gid(group, group, group), || "setresgid".into(), "")?;
    told(set_thread_res_uid(user, user, user), || "setresuid".into(), "")
}

/// No capability can be brought back from here on, not even by becoming root or by another program.
pub(super) fn bar_capabilities() -> Result<(), String> {
    // From here on user 0 would be no more than any other, and none of this can be turned back.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    told(set_capabilities_secure_bits(bits), || "prctl(PR_SET_SECUREBITS)".into(), "")?;
    for capability in 0..64 {
        // SAFETY: takes a number and no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            // Past the last one that this kernel knows.
            if error.raw_os_error() == Some(libc::EINVAL) && capability > 0 {
                break;
            }
            return told(Err(error), || "prctl(PR_CAPBSET_DROP)".into(), "");
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
    told(set_capabilities(None, none), || "capset".into(), "")
}

/// What cannot be traced or read by others of the same user, and dumps no core.
pub(super) fn become_opaque() -> Result<(), String> {
    // SAFETY: takes a number and no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let done = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    told(done, || "prctl(PR_SET_DUMPABLE)".into(), "")
}

/// Limits are only ever lowered: to raise one takes a right that even root may lack.
pub(super) fn set_limits(limits: &Limits) -> Result<(), String> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    let at_most = |resource, value: u64| {
        let hard = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        told(setrlimit(resource, both(value.min(hard))), || format!("setrlimit({resource:?})"), "")
    };
    at_most(Resource::Core, 0)?;
    // The soft limit is often small, for programs that count with it; the hard one is what the machine grants.
    let files = getrlimit(Resource::Nofile).maximum;
    let files = Rlimit { current: files, maximum: files };
    told(setrlimit(Resource::Nofile, files), || "setrlimit(Nofile)".into(), "")?;
    if let Some(processes) = limits.processes {
        at_most(Resource::Nproc, processes)?;
    }
    if let Some(bytes) = limits.file_bytes {
        at_most(Resource::Fsize, bytes)?;
    }
    Ok(())
}
