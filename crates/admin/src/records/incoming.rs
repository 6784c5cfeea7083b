//! Records in the body of a request.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Problem, Query};
use stafett_topics::NewRecord;

use super::cloud_events::CloudEvent;
use super::position;
use crate::content::{self, Headers};

/// Bound on the records of a body.
pub(super) const RECORDS_MAX: usize = 100_000;
/// Bound on the records that may be refused where the others are stored.
pub(super) const REFUSED_MAX: usize = 100;

/// Shape of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The body is the value.
    Raw,
    /// One JSON document.
    Json,
    /// A JSON document in each line.
    Lines,
    /// One `CloudEvent` in JSON.
    Event,
    /// A list of `CloudEvents`.
    Events,
}

/// Meaning of the documents in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum As {
    /// Each document is a value.
    Value,
    /// A document is a list, and each of its elements a value.
    List,
    /// Each document is an object that describes a record, or a list of these.
    Record,
}

/// Fate of documents in which the field of the key is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyless {
    Refuse,
    Store,
    Skip,
}

/// Keys and headers that the query gives all records.
#[derive(Debug)]
pub(super) struct Template {
    is: As,
    key: Option<Bytes>,
    /// Names of fields, from the outermost one.
    key_field: Option<Vec<String>>,
    keyless: Keyless,
    partition: Option<u32>,
    headers: Vec<(Bytes, Option<Bytes>)>,
    /// True if records beside refused ones are stored.
    pub(super) partial: bool,
}

/// Records of a body.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) records: Vec<NewRecord>,
    /// Line of each record, or its place in a list, from 1.
    pub(super) lines: Vec<usize>,
    pub(super) read: usize,
    pub(super) keyed: usize,
    /// Lines of refused records, with the reasons.
    pub(super) refused: Vec<(usize, Problem)>,
}

/// A record with everything that it can have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewRecord")]
pub(super) struct RecordBody {
    /// A text stands for itself, any other value for its JSON; null for no key.
    #[schemars(with = "Option<serde_json::Value>")]
    key: Option<Box<RawValue>>,
    key_base64: Option<String>,
    /// A text stands for itself, any other value for its JSON; null for no value.
    #[schemars(with = "Option<serde_json::Value>")]
    value: Option<Box<RawValue>>,
    value_base64: Option<String>,
    #[serde(default)]
    headers: Headers,
    /// RFC 3339; the time of the request if it is absent.
    timestamp: Option<String>,
    partition: Option<u32>,
}

/// Documents of a list of bounded length: read one by one, so that a long list takes no memory.
struct Documents<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Documents<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_seq(Documents(Vec::new()))
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Documents<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {RECORDS_MAX} records at most")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self, A::Error> {
        while let Some(document) = list.next_element()? {
            if self.0.len() == RECORDS_MAX {
                return Err(de::Error::invalid_length(RECORDS_MAX + 1, &self));
            }
            self.0.push(document);
        }
        Ok(self)
    }
}

impl Template {
    pub(super) fn of(query: &Query) -> Result<Self, Problem> {
        let is = match query.get("as") {
            None | Some("value") => As::Value,
            Some("list") => As::List,
            Some("record") => As::Record,
            Some(other) => return Err(bad(format!("as is value, list or record, not {other:?}"))),
        };
        let keyless = match query.get("keyless") {
            None | Some("refuse") => Keyless::Refuse,
            Some("store") => Keyless::Store,
            Some("skip") => Keyless::Skip,
            Some(other) => return Err(bad(format!("keyless is refuse, store or skip, not {other:?}"))),
        };
        let key_field = query.get("key_field");
        let has_both = query.get("key").is_some() && key_field.is_some();
        if has_both || is == As::Record && (key_field.is_some() || query.get("key").is_some()) {
            return Err(bad("there is one key: that of the record, key=, or key_field="));
        }
        if key_field.is_some_and(|path| path.split('.').any(str::is_empty)) {
            return Err(bad("key_field is a name, or names with dots between them"));
        }
        let partition = query.number("partition", u32::MAX.into())?;
        Ok(Self {
            is,
            key: query.get("key").map(|key| Bytes::copy_from_slice(key.as_bytes())),
            key_field: key_field.map(|path| path.split('.').map(str::to_owned).collect()),
            keyless,
            partition: partition.and_then(|number| u32::try_from(number).ok()),
            headers: headers(query)?,
            partial: query.flag("partial")?,
        })
    }

