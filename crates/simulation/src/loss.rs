//! Files of a stopped broker that are lost or damaged from outside. The next start must report it, serve the
//! remains, and use no offset or id twice.
//!
//! After a lost checkpoint anything may be missing. After a lost or damaged segment a record is unchanged, or
//! reading it is an error, or its log is fenced; nothing is skipped silently. A lost sidecar costs nothing.
//! The remains are checked and deleted, and the run continues with new topics and queues. Nothing of the old
//! ones may appear in them, then or later.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Journal, RecoveryReport};
use stafett_model::{LogId, Namespace};

use crate::amqp::{DEAD, DYING, Patience, QUEUES};
use crate::kafka::Reading;
use crate::ledger::Left;
use crate::random::Random;
use crate::server::{Failed, Server, pumped};
use crate::steps::{Message, PARTITIONS, Settling, TOPICS};
use crate::world::{Broken, Death, Finding, World};

const CHECKPOINT: &str = "checkpoint.redb";
const SEGMENT_HEAD_BYTES: usize = 4096;
const GROUP_HEAD_BYTES: usize = 64;
/// Messages that are rejected before their settlements are damaged, and the client that does it.
const DYING_MESSAGES: u8 = 4;
const DYING_CLIENT: u8 = 0;
/// Bytes of a frame's head, and of each of its entries.
const FRAME_HEAD_BYTES: usize = 32;
/// Kind of a frame with changes of state.
const CONTROL: u8 = 2;
/// Flag of a frame whose append goes on in the next one.
const MORE: u8 = 1;

/// A loss; the number selects the file or bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Checkpoint,
    /// The checkpoint and the oldest arrival segments.
    Beginning(u64),
    /// A lost arrival segment.
    Segment(u64),
    Sidecar(u64),
    /// A flipped bit in an arrival segment.
    Bit(u64),
    /// A flipped bit in a group of several frames near the end, which no checkpoint may cover yet.
    Group(u64),
    /// A flipped bit near the end in a change of state that is stored with a batch, in one append: the
    /// settlement of a dead letter.
    Settlement(u64),
}

impl Loss {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(18) {
            0 => Self::Checkpoint,
            1 | 2 => Self::Beginning(random.next()),
            3 | 4 => Self::Segment(random.next()),
            5 => Self::Sidecar(random.next()),
            6 | 7 => Self::Bit(random.next()),
            8..=11 => Self::Group(random.next()),
            _ => Self::Settlement(random.next()),
        }
    }

    fn has_checkpoint(self) -> bool {
        !matches!(self, Self::Checkpoint | Self::Beginning(_))
    }

    pub fn is_of_settlements(self) -> bool {
        matches!(self, Self::Settlement(_))
    }

    /// True for damage in one of the last groups, which may be taken for unwritten ones.
    fn is_near_end(self) -> bool {
        matches!(self, Self::Group(_) | Self::Settlement(_))
    }
}

/// A loss whose checks are not done.
#[derive(Debug)]
pub struct Lost {
    pub loss: Loss,
    death: Option<Death>,
    /// True if a start has reported a loss.
    is_told: bool,
    /// True if a start was killed before its report was seen.
    may_be_told: bool,
}

impl Lost {
    /// True if the broker may refuse to start so: the flipped bit was in the record that a sorted segment was
    /// replaced, so the journal asks for a file that is gone.
    pub fn hides_replacement(&self, failed: &Failed) -> bool {
        let Failed(why) = failed;
        (matches!(self.loss, Loss::Bit(_)) || self.loss.is_near_end())
            && why.contains("sorted segment")
            && why.ends_with("is missing")
    }

    /// Handles a start that ended before its report was seen.
    pub fn on_end_of_start(&mut self) {
        self.may_be_told = true;
    }
}

