//! `basic.ack`, `basic.nack`, `basic.reject`, `basic.recover`: gathered while frames come in, told to each queue once.

use stafett_amqp_wire::methods::basic;
use stafett_broker::queues::Settle;

use super::channel::{Channel, How, Mode, Settlement, Unsettled};
use super::{Session, Trouble};
use crate::exception::Exception;

/// Without order among queues, a list is faster than a table up to about so many.
const QUEUES_MAX: usize = 64;

pub(super) fn ack(method: &basic::Ack) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: method.multiple,
        how: How::Complete,
    }
}

pub(super) fn nack(method: &basic::Nack) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: method.multiple,
        how: if method.requeue {
            How::Requeue
        } else {
            How::Discard
        },
    }
}

pub(super) fn reject(method: &basic::Reject) -> Settlement {
    Settlement {
        tag: method.delivery_tag,
        multiple: false,
        how: if method.requeue {
            How::Requeue
        } else {
            How::Discard
        },
    }
}

fn unknown_tag(tag: u64) -> Exception {
    Exception::precondition(format!("unknown delivery tag {tag}"))
}

impl Session {
    pub(super) fn on_settlement(&mut self, number: u16, settlement: Settlement) -> Result<(), Trouble> {
        let Channel { mode, unacked, .. } = self.channel(number)?;
        if let Mode::Transactions(transaction) = mode {
            let Settlement { tag, multiple, .. } = settlement;
            let tags = unacked.tags(tag, multiple).map_err(|_| unknown_tag(tag))?;
            if tag != 0 && transaction.settled.contains(&tag) {
                return Err(unknown_tag(tag).into());
            }
            transaction.settled.extend(tags);
            transaction.settlements.push(settlement);
            return self.check_transaction(number);
        }
        self.settle_by_tag(number, settlement)
    }

    pub(super) fn settle_by_tag(&mut self, number: u16, settlement: Settlement) -> Result<(), Trouble> {
        let Settlement { tag, multiple, how } = settlement;
        let mut taken: smallvec::SmallVec<[Unsettled; 4]> = smallvec::SmallVec::new();
        let found = self
            .channel(number)?
            .unacked
            .take(tag, multiple, |unsettled| taken.push(unsettled));
        if found.is_err() {
            return Err(unknown_tag(tag).into());
        }
        self.shared.metrics.settled.inc_by(taken.len() as u64);
        let count = taken
            .iter()
            .filter(|unsettled| unsettled.takes_shared_credit())
            .count();
        if let Some(credit) = &self.channel(number)?.prefetch.shared {
            credit.release(u32::try_from(count).unwrap_or(u32::MAX));
        }
        for unsettled in taken {
            self.settle(unsettled, how);
        }
        Ok(())
    }

    /// Remembers that a delivery is settled, until the turn ends.
    pub(super) fn settle(&mut self, unsettled: Unsettled, how: How) {
        let how = match how {
            How::Complete => Settle::Complete,
            How::Requeue => Settle::Requeue,
            How::Discard => Settle::Discard,
        };
        let entry = (unsettled.id, how);
        let known = self
            .settlements
            .iter_mut()
            .rev()
            .take(QUEUES_MAX)
            .find(|(source, _)| source.is(&unsettled.source));
        match known {
            Some((_, entries)) => entries.push(entry),
            None => self.settlements.push((unsettled.source, vec![entry])),
        }
    }

    /// Tells the queues.
    pub(crate) fn flush_settlements(&mut self) {
        for (source, entries) in self.settlements.drain(..) {
            source.settle(&entries);
        }
    }

    pub(super) fn on_recover(&mut self, number: u16, requeue: bool, answers: bool) -> Result<(), Trouble> {
        if !requeue {
            return Err(Exception::new(stafett_amqp_wire::ReplyCode::NotImplemented, "requeue=false").into());
        }
        let all = self.channel(number)?.unacked.take_all();
        let count = all
            .iter()
            .filter(|unsettled| unsettled.takes_shared_credit())
            .count();
        if let Some(credit) = &self.channel(number)?.prefetch.shared {
            credit.release(u32::try_from(count).unwrap_or(u32::MAX));
        }
        for unsettled in all {
            self.settle(unsettled, How::Requeue);
        }
        self.flush_settlements();
        if answers {
            self.out.send(number, basic::RecoverOk {});
        }
        Ok(())
    }
}
