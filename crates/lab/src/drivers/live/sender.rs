//! Publishes: with answers, many messages in a command and several commands on their way; without, a command
//! for each.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::words::{Entry, Heard, Payload, add_content, hear, publish};
use crate::drivers::websocket::Link;
use crate::drivers::{Destinations, DriverError, Seat, Sender, moment};
use crate::experiment::Delivery;
use crate::workload::content::Contents;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Reports};

/// A connection that publishes.
pub(super) struct LiveSender {
    link: Link,
    destinations: Arc<Destinations>,
    is_answered: bool,
    in_flight_max: usize,
    batch_bytes: usize,
    linger: Duration,
    contents: Contents,
    reports: Reports,
    /// The last message and its content: a duplicate is the same to the letter.
    last: Option<Message>,
    content: Vec<u8>,
    /// The contents of the batch that is being made, behind each other; and of each the topic and where it
    /// ends.
    making: Vec<u8>,
    entries: Vec<(u32, usize)>,
    parcel: Parcel,
    due: Option<Instant>,
    /// Commands without an answer.
    flights: VecDeque<Parcel>,
    /// Unanswered messages that are not with the kernel yet.
    leaving: Parcel,
    scratch: Vec<u8>,
}

impl LiveSender {
    pub(super) fn new(link: Link, seat: &Seat, reports: Reports) -> Self {
        let role = &seat.role;
        Self {
            link,
            destinations: Arc::clone(&seat.destinations),
            is_answered: role.delivery != Delivery::AtMostOnce,
            in_flight_max: usize::try_from(role.in_flight).unwrap_or(1).max(1),
            batch_bytes: usize::try_from(role.batch.0).unwrap_or(usize::MAX),
            linger: role.linger.0,
            contents: seat.contents.clone(),
            reports,
            last: None,
            content: Vec::new(),
            making: Vec::new(),
            entries: Vec::new(),
            parcel: Parcel::default(),
            due: None,
            flights: VecDeque::new(),
            leaving: Parcel::default(),
            scratch: Vec::new(),
        }
    }

    fn push(&mut self, message: &Message) {
        if self.last != Some(*message) {
            self.contents.write(message, &mut self.content);
            self.last = Some(*message);
        }
        add_content(&self.content, self.link.format, &mut self.making);
        self.entries.push((message.topic, self.making.len()));
        self.parcel.push(message);
        if self.due.is_none() {
            self.due = Some(Instant::now() + self.linger);
        }
    }

    /// Sends the batch; waits while as much is under way as may be. Safe to drop.
    async fn dispatch(&mut self) -> Result<(), DriverError> {
        self.leave().await?;
        if self.entries.is_empty() {
            return Ok(());
        }
        while self.flights.len() >= self.in_flight_max {
            self.take_answers().await?;
        }
        let names = &self.destinations.names;
        let format = self.link.format;
        let link = &mut self.link;
        let mut start = 0;
        let entry = |(topic, end): &(u32, usize)| {
            let name = usize::try_from(*topic).ok().and_then(|topic| names.get(topic));
            let content = self.making.get(start..*end).unwrap_or_default();
            start = *end;
            Entry {
                topic: name.map_or("", String::as_str),
                payload: Payload { content, format },
            }
        };
        let entries: Vec<Entry<'_>> = self.entries.iter().map(entry).collect();
        publish(&entries, format, self.is_answered, &mut self.scratch, |message| {
            link.put(message);
        })?;
        self.making.clear();
        self.entries.clear();
        self.due = None;
        let parcel = std::mem::take(&mut self.parcel);
        if self.is_answered {
            self.flights.push_back(parcel);
            return self.link.flush().await;
        }
        self.leaving = parcel;
        self.leave().await
    }

    /// Writes unanswered messages. Safe to drop: unwritten ones still wait.
    async fn leave(&mut self) -> Result<(), DriverError> {
        if self.leaving.messages == 0 {
            return Ok(());
        }
        let flushed = self.link.flush().await;
        let parcel = std::mem::take(&mut self.leaving);
        match &flushed {
            Ok(()) => self.reports.unanswered(&parcel),
            Err(error) => self.reports.given_up(&parcel, &error.to_string()),
        }
        flushed
    }

    /// Reads messages of the broker, and settles answered commands. Safe to drop.
    async fn take_answers(&mut self) -> Result<(), DriverError> {
        let (mut heard, format) = (Vec::new(), self.link.format);
        self.link
            .read(|message| heard.push(hear(message, format)))
            .await?;
        for said in heard {
            let Heard::Answer(answer) = said? else { continue };
            match (self.flights.pop_front(), answer) {
                (Some(parcel), Ok(())) => self.reports.acknowledged(&parcel),
                (Some(parcel), Err(reason)) => self.reports.failed(&parcel, &reason),
                // A good message without `ack` gets no answer; a bad one does.
                (None, Err(reason)) => return Err(DriverError::Refused(reason)),
                (None, Ok(())) => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Sender for LiveSender {
    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            self.push(message);
            handover.taken(1);
            if self.making.len() < self.batch_bytes {
                continue;
            }
            if let Err(error) = self.dispatch().await {
                handover.failed(&error);
                return Err(error);
            }
        }
        drop(handover);
        // A sender that always has messages does not wait for a tick.
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.dispatch().await?;
        }
        while !self.flights.is_empty() {
            // Answers are taken at once, so that none looks later than it was.
            tokio::select! {
                biased;
                taken = self.take_answers() => taken?,
                () = ready(()) => break,
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        self.dispatch().await
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        if self.leaving.messages > 0 {
            return self.leave().await;
        }
        let has_room = self.flights.len() < self.in_flight_max;
        let due = self.due.filter(|_| has_room);
        tokio::select! {
            biased;
            answered = self.take_answers() => return answered,
            () = moment(due) => {}
        }
        self.dispatch().await
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.dispatch().await?;
        while !self.flights.is_empty() {
            self.take_answers().await?;
        }
        Ok(())
    }
}

impl Drop for LiveSender {
    /// Whatever has no answer by now will have none.
    fn drop(&mut self) {
        let reason = "the connection was given up before the answer came";
        for parcel in self.flights.iter().chain([&self.leaving, &self.parcel]) {
            self.reports.given_up(parcel, reason);
        }
    }
}

#[cfg(test)]
mod tests;