impl World {
    /// Has messages rejected one by one whose queue passes them on to the dead ones, so that the last groups
    /// settle them.
    pub async fn let_some_die(&mut self, server: &mut Server) -> Result<(), Broken> {
        let [queue, _] = DYING;
        let message = Message {
            count: DYING_MESSAGES,
            bytes: 50,
            priority: 0,
            is_persistent: true,
            patience: Patience::default(),
        };
        self.pump_every = 1;
        self.publish(server, DYING_CLIENT, queue, message)?;
        self.rest(server, 20).await?;
        for _ in 0..DYING_MESSAGES {
            self.get(server, DYING_CLIENT, queue)?;
        }
        self.rest(server, 20).await?;
        for _ in 0..DYING_MESSAGES {
            self.settle(DYING_CLIENT, 1, Settling::Reject);
            self.rest(server, 10).await?;
        }
        // The last group may be taken for a torn one.
        self.publish(server, DYING_CLIENT, queue, Message { count: 1, ..message })?;
        self.rest(server, 10).await
    }

    /// Applies a loss while no program runs.
    pub fn lose(&mut self, loss: Loss, death: Option<Death>) {
        if self.has_lost {
            return;
        }
        // On a full disk a clean stop may not have stored a checkpoint.
        let ended = if self.may_refuse {
            Some(Death::Killed)
        } else {
            death
        };
        let Some(what) = apply(self.disk(), loss, ended) else {
            return;
        };
        self.has_lost = !matches!(loss, Loss::Sidecar(_));
        self.trace.note(|| format!("{what} is lost or damaged"));
        self.on_loss_beside_backup(loss);
        // Lost files have to be created again.
        self.end_full();
        self.lost = Some(Lost {
            loss,
            death,
            is_told: false,
            may_be_told: false,
        });
    }

    /// Checks the remains after a loss, deletes them, and creates topics and queues again.
    pub async fn check_loss(&mut self, server: &mut Server) -> Result<(), Broken> {
        let report = server.journal.report().clone();
        let Some(of_run) = &mut self.lost else {
            return Ok(());
        };
        self.trace.note(|| format!("{report:?}"));
        of_run.is_told |= report.is_damaged() || report.checkpoint_lost || report.damaged_groups > 0;
        let is_group = of_run.loss.is_near_end();
        let (loss, death) = (of_run.loss, of_run.death);
        let is_told = of_run.is_told || of_run.may_be_told || is_group;
        if matches!(loss, Loss::Sidecar(_)) {
            self.lost = None;
            if report.is_damaged() || report.checkpoint_lost || report.damaged_groups > 0 {
                return Err(Finding(format!("a lost sidecar costs something: {report:?}")).into());
            }
            return Ok(());
        }
        if !loss.has_checkpoint() && !is_told {
            return Err(Finding("nothing is said of a lost checkpoint".to_owned()).into());
        }
        while self.may_refuse {
            self.rest(server, 100).await?;
        }
        for number in 0..TOPICS {
            if !self.find_left(server, number, is_told).await? {
                continue;
            }
            for partition in 0..PARTITIONS {
                self.check_left(server, number, partition, death, &report).await?;
            }
        }
        if is_group {
            check_moved(server).await?;
        }
        for number in 0..TOPICS {
            self.delete_left(server, number).await?;
        }
        self.delete_queues(server).await?;
        self.kafka.begin_anew();
        self.amqp.copies.replace_all();
        self.lost = None;
        Ok(())
    }

    async fn check_left(
        &mut self,
        server: &mut Server,
        topic: u8,
        partition: u8,
        death: Option<Death>,
        report: &RecoveryReport,
    ) -> Result<(), Broken> {
        let (Some(log), Some(id)) = (self.kafka.log(topic, partition), log_id(server, topic, partition))
        else {
            return Err(Finding(format!("partition {partition} of topic {topic} is gone")).into());
        };
        let bounds = server.journal.bounds(id);
        let (mut at, end) = bounds.map_or((0, 0), |bounds| (bounds.start.0, bounds.end.0));
        let (mut reading, mut unreadable) = (Reading::default(), Vec::new());
        while at < end {
            let code = self.read_part(server, log, &mut at, &mut reading).await?;
            if code == 0 {
                break;
            }
            let is_in = |range: &&(LogId, _, _)| {
                let (of, from, to): (LogId, stafett_model::Offset, stafett_model::Offset) = **range;
                of == id && (from.0..to.0).contains(&at)
            };
            let named = report.damaged.iter().find(is_in);
            let to = named.map_or(at + 1, |(_, _, to)| to.0).min(end);
            unreadable.push(at..to);
            at = to;
        }
        self.trace.note(|| {
            format!(
                "{log:?} has {} records left and cannot be read at {unreadable:?}",
                reading.seen.len()
            )
        });
        let left = Left {
            read: &reading.seen,
            unreadable: &unreadable,
            end,
            is_fenced: report.fenced.contains(&id),
            may_miss: self
                .lost
                .as_ref()
                .is_some_and(|lost| !lost.loss.has_checkpoint() || lost.loss.is_near_end()),
        };
        Ok(self.kafka.ledger.check_left(log, &left, death)?)
    }
}

