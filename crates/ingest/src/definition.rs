//! Endpoints as their file declares them: `[ingest.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderName, StatusCode};
use serde::Deserialize;

use crate::events::Unknown;
use crate::filter::Filter;
use crate::keys::Key;
use crate::limit::Limit;
use crate::schema::Schema;
use crate::token::{Check, TokenPlace};

const BODY_BYTES: usize = 64 << 10;
/// A parsed body takes several times its bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Paths of the broker's own routes.
const OWN_PATHS: [&str; 7] = [
    "/v1", "/api", "/live", "/metrics", "/health", "/console", "/assets",
];

/// Reason why endpoints are refused.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("{path} cannot be read: {why}")]
    Unreadable { path: String, why: std::io::Error },
    #[error("{0}")]
    Syntax(Box<toml::de::Error>),
    #[error("ingest.{endpoint}.{field}: {why}")]
    Bad {
        endpoint: String,
        field: &'static str,
        why: String,
    },
}

/// A path that takes events.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub name: String,
    pub path: String,
    pub target: Target,
    /// Condition on the events that are stored, as they are stored; none: all.
    pub filter: Option<Arc<Filter>>,
    /// Field of the value that is the record's key.
    pub key_field: Option<String>,
    pub schema: Option<Arc<Schema>>,
    pub unknown: Unknown,
    /// Requests of each token.
    pub limit: Option<Limit>,
    /// Status of success; the body is empty.
    pub answer: StatusCode,
    /// True if the answer comes once the events are stored.
    pub waits: bool,
    pub check: Option<(TokenPlace, Check)>,
    /// Fields that are set in each value.
    pub add: Vec<(String, Added)>,
    /// Topic of a record for each call.
    pub calls: Option<String>,
    pub body_bytes_max: usize,
    /// Sites whose pages may post; none: programs only.
    pub origins: Vec<String>,
}

/// Where the events of an endpoint are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Topic(String),
    /// One of several topics, which a field of the event names.
    Field {
        name: String,
        topics: Vec<String>,
    },
}

impl Target {
    /// Returns all topics.
    pub fn topics(&self) -> &[String] {
        match self {
            Self::Topic(topic) => std::slice::from_ref(topic),
            Self::Field { topics, .. } => topics,
        }
    }
}

