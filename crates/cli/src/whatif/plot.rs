//! A plot of cost against waiting time, as SVG text.
//!
//! It has its own colours for light and dark pages, and no external dependencies such as fonts or scripts.

use std::fmt::Write as _;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub max_nodes: u32,
    pub idle_s: u64,
    pub wait_s: f64,
    pub usd: f64,
    /// The lowest cost at which no job waits.
    pub optimum_usd: f64,
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 64.0;
/// The approximate number of ticks on an axis.
const TICKS: f64 = 6.0;
/// The fraction of the cost range that is added at both ends.
const ROOM: f64 = 0.06;
/// Labels that are closer together than this would overlap.
const LABEL_GAP: f64 = 15.0;
/// Colours that colour-blind people can distinguish too (Okabe and Ito), dark enough for white paper and bright enough
/// for a black page. If there are more lines than colours, they repeat.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"];

const STYLE: &str = "\
svg { background: #ffffff; color: #1f2328; font: 13px system-ui, sans-serif }
.quiet { fill: #59636e }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.axis { stroke: #59636e; stroke-width: 1 }
.optimum { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 6 4 }
text { fill: currentColor }
.halo { fill: none; stroke: #ffffff; stroke-width: 4; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; color: #e6edf3 }
.quiet { fill: #9198a1 }
.grid { stroke: #2a313c }
.axis, .optimum { stroke: #9198a1 }
.halo { stroke: #0d1117 }
}
";

/// A range with round limits that contains all values, and its ticks.
struct Axis {
    from: f64,
    to: f64,
    step: f64,
    /// The positions of the ends of the range in the plot.
    pixels: (f64, f64),
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, from_zero: bool, pixels: (f64, f64)) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if from_zero {
            low = 0.0;
        }
        if !(low.is_finite() && high.is_finite()) {
            (low, high) = (0.0, 1.0);
        }
        // If all values are equal, the range extends around them, so that they are not on the edge.
        if high - low < 1e-9 * high.abs().max(1.0) {
            high = low + low.abs().max(1.0) * 0.1;
        }
        let step = round_step((high - low) / TICKS);
        let from = (low / step).floor() * step;
        let to = (high / step).ceil() * step;
        Axis { from, to, step, pixels }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.to - self.from) / self.step).round() as usize;
        (0..=count).map(|tick| self.from + tick as f64 * self.step)
    }

    /// With as many decimals as are needed to distinguish two ticks.
    fn label(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
        grouped(&format!("{value:.decimals$}"))
    }
}

/// The next number of the series 1, 2, 5, 10, 20, 50, …
fn round_step(at_least: f64) -> f64 {
    let magnitude = 10f64.powf(at_least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * magnitude >= at_least);
    step.unwrap_or(10.0) * magnitude
}

/// `1234567.8` → `1 234 567.8`, with narrow no-break spaces.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if place > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Draws the settings: one line per maximum, one point per idle time.
pub fn draw(points: &[Point], size: &str) -> String {
    let waits = points.iter().map(|point| point.wait_s);
    let x = Axis::of(waits, true, (LEFT, WIDTH - RIGHT));
    let y = Axis::of(roomy(points).into_iter(), false, (HEIGHT - BOTTOM, TOP));
    let mut svg = String::new();
    frame(&mut svg, &x, &y, size);
    optimum(&mut svg, points, &x, &y);
    let mut labels = Vec::new();
    for (place, line) in points.chunk_by(|one, other| one.max_nodes == other.max_nodes).enumerate()
    {
        curve(&mut svg, line, COLOURS[place % COLOURS.len()], &x, &y, &mut labels);
    }
    legend(&mut svg, points);
    svg.push_str("</svg>\n");
    svg
}

/// The cost range with a margin, so that no point, label or line is on the edge.
fn roomy(points: &[Point]) -> [f64; 2] {
    let costs = || points.iter().flat_map(|point| [point.usd, point.optimum_usd]);
    let (low, high) = (costs().fold(f64::INFINITY, f64::min), costs().fold(0.0, f64::max));
    let room = ROOM * (high - low);
    [(low - room).max(0.0), high + room]
}

fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("writing to a string cannot fail");
    svg.push('\n');
}

