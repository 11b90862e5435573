//! One self-contained HTML page: bars of measured figures beside published ones.
//!
//! The page has no script and loads nothing. Each chart is inline SVG, whose bars have their exact value as a title. A table of
//! the same numbers is below it.

mod bars;
mod page;
mod style;
mod svg;

pub use bars::{Bar, BarChart, BarGroup};
pub use page::{Captioned, Page, Section, Table};

/// Width of a chart in its units. Two charts are beside each other, if the page is wide enough.
const WIDTH: f64 = 500.0;

/// Colour of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Published figures: grey.
    Published,
    /// Measured figures.
    Measured,
}

impl Colour {
    /// The CSS class of bars in this colour.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Measured => "measured",
        }
    }
}
