//! One quantity against another: lines with marks and error bars, or curves without marks.

use std::fmt::Write as _;

use maud::html;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::Cartesian2d;
use plotters::style::IntoFont;

use super::axis::Ticked;
use super::canvas::{Canvas, FINE, Ink};
use super::mark::Shape;
use super::{Axis, Drawing, Mark, Width};

/// Lines over two axes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LineChart {
    /// For those who cannot see it.
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// A stretch of x that does not count.
    pub(crate) shaded: Option<(f64, f64)>,
    /// Lower than usual: one of several below each other.
    pub(crate) low: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) mark: Mark,
    pub(crate) points: Vec<LinePoint>,
    /// Whether points are joined: they are not where x has no order.
    pub(crate) joined: bool,
    /// Whether each point has a mark of its own.
    pub(crate) marked: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinePoint {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The ends of the error bar.
    pub(crate) interval: Option<(f64, f64)>,
    /// What is shown when one points at it; none for points of a curve.
    pub(crate) says: String,
}

type Coord = Cartesian2d<Ticked, Ticked>;
type Chart<'a, 'b> = ChartContext<'a, Canvas<'b>, Coord>;
type Trouble = DrawingAreaErrorKind<std::fmt::Error>;

impl LineChart {
    /// Whether there is anything to see.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    pub(crate) fn draw(&self, width: Width) -> Drawing {
        let size = (width.pixels(), self.height(width));
        let mut inside = String::new();
        let mut hits = String::new();
        let root = Canvas::new(&mut inside, size).into_drawing_area();
        self.draw_on(&root, width, &mut hits)
            .map_err(|_| std::fmt::Error)?;
        drop(root);
        let title = html! { (self.title) }.into_string();
        let (class, (w, h)) = (width.class(), size);
        Ok(format!(
            r#"<svg class="{class}" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">{inside}{hits}</svg>"#
        ))
    }

    fn height(&self, width: Width) -> u32 {
        match (width, self.low) {
            (Width::Desktop, false) => 340,
            (Width::Desktop, true) => 168,
            (Width::Phone, false) => 270,
            (Width::Phone, true) => 160,
        }
    }

    fn draw_on(
        &self,
        root: &DrawingArea<Canvas<'_>, Shift>,
        width: Width,
        hits: &mut String,
    ) -> Result<(), Trouble> {
        // Charts below each other begin at the same place, unless their numbers are long.
        let letters = u32::try_from(self.y.letters().max(5)).unwrap_or(8);
        let mut chart = ChartBuilder::on(root)
            .margin_top(22 * FINE)
            .margin_right(14 * FINE)
            .x_label_area_size(if self.x.label.is_empty() { 26 } else { 42 } * FINE)
            .y_label_area_size((12 + 7 * letters) * FINE)
            .build_cartesian_2d(
                Ticked::new(self.x.range, self.x_ticks(width)),
                Ticked::new(self.y.range, self.y.ticks_at()),
            )?;
        self.draw_shade(&mut chart)?;
        let text = |ink: Ink| ("sans-serif", 12 * FINE).into_font().color(&ink.colour());
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(Ink::Grid.stroke())
            .light_line_style(Ink::none())
            .axis_style(Ink::Axis.stroke())
            .label_style(text(Ink::Text))
            .set_all_tick_mark_size(4 * FINE)
            .x_label_formatter(&|at| self.x.label_at(*at))
            .y_label_formatter(&|at| self.y.label_at(*at))
            .draw()?;
        let (w, h) = root.dim_in_pixel();
        let (w, h) = (i32::try_from(w).unwrap_or(0), i32::try_from(h).unwrap_or(0));
        let fine = i32::try_from(FINE).unwrap_or(1);
        // The label of y stands above its axis, not turned: nobody likes to bend their head.
        root.draw_text(&self.y.label, &text(Ink::Note), (0, 2 * fine))?;
        let right = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Bottom,
        );
        root.draw_text(
            &self.x.label,
            &text(Ink::Note).pos(right),
            (w - 14 * fine, h - 4 * fine),
        )?;
        for series in &self.series {
            self.draw_series(&mut chart, series)?;
        }
        for series in &self.series {
            self.draw_marks(root, &chart, series, hits)?;
        }
        Ok(())
    }

    /// On a phone there is room for half of many names.
    fn x_ticks(&self, width: Width) -> Vec<f64> {
        let ticks = self.x.ticks_at();
        let letters: usize = self
            .x
            .ticks
            .iter()
            .map(|tick| tick.label.chars().count() + 2)
            .sum();
        let room = if width == Width::Phone { 42 } else { 100 };
        let every = letters.div_ceil(room).max(1);
        ticks.into_iter().step_by(every).collect()
    }

    fn draw_shade(&self, chart: &mut Chart<'_, '_>) -> Result<(), Trouble> {
        if let Some((from, to)) = self.shaded {
            let corners = [
                (self.x.place(from), self.y.range.0),
                (self.x.place(to), self.y.range.1),
            ];
            chart.draw_series([Rectangle::new(corners, Ink::Shade.filled())])?;
        }
        Ok(())
    }

    fn draw_series(&self, chart: &mut Chart<'_, '_>, series: &Series) -> Result<(), Trouble> {
        let place = |point: &LinePoint| (self.x.place(point.x), self.y.place(point.y));
        if series.joined {
            let path: Vec<_> = series
                .points
                .iter()
                .map(place)
                .filter(|(x, y)| x.is_finite() && y.is_finite())
                .collect();
            let ink = Ink::Line(series.mark.colour, series.mark.variant);
            chart.draw_series([PathElement::new(path, ink.stroke())])?;
        }
        let bars = series.points.iter().filter_map(|point| {
            let (low, high) = point.interval?;
            // An interval that reaches below a logarithmic axis ends at its foot.
            let foot = |at: f64| {
                if at.is_nan() {
                    self.y.range.0
                } else {
                    at.max(self.y.range.0)
                }
            };
            let x = self.x.place(point.x);
            let path = [
                (x, foot(self.y.place(low))),
                (x, foot(self.y.place(high)).min(self.y.range.1)),
            ];
            Some(PathElement::new(path, Ink::Reach(series.mark.colour).stroke()))
        });
        chart.draw_series(bars)?;
        Ok(())
    }

    fn draw_marks(
        &self,
        root: &DrawingArea<Canvas<'_>, Shift>,
        chart: &Chart<'_, '_>,
        series: &Series,
        hits: &mut String,
    ) -> Result<(), Trouble> {
        for point in &series.points {
            let (at_x, at_y) = (self.x.place(point.x), self.y.place(point.y));
            if !at_x.is_finite() || !at_y.is_finite() {
                continue;
            }
            let (x, y) = chart.backend_coord(&(at_x, at_y));
            if let Some((low, high)) = point.interval.filter(|_| series.marked) {
                for end in [low, high] {
                    let end = self.y.place(end);
                    if end >= self.y.range.0 && end <= self.y.range.1 {
                        let (_, end) = chart.backend_coord(&(at_x, end));
                        let cap = [(x - 35, end), (x + 35, end)];
                        root.draw(&PathElement::new(cap, Ink::Reach(series.mark.colour).stroke()))?;
                    }
                }
            }
            if series.marked {
                draw_mark(root, series.mark, (x, y))?;
            }
            if !point.says.is_empty() {
                let says = html! { (point.says) }.into_string();
                let (x, y) = (f64::from(x) / f64::from(FINE), f64::from(y) / f64::from(FINE));
                // Writing to a string does not fail.
                let _ = write!(
                    hits,
                    r#"<circle class="hit" cx="{x}" cy="{y}" r="11"><title>{says}</title></circle>"#
                );
            }
        }
        Ok(())
    }
}

fn draw_mark(root: &DrawingArea<Canvas<'_>, Shift>, mark: Mark, (x, y): (i32, i32)) -> Result<(), Trouble> {
    let style = Ink::Fill(mark.colour).filled();
    match mark.shape() {
        Shape::Circle => root.draw(&Circle::new((x, y), 42, style)),
        Shape::Square => root.draw(&Rectangle::new([(x - 38, y - 38), (x + 38, y + 38)], style)),
        Shape::Triangle => root.draw(&Polygon::new(
            [(x, y - 50), (x + 48, y + 38), (x - 48, y + 38)],
            style,
        )),
        Shape::Diamond => root.draw(&Polygon::new(
            [(x, y - 52), (x + 52, y), (x, y + 52), (x - 52, y)],
            style,
        )),
    }
}
