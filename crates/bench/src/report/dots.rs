//! A row for each comparison, with a dot for each contender.

use super::svg::{Anchor, Drawing, readable, ticks};
use super::{Colour, Figure, FigureWidth};

/// One contender's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// The contender.
    pub label: String,
    /// Its figure, in the plot's unit.
    pub value: f64,
    /// Its colour.
    pub colour: Colour,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct DotRow {
    /// Its label.
    pub label: String,
    /// The contenders.
    pub dots: Vec<Dot>,
}

/// Rows on one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct DotPlot {
    /// Label and unit of the axis.
    pub axis: String,
    /// Whether the axis is logarithmic, which needs values above zero.
    pub is_logarithmic: bool,
    /// The rows, from top to bottom.
    pub rows: Vec<DotRow>,
}

const LEFT: f64 = 150.0;
const RIGHT: f64 = 16.0;
const ROW: f64 = 19.0;
const BOTTOM: f64 = 26.0;

/// Maps a value to a position from 0 to 1.
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn of(plot: &DotPlot) -> Self {
        let values = plot.rows.iter().flat_map(|row| &row.dots).map(|dot| dot.value);
        let high = values.clone().fold(0.0, f64::max).max(1e-9);
        let low = values.filter(|value| *value > 0.0).fold(high, f64::min);
        let decade = |value: f64, round: fn(f64) -> f64| 10f64.powf(round(value.log10()));
        if plot.is_logarithmic {
            let (low, high) = (decade(low, f64::floor), decade(high, f64::ceil));
            return Self { low, high: high.max(low * 10.0), is_logarithmic: true };
        }
        Self { low: 0.0, high, is_logarithmic: false }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            return (value.max(self.low) / self.low).log10() / (self.high / self.low).log10();
        }
        value / self.high
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.is_logarithmic {
            return ticks(self.high, 4);
        }
        let decades = (self.high / self.low).log10().round() as i32;
        (0..=decades).map(|decade| self.low * 10f64.powi(decade)).collect()
    }
}

impl Figure for DotPlot {
    fn draw(&self, width: FigureWidth) -> String {
        let (width, height) = (width.units(), self.rows.len() as f64 * ROW + BOTTOM + 6.0);
        let (scale, bottom) = (Scale::of(self), height - BOTTOM);
        let x = |value: f64| LEFT + scale.place(value) * (width - LEFT - RIGHT);
        let mut drawing = Drawing::new(width, height);
        for tick in scale.ticks() {
            drawing.line("grid", (x(tick), 2.0), (x(tick), bottom));
            drawing.text("tick", (x(tick), bottom + 15.0), Anchor::Middle, &readable(tick));
        }
        for (index, row) in self.rows.iter().enumerate() {
            let y = 6.0 + (index as f64 + 0.5) * ROW;
            drawing.text("group", (LEFT - 10.0, y + 4.0), Anchor::End, &row.label);
            for dot in &row.dots {
                let title = format!("{}, {}: {} {}", row.label, dot.label, readable(dot.value), self.axis);
                drawing.dot(&dot.colour.class(), (x(dot.value), y), 4.5, &title);
            }
        }
        drawing.text("axis", (LEFT - 10.0, bottom + 15.0), Anchor::End, &self.axis);
        drawing.finish(&self.axis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinates are finite for all figures.
    #[test]
    fn empty_zero_and_wide_ranges_are_drawn() {
        for is_logarithmic in [false, true] {
            for values in [vec![], vec![0.0], vec![0.001, 5000.0]] {
                let dot = |value| Dot { label: "a".into(), value, colour: Colour::Series(1) };
                let dots = values.into_iter().map(dot).collect();
                let rows = vec![DotRow { label: "row".into(), dots }];
                let svg = DotPlot { axis: "ms".into(), is_logarithmic, rows }.draw(FigureWidth::Half);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
