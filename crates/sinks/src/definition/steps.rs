//! Steps of a transform, as a definition declares them.

use std::sync::Arc;

use toml::Value;

use stafett_expr::{Expression, PlacedRecord, zone};

use super::sources::login;
use super::targets::address;
use super::{DefinitionError, TargetSpec};
use crate::columns::Kind;
use crate::computed::{TwoTimes, Unit};
use crate::fields::Fields;
use crate::lookup::{Lookup, Missing};
use crate::personal::{HashKey, Mask};
use crate::query::Query;
use crate::transform::{Cast, Flatten, Step};

/// Levels that are flattened, at most.
const DEPTH_MAX: u64 = 16;
/// Memory of the table of a look-up, unless its step has another bound; and the highest one.
const TABLE_BYTES: u64 = 64 << 20;
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Time for which the row of a database counts as it was read, unless its step has another one.
const CACHE_MS: u64 = 10 * 60 * 1000;
const CACHE_MS_MIN: u64 = 1000;
/// Memory of all tables of a sink.
const TABLES_BYTES_MAX: usize = 1 << 30;

pub(super) fn read(fields: &mut Fields, target: &TargetSpec) -> Result<Vec<Step>, DefinitionError> {
    let steps = match fields.take("transform") {
        None => return Ok(Vec::new()),
        Some(Value::Array(steps)) => steps,
        Some(_) => return Err(fields.bad("transform", "it has to be a list of steps")),
    };
    let mut read = Vec::with_capacity(steps.len());
    for (place, value) in steps.into_iter().enumerate() {
        let why =
            "a step has one of keep, drop, rename, cast, flatten, hash, mask, where, set, time and lookup";
        let bad = fields.bad(&format!("transform.{place}"), why);
        let Value::Table(table) = value else {
            return Err(bad);
        };
        let mut verbs = table.into_iter();
        let (Some((verb, value)), None) = (verbs.next(), verbs.next()) else {
            return Err(bad);
        };
        read.push(step(&verb, value, bad)?);
    }
    let tables = read.iter().filter_map(Step::lookup);
    if tables.map(|lookup| lookup.bytes_max).sum::<usize>() > TABLES_BYTES_MAX {
        return Err(fields.bad("transform", "the tables of a sink take at most 1GiB together"));
    }
    if target.halves_by_rows() {
        same_rows(&read).map_err(|why| fields.bad("transform", why))?;
    }
    Ok(read)
}

/// Reads the steps that raise a version, in their order.
pub(super) fn verbs(fields: Fields) -> Result<Vec<Step>, DefinitionError> {
    const KNOWN: [&str; 7] = ["keep", "drop", "rename", "cast", "flatten", "set", "time"];
    let steps = fields.rest().map(|(path, verb, value)| {
        let bad = refused(
            path,
            "a version is raised by keep, drop, rename, cast, flatten, set and time",
        );
        if KNOWN.contains(&&*verb) {
            step(&verb, value, bad)
        } else {
            Err(bad)
        }
    });
    steps.collect()
}

/// Refuses steps by which the rows of a table decide the number of rows.
fn same_rows(steps: &[Step]) -> Result<(), &'static str> {
    let mut is_behind = false;
    for step in steps {
        let lookup = step.lookup().map(|lookup| lookup.missing);
        let missing = lookup.or_else(|| step.query().map(|query| query.missing));
        if let Some(missing) = missing {
            if missing == Missing::Poison {
                return Err(
                    "a look-up into this target has missing = \"null\": tables change between attempts",
                );
            }
            is_behind = true;
        } else if is_behind && matches!(step, Step::Where(_)) {
            return Err("into this target, where comes before a look-up: tables change between attempts");
        }
    }
    Ok(())
}

