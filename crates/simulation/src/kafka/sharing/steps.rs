//! Steps of members of share groups, and the check that every record comes until it is settled.

use std::collections::{BTreeMap, BTreeSet};

use stafett_kafka_wire::messages::ShareFetchResponse;

use super::requests::{Shape, VERSION, configs, describe, fetch, outcomes};
use super::{
    ACCEPT, Asked, Context, GROUPS, Holder, MEMBERS, NOTICED_MS, REJECT, RELEASE, RENEW, Sent, Sharing,
    requests, rules,
};
use crate::kafka::consumers::Owned;
use crate::kafka::{Kafka, Known};
use crate::ledger::LogKey;
use crate::random::Random;
use crate::server::Server;
use crate::steps::PARTITIONS;
use crate::world::{Broken, Finding, World};

/// Fetches after which a group must have taken everything.
const ROUNDS: i32 = 2_000;
/// Bounds of the fetches that take everything.
const ALL: Shape = Shape {
    records_max: 10_000,
    is_exact: false,
    wait_ms: 200,
};

/// Step of a member of a share group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareStep {
    Join {
        member: u8,
    },
    /// A member acquires records. It may settle some in the same request.
    Fetch {
        member: u8,
        shape: Shape,
        settles: Option<Choice>,
    },
    /// A member settles records, or renews their locks.
    Acknowledge {
        member: u8,
        choice: Choice,
    },
    /// A member ends its session and leaves. It may settle records with the last request.
    Leave {
        member: u8,
        settles: Option<Choice>,
    },
    /// A member's connection ends. It goes on as the same member, or another one comes in its place.
    Cut {
        member: u8,
        goes_on: bool,
    },
    /// All members of a group end, and everything that is left must come.
    Empty {
        group: u8,
    },
    /// Time passes, in which locks can end.
    Wait {
        ms: u32,
    },
}

/// Selection of records to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    place: u8,
    count: u8,
    /// Kind for all; others are mixed.
    kind: i8,
}

impl ShareStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        // The first members act most, so that they hold records when they settle some.
        let member = if small(3) == 0 { small(MEMBERS) } else { small(3) };
        let choice = Choice {
            place: small(u8::MAX),
            count: 1 + small(30),
            kind: i8::try_from(small(8)).unwrap_or(0),
        };
        let settles = (small(3) == 0).then_some(choice);
        match small(40) {
            0..=3 => Self::Join { member },
            4 => Self::Leave { member, settles },
            5 | 6 => Self::Cut {
                member,
                goes_on: small(2) == 0,
            },
            7 => Self::Empty {
                group: member % GROUPS,
            },
            8 | 9 => Self::Wait {
                ms: if small(4) == 0 { 16_000 } else { 30 },
            },
            10..=24 => Self::Fetch {
                member,
                settles,
                shape: Shape {
                    records_max: u16::from(1 + small(50)),
                    is_exact: small(2) == 0,
                    wait_ms: u16::from(small(3)) * 50,
                },
            },
            _ => Self::Acknowledge { member, choice },
        }
    }
}

impl Kafka {
    /// Returns the partitions of existing topics.
    fn shared(&self) -> BTreeMap<LogKey, Owned> {
        let topics = self.topics.iter().filter_map(|topic| match topic.known {
            Known::There(id) => Some((topic, id)),
            Known::Missing | Known::Creating | Known::Deleting(_) => None,
        });
        topics
            .flat_map(|(topic, id)| {
                (0..PARTITIONS).map(move |index| (topic.log(index), (id, i32::from(index))))
            })
            .collect()
    }
}

impl Sharing {
    /// Chooses records that a member holds, and marks them as settled.
    fn choose(
        &mut self,
        (group, holder): (u8, Holder),
        choice: Option<Choice>,
        ids: &BTreeMap<LogKey, Owned>,
        now_ms: i64,
    ) -> Sent {
        let mut sent = Sent {
            at_ms: now_ms,
            settled: BTreeMap::new(),
        };
        let Some(choice) = choice else { return sent };
        let mut places = self.deliveries.held_by(group, holder);
        places.retain(|(_, log)| ids.contains_key(log));
        let index = usize::from(choice.place).checked_rem(places.len());
        let Some(key) = index.and_then(|index| places.get(index).copied()) else {
            return sent;
        };
        let kind = |offset: u64| match choice.kind {
            RENEW => RENEW,
            kind @ (ACCEPT | RELEASE | REJECT) => kind,
            _ => match offset % 4 {
                1 => RELEASE,
                2 => REJECT,
                _ => ACCEPT,
            },
        };
        let settled = self.deliveries.settle(key, holder, choice.count.into(), kind);
        sent.settled.insert(key, settled);
        sent
    }
}

