//! Scripts for the state machine.
//!
//! A line is a request; the lines with `>` behind it are all the answers that it causes.
//!
//! ```text
//! join NAME [as ID] [static INSTANCE] [knows A,B] [likes TEXT] [for PURPOSE] [session MS]
//!                        [rebalance MS] [v4] [v9]
//! sync ID GENERATION [ID=TEXT …] [static INSTANCE] [believes STRATEGY]
//! beat ID GENERATION [static INSTANCE] │ commit[-in-transaction] ID GENERATION │ leave ID … │ leave static INSTANCE
//! +MS │ restart │ slow │ written │ lost
//! ```
//!
//! A member that joins without `as` gets its name as its id. Assignments are stored at once; after `slow`,
//! they are by `written`, and are not by `lost`.

use std::collections::HashMap;

use stafett_store::NotStored;

use super::super::*;
use crate::effects::{Effects, MemberReply, Store, WaiterId};
use crate::replies::JoinError;
use crate::strategy::Strategy;

struct Script {
    group: ClassicGroup,
    now: Moment,
    waits: HashMap<WaiterId, String>,
    next: u64,
    stored: Vec<u8>,
    is_slow: bool,
    said: Vec<String>,
    members_max: usize,
    delay: u32,
}

/// Runs a script, and returns the resulting group.
pub(super) fn run(text: &str) -> ClassicGroup {
    let mut script = Script {
        group: ClassicGroup::default(),
        now: Moment(1000),
        waits: HashMap::new(),
        next: 0,
        stored: Vec::new(),
        is_slow: false,
        said: Vec::new(),
        members_max: 3,
        delay: 50,
    };
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        let mut expected = Vec::new();
        while let Some(said) = lines.next_if(|next| next.starts_with('>')) {
            expected.push(said[1..].trim().to_owned());
        }
        script.perform(line);
        script.said.sort();
        expected.sort();
        assert_eq!(script.said, expected, "after `{line}` at {:?}", script.now);
        script.said.clear();
    }
    script.group
}

impl Script {
    #[expect(clippy::too_many_lines, reason = "a table of commands")]
    fn perform(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = |name| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let instance = option("static").map(Box::<str>::from);
        let mut effects = Effects::default();
        match words[0] {
            "join" => {
                let waiter = self.wait(words[1]);
                let names = option("knows").unwrap_or("range").split(',');
                let metadata = Bytes::copy_from_slice(option("likes").unwrap_or("").as_bytes());
                let number = |name, or| option(name).map_or(or, |text| text.parse().unwrap());
                let join = Join {
                    member: option("as").unwrap_or("").into(),
                    new_id: words[1].into(),
                    instance,
                    client_id: "client".into(),
                    client_host: "host".into(),
                    purpose: option("for").unwrap_or("consumer").into(),
                    strategies: names
                        .filter(|name| !name.is_empty())
                        .map(|name| Strategy {
                            name: name.into(),
                            metadata: metadata.clone(),
                        })
                        .collect(),
                    session_ms: number("session", 10_000),
                    rebalance_ms: number("rebalance", 60_000),
                    must_know_id: words.contains(&"v4") || words.contains(&"v9"),
                    may_skip_assignment: words.contains(&"v9"),
                };
                let limits = JoinLimits {
                    members_max: self.members_max,
                    initial_delay_ms: self.delay,
                };
                self.group.join(join, waiter, self.now, &limits, &mut effects);
            }
            "sync" => {
                let waiter = self.wait(words[1]);
                let given = words.iter().filter_map(|word| word.split_once('='));
                let sync = Sync {
                    member: words[1].into(),
                    instance,
                    generation: words[2].parse().unwrap(),
                    purpose: None,
                    strategy: option("believes").map(Into::into),
                    assignments: given
                        .map(|(id, text)| (id.into(), Bytes::copy_from_slice(text.as_bytes())))
                        .collect(),
                };
                self.group.sync(sync, waiter, self.now, &mut effects);
            }
            "beat" => {
                let beat =
                    self.group
                        .heartbeat(words[1], instance.as_deref(), words[2].parse().unwrap(), self.now);
                self.said.push(said(&beat));
            }
            "commit" | "commit-in-transaction" => {
                let epoch = words[2].parse().unwrap();
                let member = words[1].trim_matches('-');
                let by = CommitSender {
                    member,
                    instance: instance.as_deref(),
                    epoch,
                    is_transactional: words[0] != "commit",
                };
                let checked = self.group.check_commit(&by, self.now);
                self.said.push(said(&checked));
            }
            "leave" => {
                let ids = if instance.is_some() {
                    vec![""]
                } else {
                    words[1..].to_vec()
                };
                let leaves: Vec<_> = ids
                    .iter()
                    .map(|id| Leave {
                        member: (*id).into(),
                        instance: instance.clone(),
                    })
                    .collect();
                let left = self.group.leave(&leaves, self.now, &mut effects);
                self.said.extend(left.iter().map(said));
            }
            "slow" => self.is_slow = true,
            "written" => self.finish_storing(Ok(()), &mut effects),
            "lost" => self.finish_storing(Err(NotStored::Unknown), &mut effects),
            "restart" => {
                self.group = ClassicGroup::decode(&self.stored, self.now).unwrap();
                self.waits.clear();
            }
            other => {
                let end = Moment(self.now.0 + other[1..].parse::<u64>().unwrap());
                while let Some(due) = self.group.deadline().filter(|due| *due <= end) {
                    self.now = due;
                    let mut effects = Effects::default();
                    self.group.tick(self.now, &mut effects);
                    assert!(
                        self.group.deadline().is_none_or(|next| next > due),
                        "time goes on"
                    );
                    self.follow(effects);
                }
                self.now = end;
            }
        }
        self.follow(effects);
        self.check();
    }

