//! Division of cells into lines and charts.

use serde_json::Value;

use super::Entry;
use crate::experiment::Figure;
use crate::report::cells::{Cell, distinct, varied};
use crate::report::chart::Mark;
use crate::report::names;
use crate::report::page::LEVELS_BETWEEN;

/// More lines in one chart cannot be told apart.
const LINES_MAX: usize = 8;

/// A chart of its own.
pub(super) struct Facet<'c, 'a> {
    /// Values that its cells have in common and others have not.
    pub(super) heading: Option<String>,
    pub(super) lines: Vec<Line<'c, 'a>>,
}

/// Cells that differ only along x.
pub(super) struct Line<'c, 'a> {
    pub(super) entry: Entry,
    pub(super) cells: Vec<&'c Cell<'a>>,
}

type Key = Vec<Value>;

/// Splits by the dimensions of the figure; by default every combination besides x is a line, as long as lines
/// can be told apart.
pub(super) fn split<'c, 'a>(figure: &Figure, cells: &'c [Cell<'a>]) -> Vec<Facet<'c, 'a>> {
    let measured: Vec<&Cell<'a>> = cells
        .iter()
        .filter(|cell| cell.measured().next().is_some())
        .collect();
    let paths = varied(cells);
    let x = figure.x.as_deref();
    let along_durability = matches!(x, Some("durability" | "system.durability"));
    let all: Vec<&str> = std::iter::once("system")
        .chain(paths.iter().map(String::as_str))
        .collect();
    let mut lines: Vec<&str> = if figure.by.is_empty() {
        all.iter().copied().filter(|name| Some(*name) != x).collect()
    } else {
        figure.by.iter().map(String::as_str).collect()
    };
    if figure.by.is_empty() {
        while lines.len() > 1 && keys(&measured, &lines).len() > LINES_MAX {
            lines.pop();
        }
    }
    let facets: Vec<&str> = all
        .into_iter()
        .filter(|name| Some(*name) != x && !lines.contains(name))
        .collect();
    let looks = Looks::new(&measured, &lines);
    let describe = |key: &Key, names: &[&str]| describe(key, names, &paths);
    keys(&measured, &facets)
        .into_iter()
        .map(|facet| {
            let here = with_key(&measured, &facets, &facet);
            let heading = (!facets.is_empty())
                .then(|| describe(&facet, &facets))
                .filter(|name| !name.is_empty());
            let mut of_facet = Vec::new();
            for line in keys(&here, &lines) {
                let of_line = with_key(&here, &lines, &line);
                // A line has one durability, unless that is along x. A system that gives several levels
                // elsewhere makes several lines.
                let levels: &[&str] = if along_durability { &[] } else { &["durability"] };
                for level in keys(&of_line, levels) {
                    let cells = with_key(&of_line, levels, &level);
                    let Some(first) = cells.first() else { continue };
                    let mut given: Vec<&str> = cells.iter().map(|cell| cell.durability()).collect();
                    given.dedup();
                    let entry = Entry {
                        mark: looks.of(first, &line),
                        name: describe(&line, &lines),
                        durability: given.join(LEVELS_BETWEEN),
                    };
                    of_facet.push(Line { entry, cells });
                }
            }
            // A system's lines stand together.
            of_facet.sort_by_key(|line: &Line<'_, '_>| line.entry.mark.colour);
            Facet {
                heading,
                lines: of_facet,
            }
        })
        .collect()
}

/// Returns the cells that have a key.
fn with_key<'c, 'a>(cells: &[&'c Cell<'a>], names: &[&str], wanted: &Key) -> Vec<&'c Cell<'a>> {
    let all = cells.iter().copied();
    all.filter(|cell| key(cell, names) == *wanted).collect()
}

fn key(cell: &Cell<'_>, names: &[&str]) -> Key {
    names
        .iter()
        .map(|name| cell.dimension(name).unwrap_or(Value::Null))
        .collect()
}

fn keys(cells: &[&Cell<'_>], names: &[&str]) -> Vec<Key> {
    distinct(cells.iter().map(|cell| key(cell, names)))
}

/// `Apache Kafka, batch 64KiB`. Durability is said by its own sign.
fn describe(key: &Key, names: &[&str], paths: &[String]) -> String {
    let parts = key.iter().zip(names).filter_map(|(value, name)| match *name {
        "system" => Some(value.as_str().map_or_else(String::new, names::system)),
        "durability" | "system.durability" => None,
        path => Some(format!("{} {}", names::short(path, paths), names::value(value))),
    });
    let parts: Vec<_> = parts.collect();
    parts.join(", ")
}

/// Colours by system and shapes by everything else; where there is one system, colours too are by everything
/// else.
struct Looks {
    systems: Vec<String>,
    settings: Vec<Key>,
    others: Vec<usize>,
}

impl Looks {
    fn new(cells: &[&Cell<'_>], lines: &[&str]) -> Self {
        let systems = distinct(cells.iter().map(|cell| cell.system.clone()));
        let others: Vec<usize> = lines
            .iter()
            .enumerate()
            .filter(|(_, name)| **name != "system")
            .map(|(index, _)| index)
            .collect();
        let settings = distinct(keys(cells, lines).iter().map(|line| pick(line, &others)));
        Self {
            systems,
            settings,
            others,
        }
    }

    fn of(&self, cell: &Cell<'_>, line: &Key) -> Mark {
        let setting = pick(line, &self.others);
        let variant = self.settings.iter().position(|key| *key == setting).unwrap_or(0);
        if self.systems.len() == 1 && self.settings.len() > 1 {
            return Mark::new(variant, 0);
        }
        Mark::new(names::colour(&cell.system, &self.systems), variant)
    }
}

fn pick(line: &Key, indexes: &[usize]) -> Key {
    indexes
        .iter()
        .filter_map(|index| line.get(*index).cloned())
        .collect()
}
