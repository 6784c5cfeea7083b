//! The coordinator of transactions against a naive model: random steps of several instances of two
//! transactional ids, right and wrong ones, with restarts and with time that passes.
//!
//! The model knows which transactions have ended how. It does not repeat the coordinator's rules; it demands
//! what they are for: records and commits count with the commit of their transaction and not otherwise, only
//! the newest instance has any effect, and readers wait at the first open transaction.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use stafett_broker::Broker;
use stafett_journal::{Append, MemoryJournal, Outcome};
use stafett_model::{LogId, Offset, ProducerId, TransactionEnd};
use stafett_topics::Topic;
use stafett_transactions::{Instance, Parts, Status};

use crate::transactions::{
    NOBODY, TIMEOUT_MS, batch, commit_of, committed, committed_offset, in_memory, logs, start, topic,
};

const IDS: [&str; 2] = ["a", "b"];
const PARTITIONS: u32 = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Another instance; `after` names the one that asks for it, counted back from the newest.
    Begin {
        id: usize,
        after: Option<usize>,
    },
    AddLog {
        by: By,
        log: usize,
    },
    AddGroup {
        by: By,
    },
    Send {
        by: By,
        log: usize,
        adds: bool,
    },
    Commit {
        by: By,
        adds: bool,
    },
    End {
        by: By,
        commits: bool,
        bumps: bool,
    },
    Restart,
    /// Open transactions take too long.
    Wait,
}

/// An instance of an id, counted back from the newest.
#[derive(Debug, Clone, Copy)]
struct By {
    id: usize,
    back: usize,
}

fn by() -> impl Strategy<Value = By> {
    // Mostly the newest, else nothing ever gets anywhere.
    let back = prop_oneof![6 => Just(0_usize), 1 => 1..3_usize];
    (0..IDS.len(), back).prop_map(|(id, back)| By { id, back })
}

fn step() -> impl Strategy<Value = Step> {
    let log = || 0..PARTITIONS as usize;
    prop_oneof![
        3 => (0..IDS.len(), prop::option::of(0..3_usize)).prop_map(|(id, after)| Step::Begin { id, after }),
        2 => (by(), log()).prop_map(|(by, log)| Step::AddLog { by, log }),
        2 => by().prop_map(|by| Step::AddGroup { by }),
        8 => (by(), log(), any::<bool>()).prop_map(|(by, log, adds)| Step::Send { by, log, adds }),
        4 => (by(), any::<bool>()).prop_map(|(by, adds)| Step::Commit { by, adds }),
        6 => (by(), any::<bool>(), any::<bool>())
            .prop_map(|(by, commits, bumps)| Step::End { by, commits, bumps }),
        1 => Just(Step::Restart),
        1 => Just(Step::Wait),
    ]
}

/// A transaction that has not ended.
#[derive(Debug, Default)]
struct Open {
    /// Texts by log, and the offset of the first.
    sent: BTreeMap<LogId, (Offset, Vec<String>)>,
    commit: Option<i64>,
}

#[derive(Debug, Default)]
struct Id {
    /// All instances, the newest last.
    instances: Vec<Instance>,
    open: Open,
    sequences: BTreeMap<(ProducerId, i16, LogId), i32>,
}

struct World {
    journal: Arc<MemoryJournal>,
    broker: Arc<Broker>,
    topic: Arc<Topic>,
    ids: [Id; 2],
    /// Records that count, by log.
    counted: BTreeMap<LogId, BTreeSet<String>>,
    /// Commits of the group that count, each with its number: the later request wins.
    commits: BTreeSet<i64>,
    number: i64,
}

impl World {
    async fn new() -> Self {
        let (journal, broker) = in_memory().await;
        let topic = topic(&broker, "t", PARTITIONS).await.unwrap();
        Self {
            journal,
            broker,
            topic,
            ids: Default::default(),
            counted: BTreeMap::new(),
            commits: BTreeSet::new(),
            number: 0,
        }
    }

    fn instance(&self, by: By) -> Option<Instance> {
        self.ids[by.id].instances.iter().rev().nth(by.back).copied()
    }

    /// The transaction of an id has ended.
    fn ended(&mut self, id: usize, end: TransactionEnd) {
        let open = std::mem::take(&mut self.ids[id].open);
        if end == TransactionEnd::Commit {
            for (log, (_, texts)) in open.sent {
                self.counted.entry(log).or_default().extend(texts);
            }
            self.commits.extend(open.commit);
        }
    }

    /// An id goes on as another instance.
    fn goes_on(&mut self, id: usize, instance: Instance) {
        let instances = &mut self.ids[id].instances;
        if instances.last() != Some(&instance) {
            assert!(!instances.contains(&instance), "{instance:?} comes again");
            instances.push(instance);
        }
    }

