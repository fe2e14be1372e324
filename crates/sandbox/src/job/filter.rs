//! The system calls that jobs are refused.
//!
//! Namespaces and users make up a sandbox. This filter is the second line of defence: it refuses what no job needs and
//! where most kernel vulnerabilities were found. Everything else is allowed, because we cannot know what a user's
//! program needs.
//!
//! `ptrace` is allowed, because debuggers and profilers of training jobs need it. It only reaches processes in the PID
//! namespace, which are the job itself and its init; the init cannot be traced because it is not dumpable.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// Newer than the table in `libc`; the number is the same on every architecture.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// System calls that are refused whatever their arguments are.
const REFUSED: &[libc::c_long] = &[
    // Mounts.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The host.
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    // Parts of the kernel with a history of vulnerabilities.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys belong to a user, and all jobs may be the same user outside.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Ways out of the sandbox.
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// A new namespace of any kind is refused; a new process or thread is not.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Refused for `unshare` only: in `clone`, this bit is part of a signal number.
const CLONE_NEWTIME: u32 = 0x80;

/// The socket families that a network namespace isolates. Others (`AF_VSOCK`, `AF_TIPC`, `AF_ALG`, …) reach the host
/// itself or other nodes on it.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The only netlink protocol allowed lists interfaces and routes, which libraries need to resolve names.
const NETLINK_PROTOCOLS: [libc::c_int; 1] = [libc::NETLINK_ROUTE];
/// The internet protocols that common programs use. MPTCP is not among them, because firewall rules for TCP do not see
/// its subflows.
const INTERNET_PROTOCOLS: [libc::c_int; 6] = [
    libc::IPPROTO_IP,
    libc::IPPROTO_ICMP,
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_ICMPV6,
    libc::IPPROTO_UDPLITE,
];

/// The program that a job loads. It is built once.
#[derive(Debug, Clone)]
pub(crate) struct Filter(BpfProgram);

impl Filter {
    pub(crate) fn new() -> Result<Filter, String> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            REFUSED.iter().map(|number| (*number, Vec::new())).collect();
        let flags = NAMESPACES.map(|flag| flag.cast_unsigned());
        rules.insert(libc::SYS_clone, any_of(&flags)?);
        rules.insert(libc::SYS_unshare, any_of(&[&flags[..], &[CLONE_NEWTIME]].concat())?);
        // `clone3` hides its flags behind a pointer. If it is missing, libraries fall back to `clone`.
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        // Programs fall back to other families and protocols if these are unsupported, but give up if they are forbidden.
        let other_family = || rule(FAMILIES.iter().map(|family| is_not(FAMILY, *family)));
        let families = BTreeMap::from([
            (libc::SYS_socket, vec![other_family()?]),
            (libc::SYS_socketpair, vec![other_family()?]),
        ]);
        let protocols = BTreeMap::from([(
            libc::SYS_socket,
            vec![
                other_protocol(libc::AF_NETLINK, &NETLINK_PROTOCOLS)?,
                other_protocol(libc::AF_INET, &INTERNET_PROTOCOLS)?,
                other_protocol(libc::AF_INET6, &INTERNET_PROTOCOLS)?,
            ],
        )]);
        Ok(Filter(one_after_the_other([
            only_this_numbering(program(rules, libc::EPERM)?),
            program(clone3, libc::ENOSYS)?,
            program(families, libc::EAFNOSUPPORT)?,
            program(protocols, libc::EPROTONOSUPPORT)?,
        ])))
    }

    /// Applies the filter permanently to this process and all its descendants, which also can no longer gain privileges
    /// from set-user-ID programs.
    pub(crate) fn apply(&self) -> Result<(), String> {
        seccompiler::apply_filter(&self.0)
            .map_err(|error| format!("seccomp: {error}; the kernel needs CONFIG_SECCOMP_FILTER"))
    }
}