/// Checks that no message is in a queue and among the dead letters: its move is an append, which is kept or
/// lost as a whole.
async fn check_moved(server: &Server) -> Result<(), Broken> {
    // A message that dies meanwhile is in neither.
    let dead = numbers_in(server, DEAD).await?;
    for queue in DYING {
        let live = numbers_in(server, queue).await?;
        if let Some(number) = live.intersection(&dead).next() {
            return Err(Finding(format!("message {number} is in queue {queue} and dead")).into());
        }
    }
    Ok(())
}

/// Returns the messages in the remains of a queue.
async fn numbers_in(server: &Server, queue: u8) -> Result<BTreeSet<usize>, Broken> {
    let mut numbers = BTreeSet::new();
    let name = QUEUES.get(usize::from(queue)).copied().unwrap_or_default();
    let queues = server.broker.messaging().queues();
    if let Some(queue) = queues.get(&Namespace::default(), name) {
        let look = queue.peek(|_, message| {
            numbers.extend(crate::kafka::id_of(message.value()).map(|(number, _)| number));
            ControlFlow::Continue(())
        });
        let looked = pumped(&server.journal, look).await;
        looked.map_err(|failed| Finding(failed.0))?;
    }
    Ok(numbers)
}

fn log_id(server: &Server, topic: u8, partition: u8) -> Option<LogId> {
    server
        .broker
        .topics()
        .named(&format!("t{topic}"))?
        .log(partition.into())
}

/// Applies a loss to the disk. Returns its description, or `None` if there was nothing to lose.
fn apply(disk: &SimulatedDisk, loss: Loss, death: Option<Death>) -> Option<String> {
    let chosen = |names: &[String], number: u64| -> Option<String> {
        let index = number.checked_rem(names.len() as u64)?;
        names.get(usize::try_from(index).ok()?).cloned()
    };
    match loss {
        Loss::Checkpoint => {
            let is_worth_it = !in_use(disk, None).is_empty();
            (is_worth_it && disk.delete(CHECKPOINT)).then(|| CHECKPOINT.to_owned())
        }
        Loss::Beginning(number) => {
            let mut names = in_use(disk, death);
            let count = chosen_below(number, names.len());
            names.truncate(count);
            let is_worth_it = count > 0 && names.iter().all(|name| disk.delete(name));
            (is_worth_it && disk.delete(CHECKPOINT)).then(|| format!("{CHECKPOINT} with {names:?}"))
        }
        Loss::Segment(number) => chosen(&in_use(disk, death), number).filter(|name| disk.delete(name)),
        Loss::Sidecar(number) => {
            let mut names = disk.names();
            names.retain(|name| name.contains(".idx"));
            chosen(&names, number).filter(|name| disk.delete(name))
        }
        Loss::Bit(number) => {
            let name = chosen(&in_use(disk, death), number >> 32)?;
            let bits = disk.contents(&name)?.len() as u64 * 8;
            let bit = number.checked_rem(bits)?;
            disk.flip_bit(&name, bit).then(|| format!("bit {bit} of {name}"))
        }
        Loss::Group(number) => {
            let name = in_use(disk, None).pop()?;
            let groups = groups_of(&disk.contents(&name)?);
            let last = groups.iter().rev().filter(|group| group.count > 1).take(8);
            let group = last.collect::<Vec<_>>();
            let group = group.get(chosen_below(number, group.len()))?;
            // The last frames are often the small ones, which settle.
            let length = group.end - group.begin;
            let length = if number & (1 << 40) == 0 {
                length
            } else {
                length.min(200)
            };
            let byte = group.end - 1 - chosen_below(number >> 8, length);
            let bit = byte as u64 * 8 + (number >> 32) % 8;
            disk.flip_bit(&name, bit).then(|| format!("bit {bit} of {name}"))
        }
        Loss::Settlement(number) => {
            let name = in_use(disk, None).pop()?;
            let bodies = settling_bodies(&disk.contents(&name)?);
            let last = bodies.iter().rev().take(4).collect::<Vec<_>>();
            let body = last.get(chosen_below(number, last.len()))?;
            let byte = body.start + chosen_below(number >> 8, body.len());
            let bit = byte as u64 * 8 + (number >> 32) % 8;
            disk.flip_bit(&name, bit).then(|| format!("bit {bit} of {name}"))
        }
    }
}

