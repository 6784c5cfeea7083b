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

/// Fields of a line: each connection and login has some, so they are kept as they come.
#[derive(Debug, Default)]
struct Fields {
    text: String,
    more: Vec<(&'static str, String)>,
}

impl Fields {
    fn of(event: &tracing::Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    /// Removes a field. `None` if it is absent or empty.
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.more.iter().position(|(known, _)| *known == name)?;
        let (_, value) = self.more.swap_remove(at);
        Some(value).filter(|value| !value.is_empty())
    }

    /// Returns the fields that are left.
    fn left(self) -> BTreeMap<String, String> {
        let named = self.more.into_iter();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn add(&mut self, field: &Field, mut value: String) {
        value.truncate(value.floor_char_boundary(FIELD_BYTES_MAX));
        if field.name() == "message" {
            self.text = value;
        } else {
            self.more.push((field.name(), value));
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
        let mut fields = Fields::of(event);
        let metadata = event.metadata();
        self.0.log.push(Line {
            at_ms: Clock::system().now_ms(),
            level: level(metadata),
            target: metadata.target().to_owned(),
            text: std::mem::take(&mut fields.text),
            fields: fields.left(),
        });
    }
}

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::of(event);
        let kind = fields.take("kind").unwrap_or_default();
        let subject = kind.split('.').next().unwrap_or_default().to_owned();
        let mut take = |name| fields.take(name);
        let (by, from, via, request) = (take("by"), take("from"), take("via"), take("request"));
        let name = take("name");
        let text = std::mem::take(&mut fields.text);
        let mut on = fields.left();
        let feed = if subject == "connection" {
            &self.0.connections
        } else {
            &self.0.events
        };
        on.extend(name.map(|name| (subject, name)));
        feed.push(Event {
            at_ms: Clock::system().now_ms(),
            kind,
            on,
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
        let mut fields = Fields::of(event);
        let text = std::mem::take(&mut fields.text);
        let is_event = event.metadata().target() == TARGET;
        let mut take = |name| fields.take(name);
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

#[cfg(test)]
mod tests {
    use stafett_model::Lock;
    use std::sync::Arc;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Keeps the fields of lines.
    #[derive(Default, Clone)]
    struct Kept(Arc<Lock<Vec<Fields>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.lock().push(Fields::of(event));
        }
    }

    #[test]
    fn fields_are_cut_between_characters_and_empty_ones_taken_as_absent() {
        let kept = Kept::default();
        let long = "a".to_owned() + &"é".repeat(FIELD_BYTES_MAX);
        let lines = tracing_subscriber::registry().with(kept.clone());
        tracing::subscriber::with_default(lines, || {
            tracing::info!(long, by = "", number = 7, "opened");
        });
        let mut fields = kept.0.lock().pop().unwrap();
        assert_eq!(fields.text, "opened");
        assert_eq!(fields.take("long").unwrap().len(), FIELD_BYTES_MAX - 1);
        assert_eq!((fields.take("by"), fields.take("long")), (None, None));
        let left = fields.left().into_iter().collect::<Vec<_>>();
        assert_eq!(left, [("number".to_owned(), "7".to_owned())]);
    }
}
