//! What librdkafka tells, on threads of its own.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;
use stafett_lab::workload::Received;
use tokio::sync::Notify;

/// What became of a message that was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) message: Received,
    pub(super) failure: Option<String>,
}

/// Listens to one client.
#[derive(Debug, Default)]
pub(super) struct Ears {
    answers: Mutex<Vec<Answer>>,
    /// Answers came, or the brokers went.
    pub(super) heard: Notify,
    are_brokers_down: AtomicBool,
    /// Its group has told this member what is its own, if only that nothing is.
    pub(super) assigned: Notify,
}

impl Ears {
    /// Puts all answers that came into `into`, in place of what is there.
    pub(super) fn take(&self, into: &mut Vec<Answer>) {
        into.clear();
        std::mem::swap(
            &mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner),
            into,
        );
    }

    /// No broker can be reached, as far as is known.
    pub(super) fn are_brokers_down(&self) -> bool {
        self.are_brokers_down.load(Ordering::Relaxed)
    }
}

impl ClientContext for Ears {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if (level as i32) <= RDKafkaLogLevel::Warning as i32 {
            // With standard error closed there is nobody to tell.
            let _ = writeln!(io::stderr(), "librdkafka: {facility}: {message}");
        }
    }

    fn error(&self, error: KafkaError, _: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.are_brokers_down.store(true, Ordering::Relaxed);
            self.heard.notify_one();
        }
    }
}

impl ProducerContext for Ears {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let (message, failure) = match result {
            Ok(message) => (message, None),
            Err((error, message)) => (message, Some(error.to_string())),
        };
        // A message says itself which one it is.
        let Some(message) = message.payload().and_then(Received::read) else {
            return;
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = answers.is_empty();
        answers.push(Answer { message, failure });
        drop(answers);
        if is_first {
            self.are_brokers_down.store(false, Ordering::Relaxed);
            self.heard.notify_one();
        }
    }
}

impl ConsumerContext for Ears {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if matches!(rebalance, Rebalance::Assign(_)) {
            self.assigned.notify_one();
        }
    }
}
