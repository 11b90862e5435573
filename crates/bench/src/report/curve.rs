//! Latency by percentile, with logarithmic axes, so that the tail is visible.

use super::svg::{Anchor, Drawing, readable};
use super::{Colour, Figure, FigureWidth};

/// The latencies of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Name of the series.
    pub label: String,
    /// Colour.
    pub colour: Colour,
    /// Percentile and latency in microseconds, ascending; percentile 100 is the maximum.
    pub points: Vec<(f64, f64)>,
}

/// Several curves.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveChart {
    /// The curves.
    pub curves: Vec<Curve>,
}

const HEIGHT: f64 = 270.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 142.0;
const BOTTOM: f64 = 26.0;
const TOP: f64 = 10.0;
/// Least distance between the labels of two curves.
const LABEL_LINE: f64 = 14.0;
/// The percentiles on the axis. The maximum is a little after the last.
const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (100.0, "max")];
const LAST: f64 = 99.98;

/// "Nines": 0 at the fastest, 1 at 90 %, 2 at 99 %.
fn nines(percentile: f64) -> f64 {
    -((100.0 - percentile.min(LAST)) / 100.0).log10()
}

/// `10 us`, `1 ms`.
fn time(microseconds: f64) -> String {
    if microseconds >= 1e6 {
        format!("{} s", readable(microseconds / 1e6))
    } else if microseconds >= 1e3 {
        format!("{} ms", readable(microseconds / 1e3))
    } else {
        format!("{} \u{b5}s", readable(microseconds))
    }
}

/// Maps percentiles and microseconds to positions in the drawing.
struct Scale {
    width: f64,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(curves: &[Curve], width: f64) -> Self {
        let values = || curves.iter().flat_map(|curve| &curve.points).map(|(_, latency)| latency.max(0.1));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(1.0, f64::max));
        let low = if low.is_finite() { low.log10().floor() } else { 0.0 };
        Self { width, low, high: high.log10().ceil().max(low + 1.0) }
    }

    fn x(&self, percentile: f64) -> f64 {
        LEFT + nines(percentile) / nines(LAST) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, latency: f64) -> f64 {
        let share = (latency.max(0.1).log10() - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn draw_grid(&self, drawing: &mut Drawing) {
        for (percentile, label) in PERCENTILES {
            let x = self.x(percentile);
            drawing.line("grid", (x, TOP), (x, HEIGHT - BOTTOM));
            drawing.text("tick", (x, HEIGHT - BOTTOM + 16.0), Anchor::Middle, label);
        }
        let mut decade = self.low;
        while decade <= self.high {
            let y = self.y(10f64.powf(decade));
            drawing.line("grid", (LEFT, y), (self.width - RIGHT, y));
            drawing.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &time(10f64.powf(decade)));
            decade += 1.0;
        }
    }
}

/// Positions of labels near these heights, in the same order and at least a line apart.
fn spread(ideal: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ideal.len()).collect();
    order.sort_by(|a, b| ideal[*a].total_cmp(&ideal[*b]));
    let mut places = vec![0.0; ideal.len()];
    let mut free = TOP;
    for index in &order {
        places[*index] = ideal[*index].max(free);
        free = places[*index] + LABEL_LINE;
    }
    // Labels below the lower edge move up.
    let mut lowest = HEIGHT - BOTTOM;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(lowest);
        lowest = places[*index] - LABEL_LINE;
    }
    places
}

impl Figure for CurveChart {
    fn draw(&self, width: FigureWidth) -> String {
        let scale = Scale::of(&self.curves, width.units());
        let mut drawing = Drawing::new(width.units(), HEIGHT);
        scale.draw_grid(&mut drawing);
        let ends: Vec<f64> =
            self.curves.iter().map(|curve| scale.y(curve.points.last().map_or(1.0, |last| last.1))).collect();
        for (curve, label_y) in self.curves.iter().zip(spread(&ends)) {
            let points: Vec<_> = curve.points.iter().map(|(p, us)| (scale.x(*p), scale.y(*us))).collect();
            let class = curve.colour.class();
            drawing.polyline(&format!("curve {class}"), &points, &curve.label);
            for ((percentile, us), point) in curve.points.iter().zip(&points) {
                let title = format!("{} p{percentile}: {}", curve.label, time(*us));
                drawing.dot(&class, *point, 2.5, &title);
            }
            if let Some(last) = points.last() {
                let x = scale.width - RIGHT + 14.0;
                drawing.line("leader", (last.0 + 4.0, last.1), (x - 3.0, label_y));
                drawing.text(&format!("of-{class}"), (x, label_y + 4.0), Anchor::Start, &curve.label);
            }
        }
        drawing.finish("latency by percentile")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_never_overlap_and_stay_inside() {
        let places = spread(&[20.0, 20.0, 240.0, 243.0, 243.0, 21.0]);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_LINE), "{places:?}");
        assert!(sorted[0] >= TOP && sorted[5] <= HEIGHT - BOTTOM, "{places:?}");
    }
}