impl World {
    /// Sets the settings of share groups.
    pub async fn configure_shares(&mut self, server: &mut Server) -> Result<(), Broken> {
        if self.kafka.sharing.is_configured {
            return Ok(());
        }
        let mut is_configured = true;
        for group in 0..GROUPS {
            let answer = self.ask(server, 1, &configs(group, rules(group))).await?;
            let code = answer.responses.first().map(|one| one.error_code);
            is_configured &= code == Some(0);
            if code != Some(0) && !self.may_refuse && !self.has_failed() {
                return Err(Finding(format!("a share group is not configured: {answer:?}")).into());
            }
        }
        self.kafka.sharing.is_configured = is_configured;
        Ok(())
    }

    pub async fn share_step(&mut self, server: &mut Server, step: ShareStep) -> Result<(), Broken> {
        match step {
            ShareStep::Wait { ms } => return self.rest(server, ms.into()).await,
            ShareStep::Empty { group } => return self.empty_group(server, group).await,
            ShareStep::Join { member }
            | ShareStep::Fetch { member, .. }
            | ShareStep::Acknowledge { member, .. }
            | ShareStep::Leave { member, .. }
            | ShareStep::Cut { member, .. } => Ok(self.share_in(server, member, step)?),
        }
    }

    fn share_in(&mut self, server: &mut Server, number: u8, step: ShareStep) -> Result<(), Finding> {
        let now_ms = self.now_ms();
        let ids = self.kafka.shared();
        let sharing = &mut self.kafka.sharing;
        let Some(at) = sharing.members.iter().position(|member| member.number == number) else {
            return Ok(());
        };
        let mut member = sharing.members.remove(at);
        if sharing.is_configured {
            member.connect(server)?;
            let me = (member.group(), member.holder());
            match step {
                ShareStep::Cut { goes_on, .. } => {
                    member.lose(&mut sharing.deliveries);
                    if !goes_on {
                        member.cut(&mut sharing.deliveries);
                    }
                }
                // It joins again once it has left.
                _ if member.is_leaving() => {}
                _ if !member.is_in => member.is_in = true,
                ShareStep::Fetch { shape, settles, .. }
                    if member.epoch > 0 && !member.assigned.is_empty() =>
                {
                    let settles = settles.filter(|choice| member.session.is_some() && choice.kind != RENEW);
                    let sent = sharing.choose(me, settles, &ids, now_ms);
                    member.fetch(sent, shape, &ids);
                }
                ShareStep::Acknowledge { choice, .. } if member.session.is_some() => {
                    let sent = sharing.choose(me, Some(choice), &ids, now_ms);
                    if sent.settled.is_empty() {
                        member.fetch(sent, ALL, &ids);
                    } else {
                        member.acknowledge(sent, false, &ids);
                    }
                }
                ShareStep::Leave { settles, .. } if member.epoch > 0 && member.waiting.is_empty() => {
                    let settles = settles.filter(|choice| choice.kind != RENEW);
                    let sent = sharing.choose(me, settles, &ids, now_ms);
                    sharing.deliveries.on_closing(me.0, me.1);
                    member.acknowledge(sent, true, &ids);
                    member.leave();
                }
                ShareStep::Join { .. }
                | ShareStep::Fetch { .. }
                | ShareStep::Acknowledge { .. }
                | ShareStep::Leave { .. }
                | ShareStep::Empty { .. }
                | ShareStep::Wait { .. } => {}
            }
        }
        sharing.members.insert(at, member);
        Ok(())
    }

    /// Takes everything that a group has left, without its members, and accepts it.
    async fn empty_group(&mut self, server: &mut Server, group: u8) -> Result<(), Broken> {
        if !self.kafka.sharing.made.contains(&group) {
            return Ok(());
        }
        let Sharing {
            members, deliveries, ..
        } = &mut self.kafka.sharing;
        for member in members.iter_mut().filter(|member| member.group() == group) {
            member.cut(deliveries);
        }
        self.rest(server, NOTICED_MS.unsigned_abs()).await?;
        if self.may_refuse || self.has_failed() {
            return Ok(());
        }
        let ids = self.kafka.shared();
        let owed: Vec<(LogKey, Vec<u64>)> = ids
            .keys()
            .map(|log| (*log, self.kafka.ledger.all_stored(*log)))
            .collect();
        let is_whole = self.take_all(server, group, &ids).await?;
        if !is_whole {
            return Ok(());
        }
        for (log, owed) in owed {
            let still: BTreeSet<u64> = self.kafka.ledger.all_stored(log).into_iter().collect();
            let deliveries = &mut self.kafka.sharing.deliveries;
            for offset in owed.into_iter().filter(|offset| still.contains(offset)) {
                deliveries.check_taken((group, log), offset, rules(group))?;
            }
            if !still.is_empty() {
                deliveries.on_emptied((group, log));
            }
        }
        Ok(())
    }

