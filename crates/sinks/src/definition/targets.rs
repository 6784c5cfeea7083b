//! Targets, as a definition declares them.

use std::collections::BTreeMap;

use stafett_model::Codec;

use super::DefinitionError;
use super::sources::{broker_of, login};
use super::stores::{self, ClickhouseSpec, DeltaSpec, DucklakeSpec, MongodbSpec};
use crate::columns::{Column, Kind};
use crate::fields::Fields;
pub use stafett_objects::bucket::BucketSpec;

use crate::secret::Secret;
use crate::target::files::parquet;
use crate::target::{clickhouse, delta, mongodb};

pub(super) const TIMEOUT_MS: u64 = 30_000;
/// Header names and values of a webhook, at most.
const HEADERS_MAX: usize = 32;

/// Kind of target, with its own fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    Files(FilesSpec),
    Postgres(PostgresSpec),
    Topic(TopicSpec),
    Amqp(AmqpSpec),
    Webhook(WebhookSpec),
    Ducklake(DucklakeSpec),
    Delta(DeltaSpec),
    Mongodb(MongodbSpec),
    Clickhouse(ClickhouseSpec),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesSpec {
    pub path: String,
    /// The bucket, where the path is not that of a folder.
    pub bucket: Option<BucketSpec>,
    pub format: Format,
    pub compression: Compression,
    /// Records of a file, at most.
    pub split_records: Option<usize>,
    /// True if the first line of a CSV file has the columns' names.
    pub header: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Ndjson,
    Csv,
    Parquet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSpec {
    pub url: Secret,
    pub schema: String,
    pub table: String,
    /// True if missing tables and columns are made.
    pub create: bool,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
}

/// A topic of this or another broker, over Kafka's protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// The other broker. `None` is the broker of the sink.
    pub broker: Option<super::BrokerSpec>,
    pub topic: String,
    /// Field of the value that becomes the key. Without one, the record's own key stays.
    pub key: Option<Vec<String>>,
    pub codec: Codec,
    /// True if a record goes to the partition of the number that it came from.
    pub keeps_partitions: bool,
    /// True if each record has a header with its place.
    pub marks_place: bool,
}

/// An exchange or queue of a broker, over AMQP 0-9-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpSpec {
    pub url: Secret,
    /// PEM file of trusted authorities, with TLS. `None` is those of the system.
    pub ca: Option<String>,
    /// Empty is the default exchange, whose routing keys are the names of queues.
    pub exchange: String,
    pub routing_key: String,
}

/// A receiver of batches over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSpec {
    pub url: Secret,
    pub form: BodyForm,
    /// Key of the signatures.
    pub secret: Option<Secret>,
    pub headers: BTreeMap<String, Secret>,
    /// Address at which the receiver tells its positions.
    pub position_url: Option<Secret>,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
    pub timeout_ms: u64,
}

/// Form of a batch in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    Json,
    Ndjson,
    CloudEvents,
}

