//! `/v1/audit`: actions and refusals with their callers, out of the topic that stores them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Parameter, Problem, Query, Slot};
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset};
use stafett_topics::{AUDIT_TOPIC, ReadEnd, RecordItem, RecordTail};

use crate::records::Reads;
use crate::records::position::{Position, time};
use crate::time::rfc3339;
use crate::{Routes, access, answer};

const COUNT: u64 = 100;
const COUNT_MAX: u64 = 1000;
/// Entries that one request looks at.
const LOOKED_AT_MAX: u64 = 50_000;
/// Entries that are read at once, from the newest on.
const BLOCK: u64 = 1000;
const READ_BYTES: usize = 1 << 20;

/// An entry of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    pub at: String,
    /// User or client. Null for a caller without a name.
    pub by: Option<String>,
    /// Address of the caller.
    pub from: Option<String>,
    /// Protocol, where it is known: `kafka`, `amqp` or `http`.
    pub via: Option<String>,
    /// Kind of the thing and action, such as `topic.deleted`, `queue.read`, `user.set`; or `login`.
    pub action: String,
    /// `done` or `refused`.
    pub result: String,
    /// Kind of the thing.
    pub kind: Option<String>,
    pub namespace: Option<String>,
    /// Name of the thing.
    pub name: Option<String>,
    pub details: String,
    /// `Stafett-Request-Id` of the request.
    pub request: Option<String>,
}

/// An entry with its id.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditEntryShown")]
struct Shown {
    id: String,
    #[serde(flatten)]
    entry: AuditEntry,
}

/// Entries, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditList")]
struct Entries {
    items: Vec<Shown>,
    /// Value of `after` for earlier entries; null if there are none.
    next: Option<String>,
    /// Entries that this request looked at.
    looked_at: u64,
}

/// Choice of entries.
struct Choice<'a> {
    by: Option<&'a str>,
    action: Option<&'a str>,
    result: Option<&'a str>,
    on: Option<&'a str>,
    since_ms: i64,
    until_ms: i64,
}

impl AuditEntry {
    /// Returns the stored form of an entry of this time.
    #[must_use]
    pub fn stored(mut self, at_ms: i64) -> Vec<u8> {
        self.at = rfc3339(at_ms);
        // Texts alone: this does not fail.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/audit",
            "Lists what was done and what was refused, the newest first. Needs the right to read the topic \
             stafett.audit, which stores it.",
        )
        .query(&[
            Parameter::text("by", "Only entries of this user."),
            Parameter::text("action", "An action such as topic.deleted, or its first word."),
            Parameter::text("result", "`done` or `refused`."),
            Parameter::text("on", "Name of the thing."),
            Parameter::text("since", "A time: only entries of this time or later."),
            Parameter::text("until", "A time: only entries before it."),
            Parameter::number(
                "count",
                COUNT_MAX,
                "Number of entries, at most; 100 if it is absent.",
            ),
            Parameter::text("after", "`next` of the answer before."),
        ])
        .answers::<Entries>(200)
        .refuses(&[
            Code::Forbidden,
            Code::NotServing,
            Code::Overloaded,
            Code::Unreadable,
        ]),
        list,
    )
}

impl<'a> Choice<'a> {
    fn of(query: &'a Query) -> Result<Self, Problem> {
        let moment = |name: &str, absent: i64| match query.get(name) {
            None => Ok(absent),
            Some(text) => time(text).ok_or_else(|| {
                let why = format!("{name} is a time such as 2026-11-22T16:00:00Z, not {text:?}");
                Problem::bad_request(why)
            }),
        };
        let result = query.get("result");
        if let Some(other) = result.filter(|result| !["done", "refused"].contains(result)) {
            let why = format!("result is done or refused, not {other:?}");
            return Err(Problem::bad_request(why));
        }
        Ok(Self {
            by: query.get("by"),
            action: query.get("action"),
            result,
            on: query.get("on"),
            since_ms: moment("since", i64::MIN)?,
            until_ms: moment("until", i64::MAX)?,
        })
    }