    /// Reads the records of a body. `content_type` and the attributes of a `CloudEvent` become headers of a
    /// raw one.
    pub(super) fn read(
        &self,
        body: &Bytes,
        format: Format,
        content_type: Option<&str>,
        attributes: Vec<(String, String)>,
    ) -> Result<Incoming, Problem> {
        let mut incoming = Incoming::default();
        // With its attributes in headers, the body of an event is its data as it is.
        let format = if attributes.is_empty() {
            format
        } else {
            Format::Raw
        };
        match format {
            Format::Raw => {
                if self.is != As::Value || self.key_field.is_some() {
                    let why = "as and key_field are about JSON: the Content-Type is application/json or \
                               application/x-ndjson";
                    return Err(bad(why));
                }
                let mut record = self.record(Some(body.clone()));
                if let Some(kind) = content_type {
                    let kind = Bytes::copy_from_slice(kind.as_bytes());
                    record
                        .headers
                        .push((Bytes::from_static(b"content-type"), Some(kind)));
                }
                let event = CloudEvent::of_attributes(attributes)?;
                record.key = record.key.or(event.key);
                record.headers.extend(event.headers);
                incoming.add(1, record);
            }
            Format::Json => self.read_document(body, 1, text(body)?, &mut incoming)?,
            Format::Event | Format::Events => self.read_events(body, format, &mut incoming)?,
            Format::Lines => {
                for (at, line) in text(body)?.lines().enumerate() {
                    if !line.trim().is_empty() {
                        let read = self.read_document(body, at + 1, line, &mut incoming);
                        self.pass(at + 1, read, &mut incoming)?;
                    }
                }
            }
        }
        Ok(incoming)
    }

    /// Reads `CloudEvents`; each is in place `line` of a list.
    fn read_events(&self, body: &Bytes, format: Format, incoming: &mut Incoming) -> Result<(), Problem> {
        if self.is != As::Value || self.key_field.is_some() {
            return Err(bad(
                "as and key_field are not about CloudEvents: their key is partitionkey, or key=",
            ));
        }
        let documents = if format == Format::Events {
            let Documents(all) = body::parse(text(body)?.as_bytes())?;
            all
        } else {
            vec![body::parse(text(body)?.as_bytes())?]
        };
        for (at, document) in documents.into_iter().enumerate() {
            let in_line = |why: Problem| why.with("line", at + 1).with("stored", 0);
            incoming.read += 1;
            let event = match CloudEvent::read(document) {
                Ok(event) => event,
                Err(why) => {
                    self.pass(at + 1, Err(in_line(why)), incoming)?;
                    continue;
                }
            };
            let mut record = self.record(event.data);
            record.key = record.key.or(event.key);
            record.headers.extend(event.headers);
            incoming.add(at + 1, record);
        }
        Ok(())
    }

    fn read_document(
        &self,
        body: &Bytes,
        line: usize,
        json: &str,
        incoming: &mut Incoming,
    ) -> Result<(), Problem> {
        let in_line = |why: Problem| why.with("line", line).with("stored", 0);
        let is_list = json.trim_start().starts_with('[');
        if self.is == As::List || self.is == As::Record && is_list {
            let Documents(documents) = body::parse(json.as_bytes())
                .map_err(in_line)
                .inspect_err(|_| incoming.read += 1)?;
            for (at, document) in documents.into_iter().enumerate() {
                // In lines of lists, the line is more of use than the place in it.
                let at = if line == 1 { at + 1 } else { line };
                let read = self.read_one(body, at, document, incoming);
                self.pass(at, read, incoming)?;
            }
            return Ok(());
        }
        let document: &RawValue = match body::parse(json.as_bytes()) {
            Ok(document) => document,
            Err(why) => {
                incoming.read += 1;
                return Err(in_line(why));
            }
        };
        self.read_one(body, line, document, incoming)
    }

    /// Passes over a refused record if the others are stored.
    fn pass(&self, line: usize, read: Result<(), Problem>, incoming: &mut Incoming) -> Result<(), Problem> {
        let Err(why) = read else { return Ok(()) };
        if !self.partial || incoming.refused.len() >= REFUSED_MAX || incoming.read > RECORDS_MAX {
            return Err(why);
        }
        incoming.refused.push((line, why));
        Ok(())
    }

