//! One quantity against another: lines with marks and error bars, or curves without marks.

use crate::canvas::{Anchor, Baseline, Canvas, Ink, Point};
use crate::mark::Shape;
use crate::{Axis, Mark, Width};

/// Lines over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// For readers who cannot see it.
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Stretches of x that do not count, or in which something is not as usual.
    pub shaded: Vec<(f64, f64)>,
    /// Lower than usual: one of several below each other.
    pub low: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub mark: Mark,
    pub points: Vec<LinePoint>,
    /// True if points are joined: they are not where x has no order.
    pub joined: bool,
    /// True if each point has a mark of its own.
    pub marked: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LinePoint {
    pub x: f64,
    pub y: f64,
    /// The ends of the error bar.
    pub interval: Option<(f64, f64)>,
    /// Text that is shown under the pointer; empty for points of a curve.
    pub says: String,
}

/// Length of the ticks of an axis.
const TICK: f64 = 4.0;

/// The rectangle between the axes.
struct Frame<'a> {
    chart: &'a LineChart,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Series {
    /// A curve through points without marks.
    pub fn curve(mark: Mark, points: Vec<LinePoint>) -> Self {
        Self {
            mark,
            points,
            joined: true,
            marked: false,
        }
    }

    /// Marks that are not joined.
    pub fn marks(mark: Mark, points: Vec<LinePoint>) -> Self {
        Self {
            mark,
            points,
            joined: false,
            marked: true,
        }
    }
}

impl LineChart {
    /// True if there is nothing to see.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    pub fn draw(&self, width: Width) -> String {
        let (right, bottom) = (width.pixels(), self.height(width));
        let frame = Frame {
            chart: self,
            // Charts below each other begin at the same place, unless their numbers are long.
            left: 12.0 + 7.0 * self.y.letters().max(5) as f64,
            right: right - 14.0,
            top: 22.0,
            bottom: bottom - if self.x.label.is_empty() { 26.0 } else { 42.0 },
        };
        let mut canvas = Canvas::new((right, bottom));
        for (from, to) in &self.shaded {
            let (from, to) = (self.x.place(*from), self.x.place(*to));
            let corners = (
                frame.within(from, self.y.range.0),
                frame.within(to, self.y.range.1),
            );
            canvas.rectangle(Ink::Shade, corners.0, corners.1);
        }
        frame.draw_axes(&mut canvas, self.every_tick(width));
        // The label of y stands above its axis, and is not turned.
        let above = (Anchor::Start, Baseline::Top);
        canvas.text(Ink::Note, (0.0, 2.0), above, &self.y.label);
        let below = (Anchor::End, Baseline::Bottom);
        canvas.text(Ink::Note, (right - 14.0, bottom - 4.0), below, &self.x.label);
        for series in &self.series {
            frame.draw_lines(&mut canvas, series);
        }
        for series in &self.series {
            frame.draw_marks(&mut canvas, series);
        }
        canvas.finish(width.class(), &self.title)
    }

    fn height(&self, width: Width) -> f64 {
        match (width, self.low) {
            (Width::Desktop, false) => 340.0,
            (Width::Desktop, true) => 168.0,
            (Width::Phone, false) => 270.0,
            (Width::Phone, true) => 160.0,
        }
    }

    /// Returns 1 if there is room for the names of all ticks of x, 2 if for every second, and so on.
    fn every_tick(&self, width: Width) -> usize {
        let ticks = self.x.ticks.iter();
        let letters: usize = ticks.map(|tick| tick.label.chars().count() + 2).sum();
        let room = if width == Width::Phone { 42 } else { 100 };
        letters.div_ceil(room).max(1)
    }
}

