//! Jobs with several processes on each node: how they are started, and how each knows its rank.

use std::ffi::OsString;

use muster_core::agent::{Assignment, RunFacts, master_port};
use muster_core::model::{Distribution, JobSpec};

/// Passes the user's command to the shells that run it.
const COMMAND_VARIABLE: &str = "MUSTER_COMMAND";
/// The address at which the processes of one node meet.
const HERE: &str = "127.0.0.1";

/// Starts one shell for each process, which reports its end through a pipe, because bash's own `wait -n` loses
/// processes that end at the same time. The first process that fails ends the others after a moment, and its code is
/// that of the job. A request to terminate reaches all of them directly, and the shells wait for the outcome.
const EACH: &str = r#"
command=$MUSTER_COMMAND; unset MUSTER_COMMAND
# The job's variables may have any names.
pids=() gone=() said= part=
trap : TERM
pipe=$TMPDIR/.muster-ends-$$
mkfifo "$pipe" && exec 3<>"$pipe" && rm "$pipe" || exit 125
end() {
    trap '' TERM
    ((left)) && { kill -TERM 0; sleep 2; }
    exit "$1"
}
for ((i = 0; i < MUSTER_PROCESSES; i++)); do
    ( trap : TERM
      export LOCAL_RANK=$i RANK=$((NODE_RANK * MUSTER_PROCESSES + i))
      /bin/sh -c "$command" 3>&-
      echo "$i $?" >&3 ) &
    pids[i]=$!
