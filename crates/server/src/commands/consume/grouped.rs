//! Consumes as a member of a group. Printed records are committed, so that the next member continues behind
//! them.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use stafett_kafka_client::Fetcher;
use stafett_kafka_client::Str;
use stafett_kafka_client::membership::{Beat, HEARTBEAT, Membership};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::Job;
use super::output::Output;
use super::plain::IDLE;
use crate::client::Session;
use crate::client::position::{Position, offsets};

const COMMIT_EVERY: Duration = Duration::from_secs(2);

/// Reason why a member stopped reading its assignment.
enum Stop {
    Rebalance,
    Done,
}

/// Assignment of a member, and its progress.
struct Share {
    fetcher: Fetcher,
    ends: Vec<i64>,
    /// Offset behind the printed records, by source. `None` before the first one.
    printed: Vec<Option<i64>>,
    left: usize,
}

pub(super) async fn run(session: &Session, job: &Job, group: &str) -> anyhow::Result<()> {
    for chosen in &job.chosen {
        session.topic(&chosen.topic).await?;
    }
    let topics: Vec<_> = job.chosen.iter().map(|chosen| chosen.topic.as_str()).collect();
    let mut membership = Membership::new(session.client.clone(), group, &topics);
    let mut output = Output::new(job);
    // One future for all waits: an interrupt during a rebalance is not lost.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let read = loop {
        let share = async {
            let given = membership.join().await?;
            Share::open(session, job, group, given).await
        };
        let mut share = tokio::select! {
            share = share => share?,
            _ = &mut interrupted => break Ok(()),
        };
        let stop = read(&mut membership, &mut share, &mut output, interrupted.as_mut()).await;
        // At least once: records are printed before they are committed.
        output.flush()?;
        match stop {
            Ok(Stop::Rebalance) => {
                let _ = membership.commit(&share.positions()).await;
            }
            Ok(Stop::Done) => {
                membership.commit(&share.positions()).await?;
                break Ok(());
            }
            Err(error) => break Err(error),
        }
    };
    let left = membership.leave().await;
    read?;
    Ok(left?)
}

impl Share {
    async fn open(
        session: &Session,
        job: &Job,
        group: &str,
        given: Vec<(Str, Vec<i32>)>,
    ) -> anyhow::Result<Self> {
        let committed = session.client.committed(group).await?;
        let settings = job.fetch_settings();
        let mut share = Self {
            fetcher: Fetcher::new(session.client.clone(), settings),
            ends: Vec::new(),
            printed: Vec::new(),
            left: 0,
        };
        for (name, partitions) in given {
            let mut topic = session.topic(&name).await?;
            topic.partitions.retain(|row| partitions.contains(&row.index));
            let bounds = job.bounds(&session.client, &topic).await?;
            let from = job.from.unwrap_or(Position::Earliest);
            let starts = offsets(&session.client, &topic, from, &bounds).await?;
            let until = job.until.unwrap_or(Position::Latest);
            let stops = offsets(&session.client, &topic, until, &bounds).await?;
            for (partition, (first, last)) in bounds {
                let known = committed
                    .get(&(topic.name.clone(), partition))
                    .map(|row| row.offset);
                let start = known.map_or_else(
                    || starts.get(&partition).copied().unwrap_or(first),
                    |known| known.clamp(first, last.max(first)),
                );
                let end = job
                    .until
                    .and_then(|_| stops.get(&partition).copied())
                    .unwrap_or(i64::MAX);
                if start < end {
                    share.fetcher.add(&topic, partition, start);
                    share.ends.push(end);
                    share.printed.push(None);
                    share.left += 1;
                }
            }
        }
        Ok(share)
    }

    /// Returns the offsets to commit.
    fn positions(&self) -> Vec<((Str, i32), i64)> {
        let sources = self.fetcher.sources().iter().zip(&self.printed);
        sources
            .filter_map(|(source, printed)| Some(((source.topic.clone(), source.partition), (*printed)?)))
            .collect()
    }
}

async fn read(
    membership: &mut Membership,
    share: &mut Share,
    output: &mut Output<'_>,
    mut interrupted: Pin<&mut impl Future<Output = io::Result<()>>>,
) -> anyhow::Result<Stop> {
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut committed = Instant::now();
    // Without --follow, a member without anything left to read leaves.
    let follows = output.follows();
    loop {
        if output.is_full() || share.left == 0 && !follows {
            return Ok(Stop::Done);
        }
        let fetched = {
            let idle = share.left == 0;
            let next = async {
                if idle {
                    sleep(HEARTBEAT).await;
                    return Ok(Vec::new());
                }
                share.fetcher.next().await
            };
            tokio::pin!(next);
            loop {
                tokio::select! {
                    biased;
                    _ = beats.tick() => if membership.beat().await? == Beat::Rebalance {
                        return Ok(Stop::Rebalance);
                    },
                    fetched = &mut next => break fetched?,
                    () = sleep(IDLE) => output.flush()?,
                    _ = &mut interrupted => return Ok(Stop::Done),
                }
            }
        };
        for some in fetched {
            let end = share.ends.get(some.source).copied().unwrap_or(i64::MAX);
            let Some(source) = share.fetcher.sources().get(some.source) else {
                continue;
            };
            let next = output.print(source, &some, end)?;
            if let Some(printed) = share.printed.get_mut(some.source) {
                *printed = Some(next);
            }
            if next >= end {
                share.fetcher.stop(some.source);
                share.left -= 1;
            }
        }
        if committed.elapsed() >= COMMIT_EVERY {
            output.flush()?;
            if membership.commit(&share.positions()).await? == Beat::Rebalance {
                return Ok(Stop::Rebalance);
            }
            committed = Instant::now();
        }
    }
}
