//! A roll-up, as a sink declares it: `[sink.NAME.rollup]`.

use toml::Value;

use super::steps::time;
use super::{DefinitionError, TargetSpec};
use crate::fields::Fields;
use crate::rollup::{Every, Figure, Rollup};

/// Sets of attributes, and attributes, at most: keys have them as small numbers.
const SETS_MAX: usize = 100;
/// Decimals of figures, at most.
const SCALE_MAX: u64 = 9;

type Read<T> = Result<T, DefinitionError>;

/// Reads the roll-up of a sink with that mode.
pub(super) fn read(fields: &mut Fields, target: &TargetSpec) -> Read<Option<Rollup>> {
    if !fields.takes_word("mode", "rollup") {
        return if fields.has("rollup") {
            Err(fields.bad("rollup", "it belongs to mode = \"rollup\""))
        } else {
            Ok(None)
        };
    }
    if !matches!(target, TargetSpec::Postgres(_)) {
        return Err(fields.bad("mode", "a roll-up needs a target that adds: postgres"));
    }
    let mut rollup = fields.below("rollup")?;
    let mut time_fields = rollup.below("time")?;
    let time = time(&mut time_fields)?;
    if time.zone.is_none() && time.zone_field.is_none() {
        return Err(time_fields.bad("zone", "buckets of time need a zone, or a zone_field"));
    }
    time_fields.end()?;
    let every = every(&mut rollup)?;
    let mut attributes = Vec::new();
    for (path, name, value) in rollup.below("attributes")?.rest() {
        let field = value.as_str().map(path_of);
        attributes.push((
            name,
            field.ok_or_else(|| bad(path, "it has to be the path of a field"))?,
        ));
    }
    let by = by(&mut rollup, &attributes)?;
    let mut figures = Vec::new();
    for (path, name, value) in rollup.below("values")?.rest() {
        read_figure(&name, Fields::new(path, value)?, &mut figures)?;
    }
    if figures.is_empty() {
        return Err(rollup.bad("values", "a roll-up has at least one value"));
    }
    let threshold = threshold(&mut rollup, &figures)?;
    let name_of = |set: &Vec<usize>| {
        let names = set.iter().filter_map(|place| attributes.get(*place));
        names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
    };
    let by_names = by.iter().map(name_of).collect();
    let found = Rollup {
        time,
        every,
        attributes,
        by,
        by_names,
        figures,
        threshold,
    };
    let mut names: Vec<String> = found.columns().into_iter().map(|column| column.name).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.array_windows().find(|[one, other]| one == other) {
        return Err(rollup.bad("values", format!("there are two columns {name}")));
    }
    if let Some(name) = names
        .iter()
        .find(|name| name.is_empty() || name.contains('\0') || name.len() > 63)
    {
        return Err(rollup.bad("values", format!("{name:?}: a column's name has 1 to 63 bytes")));
    }
    rollup.end()?;
    Ok(Some(found))
}

fn path_of(text: &str) -> Vec<String> {
    text.split('.').map(str::to_owned).collect()
}

fn bad(path: String, why: &str) -> DefinitionError {
    DefinitionError::Bad {
        path,
        why: why.to_owned(),
    }
}

fn every(rollup: &mut Fields) -> Read<Vec<Every>> {
    let words = rollup.texts("every")?.unwrap_or_else(|| vec!["day".to_owned()]);
    let mut every = Vec::new();
    for word in &words {
        let found = Every::ALL.iter().find(|(known, _)| known == word);
        let Some((_, found)) = found.filter(|(_, found)| !every.contains(found)) else {
            return Err(rollup.bad(
                "every",
                format!("{word:?} is not one of hour, day, week, month, each once"),
            ));
        };
        every.push(*found);
    }
    if every.is_empty() {
        return Err(rollup.bad("every", "there has to be one of hour, day, week, month"));
    }
    Ok(every)
}

