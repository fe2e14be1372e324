//! Jobs that share the sandbox of their node: they start faster, each is still a user of its own that cannot access the
//! others, and leaves nothing running.

use crate::support::Site;
use crate::support::sandbox::{cluster, processes, ran, wait_until};

fn shared() -> Site {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox", "--job-sandbox", "shared"]);
    site
}

/// Prints everything that it accessed but should not have.
const PRY: &str = r#"
import os, signal
got, root = [], os.getuid() == 0
def tries(what, call):
    try:
        if call() is not False: got.append(what)
    except OSError: pass
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
neighbour = [p for p in others if b"neighbour" in open(f"/proc/{p}/cmdline", "rb").read()]
for pid in others:
    if pid != os.getppid():
        tries(f"environ {pid}", lambda: open(f"/proc/{pid}/environ").read())
        tries(f"memory {pid}", lambda: open(f"/proc/{pid}/mem", "rb").close())
        tries(f"signals {pid}", lambda: os.kill(pid, 0))
tries("node's folder", lambda: os.listdir("/node"))
tries("secret", lambda: open("/run/muster/given/secret").read())
tries("neighbour's tmp", lambda: open("/tmp/hers").read())
tries("neighbour's folder", lambda: open("/job/hers").read())
tries("root", lambda: os.setuid(0))
tries("namespaces", lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else False)
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
rights = [status[key] for key in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")]
zero = "0" * 16
if rights != [zero, zero, zero, "1", "2"]: got.append(rights)
print("sees", bool(neighbour), "root", root, "got", got)
"#;

#[test]
fn jobs_of_one_node_are_different_users_and_keep_to_themselves() {
    let site = shared();
    let size = ["--size", "Standard_DS2_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "cpu"][..], &size].concat());
    let half = ["--compute", "cpu", "--cpus", "1", "-o", "none"];
    let hers = "touch /tmp/hers /job/hers; echo her user is $(id -u); while :; do sleep 0.06543; done # neighbour";
    site.text(&[&["job", "create", "-n", "hers", "--command", hers][..], &half].concat());
    wait_until("she sleeps", || !processes(&["sleep", "0.06543"]).is_empty());
    let pry = ["job", "create", "-n", "pry", "--command", "id -u; exec python3 -c \"$PRY\""];
    let program = format!("PRY={PRY}");
    let done = site.run(&[&pry[..], &half[..4], &["--stream", "--env", &program]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    // The neighbour is visible, which is what sharing means, but nothing more.
    assert_eq!(text.lines().last(), Some("sees True root False got []"), "{text}");
    site.text(&["job", "cancel", "-n", "hers"]);
    wait_until("her processes have ended", || processes(&["sleep", "0.06543"]).is_empty());
    wait_until("the job is canceled", || {
        site.text(&["job", "show", "-n", "hers"]).contains("Canceled")
    });
    let log = String::from_utf8(site.run(&["job", "stream", "-n", "hers"]).stdout).expect("text");
    let hers = log.lines().find_map(|line| line.strip_prefix("her user is "));
    assert!(hers.is_some() && hers != text.lines().next(), "{log}{text}");
}

/// Takes 12 s: a job that is asked to end is given ten seconds to stop.
#[test]
fn all_their_processes_end_and_their_outcomes_are_distinguished() {
    let site = shared();
    cluster(&site, "cpu", &[]);
    let away = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05432; done' & sleep 0.2; exit 3";
    let create = ["job", "create", "--compute", "cpu", "--stream", "-n"];
    let code = site.run(&[&create[..], &["code", "--command", away]].concat());
    assert_ne!(code.code, 0);
    assert!(processes(&["sleep", "0.05432"]).is_empty(), "nothing outlives its job");
    assert!(site.text(&["job", "show", "-n", "code"]).contains("3"));
    site.run(&[&create[..], &["signal", "--command", "kill -SEGV $$"]].concat());
    let signal = site.text(&["job", "show", "-n", "signal"]);
    assert!(signal.contains("killed by signal 11"), "{signal}");

    let stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 0.04321; while :; do sleep 1.04321; done' & \
                    while :; do sleep 1.04321; done";
    let more = ["--compute", "cpu", "-o", "none", "-n", "stubborn", "--command", stubborn];
    site.text(&[&["job", "create"][..], &more].concat());
    wait_until("it runs", || processes(&["sleep", "1.04321"]).len() >= 2);
    site.text(&["job", "cancel", "-n", "stubborn"]);
    wait_until("all its processes are killed", || processes(&["1.04321"]).is_empty());
    wait_until("the job is canceled", || {
        site.text(&["job", "show", "-n", "stubborn"]).contains("Canceled")
    });

    // Its folder, its own /tmp, and its certificates are where every job finds them.
    let found = ran(
        &site,
        "cpu",
        "found",
        "pwd; test -w /tmp && ls -A /tmp; test -s $SSL_CERT_FILE && echo trust",
    );
    assert_eq!(found.trim(), "/job/wd\ntrust");
}

/// A job with a part of its node has a group that tells whether anything is left, so its end is cheaper if nothing is. It
/// ends as completely as one without.
#[test]
fn nothing_is_left_of_a_job_whether_or_not_it_has_a_group() {
    let site = shared();
    cluster(&site, "cpu", &[]);
    // Each process starts its successor in a new session and ends, so every look at the list of processes is outdated.
    let chain = "sleep 0.03217; setsid sh -c \"$CHAIN\" & exit";
    let many = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c \"$CHAIN\" & done; sleep 0.2; exit 7";
    let away = "(setsid sh -c 'trap \"\" TERM HUP; env -i setsid sleep 998.7 & exec sleep 998.7' &); sleep 0.2";
    // These stop every process that they may signal, as soon as their shell has been reaped.
    let freezing = "for i in 1 2 3 4; do setsid sh -c ': 0.05777; while kill -0 '$$' 2>/dev/null; do :; done; \
                    while :; do kill -s STOP -- -1; done' & done; sleep 0.1";
    let variable = format!("CHAIN={chain}");
    for (number, parts) in [&["--cpus", "1"][..], &[]].into_iter().enumerate() {
        for (command, fails) in [(many, true), (away, false), (freezing, false), ("true", false)] {
            let name = format!("left-{number}-{}", command.len());
            let job = ["job", "create", "--compute", "cpu", "--stream", "-n", &name];
            let command = ["--command", command, "--env", &variable];
            let done = site.run(&[&job[..], &command, parts].concat());
            assert_eq!(done.code != 0, fails, "{}", done.stderr);
            assert!(processes(&["0.03217"]).is_empty(), "{name} {parts:?}");
            assert!(processes(&["998.7"]).is_empty(), "{name} {parts:?}");
            assert!(processes(&["0.05777"]).is_empty(), "{name} {parts:?}");
        }
    }
}

/// The group of a job tells whether any of its processes is left, so no job may leave its group or change it.
#[test]
fn a_job_stays_in_its_group_and_the_next_one_is_in_the_same() {
    let site = shared();
    site.text(&["compute", "create", "-n", "cpu", "--max-instances", "1", "-d", "600"]);
    let pry = "grep -E 'pids|0::' /proc/self/cgroup; \
               for file in $(find /sys/fs/cgroup -name cgroup.procs -o -name tasks -o -name pids.max -o -name cgroup.threads); do \
               (echo $$ > $file) 2> /dev/null && echo wrote $file; test -w $file && echo may write $file; \
               (mkdir ${file%/*}/deeper) 2> /dev/null && echo made a group; done; true";
    let run = |name: &str, memory: &str| {
        let job = ["job", "create", "--compute", "cpu", "--stream", "-n", name, "--cpus", "1"];
        let done = site.run(&[&job[..], &["--memory", memory, "--command", pry]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        let text = String::from_utf8(done.stdout).expect("text");
        assert!(
            !text.contains("wrote") && !text.contains("may") && !text.contains("made"),
            "{text}"
        );
        text.lines().find(|line| line.contains("job-")).map(str::to_owned)
    };
    let first = run("first", "256MB");
    assert!(first.is_some(), "it is in a group");
    assert_eq!(run("second", "256MB"), first);
    assert_ne!(run("larger", "512MB"), first);
}
