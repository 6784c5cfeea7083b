//! One result out of those of several hosts: counts are added, histograms merged, and messages accounted for
//! across all hosts.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use roaring::RoaringTreemap;

use crate::experiment::{Does, Plan, Role};
use crate::results::{Latencies, RateSample, RoleResult, Window, Windows, histogram};
use crate::workload::clients;
use crate::workload::derived_numbers;
use crate::workload::ledger::{self, Ledger};
use crate::workload::load::Loaded;
use crate::workload::together::{HostSecond, RoleBooks, RoleSecond};

/// Seconds that may have begun and not be over. Those of a host that is further behind come too late for
/// quantiles of all hosts.
const OPEN_MAX: usize = 64;

/// The samples of all hosts, second by second: those with the same number are of the same time.
#[derive(Debug)]
pub(super) struct Seconds {
    /// By host, the number that is told next.
    next: Vec<usize>,
    rows: Vec<Row>,
    /// Of these rows no histogram is waited for any more.
    closed: usize,
    /// By role.
    windows: Vec<Windows>,
}

/// A second of all hosts.
#[derive(Debug, Default)]
pub(super) struct Row {
    hosts: usize,
    pub(super) roles: Vec<RoleRow>,
}

/// A second of a role on all hosts.
#[derive(Debug)]
pub(super) struct RoleRow {
    pub(super) sample: RateSample,
    /// Changes of its rate that all hosts had heard of when it began.
    pub(super) changes: u64,
    /// `None` if no host is waited for any more: quantiles are taken.
    latencies: Option<Histogram<u64>>,
}

impl Seconds {
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            next: vec![0; hosts],
            rows: Vec::new(),
            closed: 0,
            windows: Vec::new(),
        }
    }

    /// Adds a second of a host; that of all hosts, if it was the last one to tell it. A load has fewer than
    /// `most` seconds.
    pub(super) fn add(
        &mut self,
        host: usize,
        second: &HostSecond,
        most: usize,
    ) -> Result<Option<&Row>, String> {
        let hosts = self.next.len();
        let (Some(next), Ok(place)) = (self.next.get_mut(host), usize::try_from(second.number)) else {
            return Ok(None);
        };
        if place < *next || place >= most {
            return Err(format!(
                "second number {place} where {next} is the next one, of {most} at most"
            ));
        }
        *next = place + 1;
        if self.rows.len() <= place {
            self.rows.resize_with(place + 1, Row::default);
        }
        if let Some(row) = self.rows.get_mut(place) {
            row.add(&second.roles)?;
        }
        let told = self.next.iter().min().copied().unwrap_or(0);
        let done = told.max(self.rows.len().saturating_sub(OPEN_MAX));
        for row in self.rows.iter_mut().take(done).skip(self.closed) {
            row.close(&mut self.windows);
        }
        self.closed = done.max(self.closed);
        Ok(self.rows.get(place).filter(|row| row.hosts == hosts))
    }

    /// Returns how many seconds have been reported by any host.
    pub(super) fn known(&self) -> usize {
        self.rows.len()
    }

    /// All samples of the role at `place`, and its windows.
    fn of_role(&mut self, place: usize) -> (Vec<RateSample>, Vec<Window>) {
        for row in &mut self.rows {
            row.close(&mut self.windows);
        }
        let samples = self.rows.iter();
        let samples = samples.filter_map(|row| Some(row.roles.get(place)?.sample));
        let windows = self.windows.get_mut(place).map(Windows::finish);
        (samples.collect(), windows.unwrap_or_default())
    }

    /// Returns how many histograms are kept.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        let roles = self.rows.iter().flat_map(|row| &row.roles);
        roles.filter(|role| role.latencies.is_some()).count()
    }
}