/// Reads sets of attributes; by default there is one, of all.
fn by(rollup: &mut Fields, attributes: &[(String, Vec<String>)]) -> Read<Vec<Vec<usize>>> {
    let all = || vec![(0..attributes.len()).collect::<Vec<_>>()];
    let sets = match rollup.take("by") {
        None => return Ok(all()),
        Some(Value::Array(sets)) if !sets.is_empty() => sets,
        Some(_) => return Err(rollup.bad("by", "it has to be a list of lists of attributes")),
    };
    if sets.len() > SETS_MAX || attributes.len() > SETS_MAX {
        return Err(rollup.bad("by", format!("there are at most {SETS_MAX} sets and attributes")));
    }
    let mut by = Vec::new();
    for set in sets {
        let Value::Array(names) = set else {
            return Err(rollup.bad("by", "it has to be a list of lists of attributes"));
        };
        let mut places = Vec::new();
        for name in names {
            let place = attributes
                .iter()
                .position(|(known, _)| name.as_str() == Some(known));
            let Some(place) = place.filter(|place| !places.contains(place)) else {
                return Err(rollup.bad(
                    "by",
                    format!(
                        "{:?} is none of the attributes, each once",
                        name.as_str().unwrap_or_default()
                    ),
                ));
            };
            places.push(place);
        }
        places.sort_unstable();
        if by.contains(&places) {
            return Err(rollup.bad("by", "a set is there twice"));
        }
        by.push(places);
    }
    Ok(by)
}

/// Reads the number of distinct values that a row has to have to be shown.
fn threshold(rollup: &mut Fields, figures: &[(String, Figure)]) -> Read<Option<(String, u64)>> {
    if !rollup.has("threshold") {
        return Ok(None);
    }
    let mut fields = rollup.below("threshold")?;
    let value = fields.required("value")?;
    let is_distinct =
        |(name, figure): &(String, Figure)| *name == value && matches!(figure, Figure::Distinct { .. });
    if !figures.iter().any(is_distinct) {
        return Err(fields.bad("value", format!("{value:?} is no distinct count")));
    }
    let shows_single =
        |(_, figure): &(String, Figure)| matches!(figure, Figure::Min { .. } | Figure::Max { .. });
    if figures.iter().any(shows_single) {
        return Err(fields.bad("value", "min and max show single records: not with a threshold"));
    }
    let Some(least) = fields.count("least")? else {
        return Err(fields.bad("least", "it is missing"));
    };
    fields.end()?;
    Ok(Some((value, least)))
}

/// Reads a value; a mean is two figures.
fn read_figure(name: &str, mut fields: Fields, figures: &mut Vec<(String, Figure)>) -> Read<()> {
    let scale = fields.whole("scale", SCALE_MAX)?.unwrap_or(0);
    let scale = u16::try_from(scale).unwrap_or(u16::MAX);
    let mut found = Vec::new();
    if fields.flag("count")?.unwrap_or(false) {
        found.push((name.to_owned(), Figure::Count));
    }
    if let Some(path) = fields.text("sum")?.as_deref().map(path_of) {
        found.push((name.to_owned(), Figure::Sum { path, scale }));
    }
    if let Some(path) = fields.text("min")?.as_deref().map(path_of) {
        found.push((name.to_owned(), Figure::Min { path, scale }));
    }
    if let Some(path) = fields.text("max")?.as_deref().map(path_of) {
        found.push((name.to_owned(), Figure::Max { path, scale }));
    }
    if let Some(path) = fields.text("distinct")?.as_deref().map(path_of) {
        found.push((name.to_owned(), Figure::Distinct { path }));
    }
    let mean = fields.text("mean")?.as_deref().map(path_of);
    if found.len() + usize::from(mean.is_some()) != 1 {
        return Err(fields.bad("", "a value has one of count, sum, mean, min, max and distinct"));
    }
    if let Some(path) = mean {
        let sum = Figure::Sum {
            path: path.clone(),
            scale,
        };
        found.push((format!("{name}_sum"), sum));
        found.push((format!("{name}_count"), Figure::CountOf { path }));
    }
    fields.end()?;
    figures.extend(found);
    Ok(())
}
