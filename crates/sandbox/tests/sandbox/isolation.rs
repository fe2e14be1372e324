//! What a job can and cannot do.

use muster_sandbox::job::{Ending, Event};

use crate::harness::{node, variables};

#[test]
fn a_job_finds_what_it_was_given_and_nothing_else() {
    let Some(node) = node() else { return };
    let mut launch = node.launch("a", "");
    launch.command = "exec cat /proc/self/environ".into();
    launch.variables = variables(&[("GREETING", "hello there"), ("B", "")]);
    let outcome = node.start_as("a", launch).outcome();
    let mut found: Vec<&str> = outcome.log.split_terminator('\0').collect();
    // The shell sets this variable itself.
    found.retain(|entry| *entry != "PWD=/job/wd");
    found.sort_unstable();
    assert_eq!(found, ["B=", "GREETING=hello there"]);
    // The third descriptor belongs to `ls`.
    let log =
        node.said("b", "ls -1 /proc/self/fd; readlink /proc/self/fd/0; pwd; umask; ulimit -c");
    assert_eq!(log, "0\n1\n2\n3\n/dev/null\n/job/wd\n0022\n0\n");
    assert_eq!(
        node.said("c", "[ $(ulimit -Sn) = $(ulimit -Hn) ] && cat /proc/self/oom_score_adj"),
        "500\n"
    );
}