    fn read_one(
        &self,
        body: &Bytes,
        line: usize,
        document: &RawValue,
        incoming: &mut Incoming,
    ) -> Result<(), Problem> {
        let in_line = |why: Problem| why.with("line", line).with("stored", 0);
        incoming.read += 1;
        if incoming.read > RECORDS_MAX {
            return Err(in_line(bad(format!("a body has {RECORDS_MAX} records at most"))));
        }
        if self.is == As::Record {
            let Object::<RecordBody>(record) = body::parse(document.get().as_bytes()).map_err(in_line)?;
            incoming.add(line, self.described(record).map_err(in_line)?);
            return Ok(());
        }
        // A slice of the body, byte for byte.
        let mut record = self.record(Some(body.slice_ref(document.get().as_bytes())));
        if let Some(path) = &self.key_field {
            record.key = field(document, path);
            if record.key.is_none() {
                match self.keyless {
                    Keyless::Store => {}
                    Keyless::Skip => return Ok(()),
                    Keyless::Refuse => {
                        let path = path.join(".");
                        let why = format!(
                            "line {line}: the field {path} is missing, or neither a text, a number nor a truth value"
                        );
                        return Err(in_line(Problem::new(Code::NoKey, why).with("path", path)));
                    }
                }
            }
        }
        incoming.add(line, record);
        Ok(())
    }

    fn record(&self, value: Option<Bytes>) -> NewRecord {
        NewRecord {
            partition: self.partition,
            key: self.key.clone(),
            value,
            headers: self.headers.clone(),
            timestamp: None,
        }
    }

    fn described(&self, record: RecordBody) -> Result<NewRecord, Problem> {
        let mut headers = self.headers.clone();
        let own = content::headers(record.headers)?;
        headers.extend(own.into_iter().map(|(name, value)| (name.into(), value)));
        let timestamp = record.timestamp.map(|text| {
            let time = position::time(&text);
            time.ok_or_else(|| {
                bad(format!(
                    "timestamp is a time such as 2026-11-22T16:00:00Z, not {text:?}"
                ))
            })
        });
        Ok(NewRecord {
            partition: record.partition.or(self.partition),
            key: bytes("key", record.key.as_deref(), record.key_base64.as_deref())?,
            value: bytes("value", record.value.as_deref(), record.value_base64.as_deref())?,
            headers,
            timestamp: timestamp.transpose()?,
        })
    }
}

impl Incoming {
    /// Takes a record out that the topic refuses.
    pub(super) fn refuse(&mut self, index: usize, why: Problem) {
        if index < self.records.len() {
            let record = self.records.remove(index);
            self.keyed -= usize::from(record.key.is_some());
            let line = self.lines.remove(index);
            self.refused.push((line, why));
        }
    }

    fn add(&mut self, line: usize, record: NewRecord) {
        self.read = self.read.max(1);
        self.keyed += usize::from(record.key.is_some());
        self.records.push(record);
        self.lines.push(line);
    }
}

fn bad(why: impl fmt::Display) -> Problem {
    Problem::bad_request(why)
}

fn text(body: &Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|_| bad("the body is not UTF-8").with("stored", 0))
}

/// Returns the headers that a query names as `header.NAME=VALUE`.
fn headers(query: &Query) -> Result<Vec<(Bytes, Option<Bytes>)>, Problem> {
    let named = query
        .pairs()
        .filter_map(|(key, value)| Some((key.strip_prefix("header.")?, value)));
    let headers: Headers = named
        .map(|(name, value)| {
            (
                name.to_owned(),
                Some(content::HeaderValue::Text(value.to_owned())),
            )
        })
        .collect();
    let headers = content::headers(headers)?;
    Ok(headers
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect())
}

fn bytes(field: &str, json: Option<&RawValue>, base64: Option<&str>) -> Result<Option<Bytes>, Problem> {
    match (json, base64) {
        (Some(_), Some(_)) => Err(bad(format!("{field} and {field}_base64 are both given"))),
        (None, None) => Ok(None),
        (Some(json), None) => Ok(Some(content::read(Some(json), None)?.0)),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(why) => Err(bad(format!("{field}_base64: {why}"))),
        },
    }
}

/// Returns the text of a field: that of a JSON string, or the JSON of a number or a truth value.
fn field(document: &RawValue, path: &[String]) -> Option<Bytes> {
    let (name, rest) = path.split_first()?;
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(document.get()).ok()?;
    let value = fields.get(name)?;
    if !rest.is_empty() {
        return field(value, rest);
    }
    let json = value.get();
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(json).ok().map(Bytes::from),
        b'{' | b'[' | b'n' => None,
        _ => Some(Bytes::copy_from_slice(json.as_bytes())),
    }
}

#[cfg(test)]
mod tests;
