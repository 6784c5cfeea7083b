//! Charts, as SVG that takes its colours from the page's style sheet.
//!
//! Each chart is drawn twice, for a desktop and for a phone: text that is scaled down with its figure cannot
//! be read. Charts know nothing of experiments.
//!
//! - [`axis`]: scales and ticks; [`canvas`]: SVG; [`mark`]: the signs of series beside their colour
//! - [`lines`]: one quantity against another; [`rows`]: bars, and effects with their intervals

mod axis;
mod canvas;
mod lines;
mod mark;
mod rows;

pub(crate) use axis::Axis;
pub(crate) use lines::{LineChart, LinePoint, Series};
pub(crate) use mark::{Mark, dot, swatch};
pub(crate) use rows::{Row, RowChart};

/// The width a chart is drawn for, in CSS pixels; the height follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Desktop,
    Phone,
}

impl Width {
    fn pixels(self) -> f64 {
        match self {
            Self::Desktop => 760.0,
            Self::Phone => 350.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Desktop => "chart wide",
            Self::Phone => "chart narrow",
        }
    }
}
