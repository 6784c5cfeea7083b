//! A sink as its file declares it: `[sink.NAME]`. Unknown fields are refused, with their path.

mod rollups;
mod sources;
mod steps;
mod stores;
mod targets;
mod versions;

use std::sync::Arc;

use toml::Value;

use crate::columns::{Column, Kind, Origin};
use crate::convert::{OnUnknown, default_fits};
use crate::fields::Fields;
use crate::gather::FlushRules;
use crate::pace::Rate;
use crate::quiet::Quiet;
use crate::rollup::{Merge, Rollup};
use crate::secret::SecretError;
use crate::transform::Step;
use crate::turns::TurnRules;
pub use sources::{BrokerSpec, QueueSpec, SourceSpec};
pub use stores::{ClickhouseSpec, DeltaSpec, DucklakeSpec, MongodbSpec};
use targets::target;
pub use targets::{
    AmqpSpec, BodyForm, BucketSpec, Compression, FilesSpec, Format, PostgresSpec, TargetSpec, TopicSpec,
    WebhookSpec,
};

/// Bytes of a batch, at most: its buffer has to stay below 4 GiB, whatever a record adds.
const FLUSH_BYTES_MAX: u64 = 1 << 30;
const NAME_BYTES_MAX: usize = 200;

/// Reason why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("not TOML: {0}")]
    Syntax(String),
    #[error("not a definition: {0}")]
    Json(String),
    #[error("{path}: there is no such field")]
    Unknown { path: String },
    #[error("{path} is missing")]
    Missing { path: String },
    #[error("{path}: {why}")]
    Bad { path: String, why: String },
}

/// A sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    /// Stored topics with equally many partitions, or one queue (`queue:NAME`).
    pub from: Vec<String>,
    pub source: SourceSpec,
    pub begin: Begin,
    pub target: TargetSpec,
    pub mode: Mode,
    pub flush: FlushRules,
    pub columns: Vec<Column>,
    pub on_unknown: OnUnknown,
    /// False: the first poison record pauses the sink.
    pub dead_letters: bool,
    /// Poison records per period, in ms, above which the sink is paused.
    pub poison_max: (u64, u64),
    pub on_gap: OnGap,
    pub rate: Rate,
    pub turns: TurnRules,
    /// Times of day in which nothing is written.
    pub quiet: Vec<Quiet>,
    pub steps: Vec<Step>,
    /// Sums instead of rows.
    pub rollup: Option<Arc<Rollup>>,
}

/// Position of partitions of which the target knows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Time(i64),
}

impl Begin {
    /// Reads `earliest`, `latest` or a time (RFC 3339).
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            time => {
                let time = time.parse::<jiff::Timestamp>().ok()?;
                Some(Self::Time(time.as_millisecond()))
            }
        }
    }
}

/// Reaction to records that retention removed before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnGap {
    Stop,
    Skip,
}

/// Way in which rows meet those that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Append,
    /// The last record of a key wins.
    Upsert {
        key: Vec<String>,
    },
    /// Figures are added to those that are there.
    Rollup {
        key: Vec<String>,
        merges: Vec<(String, Merge)>,
        threshold: Option<(String, u64)>,
    },
}

impl Mode {
    fn of(rollup: &Rollup) -> Self {
        Self::Rollup {
            key: rollup.key(),
            merges: rollup.merges(),
            threshold: rollup.threshold.clone(),
        }
    }
}

impl Definition {
    /// Reads all sinks of a file.
    pub fn parse(text: &str) -> Result<Vec<Self>, DefinitionError> {
        let documents = Self::documents(text)?;
        Ok(documents.into_iter().map(|(sink, _)| sink).collect())
    }

    /// Reads all sinks of a file, each with its fields as JSON: the form in which a broker keeps it.
    pub fn documents(text: &str) -> Result<Vec<(Self, String)>, DefinitionError> {
        let table: toml::Table = text
            .parse()
            .map_err(|why: toml::de::Error| DefinitionError::Syntax(why.to_string().trim().to_owned()))?;
        let mut sinks = Vec::new();
        for (kind, value) in table {
            // A file may describe a whole pipeline; endpoints are read elsewhere.
            if kind == "ingest" {
                continue;
            }
            if kind != "sink" {
                return Err(DefinitionError::Unknown { path: kind });
            }
            for (path, name, value) in Fields::new("sink", value)?.rest() {
                let json = serde_json::to_string(&value);
                let json = json.map_err(|why| DefinitionError::Syntax(why.to_string()))?;
                sinks.push((Self::read(&name, Fields::new(path, value)?)?, json));
            }
        }
        if sinks.is_empty() {
            let path = "sink.NAME".to_owned();
            return Err(DefinitionError::Missing { path });
        }
        Ok(sinks)
    }