impl Row {
    fn add(&mut self, roles: &[RoleSecond]) -> Result<(), String> {
        self.roles.resize_with(roles.len(), || RoleRow {
            sample: RateSample::default(),
            changes: u64::MAX,
            latencies: Some(histogram::empty()),
        });
        self.hosts += 1;
        for (sum, role) in self.roles.iter_mut().zip(roles) {
            add_sample(&mut sum.sample, &role.sample);
            sum.changes = role.changes.min(sum.changes);
            if role.histogram.is_empty() {
                continue;
            }
            // A broken histogram is refused while its host is known.
            let came = histogram::decode(&role.histogram).map_err(|error| error.to_string())?;
            if let Some(latencies) = &mut sum.latencies {
                // All have the lab's own bounds.
                let _ = latencies.add(&came);
            }
        }
        Ok(())
    }

    /// Takes the quantiles: nothing more is waited for.
    fn close(&mut self, windows: &mut Vec<Windows>) {
        if windows.len() < self.roles.len() {
            windows.resize_with(self.roles.len(), Windows::default);
        }
        for (role, windows) in self.roles.iter_mut().zip(windows) {
            if let Some(latencies) = role.latencies.take() {
                role.sample.take_quantiles(&latencies);
                windows.add(role.sample.at_s, &latencies);
            }
        }
    }
}

fn add_sample(sum: &mut RateSample, other: &RateSample) {
    sum.at_s = sum.at_s.max(other.at_s);
    sum.seconds = sum.seconds.max(other.seconds);
    sum.clients = sum.clients.saturating_add(other.clients);
    sum.sent += other.sent;
    sum.acknowledged += other.acknowledged;
    sum.received += other.received;
    sum.failed += other.failed;
    sum.timed_out += other.timed_out;
    sum.reconnects += other.reconnects;
}

/// Messages that the audiences of a role got, on all hosts.
struct Account {
    audiences: Vec<Ledger>,
    /// Deliveries that were too many.
    again: u64,
}

impl Account {
    fn new<'a>(plan: &Plan, role: &Role, books: impl Iterator<Item = &'a RoleBooks>) -> Self {
        let mut audiences = Vec::new();
        for _ in 0..derived_numbers::audiences(role) {
            let mut ledger = Ledger::new(derived_numbers::each(plan, role));
            let producers = derived_numbers::producers(plan, role);
            let streams = producers.flat_map(|(place, producer)| derived_numbers::streams(place, producer));
            streams.for_each(|stream| ledger.expect(stream));
            audiences.push(ledger);
        }
        let mut again = 0;
        for piece in books.flat_map(|books| &books.came) {
            let audience = usize::try_from(piece.audience).ok();
            let audience = audience.and_then(|audience| audiences.get_mut(audience));
            again += audience.map_or(0, |audience| audience.absorb(piece));
        }
        Self { audiences, again }
    }

    /// Returns how many acknowledged messages the audiences never got, of those that the producers with these
    /// books sent.
    fn lost<'a>(&self, producers: impl Iterator<Item = &'a RoleBooks>) -> u64 {
        let of_stream = |books: &RoleBooks, stream: u32, sent: u64| {
            let given_up = books.given_up.get(&stream);
            let given_up = given_up.map_or_else(RoaringTreemap::new, |text| ledger::decode(text));
            let missing = |audience: &Ledger| audience.missing(stream, sent, &given_up);
            self.audiences.iter().map(missing).fold(0, u64::saturating_add)
        };
        let of_books = |books: &RoleBooks| {
            let streams = books.streams.iter();
            streams
                .map(|(stream, sent)| of_stream(books, *stream, *sent))
                .fold(0, u64::saturating_add)
        };
        producers.map(of_books).fold(0, u64::saturating_add)
    }
}