fn step(verb: &str, value: Value, bad: DefinitionError) -> Result<Step, DefinitionError> {
    let paths = |value: &Value| {
        let texts = if let Some(text) = value.as_str() {
            vec![text.to_owned()]
        } else {
            let texts = value.as_array()?.iter();
            texts
                .map(|text| text.as_str().map(str::to_owned))
                .collect::<Option<_>>()?
        };
        let paths = texts
            .iter()
            .map(|text| text.split('.').map(str::to_owned).collect());
        Some(paths.collect())
    };
    match verb {
        "keep" => paths(&value).map(Step::Keep).ok_or(bad),
        "drop" => paths(&value).map(Step::Drop).ok_or(bad),
        "rename" => {
            let names = Fields::new("rename", value)?.rest();
            let names = names.map(|(path, old, new)| match new.as_str() {
                Some(new) => Ok((old, new.to_owned())),
                None => Err(refused(path, "it has to be the new name")),
            });
            Ok(Step::Rename(names.collect::<Result<_, _>>()?))
        }
        "cast" => {
            let casts = Fields::new("cast", value)?.rest();
            let casts = casts.map(|(path, name, to)| {
                let cast = match to.as_str() {
                    Some("midnight") => Some(Cast::Midnight),
                    Some("json") => Some(Cast::Json),
                    Some(text) => Kind::parse(text).filter(|kind| is_cast(*kind)).map(Cast::Kind),
                    None => None,
                };
                let known =
                    "bigint, double, numeric(p,s), boolean, text, timestamptz, date, midnight or json";
                cast.map(|cast| (name, cast))
                    .ok_or_else(|| refused(path, &format!("a cast is to {known}")))
            });
            Ok(Step::Cast(casts.collect::<Result<_, _>>()?))
        }
        "flatten" => flatten(Fields::new("flatten", value)?),
        "hash" => {
            let mut fields = Fields::new("hash", value)?;
            let named = fields.take("fields").as_ref().and_then(paths).ok_or(bad)?;
            let key = login(&mut fields, "key")?;
            let key = key.ok_or_else(|| refused("hash.key".to_owned(), "it is missing"))?;
            fields.end()?;
            Ok(Step::Hash(named, HashKey::new(key)))
        }
        "mask" => mask(Fields::new("mask", value)?),
        "where" => match value.as_str() {
            Some(text) => expression("where".to_owned(), text).map(Step::Where),
            None => Err(refused("where".to_owned(), "it has to be an expression")),
        },
        "set" => set(Fields::new("set", value)?),
        "time" => two_times(Fields::new("time", value)?).map(Step::Time),
        "lookup" => {
            let fields = Fields::new("lookup", value)?;
            if fields.has("url") {
                query(fields).map(Step::Query)
            } else {
                lookup(fields).map(Step::Lookup)
            }
        }
        _ => Err(bad),
    }
}

fn set(fields: Fields) -> Result<Step, DefinitionError> {
    let fields = fields.rest().map(|(path, name, value)| match value.as_str() {
        Some(text) => Ok((name, expression(path, text)?)),
        None => Err(refused(
            path,
            "it has to be an expression: a text in it has quotes of its own",
        )),
    });
    Ok(Step::Set(fields.collect::<Result<_, _>>()?))
}

fn expression(path: String, text: &str) -> Result<Expression, DefinitionError> {
    Expression::compile(text, PlacedRecord::VARIABLES).map_err(|why| refused(path, &why.to_string()))
}

/// Reads the time of records, and the zone of their days.
pub(super) fn time(fields: &mut Fields) -> Result<TwoTimes, DefinitionError> {
    let units = [
        ("ms", Unit::Milliseconds),
        ("s", Unit::Seconds),
        ("us", Unit::Microseconds),
    ];
    let field = fields.required("field")?;
    let unit = fields.word("unit", &units)?.unwrap_or(Unit::Milliseconds);
    let zone_field = fields.text("zone_field")?;
    let named = fields.text("zone")?;
    let zone = named.as_deref().map(zone).transpose();
    let zone = zone.map_err(|why| fields.bad("zone", why.to_string()))?;
    Ok(TwoTimes {
        field,
        unit,
        utc: None,
        local: None,
        zone_field,
        zone,
    })
}

