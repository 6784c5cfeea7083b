//! plotters' drawing backend: SVG whose elements have classes instead of colours.
//!
//! plotters draws in whole pixels. It is given [`FINE`] of them per CSS pixel, so that curves are smooth. What it takes
//! for a colour is an [`Ink`]: its red is the class, its green the dash.

use std::fmt::{self, Write as _};

use plotters::style::{BLACK, RGBAColor, RGBColor, ShapeStyle};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontTransform,
};

/// plotters' pixels per CSS pixel.
pub(super) const FINE: u32 = 10;

/// What something is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Grid,
    Axis,
    Text,
    Note,
    Shade,
    /// What reaches from the end of a bar.
    Whisker,
    /// The line of a series, and its dash.
    Line(u8, u8),
    /// The filled mark of a series.
    Fill(u8),
    /// What reaches from a mark: error bars.
    Reach(u8),
}

impl Ink {
    pub(super) fn colour(self) -> RGBColor {
        let (class, dash) = match self {
            Self::Grid => (0, 0),
            Self::Axis => (1, 0),
            Self::Text => (2, 0),
            Self::Note => (3, 0),
            Self::Shade => (5, 0),
            Self::Whisker => (4, 0),
            Self::Line(series, dash) => (20 + series, dash),
            Self::Fill(series) => (40 + series, 0),
            Self::Reach(series) => (60 + series, 0),
        };
        RGBColor(class, dash, 0)
    }

    /// A stroke; its width is the style sheet's, unless it is a line.
    pub(super) fn stroke(self) -> ShapeStyle {
        ShapeStyle {
            color: RGBAColor::from(self.colour()),
            filled: false,
            stroke_width: FINE,
        }
    }

    pub(super) fn filled(self) -> ShapeStyle {
        ShapeStyle {
            color: RGBAColor::from(self.colour()),
            filled: true,
            stroke_width: FINE,
        }
    }

    /// Nothing at all.
    pub(super) fn none() -> ShapeStyle {
        ShapeStyle {
            color: RGBAColor(BLACK.0, BLACK.1, BLACK.2, 0.0),
            filled: false,
            stroke_width: 0,
        }
    }
}

fn class(colour: BackendColor) -> String {
    let (class, dash, _) = colour.rgb;
    match class {
        0 => "grid".to_owned(),
        1 => "axis".to_owned(),
        2 => "tick".to_owned(),
        3 => "note".to_owned(),
        4 => "whisker".to_owned(),
        5 => "shade".to_owned(),
        20..40 => format!("s{} d{dash}", class - 20),
        40..60 => format!("m{}", class - 40),
        _ => format!("e{}", class.saturating_sub(60)),
    }
}

/// Writes the inside of an `svg` element.
pub(super) struct Canvas<'a> {
    out: &'a mut String,
    size: (u32, u32),
}

impl<'a> Canvas<'a> {
    /// `size` is in CSS pixels.
    pub(super) fn new(out: &'a mut String, size: (u32, u32)) -> Self {
        Self {
            out,
            size: (size.0 * FINE, size.1 * FINE),
        }
    }

    fn path(&mut self, colour: BackendColor, data: &str) -> Drawn {
        if colour.alpha == 0.0 {
            return Ok(());
        }
        let class = class(colour);
        written(write!(self.out, r#"<path class="{class}" d="{data}"/>"#))
    }
}

type Drawn = Result<(), DrawingErrorKind<fmt::Error>>;

fn written(result: fmt::Result) -> Drawn {
    result.map_err(DrawingErrorKind::DrawingError)
}

/// A coordinate in CSS pixels.
fn css(value: i32) -> f64 {
    f64::from(value) / f64::from(FINE)
}

fn data(points: impl IntoIterator<Item = BackendCoord>) -> String {
    let mut text = String::new();
    for (index, (x, y)) in points.into_iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{}{} {}",
            if index == 0 { 'M' } else { 'L' },
            css(x),
            css(y)
        );
    }
    text
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = fmt::Error;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, _: BackendCoord, _: BackendColor) -> Drawn {
        // Nothing of ours is drawn by pixels.
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        if style.color().alpha == 0.0 {
            return Ok(());
        }
        let (x, y) = (css(left.min(right)), css(top.min(bottom)));
        let (width, height) = (css((right - left).abs()), css((bottom - top).abs()));
        let class = class(style.color());
        written(write!(
            self.out,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        ))
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.path(style.color(), &data(path))
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        (x, y): BackendCoord,
        radius: u32,
        style: &S,
        _: bool,
    ) -> Drawn {
        if style.color().alpha == 0.0 {
            return Ok(());
        }
        let radius = f64::from(radius) / f64::from(FINE);
        let class = class(style.color());
        written(write!(
            self.out,
            r#"<circle class="{class}" cx="{}" cy="{}" r="{radius}"/>"#,
            css(x),
            css(y)
        ))
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vert: I,
        style: &S,
    ) -> Drawn {
        self.path(style.color(), &(data(vert) + "Z"))
    }

    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, (x, y): BackendCoord) -> Drawn {
        if text.is_empty() || style.color().alpha == 0.0 {
            return Ok(());
        }
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        // In em: text is placed by its baseline.
        let drop = match style.anchor().v_pos {
            VPos::Top => "0.8em",
            VPos::Center => "0.35em",
            VPos::Bottom => "0",
        };
        let turn = match style.transform() {
            FontTransform::None => 0,
            FontTransform::Rotate90 => 90,
            FontTransform::Rotate180 => 180,
            FontTransform::Rotate270 => 270,
        };
        let (x, y) = (css(x), css(y));
        let turned = if turn == 0 {
            String::new()
        } else {
            format!(r#" transform="rotate({turn} {x} {y})""#)
        };
        let class = class(style.color());
        let text = maud::PreEscaped(maud::html! { (text) }.into_string()).into_string();
        written(write!(
            self.out,
            r#"<text class="{class}" x="{x}" y="{y}" dy="{drop}" text-anchor="{anchor}"{turned}>{text}</text>"#
        ))
    }

    fn estimate_text_size<T: BackendTextStyle>(
        &self,
        text: &str,
        style: &T,
    ) -> Result<(u32, u32), DrawingErrorKind<fmt::Error>> {
        // plotters wants it to place several lines; ours are single, and anchored where they belong.
        let height = style.size();
        let width = height * 0.55 * text.chars().count() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few thousand at most"
        )]
        Ok((width as u32, height as u32))
    }
}
