//! The class `tx`: messages and settlements wait on their channel until they are committed or rolled back.

use stafett_amqp_wire::methods::{Tx, tx};
use stafett_amqp_wire::{Method, ReplyCode};

use super::channel::{Mode, Transaction};
use super::{MethodError, Session};
use crate::exception::Exception;

/// Limits on one transaction.
const BYTES_MAX: usize = 64 << 20;
const OPERATIONS_MAX: usize = 1_000_000;

impl Session {
    pub(super) async fn on_tx(&mut self, number: u16, method: Tx) -> Result<(), MethodError> {
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
                Ok(())
            }
            Tx::Commit(_) => {
                let transaction = self.transaction(number)?;
                transaction.bytes = 0;
                for content in std::mem::take(&mut transaction.contents) {
                    self.publish(number, content).await?;
                }
                self.await_publishes().await?;
                self.settle_held_back(number)?;
                self.out.send(number, tx::CommitOk {});
                Ok(())
            }
            Tx::Rollback(_) => {
                let transaction = std::mem::take(self.transaction(number)?);
                let settlements = transaction.settlements.into_iter();
                let deliveries = settlements.map(|(tag, unsettled, _)| (tag, unsettled));
                self.channel(number)?.unacked.put_back(deliveries);
                self.out.send(number, tx::RollbackOk {});
                Ok(())
            }
            other @ (Tx::SelectOk(_) | Tx::CommitOk(_) | Tx::RollbackOk(_)) => {
                Err(super::dispatch::not_for_servers(&Method::Tx(other)))
            }
        }
    }

    fn transaction(&mut self, number: u16) -> Result<&mut Transaction, MethodError> {
        match &mut self.channel(number)?.mode {
            Mode::Transactions(transaction) => Ok(transaction),
            Mode::Plain | Mode::Confirms { .. } => {
                Err(Exception::precondition("channel is not transactional").into())
            }
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
