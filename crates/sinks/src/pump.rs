//! One partition: records are read and gathered while the batch before them is written.

use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_client::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::warn;

use crate::convert::Converter;
use crate::definition::Definition;
use crate::gather::{Batch, Cause, Gather};
use crate::reader::{Piece, ReadError, Reader, begin};
use crate::status::{State, Status};
use crate::target::{Opened, Place};
use crate::writer::{Stored, Writer};

/// Wait before reading is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Order to a pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Nothing is read or written until the next order.
    Pause,
    /// Write what is gathered, and end.
    Finish,
}

/// News of a pump.
#[derive(Debug)]
pub(crate) enum News {
    /// The target is behind this offset.
    Stored { task: String, topic: String, next: u64 },
    /// Too much poison.
    Poisoned,
}

/// A partition on its way into the target.
pub(crate) struct Pump {
    pub(crate) definition: Arc<Definition>,
    pub(crate) task: String,
    pub(crate) place: Place,
    pub(crate) client: Client,
    pub(crate) status: Arc<Status>,
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) news: mpsc::Sender<News>,
    pub(crate) now_ms: fn() -> u64,
}

/// What happened next.
enum Event {
    Read(Option<Result<Piece, ReadError>>),
    Written(Writer, Batch, Stored),
    Order,
    Due,
}

impl Pump {
    /// Runs until it is told to finish, or dropped.
    pub(crate) async fn run(mut self, mut writer: Writer) {
        let Some(mut opened) = self.opened(&mut writer).await else {
            return;
        };
        loop {
            if !self.awaits_run().await {
                return;
            }
            match self.follow(writer, opened).await {
                Some((back, at)) => (writer, opened) = (back, at),
                None => return,
            }
        }
    }

    /// Opens the target. `None` if the pump has to finish before that succeeds.
    async fn opened(&mut self, writer: &mut Writer) -> Option<Opened> {
        let (client, place) = (self.client.clone(), self.place.clone());
        let where_to_begin = self.definition.begin;
        let mut orders = self.orders.clone();
        let opening = async {
            let start = loop {
                match begin(&client, &place, where_to_begin).await {
                    Ok(start) => break start,
                    Err(why) => {
                        warn!(%place, "the start of the partition is not known: {why}");
                        sleep(AGAIN).await;
                    }
                }
            };
            writer.open(start).await
        };
        let finished = async {
            // The runner is gone if it fails, and this with it.
            let _ = orders.wait_for(|order| *order == Order::Finish).await;
        };
        tokio::select! {
            opened = opening => Some(opened),
            () = finished => None,
        }
    }

    /// Waits until the sink is not paused. Returns false if the pump has to finish.
    async fn awaits_run(&mut self) -> bool {
        let order = self.orders.wait_for(|order| *order != Order::Pause).await;
        order.is_ok_and(|order| *order == Order::Run)
    }

    /// Reads and writes from the target's position on, until the pump is paused, has to finish, or the target is
    /// elsewhere. `None` at the end.
    async fn follow(&mut self, writer: Writer, opened: Opened) -> Option<(Writer, Opened)> {
        let definition = Arc::clone(&self.definition);
        let mut converter = Converter::new(
            definition.columns.clone(),
            definition.steps.clone(),
            definition.on_unknown,
        );
        let mut gather = Gather::new(
            self.place.clone(),
            definition.flush,
            definition.columns.len(),
            opened.next,
            opened.begun,
            (self.now_ms)(),
        );
        self.tell(opened.next).await;
        let mut reader = Some(self.reader(opened.next));
        let mut idle = Some(writer);
        let mut flight: JoinSet<(Writer, Batch, Stored)> = JoinSet::new();
        let mut ahead: Option<Piece> = None;
        let mut position = opened;
        loop {
            let order = *self.orders.borrow();
            if order == Order::Pause && idle.is_some() {
                return idle.map(|writer| (writer, position));
            }
            if let Some(piece) = ahead.take() {
                ahead = take(&mut gather, &mut converter, piece);
            }
            let cause = match order {
                Order::Finish if !gather.is_empty() => Some(Cause::Stop),
                Order::Run => gather.due((self.now_ms)()),
                Order::Finish | Order::Pause => None,
            };
            if let Some(cause) = cause
                && let Some(mut writer) = idle.take()
            {
                let batch = gather.take(cause, (self.now_ms)());
                flight.spawn(async move {
                    let stored = writer.store(&batch).await;
                    (writer, batch, stored)
                });
                continue;
            }
            if order == Order::Finish && idle.is_some() {
                return None;
            }
            let has_room = ahead.is_none() && order == Order::Run && cause.is_none();
            let deadline = if cause.is_none() && !gather.is_empty() {
                gather.deadline().saturating_sub((self.now_ms)())
            } else {
                u64::from(u32::MAX)
            };
            let event = tokio::select! {
                Some(done) = flight.join_next() => {
                    // The task does not panic, and ends with this one only.
                    let (writer, batch, stored) = done.ok()?;
                    Event::Written(writer, batch, stored)
                }
                piece = next(&mut reader), if has_room => Event::Read(piece),
                changed = self.orders.changed() => {
                    changed.ok()?;
                    Event::Order
                }
                () = sleep(Duration::from_millis(deadline)) => Event::Due,
            };
            match event {
                Event::Order | Event::Due => {}
                Event::Read(Some(Ok(piece))) => ahead = Some(piece),
                Event::Read(ended) => {
                    self.reading_failed(ended).await;
                    reader = Some(self.reader(gather.next()));
                }
                Event::Written(writer, batch, Stored::Whole) => {
                    position = Opened {
                        next: batch.next,
                        epoch: writer.epoch,
                        begun: None,
                    };
                    self.tell(batch.next).await;
                    idle = Some(writer);
                }
                Event::Written(writer, _, Stored::Elsewhere(opened)) => return Some((writer, opened)),
                Event::Written(writer, _, Stored::Poisoned) => {
                    // It is read again once an operator resumes the sink.
                    let _ = self.news.send(News::Poisoned).await;
                    self.orders.wait_for(|order| *order != Order::Run).await.ok()?;
                    return Some((writer, position));
                }
            }
        }
    }

    fn reader(&self, from: u64) -> Reader {
        Reader::spawn(self.client.clone(), self.place.clone(), from, self.definition.on_gap)
    }

    async fn tell(&self, next: u64) {
        let (task, topic) = (self.task.clone(), self.place.topic.clone());
        // The runner is gone if it fails, and this with it.
        let _ = self.news.send(News::Stored { task, topic, next }).await;
    }

    async fn reading_failed(&self, ended: Option<Result<Piece, ReadError>>) {
        if let Some(Err(why)) = ended {
            let state = match why {
                ReadError::Client(_) => State::Retrying,
                ReadError::Gap { .. } | ReadError::Unreadable(_) => State::Stopped,
            };
            if self.status.enter(state, &why.to_string()) {
                warn!(place = %self.place, state = state.word(), "{why}");
            }
        }
        sleep(AGAIN).await;
    }
}

async fn next(reader: &mut Option<Reader>) -> Option<Result<Piece, ReadError>> {
    match reader {
        Some(reader) => reader.next().await,
        None => None,
    }
}

/// Gathers a piece up to the next flush. Returns what is left of it.
fn take(gather: &mut Gather, converter: &mut Converter, mut piece: Piece) -> Option<Piece> {
    let mut taken = 0;
    for record in &piece.records {
        if gather.is_full() || !gather.push(record, converter) {
            piece.records.drain(..taken);
            return Some(piece);
        }
        taken += 1;
    }
    gather.pass(piece.next);
    None
}