#[test]
fn a_job_is_an_unprivileged_user() {
    let Some(node) = node() else { return };
    let log =
        node.said("a", "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    let mut lines = log.lines();
    assert_eq!((lines.next(), lines.next()), (Some("1000"), Some("1000")));
    for line in lines {
        let (name, value) = line.split_once(":\t").unwrap();
        let expected = match name {
            "NoNewPrivs" => "1",
            "Seccomp" => "2",
            _ => "0000000000000000",
        };
        assert_eq!(value, expected, "{name}");
    }
    // All jobs of a node are different users if it has more than one.
    let outside = |name| node.said(name, "cat /proc/self/uid_map");
    let (first, second) = (outside("b"), outside("c"));
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let has_range =
        rustix::process::geteuid().is_root() && users.split_ascii_whitespace().last() != Some("1");
    assert_eq!(first != second, has_range, "{first} {second}");
}

#[test]
fn a_job_sees_nothing_of_its_node_and_of_other_jobs() {
    let Some(node) = node() else { return };
    let other = node.start("other", "echo mine > private; echo up; sleep 1000");
    other.until_said("up");
    let dir = node.dir.path().display();
    let log = node.said("a", &format!("ls -A {dir}; cat {dir}/secret {dir}/work/other/private; \
        find / -xdev -name secret -newer /proc/1 2>/dev/null; ls -A /run /job /tmp; ls -d /proc/[0-9]* | wc -l; :"));
    assert!(!log.contains("sesame") && !log.contains("mine"), "{log}");
    assert_eq!(log.matches("No such file").count(), 2, "{log}");
    // Its init, its shell, and the processes that count.
    let processes: u32 = log.lines().last().unwrap().parse().unwrap();
    assert!(processes <= 4, "{log}");
    // The node is not reachable through the init either, nor through the parent of the job's folder.
    let log = node.said(
        "b",
        "ls /proc/1/root /proc/1/cwd; cat /proc/1/environ; cat /proc/1/fd/2; ls /job/../ ..; :",
    );
    assert_eq!(log.matches("Permission denied").count(), 4, "{log}");
    assert!(log.lines().any(|line| line == "job") && !log.contains("other"), "{log}");
}

#[test]
fn a_job_writes_only_into_its_own_folders() {
    let Some(node) = node() else { return };
    node.said(
        "a",
        "for dir in . .. /tmp /dev/shm; do echo x > $dir/file && cat $dir/file || exit 1; done",
    );
    let folder = node.dir.path().join("work/a");
    for file in ["wd/file", "file", "tmp/file"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    // The mount has to refuse writes where the agent's user could write itself.
    let log = node.said(
        "b",
        "for dir in / /usr /etc /var/tmp /root /run /dev /sys /proc; do \
        (: > $dir/muster-was-here) 2>/dev/null && echo $dir; done; :",
    );
    assert_eq!(log, "");
    let log = node.said(
        "e",
        "for file in sys/kernel/core_pattern sys/vm/overcommit_memory sysrq-trigger; do \
         (: >> /proc/$file) 2>/dev/null && echo $file; done; :",
    );
    assert_eq!(log, "");
    for line in node.said("c", "cat /proc/self/mountinfo").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let is_own =
            ["/job", "/tmp", "/dev/", "/proc"].iter().any(|own| fields[4].starts_with(own));
        assert!(is_own || fields[5].starts_with("ro"), "{line}");
    }
    let mut launch = node
        .launch("d", "head -c 2000 /dev/zero > file; head -c 900 /dev/zero > other; wc -c other");
    launch.limits.file_bytes = Some(1000);
    let outcome = node.start_as("d", launch).outcome();
    assert!(outcome.log.contains("900 other"), "{}", outcome.log);
    assert_eq!(std::fs::metadata(node.dir.path().join("work/d/wd/file")).unwrap().len(), 1000);
}

#[test]
fn a_job_has_as_many_processes_as_it_may() {
    let Some(node) = node() else { return };
    let mut launch =
        node.launch("a", "ulimit -Su; ulimit -Hu; ulimit -u 99999 2>/dev/null || echo kept");
    // In bash this option is the number of processes; dash uses another letter.
    launch.command = format!("exec bash -c '{}'", launch.command);
    launch.limits.processes = Some(321);
    let outcome = node.start_as("a", launch).outcome();
    assert_eq!(outcome.log, "321\n321\nkept\n", "{:?}", outcome.events);
}

#[test]
fn a_job_cannot_touch_its_init_nor_what_is_outside() {
    let Some(node) = node() else { return };
    let outside = std::process::id();
    let log = node.said("a", &format!("kill -9 1; kill -9 -1; kill -0 {outside}; \
        python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.ptrace(16, 1, 0, 0), ctypes.get_errno())'; \
        echo here"));
    // `kill -9 -1` spares its caller, and the kernel spares the init.
    assert!(log.contains("No such process"), "{log}");
    assert!(log.ends_with("-1 1\nhere\n"), "{log}");
}

#[test]
fn system_calls_that_create_sandboxes_are_refused() {
    let Some(node) = node() else { return };
    for (name, command) in [
        ("a", "unshare --user true"),
        ("b", "unshare --mount true"),
        ("c", "mount -t tmpfs none /tmp"),
        ("d", "umount /tmp"),
        ("e", "umount /proc"),
        ("f", "nsenter --pid=/proc/self/ns/pid true"),
        ("g", "chroot / true"),
    ] {
        let outcome = node.run(name, command);
        assert!(!matches!(outcome.events[1], Event::Ended(Ending::Code(0))), "{command}");
    }
    // bpf, perf_event_open, userfaultfd, io_uring_setup, keyctl, open_by_handle_at, mount_setattr, clone with a new
    // user namespace; and clone3, which must look as if it did not exist.
    #[cfg(target_arch = "x86_64")]
    {
        let python = "import ctypes; l = ctypes.CDLL(None, use_errno=True)\n\
            for n, a in [(321, 0), (298, 0), (323, 0), (425, 0), (250, 0), (304, 0), (442, 0), (56, 0x10000011), (435, 0)]:\n  \
            r = l.syscall(n, a, 0, 0, 0, 0); print(r, ctypes.get_errno())";
        let log = node.said("h", &format!("python3 -c '{python}'"));
        let expected = "-1 1\n".repeat(8) + "-1 38\n";
        assert_eq!(log, expected);
        // `getpid` by its x32 number.
        let x32 = "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(0x40000027)'; echo $?";
        assert!(node.said("i", x32).contains("159"), "killed by SIGSYS");
    }
}

/// Sockets of other families belong to the host: no network namespace isolates them.
#[test]
fn only_sockets_that_networks_isolate_can_be_opened() {
    let Some(node) = node() else { return };
    let python = r#"
import errno, socket
def tried(call, *arguments):
    try:
        call(*arguments).close() if call is socket.socket else [end.close() for end in call(*arguments)]
        return "yes"
    except OSError as error:
        return errno.errorcode[error.errno]
stream, datagram, raw = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
print("good", *[tried(socket.socket, *kind) for kind in [
    (1, stream), (1, datagram), (2, stream), (2, datagram), (10, stream), (2, stream, 6), (10, datagram, 17), (16, raw, 0)]])
print("families", *sorted({tried(socket.socket, family, kind) for family in range(64) if family not in (1, 2, 10, 16)
    for kind in (stream, datagram, raw)}))
print("netlink", *sorted({tried(socket.socket, 16, raw, protocol) for protocol in range(1, 32)}))
print("internet", *sorted({tried(socket.socket, family, kind, protocol) for family in (2, 10) for kind in (stream, datagram)
    for protocol in (33, 132, 262)}))
print("pairs", tried(socket.socketpair, 1, stream), tried(socket.socketpair, 30, stream), tried(socket.socketpair, 40, stream))
"#;
    let log = node.said("sockets", &format!("python3 -c '{python}'"));
    let expected = "good yes yes yes yes yes yes yes yes\n\
                    families EAFNOSUPPORT\nnetlink EPROTONOSUPPORT\ninternet EPROTONOSUPPORT\n\
                    pairs yes EAFNOSUPPORT EAFNOSUPPORT\n";
    assert_eq!(log, expected);
}

#[test]
fn programs_find_what_they_need() {
    let Some(node) = node() else { return };
    let log = node.said(
        "a",
        "head -c 4 /dev/urandom | wc -c; echo x > /dev/null; echo to-log >> /dev/stdout; \
        echo also | tee -a /dev/stderr > /dev/null; \
        python3 -c 'import os, pty, multiprocessing as m, threading as t, subprocess as s\n\
a, b = pty.openpty(); os.write(b, b\"pty\"); print(os.read(a, 3).decode())\n\
q = m.Queue(); p = m.Process(target=q.put, args=(7,)); p.start(); print(q.get()); p.join()\n\
h = t.Thread(target=print, args=(\"thread\",)); h.start(); h.join()\n\
print(s.check_output([\"sh\", \"-c\", \"echo child\"]).decode(), end=\"\")'; hostname",
    );
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(log, format!("4\nto-log\nalso\npty\n7\nthread\nchild\n{host}"));
}