impl TargetSpec {
    /// Returns the word of the kind.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Files(_) => "files",
            Self::Postgres(_) => "postgres",
            Self::Topic(_) => "topic",
            Self::Amqp(_) => "amqp",
            Self::Webhook(_) => "webhook",
            Self::Ducklake(_) => "ducklake",
            Self::Delta(_) => "delta",
            Self::Mongodb(_) => "mongodb",
            Self::Clickhouse(_) => "clickhouse",
        }
    }

    /// True if the target itself knows how far it is.
    pub(super) fn holds_positions(&self) -> bool {
        match self {
            Self::Files(_)
            | Self::Postgres(_)
            | Self::Topic(_)
            | Self::Ducklake(_)
            | Self::Delta(_)
            | Self::Mongodb(_) => true,
            Self::Amqp(_) | Self::Clickhouse(_) => false,
            Self::Webhook(spec) => spec.position_url.is_some(),
        }
    }

    /// True if parts of a batch are known by the numbers of their rows: one that is converted again has to
    /// have the same rows.
    pub(super) fn halves_by_rows(&self) -> bool {
        matches!(self, Self::Clickhouse(_) | Self::Mongodb(_))
    }

    /// Records of a flush, if the definition does not say.
    pub(super) fn flush_records(&self) -> u64 {
        match self {
            Self::Files(_) | Self::Postgres(_) | Self::Ducklake(_) | Self::Delta(_) | Self::Clickhouse(_) => {
                30_000
            }
            Self::Topic(_) | Self::Amqp(_) => 10_000,
            Self::Mongodb(_) => 500,
            Self::Webhook(_) => 100,
        }
    }

    /// Returns columns in front of those of the value: parts of the record that go along.
    pub(super) fn carried(&self) -> Vec<Column> {
        let key = match self {
            Self::Topic(TopicSpec { key, .. }) => key.clone(),
            Self::Amqp(_) => None,
            Self::Files(_)
            | Self::Postgres(_)
            | Self::Webhook(_)
            | Self::Ducklake(_)
            | Self::Delta(_)
            | Self::Mongodb(_)
            | Self::Clickhouse(_) => return Vec::new(),
        };
        Column::carried(key)
    }

    /// True if values go over as bytes, whatever they are.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self, Self::Topic(_) | Self::Amqp(_))
    }

    /// True if a value may go over as one JSON document.
    pub(super) fn takes_json(&self) -> bool {
        match self {
            Self::Files(spec) => spec.format == Format::Ndjson,
            Self::Postgres(_) | Self::Ducklake(_) | Self::Delta(_) | Self::Clickhouse(_) => false,
            Self::Topic(_) | Self::Amqp(_) | Self::Webhook(_) | Self::Mongodb(_) => true,
        }
    }

    /// Refuses columns that the store has no type or name for.
    pub(super) fn takes(&self, columns: &[Column]) -> Result<(), String> {
        let digits_max = match self {
            Self::Files(spec) if spec.format == Format::Parquet => parquet::DIGITS_MAX,
            Self::Ducklake(_) | Self::Delta(_) => parquet::DIGITS_MAX,
            Self::Mongodb(_) => mongodb::DIGITS_MAX,
            Self::Clickhouse(_) => clickhouse::DIGITS_MAX,
            Self::Files(_) | Self::Postgres(_) | Self::Topic(_) | Self::Amqp(_) | Self::Webhook(_) => {
                u16::MAX
            }
        };
        for Column { name, kind, .. } in columns {
            if let Kind::Numeric { precision, .. } = kind
                && *precision > digits_max
            {
                return Err(format!(
                    "{name} is {kind}: this target has {digits_max} digits at most"
                ));
            }
            if matches!(self, Self::Delta(_)) && delta::type_of(*kind).is_none() {
                return Err(format!(
                    "{name} is {kind}, and a Delta table has no such type: text or timestamptz"
                ));
            }
            if matches!(self, Self::Mongodb(_)) && name == mongodb::ID {
                return Err(format!("{name} is the sink's own: it has the record's place"));
            }
        }
        Ok(())
    }
}

pub(super) fn target(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let kind = fields.required("to")?;
    match &*kind {
        "files" => files(fields),
        "postgres" => postgres(fields),
        "topic" => topic(fields),
        "amqp" => amqp(fields),
        "webhook" => webhook(fields),
        "mongodb" => stores::mongodb(fields),
        "clickhouse" => stores::clickhouse(fields),
        "parquet" => Err(fields.bad("to", "Parquet is a format: to = \"files\", format = \"parquet\"")),
        "ducklake" => stores::ducklake(fields),
        "delta" => stores::delta(fields),
        "warehouse" => {
            let why = "rows go to a warehouse as files with manifests (to = \"files\"), which it copies";
            Err(fields.bad("to", why))
        }
        _ => {
            let why = format!(
                "there is no target {kind:?}: files, postgres, topic, amqp, webhook, ducklake, delta, mongodb or clickhouse"
            );
            Err(fields.bad("to", why))
        }
    }
}

fn files(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let path = fields.required("path")?;
    let bucket = bucket(fields, &path)?;
    let formats = [
        ("ndjson", Format::Ndjson),
        ("csv", Format::Csv),
        ("parquet", Format::Parquet),
    ];
    let format = fields.word("format", &formats)?.unwrap_or(Format::Ndjson);
    // The first is the default.
    let codecs: &[(&str, Compression)] = match format {
        Format::Ndjson | Format::Csv => &[
            ("none", Compression::None),
            ("gzip", Compression::Gzip),
            ("zstd", Compression::Zstd),
        ],
        Format::Parquet => &[("zstd", Compression::Zstd), ("none", Compression::None)],
    };
    let compression = fields.word("compression", codecs)?;
    let header = fields.flag("header")?.unwrap_or(format == Format::Csv);
    let mut split = fields.below("split")?;
    let split_records = split.count("records")?;
    split.end()?;
    Ok(TargetSpec::Files(FilesSpec {
        path,
        bucket,
        format,
        compression: compression.unwrap_or(Compression::None),
        split_records: split_records.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        header,
    }))
}

