//! The figures of a reference simulator on public traces, with the peak of the demand as the maximum. The traces are
//! not part of this repository: if they are missing, there is nothing to compare with.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::model::ScaleUp;
use muster_core::time::Span;
use muster_sim::replay::{Figures, Setting, Trace, peak, replay};

/// At a boot time of 180 s: the optimum in node-hours; idle and boot time as a multiple of it without idle time and
/// with 300 s, and in node-hours with 120 s and 1800 s; the mean queue times in seconds for 0, 120, 300 and
/// 1800 s.
type Reference = (&'static str, f64, [f64; 2], [f64; 2], [f64; 4]);

const REFERENCE: [Reference; 10] = [
    ("alibaba_gpu2023_BE", 128.0, [1.11, 2.38], [213.0, 821.0], [157.0, 138.0, 115.0, 54.0]),
    ("philly_vc_103959", 92.0, [1.04, 2.48], [151.0, 685.0], [170.0, 159.0, 142.0, 83.0]),
    ("philly_vc_ee9e8c", 82.0, [1.03, 2.62], [137.0, 800.0], [169.0, 164.0, 158.0, 132.0]),
    ("philly_vc_ed69ec", 55.0, [1.02, 2.67], [93.0, 555.0], [176.0, 175.0, 171.0, 142.0]),
    ("ricc_grp_31", 229.0, [1.32, 3.20], [484.0, 2728.0], [147.0, 138.0, 130.0, 112.0]),
    ("philly_vc_b436b2", 347.0, [1.01, 2.65], [580.0, 3656.0], [167.0, 165.0, 164.0, 152.0]),
    ("ricc_grp_23", 514.0, [1.20, 2.60], [902.0, 4501.0], [153.0, 138.0, 129.0, 102.0]),
    ("philly_vc_6c71a0", 466.0, [1.04, 2.60], [780.0, 4441.0], [168.0, 162.0, 156.0, 128.0]),
    ("philly_vc_11cb48", 734.0, [1.07, 2.45], [1233.0, 3007.0], [165.0, 152.0, 129.0, 21.0]),
    ("alibaba_genai2026_lora", 348.0, [1.80, 1.63], [511.0, 913.0], [62.0, 18.0, 9.0, 2.0]),
];

fn load(name: &str) -> Option<Trace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let bytes = std::fs::read(folder.join(format!("{name}.csv"))).ok()?;
    Some(Trace::parse(&bytes).unwrap_or_else(|why| panic!("{name}: {why}")))
}

fn hours(span: Span) -> f64 {
    span.0 as f64 / 3.6e9
}

fn figures(trace: &Trace, boot_s: u64, idle_s: u64) -> Figures {
    let setting = Setting {
        max_nodes: peak(trace),
        idle: Span::seconds(idle_s),
        boot: Span::seconds(boot_s),
        scale_up: ScaleUp::Immediate,
        fair_share: false,
        vm_size: "Standard_DS3_v2".into(),
    };
    replay(trace, &setting).expect("a good setting")
}

/// Within one percent of idle and boot time, given the rounding of the reference, and one second of queue time.
fn check(reference: &Reference, trace: &Trace) -> Vec<String> {
    let (name, optimum, multiples, node_hours, queues) = *reference;
    let wanted = [
        (0, multiples[0] * optimum, 0.005 * optimum + 0.5 * multiples[0]),
        (120, node_hours[0], 0.5),
        (300, multiples[1] * optimum, 0.005 * optimum + 0.5 * multiples[1]),
        (1800, node_hours[1], 0.5),
    ];
    let mut wrong = Vec::new();
    let busy: u64 = trace.jobs().iter().map(|job| job.duration.0 * u64::from(job.nodes)).sum();
    for ((idle_s, overhead, rounding), queue) in wanted.into_iter().zip(queues) {
        let figures = figures(trace, 180, idle_s);
        assert_eq!(figures.busy, Span(busy), "{name}: busy hours are the trace");
        let got = hours(figures.idle) + hours(figures.boot);
        let mean = figures.queue_mean_s();
        if (got - overhead).abs() > 0.01 * overhead + rounding || (mean - queue).abs() > 1.0 {
            wrong.push(format!(
                "{name}, idle {idle_s} s: {got:.2} node-hours against {overhead:.2}, {mean:.2} s against {queue}"
            ));
        }
        if (hours(figures.optimum) - optimum).abs() > 0.5 {
            wrong.push(format!("{name}: the optimum is {:.2}", hours(figures.optimum)));
        }
    }
    wrong
}

