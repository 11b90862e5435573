//! Latency by percentile, both axes logarithmic, so that the tail can be read.

use super::svg::{Anchor, Drawing, readable};
use super::{Colour, Figure};

/// The latencies of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Whose.
    pub label: String,
    /// Colour.
    pub colour: Colour,
    /// Percentile (below 100) and latency in microseconds, ascending.
    pub points: Vec<(f64, f64)>,
}

/// Several such curves.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveChart {
    /// The curves.
    pub curves: Vec<Curve>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 10.0;
/// The percentiles on the axis.
const PERCENTILES: [f64; 6] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];

/// "Nines": 0 for the median's left end, 1 at 90 %, 2 at 99 %.
fn nines(percentile: f64) -> f64 {
    -((100.0 - percentile).clamp(0.005, 100.0) / 100.0).log10()
}

impl Figure for CurveChart {
    fn draw(&self) -> String {
        let values =
            || self.curves.iter().flat_map(|curve| &curve.points).map(|(_, latency)| latency.max(0.1));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(1.0, f64::max));
        let low = if low.is_finite() { low.log10().floor() } else { 0.0 };
        let high = high.log10().ceil().max(low + 1.0);
        let x = |percentile: f64| LEFT + nines(percentile) / nines(99.995) * (WIDTH - LEFT - RIGHT);
        let y = |latency: f64| {
            let share = (latency.max(0.1).log10() - low) / (high - low);
            HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
        };
        let mut drawing = Drawing::new(WIDTH, HEIGHT);
        for percentile in PERCENTILES {
            drawing.line("grid", (x(percentile), TOP), (x(percentile), HEIGHT - BOTTOM));
            let label = if percentile == 0.0 { "min".to_owned() } else { format!("p{percentile}") };
            drawing.text("tick", (x(percentile), HEIGHT - BOTTOM + 15.0), Anchor::Middle, &label);
        }
        let mut decade = low;
        while decade <= high {
            let latency = 10f64.powf(decade);
            drawing.line("grid", (LEFT, y(latency)), (WIDTH - RIGHT, y(latency)));
            drawing.text("tick", (LEFT - 6.0, y(latency) + 3.5), Anchor::End, &readable(latency));
            decade += 1.0;
        }
        drawing.text(
            "axis",
            (WIDTH - RIGHT, HEIGHT - 4.0),
            Anchor::End,
            "percentile; latency in microseconds",
        );
        for curve in &self.curves {
            let points: Vec<_> = curve.points.iter().map(|(p, latency)| (x(*p), y(*latency))).collect();
            let class = curve.colour.class();
            drawing.polyline(&format!("curve {class}"), &points, &curve.label);
            for ((percentile, latency), point) in curve.points.iter().zip(&points) {
                let title = format!("{} p{percentile}: {} us", curve.label, readable(*latency));
                drawing.dot(&class, *point, 3.0, &title);
            }
            if let Some(last) = points.last() {
                drawing.text("label", (last.0 + 8.0, last.1 + 4.0), Anchor::Start, &curve.label);
            }
        }
        drawing.finish("latency by percentile")
    }
}
