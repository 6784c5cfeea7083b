//! The class `tx`: messages and settlements wait on their channel until they are committed or rolled back.

use stafett_amqp_wire::methods::{Tx, tx};
use stafett_amqp_wire::{Method, ReplyCode};

use super::channel::{Mode, Transaction};
use super::{Session, Trouble};
use crate::exception::Exception;

/// What one transaction may hold back.
const BYTES_MAX: usize = 64 << 20;
const OPERATIONS_MAX: usize = 1_000_000;

impl Session {
    pub(super) async fn on_tx(&mut self, number: u16, method: Tx) -> Result<(), Trouble> {
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
                let transaction = self.take_transaction(number)?;
                for content in transaction.contents {
                    self.publish(number, content).await?;
                }
                self.settle_published().await?;
                for settlement in transaction.settlements {
                    self.settle_by_tag(number, settlement)?;
                }
                self.flush_settlements();
                self.out.send(number, tx::CommitOk {});
                Ok(())
            }
            Tx::Rollback(_) => {
                drop(self.take_transaction(number)?);
                self.out.send(number, tx::RollbackOk {});
                Ok(())
            }
            other @ (Tx::SelectOk(_) | Tx::CommitOk(_) | Tx::RollbackOk(_)) => {
                Err(super::not_for_servers(&Method::Tx(other)))
            }
        }
    }

    fn take_transaction(&mut self, number: u16) -> Result<Transaction, Trouble> {
        match &mut self.channel(number)?.mode {
            Mode::Transactions(transaction) => Ok(std::mem::take(transaction)),
            Mode::Plain | Mode::Confirms { .. } => {
                Err(Exception::precondition("channel is not transactional").into())
            }
        }
    }

    /// What a transaction holds back is bounded.
    pub(super) fn check_transaction(&mut self, number: u16) -> Result<(), Trouble> {
        let Mode::Transactions(transaction) = &self.channel(number)?.mode else {
            return Ok(());
        };
        let settled = transaction.settlements.len().max(transaction.settled.len());
        let operations = transaction.contents.len() + settled;
        if transaction.bytes > BYTES_MAX || operations > OPERATIONS_MAX {
            let text =
                format!("a transaction holds at most {BYTES_MAX} bytes and {OPERATIONS_MAX} operations");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text).into());
        }
        Ok(())
    }
}
