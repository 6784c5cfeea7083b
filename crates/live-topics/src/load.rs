//! Loading of the stored subscriptions.

use std::sync::Arc;

use stafett_journal::{Append, Journal, StateUnreadable, StateWait};
use stafett_routing::live::Pattern;
use stafett_store::{Clock, spaces};

use super::clients::{Client, ClientNumber, Rows};
use super::live::Live;
use super::log_state::Positions;
use super::settings::LiveSettings;
use super::stored::{EditKind, RowKey, read_client, read_row};
use super::subscribe::live_bytes;

/// Stale rows deleted with one append.
const DELETES_AT_ONCE: usize = 1000;

impl Live {
    /// Loads the stored state. Must be called before the first append.
    pub fn open(
        journal: Arc<dyn Journal>,
        settings: LiveSettings,
        clock: Arc<Clock>,
    ) -> Result<Self, StateUnreadable> {
        let mut live = Self::empty(journal, settings, clock);
        live.positions = Positions::load(&*live.journal)?;
        live.load_clients()?;
        let stale = live.load_rows()?;
        for keys in stale.chunks(DELETES_AT_ONCE) {
            let deletes = keys.iter().map(|key| key.frame(None));
            // If this fails, they are found again at the next start.
            drop(
                live.journal
                    .append(vec![Append::state(deletes, StateWait::Written)]),
            );
        }
        live.count_subscriptions();
        Ok(live)
    }

    fn load_clients(&self) -> Result<(), StateUnreadable> {
        let mut clients = self.clients_mut();
        spaces::LIVE_CLIENTS.load_values(&*self.journal, |key, value| {
            let (number, name, generation) = read_client(key, value)?;
            let rows = Rows {
                is_stored: true,
                generation,
                ..Rows::default()
            };
            clients.put(number, name, rows);
            Some(())
        })?;
        clients.find_free();
        Ok(())
    }

    /// Loads the rows. Returns those that no client refers to.
    fn load_rows(&self) -> Result<Vec<RowKey>, StateUnreadable> {
        let mut clients = self.clients_mut();
        let mut stale = Vec::new();
        spaces::LIVE_ROWS.load_values(&*self.journal, |key, value| {
            let key = RowKey::read(key)?;
            let client = clients
                .get_mut(key.client)
                .filter(|client| client.rows.generation == key.generation);
            let Some(client) = client else {
                stale.push(key);
                return Some(());
            };
            client.rows.count = key.row + 1;
            client.rows.bytes += value.len() as u64;
            read_row(value, |step, name| self.restore(key.client, client, step, name)).then_some(())
        })?;
        Ok(stale)
    }

    fn restore(&self, number: ClientNumber, client: &mut Client, step: EditKind, name: &str) {
        let cost = live_bytes(name);
        match step {
            EditKind::Subscribe => {
                let (topic, added) = self.topics.subscribe(name, number.0);
                if added {
                    client.topics.insert(topic.0);
                    client.live_bytes += cost;
                }
            }
            EditKind::Unsubscribe => {
                if let Some(topic) = self.topics.unsubscribe(name, number.0) {
                    client.topics.remove(topic.0);
                    client.live_bytes -= cost;
                }
            }
            EditKind::SubscribePattern | EditKind::UnsubscribePattern => {
                let Ok(pattern) = Pattern::parse(name) else { return };
                if step == EditKind::SubscribePattern {
                    if self.edit_patterns(|all| all.subscribe(&pattern, number.0)) {
                        client.patterns.push(pattern);
                        client.live_bytes += cost;
                        self.metrics.patterns.inc();
                    }
                } else if self.edit_patterns(|all| all.unsubscribe(&pattern, number.0)) {
                    client.patterns.retain(|known| *known != pattern);
                    client.live_bytes -= cost;
                    self.metrics.patterns.dec();
                }
            }
        }
    }
}
