//! Messages that were sent over HTTP, as far as their client knows them.

use std::collections::BTreeMap;

use stafett_delivery::{DeliveryId, LeaseId};

use super::{Taking, class_of};
use crate::world::Death;

/// Milliseconds after which a settlement that was not awaited, and a mark, survive everything.
const SYNCED_MS: i64 = 3_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    No,
    Maybe,
    /// Never, or taken since by a request without an answer.
    Vague,
    Yes,
}

/// State of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    No,
    Maybe,
    /// Since this time: a failure soon after may undo it.
    Soon(i64),
    Yes,
}

/// Messages of one request: stored as a whole.
#[derive(Debug, Clone)]
struct Request {
    numbers: std::ops::Range<usize>,
    bytes: usize,
    sent: u32,
    stored: Stored,
    /// An answer said that it was stored by the request that it answers.
    is_answered: bool,
}

#[derive(Debug, Clone)]
struct Sent {
    request: usize,
    /// The place that an answer gave.
    place: Option<DeliveryId>,
    settled: Settled,
    /// Time of its last delivery that was answered and has to be known after a failure.
    delivered_ms: Option<i64>,
    /// The client's lease, and the time until which it cannot be over.
    lease: Option<(LeaseId, i64)>,
}

/// A message in an answer.
pub(super) struct Received {
    pub(super) number: usize,
    pub(super) place: DeliveryId,
    pub(super) redelivered: bool,
    pub(super) lease: Option<LeaseId>,
    pub(super) how: Taking,
    pub(super) asked_ms: i64,
    pub(super) now_ms: i64,
    /// True if its mark was stored: not on a full disk.
    pub(super) is_marked: bool,
}

/// All messages that were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Parcels {
    requests: Vec<Request>,
    sent: Vec<Sent>,
    /// Takes without an answer: a class, and how many messages may be gone.
    doubts: Vec<(Option<u8>, u8)>,
}

impl Parcels {
    /// Adds a request with new messages. Returns its index.
    pub(super) fn add(&mut self, count: usize, bytes: usize) -> usize {
        let (first, request) = (self.sent.len(), self.requests.len());
        let new = Sent {
            request,
            place: None,
            settled: Settled::No,
            delivered_ms: None,
            lease: None,
        };
        self.sent.resize(first + count, new);
        self.requests.push(Request {
            numbers: first..first + count,
            bytes,
            sent: 0,
            stored: Stored::No,
            is_answered: false,
        });
        request
    }

    /// Returns the messages of a request, with their bytes.
    pub(super) fn of_request(&self, request: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let known = self.requests.get(request).cloned();
        known
            .into_iter()
            .flat_map(|known| known.numbers.map(move |number| (number, known.bytes)))
    }

    pub(super) fn last_request(&self, back: usize) -> Option<usize> {
        self.requests.len().checked_sub(back + 1)
    }

    /// Returns true if the request is stored already.
    pub(super) fn on_sending(&mut self, request: usize) -> bool {
        let Some(known) = self.requests.get_mut(request) else {
            return false;
        };
        known.sent += 1;
        known.stored == Stored::Yes
    }

    pub(super) fn on_unknown(&mut self, request: usize) {
        if let Some(known) = self.requests.get_mut(request)
            && known.stored == Stored::No
        {
            known.stored = Stored::Maybe;
        }
    }

    /// Processes the answer to a request, with the places of its messages, which may have come before it.
    pub(super) fn on_sent(
        &mut self,
        request: usize,
        was_stored: bool,
        (places, repeated): (Vec<Option<DeliveryId>>, bool),
    ) -> Result<(), String> {
        let Some(known) = self.requests.get_mut(request) else {
            return Err("an unknown request is answered".to_owned());
        };
        let sent = self.sent.get_mut(known.numbers.clone()).unwrap_or_default();
        if places.len() != sent.len() {
            return Err(format!("{} messages have places {places:?}", sent.len()));
        }
        let may_lack = repeated && sent.len() > 1;
        for (parcel, place) in sent.iter_mut().zip(places) {
            let is_right = match place {
                Some(place) => *parcel.place.get_or_insert(place) == place,
                None => may_lack,
            };
            if !is_right {
                return Err(format!("a message has the place {place:?}: {parcel:?}"));
            }
        }
        if !repeated && (was_stored || known.is_answered) {
            return Err("a request is stored twice".to_owned());
        }
        known.is_answered |= !repeated;
        match (known.stored, repeated) {
            (Stored::No, true) if known.sent < 2 => {
                return Err("a request is repeated that was sent once".to_owned());
            }
            (Stored::Vague, true) => {
                let taken = self.sent.get_mut(known.numbers.clone()).into_iter().flatten();
                taken.for_each(|parcel| parcel.settled = Settled::Yes);
            }
            _ => {}
        }
        known.stored = Stored::Yes;
        Ok(())
    }

