//! One self-contained HTML page of figures: bars beside published bars, time lines, latency curves.
//!
//! The page has no script and loads nothing. Each figure is inline SVG, whose marks have their exact value as a title. A table of
//! the same numbers is below it.

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

/// A figure as SVG.
pub trait Figure {
    /// The `<svg>` element.
    fn draw(&self, width: FigureWidth) -> String;
}

/// Width of a figure on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureWidth {
    /// Two figures beside each other, if the page is wide enough.
    Half,
    /// A row of its own.
    Full,
}

impl FigureWidth {
    /// Width of a drawing in its units, so that text has one size on the page.
    pub(crate) fn units(self) -> f64 {
        match self {
            Self::Half => 500.0,
            Self::Full => 1032.0,
        }
    }
}

/// Colour of a mark. A series has one colour on the whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Published figures: grey.
    Published,
    /// Measured figures.
    Measured,
    /// The n-th series of a figure with several, 0 to 6.
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
