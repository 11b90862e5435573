//! Horizontal bars in groups: published and measured figures, one above the other.

use super::svg::{Anchor, Drawing, readable, ticks, wrapped};
use super::{Colour, WIDTH};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name in the legend.
    pub label: String,
    /// Its length, in the chart's unit.
    pub value: f64,
    /// Its colour.
    pub colour: Colour,
}

/// A group of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// Their common label.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A chart of groups on one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Label and unit of the axis.
    pub axis: String,
    /// The groups, from top to bottom.
    pub groups: Vec<BarGroup>,
}

const LEFT: f64 = 172.0;
const RIGHT: f64 = 58.0;
const BAR: f64 = 12.0;
const BAR_GAP: f64 = 2.0;
const GROUP_GAP: f64 = 11.0;
const TEXT_LINE: f64 = 14.0;
/// Characters of a group's label in one line.
const LABEL_CHARACTERS: usize = 24;

/// A group, the lines of its label, and the height of both.
struct Placed<'a> {
    group: &'a BarGroup,
    lines: Vec<String>,
    height: f64,
}

impl<'a> Placed<'a> {
    fn of(group: &'a BarGroup) -> Self {
        let lines = wrapped(&group.label, LABEL_CHARACTERS);
        let bars = group.bars.len() as f64 * (BAR + BAR_GAP);
        Self { group, height: bars.max(lines.len() as f64 * TEXT_LINE), lines }
    }

    fn draw(&self, drawing: &mut Drawing, top: f64, axis: &str, scale: impl Fn(f64) -> f64) {
        let middle = top + self.height / 2.0;
        let mut baseline = middle - (self.lines.len() as f64 - 1.0) * TEXT_LINE / 2.0 + 4.0;
        for line in &self.lines {
            drawing.text("group", (LEFT - 10.0, baseline), Anchor::End, line);
            baseline += TEXT_LINE;
        }
        let mut y = middle - self.group.bars.len() as f64 * (BAR + BAR_GAP) / 2.0;
        for bar in &self.group.bars {
            let value = readable(bar.value);
            let title = format!("{}, {}: {value} {axis}", self.group.label, bar.label);
            let class = bar.colour.class();
            drawing.bar(class, (LEFT, y), (scale(bar.value), BAR), &title);
            let place = (LEFT + scale(bar.value) + 5.0, y + BAR - 2.0);
            drawing.text(&format!("value of-{class}"), place, Anchor::Start, &value);
            y += BAR + BAR_GAP;
        }
    }
}

impl BarChart {
    /// The `<svg>` element.
    pub(crate) fn draw(&self) -> String {
        let placed: Vec<_> = self.groups.iter().map(Placed::of).collect();
        let height = placed.iter().map(|group| group.height + GROUP_GAP).sum::<f64>() + 30.0;
        let largest =
            self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).fold(0.0, f64::max);
        let scale = |value: f64| if largest > 0.0 { value / largest * (WIDTH - LEFT - RIGHT) } else { 0.0 };
        let mut drawing = Drawing::new(WIDTH, height);
        let bottom = height - 26.0;
        for tick in ticks(largest, 4) {
            let x = LEFT + scale(tick);
            drawing.line("grid", (x, 2.0), (x, bottom));
            drawing.text("tick", (x, bottom + 15.0), Anchor::Middle, &readable(tick));
        }
        drawing.text("axis", (WIDTH, bottom + 15.0), Anchor::End, &self.axis);
        let mut top = 6.0;
        for group in &placed {
            group.draw(&mut drawing, top, &self.axis, scale);
            top += group.height + GROUP_GAP;
        }
        drawing.finish(&self.axis)
    }
}