    fn wait(&mut self, name: &str) -> WaiterId {
        let waiter = WaiterId(self.next);
        self.next += 1;
        self.waits.insert(waiter, name.to_owned());
        waiter
    }

    fn follow(&mut self, effects: Effects) {
        for (waiter, answer) in effects.replies {
            let who = self.waits.remove(&waiter).expect("who waits is answered once");
            let text = match answer {
                MemberReply::Join(Ok(joined)) => {
                    let strategy = joined.strategy.unwrap_or_default();
                    let members: Vec<_> = joined.members.iter().map(|member| &*member.id).collect();
                    let members = if members.is_empty() {
                        String::new()
                    } else {
                        format!(" [{}]", members.join(" "))
                    };
                    let skips = if joined.skip_assignment { " skips" } else { "" };
                    let (id, generation, leader) = (joined.member, joined.generation, joined.leader);
                    let id = if *id == *who {
                        String::new()
                    } else {
                        format!(" as {id}")
                    };
                    format!("{who} joined{id} {generation} {strategy} led by {leader}{members}{skips}")
                }
                MemberReply::Join(Err(JoinError { error, member })) => {
                    format!("{who} not joined as `{member}`: {error:?}")
                }
                MemberReply::Sync(Ok(synced)) => {
                    format!("{who} gets `{}`", String::from_utf8_lossy(&synced.assignment))
                }
                MemberReply::Sync(Err(error)) => format!("{who} gets nothing: {error:?}"),
            };
            self.said.push(text);
        }
        if effects.store == Store::Whole {
            self.stored.clear();
            self.group.encode(&mut self.stored);
            self.said.push("stored".into());
            if !self.is_slow {
                let mut effects = Effects::default();
                self.finish_storing(Ok(()), &mut effects);
                self.follow(effects);
            }
        }
    }

    fn finish_storing(&mut self, outcome: Result<(), NotStored>, effects: &mut Effects) {
        if let Some(generation) = self.group.generation_in_storing() {
            self.group.on_assigned(generation, outcome, self.now, effects);
        }
    }

    /// Checks the invariants.
    fn check(&self) {
        let group = &self.group;
        let waiting = group
            .members
            .values()
            .flat_map(|member| [member.joining, member.syncing]);
        let waiting: Vec<_> = waiting.flatten().collect();
        assert_eq!(
            waiting.len(),
            self.waits.len(),
            "whoever is not answered is known to wait"
        );
        if let Some(leader) = &group.leader {
            assert!(group.members.contains_key(leader), "the leader is a member");
        }
        for (instance, id) in &group.instances {
            assert_eq!(group.members[id].instance.as_ref(), Some(instance));
        }
        let empty = group.members.is_empty();
        assert!(!group.is_empty() || empty, "an empty group has no members");
    }
}

fn said(result: &Result<(), GroupError>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(error) => format!("{error:?}"),
    }
}

/// Script: two members in their first generation, with their assignments.
pub(super) const TWO: &str = "
    join a
    +10
    join b
    +39
    +1
    +50
    > a joined 1 range led by a [a b]
    > b joined 1 range led by a
    sync b 1
    sync a 1 a=x b=y
    > a gets `x`
    > b gets `y`
    > stored
";

pub(super) fn after_two(script: &str) -> ClassicGroup {
    run(&format!("{TWO}{script}"))
}