    pub(super) fn on_received(&mut self, received: &Received) -> Result<(), String> {
        let number = received.number;
        let Some(parcel) = self.sent.get_mut(number) else {
            return Err(format!("message {number} came, and was never sent"));
        };
        if matches!(parcel.settled, Settled::Yes | Settled::Soon(_)) {
            return Err(format!("message {number} comes again: {parcel:?}"));
        }
        if parcel.place.get_or_insert(received.place) != &received.place {
            return Err(format!("message {number} comes from another place: {parcel:?}"));
        }
        if let Some((_, until_ms)) = parcel.lease
            && received.now_ms < until_ms
        {
            return Err(format!("message {number} comes while it is leased: {parcel:?}"));
        }
        if parcel.delivered_ms.is_some() && !received.redelivered {
            return Err(format!(
                "message {number} is not marked as redelivered: {parcel:?}"
            ));
        }
        if received.is_marked {
            parcel.delivered_ms = Some(received.now_ms);
        }
        (parcel.settled, parcel.lease) = match received.how {
            Taking::Soon => (Settled::Soon(received.now_ms), None),
            Taking::Stored => (Settled::Yes, None),
            Taking::Lease { ms } => {
                let until_ms = received.asked_ms + i64::try_from(ms).unwrap_or(0);
                let lease = received.lease.ok_or("a message came without its lease")?;
                (Settled::No, Some((lease, until_ms)))
            }
        };
        if let Some(request) = self.requests.get_mut(parcel.request) {
            if request.sent == 0 {
                return Err(format!("message {number} came, and was never sent"));
            }
            request.stored = Stored::Yes;
        }
        Ok(())
    }

    /// Returns the leases, oldest messages first.
    pub(super) fn leases(&self) -> Vec<(usize, LeaseId)> {
        let all = self.sent.iter().enumerate();
        all.filter_map(|(number, parcel)| Some((number, parcel.lease?.0)))
            .collect()
    }

    /// Takes up to `count` leases, with the times until which they cannot be over.
    pub(super) fn take_leases(&mut self, count: usize) -> Vec<(usize, LeaseId, i64)> {
        let all = self.sent.iter_mut().enumerate();
        let leased = all.filter(|(_, parcel)| parcel.lease.is_some()).take(count);
        let taken = leased.filter_map(|(number, parcel)| {
            let (lease, until_ms) = parcel.lease.take()?;
            Some((number, lease, until_ms))
        });
        taken.collect()
    }

    pub(super) fn end_leases(&mut self) {
        for parcel in &mut self.sent {
            parcel.lease = None;
        }
    }

    pub(super) fn on_settled(&mut self, number: usize, settled: Settled) {
        if let Some(parcel) = self.sent.get_mut(number) {
            // A message that returns may be in another's hands, and done, by the time of the answer.
            if settled != Settled::No {
                parcel.settled = settled;
            }
        }
    }

    pub(super) fn on_settling_unknown(&mut self, number: usize) {
        if let Some(parcel) = self.sent.get_mut(number)
            && parcel.settled == Settled::No
        {
            parcel.settled = Settled::Maybe;
        }
    }

