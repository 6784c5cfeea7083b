//! Subscribing and unsubscribing.
//!
//! Changes come in groups, such as the pipelined requests of one connection. A group's changes of one client
//! are stored as one row, and all rows of a group with one append. A change takes effect at once, under its
//! client's turn, and is undone if it is not stored; it is acknowledged once stored. So an acknowledged
//! subscription is stored, and a second change of a client never builds on one that is not.

mod name_list;
mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use stafett_model::Offset;
use stafett_routing::live::Pattern;
use stafett_store::NotStored;
use tokio::sync::SemaphorePermit;

pub use self::name_list::NameList;
pub(crate) use self::rows::StaleRows;
use super::clients::{Client, ClientName, ClientNumber};
use super::live::{Live, TooManyClients};
use super::log_delivery::{HeldSubscription, LiveLogs, StartFrom};
use super::outbox::Outbox;
use super::stored::{EditKind, RowBuilder};

/// Names changed under one lock.
const NAMES_AT_ONCE: usize = 512;
/// Bound on the patterns of one client.
pub(crate) const CLIENT_PATTERNS_MAX: usize = 1000;
/// Overhead of a stored row, in bytes.
const ROW_OVERHEAD: u64 = 64;
/// Wasted stored bytes that are always allowed before a client's rows are rewritten.
const WASTE_MIN: u64 = 4096;

/// A change of one client's subscriptions.
#[derive(Debug, Clone)]
pub struct SubscriptionChange {
    pub client: ClientName,
    pub what: SubscriptionEdit,
}

#[derive(Debug, Clone)]
pub enum SubscriptionEdit {
    Subscribe(NameList),
    Unsubscribe(NameList),
    SubscribePatterns(Vec<Pattern>),
    UnsubscribePatterns(Vec<Pattern>),
    UnsubscribeAll,
}

/// Refusal of a change, as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("a client may have {max} subscriptions; with these it would have more")]
    TooManySubscriptions { max: usize },
    #[error("there may be {max} patterns; with these there would be more")]
    TooManyPatterns { max: usize },
    #[error(transparent)]
    TooManyClients(#[from] TooManyClients),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl ChangeError {
    /// True if the change may be stored all the same: the journal failed before the outcome was known.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::NotStored(NotStored::Unknown))
    }
}

/// A client in a group of changes.
struct ClientChanges {
    number: ClientNumber,
    row: RowBuilder,
    /// Results of its changes so far, by their indexes in the group.
    done: Vec<(usize, Result<usize, ChangeError>)>,
}

impl Live {
    /// Makes changes in order; each is durable when this returns. Returns for each the number of
    /// subscriptions that it added or removed.
    ///
    /// The changes complete even if the caller stops waiting.
    pub async fn change(
        self: &Arc<Self>,
        changes: Vec<SubscriptionChange>,
    ) -> Vec<Result<usize, ChangeError>> {
        let count = changes.len();
        let live = Arc::clone(self);
        let ended = self
            .changes
            .spawn(async move { live.change_all(changes).await })
            .await;
        ended.unwrap_or_else(|_| vec![Err(NotStored::Unknown.into()); count])
    }

    /// Ends a client's listening, as if it listened elsewhere, and its subscriptions.
    pub async fn remove_client(self: &Arc<Self>, name: ClientName) -> Result<(), ChangeError> {
        let number = self.clients().find(&name);
        let listening = number.and_then(|number| Some((number, self.listener(number)?)));
        if let Some((number, outbox)) = listening {
            self.leave(number, &outbox, false);
            outbox.on_taken_over(name.clone());
        }
        let change = SubscriptionChange {
            client: name,
            what: SubscriptionEdit::UnsubscribeAll,
        };
        self.change(vec![change])
            .await
            .into_iter()
            .try_for_each(|done| done.map(drop))
    }

    /// Refuses further changes, and waits for those in progress.
    pub async fn finish_changes(&self) {
        self.ended.cancel();
        self.changes.close();
        self.changes.wait().await;
    }

