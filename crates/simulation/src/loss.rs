//! Files of a stopped broker that are lost or damaged from outside. The next start must report it, serve the
//! remains, and use no offset or id twice.
//!
//! After a lost checkpoint anything may be missing. After a lost or damaged segment a record is unchanged, or
//! reading it is an error, or its log is fenced; nothing is skipped silently. A lost sidecar costs nothing.
//! The remains are checked and deleted, and the run continues with new topics and queues. Nothing of the old
//! ones may appear in them, then or later.

use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Journal, RecoveryReport};
use stafett_model::LogId;

use crate::ledger::Left;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Death, Finding, World};

const CHECKPOINT: &str = "checkpoint.redb";

/// A loss; the number selects the file or bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Checkpoint,
    /// A lost arrival segment.
    Segment(u64),
    Sidecar(u64),
    /// A flipped bit in an arrival segment.
    Bit(u64),
}

/// A loss whose checks are not done.
#[derive(Debug)]
pub struct Lost {
    pub loss: Loss,
    death: Option<Death>,
    /// True if a start has reported a loss.
    is_told: bool,
}

impl World {
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
        let (loss, death, is_told) = (of_run.loss, of_run.death, of_run.is_told);
        if matches!(loss, Loss::Sidecar(_)) {
            self.lost = None;
            if is_told {
                return Err(Finding(format!("a lost sidecar costs something: {report:?}")).into());
            }
            return Ok(());
        }
        if loss == Loss::Checkpoint && !is_told {
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
        let (mut read, mut unreadable) = (Vec::new(), Vec::new());
        while at < end {
            let code = self.read_part(server, log, &mut at, &mut read).await?;
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
                read.len()
            )
        });
        let left = Left {
            read: &read,
            unreadable: &unreadable,
            end,
            is_fenced: report.fenced.contains(&id),
            may_miss: matches!(
                self.lost,
                Some(Lost {
                    loss: Loss::Checkpoint,
                    ..
                })
            ),
        };
        Ok(self.kafka.ledger.check_left(log, &left, death)?)
    }
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
    }
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
