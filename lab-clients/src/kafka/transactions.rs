//! Produces exactly once: messages go in transactions, and are acknowledged when theirs is committed.
//!
//! ```text
//! none ── a message ──▶ open ── its time is over, or nothing more may be sent ──▶ committing ── done ──▶ none
//! ```
//!
//! A transaction that cannot be committed is aborted: its messages have failed, nobody gets them, and they
//! are not sent again.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use stafett_lab::drivers::{Destinations, DriverError, Seat, Sender, Task};
use stafett_lab::workload::content::Contents;
use stafett_lab::workload::recorder::{Handover, Parcel};
use stafett_lab::workload::{Message, Reports};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

use super::sender::{Producer, hand_over, start};
use super::{blocking, config, failed};

/// How long a transaction takes messages up where the role says nothing: as long as Kafka Streams' do.
const OPEN_FOR: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that sends in transactions.
pub(super) struct Transactions {
    /// Until it is dropped.
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

/// Why a transaction was not committed.
enum Uncommitted {
    /// It is as if it had never been.
    Aborted(String),
    /// Nobody knows.
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

    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn push_all(&mut self, messages: &[Message]) -> Result<(), DriverError> {
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
        // While there is room nothing here waits, and others have their turn all the same.
        yield_now().await;
        Ok(())
    }

    async fn push(&mut self, message: &Message) -> Result<(), DriverError> {
        self.contents.write(message, &mut self.scratch);
        loop {
            // The next one begins when the last one has ended.
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
            // What fits is a transaction.
            self.commit()?;
        }
    }

    /// Begins to commit what is open.
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

    /// Until the transaction that is being committed has ended, if there is one. Safe to drop.
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

    async fn happen(&mut self) -> Result<(), DriverError> {
        if self.committing.is_some() {
            return self.settle().await;
        }
        match &self.open {
            Some(open) => sleep_until(open.until).await,
            None => pending().await,
        }
        self.commit()
    }

    async fn end(&mut self) -> Result<(), DriverError> {
        self.settle().await?;
        self.commit()?;
        self.settle().await
    }
}

/// Commits, or aborts what cannot be committed. Blocks.
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

impl Sender for Transactions {
    fn send<'a>(&'a mut self, messages: &'a [Message]) -> Task<'a, ()> {
        Box::pin(self.push_all(messages))
    }

    /// Nothing more may be sent until something is acknowledged, and nothing is until it is committed.
    fn flush(&mut self) -> Task<'_, ()> {
        Box::pin(async { self.commit() })
    }

    fn tick(&mut self) -> Task<'_, ()> {
        Box::pin(self.happen())
    }

    fn finish(&mut self) -> Task<'_, ()> {
        Box::pin(self.end())
    }
}

impl Drop for Transactions {
    /// Whatever is not committed by now is not acknowledged.
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
            // The last one who has it ends its threads, which takes a moment.
            std::thread::spawn(move || drop(producer));
        }
    }
}
