//! Receives broadcasts: one connection, with one subscriber or several.

use async_trait::async_trait;

use super::words::{Heard, Order, hear, write};
use super::{LIST, SubscriberSet, UNANSWERED_MAX, unsubscribe};
use crate::drivers::websocket::Link;
use crate::drivers::{DriverError, Reads, Receiver, Seat};
use crate::workload::Received;

/// A connection that receives.
pub(super) struct LiveReceiver {
    link: Link,
    /// Messages that came during subscribing.
    early: Vec<Received>,
    /// Names of its subscribers.
    clients: Vec<String>,
}

impl LiveReceiver {
    pub(super) async fn open(
        mut link: Link,
        seat: &Seat,
        known: &SubscriberSet,
    ) -> Result<Self, DriverError> {
        let is_stored = seat.destinations.is_stored;
        let (mut scratch, mut early) = (Vec::new(), Vec::new());
        for user in 0..seat.role.users {
            let client = client_id(seat, user);
            // A subscriber that was there before goes on where it was cut off.
            let from = match known.is_known(seat, &client) {
                true if is_stored => Some("resume"),
                false if is_stored => Some("earliest"),
                _ => None,
            };
            let listen = Order {
                command: "listen",
                client_id: &client,
                outbox_bytes: Some(seat.role.fetch_bytes.0),
                ..Order::default()
            };
            write(&listen, link.format, &mut scratch)?;
            link.put(&scratch);
            let mut unanswered = 1;
            let topics = topics(seat, user);
            for list in topics.chunks(LIST) {
                let subscribe = Order {
                    command: "subscribe",
                    client_id: &client,
                    topic: Some(list),
                    from,
                    ..Order::default()
                };
                write(&subscribe, link.format, &mut scratch)?;
                link.put(&scratch);
                unanswered += 1;
                if unanswered == UNANSWERED_MAX {
                    link.flush().await?;
                    unanswered -= answers(&mut link, 1, &mut early).await?;
                }
            }
            link.flush().await?;
            answers(&mut link, unanswered, &mut early).await?;
        }
        let clients = (0..seat.role.users).map(|user| client_id(seat, user)).collect();
        Ok(Self { link, early, clients })
    }
}

/// Waits for at least `least` answers, and returns how many came; messages between them are kept in `early`.
pub(super) async fn answers(
    link: &mut Link,
    least: usize,
    early: &mut Vec<Received>,
) -> Result<usize, DriverError> {
    let mut count = 0;
    while count < least {
        let mut refused = None;
        let on_answer = |answer: Result<(), String>| {
            count += 1;
            refused = refused.take().or_else(|| answer.err().map(DriverError::Refused));
        };
        read(link, early, on_answer).await?;
        if let Some(refused) = refused {
            return Err(refused);
        }
    }
    Ok(count)
}

/// Reads messages that are there, and waits for one where there is none. A dropped message is missing, and is
/// counted as such. Safe to drop.
async fn read(
    link: &mut Link,
    into: &mut Vec<Received>,
    mut on_answer: impl FnMut(Result<(), String>),
) -> Result<(), DriverError> {
    let (mut wrong, format) = (None, link.format);
    link.read(|message| match hear(message, format) {
        Ok(Heard::Answer(answer)) => on_answer(answer),
        Ok(Heard::Message(message)) => into.push(message),
        Ok(Heard::Dropped(_) | Heard::Other) => {}
        Err(error) => wrong = Some(error),
    })
    .await?;
    wrong.map_or(Ok(()), Err)
}

/// Under which name a subscriber is known. Names of topics are of one point alone, so it is.
fn client_id(seat: &Seat, user: u32) -> String {
    let of_point = seat.destinations.names.first().map_or("", String::as_str);
    format!("{of_point}/{}/{}/{user}", seat.group, seat.client)
}

/// Returns the topics of a subscriber.
fn topics(seat: &Seat, user: u32) -> Vec<&str> {
    let names = &seat.destinations.names;
    let count = names.len().max(1);
    let all = || (0_u32..).zip(names.iter().map(String::as_str));
    if let Some(follows) = seat.role.follows {
        // In turn, so that all topics have the same number of followers.
        let number = u64::from(seat.client) * u64::from(seat.role.users) + u64::from(user);
        let first = number * u64::from(follows);
        let wanted = (first..first + u64::from(follows)).map(|place| place % count as u64);
        return wanted
            .filter_map(|place| names.get(usize::try_from(place).ok()?))
            .map(String::as_str)
            .collect();
    }
    match seat.reads {
        Reads::All => all().map(|(_, name)| name).collect(),
        Reads::Share => all()
            .filter(|(place, _)| place % seat.clients.max(1) == seat.client)
            .map(|(_, name)| name)
            .collect(),
        Reads::One(place) => {
            let place = usize::try_from(place).unwrap_or(0) % count;
            names.get(place).map(String::as_str).into_iter().collect()
        }
    }
}

#[async_trait]
impl Receiver for LiveReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if !self.early.is_empty() {
            into.append(&mut self.early);
            return Ok(());
        }
        read(&mut self.link, into, |_| ()).await
    }

    async fn leave(&mut self) -> Result<(), DriverError> {
        unsubscribe(&mut self.link, &self.clients).await
    }
}