fn two_times(mut fields: Fields) -> Result<TwoTimes, DefinitionError> {
    let mut times = time(&mut fields)?;
    (times.utc, times.local) = (fields.text("utc")?, fields.text("local")?);
    if times.utc.is_none() && times.local.is_none() {
        return Err(fields.bad("utc", "a time goes into utc, into local, or into both"));
    }
    if times.local.is_some() && times.zone.is_none() && times.zone_field.is_none() {
        return Err(fields.bad("zone", "a local time needs a zone, or a zone_field"));
    }
    fields.end()?;
    Ok(times)
}

fn lookup(mut fields: Fields) -> Result<Lookup, DefinitionError> {
    let topic = fields.required("topic")?;
    let key = expression("lookup.key".to_owned(), &fields.required("key")?)?;
    let add = fields.texts("add")?.unwrap_or_default();
    if add.is_empty() {
        return Err(fields.bad("add", "a look-up adds at least one field of the row"));
    }
    let missing = fields.word("missing", &[("null", Missing::Null), ("poison", Missing::Poison)])?;
    let bytes_max = fields.size("bytes_max")?.unwrap_or(TABLE_BYTES);
    if bytes_max > TABLE_BYTES_MAX {
        return Err(fields.bad("bytes_max", "a table takes at most 1GiB"));
    }
    fields.end()?;
    Ok(Lookup {
        topic,
        key,
        add,
        missing: missing.unwrap_or(Missing::Null),
        bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
        table: Arc::default(),
        layout: Arc::default(),
    })
}

/// Reads a look-up in a table of PostgreSQL.
fn query(mut fields: Fields) -> Result<Query, DefinitionError> {
    let url = address(&mut fields, "url")?;
    let key = expression("lookup.key".to_owned(), &fields.required("key")?)?;
    let add = fields.texts("add")?.unwrap_or_default();
    if add.is_empty() {
        return Err(fields.bad("add", "a look-up adds at least one column of the row"));
    }
    let missing = fields.word("missing", &[("null", Missing::Null), ("poison", Missing::Poison)])?;
    let cache_ms = fields.time("cache")?.unwrap_or(CACHE_MS);
    if cache_ms < CACHE_MS_MIN {
        return Err(fields.bad("cache", "rows are kept for at least 1s"));
    }
    let query = Query {
        url,
        ca: fields.text("ca")?,
        schema: fields.text("schema")?.unwrap_or_else(|| "public".to_owned()),
        table: fields.required("table")?,
        column: fields.required("column")?,
        key,
        add,
        missing: missing.unwrap_or(Missing::Null),
        cache_ms,
        cache: Arc::default(),
    };
    fields.end()?;
    Ok(query)
}

fn is_cast(kind: Kind) -> bool {
    !matches!(kind, Kind::Timestamp | Kind::Uuid | Kind::Bytea | Kind::Jsonb)
}

fn refused(path: String, why: &str) -> DefinitionError {
    DefinitionError::Bad {
        path,
        why: why.to_owned(),
    }
}

fn mask(mut fields: Fields) -> Result<Step, DefinitionError> {
    let path = fields.required("field")?.split('.').map(str::to_owned).collect();
    let bits = fields.count("bits")?.unwrap_or(24);
    let bits_v6 = fields.count("bits_v6")?.unwrap_or(48);
    let count = fields.count("count")?.unwrap_or(4);
    if bits > 32 || bits_v6 > 128 {
        return Err(fields.bad("bits", "an address has 32 bits, one of IPv6 128"));
    }
    let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
    let network = Mask::Network {
        bits: small(bits),
        bits_v6: small(bits_v6),
    };
    let last = Mask::Last(usize::try_from(count).unwrap_or(usize::MAX));
    let kinds = [("network", network), ("last", last), ("blank", Mask::Blank)];
    let mask = fields.word("with", &kinds)?.unwrap_or(network);
    fields.end()?;
    Ok(Step::Mask(path, mask))
}