/// The positions of these arguments of `socket` and `socketpair`.
const FAMILY: u8 = 0;
const PROTOCOL: u8 = 2;

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn condition(argument: u8, op: SeccompCmpOp, value: libc::c_int) -> Condition {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

fn is_not(argument: u8, value: libc::c_int) -> Condition {
    condition(argument, SeccompCmpOp::Ne, value)
}

/// Matches if all conditions hold.
fn rule(conditions: impl Iterator<Item = Condition>) -> Result<SeccompRule, String> {
    conditions
        .collect::<Result<Vec<_>, _>>()
        .and_then(SeccompRule::new)
        .map_err(|error| error.to_string())
}

/// Matches sockets of this family with a protocol that is not in the list.
fn other_protocol(family: libc::c_int, protocols: &[libc::c_int]) -> Result<SeccompRule, String> {
    let is_family = condition(FAMILY, SeccompCmpOp::Eq, family);
    let others = protocols.iter().map(|protocol| is_not(PROTOCOL, *protocol));
    rule(std::iter::once(is_family).chain(others))
}

/// Returns one rule for each flag, so that any single flag matches.
fn any_of(flags: &[u32]) -> Result<Vec<SeccompRule>, String> {
    let rule = |flag: &u32| {
        let flag = u64::from(*flag);
        let is_set = SeccompCmpOp::MaskedEq(flag);
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, is_set, flag)?])
    };
    let rules: Result<Vec<_>, seccompiler::BackendError> = flags.iter().map(rule).collect();
    rules.map_err(|error| error.to_string())
}

/// Allows everything else, and kills a process that uses the system-call numbers of another architecture.
fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, String> {
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into();
    arch.and_then(|arch| SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch))
        .and_then(BpfProgram::try_from)
        .map_err(|error| format!("seccomp: {error}"))
}

/// Kills callers of x32. On x86-64 this second set of numbers counts as the same architecture, so it would bypass every
/// rule. Nothing uses it.
fn only_this_numbering(program: BpfProgram) -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    // Load the system-call number, kill if it has the x32 bit, otherwise continue.
    let load = sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let jump_if_at_least = sock_filter { code: 0x35, jt: 0, jf: 1, k: X32_BIT };
    let kill = sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS };
    [vec![load, jump_if_at_least, kill], program].concat()
}

/// Joins programs, each of which refuses with an error of its own: what one allows is left to the next. The kernel would
/// also accept them one by one, but translates and checks each that a job loads, which takes longer than to run them.
fn one_after_the_other<const N: usize>(programs: [BpfProgram; N]) -> BpfProgram {
    const RETURN: u16 = 0x06;
    const JUMP: u16 = 0x05;
    let mut all = BpfProgram::new();
    for (index, mut program) in programs.into_iter().enumerate() {
        let is_last = index + 1 == N;
        let length = program.len();
        for (at, step) in program.iter_mut().enumerate().filter(|_| !is_last) {
            if (step.code, step.k) == (RETURN, libc::SECCOMP_RET_ALLOW) {
                // A jump skips this number of steps: here, all that are left of this program.
                let rest = u32::try_from(length - at - 1).expect("a program is short");
                *step = sock_filter { code: JUMP, jt: 0, jf: 0, k: rest };
            }
        }
        all.append(&mut program);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_into_the_kernels_limit() {
        let filter = Filter::new().unwrap().0;
        assert!(filter.len() < 4096, "{}", filter.len());
    }

    #[test]
    fn only_the_last_program_allows_and_the_others_jump_to_the_next() {
        let step = |code, k| sock_filter { code, jt: 0, jf: 0, k };
        let allow = || step(6, libc::SECCOMP_RET_ALLOW);
        let (load, refuse) = (|| step(0x20, 0), || step(6, 0x5_0001));
        let first = vec![load(), allow(), refuse(), allow()];
        let joined = one_after_the_other([first, vec![refuse(), allow()]]);
        let expected = [load(), step(5, 2), refuse(), step(5, 0), refuse(), allow()];
        assert_eq!(joined, expected);
    }
}
