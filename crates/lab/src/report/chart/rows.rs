//! Horizontal bars with their names before them and their numbers behind: names have room, even on a phone.

use std::fmt::Write as _;

use maud::html;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{IntoFont, TextStyle};

use super::canvas::{Canvas, FINE, Ink};
use super::{Axis, Drawing, Width};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowChart {
    /// For those who cannot see it.
    pub(crate) title: String,
    pub(crate) axis: Axis,
    pub(crate) rows: Vec<Row>,
    /// From where bars grow: 0, or 1 for ratios.
    pub(crate) from: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Above the row, where a new group begins.
    pub(crate) heading: Option<String>,
    pub(crate) name: String,
    pub(crate) colour: u8,
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
    /// The number, and what else stands behind the bar.
    pub(crate) says: String,
}

type Trouble = DrawingAreaErrorKind<std::fmt::Error>;

const ROW: i32 = 26;
const HEADING: i32 = 24;
const FOOT: i32 = 44;

/// Where everything is, in plotters' pixels.
struct Layout {
    left: i32,
    right: i32,
    bottom: i32,
    behind: i32,
}

impl RowChart {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn draw(&self, width: Width) -> Drawing {
        // On a phone the name stands on a line of its own above its bar.
        let step = if width == Width::Phone { ROW + 16 } else { ROW };
        let headings = self.rows.iter().filter(|row| row.heading.is_some()).count();
        let rows = i32::try_from(self.rows.len()).unwrap_or(i32::MAX / 100);
        let height = rows * step + i32::try_from(headings).unwrap_or(0) * HEADING + FOOT;
        let size = (
            width.pixels(),
            u32::try_from(height).unwrap_or(FOOT.unsigned_abs()),
        );
        let mut inside = String::new();
        let mut hits = String::new();
        let root = Canvas::new(&mut inside, size).into_drawing_area();
        self.draw_on(&root, width, step, &mut hits)
            .map_err(|_| std::fmt::Error)?;
        drop(root);
        let title = html! { (self.title) }.into_string();
        let (class, (w, h)) = (width.class(), size);
        Ok(format!(
            r#"<svg class="{class}" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">{inside}{hits}</svg>"#
        ))
    }

    fn layout(&self, width: Width, height: u32) -> Layout {
        let letters = |text: &str| i32::try_from(text.chars().count()).unwrap_or(20);
        let longest = self.rows.iter().map(|row| letters(&row.name)).max().unwrap_or(0);
        let behind = self.rows.iter().map(|row| letters(&row.says)).max().unwrap_or(0);
        let fine = i32::try_from(FINE).unwrap_or(1);
        let left = if width == Width::Phone {
            2
        } else {
            (longest * 7 + 14).min(280)
        };
        let behind = (behind * 7 + 12).min(if width == Width::Phone { 150 } else { 240 });
        Layout {
            left: left * fine,
            right: (i32::try_from(width.pixels()).unwrap_or(350) - behind - 2) * fine,
            bottom: (i32::try_from(height).unwrap_or(0) - FOOT + 4) * fine,
            behind: behind * fine,
        }
    }

    fn draw_on(
        &self,
        root: &DrawingArea<Canvas<'_>, Shift>,
        width: Width,
        step: i32,
        hits: &mut String,
    ) -> Result<(), Trouble> {
        let fine = i32::try_from(FINE).unwrap_or(1);
        let layout = self.layout(width, root.dim_in_pixel().1 / FINE);
        self.draw_axis(root, &layout)?;
        let mut y = 4 * fine;
        for row in &self.rows {
            if let Some(heading) = &row.heading {
                root.draw_text(heading, &text(Ink::Note), (0, y + 8 * fine))?;
                y += HEADING * fine;
            }
            let middle = y + (step - ROW / 2) * fine;
            let name = if width == Width::Phone {
                (
                    text(Ink::Text).pos(Pos::new(HPos::Left, VPos::Bottom)),
                    (0, middle - 11 * fine),
                )
            } else {
                (
                    text(Ink::Text).pos(Pos::new(HPos::Right, VPos::Center)),
                    (layout.left - 8 * fine, middle),
                )
            };
            root.draw_text(&row.name, &name.0, name.1)?;
            self.draw_row(root, &layout, row, middle)?;
            let says = html! { (row.name) ": " (row.says) }.into_string();
            let (top, wide) = (f64::from(y) / 10.0, width.pixels());
            // Writing to a string does not fail.
            let _ = write!(
                hits,
                r#"<rect class="hit" x="0" y="{top}" width="{wide}" height="{step}"><title>{says}</title></rect>"#
            );
            y += step * fine;
        }
        Ok(())
    }

