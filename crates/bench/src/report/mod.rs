//! One self-contained HTML page of figures: bars beside published bars, time lines, latency curves.
//!
//! The page has no script and loads nothing; each figure is inline SVG whose marks carry their exact value as a
//! title, and a table of the same numbers stands below it.

mod bars;
mod curve;
mod dots;
mod page;
mod style;
mod svg;
mod timeline;

pub use bars::{Bar, BarChart, BarGroup};
pub use curve::{Curve, CurveChart};
pub use dots::{Dot, DotPlot, DotRow};
pub use page::{Captioned, Page, Section, Table};
pub use timeline::{Lane, Timeline};

/// Something that draws itself as SVG.
pub trait Figure {
    /// The `<svg>` element.
    fn draw(&self, width: FigureWidth) -> String;
}

/// How much of the page's width a figure gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureWidth {
    /// Two stand beside each other where the page is wide enough.
    Half,
    /// A row of its own.
    Full,
}

impl FigureWidth {
    /// Width of a drawing in its own units, so that text has one size on the whole page.
    pub(crate) fn units(self) -> f64 {
        match self {
            Self::Half => 500.0,
            Self::Full => 1032.0,
        }
    }
}

/// Which of the page's colours a mark has. The same thing keeps its colour through the whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// What was published: grey.
    Published,
    /// What is measured now, beside it.
    Measured,
    /// The n-th series of figures that show several things at once, 0 to 6.
    Series(u8),
}

impl Colour {
    /// The CSS class of marks in this colour.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Published => "published".to_owned(),
            Self::Measured => "measured".to_owned(),
            Self::Series(number) => format!("s{}", number % 7),
        }
    }
}
