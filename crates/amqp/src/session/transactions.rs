//! The class `tx`: messages and settlements wait on their channel until they are committed or rolled back.

use stafett_amqp_wire::ReplyCode;
use stafett_amqp_wire::methods::{Tx, tx};

use super::channel::{Mode, Transaction};
use super::dispatch::not_for_servers;
use super::held::Flow;
use super::{MethodError, Session};
use crate::exception::Exception;

/// Limits on one transaction.
const BYTES_MAX: usize = 64 << 20;
const OPERATIONS_MAX: usize = 1_000_000;

impl Session {
    pub(super) fn on_tx(&mut self, number: u16, method: &Tx) -> Result<Flow, MethodError> {
        match method {
            Tx::Select(_) => {
                let channel = self.channel(number)?;
                match channel.mode {
                    Mode::Plain => channel.mode = Mode::Transactions(Transaction::default()),
                    Mode::Transactions(_) => {}
                    Mode::Confirms { .. } => {
                        return Err(Exception::precondition("cannot switch from confirm to tx mode").into());
                    }
                }
                self.out.send(number, tx::SelectOk {});
            }
            Tx::Commit(_) => {
                let transaction = self.transaction(number)?;
                transaction.bytes = 0;
                for content in std::mem::take(&mut transaction.contents) {
                    self.publish(number, content)?;
                }
                if let Some(operation) = self.await_publishes()? {
                    return Ok(Flow::Hold(operation));
                }
                if std::mem::take(&mut self.transaction(number)?.is_refused) {
                    return Err(Exception::precondition("partial tx completion").into());
                }
                self.settle_held_back(number)?;
                self.out.send(number, tx::CommitOk {});
            }
            Tx::Rollback(_) => {
                let transaction = std::mem::take(self.transaction(number)?);
                let settlements = transaction.settlements.into_iter();
                let deliveries = settlements.map(|(tag, unsettled, _)| (tag, unsettled));
                self.channel(number)?.unacked.put_back(deliveries);
                self.out.send(number, tx::RollbackOk {});
            }
            Tx::SelectOk(_) | Tx::CommitOk(_) | Tx::RollbackOk(_) => return Err(not_for_servers()),
        }
        Ok(Flow::Continue)
    }

    fn transaction(&mut self, number: u16) -> Result<&mut Transaction, MethodError> {
        match &mut self.channel(number)?.mode {
            Mode::Transactions(transaction) => Ok(transaction),
            Mode::Plain | Mode::Confirms { .. } => {
                Err(Exception::precondition("channel is not transactional").into())
            }
        }
    }

    /// Lets a commit fail, as one of its messages was refused.
    pub(super) fn fail_transaction(&mut self, number: u16) {
        if let Ok(transaction) = self.transaction(number) {
            transaction.is_refused = true;
        }
    }

    /// Closes the channel if its transaction exceeds the limits.
    pub(super) fn check_transaction(&mut self, number: u16) -> Result<(), MethodError> {
        let Mode::Transactions(transaction) = &self.channel(number)?.mode else {
            return Ok(());
        };
        let operations = transaction.contents.len() + transaction.settlements.len();
        if transaction.bytes > BYTES_MAX || operations > OPERATIONS_MAX {
            let text =
                format!("a transaction holds at most {BYTES_MAX} bytes and {OPERATIONS_MAX} operations");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text).into());
        }
        Ok(())
    }
}
