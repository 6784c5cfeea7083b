//! The class `tx`: messages and settlements wait on their channel until they are committed or rolled back. A
//! commit stores all of them, or nothing.

use bytestring::ByteString;
use stafett_amqp_wire::ReplyCode;
use stafett_amqp_wire::methods::{Tx, tx};
use stafett_messaging::{CommitError, Committed, Publish, Transaction};
use stafett_store::{Changing, NotStored};

use super::channel::{HeldBack, Mode};
use super::dispatch::not_for_servers;
use super::held::Flow;
use super::settle::gather;
use super::{ConnectionEnd, MethodError, Session};
use crate::content::Incoming;
use crate::exception::Exception;
use crate::operation::{Done, Operation};

/// Limits on one transaction.
const BYTES_MAX: usize = 64 << 20;
const OPERATIONS_MAX: usize = 1_000_000;

/// A commit in progress.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub stored: Changing<Committed, CommitError>,
    /// True for each message that is returned if it is unroutable.
    mandatory: Vec<bool>,
    /// Direct replies, each with its `mandatory` flag: they are sent once the transaction is stored.
    replies: Vec<(bool, Incoming)>,
    settled: usize,
    /// Number of settled deliveries that count towards the limit shared by the channel.
    shared_credit: usize,
}

impl Session {
    pub(super) fn on_tx(&mut self, number: u16, method: &Tx) -> Result<Flow, MethodError> {
        match method {
            Tx::Select(_) => {
                let channel = self.channel(number)?;
                match channel.mode {
                    Mode::Plain => channel.mode = Mode::Transactions(HeldBack::default()),
                    Mode::Transactions(_) => {}
                    Mode::Confirms { .. } => {
                        return Err(Exception::precondition("cannot switch from confirm to tx mode").into());
                    }
                }
                self.out.send(number, tx::SelectOk {});
            }
            Tx::Commit(_) => {
                if let Some(Done::Committed(commit, outcome)) = self.done.take() {
                    self.on_committed(number, *commit, outcome)?;
                } else {
                    self.transaction(number)?;
                    if let Some(operation) = self.await_publishes()? {
                        return Ok(Flow::Hold(operation));
                    }
                    if let Some(commit) = self.begin_commit(number)? {
                        return Ok(Flow::Hold(Operation::Commit(Box::new(commit))));
                    }
                }
                self.out.send(number, tx::CommitOk {});
            }
            Tx::Rollback(_) => {
                let held = std::mem::take(self.transaction(number)?);
                let settlements = held.settlements.into_iter();
                let deliveries = settlements.map(|(tag, unsettled, _)| (tag, unsettled));
                self.channel(number)?.unacked.put_back(deliveries);
                self.out.send(number, tx::RollbackOk {});
            }
            Tx::SelectOk(_) | Tx::CommitOk(_) | Tx::RollbackOk(_) => return Err(not_for_servers()),
        }
        Ok(Flow::Continue)
    }

    fn transaction(&mut self, number: u16) -> Result<&mut HeldBack, MethodError> {
        match &mut self.channel(number)?.mode {
            Mode::Transactions(transaction) => Ok(transaction),
            Mode::Plain | Mode::Confirms { .. } => {
                Err(Exception::precondition("channel is not transactional").into())
            }
        }
    }

    /// Begins to store a transaction; `None` if it is empty. The commit completes even if the connection
    /// ends.
    fn begin_commit(&mut self, number: u16) -> Result<Option<PendingCommit>, MethodError> {
        let HeldBack {
            messages,
            settlements,
            ..
        } = std::mem::take(self.transaction(number)?);
        if messages.is_empty() && settlements.is_empty() {
            return Ok(None);
        }
        let (mut mandatory, mut replies) = (Vec::new(), Vec::new());
        let mut runs: Vec<(ByteString, Vec<Publish>)> = Vec::new();
        let mut bytes = 0;
        for (is_mandatory, incoming) in messages {
            if super::replies::is_direct_reply(&incoming) {
                replies.push((is_mandatory, incoming));
                continue;
            }
            let Incoming {
                message, more_keys, ..
            } = incoming;
            bytes += message.value.len() as u64;
            mandatory.push(is_mandatory);
            if runs
                .last()
                .is_none_or(|(exchange, _)| *exchange != message.exchange)
            {
                runs.push((message.exchange.clone(), Vec::new()));
            }
            if let Some((_, run)) = runs.last_mut() {
                run.push(Publish { message, more_keys });
            }
        }
        self.context.metrics.published.inc_by(mandatory.len() as u64);
        self.context.metrics.published_bytes.inc_by(bytes);
        let messages = runs.iter().flat_map(|(_, run)| run);
        self.context
            .metrics
            .on_sizes(messages.map(|publish| publish.message.value.len()));
        let settled = settlements.len();
        let counts = settlements
            .iter()
            .filter(|(_, unsettled, _)| unsettled.token.is_some());
        let shared_credit = counts.count();
        let mut by_source = Vec::new();
        for (_, unsettled, how) in settlements {
            gather(&mut by_source, unsettled, how);
        }
        let transaction = Transaction {
            messages: runs,
            settlements: by_source,
        };
        let messaging = self.context.broker.messaging();
        Ok(Some(PendingCommit {
            stored: messaging.commit(&self.namespace, transaction),
            mandatory,
            replies,
            settled,
            shared_credit,
        }))
    }

    /// Handles the outcome of a commit.
    fn on_committed(
        &mut self,
        number: u16,
        commit: PendingCommit,
        outcome: Result<Committed, CommitError>,
    ) -> Result<(), MethodError> {
        let committed = match outcome {
            Ok(committed) => committed,
            Err(CommitError::NotStored(NotStored::Unknown)) => {
                return Err(ConnectionEnd::OutcomeUnknown.into());
            }
            Err(why) => {
                self.namespace_is_gone |= why == CommitError::NoSuchNamespace;
                self.end_without_namespace()?;
                let text = format!("the transaction is rolled back: {why}");
                return Err(Exception::precondition(text).into());
            }
        };
        self.context.metrics.settled.inc_by(commit.settled as u64);
        if let Some(credit) = &self.channel(number)?.prefetch.shared {
            credit.release(u32::try_from(commit.shared_credit).unwrap_or(u32::MAX));
        }
        for (index, unroutable) in committed.unroutable {
            if commit.mandatory.get(index) == Some(&true) {
                self.return_message(number, unroutable.message);
            }
        }
        for (is_mandatory, reply) in commit.replies {
            self.reply(number, None, is_mandatory, reply)?;
        }
        self.dead_lettering.extend(committed.dead_lettering);
        Ok(())
    }

    /// Closes the channel if its transaction exceeds the limits.
    pub(super) fn check_transaction(&mut self, number: u16) -> Result<(), MethodError> {
        let Mode::Transactions(transaction) = &self.channel(number)?.mode else {
            return Ok(());
        };
        let operations = transaction.messages.len() + transaction.settlements.len();
        if transaction.bytes > BYTES_MAX || operations > OPERATIONS_MAX {
            let text =
                format!("a transaction holds at most {BYTES_MAX} bytes and {OPERATIONS_MAX} operations");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text).into());
        }
        Ok(())
    }
}