fn chosen_below(number: u64, count: usize) -> usize {
    let index = number.checked_rem(count as u64).unwrap_or(0);
    usize::try_from(index).unwrap_or(0)
}

/// Frames of a write group in a segment.
#[derive(Debug)]
struct Frames {
    begin: usize,
    end: usize,
    count: u32,
}

/// Returns the bodies of changes of state in appends that also store a batch.
fn settling_bodies(segment: &[u8]) -> Vec<Range<usize>> {
    let number = |at: usize, bytes: usize| {
        let bytes = segment.get(at..at + bytes)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let mut found = Vec::new();
    for group in groups_of(segment) {
        let (mut at, mut states, mut has_batch) = (group.begin, Vec::new(), false);
        while at < group.end {
            let entries = number(at + 6, 2).zip(number(at + 8, 4));
            let (Some(&[kind, flags]), Some((entries, bytes))) = (segment.get(at + 4..at + 6), entries)
            else {
                break;
            };
            let begin = at + FRAME_HEAD_BYTES * (1 + entries);
            match kind {
                CONTROL => states.push(begin..begin + bytes),
                _ => has_batch = true,
            }
            if flags & MORE == 0 {
                if has_batch {
                    found.append(&mut states);
                }
                (states, has_batch) = (Vec::new(), false);
            }
            at = (begin + bytes).next_multiple_of(8);
        }
    }
    found
}

/// Returns the groups of a segment but the last one, whose damage is that of a kill.
fn groups_of(segment: &[u8]) -> Vec<Frames> {
    let word = |at: usize| {
        let bytes = segment.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (mut at, mut groups) = (SEGMENT_HEAD_BYTES, Vec::new());
    while segment.get(at..at + 4) == Some(b"SGRP") && word(at + 8) == word(16) {
        let Some((bytes, frames)) = word(at + 12).zip(word(at + 36)) else {
            break;
        };
        let end = at + bytes as usize;
        groups.push(Frames {
            begin: at + GROUP_HEAD_BYTES,
            end,
            count: frames,
        });
        at = end.max(at + GROUP_HEAD_BYTES);
    }
    groups.pop();
    groups
}

/// Returns the arrival segments with content. The last two are left out unless the program stopped cleanly:
/// their loss could not be detected.
fn in_use(disk: &SimulatedDisk, death: Option<Death>) -> Vec<String> {
    let mut names = disk.names();
    names.retain(|name| {
        let number = name
            .strip_prefix("arrival-")
            .and_then(|name| name.strip_suffix(".seg")?.parse::<u32>().ok());
        number.is_some_and(|number| {
            let bytes = disk.contents(name).unwrap_or_default();
            bytes.starts_with(b"STAFSEG\0") && bytes.get(16..20) == Some(&number.to_le_bytes()[..])
        })
    });
    if !matches!(death, Some(Death::Stopped) | None) {
        names.truncate(names.len().saturating_sub(2));
    }
    names
}
