//! Signs of series: a colour that readers with colour blindness can tell too, a shape and a dash.

use maud::{Markup, html};

/// Looks of a series. Colour is by system, so that a system has one colour in the whole report; shape and
/// dash are by its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub colour: u8,
    pub variant: u8,
}

/// Colours that the style sheet has.
pub(crate) const COLOURS: u8 = 8;
/// Shapes and dashes that can be told apart.
pub(crate) const VARIANTS: u8 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Mark {
    pub fn new(colour: usize, variant: usize) -> Self {
        let wrap = |number: usize, count: u8| u8::try_from(number % usize::from(count)).unwrap_or(0);
        Self {
            colour: wrap(colour, COLOURS),
            variant: wrap(variant, VARIANTS),
        }
    }

    /// Systems differ in shape too, so that a print in grey can be read.
    pub fn shape(self) -> Shape {
        match (self.colour + self.variant) % 4 {
            0 => Shape::Circle,
            1 => Shape::Square,
            2 => Shape::Triangle,
            _ => Shape::Diamond,
        }
    }
}

/// The sign of a series in a legend.
pub fn swatch(mark: Mark) -> Markup {
    let class = format!("s{} d{}", mark.colour, mark.variant);
    let dot = format!("m{}", mark.colour);
    html! {
        svg.swatch viewBox="0 0 28 12" width="28" height="12" aria-hidden="true" {
            path class=(class) d="M0 6H28" {}
            (shape(mark, &dot))
        }
    }
}

/// The sign of a system in a table.
pub fn dot(mark: Mark) -> Markup {
    let class = format!("m{}", mark.colour);
    html! {
        svg.dot viewBox="8 0 12 12" width="12" height="12" aria-hidden="true" {
            (shape(mark, &class))
        }
    }
}

fn shape(mark: Mark, class: &str) -> Markup {
    html! {
        @match mark.shape() {
            Shape::Circle => circle class=(class) cx="14" cy="6" r="4" {},
            Shape::Square => path class=(class) d="M10.4 2.4h7.2v7.2h-7.2z" {},
            Shape::Triangle => path class=(class) d="M14 1.2l4.6 8.4h-9.2z" {},
            Shape::Diamond => path class=(class) d="M14 1l5 5l-5 5l-5-5z" {},
        }
    }
}
