//! A histogram of seconds.

use muster_core::time::Span;

use super::text::Text;

/// Upper bounds in seconds, from an API call to a night's training.
pub const LONG: &[f64] =
    &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0];
pub const SHORT: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one for everything above.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum_us: 0 }
    }

    pub fn observe(&mut self, span: Span) {
        let seconds = seconds(span);
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(self.bounds.len())] += 1;
        self.sum_us = self.sum_us.saturating_add(span.0);
    }

    /// Adds the observations of another histogram with the same bounds.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    pub fn write(&self, text: &mut Text, name: &str, labels: &[(&str, &str)]) {
        let bucket = format!("{name}_bucket");
        let mut total = 0;
        for (index, count) in self.counts.iter().enumerate() {
            total += count;
            let bound = self.bounds.get(index).map_or("+Inf".to_owned(), f64::to_string);
            text.sample(&bucket, &[labels, &[("le", &bound)]].concat(), total);
        }
        text.sample(&format!("{name}_sum"), labels, seconds(Span(self.sum_us)));
        text.sample(&format!("{name}_count"), labels, total);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for a chart")]
pub fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_one_is_everything() {
        let mut histogram = Histogram::new(&[1.0, 5.0]);
        for span in [Span::seconds(1), Span::milliseconds(2_500), Span::seconds(9)] {
            histogram.observe(span);
        }
        let mut text = Text::default();
        histogram.write(&mut text, "h", &[("r", "x")]);
        assert_eq!(
            text.into_page(),
            "h_bucket{r=\"x\",le=\"1\"} 1\nh_bucket{r=\"x\",le=\"5\"} 2\nh_bucket{r=\"x\",le=\"+Inf\"} 3\n\
             h_sum{r=\"x\"} 12.5\nh_count{r=\"x\"} 3\n"
        );
    }
}
