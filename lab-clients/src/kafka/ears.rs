//! Callbacks of librdkafka, called on its own threads.

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

/// Outcome of a sent message.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) message: Received,
    pub(super) failure: Option<String>,
}

/// Callbacks of one client.
#[derive(Debug, Default)]
pub(super) struct Ears {
    answers: Mutex<Vec<Answer>>,
    /// Notified when answers have arrived or all brokers are down.
    pub(super) heard: Notify,
    are_brokers_down: AtomicBool,
    /// Notified when the group has assigned partitions to this member, possibly none.
    pub(super) assigned: Notify,
}

impl Ears {
    /// Moves all answers into `into`, replacing its content.
    pub(super) fn take(&self, into: &mut Vec<Answer>) {
        into.clear();
        std::mem::swap(
            &mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner),
            into,
        );
    }

    /// True if no broker is reachable, as far as is known.
    pub(super) fn are_brokers_down(&self) -> bool {
        self.are_brokers_down.load(Ordering::Relaxed)
    }
}

impl ClientContext for Ears {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if (level as i32) <= RDKafkaLogLevel::Warning as i32 {
            // The write fails if standard error is closed.
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
        // The payload identifies the message.
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