    async fn run(&mut self, step: Step) {
        let transactions = Arc::clone(self.broker.transactions());
        match step {
            Step::Begin { id, after } => {
                let given = after.and_then(|back| self.instance(By { id, back }));
                let newest = self.instance(By { id, back: 0 });
                if let Ok(begun) = transactions.begin_producer(IDS[id], TIMEOUT_MS, given).await {
                    if newest != Some(begun) {
                        self.ended(id, TransactionEnd::Abort);
                    }
                    self.goes_on(id, begun);
                } else {
                    assert!(given.is_some() && given != newest, "the newest may begin anew");
                }
            }
            Step::AddLog { by, log } => {
                let Some(instance) = self.instance(by) else { return };
                let parts = Parts::of_logs([logs(&self.topic)[log]]);
                let added = transactions.add_parts(IDS[by.id], instance, parts).await;
                assert_eq!(added.is_ok(), by.back == 0, "{added:?}");
            }
            Step::AddGroup { by } => {
                let Some(instance) = self.instance(by) else { return };
                let added = transactions.add_group(IDS[by.id], instance, "g");
                assert_eq!(added.is_ok(), by.back == 0, "{added:?}");
            }
            Step::Send { by, log, adds } => self.send(by, log, adds).await,
            Step::Commit { by, adds } => {
                let Some(instance) = self.instance(by) else { return };
                self.number += 1;
                let commits = commit_of(&self.topic, self.number);
                let group = ("g", &NOBODY);
                let stored = transactions.commit_offsets(IDS[by.id], instance, adds, group, commits);
                let stored = stored.await;
                assert!(by.back == 0 || stored.is_err(), "a zombie commits");
                assert!(by.back != 0 || !adds || stored.is_ok(), "{stored:?}");
                if stored.is_ok() {
                    self.ids[by.id].open.commit = Some(self.number);
                }
            }
            Step::End { by, commits, bumps } => self.end(by, commits, bumps).await,
            Step::Restart => {
                self.broker.stop().await;
                self.journal = Arc::new(self.journal.reopen());
                self.broker = start(&self.journal).await;
                self.topic = self.broker.topics().named("t").unwrap();
            }
            Step::Wait => {
                tokio::time::sleep(Duration::from_secs(70)).await;
                for (id, name) in IDS.iter().enumerate() {
                    let Some(found) = transactions.describe(name) else {
                        continue;
                    };
                    assert_ne!(found.status, Status::Ongoing, "{name} is overdue");
                    if self.instance(By { id, back: 0 }) != Some(found.instance) {
                        self.ended(id, TransactionEnd::Abort);
                        self.goes_on(id, found.instance);
                    }
                }
            }
        }
    }

    async fn send(&mut self, by: By, log: usize, adds: bool) {
        let Some(instance) = self.instance(by) else { return };
        let log = logs(&self.topic)[log];
        self.number += 1;
        let text = self.number.to_string();
        let key = (instance.producer, instance.epoch, log);
        let sequence = *self.ids[by.id].sequences.entry(key).or_default();
        let append = Append::batch(log, batch(instance, sequence, &text));
        let transactions = self.broker.transactions();
        let sent = transactions.append(IDS[by.id], instance, adds, &[log], vec![append]);
        assert!(by.back == 0 || sent.is_err(), "a zombie sends");
        assert!(by.back != 0 || !adds || sent.is_ok());
        let Ok(ticket) = sent else { return };
        let outcomes = ticket.await;
        let [Outcome::Committed(placed)] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        let id = &mut self.ids[by.id];
        id.sequences.insert(key, sequence + 1);
        let sent = id.open.sent.entry(log).or_insert((placed[0].base, Vec::new()));
        sent.1.push(text);
    }

    async fn end(&mut self, by: By, commits: bool, bumps: bool) {
        let Some(instance) = self.instance(by) else { return };
        let end = if commits {
            TransactionEnd::Commit
        } else {
            TransactionEnd::Abort
        };
        let transactions = Arc::clone(self.broker.transactions());
        let had = !self.ids[by.id].open.sent.is_empty() || self.ids[by.id].open.commit.is_some();
        let ended = transactions.end(IDS[by.id], instance, end, bumps).await;
        assert!(
            by.back != 0 || !had || ended.is_ok(),
            "an open transaction ends: {ended:?}"
        );
        let Ok(next) = ended else { return };
        if by.back == 0 {
            self.ended(by.id, end);
            self.goes_on(by.id, next);
        } else {
            // An answer that was given before is given again.
            assert_eq!(Some(next), self.instance(By { back: 0, ..by }));
        }
    }

    async fn check(&self) {
        for log in logs(&self.topic) {
            let open = self.ids.iter().filter_map(|id| id.open.sent.get(&log));
            let first = open.map(|(first, _)| *first).min();
            let bounds = self.broker.catalog().bounds(log).unwrap();
            assert_eq!(bounds.stable, first.unwrap_or(bounds.end));
            // Those behind an open transaction are not read yet.
            let found: BTreeSet<String> = committed(&self.broker, log).await.into_iter().collect();
            let counted = self.counted.get(&log).cloned().unwrap_or_default();
            assert!(found.is_subset(&counted), "{found:?}, counted {counted:?}");
            if first.is_none() {
                assert_eq!(found, counted);
            }
        }
        let newest = self.commits.last().copied();
        assert_eq!(committed_offset(&self.broker, "g", &self.topic), newest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn records_and_commits_count_as_their_transactions_end(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in steps {
                world.run(step).await;
                world.check().await;
            }
            for id in 0..IDS.len() {
                world.run(Step::Begin { id, after: None }).await;
            }
            world.check().await;
        });
    }
}
