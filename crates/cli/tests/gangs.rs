//! Jobs of several nodes and jobs whose node is taken away, on real nodes behind walls.

mod support;

use support::walls::{cluster, ran, wait_until, walled};

/// Each member listens on the meeting port; the first adds up what the others send it.
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

#[test]
fn members_start_together_and_reach_each_other() {
    let site = walled();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let gang = ["job", "create", "--compute", "cpu", "--command", ADD_UP, "-n", "gang"];
    let done = site.run(&[&gang[..], &["--instance-count", "2", "--stream"]].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    let orders = ["100.64.0.2;100.64.0.3", "100.64.0.3;100.64.0.2"];
    assert!(orders.iter().any(|all| text.contains(&format!("sum 42 of 2 {all}"))), "{text}");

    let one_fails = "if [ $NODE_RANK = 1 ]; then exit 7; else sleep 600; fi";
    let gang = ["job", "create", "--compute", "cpu", "--command", one_fails, "-n", "broken"];
    assert_eq!(site.run(&[&gang[..], &["--instance-count", "2"]].concat()).code, 0);
    let mut shown = String::new();
    wait_until("all end with the one", || {
        shown = site.text(&["job", "show", "-n", "broken"]);
        shown.contains("Failed")
    });
    assert!(shown.contains("exit code 7"), "{shown}");
    assert!(ran(&site, "cpu", "after", "echo free again").contains("free again"));
}

#[test]
fn a_job_whose_node_is_taken_away_is_told_and_runs_again() {
    let site = walled();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2", "--tier", "low_priority"]);
    let trains = "echo attempt $MUSTER_ATTEMPT on $MUSTER_NODE; [ $MUSTER_ATTEMPT = 2 ] && exit 0; \
                  trap 'sleep 0.2; cat $MUSTER_PREEMPTION_NOTICE; exit 1' TERM; \
                  while :; do sleep 0.1; done";
    let create = ["job", "create", "--compute", "cpu", "--command", trains, "-n", "train"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "train"]).contains("Running"));
    let nodes = site.text(&["compute", "list-nodes", "-n", "cpu"]);
    let (_, rest) = nodes.split_once("\"node_id\": \"").expect("it has a node");
    let node = rest.split('"').next().expect("with a name");
    let evict = site.run(&["compute", "evict", "--cluster", "cpu", "--node", node]);
    assert_eq!(evict.code, 0, "{}", evict.stderr);
    wait_until("it ends", || site.text(&["job", "show", "-n", "train"]).contains("Completed"));
    let log = site.text(&["job", "stream", "-n", "train"]);
    assert!(log.contains("attempt 2 on cpu-"), "{log}");
    let dedicated = ["compute", "create", "-n", "mine", "--min-instances", "1"];
    assert_eq!(site.run(&dedicated).code, 0);
    let refused = site.run(&["compute", "evict", "--cluster", "mine", "--node", "mine-1"]);
    assert_ne!(refused.code, 0, "a dedicated node is not taken away");
}
