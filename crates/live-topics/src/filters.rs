//! Filters of listening clients: conditions on their deliveries, beside their subscriptions.
//!
//! Equal filters are one, and each distinct one is evaluated at most once per message, however many clients
//! have it. Without filters there is nothing to look up: the table of clients is empty.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use stafett_expr::{BadExpression, Expression, Found, NoJson, Paths, Record, Value, Variable};
use stafett_model::Lock;

use crate::clients::{ClientNumber, position};
use crate::message::{Message, Payload};
use crate::metrics::LiveMetrics;

const VARIABLES: &[Variable] = &[Variable::Value, Variable::Topic, Variable::Timestamp];

/// Work of a filter on one message: it runs while the message's publisher waits.
const WORK_MAX: usize = 1 << 20;

/// A condition on messages, shared by all clients that have it.
#[derive(Debug)]
pub struct Filter {
    /// Number among the filters that are in use.
    number: usize,
    expression: Expression,
}

/// Refusal of a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error(transparent)]
    Bad(#[from] BadExpression),
    #[error("there may be {max} distinct filters; with this one there would be more")]
    TooMany { max: usize },
}

/// The distinct filters that are in use.
#[derive(Debug, Default)]
pub(crate) struct Filters(Lock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By number; those that no client has any more are replaced.
    filters: Vec<(Box<str>, Weak<Filter>)>,
    by_source: HashMap<Box<str>, usize>,
}

impl Filters {
    /// Returns the filter of an expression.
    pub(crate) fn get(&self, source: &str, max: usize) -> Result<Arc<Filter>, FilterError> {
        let found = self.0.lock().find(source);
        if let Some(filter) = found {
            return Ok(filter);
        }
        // Takes a while: nothing waits for it.
        let expression = Expression::compile(source, VARIABLES)?.with_work_max(WORK_MAX);
        let mut known = self.0.lock();
        if let Some(filter) = known.find(source) {
            return Ok(filter);
        }
        let unused = || {
            known
                .filters
                .iter()
                .position(|(_, filter)| filter.strong_count() == 0)
        };
        // One that had the same text, and is in use no more, has its number already.
        let number = match known.by_source.get(source) {
            Some(number) => *number,
            None if known.filters.len() < max => known.filters.len(),
            None => unused().ok_or(FilterError::TooMany { max })?,
        };
        let filter = Arc::new(Filter { number, expression });
        let entry = (Box::from(source), Arc::downgrade(&filter));
        if let Some(slot) = known.filters.get_mut(number) {
            let (before, _) = std::mem::replace(slot, entry);
            known.by_source.remove(&before);
        } else {
            known.filters.push(entry);
        }
        known.by_source.insert(source.into(), number);
        Ok(filter)
    }
}

impl Known {
    fn find(&self, source: &str) -> Option<Arc<Filter>> {
        let number = self.by_source.get(source)?;
        self.filters.get(*number)?.1.upgrade()
    }
}

/// Filters of the clients that listen, by client number. Empty as long as none has one.
#[derive(Debug, Default)]
pub(crate) struct ClientFilters {
    filters: Vec<Option<Arc<Filter>>>,
    /// Clients that have one.
    count: usize,
}

impl ClientFilters {
    pub(crate) fn set(&mut self, client: ClientNumber, filter: Option<Arc<Filter>>) {
        let place = position(client);
        if self.filters.len() <= place {
            if filter.is_none() {
                return;
            }
            self.filters.resize(place + 1, None);
        }
        let Some(slot) = self.filters.get_mut(place) else {
            return;
        };
        self.count += usize::from(filter.is_some());
        self.count -= usize::from(slot.is_some());
        *slot = filter;
        if self.count == 0 {
            self.filters = Vec::new();
        }
    }

    pub(crate) fn get(&self, client: ClientNumber) -> Option<&Arc<Filter>> {
        self.filters.get(position(client)).and_then(Option::as_ref)
    }
}

/// Verdicts of filters on one message, each found once.
pub(crate) struct Verdicts<'m> {
    message: &'m Message<'m>,
    metrics: &'m LiveMetrics,
    /// By filter number.
    found: SmallVec<[Option<bool>; 128]>,
    /// Clients that do not get the message.
    refused: u64,
}

impl<'m> Verdicts<'m> {
    pub(crate) fn new(message: &'m Message<'m>, metrics: &'m LiveMetrics) -> Self {
        Self {
            message,
            metrics,
            found: SmallVec::new(),
            refused: 0,
        }
    }

