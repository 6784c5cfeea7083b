//! Quota of a connection: a command beyond it is refused, and messages that are sent wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_access::{Meter, Rate};
use tokio::time::{Instant, sleep_until};

use crate::command::{Command, Publish};
use crate::fault::Fault;

#[derive(Debug, Default)]
pub(super) struct Quota {
    /// `None` where there can be no quotas.
    meter: Option<Arc<dyn Meter>>,
    /// Time from which messages are sent again.
    sends_from: Option<Instant>,
}

impl Quota {
    pub(super) fn new(meter: Option<Arc<dyn Meter>>) -> Self {
        let sends_from = None;
        Self { meter, sends_from }
    }

    /// Returns the meter, if there are quotas now.
    fn meter(&self) -> Option<&dyn Meter> {
        self.meter.as_deref().filter(|meter| meter.is_on())
    }

    /// Returns true if a command may be refused.
    pub(super) fn owes(&self) -> bool {
        let debts = self.meter().map(|meter| {
            let rates = [Rate::Produced, Rate::Requests];
            rates.map(|rate| meter.charge(rate, 0))
        });
        debts.is_some_and(|debts| debts.iter().any(|debt| !debt.is_zero()))
    }

    /// Takes a command from the quota, and refuses it while there is a debt.
    pub(super) fn charge(&self, command: &Command<'_>) -> Result<(), Fault> {
        let Some(meter) = self.meter() else { return Ok(()) };
        let messages: &[Publish<'_>] = match command {
            Command::Publish { messages, .. } => messages,
            Command::Listen { .. }
            | Command::Leave
            | Command::Subscribe(_)
            | Command::SubscribeFrom(..)
            | Command::Unsubscribe(_)
            | Command::List(_)
            | Command::Presence(..)
            | Command::Ping => &[],
        };
        let content = if messages.is_empty() {
            Duration::ZERO
        } else {
            meter.charge(Rate::Produced, 0)
        };
        let debt = content.max(meter.charge(Rate::Requests, 0));
        if !debt.is_zero() {
            let seconds = debt.as_secs() + u64::from(debt.subsec_nanos() > 0);
            return Err(Fault::OverQuota { seconds });
        }
        meter.charge(Rate::Requests, 1);
        if !messages.is_empty() {
            let bytes = messages.iter().map(|message| message.payload.len());
            meter.charge(Rate::Produced, bytes.sum());
        }
        Ok(())
    }

    /// Takes messages that are about to be sent.
    pub(super) fn charge_sent(&mut self, messages: &[Bytes]) {
        self.sends_from = self.meter().and_then(|meter| {
            let debt = meter.charge(Rate::Fetched, messages.iter().map(Bytes::len).sum());
            (!debt.is_zero()).then(|| Instant::now() + debt)
        });
    }

    /// Waits until messages may be sent.
    pub(super) async fn may_send(&self) {
        if let Some(from) = self.sends_from {
            sleep_until(from).await;
        }
    }
}
