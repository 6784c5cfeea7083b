//! Exactly-once producer: messages go in transactions, and are acknowledged when theirs is committed.
//!
//! ```text
//! none ── a message ──▶ open ── time is over, or queue is full ──▶ committing ── done ──▶ none
//! ```
//!
//! A transaction that cannot be committed is aborted: its messages count as failed, are never delivered and
//! are not resent.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use stafett_lab::drivers::{Destinations, DriverError, Seat, Sender};
use stafett_lab::workload::content::Contents;
use stafett_lab::workload::recorder::{Handover, Parcel};
use stafett_lab::workload::{Message, Reports};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

use super::sender::{Producer, hand_over, start};
use super::{blocking, config, failed};

/// Default time that a transaction stays open: the default of Kafka Streams.
const OPEN_FOR: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that sends in transactions.
pub(super) struct Transactions {
    /// `None` once it is dropped.
    producer: Option<Arc<Producer>>,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    scratch: Vec<u8>,
    open_for: Duration,
    open: Option<Open>,
    committing: Option<Committing>,
}

struct Open {
    until: Instant,
    parcel: Parcel,
}

struct Committing {
    parcel: Parcel,
    ended: JoinHandle<Result<(), Uncommitted>>,
}

/// Reason why a transaction was not committed.
enum Uncommitted {
    /// Aborted, without effect.
    Aborted(String),
    /// The outcome is unknown.
    Unknown(String),
}

impl Transactions {
    pub(super) async fn open(server: &str, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let (producer, _) = start(config::of_sender(server, seat), seat).await?;
        let producer = Arc::new(producer);
        let first = Arc::clone(&producer);
        let known = blocking(move || first.init_transactions(PATIENCE).map_err(|error| failed(&error)));
        known.await?;
        Ok(Self {
            producer: Some(producer),
            reports,
            destinations: Arc::clone(&seat.destinations),
            contents: seat.contents.clone(),
            scratch: Vec::new(),
            open_for: seat.role.transaction.map_or(OPEN_FOR, |span| span.0),
            open: None,
            committing: None,
        })
    }

    fn producer(&self) -> Result<&Arc<Producer>, DriverError> {
        let closed = || DriverError::Failed("it was closed".to_owned());
        self.producer.as_ref().ok_or_else(closed)
    }

    async fn push(&mut self, message: &Message) -> Result<(), DriverError> {
        self.contents.write(message, &mut self.scratch);
        loop {
            // A transaction begins only after the previous one has ended.
            self.settle().await?;
            let producer = self.producer()?;
            if self.open.is_none() {
                producer.begin_transaction().map_err(|error| failed(&error))?;
                self.open = Some(Open {
                    until: Instant::now() + self.open_for,
                    parcel: Parcel::default(),
                });
            }
            let is_taken = hand_over(self.producer()?, &self.destinations, message, &self.scratch)?;
            if let Some(open) = self.open.as_mut().filter(|_| is_taken) {
                open.parcel.push(message);
                return Ok(());
            }
            // The queue is full: the transaction ends here.
            self.commit()?;
        }
    }

    /// Starts to commit the open transaction.
    fn commit(&mut self) -> Result<(), DriverError> {
        let producer = Arc::clone(self.producer()?);
        if let Some(open) = self.open.take() {
            self.committing = Some(Committing {
                parcel: open.parcel,
                ended: tokio::task::spawn_blocking(move || commit(&producer)),
            });
        }
        Ok(())
    }

    /// Waits until the transaction that is being committed has ended, if there is one. Safe to drop.
    async fn settle(&mut self) -> Result<(), DriverError> {
        let Some(committing) = &mut self.committing else {
            return Ok(());
        };
        let ended = (&mut committing.ended).await;
        let ended = ended.unwrap_or_else(|error| Err(Uncommitted::Unknown(error.to_string())));
        let parcel = self.committing.take().map(|committing| committing.parcel);
        let parcel = parcel.unwrap_or_default();
        match ended {
            Ok(()) => {
                self.reports.acknowledged(&parcel);
                Ok(())
            }
            Err(Uncommitted::Aborted(reason)) => {
                self.reports.failed(&parcel, &reason);
                Ok(())
            }
            Err(Uncommitted::Unknown(reason)) => {
                self.reports.failed(&parcel, &reason);
                Err(DriverError::Failed(reason))
            }
        }
    }
}

/// Commits, or aborts a transaction that cannot be committed. Blocks.
fn commit(producer: &Producer) -> Result<(), Uncommitted> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match producer.commit_transaction(PATIENCE) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let KafkaError::Transaction(cause) = &error else {
            return Err(Uncommitted::Unknown(error.to_string()));
        };
        if cause.txn_requires_abort() {
            let reason = format!("a transaction was aborted: {error}");
            return match producer.abort_transaction(PATIENCE) {
                Ok(()) => Err(Uncommitted::Aborted(reason)),
                Err(error) => Err(Uncommitted::Unknown(format!("{reason}; {error}"))),
            };
        }
        if !cause.is_retriable() || Instant::now() > deadline {
            return Err(Uncommitted::Unknown(error.to_string()));
        }
    }
}

#[async_trait]
impl Sender for Transactions {
    /// Sends messages. Those that were not sent before an error are reported as failed.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            if let Err(error) = self.push(message).await {
                handover.failed(&error);
                return Err(error);
            }
            handover.taken(1);
        }
        drop(handover);
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.until <= Instant::now())
        {
            self.commit()?;
        }
        // Nothing waits here while there is room, so other tasks get their turn explicitly.
        yield_now().await;
        Ok(())
    }

    /// Commits: the caller must not send more before an acknowledgement, and that needs the commit.
    async fn flush(&mut self) -> Result<(), DriverError> {
        self.commit()
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        if self.committing.is_some() {
            return self.settle().await;
        }
        match &self.open {
            Some(open) => sleep_until(open.until).await,
            None => pending().await,
        }
        self.commit()
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.settle().await?;
        self.commit()?;
        self.settle().await
    }
}

impl Drop for Transactions {
    /// Reports uncommitted messages as given up.
    fn drop(&mut self) {
        let committing = self.committing.take().map(|committing| committing.parcel);
        for parcel in committing
            .into_iter()
            .chain(self.open.take().map(|open| open.parcel))
        {
            self.reports.given_up(
                &parcel,
                "the client was given up before the transaction was committed",
            );
        }
        if let Some(producer) = self.producer.take() {
            // Dropping the last reference ends librdkafka's threads, which blocks briefly.
            std::thread::spawn(move || drop(producer));
        }
    }
}