/// Reads the bucket of a path `s3://BUCKET/PREFIX`. `None` for the path of a folder.
pub(super) fn bucket(fields: &mut Fields, path: &str) -> Result<Option<BucketSpec>, DefinitionError> {
    let Some((scheme, rest)) = path.split_once("://") else {
        return Ok(None);
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/=".contains(c);
    if scheme != "s3" || bucket.is_empty() || !rest.chars().all(is_plain) {
        let why =
            "it is a folder, or s3://BUCKET/PREFIX of letters, digits, dots, dashes, underscores and slashes";
        return Err(fields.bad("path", why));
    }
    let prefix = prefix.trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    let region = fields.text("region")?.unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = fields.text("endpoint")?;
    let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    if endpoint.contains('@') {
        return Err(fields.bad(
            "endpoint",
            "the login is a field of its own: login = \"env:NAME\"",
        ));
    }
    Ok(Some(BucketSpec {
        bucket: bucket.to_owned(),
        prefix: format!("{prefix}{slash}"),
        endpoint,
        region,
        login: login(fields, "login")?,
        is_host_style: fields
            .word("style", &[("path", false), ("host", true)])?
            .unwrap_or(false),
        ca: fields.text("ca")?,
    }))
}

fn postgres(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let url = address(fields, "url")?;
    Ok(TargetSpec::Postgres(PostgresSpec {
        url,
        schema: fields.text("schema")?.unwrap_or_else(|| "public".to_owned()),
        table: fields.required("table")?,
        create: fields.flag("create")?.unwrap_or(false),
        ca: fields.text("ca")?,
    }))
}

fn topic(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let codecs = [
        ("none", Codec::None),
        ("gzip", Codec::Gzip),
        ("snappy", Codec::Snappy),
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd),
    ];
    let broker = broker_of(fields, "servers")?;
    let partitions = [("key", false), ("same", true)];
    let key = fields.text("key")?;
    Ok(TargetSpec::Topic(TopicSpec {
        broker,
        topic: fields.required("topic")?,
        key: key.map(|path| path.split('.').map(str::to_owned).collect()),
        codec: fields.word("compression", &codecs)?.unwrap_or(Codec::None),
        keeps_partitions: fields.word("partitions", &partitions)?.unwrap_or(false),
        marks_place: fields.flag("mark")?.unwrap_or(false),
    }))
}

fn amqp(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    Ok(TargetSpec::Amqp(AmqpSpec {
        url: address(fields, "url")?,
        ca: fields.text("ca")?,
        exchange: fields.text("exchange")?.unwrap_or_default(),
        routing_key: fields.required("routing_key")?,
    }))
}

fn webhook(fields: &mut Fields) -> Result<TargetSpec, DefinitionError> {
    let forms = [
        ("json", BodyForm::Json),
        ("ndjson", BodyForm::Ndjson),
        ("cloudevents", BodyForm::CloudEvents),
    ];
    let url = address(fields, "url")?;
    let secret = login(fields, "secret")?;
    let mut headers = BTreeMap::new();
    for (path, name, value) in fields.below("headers")?.rest() {
        let why = "a header is a text, or env:NAME, or file:PATH";
        let bad = || DefinitionError::Bad {
            path: path.clone(),
            why: why.to_owned(),
        };
        let text = value.as_str().ok_or_else(bad)?;
        if hyper::header::HeaderName::try_from(&*name).is_err() || headers.len() >= HEADERS_MAX {
            return Err(bad());
        }
        headers.insert(name, Secret::parse(text));
    }
    let position_url = if fields.has("position_url") {
        Some(address(fields, "position_url")?)
    } else {
        None
    };
    Ok(TargetSpec::Webhook(WebhookSpec {
        url,
        form: fields.word("format", &forms)?.unwrap_or(BodyForm::Json),
        secret,
        headers,
        position_url,
        ca: fields.text("ca")?,
        timeout_ms: fields.time("timeout")?.unwrap_or(TIMEOUT_MS),
    }))
}

/// Reads an address, which may stand elsewhere. One with a password has to.
pub(super) fn address(fields: &mut Fields, name: &str) -> Result<Secret, DefinitionError> {
    let url = Secret::parse(&fields.required(name)?);
    if url.is_plain() && has_password(&url.to_string()) {
        let why = "it has a password: write env:NAME or file:PATH, and keep the address there";
        return Err(fields.bad(name, why));
    }
    Ok(url)
}

/// True if an address has a password: `postgres://USER:PASSWORD@…` or `password=…`.
fn has_password(url: &str) -> bool {
    let login = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
    login.is_some_and(|(login, _)| login.contains(':')) || url.contains("password=")
}