    fn wants(&self, at_ms: i64, entry: &AuditEntry) -> bool {
        let is = |wanted: Option<&str>, text: Option<&str>| wanted.is_none_or(|wanted| text == Some(wanted));
        let is_action = |action: &str| {
            let rest = entry.action.strip_prefix(action);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        (self.since_ms..self.until_ms).contains(&at_ms)
            && is(self.by, entry.by.as_deref())
            && is(self.result, Some(&entry.result))
            && is(self.on, entry.name.as_deref())
            && self.action.is_none_or(is_action)
    }
}

async fn list(
    State(broker): State<Slot<Broker>>,
    State(reads): State<Reads>,
    query: Query,
) -> Result<Response, Problem> {
    let choice = Choice::of(&query)?;
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT).max(1);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let after = query.get("after").map(str::parse::<u64>).transpose();
    let after = after.map_err(|_| Problem::bad_request("after is next of the answer before"))?;
    let broker = broker.get()?;
    access::check(&broker, Action::Read, &Resource::topic(AUDIT_TOPIC))?;
    let _turn = reads.turn().await?;
    let (mut items, mut looked_at, mut next) = (Vec::new(), 0, None);
    if let Some(log) = broker.topics().named(AUDIT_TOPIC).and_then(|topic| topic.log(0))
        && let Some(bounds) = broker.catalog().bounds(log)
    {
        let mut end = after.unwrap_or(u64::MAX).min(bounds.end.0);
        if after.is_none() && choice.until_ms < i64::MAX {
            let until = Position::Time(choice.until_ms);
            end = until.offset(broker.catalog(), log, bounds, end).await?;
        }
        while end > bounds.start.0 && items.len() < count && looked_at < LOOKED_AT_MAX {
            let from = end.saturating_sub(BLOCK).max(bounds.start.0);
            let (block, is_earlier) = Box::pin(read(&broker, log, from, end, &choice)).await?;
            looked_at += end - from;
            end = from;
            for (offset, entry) in block.into_iter().rev() {
                if items.len() == count {
                    break;
                }
                // The next page goes on below the last entry of this one.
                end = if items.len() + 1 == count { offset } else { end };
                let id = offset.to_string();
                items.push(Shown { id, entry });
            }
            if is_earlier && items.len() < count {
                end = bounds.start.0;
            }
        }
        next = (end > bounds.start.0).then(|| end.to_string());
    }
    Ok(answer(
        StatusCode::OK,
        &Entries {
            items,
            next,
            looked_at,
        },
    ))
}

/// Returns the wanted entries of a range of offsets, and true if it has entries from before the wanted time.
async fn read(
    broker: &Broker,
    log: LogId,
    from: u64,
    end: u64,
    choice: &Choice<'_>,
) -> Result<(Vec<(u64, AuditEntry)>, bool), Problem> {
    let mut tail = RecordTail::new(log, Offset(from), READ_BYTES, Visibility::Committed);
    let (mut found, mut is_earlier) = (Vec::new(), false);
    while tail.next_offset().0 < end {
        match tail.item() {
            Some(RecordItem::Record(record)) if record.offset.0 < end => {
                is_earlier |= record.timestamp < choice.since_ms;
                let value = record.value.as_deref().unwrap_or_default();
                // An entry of another version may lack something.
                if let Ok(entry) = serde_json::from_slice::<AuditEntry>(value)
                    && choice.wants(record.timestamp, &entry)
                {
                    found.push((record.offset.0, entry));
                }
            }
            Some(RecordItem::Record(_) | RecordItem::Skipped(_)) => {}
            None => match tail.read(broker.catalog()).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd | ReadEnd::NoSuchLog) => break,
                Err(why @ ReadEnd::Stopped) => return Err(Problem::new(Code::NotServing, why)),
                Err(why @ ReadEnd::Failed(_)) => return Err(Problem::new(Code::Unreadable, why)),
            },
        }
    }
    Ok((found, is_earlier))
}
