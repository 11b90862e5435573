//! Use of a disk over time: the owner, and the position.

use super::svg::{Anchor, Drawing, readable, ticks};
use super::{Colour, Figure, FigureWidth};

/// Disk use of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The owner.
    pub label: String,
    /// Colour of its marks.
    pub colour: Colour,
    /// Start and end of each span, in seconds.
    pub spans: Vec<(f64, f64)>,
    /// Its transfers: second, and position in GB.
    pub places: Vec<(f64, f64)>,
}

/// Lanes over a common time axis, and below them the disk position of each transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// First and last second shown.
    pub window_s: (f64, f64),
    /// The owners.
    pub lanes: Vec<Lane>,
}

const LEFT: f64 = 76.0;
const RIGHT: f64 = 12.0;
const LANE: f64 = 20.0;
const HEAD: f64 = 96.0;

/// The drawing's width and the seconds that it shows.
struct Scale {
    width: f64,
    window_s: (f64, f64),
}

impl Scale {
    fn x(&self, second: f64) -> f64 {
        let (start, end) = self.window_s;
        let share = if end > start { (second - start) / (end - start) } else { 0.0 };
        LEFT + share.clamp(0.0, 1.0) * (self.width - LEFT - RIGHT)
    }

    fn shows(&self, second: f64) -> bool {
        (self.window_s.0..=self.window_s.1).contains(&second)
    }
}

impl Timeline {
    fn draw_lanes(&self, drawing: &mut Drawing, scale: &Scale) -> f64 {
        let (start, end) = self.window_s;
        let mut y = 6.0;
        for lane in &self.lanes {
            let class = lane.colour.class();
            drawing.text(&format!("of-{class}"), (LEFT - 10.0, y + 11.5), Anchor::End, &lane.label);
            for (from, to) in lane.spans.iter().filter(|(from, to)| *to > start && *from < end) {
                let title = format!("{}: {from:.4} s to {to:.4} s", lane.label);
                let (left, right) = (scale.x(*from), scale.x(*to));
                drawing.span(&class, (left, y), (right - left, LANE - 5.0), &title);
            }
            y += LANE;
        }
        y
    }

    fn draw_places(&self, drawing: &mut Drawing, scale: &Scale, top: f64) {
        let places = || self.lanes.iter().flat_map(|lane| &lane.places);
        let largest = places().map(|(_, position)| *position).fold(0.0, f64::max).max(1e-9);
        let y = |position: f64| top + HEAD - 6.0 - position / largest * (HEAD - 18.0);
        for tick in ticks(largest, 3) {
            drawing.line("grid", (LEFT, y(tick)), (scale.width - RIGHT, y(tick)));
            let label = if tick > 0.0 { format!("{} GB", readable(tick)) } else { "0".to_owned() };
            drawing.text("tick", (LEFT - 10.0, y(tick) + 4.0), Anchor::End, &label);
        }
        for lane in &self.lanes {
            let marks: Vec<_> = lane
                .places
                .iter()
                .filter(|(second, _)| scale.shows(*second))
                .map(|(second, position)| (scale.x(*second), y(*position)))
                .collect();
            drawing.marks(&lane.colour.class(), &marks, &format!("where {} was", lane.label));
        }
    }
}

impl Figure for Timeline {
    fn draw(&self, width: FigureWidth) -> String {
        let has_places = self.lanes.iter().any(|lane| !lane.places.is_empty());
        let height = 6.0 + self.lanes.len() as f64 * LANE + if has_places { HEAD } else { 0.0 } + 22.0;
        let scale = Scale { width: width.units(), window_s: self.window_s };
        let mut drawing = Drawing::new(scale.width, height);
        let (start, end) = self.window_s;
        for tick in ticks(end - start, if width == FigureWidth::Full { 10 } else { 5 }) {
            let x = scale.x(start + tick);
            drawing.line("grid", (x, 2.0), (x, height - 20.0));
            let second = format!("{} s", readable(start + tick));
            let anchor = if x > scale.width - 2.0 * RIGHT { Anchor::End } else { Anchor::Middle };
            drawing.text("tick", (x.min(scale.width), height - 6.0), anchor, &second);
        }
        let below = self.draw_lanes(&mut drawing, &scale);
        if has_places {
            self.draw_places(&mut drawing, &scale, below);
        }
        drawing.finish("who had the disk")
    }
}