impl Frame<'_> {
    /// Returns the point of two values in their axes' own units.
    fn point(&self, x: f64, y: f64) -> Point {
        let x = self.chart.x.along(x, (self.left, self.right));
        (x, self.chart.y.along(y, (self.bottom, self.top)))
    }

    /// Returns the same, or the nearest point inside the frame.
    fn within(&self, x: f64, y: f64) -> Point {
        let (x, y) = self.point(x, y);
        (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom))
    }

    fn draw_axes(&self, canvas: &mut Canvas, every: usize) {
        let Self {
            left,
            right,
            top,
            bottom,
            ..
        } = *self;
        for tick in &self.chart.y.ticks {
            let (_, y) = self.within(self.chart.x.range.0, tick.at);
            canvas.line(Ink::Grid, &[(left, y), (right, y)]);
            canvas.line(Ink::Axis, &[(left - TICK, y), (left, y)]);
            let beside = (Anchor::End, Baseline::Middle);
            canvas.text(Ink::Text, (left - TICK - 3.0, y), beside, &tick.label);
        }
        for tick in self.chart.x.ticks.iter().step_by(every) {
            let (x, _) = self.within(tick.at, self.chart.y.range.0);
            canvas.line(Ink::Axis, &[(x, bottom), (x, bottom + TICK)]);
            let below = (Anchor::Middle, Baseline::Top);
            canvas.text(Ink::Text, (x, bottom + TICK + 3.0), below, &tick.label);
        }
        canvas.line(Ink::Axis, &[(left, top), (left, bottom), (right, bottom)]);
    }

    /// Draws the line of a series and its error bars.
    fn draw_lines(&self, canvas: &mut Canvas, series: &Series) {
        let (x_axis, y_axis) = (&self.chart.x, &self.chart.y);
        if series.joined {
            let places = series.points.iter();
            let places = places.map(|point| (x_axis.place(point.x), y_axis.place(point.y)));
            let line: Vec<Point> = places
                .filter(|(x, y)| x.is_finite() && y.is_finite())
                .map(|(x, y)| self.within(x, y))
                .collect();
            canvas.line(Ink::Line(series.mark.colour, series.mark.variant), &line);
        }
        for point in &series.points {
            let Some((low, high)) = point.interval else {
                continue;
            };
            // An interval that reaches below a logarithmic axis ends at its foot.
            let end = |value: f64| {
                let at = y_axis.place(value);
                self.within(
                    x_axis.place(point.x),
                    if at.is_nan() { y_axis.range.0 } else { at },
                )
            };
            canvas.line(Ink::Reach(series.mark.colour), &[end(low), end(high)]);
        }
    }

    /// Draws the marks of a series, the ends of its error bars, and its texts.
    fn draw_marks(&self, canvas: &mut Canvas, series: &Series) {
        let y_axis = &self.chart.y;
        for point in &series.points {
            let (x, y) = self.point(self.chart.x.place(point.x), y_axis.place(point.y));
            if !x.is_finite() || !y.is_finite() {
                continue;
            }
            if series.marked {
                let ends = point.interval.map(|(low, high)| [low, high]);
                for end in ends.into_iter().flatten().map(|end| y_axis.place(end)) {
                    if end >= y_axis.range.0 && end <= y_axis.range.1 {
                        let end = y_axis.along(end, (self.bottom, self.top));
                        let ink = Ink::Reach(series.mark.colour);
                        canvas.line(ink, &[(x - 3.5, end), (x + 3.5, end)]);
                    }
                }
                draw_mark(canvas, series.mark, (x, y));
            }
            if !point.says.is_empty() {
                canvas.hit_circle((x, y), 11.0, &point.says);
            }
        }
    }
}

fn draw_mark(canvas: &mut Canvas, mark: Mark, (x, y): Point) {
    let ink = Ink::Fill(mark.colour);
    match mark.shape() {
        Shape::Circle => canvas.circle(ink, (x, y), 4.2),
        Shape::Square => canvas.rectangle(ink, (x - 3.8, y - 3.8), (x + 3.8, y + 3.8)),
        Shape::Triangle => {
            canvas.polygon(ink, &[(x, y - 5.0), (x + 4.8, y + 3.8), (x - 4.8, y + 3.8)]);
        }
        Shape::Diamond => {
            canvas.polygon(ink, &[(x, y - 5.2), (x + 5.2, y), (x, y + 5.2), (x - 5.2, y)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_the_frame_and_points_beyond_every_scale_are_left_out() {
        let point = |x: f64, y: f64| LinePoint {
            x,
            y,
            interval: Some((0.0, 20.0)),
            says: format!("at {x}"),
        };
        let chart = LineChart {
            title: "T".to_owned(),
            x: Axis::linear("", "s", [0.0, 10.0]),
            y: Axis::logarithmic("", "µs", [1.0, 10.0]),
            series: vec![Series {
                mark: Mark::new(0, 0),
                points: vec![point(0.0, 1.0), point(5.0, 0.0), point(10.0, 100.0)],
                joined: true,
                marked: false,
            }],
            shaded: Vec::new(),
            low: false,
        };
        let svg = chart.draw(Width::Desktop);
        let (left, right, top, bottom) = (12 + 7 * 5, 760 - 14, 22, 340 - 26);
        assert!(
            svg.contains(&format!(
                r#"<path class="s0 d0" d="M{left} {bottom}L{right} {top}"/>"#
            )),
            "{svg}"
        );
        assert!(svg.contains(&format!(
            r#"<path class="e0" d="M{left} {bottom}L{left} {top}"/>"#
        )));
        assert!(svg.contains("at 0") && svg.contains("at 10") && !svg.contains("at 5"));
    }
}