    /// Reads one sink from its fields as JSON.
    pub fn from_json(name: &str, json: &str) -> Result<Self, DefinitionError> {
        let table: toml::Table =
            serde_json::from_str(json).map_err(|why| DefinitionError::Json(why.to_string()))?;
        Self::read(name, Fields::new(format!("sink.{name}"), Value::Table(table))?)
    }

    /// Returns the name of the app that has the claims of the sink.
    pub fn app(&self) -> String {
        format!("sink.{}", self.name)
    }

    /// Returns the definition with the secrets of its steps, as they are now.
    pub fn with_keys(&self) -> Result<Self, SecretError> {
        let mut ready = self.clone();
        for step in &mut ready.steps {
            step.read_keys()?;
        }
        Ok(ready)
    }

    /// Returns the topics of its tables.
    pub fn tables(&self) -> Vec<String> {
        let lookups = self.steps.iter().filter_map(Step::lookup);
        lookups.map(|lookup| lookup.topic.clone()).collect()
    }

    /// True if the target holds no positions, and the app of the sink does.
    pub fn keeps_positions_in_app(&self) -> bool {
        !self.target.holds_positions()
    }

    /// Returns the group of another broker that shares its partitions among the processes of the sink.
    pub fn group(&self) -> String {
        format!("stafett-sink.{}", self.name)
    }

    /// Returns the topic of records that are not written.
    pub fn dead_topic(&self) -> String {
        format!("{}.dead", self.name)
    }

    fn read(name: &str, mut fields: Fields) -> Result<Self, DefinitionError> {
        let is_sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sound) {
            let why = "a name has 1 to 200 letters, digits, dots, dashes and underscores";
            return Err(fields.bad("", why));
        }
        let from = match fields.take("from") {
            Some(Value::String(topic)) => vec![topic],
            Some(Value::Array(topics)) if !topics.is_empty() => {
                let texts = topics.iter().map(|topic| topic.as_str().map(str::to_owned));
                texts
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| fields.bad("from", "it has to be a list of topics"))?
            }
            _ => return Err(fields.bad("from", "it has to be a list of topics")),
        };
        let source = sources::read(&mut fields, &from)?;
        let begin = begin(&mut fields)?;
        let target = target(&mut fields)?;
        if !target.holds_positions() && source != SourceSpec::Own {
            let why = "records of another broker, and queues, need a target that holds positions";
            return Err(fields.bad("source", why));
        }
        let place = fields.flag("place")?.unwrap_or(false);
        let steps = all_steps(&mut fields, &target)?;
        let rollup = rollups::read(&mut fields, &target)?.map(Arc::new);
        let columns = match &rollup {
            Some(rollup) => rollup.columns(),
            None => columns(&mut fields, &target, place, !steps.is_empty())?,
        };
        target.takes(&columns).map_err(|why| fields.bad("columns", why))?;
        let mode = match &rollup {
            Some(rollup) => Mode::of(rollup),
            None => mode(&mut fields, &target, &columns)?,
        };
        let flush = flush(&mut fields, target.flush_records())?;
        let on_unknown = [
            ("rest", OnUnknown::Rest),
            ("drop", OnUnknown::Drop),
            ("refuse", OnUnknown::Refuse),
        ];
        let on_unknown = fields.word("on_unknown", &on_unknown)?;
        let dead_letters = fields.word("on_poison", &[("dead_letter", true), ("stop", false)])?;
        let poison_max = fields.rate("poison_max")?.unwrap_or((100, 60_000));
        let on_gap = fields.word("on_gap", &[("stop", OnGap::Stop), ("skip", OnGap::Skip)])?;
        let (rate, turns) = limit(&mut fields)?;
        let quiet = quiet(&mut fields)?;
        fields.end()?;
        Ok(Self {
            name: name.to_owned(),
            from,
            source,
            begin,
            target,
            mode,
            flush,
            columns,
            on_unknown: on_unknown.unwrap_or(OnUnknown::Rest),
            dead_letters: dead_letters.unwrap_or(true),
            poison_max,
            on_gap: on_gap.unwrap_or(OnGap::Stop),
            rate,
            turns,
            quiet,
            steps,
            rollup,
        })
    }
}

/// Reads all changes to a record, in their order.
fn all_steps(fields: &mut Fields, target: &TargetSpec) -> Result<Vec<Step>, DefinitionError> {
    let versions = versions::read(fields)?;
    Ok(versions.into_iter().chain(steps::read(fields, target)?).collect())
}