    /// Subscribes a client that listens with `outbox`, from a given position: stored messages of the topics'
    /// logs are delivered first, then live ones, without gaps or duplicates, from the call of
    /// [`Live::catch_up`] on. So the caller can answer before.
    ///
    /// The change completes even if the caller stops waiting.
    pub async fn subscribe_from(
        self: &Arc<Self>,
        client: ClientName,
        topics: NameList,
        from: StartFrom,
        outbox: &Arc<Outbox>,
    ) -> (Result<usize, ChangeError>, Option<HeldSubscription>) {
        let whole = Arc::clone(self).subscribe_and_catch_up(client, topics, from, Arc::clone(outbox));
        let ended = self.changes.spawn(whole).await;
        ended.unwrap_or_else(|_| (Err(NotStored::Unknown.into()), None))
    }

    pub(crate) async fn change_all(
        &self,
        changes: Vec<SubscriptionChange>,
    ) -> Vec<Result<usize, ChangeError>> {
        let mut results = Vec::with_capacity(changes.len());
        let mut rest = changes.as_slice();
        while !rest.is_empty() {
            // After a client has unsubscribed from everything, its row begins anew.
            let ends = |change: &SubscriptionChange| matches!(change.what, SubscriptionEdit::UnsubscribeAll);
            let count = rest.iter().position(ends).map_or(rest.len(), |place| place + 1);
            let (group, behind) = rest.split_at(count);
            results.extend(self.change_group(group).await);
            rest = behind;
        }
        results
    }

