//! Compaction of stored subscriptions: a client whose rows are mostly waste gets new ones.
//!
//! The new rows have a new generation, and take effect once the client's own value names it; then the old
//! ones are deleted. Rows left behind by a crash have a generation that no client names, and are deleted at
//! the next start.

use stafett_journal::{Append, Frame, Outcome, StateWait};

use super::clients::{ClientNumber, Rows};
use super::live::Live;
use super::stored::{EditKind, RowBuilder, RowKey, client_frame};
use super::subscribe::StaleRows;
use super::topics::TopicId;

/// Topics collected under one lock.
const TOPICS_AT_ONCE: usize = 4096;

impl Live {
    /// Rewrites a client's rows. The caller must hold the client's turn.
    pub(crate) async fn rewrite(&self, number: ClientNumber) {
        let Some(before) = self.clients().get(number).map(|client| client.rows) else {
            return;
        };
        let mut rows = Rows {
            is_stored: true,
            ..before.cleared()
        };
        let mut from = Some(0);
        while let Some(first) = from {
            let (row, next) = self.gather(number, first);
            from = next;
            let Some(row) = row.bytes() else { continue };
            let key = RowKey {
                client: number,
                generation: rows.generation,
                row: rows.count,
            };
            rows.count += 1;
            rows.bytes += row.len() as u64;
            if !self.stored([key.frame(Some(row))], StateWait::Written).await {
                return self.give_up(number, rows).await;
            }
        }
        let name = self.clients().get(number).map(|client| client.name.clone());
        let Some(name) = name else { return };
        let head = client_frame(number, Some((&name, rows.generation)));
        if !self.stored([head], StateWait::Synced).await {
            return self.give_up(number, rows).await;
        }
        if let Some(client) = self.clients_mut().get_mut(number) {
            client.rows = rows;
        }
        self.metrics.rewrites.inc();
        self.delete_rows(all_of(number, before)).await;
    }

    /// Returns a row of topics from id `first` on, and the start of the next row. Patterns are in the last
    /// row.
    fn gather(&self, number: ClientNumber, first: u32) -> (RowBuilder, Option<u32>) {
        let mut row = RowBuilder::default();
        let clients = self.clients();
        let Some(client) = clients.get(number) else {
            return (row, None);
        };
        let topics = client.topics.from(first, TOPICS_AT_ONCE + 1);
        let next = topics.get(TOPICS_AT_ONCE).copied();
        for topic in topics.into_iter().take(TOPICS_AT_ONCE) {
            self.topics
                .name(TopicId(topic), |name| row.push(EditKind::Subscribe, name));
        }
        if next.is_none() {
            for pattern in &client.patterns {
                row.push(EditKind::SubscribePattern, pattern.text());
            }
        }
        (row, next)
    }

    async fn stored(&self, frames: impl IntoIterator<Item = Frame>, wait: StateWait) -> bool {
        let outcomes = self.journal.append(vec![Append::state(frames, wait)]).await;
        matches!(outcomes.first(), Some(Outcome::Committed(_)))
    }

    /// Deletes the new rows, as far as the journal accepts that.
    async fn give_up(&self, number: ClientNumber, begun: Rows) {
        tracing::warn!(
            client = number.0,
            "stored subscriptions could not be written anew"
        );
        self.delete_rows(all_of(number, begun)).await;
    }
}

fn all_of(client: ClientNumber, rows: Rows) -> StaleRows {
    StaleRows {
        client,
        generation: rows.generation,
        first: 0,
        end: rows.count,
    }
}