fn limit(fields: &mut Fields) -> Result<(Rate, TurnRules), DefinitionError> {
    let mut limit = fields.below("limit")?;
    let rate = Rate {
        rows_per_s: limit.count("rows_per_s")?,
        bytes_per_s: limit.size("bytes_per_s")?,
    };
    let turns = TurnRules {
        parallel: limit.count("parallel")?,
        slow_ms: limit.time("commit")?,
    };
    limit.end()?;
    Ok((rate, turns))
}

fn quiet(fields: &mut Fields) -> Result<Vec<Quiet>, DefinitionError> {
    let texts = fields.texts("quiet")?.unwrap_or_default();
    let read = texts.iter().map(|text| {
        Quiet::parse(text).ok_or_else(|| {
            let why = format!("{text:?} is no time of day, such as 08:00-09:00 Europe/Stockholm");
            fields.bad("quiet", why)
        })
    });
    read.collect()
}

fn begin(fields: &mut Fields) -> Result<Begin, DefinitionError> {
    let Some(text) = fields.text("begin")? else {
        return Ok(Begin::Earliest);
    };
    Begin::parse(&text).ok_or_else(|| {
        let why = format!("{text:?} is not earliest, latest or a time such as 2026-11-22T16:00:00Z");
        fields.bad("begin", why)
    })
}

fn flush(fields: &mut Fields, records: u64) -> Result<FlushRules, DefinitionError> {
    let mut flush = fields.below("flush")?;
    let bytes = flush.size("bytes")?.unwrap_or(64 << 20);
    if bytes > FLUSH_BYTES_MAX {
        return Err(flush.bad("bytes", "a batch has at most 1GiB"));
    }
    let records = flush.count("records")?.unwrap_or(records);
    let every_ms = flush.time("every")?.unwrap_or(1000);
    flush.end()?;
    Ok(FlushRules {
        records: usize::try_from(records).unwrap_or(usize::MAX),
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        every_ms,
    })
}

fn columns(
    fields: &mut Fields,
    target: &TargetSpec,
    place: bool,
    is_changed: bool,
) -> Result<Vec<Column>, DefinitionError> {
    let mut columns: Vec<Column> = target.carried();
    if place && columns.is_empty() {
        columns.extend(Column::of_place());
    }
    match fields.take("columns") {
        Some(value) => {
            let declared = Fields::new("columns", value)?;
            for (path, name, value) in declared.rest() {
                columns.push(column(&name, Fields::new(path, value)?)?);
            }
        }
        None if target.takes_bytes() && !is_changed => {
            columns.push(Column::new("value", Kind::Bytea, Origin::Value));
        }
        None if target.takes_json() => columns.push(Column::new("value", Kind::Jsonb, Origin::Whole)),
        None => return Err(fields.bad("columns", "the target needs columns, and there are none")),
    }
    let mut names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.array_windows().find(|[one, other]| one == other) {
        return Err(fields.bad("columns", format!("there are two columns {name}")));
    }
    let rests = columns.iter().filter(|column| column.origin == Origin::Rest);
    if rests.count() > 1 {
        return Err(fields.bad("columns", "one column may have the rest"));
    }
    Ok(columns)
}

fn column(name: &str, mut fields: Fields) -> Result<Column, DefinitionError> {
    let text = fields.required("type")?;
    let Some(kind) = Kind::parse(&text) else {
        let known =
            "text, boolean, bigint, double, numeric(p,s), timestamptz, timestamp, date, uuid, bytea or jsonb";
        return Err(fields.bad("type", format!("{text:?} is not one of {known}")));
    };
    let is_rest = fields.flag("rest")?.unwrap_or(false);
    if is_rest && kind != Kind::Jsonb {
        return Err(fields.bad("rest", "the rest is JSON: the type is jsonb"));
    }
    if name.is_empty() || name.contains('\0') || name.len() > 63 {
        return Err(fields.bad("", "a column's name has 1 to 63 bytes"));
    }
    let from = fields.text("from")?;
    let path = from.as_deref().unwrap_or(name);
    let origin = if is_rest {
        Origin::Rest
    } else {
        Origin::Path(path.split('.').map(str::to_owned).collect())
    };
    let mut column = Column::new(name, kind, origin);
    column.nullable = fields.flag("null")?.unwrap_or(true);
    if let Some(default) = fields.take("default") {
        let json = serde_json::to_string(&default).unwrap_or_default();
        default_fits(kind, &json).map_err(|why| fields.bad("default", why))?;
        column.default = Some(json);
    }
    fields.end()?;
    Ok(column)
}

