//! Storing of the rows that changes have written, and their deletion.

use bytes::Bytes;
use stafett_journal::{Append, Frame, Outcome, StateWait};
use stafett_store::only_outcome;

use super::super::clients::{ClientNumber, Rows};
use super::super::live::Live;
use super::super::log_state::ClientPositions;
use super::super::stored::{RowKey, client_frame};
use super::{ChangeError, ClientChanges, ROW_OVERHEAD, WASTE_MIN};

/// Rows deleted with one append.
const DELETES_AT_ONCE: u32 = 1000;

impl Live {
    /// Stores the changes of the parts, and undoes those that could not be stored.
    pub(super) async fn store_parts(
        &self,
        parts: Vec<ClientChanges>,
        results: &mut [Result<usize, ChangeError>],
    ) {
        let (mut appends, mut stored, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for mut part in parts {
            for (place, done) in part.done.drain(..) {
                if let Some(result) = results.get_mut(place) {
                    *result = done;
                }
                stored.push((place, part.number));
            }
            let row = part.row.bytes();
            if let Some((frames, afterwards)) = self.frames(part.number, row.clone()) {
                appends.push(Append::state(frames, StateWait::Synced));
                changed.push((part, afterwards));
            }
        }
        if appends.is_empty() {
            return;
        }
        let outcomes = self.journal.append(appends).await;
        for ((mut part, afterwards), outcome) in changed.into_iter().zip(outcomes) {
            let ClientAfter {
                rows,
                rest,
                positions,
            } = afterwards;
            match only_outcome(Some(&outcome)) {
                Ok(()) => {
                    if let Some(client) = self.clients_mut().get_mut(part.number) {
                        client.rows = rows;
                    }
                    if let Some(rest) = rest {
                        self.delete_rows(rest).await;
                    }
                }
                Err(error) => {
                    self.undo(part.number, &mut part.row, 0);
                    if let Some(positions) = positions {
                        self.positions.restore(part.number, positions);
                    }
                    let of_part = stored.iter().filter(|(_, number)| *number == part.number);
                    for (place, _) in of_part {
                        if let Some(result @ Ok(_)) = results.get_mut(*place) {
                            *result = Err(error.into());
                        }
                    }
                }
            }
        }
    }

    /// Returns the frames that store the client's current state, and its state afterwards. `None` if nothing
    /// changed.
    fn frames(&self, number: ClientNumber, row: Option<Bytes>) -> Option<(Vec<Frame>, ClientAfter)> {
        let clients = self.clients();
        let client = clients.get(number)?;
        let row = row?;
        let mut rows = client.rows;
        if client.subscriptions() == 0 {
            if !rows.is_stored {
                return None;
            }
            let stale = StaleRows {
                client: number,
                generation: rows.generation,
                first: 0,
                end: rows.count,
            };
            let (deletes, rest) = stale.split();
            let head = std::iter::once(client_frame(number, None));
            let (positions, forgetting) = self.positions.forget(number).unzip();
            let frames = head.chain(forgetting).chain(deletes).collect();
            let afterwards = ClientAfter {
                rows: rows.cleared(),
                rest,
                positions,
            };
            return Some((frames, afterwards));
        }
        let mut frames = Vec::with_capacity(2);
        if !rows.is_stored {
            rows.is_stored = true;
            frames.push(client_frame(number, Some((&client.name, rows.generation))));
        }
        let key = RowKey {
            client: number,
            generation: rows.generation,
            row: rows.count,
        };
        rows.count += 1;
        rows.bytes += row.len() as u64;
        frames.push(key.frame(Some(row)));
        let afterwards = ClientAfter {
            rows,
            rest: None,
            positions: None,
        };
        Some((frames, afterwards))
    }

    /// Deletes unreferenced rows; if this fails, the rest is deleted at the next start.
    pub(crate) async fn delete_rows(&self, stale: StaleRows) {
        let mut rest = Some(stale);
        while let Some(stale) = rest {
            let (deletes, behind) = stale.split();
            let append = Append::state(deletes, StateWait::Written);
            let outcomes = self.journal.append(vec![append]).await;
            if !matches!(outcomes.first(), Some(Outcome::Committed(_))) {
                return;
            }
            rest = behind;
        }
    }

    pub(super) async fn rewrite_if_wasteful(&self, number: ClientNumber) {
        let is_wasteful = self.clients().get(number).is_some_and(|client| {
            let rows = client.rows;
            let waste = (rows.bytes + ROW_OVERHEAD * u64::from(rows.count)).saturating_sub(client.live_bytes);
            rows.is_stored && waste > client.live_bytes + WASTE_MIN
        });
        if is_wasteful {
            self.rewrite(number).await;
        }
    }
}

/// State of a client after a change of its subscriptions.
struct ClientAfter {
    pub(super) rows: Rows,
    /// Rows that remain to be deleted.
    rest: Option<StaleRows>,
    /// Positions that are deleted with the last subscription.
    pub(super) positions: Option<ClientPositions>,
}

/// Unreferenced rows of a generation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StaleRows {
    pub(crate) client: ClientNumber,
    pub(crate) generation: u32,
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl StaleRows {
    /// Splits off the deletions for one append; returns them and the remaining rows.
    fn split(self) -> (Vec<Frame>, Option<Self>) {
        let middle = self.end.min(self.first.saturating_add(DELETES_AT_ONCE));
        let delete = |row| {
            let key = RowKey {
                client: self.client,
                generation: self.generation,
                row,
            };
            key.frame(None)
        };
        let rest = Self {
            first: middle,
            ..self
        };
        (
            (self.first..middle).map(delete).collect(),
            (middle < self.end).then_some(rest),
        )
    }
}
