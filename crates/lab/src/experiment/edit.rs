//! Changes of an experiment's text that keep its comments and the order of its lines.

use serde_json::Value as Json;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::path;

/// Change of one setting.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "page", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Path of the setting, such as `roles.producers.batch`, `grid."roles.producers.batch"` or
    /// `figures.0.title`.
    pub path: String,
    /// Its new value; null removes it.
    pub value: Json,
}

/// Reason why a text cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("{0}")]
    Text(String),
    #[error("`{0}` is no path of a setting")]
    Path(String),
    #[error("`{0}` cannot have that value")]
    Value(String),
}

/// Returns the text with these changes.
pub fn changed(text: &str, changes: &[Change]) -> Result<String, EditError> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| EditError::Text(error.to_string().trim_end().to_owned()))?;
    for Change { path, value } in changes {
        let parts = path::parts(path).ok_or_else(|| EditError::Path(path.clone()))?;
        let value = match value {
            Json::Null => None,
            value => Some(of_json(value).ok_or_else(|| EditError::Value(path.clone()))?),
        };
        put(document.as_table_mut(), &parts, value).ok_or_else(|| EditError::Path(path.clone()))?;
    }
    Ok(document.to_string())
}

/// Returns the text as data, as it is written.
pub fn tree(text: &str) -> Result<Json, EditError> {
    toml::from_str(text).map_err(|error| EditError::Text(error.to_string().trim_end().to_owned()))
}

/// Puts a value below a table, or removes one. `None` if the path leads through something that has no parts.
fn put(table: &mut dyn TableLike, parts: &[&str], value: Option<Value>) -> Option<()> {
    let (first, rest) = parts.split_first()?;
    if rest.is_empty() {
        match (value, table.get_mut(first)) {
            (None, _) => drop(table.remove(first)),
            (Some(value), Some(Item::Value(before))) => {
                // A comment behind a value stays.
                let decor = before.decor().clone();
                *before = value;
                *before.decor_mut() = decor;
            }
            (Some(value), _) => drop(table.insert(first, Item::Value(value))),
        }
        return Some(());
    }
    if value.is_none() && table.get(first).is_none() {
        return Some(());
    }
    let is_list = rest.first().is_some_and(|next| next.parse::<usize>().is_ok());
    let below = table.entry(first).or_insert_with(|| match is_list {
        true => Item::ArrayOfTables(ArrayOfTables::new()),
        false => {
            let mut made = Table::new();
            // A table of tables has no head of its own.
            made.set_implicit(rest.len() > 1);
            Item::Table(made)
        }
    });
    match below {
        Item::ArrayOfTables(list) => {
            let (place, rest) = rest.split_first()?;
            let place: usize = place.parse().ok()?;
            if rest.is_empty() {
                // A whole element is only removed.
                return (value.is_none() && place < list.len())
                    .then(|| list.remove(place))
                    .map(drop);
            }
            if place == list.len() {
                list.push(Table::new());
            }
            put(list.get_mut(place)?, rest, value)
        }
        item => put(item.as_table_like_mut()?, rest, value),
    }
}

/// Returns a value of TOML. `None` for one with null in it, or a number that is none there.
fn of_json(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(it) => (*it).into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(values) => values.iter().map(of_json).collect::<Option<Array>>()?.into(),
        Json::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| Some((name.as_str(), of_json(value)?)));
            fields.collect::<Option<InlineTable>>()?.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::library;

    fn change(path: &str, value: Json) -> Change {
        Change {
            path: path.to_owned(),
            value,
        }
    }

    #[test]
    fn a_change_keeps_comments_and_order() {
        let text = "# why\nquestion = \"?\" # short\nsystems = [\"stafett\"]\n\n[roles.p] # sends\ndoes = \"produce\"\nsize = 100 # bytes\n\n[grid]\n\"roles.p.size\" = [1, 2]\n";
        let changes = [
            change("question", json!("How fast?")),
            change("roles.p.size", json!("1KiB")),
            change("roles.q.does", json!("consume")),
            change("grid.\"roles.p.size\"", json!({"from": 1, "to": 8, "factor": 2})),
            change("run.duration", json!("3s")),
            change("figures.0.title", json!("t")),
            change("figures.0.y", json!(["produce_rate"])),
        ];
        let text = changed(text, &changes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            "# why",
            "question = \"How fast?\" # short",
            "[roles.p] # sends",
            "size = \"1KiB\" # bytes",
            "[roles.q]",
            "\"roles.p.size\" = { from = 1, to = 8, factor = 2 }",
            "[run]",
            "[[figures]]",
            "y = [\"produce_rate\"]",
        ] {
            assert!(lines.contains(&line), "{line}\n{text}");
        }
        let removed = [
            change("figures.0", json!(null)),
            change("roles.q", json!(null)),
            change("run.seed", json!(null)),
        ];
        let text = changed(&text, &removed).unwrap();
        assert!(!text.contains("roles.q") && !text.contains("figures"), "{text}");
        assert_eq!(tree(&text).unwrap()["roles"]["p"]["size"], "1KiB");
    }

    #[test]
    fn no_change_leaves_every_experiment_as_it_is() {
        for (name, _) in library::EXPERIMENTS {
            let text = library::find(name).unwrap().text;
            assert_eq!(changed(&text, &[]).unwrap(), text, "{name}");
            let question = tree(&text).unwrap()["question"].clone();
            let same = changed(&text, &[change("question", question)]).unwrap();
            assert_eq!(tree(&same).unwrap(), tree(&text).unwrap(), "{name}");
        }
    }

    #[test]
    fn changes_that_fit_nowhere_are_refused() {
        let text = "question = \"?\"\n[[figures]]\ntitle = \"t\"\n";
        for (path, value) in [
            ("", json!(1)),
            ("question.of", json!(1)),
            ("figures.2.title", json!("x")),
            ("figures.7", json!(null)),
            ("figures.x", json!(1)),
            ("a", json!([null])),
        ] {
            let refused = changed(text, &[change(path, value)]);
            assert!(
                matches!(refused, Err(EditError::Path(_) | EditError::Value(_))),
                "{path}: {refused:?}"
            );
        }
        assert!(matches!(changed("= 1", &[]), Err(EditError::Text(_))));
    }
}
