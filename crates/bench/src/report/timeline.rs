//! Who had the disk, and where its head was.

use super::svg::{Anchor, Drawing, readable, ticks};
use super::{Colour, Figure};

/// One owner's time with the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Who.
    pub label: String,
    /// Colour of its spans.
    pub colour: Colour,
    /// When, in seconds: start and end of each span.
    pub spans: Vec<(f64, f64)>,
}

/// Lanes above a common time axis, and below them the position of the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// First and last second shown.
    pub window_s: (f64, f64),
    /// The owners.
    pub lanes: Vec<Lane>,
    /// Head position over time: second, and position in GB. Empty where there is no head.
    pub head: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 22.0;
const HEAD: f64 = 110.0;

impl Timeline {
    fn x(&self, second: f64) -> f64 {
        let (start, end) = self.window_s;
        let share = if end > start { (second - start) / (end - start) } else { 0.0 };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn draw_lanes(&self, drawing: &mut Drawing) -> f64 {
        let (start, end) = self.window_s;
        let mut y = 8.0;
        for lane in &self.lanes {
            drawing.text("label", (LEFT - 10.0, y + 14.0), Anchor::End, &lane.label);
            for (from, to) in lane.spans.iter().filter(|(from, to)| *to > start && *from < end) {
                let title = format!("{}: {:.4} s to {:.4} s", lane.label, from, to);
                let (left, right) = (self.x(*from), self.x(*to));
                drawing.span(&lane.colour.class(), (left, y), (right - left, LANE - 6.0), &title);
            }
            y += LANE;
        }
        y
    }

    fn draw_head(&self, drawing: &mut Drawing, top: f64) {
        let largest = self.head.iter().map(|(_, position)| *position).fold(0.0, f64::max).max(1e-9);
        let y = |position: f64| top + HEAD - 10.0 - position / largest * (HEAD - 24.0);
        drawing.text("label", (LEFT - 10.0, top + HEAD / 2.0), Anchor::End, "head, GB");
        for tick in ticks(largest, 3) {
            drawing.line("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick)));
            drawing.text("tick", (LEFT - 4.0, y(tick) + 3.0), Anchor::End, &readable(tick));
        }
        let (start, end) = self.window_s;
        let points: Vec<_> = self
            .head
            .iter()
            .filter(|(second, _)| (start..=end).contains(second))
            .map(|(second, position)| (self.x(*second), y(*position)))
            .collect();
        drawing.polyline("head", &points, "head position");
    }
}

impl Figure for Timeline {
    fn draw(&self) -> String {
        let head = if self.head.is_empty() { 0.0 } else { HEAD };
        let height = 8.0 + self.lanes.len() as f64 * LANE + head + 34.0;
        let mut drawing = Drawing::new(WIDTH, height);
        let (start, end) = self.window_s;
        for tick in ticks(end - start, 6) {
            let x = self.x(start + tick);
            drawing.line("grid", (x, 4.0), (x, height - 28.0));
            drawing.text("tick", (x, height - 14.0), Anchor::Middle, &readable(start + tick));
        }
        drawing.text("axis", (WIDTH - RIGHT, height - 2.0), Anchor::End, "seconds");
        let below = self.draw_lanes(&mut drawing);
        if !self.head.is_empty() {
            self.draw_head(&mut drawing, below);
        }
        drawing.finish("who had the disk")
    }
}
