//! Horizontal bars in groups: what was published and what is measured, one above the other.

use super::svg::{Anchor, Drawing, readable, ticks};
use super::{Colour, Figure};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is, as in the legend.
    pub label: String,
    /// Its length, in the chart's unit.
    pub value: f64,
    /// Its colour.
    pub colour: Colour,
}

/// Bars that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// What they have in common.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A chart of such groups on one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What the axis shows, with its unit.
    pub axis: String,
    /// The groups, from above.
    pub groups: Vec<BarGroup>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 15.0;
const GAP: f64 = 3.0;
const GROUP_GAP: f64 = 16.0;

impl Figure for BarChart {
    fn draw(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = bars as f64 * (BAR + GAP) + self.groups.len() as f64 * (GROUP_GAP + 18.0) + 34.0;
        let largest =
            self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).fold(0.0, f64::max);
        let scale = |value: f64| if largest > 0.0 { value / largest * (WIDTH - LEFT - RIGHT) } else { 0.0 };
        let mut drawing = Drawing::new(WIDTH, height);
        let bottom = height - 28.0;
        for tick in ticks(largest, 5) {
            let x = LEFT + scale(tick);
            drawing.line("grid", (x, 4.0), (x, bottom));
            drawing.text("tick", (x, bottom + 14.0), Anchor::Middle, &readable(tick));
        }
        drawing.text("axis", (WIDTH - RIGHT, height - 2.0), Anchor::End, &self.axis);
        let mut y = 6.0;
        for group in &self.groups {
            drawing.text("group", (4.0, y + 13.0), Anchor::Start, &group.label);
            y += 18.0;
            for bar in &group.bars {
                let value = readable(bar.value);
                drawing.text("label", (LEFT - 8.0, y + BAR - 3.5), Anchor::End, &bar.label);
                let title = format!("{}, {}: {value} {}", group.label, bar.label, self.axis);
                drawing.bar(&bar.colour.class(), (LEFT, y), (scale(bar.value), BAR), &title);
                drawing.text("value", (LEFT + scale(bar.value) + 6.0, y + BAR - 3.5), Anchor::Start, &value);
                y += BAR + GAP;
            }
            y += GROUP_GAP;
        }
        drawing.finish(&self.axis)
    }
}
