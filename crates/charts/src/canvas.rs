//! SVG whose elements have classes instead of colours, so that one drawing serves light, dark and paper.
//!
//! Coordinates are CSS pixels from the upper left, written with one digit behind the point. Texts are single
//! lines.

use std::fmt::{Arguments, Write as _};

use maud::html;

/// A point: to the right, and down.
pub(crate) type Point = (f64, f64);

/// Class of an element; the style sheet gives it its colour and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Grid,
    Axis,
    Text,
    Note,
    Shade,
    /// Interval at the end of a bar.
    Whisker,
    /// Line of a series: its colour, and its dash.
    Line(u8, u8),
    /// Filled mark or bar of a series.
    Fill(u8),
    /// Error bar of a series.
    Reach(u8),
}

impl Ink {
    fn class(self) -> String {
        match self {
            Self::Grid => "grid".to_owned(),
            Self::Axis => "axis".to_owned(),
            Self::Text => "tick".to_owned(),
            Self::Note => "note".to_owned(),
            Self::Shade => "shade".to_owned(),
            Self::Whisker => "whisker".to_owned(),
            Self::Line(series, dash) => format!("s{series} d{dash}"),
            Self::Fill(series) => format!("m{series}"),
            Self::Reach(series) => format!("e{series}"),
        }
    }
}

/// Side of a text that its point is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Height of a text that its point is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    Top,
    Middle,
    Bottom,
}

/// A drawing under way.
#[derive(Debug)]
pub(crate) struct Canvas {
    inside: String,
    /// Areas that show a text when the pointer is over them; they lie above everything else.
    hits: String,
    size: (f64, f64),
}

impl Canvas {
    pub(crate) fn new(size: (f64, f64)) -> Self {
        Self {
            inside: String::new(),
            hits: String::new(),
            size,
        }
    }

    pub(crate) fn line(&mut self, ink: Ink, points: &[Point]) {
        self.path(ink, points, "");
    }

    /// Draws a filled shape with these corners.
    pub(crate) fn polygon(&mut self, ink: Ink, corners: &[Point]) {
        self.path(ink, corners, "Z");
    }

    fn put(&mut self, element: Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.inside.write_fmt(element);
    }

    fn put_hit(&mut self, element: Arguments<'_>) {
        let _ = self.hits.write_fmt(element);
    }

    fn path(&mut self, ink: Ink, points: &[Point], end: &str) {
        let mut data = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let to = if index == 0 { 'M' } else { 'L' };
            let _ = write!(data, "{to}{} {}", short(*x), short(*y));
        }
        let class = ink.class();
        self.put(format_args!(r#"<path class="{class}" d="{data}{end}"/>"#));
    }

    /// Draws a filled rectangle between two opposite corners.
    pub(crate) fn rectangle(&mut self, ink: Ink, (left, top): Point, (right, bottom): Point) {
        let (x, y) = (short(left.min(right)), short(top.min(bottom)));
        let (width, height) = (short((right - left).abs()), short((bottom - top).abs()));
        let class = ink.class();
        self.put(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        ));
    }

    pub(crate) fn circle(&mut self, ink: Ink, (x, y): Point, radius: f64) {
        let (class, x, y) = (ink.class(), short(x), short(y));
        self.put(format_args!(
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#
        ));
    }

    pub(crate) fn text(
        &mut self,
        ink: Ink,
        (x, y): Point,
        (anchor, baseline): (Anchor, Baseline),
        text: &str,
    ) {
        if text.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        // In em: SVG places a text by its baseline.
        let drop = match baseline {
            Baseline::Top => "0.8em",
            Baseline::Middle => "0.35em",
            Baseline::Bottom => "0",
        };
        let (class, x, y, text) = (ink.class(), short(x), short(y), escaped(text));
        self.put(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" dy="{drop}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// Adds a circle that shows a text.
    pub(crate) fn hit_circle(&mut self, (x, y): Point, radius: f64, says: &str) {
        let (x, y, says) = (short(x), short(y), escaped(says));
        self.put_hit(format_args!(
            r#"<circle class="hit" cx="{x}" cy="{y}" r="{radius}"><title>{says}</title></circle>"#
        ));
    }

    /// Adds a stripe over the whole width that shows a text.
    pub(crate) fn hit_row(&mut self, top: f64, height: f64, says: &str) {
        let (width, top, says) = (self.size.0, short(top), escaped(says));
        self.put_hit(format_args!(
            r#"<rect class="hit" x="0" y="{top}" width="{width}" height="{height}"><title>{says}</title></rect>"#
        ));
    }

    /// Returns the `svg` element; `title` is for readers who cannot see it.
    pub(crate) fn finish(self, class: &str, title: &str) -> String {
        let Self { inside, hits, size } = self;
        let (title, (width, height)) = (escaped(title), size);
        format!(
            r#"<svg class="{class}" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{inside}{hits}</svg>"#
        )
    }
}

fn escaped(text: &str) -> String {
    html! { (text) }.into_string()
}

fn short(value: f64) -> f64 {
    // Adding zero turns -0 into 0.
    (value * 10.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_classes_and_texts_are_escaped() {
        let mut canvas = Canvas::new((100.0, 50.0));
        canvas.hit_circle((1.0, 2.0), 11.0, "<1");
        canvas.line(Ink::Line(2, 1), &[(0.04, -0.04), (10.26, 5.0)]);
        canvas.rectangle(Ink::Fill(3), (10.0, 20.0), (4.5, 30.0));
        canvas.text(Ink::Note, (0.0, 2.0), (Anchor::Start, Baseline::Top), "a & b");
        canvas.text(Ink::Note, (0.0, 2.0), (Anchor::Start, Baseline::Top), "");
        assert_eq!(
            canvas.finish("chart", "\"T\""),
            "<svg class=\"chart\" viewBox=\"0 0 100 50\" role=\"img\" aria-label=\"&quot;T&quot;\">\
             <path class=\"s2 d1\" d=\"M0 0L10.3 5\"/>\
             <rect class=\"m3\" x=\"4.5\" y=\"20\" width=\"5.5\" height=\"10\"/>\
             <text class=\"note\" x=\"0\" y=\"2\" dy=\"0.8em\" text-anchor=\"start\">a &amp; b</text>\
             <circle class=\"hit\" cx=\"1\" cy=\"2\" r=\"11\"><title>&lt;1</title></circle></svg>"
        );
    }
}