/// Results of the roles out of the shares of all hosts. `is_drained`: messages that have not come by now are
/// lost.
pub(super) fn roles(
    plan: &Plan,
    shares: &[Loaded],
    seconds: &mut Seconds,
    is_drained: bool,
) -> Result<Vec<RoleResult>, String> {
    let mut merged = Vec::new();
    for (place, (name, role)) in plan.roles.iter().enumerate() {
        let of_hosts = || shares.iter().filter_map(|share| share.roles.get(place));
        let books = || shares.iter().filter_map(|share| share.books.get(place));
        let mut results = of_hosts();
        let mut sum = results
            .next()
            .ok_or_else(|| format!("nobody says what became of `{name}`"))?
            .clone();
        for other in results {
            sum.clients = sum.clients.saturating_add(other.clients);
            sum.counts.add(&other.counts);
            sum.totals.add(&other.totals);
            sum.rate += other.rate;
            sum.bytes_rate += other.bytes_rate;
        }
        sum.latencies = latencies(of_hosts())?;
        (sum.samples, sum.windows) = seconds.of_role(place);
        if role.does == Does::Consume {
            let account = Account::new(plan, role, books());
            // Each host took its first copy of a message for new.
            sum.totals.duplicated += account.again;
            sum.totals.received = sum.totals.received.saturating_sub(account.again);
            sum.totals.lost = if is_drained {
                let books = |(place, _)| shares.iter().filter_map(move |share| share.books.get(place));
                account.lost(derived_numbers::producers(plan, role).flat_map(books))
            } else {
                0
            };
        }
        if derived_numbers::is_bounded(plan, role) {
            let own_time = together(books()).map(clients::seconds);
            if let Some(seconds) = own_time.filter(|seconds| *seconds > 0.0) {
                (sum.rate, sum.bytes_rate) = clients::rates(role.does, &sum.totals, seconds);
            }
        }
        merged.push(sum);
    }
    Ok(merged)
}