fn frame(svg: &mut String, x: &Axis, y: &Axis, size: &str) {
    put(
        svg,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="Cost against mean waiting">"#
        ),
    );
    put(svg, format_args!("<style>{STYLE}</style>"));
    let size = escaped(size);
    put(
        svg,
        format_args!(
            r#"<text x="{LEFT}" y="28" font-size="17" font-weight="600">Cost against waiting</text>"#
        ),
    );
    put(
        svg,
        format_args!(
            r#"<text x="{LEFT}" y="48" class="quiet">{size}; points: idle times in seconds, lines: maximum numbers of nodes</text>"#
        ),
    );
    let (left, right, bottom, top) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP);
    for tick in y.ticks() {
        let (at, label) = (y.at(tick), y.label(tick));
        put(
            svg,
            format_args!(
                r#"<line class="grid" x1="{left}" x2="{right}" y1="{at:.1}" y2="{at:.1}"/>"#
            ),
        );
        put(
            svg,
            format_args!(
                r#"<text class="quiet" x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                left - 8.0,
                at + 4.5
            ),
        );
    }
    for tick in x.ticks() {
        let (at, label) = (x.at(tick), x.label(tick));
        put(
            svg,
            format_args!(
                r#"<line class="axis" x1="{at:.1}" x2="{at:.1}" y1="{bottom}" y2="{:.1}"/>"#,
                bottom + 5.0
            ),
        );
        put(
            svg,
            format_args!(
                r#"<text class="quiet" x="{at:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                bottom + 20.0
            ),
        );
    }
    put(
        svg,
        format_args!(
            r#"<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>"#
        ),
    );
    let (middle, centre) = (f64::midpoint(left, right), f64::midpoint(top, bottom));
    put(
        svg,
        format_args!(
            r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">mean queue time, s</text>"#,
            bottom + 46.0
        ),
    );
    put(
        svg,
        format_args!(
            r#"<text transform="translate(20 {centre:.1}) rotate(-90)" text-anchor="middle">cost, USD</text>"#
        ),
    );
}

/// The optimum does not depend on the setting, so there is one line for all.
fn optimum(svg: &mut String, points: &[Point], x: &Axis, y: &Axis) {
    let Some(point) = points.first() else { return };
    let (left, right) = x.pixels;
    let at = y.at(point.optimum_usd);
    put(
        svg,
        format_args!(
            r#"<line class="optimum" x1="{left}" x2="{right}" y1="{at:.1}" y2="{at:.1}"/>"#
        ),
    );
    put(
        svg,
        format_args!(
            r#"<text class="quiet" x="{:.1}" y="{:.1}">clairvoyant</text>"#,
            right + 8.0,
            at - 3.0
        ),
    );
    put(
        svg,
        format_args!(
            r#"<text class="quiet" x="{:.1}" y="{:.1}">optimum, no wait</text>"#,
            right + 8.0,
            at + 12.0
        ),
    );
}

fn curve(
    svg: &mut String,
    line: &[Point],
    colour: &str,
    x: &Axis,
    y: &Axis,
    labels: &mut Vec<(f64, f64)>,
) {
    let places: Vec<(f64, f64)> =
        line.iter().map(|point| (x.at(point.wait_s), y.at(point.usd))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    put(
        svg,
        format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>"#,
            path.join(" ")
        ),
    );
    for (point, (x, y)) in line.iter().zip(places) {
        let Point { max_nodes, idle_s, wait_s, usd, .. } = point;
        put(
            svg,
            format_args!(
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" fill="{colour}"><title>at most {max_nodes} nodes, idle {idle_s} s: mean queue {wait_s:.1} s, {usd:.2} USD</title></circle>"#
            ),
        );
        // Points at the same position share a label; their titles distinguish them.
        let (at_x, at_y) = (x + 8.0, y - 8.0);
        let is_near = |(other_x, other_y): &(f64, f64)| {
            (other_x - at_x).abs() < 2.0 * LABEL_GAP && (other_y - at_y).abs() < LABEL_GAP
        };
        if !labels.iter().any(is_near) {
            labels.push((at_x, at_y));
            // The outline in the colour of the page comes first, so that the label is readable on top of lines.
            for class in ["halo", "label"] {
                put(
                    svg,
                    format_args!(
                        r#"<text class="{class}" x="{at_x:.1}" y="{at_y:.1}">{idle_s}</text>"#
                    ),
                );
            }
        }
    }
}