    async fn change_group(&self, group: &[SubscriptionChange]) -> Vec<Result<usize, ChangeError>> {
        let mut results = vec![Ok(0); group.len()];
        let mut parts: Vec<ClientChanges> = Vec::new();
        let mut part_of = Vec::with_capacity(group.len());
        {
            let mut clients = self.clients_mut();
            for (change, result) in group.iter().zip(&mut results) {
                let number = clients.find(&change.client);
                let number = match (number, &change.what) {
                    (Some(number), _) => number,
                    (None, SubscriptionEdit::Subscribe(_) | SubscriptionEdit::SubscribePatterns(_)) => {
                        if clients.len() >= self.settings.clients_max {
                            *result = Err(TooManyClients(clients.len()).into());
                            part_of.push(None);
                            continue;
                        }
                        clients.find_or_add(&change.client)
                    }
                    (
                        None,
                        SubscriptionEdit::Unsubscribe(_)
                        | SubscriptionEdit::UnsubscribePatterns(_)
                        | SubscriptionEdit::UnsubscribeAll,
                    ) => {
                        part_of.push(None);
                        continue;
                    }
                };
                let known = parts.iter().rposition(|part| part.number == number);
                part_of.push(Some(known.unwrap_or_else(|| {
                    clients.pin(number);
                    parts.push(ClientChanges {
                        number,
                        row: RowBuilder::default(),
                        done: Vec::new(),
                    });
                    parts.len() - 1
                })));
            }
        }
        let turns = self.take_turns(&parts).await;
        for (place, (change, part)) in group.iter().zip(&part_of).enumerate() {
            if let Some(part) = part.and_then(|part| parts.get_mut(part)) {
                let done = self.apply(part.number, &change.what, &mut part.row);
                part.done.push((place, done));
            }
        }
        let numbers: Vec<ClientNumber> = parts.iter().map(|part| part.number).collect();
        self.store_parts(parts, &mut results).await;
        for number in &numbers {
            self.rewrite_if_wasteful(*number).await;
        }
        if self.journal.failure().is_some() {
            // The journal may hold changes that are undone in memory: all outcomes are unknown.
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(NotStored::Unknown.into());
            }
        }
        drop(turns);
        let mut clients = self.clients_mut();
        for number in numbers {
            clients.unpin(number);
        }
        drop(clients);
        self.count_subscriptions();
        results
    }

    /// Acquires the turns of all clients concerned, always in the same order, so that groups cannot deadlock.
    async fn take_turns(&self, parts: &[ClientChanges]) -> Vec<SemaphorePermit<'_>> {
        let turn_of = |part: &ClientChanges| usize::try_from(part.number.0).unwrap_or(0) % self.turns.len();
        let places: BTreeSet<usize> = parts.iter().map(turn_of).collect();
        let mut turns = Vec::with_capacity(places.len());
        for turn in places.into_iter().filter_map(|place| self.turns.get(place)) {
            // The semaphores are never closed.
            turns.extend(turn.acquire().await.ok());
        }
        turns
    }

    /// Applies a change and records it in the client's row. A refused change has no effect.
    fn apply(
        &self,
        number: ClientNumber,
        what: &SubscriptionEdit,
        row: &mut RowBuilder,
    ) -> Result<usize, ChangeError> {
        let before = row.len();
        let applied = match what {
            SubscriptionEdit::Subscribe(names) => self.apply_names(number, names, EditKind::Subscribe, row),
            SubscriptionEdit::Unsubscribe(names) => {
                self.apply_names(number, names, EditKind::Unsubscribe, row)
            }
            SubscriptionEdit::SubscribePatterns(patterns) => self.subscribe_patterns(number, patterns, row),
            SubscriptionEdit::UnsubscribePatterns(patterns) => {
                Ok(self.unsubscribe_patterns(number, patterns, row))
            }
            SubscriptionEdit::UnsubscribeAll => Ok(self.unsubscribe_all(number, row)),
        };
        if applied.is_err() {
            self.metrics.refused_lists.inc();
            self.undo(number, row, before);
        }
        applied
    }

    fn apply_names(
        &self,
        number: ClientNumber,
        names: &NameList,
        step: EditKind,
        row: &mut RowBuilder,
    ) -> Result<usize, ChangeError> {
        let max = self.settings.subscriptions_max;
        let mut names = names.iter().peekable();
        let mut changed = 0;
        while names.peek().is_some() {
            // The lock is released now and then to let others in.
            let mut clients = self.clients_mut();
            let Some(client) = clients.get_mut(number) else {
                return Ok(changed);
            };
            let begins = self.positions.is_listening(number);
            for name in names.by_ref().take(NAMES_AT_ONCE) {
                if self.step(number, client, step, name) {
                    row.push(step, name);
                    changed += 1;
                    if begins {
                        self.positions.on_step(number, name, step == EditKind::Subscribe);
                    }
                    if step == EditKind::Subscribe && client.subscriptions() > max {
                        return Err(ChangeError::TooManySubscriptions { max });
                    }
                }
            }
        }
        Ok(changed)
    }

    /// Adds or removes one topic; false if nothing changed.
    fn step(&self, number: ClientNumber, client: &mut Client, step: EditKind, name: &str) -> bool {
        let cost = live_bytes(name);
        if step == EditKind::Subscribe {
            let (topic, added) = self.topics.subscribe(name, number.0);
            if added {
                client.topics.insert(topic.0);
                client.live_bytes += cost;
            }
            return added;
        }
        let Some(topic) = self.topics.unsubscribe(name, number.0) else {
            return false;
        };
        client.topics.remove(topic.0);
        client.live_bytes -= cost;
        true
    }

    fn subscribe_patterns(
        &self,
        number: ClientNumber,
        patterns: &[Pattern],
        row: &mut RowBuilder,
    ) -> Result<usize, ChangeError> {
        let (max, all_max) = (self.settings.subscriptions_max, self.settings.patterns_max);
        let mut clients = self.clients_mut();
        let Some(client) = clients.get_mut(number) else {
            return Ok(0);
        };
        let mut changed = 0;
        for pattern in patterns {
            let count = self.subscribe_pattern(number, pattern);
            let Some(count) = count else { continue };
            client.patterns.push(pattern.clone());
            client.live_bytes += live_bytes(pattern.text());
            self.metrics.patterns.inc();
            row.push(EditKind::SubscribePattern, pattern.text());
            changed += 1;
            if client.patterns.len() > CLIENT_PATTERNS_MAX {
                let max = CLIENT_PATTERNS_MAX;
                return Err(ChangeError::TooManyPatterns { max });
            }
            if count > all_max {
                return Err(ChangeError::TooManyPatterns { max: all_max });
            }
            if client.subscriptions() > max {
                return Err(ChangeError::TooManySubscriptions { max });
            }
        }
        Ok(changed)
    }

    /// Returns the number of patterns of all clients, or `None` if the client had the pattern already.
    fn subscribe_pattern(&self, number: ClientNumber, pattern: &Pattern) -> Option<usize> {
        let logs = self.logs_in_force();
        let logs = logs.as_deref().filter(|_| self.positions.is_listening(number));
        // The pattern takes effect exactly at these offsets.
        let still = logs.map(LiveLogs::pause_delivery);
        let count = self.edit_patterns(|all| all.subscribe(pattern, number.0).then(|| all.len()))?;
        if let Some(still) = &still {
            let now: Vec<Offset> = still.iter().map(|progress| progress.next()).collect();
            self.positions.on_pattern(number, pattern, Some(&now));
        }
        Some(count)
    }

    fn unsubscribe_patterns(
        &self,
        number: ClientNumber,
        patterns: &[Pattern],
        row: &mut RowBuilder,
    ) -> usize {
        let mut clients = self.clients_mut();
        let Some(client) = clients.get_mut(number) else {
            return 0;
        };
        let mut changed = 0;
        for pattern in patterns {
            if self.edit_patterns(|all| all.unsubscribe(pattern, number.0)) {
                self.positions.on_pattern(number, pattern, None);
                client.patterns.retain(|known| known != pattern);
                client.live_bytes -= live_bytes(pattern.text());
                self.metrics.patterns.dec();
                row.push(EditKind::UnsubscribePattern, pattern.text());
                changed += 1;
            }
        }
        changed
    }

    /// Removes all subscriptions. `row` only serves to undo this: the stored rows are deleted.
    fn unsubscribe_all(&self, number: ClientNumber, row: &mut RowBuilder) -> usize {
        let mut changed = 0;
        loop {
            let mut clients = self.clients_mut();
            let Some(client) = clients.get_mut(number) else {
                return changed;
            };
            let topics = client.topics.from(0, NAMES_AT_ONCE);
            if topics.is_empty() {
                let patterns = client.patterns.clone();
                drop(clients);
                return changed + self.unsubscribe_patterns(number, &patterns, row);
            }
            for topic in topics {
                let name = self.topics.name(super::topics::TopicId(topic), str::to_owned);
                if let Some(name) = name
                    && self.step(number, client, EditKind::Unsubscribe, &name)
                {
                    row.push(EditKind::Unsubscribe, &name);
                    changed += 1;
                }
            }
        }
    }

    /// Undoes the steps recorded in the row from byte `from` on.
    fn undo(&self, number: ClientNumber, row: &mut RowBuilder, from: usize) {
        let mut steps = Vec::new();
        row.read_from(from, |step, name| steps.push((step, name.to_owned())));
        row.truncate(from);
        let mut scratch = RowBuilder::default();
        for (step, name) in steps.into_iter().rev() {
            match step {
                EditKind::Subscribe | EditKind::Unsubscribe => {
                    let opposite = if step == EditKind::Subscribe {
                        EditKind::Unsubscribe
                    } else {
                        EditKind::Subscribe
                    };
                    let mut clients = self.clients_mut();
                    if let Some(client) = clients.get_mut(number) {
                        self.step(number, client, opposite, &name);
                    }
                }
                EditKind::SubscribePattern | EditKind::UnsubscribePattern => {
                    let Ok(pattern) = Pattern::parse(&name) else {
                        continue;
                    };
                    if step == EditKind::SubscribePattern {
                        self.unsubscribe_patterns(number, &[pattern], &mut scratch);
                    } else {
                        // Every bound held before.
                        let _ = self.subscribe_patterns(number, &[pattern], &mut scratch);
                    }
                }
            }
        }
    }
}

/// Returns the approximate bytes of a subscription in a row.
pub(crate) fn live_bytes(name: &str) -> u64 {
    name.len() as u64 + 2
}