    pub(super) fn on_extended(
        &mut self,
        number: usize,
        is_known: bool,
        now_ms: i64,
        ms: u64,
    ) -> Result<(), String> {
        let Some(parcel) = self.sent.get_mut(number) else {
            return Ok(());
        };
        match &mut parcel.lease {
            Some((_, until_ms)) if is_known => *until_ms = now_ms + i64::try_from(ms).unwrap_or(0),
            Some((_, until_ms)) if now_ms < *until_ms => {
                return Err(format!("the lease of message {number} ended before its time"));
            }
            Some(_) | None => parcel.lease = None,
        }
        Ok(())
    }

    /// Records that messages may have been taken.
    pub(super) fn doubt(&mut self, class: Option<u8>, count: u8) {
        self.doubts.push((class, count));
    }

    /// Settlements that are old enough survive everything.
    pub(super) fn settle_down(&mut self, now_ms: i64) {
        for parcel in &mut self.sent {
            if let Settled::Soon(at_ms) = parcel.settled
                && now_ms - at_ms > SYNCED_MS
            {
                parcel.settled = Settled::Yes;
            }
        }
    }

    pub(super) fn on_end(&mut self, death: Option<Death>, may_refuse: bool, now_ms: i64) {
        let is_clean = matches!(death, Some(Death::Stopped)) && !may_refuse;
        let loses_marks = matches!(death, Some(Death::Power(_) | Death::Failed));
        for parcel in &mut self.sent {
            parcel.lease = None;
            if let Settled::Soon(_) = parcel.settled {
                parcel.settled = if is_clean { Settled::Yes } else { Settled::Maybe };
            }
            // A mark is written before the delivery, and synced with later writes.
            if loses_marks
                && parcel
                    .delivered_ms
                    .is_some_and(|at_ms| now_ms - at_ms <= SYNCED_MS)
            {
                parcel.delivered_ms = None;
            }
        }
    }

    /// Compares all messages with those that are in the queue, while nothing is in flight.
    pub(super) fn compare(&mut self, found: &BTreeMap<usize, u32>) -> Result<(), String> {
        for (number, times) in found {
            let Some(parcel) = self.sent.get_mut(*number) else {
                return Err(format!("message {number} is there, and was never sent"));
            };
            let is_settled = matches!(parcel.settled, Settled::Yes | Settled::Soon(_));
            if *times > 1 || is_settled {
                return Err(format!("message {number} is there {times} times: {parcel:?}"));
            }
            parcel.settled = Settled::No;
            let request = self.requests.get_mut(parcel.request);
            if let Some(request) = request {
                if request.stored == Stored::No {
                    return Err(format!("message {number} is there, and was refused: {request:?}"));
                }
                request.stored = Stored::Yes;
            }
        }
        let mut doubts = std::mem::take(&mut self.doubts);
        let has_doubts = !doubts.is_empty();
        for request in &mut self.requests {
            if request.stored == Stored::Maybe {
                request.stored = if has_doubts { Stored::Vague } else { Stored::No };
            }
            if request.stored != Stored::Yes {
                continue;
            }
            for number in request.numbers.clone() {
                let Some(parcel) = self.sent.get_mut(number) else {
                    continue;
                };
                let is_there = found.contains_key(&number);
                match parcel.settled {
                    Settled::No if !is_there => {
                        if !spend(&mut doubts, class_of(number)) {
                            return Err(format!("message {number} is lost: {parcel:?} of {request:?}"));
                        }
                        parcel.settled = Settled::Yes;
                    }
                    Settled::Maybe => parcel.settled = Settled::Yes,
                    Settled::No | Settled::Soon(_) | Settled::Yes => {}
                }
            }
        }
        Ok(())
    }
}

/// Uses up a doubt for a message of a class: one of that class first. False if there is none.
fn spend(doubts: &mut [(Option<u8>, u8)], class: u8) -> bool {
    let fits = |(of, left): &&mut (Option<u8>, u8)| *left > 0 && of.is_none_or(|of| of == class);
    match doubts.iter_mut().filter(fits).max_by_key(|(of, _)| of.is_some()) {
        Some((_, left)) => {
            *left -= 1;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_of_one_class_is_used_up_before_one_of_all() {
        let mut doubts = [(None, 1), (Some(0), 1)];
        assert!([0, 1].map(|class| spend(&mut doubts, class)).iter().all(|it| *it));
        assert!(!spend(&mut doubts, 0));
    }
}
