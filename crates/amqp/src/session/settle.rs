//! `basic.ack`, `basic.nack`, `basic.reject`, `basic.recover`: settlements are gathered while frames arrive,
//! and passed to each queue once.

use std::sync::Arc;

use stafett_amqp_wire::methods::basic;
use stafett_delivery::{Settle, Source};

use super::channel::{Channel, Mode, SettleKind, Settlement, Unsettled};
use super::{ConnectionEnd, MethodError, Session, Settlements};
use crate::exception::Exception;
use crate::operation::Operation;

/// Number of recent queues searched for an existing entry; up to about this many, a list is faster than a
/// table. The order among queues does not matter.
const QUEUES_MAX: usize = 64;
/// Number of queues at which those whose dead letters have arrived are forgotten.
const DEAD_LETTERING_MAX: usize = 16;

pub(super) fn ack(method: &basic::Ack) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: method.multiple,
        how: SettleKind::Complete,
    }
}

pub(super) fn nack(method: &basic::Nack) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: method.multiple,
        how: if method.requeue {
            SettleKind::Requeue
        } else {
            SettleKind::Discard
        },
    }
}

pub(super) fn reject(method: &basic::Reject) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: false,
        how: if method.requeue {
            SettleKind::Requeue
        } else {
            SettleKind::Discard
        },
    }
}

fn unknown_tag(tag: u64) -> Exception {
    Exception::precondition(format!("unknown delivery tag {tag}"))
}

/// Adds the settlement of a delivery to those of its source.
pub(super) fn gather(settlements: &mut Vec<(Source, Settlements)>, unsettled: Unsettled, how: SettleKind) {
    let how = match how {
        SettleKind::Complete => Settle::Complete,
        SettleKind::Requeue => Settle::Requeue,
        SettleKind::Discard => Settle::Discard,
    };
    let entry = (unsettled.id, how);
    let known = settlements
        .iter_mut()
        .rev()
        .take(QUEUES_MAX)
        .find(|(source, _)| source.is(&unsettled.source));
    match known {
        Some((_, entries)) => entries.push(entry),
        None => settlements.push((unsettled.source, vec![entry])),
    }
}

impl Session {
    pub(super) fn on_settlement(&mut self, number: u16, settlement: Settlement) -> Result<(), MethodError> {
        let Settlement { tag, multiple, how } = settlement;
        let Channel { mode, unacked, .. } = self.channel(number)?;
        if let Mode::Transactions(transaction) = mode {
            let settlements = &mut transaction.settlements;
            unacked
                .take(tag, multiple, |tag, unsettled| {
                    settlements.push((tag, unsettled, how));
                })
                .map_err(|_| unknown_tag(tag))?;
            return self.check_transaction(number);
        }
        let mut taken: smallvec::SmallVec<[Unsettled; 4]> = smallvec::SmallVec::new();
        unacked
            .take(tag, multiple, |_, unsettled| taken.push(unsettled))
            .map_err(|_| unknown_tag(tag))?;
        self.context.metrics.settled.inc_by(taken.len() as u64);
        self.give_credit_back(number, taken.iter())?;
        for unsettled in taken {
            self.settle(unsettled, how);
        }
        Ok(())
    }

    /// Releases the shared credit that deliveries of a channel have taken.
    fn give_credit_back<'a>(
        &mut self,
        number: u16,
        settled: impl Iterator<Item = &'a Unsettled>,
    ) -> Result<(), MethodError> {
        if let Some(credit) = &self.channel(number)?.prefetch.shared {
            let count = settled.filter(|unsettled| unsettled.token.is_some()).count();
            credit.release(u32::try_from(count).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Gathers the settlement of a delivery until the end of the turn.
    pub(super) fn settle(&mut self, unsettled: Unsettled, how: SettleKind) {
        gather(&mut self.settlements, unsettled, how);
    }

    /// Passes the gathered settlements to their queues.
    pub(crate) fn flush_settlements(&mut self) {
        for (source, entries) in self.settlements.drain(..) {
            let Some(queue) = source.settle(&entries) else {
                continue;
            };
            if self.dead_lettering.len() >= DEAD_LETTERING_MAX {
                self.dead_lettering.retain(|queue| queue.is_dead_lettering());
            }
            if !self.dead_lettering.iter().any(|known| Arc::ptr_eq(known, queue)) {
                self.dead_lettering.push(Arc::clone(queue));
            }
        }
    }

    /// Returns the next operation on the way to a state in which the earlier messages and settlements of this
    /// connection have taken effect, dead letters included, so that the next method finds them.
    pub(super) fn await_earlier(&mut self) -> Result<Option<Operation>, ConnectionEnd> {
        if let Some(operation) = self.await_publishes()? {
            return Ok(Some(operation));
        }
        self.flush_settlements();
        let mut rejected = std::iter::from_fn(|| self.dead_lettering.pop());
        Ok(rejected
            .find(|queue| queue.is_dead_lettering())
            .map(Operation::AwaitDeadLetters))
    }

    pub(super) fn on_recover(
        &mut self,
        number: u16,
        requeue: bool,
        answers: bool,
    ) -> Result<(), MethodError> {
        if !requeue {
            return Err(Exception::new(stafett_amqp_wire::ReplyCode::NotImplemented, "requeue=false").into());
        }
        let all = self.channel(number)?.unacked.take_all();
        self.give_credit_back(number, all.iter())?;
        for unsettled in all {
            self.settle(unsettled, SettleKind::Requeue);
        }
        self.flush_settlements();
        if answers {
            self.out.send(number, basic::RecoverOk {});
        }
        Ok(())
    }
}
