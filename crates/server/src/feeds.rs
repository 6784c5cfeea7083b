//! Layers that keep log lines, and those among them that are events, for the API.

use std::collections::BTreeMap;
use std::fmt;

use stafett_admin::audit::AuditEntry;
use stafett_admin::events::{Event, Feeds, Line, TARGET};
use stafett_broker::{AUDIT, AuditTrail};
use stafett_journal::disk::Clock;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Bound on the bytes of a field.
const FIELD_BYTES_MAX: usize = 4096;

/// Keeps lines of the log.
#[derive(Debug)]
pub(crate) struct LogLayer(pub(crate) Feeds);

/// Gives changes, logins and refusals to the audit, whatever the level of the log.
#[derive(Debug)]
pub(crate) struct AuditLayer(pub(crate) AuditTrail);

/// Keeps events, whatever the level of the log.
#[derive(Debug)]
pub(crate) struct EventLayer(pub(crate) Feeds);

/// Fields of a line.
#[derive(Debug, Default)]
struct Fields {
    text: String,
    more: BTreeMap<String, String>,
}

impl Fields {
    fn of(event: &tracing::Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    fn add(&mut self, field: &Field, mut value: String) {
        let end = (0..=FIELD_BYTES_MAX).rev().find(|at| value.is_char_boundary(*at));
        value.truncate(end.unwrap_or(0));
        if field.name() == "message" {
            self.text = value;
        } else {
            self.more.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let Fields { text, more } = Fields::of(event);
        let metadata = event.metadata();
        self.0.log.push(Line {
            at_ms: Clock::system().now_ms(),
            level: level(metadata),
            target: metadata.target().to_owned(),
            text,
            fields: more,
        });
    }
}

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let Fields { text, mut more } = Fields::of(event);
        let kind = more.remove("kind").unwrap_or_default();
        let subject = kind.split('.').next().unwrap_or_default().to_owned();
        let mut take = |name: &str| more.remove(name).filter(|text| !text.is_empty());
        let (by, from, via, request) = (take("by"), take("from"), take("via"), take("request"));
        let named = take("name").map(|name| (subject.clone(), name));
        more.extend(named);
        let feed = if subject == "connection" {
            &self.0.connections
        } else {
            &self.0.events
        };
        feed.push(Event {
            at_ms: Clock::system().now_ms(),
            kind,
            on: more,
            by,
            from,
            via,
            text,
            request,
        });
    }
}

impl<S: Subscriber> Layer<S> for AuditLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let Fields { text, mut more } = Fields::of(event);
        let is_event = event.metadata().target() == TARGET;
        let mut take = |name: &str| more.remove(name).filter(|text| !text.is_empty());
        let kind = take("kind").unwrap_or_default();
        let subject = kind.split('.').next().unwrap_or_default().to_owned();
        let from = take("from");
        // Events without a caller are the node's own; changes of users have lines of their own.
        if is_event && (from.is_none() || ["connection", "user", "token", "rule"].contains(&&*subject)) {
            return;
        }
        let action = take("action");
        let entry = AuditEntry {
            at: String::new(),
            by: take("by"),
            from,
            via: take("via"),
            action: match action {
                Some(action) if subject.is_empty() || action.contains('.') => action,
                Some(action) => format!("{subject}.{action}"),
                None => kind,
            },
            result: take("result").unwrap_or_else(|| "done".to_owned()),
            kind: Some(subject).filter(|kind| !kind.is_empty()),
            namespace: take("namespace"),
            name: take("name"),
            details: take("details").unwrap_or(text),
            request: take("request"),
        };
        let at_ms = Clock::system().now_ms();
        self.0.add(at_ms, entry.stored(at_ms));
    }
}

/// Returns true for lines that the audit may be about.
pub(crate) fn is_audited(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && (metadata.target() == AUDIT || is_event(metadata))
}

/// Returns true for lines that are events.
pub(crate) fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET
}

fn level(metadata: &Metadata<'_>) -> &'static str {
    match *metadata.level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}
