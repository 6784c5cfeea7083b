//! Consumes partitions chosen by the user, without a group.

use std::time::Duration;

use stafett_kafka_client::Fetcher;
use tokio::time::sleep;

use super::Job;
use super::output::Output;
use crate::client::Session;
use crate::client::position::{Position, offsets};

/// Pause without new records after which the output is flushed.
pub(super) const IDLE: Duration = Duration::from_millis(20);

pub(super) async fn run(session: &Session, job: &Job) -> anyhow::Result<()> {
    let settings = job.fetch_settings();
    let mut fetcher = Fetcher::new(session.client.clone(), settings);
    let mut ends = Vec::new();
    let from = job.from.unwrap_or(match job.until {
        Some(_) => Position::Earliest,
        None => Position::Latest,
    });
    for chosen in &job.chosen {
        let topic = chosen.of(session.topic(&chosen.topic).await?)?;
        let bounds = job.bounds(&session.client, &topic).await?;
        let starts = offsets(&session.client, &topic, from, &bounds).await?;
        let stops = match job.until {
            Some(until) => Some(offsets(&session.client, &topic, until, &bounds).await?),
            None => None,
        };
        for (partition, start) in starts {
            let stop = stops
                .as_ref()
                .map(|stops| stops.get(&partition).copied().unwrap_or(0));
            let end = stop.unwrap_or(i64::MAX);
            if start < end {
                fetcher.add(&topic, partition, start);
                ends.push(end);
            }
        }
    }
    let mut output = Output::new(job);
    let read = read(&mut fetcher, &mut output, &ends).await;
    // Also after a failure: prints the records read before it.
    output.flush()?;
    read
}

async fn read(fetcher: &mut Fetcher, output: &mut Output<'_>, ends: &[i64]) -> anyhow::Result<()> {
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut left = ends.len();
    while left > 0 && !output.is_full() {
        let some = {
            let next = fetcher.next();
            tokio::pin!(next);
            tokio::select! {
                biased;
                answer = &mut next => answer?,
                _ = &mut interrupted => return Ok(()),
                () = sleep(IDLE) => {
                    output.flush()?;
                    tokio::select! {
                        answer = next => answer?,
                        _ = &mut interrupted => return Ok(()),
                    }
                }
            }
        };
        for fetched in some {
            let end = ends.get(fetched.source).copied().unwrap_or(i64::MAX);
            let Some(source) = fetcher.sources().get(fetched.source) else {
                continue;
            };
            let next = output.print(source, &fetched, end)?;
            if next >= end {
                fetcher.stop(fetched.source);
                left -= 1;
            }
        }
    }
    Ok(())
}
