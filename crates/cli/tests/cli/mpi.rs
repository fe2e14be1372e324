//! Debian's Open MPI on two sandboxed nodes, over their own network. The nodes have no ssh: a member that waits for
//! commands takes its place.

use crate::support::sandbox::{cluster, sandboxed};

/// Every member compiles; the first one starts `mpirun`, which reaches the others through `reach.py`.
const COMMAND: &str = r#"
set -e
printf %s "$HELLO" > hello.c
printf %s "$REACH" > reach.py
printf '#!/bin/sh\nexec python3 /job/wd/reach.py "$@"\n' > reach
chmod +x reach
mpicc -o hello hello.c
if [ "$NODE_RANK" = 0 ]; then
    hosts=$(echo "$AZ_BATCH_NODE_LIST" | tr ';' ',')
    [ "${AZ_BATCHAI_MPI_MASTER_NODE%%:*}" = "$MASTER_ADDR" ]
    mpirun -np 2 --map-by node -H "$hosts" --mca plm_rsh_agent /job/wd/reach \
        --mca oob_tcp_if_include eth0 --mca btl tcp,self --mca btl_tcp_if_include eth0 ./hello
    for host in $(echo "$AZ_BATCH_NODE_LIST" | tr ';' ' '); do
        [ "$host" = "$MASTER_ADDR" ] || ./reach "$host" done
    done
else
    python3 reach.py
fi
"#;

#[test]
fn open_mpi_says_hello_from_two_nodes() {
    let has_mpi = std::process::Command::new("mpicc").arg("--version").output();
    assert!(has_mpi.is_ok_and(|output| output.status.success()), "no Open MPI: make setup-mpi");
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    let create = ["job", "create", "--compute", "cpu", "--command", COMMAND, "-n", "hello"];
    let hello = concat!("HELLO=", include_str!("mpi/hello.c"));
    let reach = concat!("REACH=", include_str!("mpi/reach.py"));
    let more = ["--instance-count", "2", "--timeout", "120", "--stream", "--env", hello, reach];
    let done = site.run(&[&create[..], &more].concat());
    let text = String::from_utf8(done.stdout).expect("text");
    assert_eq!(done.code, 0, "{text}{}", done.stderr);
    let mut hosts = Vec::new();
    for rank in 0..2 {
        let start = format!("rank {rank} of 2 on cpu-");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("{start} is missing: {text}"));
        hosts.push(line.strip_suffix(": sum 43").unwrap_or_else(|| panic!("{text}")));
    }
    assert_ne!(hosts[0], hosts[1], "on two nodes");
}
