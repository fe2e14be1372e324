//! Figures next to their limits, as a table.

use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or_default()
    }

    fn percentile_ms(&self, percent: usize) -> f64 {
        self.percentile(percent).as_secs_f64() * 1e3
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", self.percentile_ms(50), self.percentile_ms(99))
    }
}

pub struct Report {
    lines: Vec<[String; 4]>,
}

impl Report {
    pub fn new() -> Report {
        let head = ["what", "measured", "beside it, same run", "ratio"];
        Report { lines: vec![head.map(str::to_owned)] }
    }

    pub fn latency(&mut self, what: &str, samples: &Samples, beside: &str, raw: &Samples) {
        let ratio = samples.percentile_ms(50) / raw.percentile_ms(50);
        self.lines.push([
            what.to_owned(),
            samples.to_string(),
            format!("{beside}: {raw}"),
            format!("{ratio:.1}× as long"),
        ]);
    }

    pub fn beside(&mut self, what: &str, measured: String, theirs: String, ratio: String) {
        self.lines.push([what.to_owned(), measured, theirs, ratio]);
    }

    /// A peer that could not be measured here.
    pub fn left_out(&mut self, peer: &str, why: &str) {
        let why = why.lines().next().unwrap_or_default().to_owned();
        self.lines.push([peer.to_owned(), "left out".to_owned(), why, String::new()]);
    }

    /// A figure next to its goal.
    pub fn goal(&mut self, what: &str, measured: String, goal: &str, is_met: bool) {
        let verdict = if is_met { "met" } else { "not met" };
        let goal = format!("goal: {goal}");
        self.lines.push([what.to_owned(), measured, goal, verdict.to_owned()]);
    }

    /// A figure next to its goal and a peer's figure, with the ratio to the latter.
    pub fn peer(
        &mut self,
        what: &str,
        measured: String,
        goal: &str,
        is_met: bool,
        peer: Option<(String, f64)>,
    ) {
        let verdict = if is_met { "met" } else { "not met" };
        let (peer, ratio) = match peer {
            Some((peer, ratio)) => (peer, format!(", {ratio:.2} of nginx")),
            None => ("not measured, it is not installed".to_owned(), String::new()),
        };
        self.lines.push([
            what.to_owned(),
            measured,
            format!("goal: {goal}; nginx: {peer}"),
            format!("{verdict}{ratio}"),
        ]);
    }

    pub fn rate(&mut self, what: &str, rate: f64, limit: &str, raw: f64) {
        self.lines.push([
            what.to_owned(),
            format!("{rate:.0} per second"),
            format!("{limit}: {raw:.0} per second"),
            format!("{:.0} % of the limit", 100.0 * rate / raw),
        ]);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        };
        let widths = [0, 1, 2, 3].map(width);
        for line in &self.lines {
            for (text, width) in line.iter().zip(widths) {
                write!(f, "{text:<width$}  ")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