done
left=$MUSTER_PROCESSES
while ((left)); do
    # The timeout can expire in the middle of a line, so keep what has been read so far.
    IFS= read -r -t 1 -u 3 part
    heard=$?
    said+=$part
    if ((heard == 0)); then
        i=${said% *} code=${said#* } said=
        unset "pids[i]"
        left=$((left - 1))
        ((code)) && end "$code"
    elif ((heard < 128)); then
        exit 125
    fi
    # One that was killed says nothing. What another said may not have been read yet, so it is looked at twice.
    for i in "${!pids[@]}"; do
        kill -0 "${pids[i]}" 2>/dev/null && continue
        [[ ${gone[i]-} ]] && end 137
        ((heard)) && gone[i]=1
    done
done
exit 0
"#;

/// Azure's own launcher for these.
const MPIRUN: &str = r#"
command -v mpirun >/dev/null || {
    echo "muster: the job is distributed by MPI, but mpirun is not installed on this node; install Open MPI there" >&2
    exit 127
}
command=$MUSTER_COMMAND; unset MUSTER_COMMAND
exec mpirun --allow-run-as-root --oversubscribe -np "$MUSTER_PROCESSES" /bin/sh -c "$command"
"#;

/// The same over several nodes. There is no ssh on them: the other members wait for commands from a member with the
/// attempt's key, until the first one reports that it is done. MPI itself assigns the ranks.
const MPIRUN_ALL: &str = r#"
fail() { echo "muster: $1" >&2; exit 127; }
command=$MUSTER_COMMAND processes=$MUSTER_PROCESSES key=$MUSTER_MEMBERS_KEY reach=$MUSTER_REACH
unset MUSTER_COMMAND MUSTER_PROCESSES MUSTER_MEMBERS_KEY MUSTER_REACH RANK LOCAL_RANK WORLD_SIZE
for program in mpirun orted python3; do
    command -v $program >/dev/null || fail "the job is distributed by MPI, but $program is not installed on this node; install it there"
done
[[ $key ]] || fail "this node's server is too old for MPI over several nodes; upgrade it"
IFS=, read -ra hosts <<<"$AZ_BATCH_HOST_LIST"
[[ $(printf '%s\n' "${hosts[@]}" | sort -u | wc -l) = "${#hosts[@]}" ]] ||
    fail "MPI over several nodes needs nodes with an address each, which the nodes of this server do not have (isolation)"
dir=$TMPDIR/.muster-mpi
(umask 077; mkdir "$dir" && printf %s "$key" >"$dir/key" && printf %s "$reach" >"$dir/reach.py" &&
    printf '#!/bin/sh\nexec python3 "%s/reach.py" "$@"\n' "$dir" >"$dir/reach" && chmod +x "$dir/reach") || exit 125
[[ $NODE_RANK = 0 ]] || exec python3 "$dir/reach.py"
mpirun --allow-run-as-root --oversubscribe -np $((processes * ${#hosts[@]})) --map-by "ppr:$processes:node" \
    -H "$(printf "%s:$processes\n" "${hosts[@]}" | paste -sd,)" \
    --mca plm_rsh_agent "$dir/reach" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 \
    --mca btl ^openib --mca btl_tcp_if_include eth0 /bin/sh -c "$command"
code=$?
((code)) && exit $code
for host in "${hosts[@]:1}"; do "$dir/reach" "$host" done || exit 125; done
"#;
const REACH: &str = include_str!("ranks/reach.py");

/// Returns the command to run instead of the user's, and its variables, which take precedence over those of members.
pub(crate) fn distributed(
    spec: &JobSpec,
    assignment: &Assignment,
    facts: Option<&RunFacts>,
    command: String,
) -> (String, Vec<(String, OsString)>) {
    let Some(distribution) = spec.distribution else { return (command, Vec::new()) };
    let mut variables = Vec::new();
    let mut set = |name: &str, value: String| variables.push((name.to_owned(), value.into()));
    let port = master_port(assignment.epoch);
    match distribution {
        Distribution::PyTorch { processes } => {
            if assignment.addresses.is_empty() {
                set("MASTER_ADDR", HERE.to_owned());
                set("MASTER_PORT", port.to_string());
            }
            set("WORLD_SIZE", (assignment.nodes * processes).to_string());
            set("LOCAL_WORLD_SIZE", processes.to_string());
            set("RANK", (assignment.rank * processes).to_string());
            set("LOCAL_RANK", "0".to_owned());
            if processes == 1 {
                return (command, variables);
            }
            set("MUSTER_PROCESSES", processes.to_string());
            set(COMMAND_VARIABLE, command);
            (in_bash(EACH), variables)
        }
        Distribution::Mpi { processes: 1 } if assignment.nodes == 1 => (command, variables),
        Distribution::Mpi { processes } => {
            set("MUSTER_PROCESSES", processes.to_string());
            set(COMMAND_VARIABLE, command);
            if assignment.nodes == 1 {
                return (in_bash(MPIRUN), variables);
            }
            set("MUSTER_REACH", REACH.to_owned());
            let key = facts.and_then(|facts| facts.members_key.as_deref());
            set("MUSTER_MEMBERS_KEY", key.unwrap_or_default().to_owned());
            (in_bash(MPIRUN_ALL), variables)
        }
        Distribution::TensorFlow { workers, .. } => {
            set("TF_CONFIG", tf_config(assignment, workers, port));
            (command, variables)
        }
    }
}

/// `/bin/sh` cannot wait for whichever process ends first.
fn in_bash(script: &str) -> String {
    format!("exec /bin/bash -c '{}'", script.replace('\'', r"'\''"))
}

/// Workers have the first nodes, and parameter servers the others.
fn tf_config(assignment: &Assignment, workers: u32, port: u16) -> String {
    let here = [HERE.into()];
    let addresses: &[Box<str>] =
        if assignment.addresses.is_empty() { &here } else { &assignment.addresses };
    let all: Vec<String> =
        addresses.iter().map(|address| format!("\"{address}:{port}\"")).collect();
    let (first, rest) = all.split_at(all.len().min(workers as usize));
    let (kind, index) = match assignment.rank.checked_sub(workers) {
        None => ("worker", assignment.rank),
        Some(index) => ("ps", index),
    };
    let mut cluster = format!("\"worker\": [{}]", first.join(", "));
    if !rest.is_empty() {
        cluster.push_str(&format!(", \"ps\": [{}]", rest.join(", ")));
    }
    format!(
        "{{\"cluster\": {{{cluster}}}, \"task\": {{\"type\": \"{kind}\", \"index\": {index}}}}}"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use muster_core::ids::Epoch;
    use muster_core::model::SpecHash;

    use super::*;

    fn assignment(rank: u32, addresses: &[&str]) -> Assignment {
        Assignment {
            epoch: Epoch(10_007),
            job_name: "gang".into(),
            attempt: 1,
            spec: SpecHash::made_up("hash"),
            rank,
            nodes: addresses.len().max(1) as u32,
            go: true,
            share: None,
            addresses: addresses.iter().map(|address| (*address).into()).collect(),
            evict: None,
            task: None,
            followers: Vec::new(),
            is_recalled: false,
        }
    }

    /// Runs a distributed command as a node would, and returns its code and output.
    fn run(distribution: Distribution, command: &str) -> (Option<i32>, String) {
        let spec = JobSpec { distribution: Some(distribution), ..JobSpec::new("cpu", command) };
        let (command, variables) =
            distributed(&spec, &assignment(0, &[]), None, command.to_owned());
        let done = Command::new("/bin/sh")
            .args(["-c", &command])
            .env("NODE_RANK", "0")
            .env("TMPDIR", std::env::temp_dir())
            .envs(variables)
            // Like a job, it signals its own process group.
            .process_group(0)
            .output()
            .expect("a shell");
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        (done.status.code(), lines.join(" "))
    }

    #[test]
    fn each_process_knows_which_one_it_is() {
        let three = Distribution::PyTorch { processes: 3 };
        let say = r#"echo "$RANK/$WORLD_SIZE/$LOCAL_RANK '${MUSTER_COMMAND-unset}' $MASTER_ADDR""#;
        let one = |rank| format!("{rank}/3/{rank} 'unset' 127.0.0.1");
        assert_eq!(run(three, say), (Some(0), [one(0), one(1), one(2)].join(" ")));
    }

    #[test]
    fn all_are_waited_for_however_close_they_end() {
        let many = Distribution::PyTorch { processes: 8 };
        for _ in 0..20 {
            assert_eq!(run(many, "true"), (Some(0), String::new()));
        }
        assert_eq!(run(many, "exit 3").0, Some(3));
    }

    /// If the timeout expired in the middle of a line, the rest was taken for another process's line, and good jobs
    /// failed.
    #[test]
    fn a_line_that_comes_in_two_parts_is_one() {
        let slow = r#"code=$?; { printf "$i "; sleep 1.5; echo "$code"; } >&3"#;
        let script = EACH.replace(r#"echo "$i $?" >&3"#, slow);
        assert_ne!(script, EACH);
        let done = Command::new("/bin/bash")
            .args(["-c", &script])
            .envs([("NODE_RANK", "0"), ("MUSTER_PROCESSES", "1"), (COMMAND_VARIABLE, "exit 7")])
            // Variables that any job may have.
            .envs([("said", "1 "), ("part", "x"), ("gone", "1"), ("pids", "1")])
            .env("TMPDIR", std::env::temp_dir())
            .process_group(0)
            .status();
        assert_eq!(done.expect("a shell").code(), Some(7));
    }

    #[test]
    fn a_process_that_is_asked_to_end_may_handle_it() {
        let two = Distribution::PyTorch { processes: 2 };
        let deaf = "trap 'echo bye; exit 0' TERM; [ $RANK = 1 ] && { sleep 0.3; kill -TERM 0; }; \
                    for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; exit 9";
        assert_eq!(run(two, deaf), (Some(0), "bye bye".to_owned()));
    }

    #[test]
    fn the_first_failure_ends_the_others() {
        let two = Distribution::PyTorch { processes: 2 };
        let began = std::time::Instant::now();
        let (code, _) = run(two, "if [ $RANK = 1 ]; then exit 7; else exec sleep 60; fi");
        assert_eq!(code, Some(7));
        assert!(began.elapsed().as_secs() < 30);
    }

    #[test]
    fn tensorflow_knows_which_nodes_serve() {
        assert_eq!(
            tf_config(&assignment(1, &["a", "b", "c"]), 2, 9),
            r#"{"cluster": {"worker": ["a:9", "b:9"], "ps": ["c:9"]}, "task": {"type": "worker", "index": 1}}"#
        );
        let ps = tf_config(&assignment(2, &["a", "b", "c"]), 2, 9);
        assert!(ps.contains(r#"{"type": "ps", "index": 0}"#), "{ps}");
    }
}