    fn pixel(&self, layout: &Layout, value: f64) -> i32 {
        let (low, high) = self.axis.range;
        let share = ((self.axis.place(value) - low) / (high - low)).clamp(0.0, 1.0);
        let share = if share.is_finite() { share } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, reason = "between left and right")]
        let along = (f64::from(layout.right - layout.left) * share).round() as i32;
        layout.left + along
    }

    fn draw_axis(&self, root: &DrawingArea<Canvas<'_>, Shift>, layout: &Layout) -> Result<(), Trouble> {
        let (low, high) = self.axis.range;
        let span = f64::from(layout.right - layout.left);
        let room = (span / f64::from(FINE) / 64.0).max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a handful"
        )]
        let every = (self.axis.ticks.len() as f64 / room).ceil().max(1.0) as usize;
        for tick in self.axis.ticks.iter().step_by(every) {
            #[expect(clippy::cast_possible_truncation, reason = "between left and right")]
            let x = layout.left + (span * (tick.at - low) / (high - low)).round() as i32;
            root.draw(&PathElement::new(
                [(x, 0), (x, layout.bottom)],
                Ink::Grid.stroke(),
            ))?;
            // At the edge there is no room on the other side.
            let side = if x < 250 { HPos::Left } else { HPos::Center };
            let style = text(Ink::Text).pos(Pos::new(side, VPos::Top));
            root.draw_text(&tick.label, &style, (x, layout.bottom + 50))?;
        }
        let style = text(Ink::Note).pos(Pos::new(HPos::Right, VPos::Top));
        root.draw_text(
            &self.axis.label,
            &style,
            (layout.right + layout.behind, layout.bottom + 230),
        )
    }

    fn draw_row(
        &self,
        root: &DrawingArea<Canvas<'_>, Shift>,
        layout: &Layout,
        row: &Row,
        middle: i32,
    ) -> Result<(), Trouble> {
        let (from, to) = (self.pixel(layout, self.from), self.pixel(layout, row.value));
        // A ratio has no length: it is a point, with a line to either side.
        let is_ratio = self.from != 0.0;
        if !is_ratio {
            let corners = [(from.min(to), middle - 70), (from.max(to), middle + 70)];
            root.draw(&Rectangle::new(corners, Ink::Fill(row.colour).filled()))?;
        }
        let mut end = to.max(from);
        if let Some((low, high)) = row.interval {
            let (low, high) = (self.pixel(layout, low), self.pixel(layout, high));
            let ink = Ink::Whisker.stroke();
            root.draw(&PathElement::new([(low, middle), (high, middle)], ink))?;
            for x in [low, high] {
                root.draw(&PathElement::new([(x, middle - 35), (x, middle + 35)], ink))?;
            }
            end = end.max(high);
        }
        let base = PathElement::new([(from, middle - 90), (from, middle + 90)], Ink::Axis.stroke());
        root.draw(&base)?;
        if is_ratio {
            root.draw(&Circle::new((to, middle), 48, Ink::Fill(row.colour).filled()))?;
        }
        let style = text(Ink::Text).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw_text(&row.says, &style, (end + 70, middle))
    }
}

fn text<'a>(ink: Ink) -> TextStyle<'a> {
    ("sans-serif", 12 * FINE).into_font().color(&ink.colour())
}
