//! One result out of what several hosts measured: counts are added, histograms merged, and messages accounted for across
//! all of them.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;

use super::protocol::Share;
use crate::experiment::{Does, Plan, Role};
use crate::results::{Latencies, RateSample, RoleResult, histogram};
use crate::workload::Ledger;
use crate::workload::together::{RoleBooks, RoleSecond};

/// The samples of all hosts, second by second. Hosts begin together, so the n-th sample of one goes with that of another.
#[derive(Debug)]
pub(super) struct Seconds {
    hosts: usize,
    rows: Vec<Row>,
    /// How many each host has told.
    told: Vec<usize>,
}

#[derive(Debug, Default)]
struct Row {
    hosts: usize,
    /// By role.
    samples: Vec<RateSample>,
    /// While some hosts have not told theirs.
    histograms: Vec<Histogram<u64>>,
}

impl Seconds {
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            hosts,
            rows: Vec::new(),
            told: vec![0; hosts],
        }
    }

    /// Adds a host's next second; the samples of the second if that was the last host to tell it.
    pub(super) fn add(&mut self, host: usize, roles: &[RoleSecond]) -> Result<Option<&[RateSample]>, String> {
        let Some(told) = self.told.get_mut(host) else {
            return Ok(None);
        };
        let place = *told;
        *told += 1;
        if self.rows.len() <= place {
            self.rows.resize_with(place + 1, Row::default);
        }
        let Some(row) = self.rows.get_mut(place) else {
            return Ok(None);
        };
        row.add(roles)?;
        if row.hosts == self.hosts {
            row.close();
            return Ok(Some(&row.samples));
        }
        Ok(None)
    }

    /// Whether this host is the first to tell of its latest second: how many are known.
    pub(super) fn known(&self) -> usize {
        self.rows.len()
    }

    /// All samples of the role at `place`.
    fn of_role(&mut self, place: usize) -> Vec<RateSample> {
        for row in &mut self.rows {
            row.close();
        }
        self.rows
            .iter()
            .filter_map(|row| row.samples.get(place).copied())
            .collect()
    }
}

impl Row {
    fn add(&mut self, roles: &[RoleSecond]) -> Result<(), String> {
        self.hosts += 1;
        self.samples
            .resize(roles.len().max(self.samples.len()), RateSample::default());
        if self.histograms.len() < roles.len() {
            self.histograms.resize_with(roles.len(), histogram::empty);
        }
        for ((sum, latencies), role) in self.samples.iter_mut().zip(&mut self.histograms).zip(roles) {
            add_sample(sum, &role.sample);
            if !role.histogram.is_empty() {
                let came = histogram::decode(&role.histogram).map_err(|error| error.to_string())?;
                latencies.add(&came).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Nothing more comes: quantiles are taken, and the histograms are done with.
    fn close(&mut self) {
        for (sample, latencies) in self.samples.iter_mut().zip(self.histograms.drain(..)) {
            let of = |quantile| (!latencies.is_empty()).then(|| latencies.value_at_quantile(quantile));
            (sample.p50_us, sample.p99_us, sample.max_us) = (of(0.5), of(0.99), of(1.0));
        }
    }
}

fn add_sample(sum: &mut RateSample, other: &RateSample) {
    sum.at_s = sum.at_s.max(other.at_s);
    sum.seconds = sum.seconds.max(other.seconds);
    sum.clients += other.clients;
    sum.sent += other.sent;
    sum.acknowledged += other.acknowledged;
    sum.received += other.received;
    sum.failed += other.failed;
    sum.timed_out += other.timed_out;
    sum.reconnects += other.reconnects;
}

/// The roles' results out of the shares of all hosts. `is_drained`: what has not come by now is lost.
pub(super) fn roles(
    plan: &Plan,
    shares: &[Share],
    seconds: &mut Seconds,
    is_drained: bool,
) -> Result<Vec<RoleResult>, String> {
    let mut merged = Vec::new();
    for (place, (name, role)) in plan.roles.iter().enumerate() {
        let of_hosts = || shares.iter().filter_map(|share| share.roles.get(place));
        let mut results = of_hosts();
        let mut sum = results
            .next()
            .ok_or_else(|| format!("nobody says what became of `{name}`"))?
            .clone();
        for other in results {
            sum.clients += other.clients;
            sum.counts.add(&other.counts);
            sum.totals.add(&other.totals);
            sum.rate += other.rate;
            sum.bytes_rate += other.bytes_rate;
        }
        sum.latencies = latencies(of_hosts())?;
        sum.samples = seconds.of_role(place);
        if role.does == Does::Consume {
            let (lost, both) = accounted(plan, place, role, shares);
            sum.totals.duplicated += both;
            sum.totals.lost = if is_drained { lost } else { 0 };
        }
        merged.push(sum);
    }
    Ok(merged)
}

fn latencies<'a>(
    results: impl Iterator<Item = &'a RoleResult>,
) -> Result<BTreeMap<String, Latencies>, String> {
    let mut all: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    for (name, latencies) in results.flat_map(|result| &result.latencies) {
        let came = latencies.decode().map_err(|error| error.to_string())?;
        let sum = all.entry(name.clone()).or_insert_with(histogram::empty);
        sum.add(&came).map_err(|error| error.to_string())?;
    }
    let of = |(name, histogram): (String, Histogram<u64>)| (name, Latencies::of(&histogram));
    Ok(all.into_iter().map(of).collect())
}

/// Acknowledged messages that the audiences of a role never got, and how many came on two hosts to the same audience.
fn accounted(plan: &Plan, place: usize, consumer: &Role, shares: &[Share]) -> (u64, u64) {
    let set = |role: &Role| role.topics.clone().or_else(|| plan.topics.keys().next().cloned());
    let producers = plan
        .roles
        .values()
        .enumerate()
        .filter(|(_, role)| role.does == Does::Produce && set(role) == set(consumer));
    let mut streams: Vec<(u32, u64)> = Vec::new();
    let mut given_up: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for (at, _) in producers {
        let books: Vec<&RoleBooks> = shares.iter().filter_map(|share| share.books.get(at)).collect();
        if books.iter().any(|books| books.is_overwhelmed) {
            continue;
        }
        for books in books {
            streams.extend(&books.streams);
            for (stream, messages) in &books.given_up {
                given_up.entry(*stream).or_default().extend(messages);
            }
        }
    }
    let audiences = if consumer.fan_out { consumer.clients } else { 1 };
    let (mut lost, mut both) = (0, 0);
    for audience in 0..audiences {
        let mut ledger = Ledger::default();
        for (stream, _) in &streams {
            ledger.expect(*stream);
        }
        for books in shares.iter().filter_map(|share| share.books.get(place)) {
            let found = books.audiences.iter().find(|(number, _)| *number == audience);
            if let Some((_, images)) = found {
                both += ledger.absorb(images);
            }
        }
        for (stream, count) in &streams {
            lost += ledger.missing(*stream, *count, |sequence| {
                given_up.get(stream).is_some_and(|set| set.contains(&sequence))
            });
        }
    }
    (lost, both)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::Source;
    use crate::results::Counts;

    fn second(at_s: f64, received: u64, latency_ms: u64, count: u64) -> RoleSecond {
        let mut latencies = histogram::empty();
        histogram::record(&mut latencies, Duration::from_millis(latency_ms), count);
        RoleSecond {
            sample: RateSample {
                at_s,
                seconds: 1.0,
                clients: 1,
                received,
                ..RateSample::default()
            },
            histogram: histogram::encode(&latencies),
        }
    }

    #[test]
    fn a_second_is_whole_when_all_hosts_have_told_it() {
        let mut seconds = Seconds::new(2);
        assert!(seconds.add(0, &[second(1.0, 10, 1, 90)]).unwrap().is_none());
        assert!(seconds.add(0, &[second(2.0, 20, 1, 1)]).unwrap().is_none());
        let whole = seconds.add(1, &[second(1.0, 5, 500, 10)]).unwrap().unwrap();
        assert_eq!((whole[0].received, whole[0].clients), (15, 2));
        // Of a hundred the slowest ten: not the worst of two medians, nor their mean.
        assert_eq!(whole[0].p50_us.unwrap() / 100, 10);
        assert_eq!(whole[0].p99_us.unwrap() / 10_000, 50);
        let all = seconds.of_role(0);
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].received, 20);
        let broken = RoleSecond {
            histogram: "AAAA".to_owned(),
            ..second(3.0, 1, 1, 1)
        };
        assert!(seconds.add(1, &[broken]).is_err());
    }

