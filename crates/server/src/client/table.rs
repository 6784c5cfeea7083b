//! Aligned columns with a heading.

use std::io::{self, Write};

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows shown together, so that their columns can be aligned.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

const GAP: &str = "  ";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Side)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Control characters are shown as `\u{1b}`: names chosen by others must not reach the
    /// terminal as commands.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(printable).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the heading and the rows, without trailing blanks.
    pub(crate) fn write(&self, out: &mut impl Write, colour: bool) -> io::Result<()> {
        let width = |column: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| letters(cell))
                .max()
                .unwrap_or(0)
                .max(heading.len())
        };
        let widths: Vec<_> = self
            .columns
            .iter()
            .enumerate()
            .map(|(column, (heading, _))| width(column, heading))
            .collect();
        let headings: Vec<_> = self
            .columns
            .iter()
            .map(|(heading, _)| (*heading).to_owned())
            .collect();
        let heading = self.line(&headings, &widths);
        if colour {
            writeln!(out, "{DIM}{heading}{PLAIN}")?;
        } else {
            writeln!(out, "{heading}")?;
        }
        for row in &self.rows {
            writeln!(out, "{}", self.line(row, &widths))?;
        }
        Ok(())
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, side)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let blanks = " ".repeat(width.saturating_sub(letters(cell)));
            match side {
                Side::Left => line.extend([cell.as_str(), &blanks]),
                Side::Right => line.extend([&blanks, cell.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn letters(cell: &str) -> usize {
    cell.chars().count()
}

fn printable(cell: String) -> String {
    if !cell.contains(char::is_control) {
        return cell;
    }
    let mut shown = String::with_capacity(cell.len());
    for letter in cell.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_blanks_at_their_ends() {
        let mut table = Table::new(&[
            ("TOPIC", Side::Left),
            ("RECORDS", Side::Right),
            ("NOTE", Side::Left),
        ]);
        table.row(vec!["orders.eu".into(), "7".into(), String::new()]);
        table.row(vec!["é".into(), "12,345,678".into(), "x".into()]);
        let mut out = Vec::new();
        table.write(&mut out, false).unwrap();
        let expected = "TOPIC         RECORDS  NOTE\norders.eu           7\né          12,345,678  x\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&[("CLIENT", Side::Left), ("N", Side::Right)]);
        table.row(vec!["a\x1b[2J\nb é".into(), "1".into()]);
        let mut out = Vec::new();
        table.write(&mut out, false).unwrap();
        let expected = "CLIENT              N\na\\u{1b}[2J\\u{a}b é  1\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
