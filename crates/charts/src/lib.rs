//! Charts, as SVG that takes its colours from a style sheet ([`STYLE`]), and numbers as people read them.
//!
//! Each chart is drawn twice, for a desktop and for a phone: text that is scaled down with its figure cannot
//! be read. It must not know the things that are drawn.
//!
//! - `axis`: scales and ticks; `canvas`: SVG; `mark`: the signs of series beside their colour
//! - `lines`: one quantity against another; `rows`: bars, and effects with their intervals
//! - [`numbers`]: numbers of tables and axes

mod axis;
mod canvas;
mod lines;
mod mark;
pub mod numbers;
mod rows;

pub use axis::Axis;
pub use lines::{LineChart, LinePoint, Series};
pub use mark::{Mark, dot, swatch};
pub use rows::{Row, RowChart};

/// Style sheet of charts, and of pages that they stand on.
pub const STYLE: &str = include_str!("style.css");

/// The width a chart is drawn for, in CSS pixels; the height follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
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
