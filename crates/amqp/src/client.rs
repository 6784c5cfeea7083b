//! Client of an open connection, for the registry of connections.

use std::sync::Arc;

use stafett_amqp_wire::{Table, Value};
use stafett_net::registry::{ChannelBoard, ChannelState};
use stafett_net::{Client, ClientWords};
use tokio::sync::Notify;

use crate::handshake::Agreed;
use crate::session::Session;
use crate::session::channel::{Channel, Mode};

/// Nesting of tables that is shown.
const DEPTH_MAX: usize = 4;

/// A client, with the board of its channels.
#[derive(Debug)]
pub(crate) struct AmqpClient {
    pub agreed: Arc<Agreed>,
    pub board: ChannelBoard,
}

impl AmqpClient {
    /// `wake` wakes the connection's task.
    pub(crate) fn new(agreed: Agreed, wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            agreed: Arc::new(agreed),
            board: ChannelBoard::new(wake),
        })
    }
}

impl Client for AmqpClient {
    fn words(&self) -> ClientWords {
        let mut properties = Vec::new();
        flatten(&self.agreed.client.table, "", 0, &mut properties);
        let text = |name| match self.agreed.client.table.get(name) {
            Some(Value::LongString(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
            Some(_) | None => None,
        };
        ClientWords {
            protocol: "AMQP 0-9-1",
            user: Some(self.agreed.user.to_string()),
            namespace: Some(self.agreed.virtual_host.to_string()),
            name: text("connection_name"),
            product: text("product"),
            version: text("version"),
            properties,
        }
    }

    fn channels(&self) -> Option<&ChannelBoard> {
        Some(&self.board)
    }
}

/// Adds the fields of a table as texts. Names of nested ones have dots.
fn flatten(table: &Table, prefix: &str, depth: usize, into: &mut Vec<(String, String)>) {
    for (name, value) in table.iter() {
        let name = format!("{prefix}{name}");
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "numbers, and values that are not shown"
        )]
        let text = match &value {
            Value::LongString(text) | Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Table(inner) if depth < DEPTH_MAX => {
                flatten(inner, &format!("{name}."), depth + 1, into);
                continue;
            }
            value => match value.integer() {
                Some(number) => number.to_string(),
                None => continue,
            },
        };
        into.push((name, text));
    }
}

impl Session {
    /// Shows the channels to others, if they ask.
    pub(crate) fn show_channels(&self) {
        let board = &self.client.board;
        board.set_count(self.channels.len());
        if board.is_asked() {
            board.show(self.channel_states());
        }
    }

    fn channel_states(&self) -> Vec<ChannelState> {
        let mut unconfirmed = self.confirms.unconfirmed();
        let channels = self.channels.iter();
        let mut states: Vec<ChannelState> = channels
            .map(|(number, channel)| ChannelState {
                unconfirmed: unconfirmed.remove(number).unwrap_or_default(),
                ..channel.state(*number)
            })
            .collect();
        states.sort_unstable_by_key(|state| state.number);
        states
    }
}

impl Channel {
    fn state(&self, number: u16) -> ChannelState {
        let (uncommitted, uncommitted_settlements) = match &self.mode {
            Mode::Transactions(held) => (held.messages.len(), held.settlements.len()),
            Mode::Plain | Mode::Confirms { .. } => (0, 0),
        };
        let shared = self.prefetch.shared.as_ref();
        ChannelState {
            number,
            closes: self.closing,
            confirms: matches!(self.mode, Mode::Confirms { .. }),
            transacts: matches!(self.mode, Mode::Transactions(_)),
            prefetch: self.prefetch.each.unwrap_or_default(),
            prefetch_shared: shared.map_or(0, |credit| credit.limit()),
            unsettled: (self.unacked.len() + uncommitted_settlements) as u64,
            unconfirmed: 0,
            uncommitted: uncommitted as u64,
            uncommitted_settlements: uncommitted_settlements as u64,
            consumers: u32::try_from(self.consumers.len()).unwrap_or(u32::MAX)
                + u32::from(self.replies.is_some()),
        }
    }
}
