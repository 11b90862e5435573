//! One self-contained HTML page of figures: bars beside published bars, time lines, latency curves.
//!
//! The page has no script and loads nothing; each figure is inline SVG whose marks carry their exact value as a
//! title, and a table of the same numbers stands below it.

mod bars;
mod curve;
mod page;
mod svg;
mod timeline;

pub use bars::{Bar, BarChart, BarGroup};
pub use curve::{Curve, CurveChart};
pub use page::{Page, Section, Table};
pub use timeline::{Lane, Timeline};

/// Something that draws itself as SVG.
pub trait Figure {
    /// The `<svg>` element.
    fn draw(&self) -> String;
}

/// Which of the page's colours a mark has. The same thing keeps its colour through the whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// What was published: grey.
    Published,
    /// The n-th series of what was measured, 0 to 5.
    Series(u8),
}

impl Colour {
    /// The CSS class of marks in this colour.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Published => "published".to_owned(),
            Self::Series(number) => format!("s{}", number % 6),
        }
    }
}