/// Source of a field that is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// Claim of the token.
    Token(String),
    /// Header of the request.
    Header(HeaderName),
    /// Time of the request, RFC 3339.
    Now,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ingest: BTreeMap<String, Wanted>,
    /// A file may describe a whole pipeline; sinks are read elsewhere.
    #[serde(default, rename = "sink")]
    _sinks: toml::Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    path: String,
    topic: Option<String>,
    topic_field: Option<String>,
    #[serde(default)]
    topics: Vec<String>,
    filter: Option<String>,
    key_field: Option<String>,
    schema: Option<String>,
    unknown: Option<Unknown>,
    limit: Option<WantedLimit>,
    answer: Option<u16>,
    ack: Option<Ack>,
    token: Option<String>,
    check: Option<WantedCheck>,
    #[serde(default)]
    add: BTreeMap<String, String>,
    log_calls_to: Option<String>,
    body_bytes_max: Option<u64>,
    #[serde(default)]
    origins: Vec<String>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Ack {
    None,
    Stored,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedLimit {
    per: Per,
    rate: String,
    burst: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Per {
    Token,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedCheck {
    /// A secret, or two while they change.
    hmac: Option<Keys>,
    /// A public key, or two.
    public_key: Option<Keys>,
    issuer: Option<String>,
    audience: Option<String>,
    /// Age of a token, at most.
    age_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Keys {
    One(String),
    Several(Vec<String>),
}

impl Endpoint {
    /// Reads the endpoints of a file, and the keys that it names.
    pub fn load(path: &Path) -> Result<Vec<Self>, IngestError> {
        let text = std::fs::read_to_string(path).map_err(|why| IngestError::Unreadable {
            path: path.display().to_string(),
            why,
        })?;
        Self::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Vec<Self>, IngestError> {
        let file: File = toml::from_str(text).map_err(|why| IngestError::Syntax(Box::new(why)))?;
        let mut paths = BTreeSet::new();
        let mut endpoints = Vec::new();
        for (name, wanted) in file.ingest {
            let endpoint = Self::read(&name, wanted)?;
            if !paths.insert(endpoint.path.clone()) {
                return Err(bad(&name, "path", "another endpoint has it"));
            }
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    fn read(name: &str, wanted: Wanted) -> Result<Self, IngestError> {
        check_path(name, &wanted.path)?;
        let answer = wanted.answer.unwrap_or(200);
        let answer = StatusCode::from_u16(answer)
            .ok()
            .filter(StatusCode::is_success)
            .ok_or_else(|| bad(name, "answer", "it is a status of success, such as 200"))?;
        let check = match (wanted.token, wanted.check) {
            (None, None) => None,
            (Some(place), Some(check)) => {
                let place = TokenPlace::parse(&place)
                    .ok_or_else(|| bad(name, "token", "it is query:NAME, header:NAME or bearer"))?;
                Some((place, read_check(name, check)?))
            }
            _ => return Err(bad(name, "check", "token and check belong together")),
        };
        let bytes = wanted.body_bytes_max.unwrap_or(BODY_BYTES as u64);
        if !(1..=BODY_BYTES_MAX).contains(&bytes) {
            return Err(bad(name, "body_bytes_max", "it is between 1 and 1048576"));
        }
        let limit = read_limit(name, wanted.limit, check.is_some())?;
        let schema = wanted.schema.as_deref().map(|schema| read_schema(name, schema));
        let schema = schema.transpose()?.map(Arc::new);
        if wanted.unknown.is_some() && schema.is_none() {
            return Err(bad(
                name,
                "unknown",
                "it says what becomes of fields that a schema does not name",
            ));
        }
        let target = read_target(name, wanted.topic, wanted.topic_field, wanted.topics)?;
        let filter = wanted.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|why| bad(name, "filter", &why.to_string()))?;
        let filter = filter.map(Arc::new);
        let mut add = Vec::new();
        for (field, source) in wanted.add {
            let added = added(&source).ok_or_else(|| {
                let why = format!("{field}: {source:?} is not token.CLAIM, header.NAME or now");
                bad(name, "add", &why)
            })?;
            if matches!(added, Added::Token(_)) && check.is_none() {
                return Err(bad(name, "add", "there is no token whose claims could be added"));
            }
            add.push((field, added));
        }
        Ok(Self {
            name: name.to_owned(),
            path: wanted.path,
            target,
            filter,
            key_field: wanted.key_field,
            schema,
            unknown: wanted.unknown.unwrap_or_default(),
            limit,
            answer,
            waits: wanted.ack == Some(Ack::Stored),
            check,
            add,
            calls: wanted.log_calls_to,
            body_bytes_max: usize::try_from(bytes).unwrap_or(BODY_BYTES),
            origins: wanted.origins,
        })
    }
}

fn bad(endpoint: &str, field: &'static str, why: &str) -> IngestError {
    IngestError::Bad {
        endpoint: endpoint.to_owned(),
        field,
        why: why.to_owned(),
    }
}

fn check_path(name: &str, path: &str) -> Result<(), IngestError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._~-".contains(c);
    if !path.starts_with('/') || path.len() < 2 || !path.chars().all(is_plain) {
        return Err(bad(
            name,
            "path",
            "it is a path such as /event/log, of plain characters",
        ));
    }
    let is_own = |own: &str| {
        path.strip_prefix(own)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if OWN_PATHS.iter().any(|own| is_own(own)) {
        return Err(bad(name, "path", "it is one of the broker's own"));
    }
    Ok(())
}

fn added(source: &str) -> Option<Added> {
    if source == "now" {
        return Some(Added::Now);
    }
    if let Some(claim) = source.strip_prefix("token.") {
        return Some(Added::Token(claim.to_owned()));
    }
    let header = source.strip_prefix("header.")?;
    header.parse().ok().map(Added::Header)
}

fn read_limit(
    name: &str,
    wanted: Option<WantedLimit>,
    has_token: bool,
) -> Result<Option<Limit>, IngestError> {
    let Some(WantedLimit {
        per: Per::Token,
        rate,
        burst,
    }) = wanted
    else {
        return Ok(None);
    };
    if !has_token {
        return Err(bad(name, "limit", "there is no token to which it could belong"));
    }
    let limit = Limit::new(&rate, burst);
    let why = "rate is a number such as 50/s, and burst at least 1";
    limit.map(Some).ok_or_else(|| bad(name, "limit", why))
}

fn read_schema(name: &str, reference: &str) -> Result<Schema, IngestError> {
    let bad = |why: &str| bad(name, "schema", why);
    let path = reference
        .strip_prefix("file:")
        .ok_or_else(|| bad("it is file:PATH"))?;
    let text = std::fs::read_to_string(path).map_err(|why| bad(&format!("{path} cannot be read: {why}")))?;
    Schema::parse(&text).map_err(|why| bad(&format!("{path}: {why}")))
}

fn read_target(
    name: &str,
    topic: Option<String>,
    field: Option<String>,
    topics: Vec<String>,
) -> Result<Target, IngestError> {
    match (topic, field) {
        (Some(topic), None) if topics.is_empty() => Ok(Target::Topic(topic)),
        (None, Some(_)) if topics.iter().collect::<BTreeSet<_>>().len() < topics.len() => {
            Err(bad(name, "topics", "a topic is there twice"))
        }
        (None, Some(field)) if !topics.is_empty() => Ok(Target::Field { name: field, topics }),
        (Some(_) | None, _) => Err(bad(
            name,
            "topic",
            "there is one topic; or topics, and the topic_field that chooses among them",
        )),
    }
}

fn read_check(name: &str, wanted: WantedCheck) -> Result<Check, IngestError> {
    let secrets = read_keys(name, wanted.hmac, Key::secret)?;
    let public = read_keys(name, wanted.public_key, Key::public)?;
    if secrets.is_empty() && public.is_empty() {
        return Err(bad(name, "check", "it has hmac or public_key"));
    }
    Ok(Check {
        keys: secrets.into_iter().chain(public).collect(),
        issuer: wanted.issuer,
        audience: wanted.audience,
        age_s: wanted.age_s,
    })
}

fn read_keys(
    name: &str,
    wanted: Option<Keys>,
    read: fn(&str) -> Result<Key, &'static str>,
) -> Result<Vec<Key>, IngestError> {
    let references = match wanted {
        None => return Ok(Vec::new()),
        Some(Keys::One(key)) => vec![key],
        Some(Keys::Several(keys)) => keys,
    };
    if !(1..=2).contains(&references.len()) {
        return Err(bad(name, "check", "there is one key, or two while they change"));
    }
    let key = |reference: &String| {
        let text = key_text(reference).map_err(|why| bad(name, "check", &why))?;
        read(&text).map_err(|why| bad(name, "check", why))
    };
    references.iter().map(key).collect()
}

/// Reads a key from the place that it is said to be at.
fn key_text(reference: &str) -> Result<String, String> {
    if let Some(variable) = reference.strip_prefix("env:") {
        return std::env::var(variable).map_err(|_| format!("the environment has no {variable}"));
    }
    let Some(path) = reference.strip_prefix("file:") else {
        return Err("a key is env:NAME or file:PATH, and never stands in the file itself".to_owned());
    };
    let read = std::fs::read_to_string(path);
    read.map(|text| text.trim_end().to_owned())
        .map_err(|why| format!("{path} cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replacements in a sound endpoint, and the refusals.
    const MISTAKES: &[(&str, &str, &str)] = &[
        (
            "/event/log",
            "/v1/topics",
            "ingest.log.path: it is one of the broker's own",
        ),
        (
            "/event/log",
            "event",
            "ingest.log.path: it is a path such as /event/log, of plain characters",
        ),
        (
            "204",
            "404",
            "ingest.log.answer: it is a status of success, such as 200",
        ),
        (
            "\"now\"",
            "\"token.sub\"",
            "ingest.log.add: there is no token whose claims could be added",
        ),
        (
            "answer = 204",
            "limit = { per = \"token\", rate = \"5/s\", burst = 9 }",
            "ingest.log.limit: there is no token to which it could belong",
        ),
        (
            "answer = 204",
            "unknown = \"drop\"",
            "ingest.log.unknown: it says what becomes of fields that a schema does not name",
        ),
        (
            "topic = ",
            "topics = [\"a\"]\ntopic = ",
            "ingest.log.topic: there is one topic; or topics, and the topic_field that chooses among them",
        ),
        (
            "answer = 204",
            "filter = \"value.a ==\"",
            "ingest.log.filter: a value was expected (at column 11)",
        ),
        (
            "answer = 204",
            "schema = \"s.json\"",
            "ingest.log.schema: it is file:PATH",
        ),
        (
            "\"now\"",
            "\"then\"",
            "ingest.log.add: at: \"then\" is not token.CLAIM, header.NAME or now",
        ),
    ];

    #[test]
    fn an_endpoint_is_read_and_mistakes_are_named() {
        let whole = "[ingest.log]\npath = \"/event/log\"\ntopic = \"EventLog\"\nkey_field = \"app\"\nanswer = 204\n\
             add = { at = \"now\", country = \"header.CF-IPCountry\" }\nlog_calls_to = \"ApiLog\"\n";
        let [endpoint] = &Endpoint::parse(whole).unwrap()[..] else {
            panic!("one endpoint");
        };
        assert_eq!(
            (&*endpoint.path, endpoint.answer.as_u16(), endpoint.waits),
            ("/event/log", 204, false)
        );
        assert_eq!(endpoint.add[0], ("at".to_owned(), Added::Now));
        for (old, new, why) in MISTAKES {
            let refused = Endpoint::parse(&whole.replace(old, new)).unwrap_err();
            assert_eq!(refused.to_string(), *why);
        }
        let with_sinks = format!("{whole}[sink.s]\nfrom = \"EventLog\"\n");
        assert_eq!(Endpoint::parse(&with_sinks).unwrap().len(), 1);
        let unknown = Endpoint::parse(&whole.replace("answer", "anser")).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `anser`"), "{unknown}");
        let plain = format!("{whole}token = \"bearer\"\ncheck = {{ hmac = \"secret\" }}\n");
        let refused = Endpoint::parse(&plain).unwrap_err().to_string();
        assert!(refused.ends_with("never stands in the file itself"), "{refused}");
    }
}