    fn plan() -> Plan {
        let text = "question = \"?\"\nsystems = [\"stafett\"]\n[roles.c]\ndoes = \"consume\"\n[roles.p]\ndoes = \"produce\"";
        Source {
            place: "x".to_owned(),
            text: text.to_owned(),
        }
        .plan(1.0, &BTreeMap::new())
        .unwrap()
    }

    fn share(stream: u32, came: &[(u32, std::ops::Range<u64>)]) -> Share {
        let mut ledger = Ledger::default();
        for (stream, sequences) in came {
            ledger.expect(*stream);
            sequences.clone().for_each(|sequence| {
                ledger.enter(*stream, sequence);
            });
        }
        let result = |name: &str, does: &str| RoleResult {
            name: name.to_owned(),
            does: does.to_owned(),
            clients: 1,
            counts: Counts::default(),
            totals: Counts {
                sent: 100,
                ..Counts::default()
            },
            rate: 10.0,
            bytes_rate: 0.0,
            latencies: BTreeMap::new(),
            samples: Vec::new(),
        };
        Share {
            drain_s: None,
            sustainable_rate: None,
            connected: Duration::ZERO,
            warmup_s: 0.0,
            measured_s: 1.0,
            roles: vec![result("c", "consume"), result("p", "produce")],
            books: vec![
                RoleBooks {
                    audiences: vec![(0, ledger.image())],
                    ..RoleBooks::default()
                },
                RoleBooks {
                    streams: vec![(stream, 100)],
                    given_up: vec![(stream, vec![99])],
                    ..RoleBooks::default()
                },
            ],
            processes: Vec::new(),
            error: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn messages_are_accounted_for_across_hosts() {
        // Of stream 1 the messages 60 to 69 came on both hosts, and 98 never did; 99 was given up by who sent it.
        let shares = [
            share(1, &[(1, 0..70), (2, 50..100)]),
            share(2, &[(1, 60..98), (2, 0..50)]),
        ];
        let merged = roles(&plan(), &shares, &mut Seconds::new(2), true).unwrap();
        assert_eq!(merged[0].totals.lost, 1);
        assert_eq!(merged[0].totals.duplicated, 10);
        assert_eq!((merged[1].clients, merged[1].totals.sent), (2, 200));
        assert!((merged[1].rate - 20.0).abs() < 1e-9);
        let undecided = roles(&plan(), &shares, &mut Seconds::new(2), false).unwrap();
        assert_eq!(undecided[0].totals.lost, 0, "it was still coming");
    }
}