/// What `check` finds wrong in these cases, on two threads.
fn checked<T: Sync>(cases: &[T], check: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let check = &check;
    let (even, odd) = (cases.iter().step_by(2), cases.iter().skip(1).step_by(2));
    std::thread::scope(|scope| {
        let other = scope.spawn(move || odd.flat_map(check).collect::<Vec<_>>());
        let mut wrong: Vec<_> = even.flat_map(check).collect();
        wrong.extend(other.join().expect("it returns what is wrong"));
        wrong
    })
}

#[test]
fn ten_clusters_match_the_reference_figures() {
    let found: Vec<_> =
        REFERENCE.iter().filter_map(|reference| Some((reference, load(reference.0)?))).collect();
    let wrong = checked(&found, |(reference, trace)| check(reference, trace));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Four boot times and six idle times: idle and boot time as a share of the bill within one percent, the mean
/// and the 95th percentile of the queue within one second, the jobs that waited within one percent of all.
/// Takes 15 s: 240 replays of traces with up to 27,000 jobs.
#[test]
fn ten_clusters_match_the_whole_grid_of_the_reference() {
    let grid = include_str!("data/replay_reference.csv");
    let traces: BTreeMap<&str, Trace> =
        REFERENCE.iter().filter_map(|(name, ..)| Some((*name, load(name)?))).collect();
    let rows: Vec<&str> = grid.lines().skip(1).collect();
    assert_eq!(rows.len(), 10 * 4 * 6);
    let wrong = checked(&rows, |row| {
        let fields: Vec<&str> = row.split(',').collect();
        let Some(trace) = traces.get(fields[0]) else { return Vec::new() };
        let whole = |field: &str| field.parse::<u64>().expect("a number");
        let wanted: Vec<f64> =
            fields[3..].iter().map(|field| field.parse().expect("a number")).collect();
        let figures = figures(trace, whole(fields[1]), whole(fields[2]));
        let overhead = hours(figures.idle) + hours(figures.boot);
        let got = [
            100.0 * overhead / hours(figures.billed()),
            figures.queue_mean_s(),
            figures.queue_p95.0 as f64 / 1e6,
            100.0 * figures.cold_share(),
        ];
        // The reference is rounded to a tenth of a percent of the bill.
        let allowed = [0.051 + 0.01 * wanted[0], 1.0, 1.0, 1.0];
        let is_near = |index: usize| (got[index] - wanted[index]).abs() <= allowed[index];
        let wrong = (0..4).any(|index| !is_near(index)).then(|| format!("{row}: {got:.2?}"));
        wrong.into_iter().collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Its jobs of 128 nodes reach the maximum of 176, so the order of jobs matters, and it differs from the reference's:
/// there small jobs keep overtaking them (19.0 % of the bill, 49 s). Strictly in order the bill is lower and the queue
/// up to two seconds longer.
#[test]
fn large_jobs_that_meet_the_maximum_cost_no_more_than_in_the_reference() {
    let Some(trace) = load("nasa_ipsc_1993") else { return };
    let figures = figures(&trace, 180, 600);
    let overhead = (hours(figures.idle) + hours(figures.boot)) / hours(figures.billed());
    assert!(overhead <= 0.190, "{overhead}");
    assert!(figures.queue_mean_s() <= 51.0, "{}", figures.queue_mean_s());
}