fn flatten(mut fields: Fields) -> Result<Step, DefinitionError> {
    let field = fields.required("field")?;
    let separator = fields.text("separator")?.unwrap_or_else(|| "_".to_owned());
    let depth = fields.count("depth")?.unwrap_or(3).min(DEPTH_MAX);
    let indexes = fields.word("arrays", &[("json", false), ("index", true)])?;
    let max = fields.count("max")?.unwrap_or(100);
    let collide = fields.word("collide", &[("poison", false), ("last", true)])?;
    fields.end()?;
    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Step::Flatten(Flatten {
        field,
        separator,
        depth: small(depth),
        index_max: indexes.unwrap_or(false).then(|| small(max)),
        last_wins: collide.unwrap_or(false),
    }))
}

#[cfg(test)]
mod tests {
    use crate::definition::Definition;

    fn refusal(target: &str, steps: &[&str]) -> Option<String> {
        let steps: Vec<_> = [&[""], steps].concat();
        let steps = steps.join("\n[[sink.a.transform]]\n");
        let text = format!(
            "[sink.a]\nfrom = \"t\"\nto = \"{target}\"\nurl = \"env:U\"\n{}{steps}",
            match target {
                "clickhouse" => "table = \"t\"\n[sink.a.columns]\na = { type = \"text\" }\n",
                "mongodb" => "collection = \"c\"\n",
                _ => "",
            }
        );
        Definition::parse(&text).err().map(|why| why.to_string())
    }

    #[test]
    fn tables_do_not_decide_the_number_of_rows_where_parts_of_a_batch_are_known_by_it() {
        let lookup = "lookup = { topic = \"apps\", key = \"key\", add = [\"zone\"] }";
        let strict = "lookup = { topic = \"apps\", key = \"key\", add = [\"zone\"], missing = \"poison\" }";
        let condition = "where = \"value.zone != null\"";
        for target in ["clickhouse", "mongodb"] {
            assert_eq!(refusal(target, &[condition, lookup]), None, "{target}");
            let why = refusal(target, &[lookup, condition]).unwrap();
            assert!(why.contains("where comes before a look-up"), "{why}");
            let why = refusal(target, &[strict]).unwrap();
            assert!(why.contains("missing = \"null\""), "{why}");
        }
        assert_eq!(refusal("webhook", &[strict, condition]), None);
    }

    #[test]
    fn look_ups_in_a_database_are_read_and_keep_no_password() {
        let query = |more: &str| {
            format!(
                "lookup = {{ url = \"env:APPS\", table = \"apps\", column = \"id\", key = \"key\", add = [\"zone\"]{more} }}"
            )
        };
        assert_eq!(refusal("webhook", &[&query("")]), None);
        assert_eq!(
            refusal("webhook", &[&query(", cache = \"1s\", missing = \"poison\"")]),
            None
        );
        for (more, why) in [
            (", cache = \"10ms\"", "rows are kept for at least 1s"),
            (", topic = \"apps\"", "lookup.topic: there is no such field"),
        ] {
            let refused = refusal("webhook", &[&query(more)]).unwrap();
            assert!(refused.contains(why), "{refused}");
        }
        let open = query("").replace("env:APPS", "postgres://u:secret@h/d");
        let refused = refusal("webhook", &[&open]).unwrap();
        assert!(
            refused.contains("it has a password") && !refused.contains("secret"),
            "{refused}"
        );
        for target in ["clickhouse", "mongodb"] {
            let refused = refusal(target, &[&query(", missing = \"poison\"")]).unwrap();
            assert!(refused.contains("missing = \"null\""), "{refused}");
            let refused = refusal(target, &[&query(""), "where = \"value.zone != null\""]).unwrap();
            assert!(refused.contains("where comes before a look-up"), "{refused}");
        }
    }

    #[test]
    fn the_tables_of_a_sink_have_a_bound_together() {
        let lookup = "lookup = { topic = \"apps\", key = \"key\", add = [\"zone\"], bytes_max = \"600MiB\" }";
        assert_eq!(refusal("webhook", &[lookup]), None);
        let why = refusal("webhook", &[lookup, lookup]).unwrap();
        assert!(why.contains("1GiB together"), "{why}");
    }
}
