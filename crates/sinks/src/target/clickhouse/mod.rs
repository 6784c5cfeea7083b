//! ClickHouse over HTTP: a batch is one insert, under a token by which the table knows it again.
//!
//! ```text
//! bounds of the batch in the ledger
//! INSERT INTO … FORMAT JSONEachRow, insert_deduplication_token = SINK/TOPIC/PARTITION/FIRST-NEXT/ID of the topic
//! position in the ledger
//! ```
//!
//! ClickHouse has no transactions over two tables, so the position is kept elsewhere, and the table forgets
//! tokens behind a number of inserts: its window. A table without one is refused.

mod errors;
mod table;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::{Ledger, Opened, Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError};
use crate::columns::Column;
use crate::convert::write_json;
use crate::definition::ClickhouseSpec;
use crate::remote::{Address, Allowed, Answer, Link};

/// Digits of a decimal.
pub(crate) const DIGITS_MAX: u16 = 76;
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Settings of an insert: a batch is one block, read in its order, and counts when it is answered.
const INSERT: [(&str, &str); 10] = [
    ("async_insert", "0"),
    ("insert_deduplicate", "1"),
    ("max_insert_block_size", "1000000000"),
    ("min_insert_block_size_rows", "0"),
    ("min_insert_block_size_bytes", "0"),
    ("input_format_parallel_parsing", "0"),
    ("input_format_skip_unknown_fields", "0"),
    ("input_format_null_as_default", "0"),
    ("date_time_input_format", "best_effort"),
    ("wait_end_of_query", "1"),
];

/// A table of a ClickHouse server.
pub struct Clickhouse {
    sink: String,
    spec: ClickhouseSpec,
    columns: Vec<Column>,
    steps: Steps,
    ledger: Option<Arc<dyn Ledger>>,
    link: Option<Link>,
    /// Positions of places that this writer has, and the ids of their topics.
    places: HashMap<Place, (u64, Option<Uuid>)>,
}

impl std::fmt::Debug for Clickhouse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clickhouse({})", self.spec.url)
    }
}

impl Clickhouse {
    pub fn new(sink: &str, spec: &ClickhouseSpec, columns: &[Column], surroundings: &Surroundings) -> Self {
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            steps: surroundings.steps.clone(),
            ledger: surroundings.ledger.clone(),
            link: None,
            places: HashMap::new(),
        }
    }

    fn ledger(&self) -> Result<&dyn Ledger, TargetError> {
        let why = "the positions of this sink are those of its app: stafett app reset moves them";
        self.ledger
            .as_deref()
            .ok_or_else(|| TargetError::Stop(why.to_owned()))
    }

    /// Sends a statement with settings; `body` is its data.
    async fn ask(
        &mut self,
        statement: &str,
        settings: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, TargetError> {
        let url = resolved(&self.spec.url)?;
        let mark = if url.contains('?') { '&' } else { '?' };
        let mut url = format!("{url}{mark}query={}", encoded(statement));
        for (name, value) in settings {
            url.extend(["&", name, "=", &encoded(value)]);
        }
        let to = Address::parse(&url)?;
        let headers = self.headers()?;
        let patience = Duration::from_millis(self.spec.timeout_ms);
        let mut link = match Link::take(&mut self.link, &to) {
            Some(link) => link,
            None => Link::open(&to, &Allowed::stores(), self.spec.ca.as_deref(), patience).await?,
        };
        let answer = link
            .ask(Method::POST, &to, headers, body, patience, ANSWER_BYTES_MAX)
            .await?;
        if link.is_open() {
            self.link = Some(link);
        }
        errors::sorted(&answer)?;
        Ok(answer)
    }

    fn headers(&self) -> Result<HeaderMap, TargetError> {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("stafett"));
        let Some(secret) = &self.spec.login else {
            return Ok(headers);
        };
        let login = resolved(secret)?;
        let (user, password) = login.split_once(':').unwrap_or((&login, ""));
        for (name, text) in [("x-clickhouse-user", user), ("x-clickhouse-key", password)] {
            let mut value = HeaderValue::try_from(text)
                .map_err(|_| TargetError::Stop(format!("{secret} is no login of the form USER:PASSWORD")))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    async fn send(&mut self, part: &Part<'_>, topic: Option<Uuid>) -> Result<(), TargetError> {
        let mut body = Vec::with_capacity(part.rows.len() * 128);
        for (_, cells) in part.rows.iter() {
            if let Some(cell) = cells.iter().find(|cell| !table::has_room_for(**cell)) {
                let text = format!("dates and times have years from 1900 to 2299: {cell:?} since 1970");
                let class = "range".to_owned();
                return Err(TargetError::Poison { class, text });
            }
            write_json(&mut body, &self.columns, part.rows.rows, cells);
            body.push(b'\n');
        }
        // Another topic of that name has the same offsets.
        let topic = topic.map(|id| format!("/{id}")).unwrap_or_default();
        let token = format!("{}/{}/{}-{}{topic}", self.sink, part.place, part.from, part.next);
        let statement = table::insert(&self.spec, &self.columns);
        let mut settings = INSERT.to_vec();
        settings.push(("insert_deduplication_token", &token));
        self.ask(&statement, &settings, body.into()).await?;
        Ok(())
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns a text of the definition, as it is now.
fn resolved(secret: &crate::secret::Secret) -> Result<String, TargetError> {
    secret
        .resolve()
        .map_err(|why| TargetError::Stop(format!("{secret}: {why}")))
}

#[async_trait]
impl Target for Clickhouse {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        // An insert that hangs in an earlier connection must not hold this one up.
        self.link = None;
        self.places.remove(place);
        let missing = self.prepare(self.spec.create).await?;
        if !missing.is_empty() && !self.spec.create {
            let why = format!("the database lacks: {}", missing.join(" "));
            return Err(TargetError::Stop(why));
        }
        let opened = self.ledger()?.open(place, start).await?;
        self.steps.reach("opened")?;
        self.places.insert(place.clone(), (opened.next, start.topic));
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let position = self.places.get(part.place).copied();
        let Some((_, topic)) = position.filter(|(next, _)| *next == part.from) else {
            return Err(TargetError::Fenced(part.place.clone()));
        };
        self.ledger()?.begin_part(part).await?;
        self.steps.reach("bounds")?;
        if !part.rows.is_empty() {
            self.send(part, topic).await?;
        }
        self.steps.reach("sent")?;
        self.ledger()?.end_part(part);
        self.places.insert(part.place.clone(), (part.next, topic));
        Ok(())
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        self.ledger().map(|_| Vec::new())
    }

    async fn set_position(&mut self, _: &Place, _: Start) -> Result<(), TargetError> {
        Err(no_positions())
    }

    async fn set_position_since(&mut self, _: &Place, _: u64, _: Start) -> Result<(), TargetError> {
        Err(no_positions())
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        let found = self.ask(&table::look(&self.spec), &[], Bytes::new()).await?;
        let missing = table::missing(&self.spec, &self.columns, &found.body)?;
        if make {
            for statement in &missing {
                self.ask(statement, &[], Bytes::new()).await?;
            }
        }
        Ok(missing)
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnceWithin
    }
}

fn no_positions() -> TargetError {
    let why = "the positions of this sink are those of its app: stafett app reset moves them";
    TargetError::Stop(why.to_owned())
}
