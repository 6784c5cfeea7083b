//! Ranges in `[grid]`, which stand for lists: `{ from = 1, to = 64, factor = 2 }`.
//!
//! They are written out in the text, in their own lines, before anything else reads it, so that places of
//! mistakes stay.

use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::units::{ByteCount, Span};

/// Values of a range: more of them are a mistake.
const VALUES_MAX: usize = 10_000;

/// A mistake in a range, and its place in the text.
pub(super) struct WrongRange {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// Returns the text with lists in place of ranges; `None` if it has no ranges.
pub(super) fn written_out(text: &str, tree: &DeTable<'_>) -> Result<Option<String>, WrongRange> {
    let mut lists = Vec::new();
    for (table, prefix) in [("grid", ""), ("small", "grid."), ("full", "grid.")] {
        let Some(DeValue::Table(settings)) = tree.get(table).map(Spanned::get_ref) else {
            continue;
        };
        for (path, value) in settings {
            if let DeValue::Table(range) = value.get_ref()
                && path.get_ref().starts_with(prefix)
            {
                let list = list(range).map_err(|message| WrongRange {
                    span: value.span(),
                    message: format!("`{}`: {message}", path.get_ref()),
                })?;
                lists.push((value.span(), list));
            }
        }
    }
    if lists.is_empty() {
        return Ok(None);
    }
    // From the last one on, so that the places of those before stay.
    lists.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, list) in lists {
        text.replace_range(span, &list);
    }
    Ok(Some(text))
}

/// Ends of a range, with the way to write a value of its unit.
enum Unit {
    Whole,
    Number,
    Time,
    Bytes,
}

fn list(range: &DeTable<'_>) -> Result<String, String> {
    let known = ["from", "to", "step", "factor", "values"];
    if let Some((name, _)) = range
        .iter()
        .find(|(name, _)| !known.contains(&name.get_ref().as_ref()))
    {
        return Err(format!(
            "{} is not known; expected {}",
            name.get_ref(),
            known.join(", ")
        ));
    }
    let of = |name: &str| range.get(name).map(Spanned::get_ref);
    let (Some(from), Some(to)) = (of("from"), of("to")) else {
        return Err("a range has from and to".to_owned());
    };
    let (from, unit) = read(from)?;
    let (to, _) = read(to)?;
    let step = of("step").map(read).transpose()?;
    let factor = of("factor").map(read).transpose()?;
    let mut values: Vec<f64> = Vec::new();
    if let Some(DeValue::Array(first)) = of("values") {
        for value in first {
            values.push(read(value.get_ref())?.0);
        }
    }
    let next: Box<dyn Fn(f64, usize) -> f64> = match (step, factor) {
        (Some((step, _)), None) if step > 0.0 => Box::new(move |_, number| from + step * number as f64),
        (None, Some((factor, _))) if factor > 1.0 && from > 0.0 => Box::new(move |before, _| before * factor),
        _ => return Err("a range has a step above 0, or a factor above 1 and from above 0".to_owned()),
    };
    let mut value = from;
    // A step in floating point may miss the end by its last digit.
    let end = to * (1.0 + 1e-9);
    for number in 1.. {
        if value > end {
            break;
        }
        if values.len() >= VALUES_MAX {
            return Err(format!("the range has more than {VALUES_MAX} values"));
        }
        values.push(value);
        value = next(value, number);
    }
    if values.is_empty() {
        return Err("the range is empty: from is above to".to_owned());
    }
    let texts: Vec<String> = values.into_iter().map(|value| unit.text(value)).collect();
    Ok(format!("[{}]", texts.join(", ")))
}

/// Reads a number, a time in µs, or bytes.
fn read(value: &DeValue<'_>) -> Result<(f64, Unit), String> {
    match value {
        DeValue::Integer(number) => f64::from_str(number.as_str()).map(|it| (it, Unit::Whole)),
        DeValue::Float(number) => f64::from_str(number.as_str()).map(|it| (it, Unit::Number)),
        DeValue::String(text) => {
            if let Ok(Span(time)) = text.parse() {
                return Ok((time.as_secs_f64() * 1e6, Unit::Time));
            }
            let ByteCount(bytes) = text
                .parse()
                .map_err(|_| format!("{text:?} is no number, time or number of bytes"))?;
            return Ok((bytes as f64, Unit::Bytes));
        }
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            return Err("a range is of numbers, times or numbers of bytes".to_owned());
        }
    }
    .map_err(|error| error.to_string())
}

impl Unit {
    fn text(&self, value: f64) -> String {
        match self {
            Self::Whole => format!("{}", value.round()),
            Self::Number => format!("{value:?}"),
            Self::Time => format!("\"{}us\"", value.round()),
            Self::Bytes => format!("\"{}B\"", value.round()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::experiment::Source;

    fn grid(setting: &str) -> Result<serde_json::Value, String> {
        let text = format!(
            "question = \"?\"\nsystems = [\"stafett\"]\n[roles.p]\ndoes = \"produce\"\n[grid]\n{setting}\n"
        );
        let source = Source::new("x", text);
        let grid = source.grid(1.0).map_err(|error| error.to_string())?;
        Ok(grid
            .into_values()
            .next()
            .map(|values| json!(values))
            .unwrap_or_default())
    }

    #[test]
    fn a_range_is_the_list_that_it_stands_for_with_both_ends() {
        let clients = |range: &str| grid(&format!("\"roles.p.clients\" = {range}"));
        assert_eq!(
            clients("{ from = 1, to = 64, factor = 4 }").unwrap(),
            json!([1, 4, 16, 64])
        );
        assert_eq!(
            clients("{ from = 10, to = 35, step = 10 }").unwrap(),
            json!([10, 20, 30])
        );
        let linger = grid(
            "\"roles.p.linger\" = { values = [\"0us\"], from = \"10ms\", to = \"30ms\", step = \"10ms\" }",
        );
        assert_eq!(linger.unwrap(), json!(["0us", "10000us", "20000us", "30000us"]));
        let batch = grid("\"roles.p.batch\" = { from = \"1KiB\", to = \"4KiB\", factor = 2 }");
        assert_eq!(batch.unwrap(), json!(["1024B", "2048B", "4096B"]));
        let share = grid("\"roles.p.duplicates\" = { from = 0.0, to = 0.3, step = 0.1 }").unwrap();
        assert_eq!(share.as_array().unwrap().len(), 4, "{share}");
    }

    #[test]
    fn a_wrong_range_is_told_with_its_line() {
        for (range, said) in [
            ("{ from = 1 }", "from and to"),
            ("{ from = 1, to = 5 }", "a step above 0, or a factor above 1"),
            ("{ from = 1, to = 5, step = 0 }", "a step above 0"),
            ("{ from = 0, to = 5, factor = 2 }", "from above 0"),
            ("{ from = 9, to = 5, step = 1 }", "from is above to"),
            ("{ from = 1, to = 1000000, step = 1 }", "more than 10000 values"),
            ("{ from = 1, to = 2, step = 1, by = 3 }", "by is not known"),
            ("{ from = [], to = 2, step = 1 }", "numbers, times"),
            ("{ from = \"x\", to = 2, step = 1 }", "is no number"),
        ] {
            let refused = grid(&format!("\"roles.p.clients\" = {range}")).unwrap_err();
            assert!(
                refused.starts_with("x:6: `roles.p.clients`: ") && refused.contains(said),
                "{refused}"
            );
        }
    }
}
