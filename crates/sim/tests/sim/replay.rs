//! Traces through the real core: figures computed by hand, laws, and the figures of a reference simulator.

use muster_core::Change;
use muster_core::model::{JobEvent, ScaleUp};
use muster_core::time::Span;
use muster_sim::replay::{
    Figures, Setting, SettingError, Trace, TraceJob, optimum, peak, replay, replay_watching,
};

const HEADER: &str = "submit_s,duration_s,nodes,gpus_per_node,user,group\n";

fn trace(rows: &str) -> Trace {
    Trace::parse(format!("{HEADER}{rows}").as_bytes()).expect("a good trace")
}

fn setting(max_nodes: u32, idle_s: u64, boot_s: u64) -> Setting {
    Setting {
        max_nodes,
        idle: Span::seconds(idle_s),
        boot: Span::seconds(boot_s),
        scale_up: ScaleUp::Immediate,
        fair_share: false,
        vm_size: "Standard_DS3_v2".into(),
    }
}

fn figures(trace: &Trace, setting: &Setting) -> Figures {
    replay(trace, setting).expect("a good setting")
}

/// Busy, idle and boot node-seconds.
fn seconds(figures: &Figures) -> [u64; 3] {
    [figures.busy, figures.idle, figures.boot].map(|span| {
        assert_eq!(span.0 % 1_000_000, 0, "whole seconds in, whole seconds out: {span:?}");
        span.as_seconds()
    })
}

fn busy_of(trace: &Trace) -> Span {
    Span(trace.jobs().iter().map(|job| job.duration.0 * u64::from(job.nodes)).sum())
}

#[test]
fn one_job_boots_runs_and_its_node_times_out() {
    let trace = trace("0,600,1,1,,\n");
    let figures = figures(&trace, &setting(1, 120, 180));
    assert_eq!(seconds(&figures), [600, 120, 180]);
    assert_eq!((figures.jobs, figures.jobs_that_waited), (1, 1));
    assert_eq!(figures.queue_mean_s(), 180.0);
    assert_eq!([figures.queue_p50, figures.queue_p95, figures.queue_p99], [Span::seconds(180); 3]);
    assert_eq!(figures.billed(), Span::seconds(900));
    assert_eq!(figures.optimum, Span::seconds(180));
    // A quarter of an hour of a Standard_DS3_v2.
    let catalogue = muster_core::catalogue::Catalogue::builtin();
    let price = catalogue.get("Standard_DS3_v2").unwrap().price.dedicated_micro_usd_per_hour;
    assert_eq!(figures.micro_usd, price.div_ceil(4));
}

#[test]
fn a_warm_node_serves_in_the_very_second_its_idle_time_ends() {
    // The node is up at 180, free at 190, and its idle time ends at 310.
    let warm = figures(&trace("0,10,1,1,,\n310,10,1,1,,\n"), &setting(2, 120, 180));
    assert_eq!((seconds(&warm), warm.jobs_that_waited), ([20, 240, 180], 1));
    let cold = figures(&trace("0,10,1,1,,\n311,10,1,1,,\n"), &setting(2, 120, 180));
    assert_eq!((seconds(&cold), cold.jobs_that_waited), ([20, 240, 360], 2));
    // Without any idle time, a node still runs a job in the second in which it becomes free.
    let same = figures(&trace("0,10,1,1,,\n190,10,1,1,,\n"), &setting(2, 0, 180));
    assert_eq!((seconds(&same), same.jobs_that_waited), ([20, 0, 180], 1));
}

#[test]
fn a_freed_node_serves_the_waiting_job_and_the_spare_boot_is_kept_idle() {
    // The second job waits for its own boot at 280, but the first job's node is free at 200.
    let figures = figures(&trace("0,20,1,1,,\n100,50,1,1,,\n"), &setting(2, 60, 180));
    // Node 1: up at 180, runs to 200 and on to 250, deleted at 310. Node 2: up at 280, deleted at 340.
    assert_eq!(seconds(&figures), [70, 120, 360]);
    assert_eq!(figures.queue_mean_s(), 140.0);
}

#[test]
fn jobs_of_several_nodes_start_whole() {
    // Two nodes are free at 190 and reserved for the second job, which needs three; the third is up at 480.
    let figures = figures(&trace("0,10,2,1,,\n300,10,3,1,,\n"), &setting(3, 600, 180));
    assert_eq!(seconds(&figures), [50, 2 * 290 + 3 * 600, 3 * 180]);
    assert_eq!((figures.queue_mean_s(), figures.jobs_that_waited), (180.0, 2));
}

#[test]
fn the_maximum_makes_jobs_wait_for_each_other() {
    let trace = trace("0,100,1,1,,\n0,100,1,1,,\n0,100,1,1,,\n");
    let figures = figures(&trace, &setting(1, 0, 180));
    assert_eq!(seconds(&figures), [300, 0, 180]);
    assert_eq!(figures.queue_p50, Span::seconds(280));
    assert_eq!(figures.queue_p99, Span::seconds(380));
    assert_eq!(peak(&trace), 3);
}