/// From when to when a role was active anywhere: hosts begin together.
fn together<'a>(books: impl Iterator<Item = &'a RoleBooks>) -> Option<(u64, u64)> {
    let active = books.filter_map(|books| books.active);
    active.reduce(|(first, last), (other_first, other_last)| (first.min(other_first), last.max(other_last)))
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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::time::Duration;

    use super::*;
    use crate::experiment::Source;
    use crate::results::Counts;

    fn second(number: u64, received: u64, latency_ms: u64, count: u64) -> HostSecond {
        let mut latencies = histogram::empty();
        histogram::record(&mut latencies, Duration::from_millis(latency_ms), count);
        let of_role = RoleSecond {
            sample: RateSample {
                at_s: number as f64 + 1.0,
                seconds: 1.0,
                clients: 1,
                received,
                ..RateSample::default()
            },
            histogram: histogram::encode(&latencies),
            changes: number,
        };
        HostSecond {
            number,
            roles: vec![of_role],
        }
    }

    #[test]
    fn a_second_is_whole_when_all_hosts_have_told_it() {
        let mut seconds = Seconds::new(2);
        assert!(seconds.add(0, &second(0, 10, 1, 90), 10).unwrap().is_none());
        assert!(seconds.add(0, &second(1, 20, 1, 1), 10).unwrap().is_none());
        let whole = seconds.add(1, &second(0, 5, 500, 10), 10).unwrap().unwrap();
        assert_eq!(
            (whole.roles[0].sample.received, whole.roles[0].sample.clients),
            (15, 2)
        );
        assert_eq!(whole.roles[0].changes, 0);
        // Of a hundred the slowest ten: not the worst of two medians, nor their mean.
        assert_eq!(whole.roles[0].sample.p50_us.unwrap() / 100, 10);
        assert_eq!(whole.roles[0].sample.p99_us.unwrap() / 10_000, 50);
        // What one of them could not tell belongs to no other second.
        assert!(seconds.add(0, &second(2, 1, 1, 1), 10).unwrap().is_none());
        let whole = seconds.add(1, &second(2, 2, 1, 1), 10).unwrap().unwrap();
        assert_eq!(whole.roles[0].sample.received, 3);
        assert!((whole.roles[0].sample.at_s - 3.0).abs() < 1e-9);
        let received: Vec<_> = seconds
            .of_role(0)
            .0
            .iter()
            .map(|sample| sample.received)
            .collect();
        assert_eq!(received, [15, 20, 3]);
    }

    #[test]
    fn histograms_of_a_host_that_is_far_ahead_do_not_wait_for_the_others() {
        let mut seconds = Seconds::new(2);
        for number in 0..400 {
            let told = seconds.add(0, &second(number, 10, 1, 10), 10_000);
            assert!(told.unwrap().is_none());
            assert!(seconds.waiting() <= OPEN_MAX, "{}", seconds.waiting());
        }
        // What the other one tells too late counts, and changes no quantile.
        let whole = seconds.add(1, &second(3, 5, 900, 10), 10_000).unwrap().unwrap();
        assert_eq!(
            (whole.roles[0].sample.received, whole.roles[0].sample.p50_us),
            (15, Some(1000))
        );
        let whole = seconds.add(1, &second(399, 5, 900, 1000), 10_000).unwrap();
        assert_eq!(whole.unwrap().roles[0].sample.received, 15);
        assert!(seconds.of_role(0).0[399].p50_us.unwrap() > 800_000);
    }

    #[test]
    fn a_second_that_cannot_be_is_named() {
        let mut seconds = Seconds::new(2);
        let mut broken = second(0, 1, 1, 1);
        broken.roles[0].histogram = "AAAA".to_owned();
        assert!(seconds.add(1, &broken, 10).is_err());
        assert!(seconds.add(0, &second(5, 1, 1, 1), 10).is_ok());
        for number in [4, 10, u64::MAX] {
            assert!(seconds.add(0, &second(number, 1, 1, 1), 10).is_err(), "{number}");
        }
        assert_eq!(seconds.known(), 6);
    }

    fn plan() -> Plan {
        let text = "question = \"?\"\nsystems = [\"stafett\"]\n[roles.c]\ndoes = \"consume\"\n[roles.p]\ndoes = \"produce\"\nclients = 2";
        Source::new("x", text).plan(1.0, &BTreeMap::new()).unwrap()
    }

    fn share(stream: u32, came: &[(u32, Range<u64>)]) -> Loaded {
        let mut ledger = Ledger::of_part(1);
        for (stream, sequences) in came {
            ledger.expect(*stream);
            sequences.clone().for_each(|sequence| {
                ledger.enter(*stream, sequence);
            });
        }
        let received = came
            .iter()
            .map(|(_, sequences)| sequences.end - sequences.start)
            .sum();
        let result = |name: &str, does: &str| RoleResult {
            name: name.to_owned(),
            does: does.to_owned(),
            clients: 1,
            counts: Counts::default(),
            totals: Counts {
                sent: 100,
                received,
                ..Counts::default()
            },
            rate: 10.0,
            bytes_rate: 0.0,
            latencies: BTreeMap::new(),
            samples: Vec::new(),
            windows: Vec::new(),
        };
        Loaded {
            drain_s: None,
            unsubscribe_s: None,
            silences: Vec::new(),
            sustainable_rate: None,
            connected: Duration::ZERO,
            warmup_s: 0.0,
            measured_s: 1.0,
            roles: vec![result("c", "consume"), result("p", "produce")],
            books: vec![
                RoleBooks {
                    came: ledger.pieces(0),
                    ..RoleBooks::default()
                },
                RoleBooks {
                    streams: vec![(stream, 100)],
                    given_up: BTreeMap::from([(stream, ledger::encode(&RoaringTreemap::from_iter([99])))]),
                    ..RoleBooks::default()
                },
            ],
            log: Vec::new(),
            client_cores: 1,
            processes: Vec::new(),
            error: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn messages_are_accounted_for_across_hosts() {
        // Of the first stream the messages 60 to 69 came on both hosts, and 98 never did; 99 was given up by
        // who sent it.
        let plan = plan();
        let streams: Vec<u32> = derived_numbers::streams(1, &plan.roles["p"]).collect();
        let (one, other) = (streams[0], streams[1]);
        let shares = [
            share(one, &[(one, 0..70), (other, 50..100)]),
            share(other, &[(one, 60..98), (other, 0..50)]),
        ];
        let merged = roles(&plan, &shares, &mut Seconds::new(2), true).unwrap();
        assert_eq!(merged[0].totals.lost, 1);
        assert_eq!(
            (merged[0].totals.duplicated, merged[0].totals.received),
            (10, 198)
        );
        assert_eq!((merged[1].clients, merged[1].totals.sent), (2, 200));
        assert!((merged[1].rate - 20.0).abs() < 1e-9);
        let undecided = roles(&plan, &shares, &mut Seconds::new(2), false).unwrap();
        assert_eq!(undecided[0].totals.lost, 0, "it was still coming");
    }
}
