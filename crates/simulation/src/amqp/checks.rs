//! Checks of the queues' content against the clients' knowledge.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stafett_model::Namespace;

use super::QUEUES;
use super::copies::Place;
use crate::server::{Server, pumped};
use crate::world::{Broken, Finding, World};

/// Milliseconds after which transfers between queues are complete.
const QUIET_MS: u32 = 10_000;

/// More messages than a queue of the simulation has at a start; holes in its logs are larger.
const AT_START_MAX: u64 = 2000;

impl World {
    /// Checks after a start that each message is in one queue, and that none is in flight.
    pub async fn check_queues(&mut self, server: &mut Server) -> Result<(), Broken> {
        // On a full disk dead letters wait, and a peek does not return them.
        while self.may_refuse {
            self.rest(server, 100).await?;
        }
        let found = self.look_until_good(server).await?;
        self.amqp.copies.resolve(&found);
        for copy in self.amqp.copies.all.values() {
            if !copy.holders.is_empty() {
                return Err(Finding("a copy is held by nobody".to_owned()).into());
            }
        }
        Ok(())
    }

    /// Checks at run time that the messages in flight are those that clients hold, and that none is missing.
    pub async fn check_flights(&mut self, server: &mut Server) -> Result<(), Broken> {
        self.pump_every = 1;
        for left in (0..QUIET_MS).rev() {
            self.tick(server).await?;
            let is_waiting = self.amqp.clients.iter().any(super::client::Client::is_waiting);
            let counts = counts(server);
            let held = self.held();
            let is_good = !is_waiting
                && counts
                    .iter()
                    .map(|(_, in_flight)| *in_flight)
                    .eq(held.iter().copied());
            if is_good && self.check_total(&counts).is_ok() {
                self.trace.note(|| format!("queues hold {counts:?}"));
                return Ok(());
            }
            if left == 0 {
                if self.has_failed() {
                    // On a broken disk publishers and delayed messages wait forever.
                    return Ok(());
                }
                self.check_total(&counts)?;
                return Err(Finding(format!(
                    "queues have {counts:?} ready and in flight, and clients hold {held:?}; {is_waiting}"
                ))
                .into());
            }
        }
        Ok(())
    }

    /// Returns the number of messages of each queue that clients hold.
    fn held(&self) -> Vec<u64> {
        let mut held = vec![0; QUEUES.len()];
        for client in &self.amqp.clients {
            for (_, queue) in client.held(&self.amqp.copies) {
                if let Some(count) = held.get_mut(usize::from(queue)) {
                    *count += 1;
                }
            }
        }
        held
    }

    /// Checks that all queues together hold as many messages as the clients' knowledge allows.
    fn check_total(&self, counts: &[(u64, u64)]) -> Result<(), Finding> {
        let total: u64 = counts.iter().map(|(ready, in_flight)| ready + in_flight).sum();
        let (least, most) = self.amqp.copies.bounds();
        if (least..=most).contains(&total) {
            Ok(())
        } else {
            Err(Finding(format!(
                "queues hold {total} messages {counts:?}; clients know of {least} to {most}"
            )))
        }
    }

    /// Peeks at all queues until their content is right. Fails if it is still wrong after [`QUIET_MS`].
    async fn look_until_good(
        &mut self,
        server: &mut Server,
    ) -> Result<BTreeMap<(usize, Place), u32>, Broken> {
        for left in (0..QUIET_MS / 100).rev() {
            self.rest(server, 100).await?;
            let found = self.look_at_queues(server).await?;
            match self.decide_and_check(&found, &counts(server)) {
                Ok(()) => return Ok(found),
                Err(Finding(what)) if left == 0 => {
                    let counts = counts(server);
                    return Err(
                        Finding(format!("{what}; queues have {counts:?} ready and in flight")).into(),
                    );
                }
                Err(_) => {}
            }
        }
        Err(Finding("it was not looked at".to_owned()).into())
    }

