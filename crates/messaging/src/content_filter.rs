//! Filter of a consumer: a condition on the content of messages.

use prometheus_client::metrics::counter::Counter;
use stafett_delivery::MessageFilter;
use stafett_model::StoredMessage;
use stafett_routing::{AttributeReaders, Filter, FilterWork, StoredContent};

/// Condition on stored messages, with the same meaning as that of a binding.
#[derive(Debug)]
pub(crate) struct ContentFilter {
    pub(crate) filter: Filter,
    pub(crate) facts: AttributeReaders,
    /// Evaluations that failed.
    pub(crate) errors: Counter,
}

impl MessageFilter for ContentFilter {
    fn source(&self) -> &str {
        self.filter.source()
    }

    fn is_true_of(&self, message: &StoredMessage) -> bool {
        let content = StoredContent::new(message, &self.facts);
        let verdict = self.filter.is_true(&content, &mut FilterWork::default());
        if verdict.is_err() {
            self.errors.inc();
        }
        verdict.unwrap_or(false)
    }
}
