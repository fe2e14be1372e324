//! Jobs of several nodes and jobs whose node is evicted, on real sandboxed nodes.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::sandbox::{cluster, processes, ran, sandboxed, wait_until, works};

/// Each member listens on the meeting port; the first adds up what the others send.
const ADD_UP: &str = r#"exec python3 -c "
import os, socket
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if rank == 0:
    total, door = 0, socket.create_server(('0.0.0.0', place[1]))
    for _ in range(size - 1):
        call, _ = door.accept()
        total += int(call.makefile().readline())
    print('sum', total, 'of', size, os.environ['AZ_BATCH_NODE_LIST'])
    print('AZUREML_NODE_COUNT', os.environ['AZUREML_NODE_COUNT'])
else:
    import time
    for _ in range(200):
        try:
            call = socket.create_connection(place, 5)
            break
        except OSError:
            time.sleep(0.05)
    call.sendall(b'%d\n' % (rank + 41))
""#;

/// Takes 12 s: a member that is asked to end is given ten seconds to stop.
#[test]
fn members_start_together_and_reach_each_other() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let gang = ["job", "create", "--compute", "cpu", "--command", ADD_UP, "-n", "gang"];
    let done = site.run(&[&gang[..], &["--instance-count", "2", "--stream"]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    let orders = ["100.64.0.2;100.64.0.3", "100.64.0.3;100.64.0.2"];
    assert!(orders.iter().any(|all| text.contains(&format!("sum 42 of 2 {all}"))), "{text}");
    assert!(text.lines().any(|line| line == "AZUREML_NODE_COUNT 2"), "{text}");

    // One member fails while the other is running.
    let seconds = format!("600.{}", std::process::id());
    let partner = ["sleep", seconds.as_str()];
    let one_fails = "if [ $NODE_RANK = 1 ]; then until test -e go; do sleep 0.05; done; exit 7; fi; \
                     trap '' TERM; sleep SECONDS";
    let one_fails = one_fails.replace("SECONDS", &seconds);
    let gang = ["job", "create", "--compute", "cpu", "--command", &one_fails, "-n", "broken"];
    assert_eq!(site.run(&[&gang[..], &["--instance-count", "2"]].concat()).code, 0);
    wait_until("its partner runs", || !processes(&partner).is_empty());
    for work in works(&site) {
        std::fs::write(work.join("go"), "").expect("its folder exists");
    }
    let mut shown = String::new();
    wait_until("all members end with the failed one", || {
        shown = site.text(&["job", "show", "-n", "broken"]);
        shown.contains("Failed")
    });
    assert!(shown.contains("exit code 7 on node") && shown.contains("(rank 1)"), "{shown}");
    assert!(processes(&partner).is_empty(), "its partner is still alive");
    assert!(ran(&site, "cpu", "after", "echo free again").contains("free again"));
}

#[test]
fn a_job_whose_node_is_evicted_is_notified_and_runs_again() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2", "--tier", "low_priority"]);
    let trains = "echo attempt $MUSTER_ATTEMPT on $MUSTER_NODE; [ $MUSTER_ATTEMPT = 2 ] && exit 0; \
                  trap 'sleep 0.2; cat $MUSTER_EVICTION_NOTICE; exit 1' TERM; \
                  while :; do sleep 0.1; done";
    let create = ["job", "create", "--compute", "cpu", "--command", trains, "-n", "train"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "train"]).contains("Running"));
    let nodes = site.text(&["compute", "list-nodes", "-n", "cpu"]);
    let (_, rest) = nodes.split_once("\"node_id\": \"").expect("it has a node");
    let node = rest.split('"').next().expect("with a name");
    let evicted_at = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let evict = site.run(&["compute", "evict", "--cluster", "cpu", "--node", node]);
    assert_eq!(evict.code, 0, "{}", evict.stderr);
    wait_until("it ends", || site.text(&["job", "show", "-n", "train"]).contains("Completed"));
    let log = site.text(&["job", "stream", "-n", "train"]);
    assert!(log.contains("attempt 2 on cpu-"), "{log}");
    // Its first attempt was notified how long it had.
    let first = site.run(&["job", "stream", "-n", "train", "--attempt", "1"]);
    let first = String::from_utf8(first.stdout).expect("text");
    let deadline = first.lines().find_map(|line| line.strip_prefix("MUSTER_EVICTION_DEADLINE="));
    let deadline: u64 =
        deadline.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{first}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(first.contains("attempt 1 on cpu-"), "{first}");
    assert!((evicted_at + 25..=now + 30).contains(&deadline), "{deadline}: {first}");
    let dedicated = ["compute", "create", "-n", "mine", "--min-instances", "1"];
    assert_eq!(site.run(&dedicated).code, 0);
    let refused = site.run(&["compute", "evict", "--cluster", "mine", "--node", "mine-1"]);
    assert_ne!(refused.code, 0, "a dedicated node is not evicted");
}

/// Takes 12 s: a rehearsal has a round every ten seconds.
#[test]
fn a_rehearsal_goes_on_whatever_leaves() {
    let site = sandboxed();
    let low = ["--size", "Standard_DS1_v2", "--tier", "low_priority", "--min-instances", "2"];
    cluster(&site, "cpu", &low);
    wait_until("two nodes are up", || {
        site.text(&["compute", "list-nodes", "-n", "cpu"]).matches("\"idle\"").count() == 2
    });
    let log = site.folder().join("rehearsal");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    // Every node in every round.
    let evict = ["compute", "evict", "--cluster", "cpu", "--rate", "360/h"];
    let mut rehearsal = site.command(&evict);
    rehearsal.stderr(std::fs::File::create(&log).expect("io"));
    let mut rehearsal = rehearsal.spawn().expect("the binary runs");
    wait_until("the nodes of two rounds are evicted", || {
        let ended = rehearsal.try_wait().expect("a child of ours");
        assert!(ended.is_none(), "it ended with {ended:?}: {}", said());
        said().matches(" is evicted within 0 s").count() >= 4
    });
    rehearsal.kill().expect("it runs");
    rehearsal.wait().expect("it was killed");
    wait_until("other nodes replace them", || {
        site.text(&["compute", "list-nodes", "-n", "cpu"]).matches("\"idle\"").count() == 2
    });
}