fn legend(svg: &mut String, points: &[Point]) {
    let left = WIDTH - RIGHT + 16.0;
    put(svg, format_args!(r#"<text class="quiet" x="{left}" y="28">max nodes</text>"#));
    let lines = points.chunk_by(|one, other| one.max_nodes == other.max_nodes);
    for (place, line) in lines.enumerate() {
        let Some(first) = line.first() else { continue };
        let (colour, at) = (COLOURS[place % COLOURS.len()], 48.0 + 20.0 * place as f64);
        let label = grouped(&first.max_nodes.to_string());
        put(
            svg,
            format_args!(
                r#"<line x1="{left}" x2="{:.1}" y1="{:.1}" y2="{:.1}" stroke="{colour}" stroke-width="3"/>"#,
                left + 22.0,
                at - 4.5,
                at - 4.5
            ),
        );
        put(svg, format_args!(r#"<text x="{:.1}" y="{at:.1}">{label}</text>"#, left + 30.0));
    }
}

/// Escapes foreign text for the SVG: no mark-up, and no characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(max_nodes: u32, idle_s: u64, wait_s: f64, usd: f64) -> Point {
        Point { max_nodes, idle_s, wait_s, usd, optimum_usd: 95.0 }
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let axis = Axis::of([3.0, 97.0].into_iter(), false, (0.0, 100.0));
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let axis = Axis::of([1_000_123.0, 1_000_377.0].into_iter(), false, (0.0, 1.0));
        assert_eq!((axis.from, axis.to, axis.step), (1_000_100.0, 1_000_400.0, 50.0));
        assert_eq!(axis.label(1_000_150.0), "1\u{202f}000\u{202f}150");
        let small = Axis::of([0.011, 0.034].into_iter(), true, (0.0, 1.0));
        assert_eq!(small.label(small.from + small.step), "0.01");
    }

    #[test]
    fn all_values_alike_none_or_not_finite_still_make_an_axis() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![f64::NAN], vec![1e-12, 1e12]] {
            let axis = Axis::of(values.clone().into_iter(), false, (0.0, 100.0));
            assert!(axis.to > axis.from && axis.ticks().count() < 20, "{values:?}");
            for value in values.into_iter().filter(|value| value.is_finite()) {
                assert!((-1e-6..=100.000_001).contains(&axis.at(value)), "{value}");
            }
        }
    }

    #[test]
    fn a_drawing_has_a_line_per_maximum_and_a_point_per_setting() {
        let points = [
            point(8, 0, 300.0, 100.0),
            point(8, 600, 250.0, 120.0),
            point(16, 0, 170.0, 101.0),
            point(16, 600, 20.0, 140.0),
        ];
        let svg = draw(&points, "a<b>&\"c\"\u{0}");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("a&lt;b&gt;&amp;&quot;c&quot;\u{fffd};"), "{svg}");
        assert!(svg.contains("mean queue time, s") && svg.contains("cost, USD"));
        assert!(svg.contains("at most 16 nodes, idle 600 s: mean queue 20.0 s, 140.00 USD"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn labels_do_not_run_together() {
        let points: Vec<Point> = (0..50).map(|idle_s| point(4, idle_s, 10.0, 50.0)).collect();
        assert_eq!(draw(&points, "size").matches("class=\"label\"").count(), 1);
    }
}