    /// Returns whether a filter lets the message through. One that fails does not.
    pub(crate) fn admits(&mut self, filter: &Filter) -> bool {
        if let Some(Some(verdict)) = self.found.get(filter.number) {
            self.refused += u64::from(!verdict);
            return *verdict;
        }
        let verdict = filter.expression.is_true(self.message);
        if verdict.is_err() {
            self.metrics.filter_errors.inc();
        }
        let verdict = verdict.unwrap_or(false);
        if self.found.len() <= filter.number {
            self.found.resize(filter.number + 1, None);
        }
        if let Some(slot) = self.found.get_mut(filter.number) {
            *slot = Some(verdict);
        }
        self.refused += u64::from(!verdict);
        verdict
    }
}

impl Drop for Verdicts<'_> {
    fn drop(&mut self) {
        if self.refused > 0 {
            self.metrics.filtered.inc_by(self.refused);
        }
    }
}

impl Record for Message<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        match variable {
            Variable::Topic => Value::Text(Cow::Borrowed(self.topic)),
            Variable::Timestamp => self.timestamp.map_or(Value::Null, Value::of_millis),
            Variable::Value
            | Variable::Headers
            | Variable::Key
            | Variable::Partition
            | Variable::Offset
            | Variable::Exchange
            | Variable::RoutingKey
            | Variable::Priority => Value::Null,
        }
    }

    fn header(&self, _: &str) -> Option<Value<'_>> {
        None
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        match self.payload {
            Payload::Json(text) => paths.read(text, found),
            Payload::Bytes(_) => Err(NoJson),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &str) -> Message<'_> {
        Message {
            topic: "news",
            payload: Payload::Json(payload),
            timestamp: Some(0),
            id: None,
            offset: None,
        }
    }

    #[test]
    fn equal_filters_are_one_and_those_without_a_client_make_room() {
        let filters = Filters::default();
        let one = filters.get("value.a == 1", 2).unwrap();
        assert!(Arc::ptr_eq(&one, &filters.get("value.a == 1", 2).unwrap()));
        let two = filters.get("value.a == 2", 2).unwrap();
        assert_eq!(
            filters.get("value.a == 3", 2).unwrap_err(),
            FilterError::TooMany { max: 2 }
        );
        drop(two);
        let two = filters.get("value.a == 2", 2).unwrap();
        drop(one);
        let three = filters.get("value.a == 3", 2).unwrap();
        assert_eq!((two.number, three.number), (1, 0));
        assert!(Arc::ptr_eq(&three, &filters.get("value.a == 3", 2).unwrap()));
        assert!(matches!(
            filters.get("value.a == 1", 2),
            Err(FilterError::TooMany { .. })
        ));
        assert!(matches!(filters.get("value.a ==", 9), Err(FilterError::Bad(_))));
        assert!(matches!(
            filters.get("true", 0),
            Err(FilterError::TooMany { max: 0 })
        ));
    }

    #[test]
    fn a_filter_sees_payload_topic_and_time() {
        let filters = Filters::default();
        let metrics = LiveMetrics::default();
        for (source, payload, expected) in [
            ("value.a == 1 && topic == 'news'", r#"{"a":1}"#, true),
            ("timestamp == timestamp(0)", "null", true),
            ("value.a == 1", r#"{"b":1}"#, false),
            ("value == 3", "3", true),
            ("value.a", r#"{"a":1}"#, false),
        ] {
            let filter = filters.get(source, 100).unwrap();
            let message = message(payload);
            let mut verdicts = Verdicts::new(&message, &metrics);
            assert_eq!(verdicts.admits(&filter), expected, "{source}");
            assert_eq!(verdicts.admits(&filter), expected, "the same again");
        }
        assert_eq!((metrics.filter_errors.get(), metrics.filtered.get()), (2, 4));
        let bytes = Message {
            payload: Payload::Bytes(b"{\"a\":1}"),
            ..message("")
        };
        let filter = filters.get("value.a == 1", 100).unwrap();
        assert!(!Verdicts::new(&bytes, &metrics).admits(&filter));
    }

    #[test]
    fn without_filters_there_is_no_table() {
        let filters = Filters::default();
        let mut clients = ClientFilters::default();
        clients.set(ClientNumber(1000), None);
        assert_eq!(clients.filters.capacity(), 0);
        let filter = filters.get("true", 1).unwrap();
        clients.set(ClientNumber(3), Some(Arc::clone(&filter)));
        clients.set(ClientNumber(5), Some(filter));
        assert!(clients.get(ClientNumber(3)).is_some() && clients.get(ClientNumber(4)).is_none());
        clients.set(ClientNumber(3), None);
        clients.set(ClientNumber(5), None);
        assert_eq!((clients.filters.capacity(), clients.count), (0, 0));
    }
}