#[test]
fn the_optimum_bridges_each_gap_by_whichever_is_shorter() {
    // One level: a gap of 100 is kept, a gap of 1000 is booted again; a second level boots once.
    let rows = "0,100,1,1,,\n200,100,1,1,,\n1300,100,1,1,,\n1350,10,1,1,,\n";
    assert_eq!(optimum(&trace(rows), Span::seconds(180)), Span::seconds(180 + 100 + 180 + 180));
    // The node that became free last is used first, so only the longer gap costs a boot.
    let rows = "0,10,1,1,,\n0,500,1,1,,\n510,10,1,1,,\n";
    assert_eq!(optimum(&trace(rows), Span::seconds(180)), Span::seconds(360 + 10));
    // A job that ends makes room for one that begins at the same instant.
    assert_eq!(peak(&trace("0,10,4,1,,\n10,10,4,1,,\n10,0,6,1,,\n")), 6);
}

#[test]
fn a_setting_that_cannot_be_tried_is_refused_with_the_remedy() {
    let trace = trace("0,1,1,1,,\n0,1,4,1,,\n0,1,16,1,,\n");
    let refused = |setting: &Setting| replay(&trace, setting).expect_err("a bad setting");
    let message = refused(&setting(3, 0, 0)).to_string();
    assert!(
        message.contains("line 3 needs 4 nodes") && message.contains("at least 16"),
        "{message}"
    );
    assert!(matches!(refused(&setting(10_001, 0, 0)), SettingError::TooManyNodes { .. }));
    assert!(matches!(refused(&setting(16, 1 << 40, 0)), SettingError::IdleTooLong { .. }));
    assert!(matches!(refused(&setting(16, 0, 1 << 40)), SettingError::BootTooLong { .. }));
    let size = Setting { vm_size: "Standard_DS3_v3".into(), ..setting(16, 0, 0) };
    assert!(refused(&size).to_string().contains("did you mean Standard_"), "{}", refused(&size));
}

/// Generated jobs of mixed sizes, users and lengths, from a small generator.
fn made_up(seed: u64, count: usize) -> Trace {
    let mut state = seed;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut submit = 0;
    let jobs = (0..count).map(|row| {
        submit += [0, 0, draw(40), draw(400)][draw(4) as usize];
        TraceJob {
            submit: Span::seconds(submit),
            duration: Span::seconds([draw(30), draw(300), draw(3_000)][draw(3) as usize]),
            nodes: [1, 1, 1, 2, 5, 8][draw(6) as usize],
            user: draw(4) as u32,
            line: row as u32 + 2,
        }
    });
    let jobs = jobs.collect();
    Trace::of_jobs(jobs, ["", "ann", "bob", "cy"].map(Box::from).into())
}

#[test]
fn busy_hours_are_the_trace_and_without_boot_and_idle_there_is_nothing_else() {
    for seed in 0..5 {
        let trace = made_up(seed, 400);
        for (idle_s, boot_s) in [(0, 0), (0, 180), (120, 30), (600, 0)] {
            let figures = figures(&trace, &setting(peak(&trace), idle_s, boot_s));
            assert_eq!(figures.busy, busy_of(&trace), "seed {seed}");
            assert_eq!(figures.jobs, trace.jobs().len());
            if (idle_s, boot_s) == (0, 0) {
                assert_eq!((figures.idle, figures.boot), (Span::ZERO, Span::ZERO), "seed {seed}");
                assert_eq!((figures.queue_mean_s(), figures.jobs_that_waited), (0.0, 0));
                assert_eq!(figures.optimum, Span::ZERO);
            }
        }
    }
}

/// Everything that was decided before `until`, in order.
fn decisions(trace: &Trace, setting: &Setting, until: Span) -> Vec<(Span, Change)> {
    let mut log = Vec::new();
    let figures = replay_watching(trace, setting, |at, change| {
        if at < until {
            log.push((at, change.clone()));
        }
    });
    figures.expect("a good setting");
    log
}

/// When each job of the trace ends.
fn ends(trace: &Trace, setting: &Setting) -> Vec<Span> {
    let mut ends = vec![Span::ZERO; trace.jobs().len()];
    let figures = replay_watching(trace, setting, |at, change| {
        if let Change::JobChanged { event: JobEvent::Succeeded, job } = change {
            ends[job.name.parse::<usize>().expect("named by its row")] = at;
        }
    });
    figures.expect("a good setting");
    ends
}

#[test]
fn a_duration_is_not_known_before_its_end() {
    let trace = made_up(7, 300);
    for setting in [setting(peak(&trace), 120, 180), setting(8, 60, 30)] {
        let ends = ends(&trace, &setting);
        for cut in [20, 120, 250] {
            // Jobs that still run when the row `cut` arrives take longer, later ones are shorter.
            let from = trace.jobs()[cut].submit;
            let mut jobs = trace.jobs().to_vec();
            for (row, job) in jobs.iter_mut().enumerate().filter(|(row, _)| ends[*row] > from) {
                let half = Span(job.duration.0 / 2_000_000 * 1_000_000);
                let longer = Span(job.duration.0 + 1_000_000 * (1 + row as u64));
                job.duration = if job.submit > from { half } else { longer };
            }
            let altered = Trace::of_jobs(jobs, trace.users().to_vec());
            let other_ends = self::ends(&altered, &setting);
            let differing = (0..ends.len())
                .filter(|row| trace.jobs()[*row].duration != altered.jobs()[*row].duration)
                .map(|row| ends[row].min(other_ends[row]));
            let first_difference = differing.min().expect("some job was altered");
            assert!(first_difference > from, "cut {cut}");
            let before = decisions(&trace, &setting, first_difference);
            assert!(before.len() > cut, "too little to compare: {}", before.len());
            assert_eq!(before, decisions(&altered, &setting, first_difference), "cut {cut}");
        }
    }
}
