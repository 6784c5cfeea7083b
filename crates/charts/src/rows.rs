//! Horizontal bars with their names before them and their numbers behind: names have room, even on a phone.

use crate::canvas::{Anchor, Baseline, Canvas, Ink};
use crate::{Axis, Width};

#[derive(Clone, Debug, PartialEq)]
pub struct RowChart {
    /// For readers who cannot see it.
    pub title: String,
    pub axis: Axis,
    pub rows: Vec<Row>,
    /// Value that bars grow from: 0, or 1 for ratios.
    pub from: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Above the row, where a new group begins.
    pub heading: Option<String>,
    pub name: String,
    pub colour: u8,
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    /// Text behind the bar: the number, and more.
    pub says: String,
}

const ROW: f64 = 26.0;
const HEADING: f64 = 24.0;
const FOOT: f64 = 44.0;

/// Borders of the bars; the texts behind them take `behind`.
struct Layout {
    left: f64,
    right: f64,
    bottom: f64,
    behind: f64,
}

impl RowChart {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn draw(&self, width: Width) -> String {
        // On a phone the name stands on a line of its own above its bar.
        let step = if width == Width::Phone { ROW + 16.0 } else { ROW };
        let headings = self.rows.iter().filter(|row| row.heading.is_some()).count();
        let height = self.rows.len() as f64 * step + headings as f64 * HEADING + FOOT;
        let mut canvas = Canvas::new((width.pixels(), height));
        let layout = self.layout(width, height);
        self.draw_axis(&mut canvas, &layout);
        let mut y = 4.0;
        for row in &self.rows {
            if let Some(heading) = &row.heading {
                let above = (Anchor::Start, Baseline::Top);
                canvas.text(Ink::Note, (0.0, y + 8.0), above, heading);
                y += HEADING;
            }
            let middle = y + step - ROW / 2.0;
            let (at, side) = if width == Width::Phone {
                ((0.0, middle - 11.0), (Anchor::Start, Baseline::Bottom))
            } else {
                ((layout.left - 8.0, middle), (Anchor::End, Baseline::Middle))
            };
            canvas.text(Ink::Text, at, side, &row.name);
            self.draw_row(&mut canvas, &layout, row, middle);
            canvas.hit_row(y, step, &format!("{}: {}", row.name, row.says));
            y += step;
        }
        canvas.finish(width.class(), &self.title)
    }

    fn layout(&self, width: Width, height: f64) -> Layout {
        let letters = |of: fn(&Row) -> &String| {
            let all = self.rows.iter().map(|row| of(row).chars().count());
            all.max().unwrap_or(0) as f64
        };
        let is_phone = width == Width::Phone;
        let left = letters(|row| &row.name) * 7.0 + 14.0;
        let behind = letters(|row| &row.says) * 7.0 + 12.0;
        let behind = behind.min(if is_phone { 150.0 } else { 240.0 });
        Layout {
            left: if is_phone { 2.0 } else { left.min(280.0) },
            right: width.pixels() - behind - 2.0,
            bottom: height - FOOT + 4.0,
            behind,
        }
    }

    fn pixel(&self, layout: &Layout, value: f64) -> f64 {
        let Layout { left, right, .. } = *layout;
        let along = self.axis.along(self.axis.place(value), (left, right));
        if along.is_finite() {
            along.clamp(left, right)
        } else {
            left
        }
    }

    fn draw_axis(&self, canvas: &mut Canvas, layout: &Layout) {
        let Layout { left, right, .. } = *layout;
        let fitting = ((right - left) / 64.0).max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a handful"
        )]
        let every = (self.axis.ticks.len() as f64 / fitting).ceil().max(1.0) as usize;
        for tick in self.axis.ticks.iter().step_by(every) {
            let x = self.axis.along(tick.at, (left, right));
            canvas.line(Ink::Grid, &[(x, 0.0), (x, layout.bottom)]);
            // At the edge there is no room on the other side.
            let anchor = if x < 25.0 { Anchor::Start } else { Anchor::Middle };
            let below = (x, layout.bottom + 5.0);
            canvas.text(Ink::Text, below, (anchor, Baseline::Top), &tick.label);
        }
        let at = (right + layout.behind, layout.bottom + 23.0);
        canvas.text(Ink::Note, at, (Anchor::End, Baseline::Top), &self.axis.label);
    }

    fn draw_row(&self, canvas: &mut Canvas, layout: &Layout, row: &Row, middle: f64) {
        let (from, to) = (self.pixel(layout, self.from), self.pixel(layout, row.value));
        // A ratio has no length: it is a point, with a line to either side.
        let is_ratio = self.from != 0.0;
        let fill = Ink::Fill(row.colour);
        if !is_ratio {
            canvas.rectangle(fill, (from, middle - 7.0), (to, middle + 7.0));
        }
        let mut end = to.max(from);
        if let Some((low, high)) = row.interval {
            let (low, high) = (self.pixel(layout, low), self.pixel(layout, high));
            canvas.line(Ink::Whisker, &[(low, middle), (high, middle)]);
            for x in [low, high] {
                canvas.line(Ink::Whisker, &[(x, middle - 3.5), (x, middle + 3.5)]);
            }
            end = end.max(high);
        }
        canvas.line(Ink::Axis, &[(from, middle - 9.0), (from, middle + 9.0)]);
        if is_ratio {
            canvas.circle(fill, (to, middle), 4.8);
        }
        let behind = (Anchor::Start, Baseline::Middle);
        canvas.text(Ink::Text, (end + 7.0, middle), behind, &row.says);
    }
}