    /// Fetches and accepts until nothing comes. Returns false if the disk was in the way.
    async fn take_all(
        &mut self,
        server: &mut Server,
        group: u8,
        ids: &BTreeMap<LogKey, Owned>,
    ) -> Result<bool, Broken> {
        // No member of the group: the broker does not ask for one.
        let holder: Holder = (u8::MAX, u32::try_from(self.trace.notes).unwrap_or(u32::MAX));
        let member = format!("taker-{}", self.trace.notes);
        let all: BTreeSet<Owned> = ids.values().copied().collect();
        for epoch in 0..ROUNDS {
            let now_ms = self.now_ms();
            let mut sent = Sent {
                at_ms: now_ms,
                settled: BTreeMap::new(),
            };
            let deliveries = &mut self.kafka.sharing.deliveries;
            for key in deliveries.held_by(group, holder) {
                let settled = deliveries.settle(key, holder, usize::MAX, |_| ACCEPT);
                sent.settled.insert(key, settled);
            }
            let added = if epoch == 0 { &all } else { &BTreeSet::new() };
            let parts = (added, &BTreeSet::new());
            let request = fetch((group, &member, epoch), parts, &sent.settled, ids, ALL);
            let answer = match self.ask(server, VERSION, &request).await {
                Ok(answer) => answer,
                Err(broken) => {
                    self.kafka.sharing.deliveries.on_left(group, holder, 1);
                    return Err(broken);
                }
            };
            self.trace.note(|| format!("{member} gets {}", describe(&answer)));
            let is_over = self.on_taken(group, holder, &sent, &answer)?;
            if let Some(is_whole) = is_over {
                let last = requests::acknowledgement((group, &member, -1), &BTreeMap::new(), ids);
                self.kafka.sharing.deliveries.on_left(group, holder, 0);
                self.ask(server, VERSION, &last).await?;
                return Ok(is_whole);
            }
        }
        Err(Finding(format!("share group {group} never has everything")).into())
    }

    /// Processes an answer. Returns true if the group has taken everything, false if the disk was in the way.
    fn on_taken(
        &mut self,
        group: u8,
        holder: Holder,
        sent: &Sent,
        answer: &ShareFetchResponse,
    ) -> Result<Option<bool>, Finding> {
        let may_refuse = self.may_refuse || self.has_failed();
        let now_ms = self.now_ms();
        if answer.error_code != 0 && !may_refuse {
            return Err(Finding(format!("share group {group} is answered {answer:?}")));
        }
        let kafka = &mut self.kafka;
        let mut context = Context {
            topics: &kafka.topics,
            ledger: &mut kafka.ledger,
            deliveries: &mut kafka.sharing.deliveries,
            may_refuse,
            now_ms,
        };
        context.settle((group, holder), sent, &outcomes(answer), answer.error_code == 0)?;
        context.take((group, holder), answer, sent.at_ms)?;
        let is_empty = answer.responses.iter().all(|topic| {
            let mut partitions = topic.partitions.iter();
            partitions.all(|partition| partition.acquired_records.is_empty())
        });
        Ok(if may_refuse {
            Some(false)
        } else {
            is_empty.then_some(true)
        })
    }

    /// Checks, once all steps are done, that each group gets everything that is left.
    pub async fn empty_groups(&mut self, server: &mut Server) -> Result<(), Broken> {
        for group in 0..GROUPS {
            self.empty_group(server, group).await?;
        }
        Ok(())
    }
}

impl super::Member {
    fn is_leaving(&self) -> bool {
        self.waiting.iter().any(|asked| matches!(asked, Asked::Leave))
    }

    fn leave(&mut self) {
        let request = requests::heartbeat(self.group(), &self.id(), -1);
        self.send(1, &request, Asked::Leave);
        self.is_in = false;
    }
}