    /// Compares the queues' content with the model, which decides the outcomes of transactions by it before.
    fn decide_and_check(
        &mut self,
        found: &BTreeMap<(usize, Place), u32>,
        counts: &[(u64, u64)],
    ) -> Result<(), Finding> {
        check_all_seen(found, counts)?;
        let mut copies = self.amqp.copies.clone();
        let ledger = &self.kafka.ledger;
        copies.decide(found, |batch| ledger.is_message_there(batch))?;
        copies.check(found)?;
        self.amqp.copies = copies;
        self.apply_outcomes()
    }

    async fn look_at_queues(&mut self, server: &mut Server) -> Result<BTreeMap<(usize, Place), u32>, Broken> {
        let mut found: BTreeMap<(usize, Place), u32> = BTreeMap::new();
        for queue in (0..).take(QUEUES.len()) {
            for number in self.look_at_queue(server, queue).await? {
                *found.entry((number, Place(queue))).or_default() += 1;
            }
        }
        Ok(found)
    }

    /// Returns the messages that are ready in a queue.
    pub(super) async fn look_at_queue(
        &mut self,
        server: &mut Server,
        queue: u8,
    ) -> Result<Vec<usize>, Broken> {
        let name = QUEUES.get(usize::from(queue)).copied().unwrap_or_default();
        let Some(queue) = server
            .broker
            .messaging()
            .queues()
            .get(&Namespace::default(), name)
        else {
            return Err(Finding(format!("queue {name} is gone")).into());
        };
        let counted = queue.message_counts();
        if counted.overflowed > counted.published + AT_START_MAX {
            let dropped = counted.overflowed;
            return Err(Finding(format!(
                "{name} dropped {dropped} messages beyond its limit, and never had them"
            ))
            .into());
        }
        let mut numbers = Vec::new();
        let look = queue.peek(|_, message| {
            numbers.push(crate::kafka::id_of(message.value()));
            ControlFlow::Continue(())
        });
        if let Err(failed) = pumped(&server.journal, look).await {
            self.tick(server).await?;
            return Err(Finding(failed.0).into());
        }
        let numbers: Option<Vec<_>> = numbers.into_iter().map(|id| Some(id?.0)).collect();
        numbers.ok_or_else(|| Finding(format!("{name} holds a foreign message")).into())
    }
}

/// Checks that no message is in flight, and that every ready one was found. Before that, a message that was
/// not found may be there: a dead letter is in flight, and in no queue, until its target has stored it.
fn check_all_seen(found: &BTreeMap<(usize, Place), u32>, counts: &[(u64, u64)]) -> Result<(), Finding> {
    let mut seen = vec![0_u64; counts.len()];
    for ((_, place), times) in found {
        if let Some(count) = seen.get_mut(usize::from(place.0)) {
            *count += u64::from(*times);
        }
    }
    if counts.iter().any(|(_, in_flight)| *in_flight > 0) {
        return Err(Finding("messages are in flight that no client holds".to_owned()));
    }
    if counts.iter().map(|(ready, _)| *ready).ne(seen.iter().copied()) {
        return Err(Finding(format!("queues show {seen:?} messages")));
    }
    Ok(())
}

/// Returns the ready and in-flight counts of each queue.
fn counts(server: &Server) -> Vec<(u64, u64)> {
    let queues = server.broker.messaging().queues();
    QUEUES
        .iter()
        .map(|name| {
            let counts = queues
                .get(&Namespace::default(), name)
                .map(|queue| queue.counts());
            counts.map_or((0, 0), |counts| (counts.ready, counts.in_flight as u64))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_on_its_way_is_awaited() {
        let found = BTreeMap::from([((1, Place(0)), 1), ((2, Place(1)), 1)]);
        assert!(check_all_seen(&found, &[(1, 0), (1, 0)]).is_ok());
        // It is in flight.
        assert!(check_all_seen(&found, &[(1, 1), (1, 0)]).is_err());
        // It arrived after its target was looked at.
        assert!(check_all_seen(&found, &[(1, 0), (2, 0)]).is_err());
        // It left its queue after that was looked at.
        assert!(check_all_seen(&found, &[(0, 0), (1, 0)]).is_err());
    }
}