fn mode(fields: &mut Fields, target: &TargetSpec, columns: &[Column]) -> Result<Mode, DefinitionError> {
    let upserts = fields.word("mode", &[("append", false), ("upsert", true)])?;
    let key = fields.texts("key")?;
    if !upserts.unwrap_or(false) {
        return match key {
            Some(_) => Err(fields.bad("key", "a key belongs to mode = \"upsert\"")),
            None => Ok(Mode::Append),
        };
    }
    if !matches!(target, TargetSpec::Postgres(_)) {
        return Err(fields.bad("mode", "this target appends"));
    }
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| fields.bad("key", "an upsert needs the columns of its key"))?;
    for name in &key {
        if !columns.iter().any(|column| column.name == *name) {
            return Err(fields.bad("key", format!("there is no column {name}")));
        }
    }
    Ok(Mode::Upsert { key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        [sink.events-pg]
        from = ["EventLog"]
        to = "postgres"
        url = "env:PG_URL"
        table = "event_log"
        mode = "upsert"
        key = ["id"]
        flush = { records = 500, bytes = "1MiB", every = "20m" }
        on_poison = "stop"
        poison_max = "5/s"
        limit = { rows_per_s = 50000 }
        place = true

        [sink.events-pg.columns]
        id = { type = "bigint", null = false }
        event_type = { from = "event.type", type = "text", default = "none" }
        rest = { type = "jsonb", rest = true }

        [[sink.events-pg.transform]]
        drop = ["message", "debug.*"]
    "#;

    #[test]
    fn a_whole_definition_is_read() {
        let [sink] = &Definition::parse(WHOLE).unwrap()[..] else {
            panic!("one sink");
        };
        assert_eq!(
            (&*sink.name, &*sink.app(), &*sink.dead_topic()),
            ("events-pg", "sink.events-pg", "events-pg.dead")
        );
        assert_eq!(
            (sink.flush.records, sink.flush.bytes, sink.flush.every_ms),
            (500, 1 << 20, 1_200_000)
        );
        assert_eq!((sink.dead_letters, sink.poison_max), (false, (5, 1000)));
        let names: Vec<_> = sink.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(
            names,
            ["_topic", "_partition", "_offset", "id", "event_type", "rest"]
        );
        let event_type = &sink.columns[4];
        assert_eq!(
            event_type.origin,
            Origin::Path(vec!["event".into(), "type".into()])
        );
        assert_eq!(event_type.default.as_deref(), Some("\"none\""));
        assert_eq!(sink.steps.len(), 1);
    }

    #[test]
    fn mistakes_are_refused_with_their_paths() {
        for (change, why) in [
            (
                ("records = 500", "record = 500"),
                "sink.events-pg.flush.record: there is no such field",
            ),
            (("table = \"event_log\"", ""), "sink.events-pg.table is missing"),
            (
                ("place = true", "place = 1"),
                "sink.events-pg.place: it is integer, and has to be true or false",
            ),
            (
                ("\"20m\"", "\"20 parsecs\""),
                "sink.events-pg.flush.every: it is string, and has to be a time such as \"20m\"",
            ),
            (
                ("key = [\"id\"]", "key = [\"none\"]"),
                "sink.events-pg.key: there is no column none",
            ),
            (
                ("env:PG_URL", "postgres://me:secret@db/x"),
                "sink.events-pg.url: it has a password: write env:NAME or file:PATH, and keep the address there",
            ),
            (
                ("default = \"none\"", "default = 3"),
                "columns.event_type.default: 3 is no text",
            ),
            (
                ("to = \"postgres\"", "to = \"warehouse\""),
                "sink.events-pg.to: rows go to a warehouse as files with manifests (to = \"files\"), which it copies",
            ),
            (
                ("place = true", "quiet = [\"at noon\"]"),
                "sink.events-pg.quiet: \"at noon\" is no time of day, such as 08:00-09:00 Europe/Stockholm",
            ),
            (
                ("[sink.events-pg]", "[sunk.events-pg]"),
                "sunk: there is no such field",
            ),
            (
                ("drop =", "drip ="),
                "sink.events-pg.transform.0: a step has one of keep, drop, rename, cast, flatten, hash, mask, where, set, time and lookup",
            ),
        ] {
            let text = WHOLE.replace(change.0, change.1);
            assert_ne!(text, WHOLE, "{change:?}");
            assert_eq!(Definition::parse(&text).unwrap_err().to_string(), why);
        }
    }
}
