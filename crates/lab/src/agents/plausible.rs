//! What an agent may say: figures that a host can have measured, of the load that it was given. What cannot
//! be is named, and is that point's result; everything behind this adds, multiplies and takes memory without
//! asking again.

use super::protocol::Share;
use crate::experiment::{Plan, Role};
use crate::results::{Counts, RateSample};
use crate::workload::client_placement::Seating;
use crate::workload::derived_numbers;
use crate::workload::ledger::AudienceArrivals;
use crate::workload::together::{HostSecond, Progress, RoleBooks};

/// No host counts so far; as many hosts as there can be do not overflow a sum of it.
const COUNT_MAX: u64 = 1 << 53;
/// Seconds that a load may take: longer than any.
const SECONDS_MAX: f64 = 1e8;
/// Rates are of messages or bytes.
const RATE_MAX: f64 = 1e15;
/// Processes that a host tells of: its own.
const PROCESSES_MAX: usize = 16;

type Checked = Result<(), String>;

fn unless(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn count(what: &str, count: u64) -> Checked {
    unless(count <= COUNT_MAX, || format!("{count} {what}"))
}

fn within(what: &str, figure: f64, max: f64) -> Checked {
    unless((0.0..=max).contains(&figure), || format!("{what} of {figure}"))
}

fn all(what: &str, told: usize, plan: &Plan) -> Checked {
    let roles = plan.roles.len();
    unless(told == roles, || {
        format!("{what} of {told} roles where there are {roles}")
    })
}

/// How far a host is; before its load begins it says nothing of roles.
pub(super) fn progress(plan: &Plan, progress: &Progress) -> Checked {
    if !progress.roles.is_empty() {
        all("progress", progress.roles.len(), plan)?;
    }
    for role in &progress.roles {
        count("messages made", role.made)?;
        count("messages received", role.received)?;
    }
    Ok(())
}

/// One second of a host.
pub(super) fn second(plan: &Plan, second: &HostSecond) -> Checked {
    all("a second", second.roles.len(), plan)?;
    for (told, role) in second.roles.iter().zip(plan.roles.values()) {
        sample(&told.sample, role)?;
        came(&told.came)?;
    }
    Ok(())
}

fn sample(sample: &RateSample, role: &Role) -> Checked {
    within("a second at", sample.at_s, SECONDS_MAX)?;
    within("a second's length", sample.seconds, SECONDS_MAX)?;
    clients(sample.clients, role)?;
    for messages in [
        sample.sent,
        sample.acknowledged,
        sample.received,
        sample.failed,
        sample.timed_out,
        sample.reconnects,
    ] {
        count("messages in a second", messages)?;
    }
    Ok(())
}

fn clients(clients: u32, role: &Role) -> Checked {
    unless(clients <= role.clients, || {
        format!("{clients} clients of a role that has {}", role.clients)
    })
}

/// What came of a host's share. `seating` is that of the host.
pub(super) fn share(plan: &Plan, seating: &Seating, share: &Share) -> Checked {
    all("results", share.roles.len(), plan)?;
    all("books", share.books.len(), plan)?;
    within("a warm-up", share.warmup_s, SECONDS_MAX)?;
    within("a time that counts", share.measured_s, SECONDS_MAX)?;
    for (told, (name, role)) in share.roles.iter().zip(&plan.roles) {
        unless(told.name == *name, || {
            format!("results of `{}` for those of `{name}`", told.name)
        })?;
        clients(told.clients, role)?;
        within("a rate", told.rate, RATE_MAX)?;
        within("a rate of bytes", told.bytes_rate, RATE_MAX)?;
        counts(&told.counts)?;
        counts(&told.totals)?;
    }
    for (place, told) in share.books.iter().enumerate() {
        books(place, told, plan, seating)?;
    }
    unless(share.processes.len() <= PROCESSES_MAX, || {
        format!("{} processes of its own", share.processes.len())
    })?;
    for sample in share.processes.iter().flat_map(|process| &process.samples) {
        for bytes in [
            sample.memory_bytes,
            sample.disk_read_bytes,
            sample.disk_written_bytes,
            sample.network_received_bytes,
            sample.network_sent_bytes,
        ] {
            count("bytes of a process", bytes)?;
        }
        within("CPU time", sample.cpu_user_s, SECONDS_MAX)?;
        within("CPU time", sample.cpu_system_s, SECONDS_MAX)?;
    }
    Ok(())
}

fn counts(counts: &Counts) -> Checked {
    for messages in [
        counts.sent,
        counts.acknowledged,
        counts.failed,
        counts.received,
        counts.duplicated,
        counts.lost,
        counts.timed_out,
        counts.reconnects,
    ] {
        count("messages", messages)?;
    }
    count("bytes sent", counts.bytes_sent)?;
    count("bytes received", counts.bytes_received)
}

fn books(place: usize, books: &RoleBooks, plan: &Plan, seating: &Seating) -> Checked {
    let role = plan.roles.values().nth(place);
    let own: Vec<u32> = role.map_or_else(Vec::new, |role| derived_numbers::streams(place, role).collect());
    for (stream, messages) in &books.streams {
        let is_own = own.binary_search(stream).is_ok() && seating.has_stream(*stream);
        unless(is_own, || {
            format!("messages of stream {stream}, which is not its own")
        })?;
        count("messages of a stream", *messages)?;
    }
    for run in books.given_up.iter().flat_map(|(_, runs)| runs) {
        unless(run.start < run.end && run.end <= COUNT_MAX, || {
            format!("messages {} to {} given up", run.start, run.end)
        })?;
    }
    if let Some((first, last)) = books.active {
        unless(first <= last && last <= COUNT_MAX, || {
            format!("a role at work from {first} to {last} ns")
        })?;
    }
    came(&books.came)
}

fn came(told: &AudienceArrivals) -> Checked {
    let mut pieces = told.pieces.iter();
    unless(pieces.all(|(_, piece)| piece.is_plausible()), || {
        "messages that nobody can have sent".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;
    use crate::results::RoleResult;
    use crate::workload::together::{RoleProgress, RoleSecond};

    fn plan() -> Plan {
        let source = Source {
            place: "x".to_owned(),
            text: "question = \"?\"\nsystems = [\"stafett\"]\n[roles.p]\ndoes = \"produce\"\nclients = 2"
                .to_owned(),
        };
        source.plan(1.0, &std::collections::BTreeMap::new()).unwrap()
    }

    fn of_role() -> RoleResult {
        RoleResult {
            name: "p".to_owned(),
            does: "produce".to_owned(),
            clients: 1,
            counts: Counts::default(),
            totals: Counts::default(),
            rate: 1.0,
            bytes_rate: 1.0,
            latencies: std::collections::BTreeMap::new(),
            samples: Vec::new(),
        }
    }

    fn told() -> Share {
        Share {
            connected: std::time::Duration::ZERO,
            warmup_s: 0.0,
            measured_s: 1.0,
            roles: vec![of_role()],
            books: vec![RoleBooks::default()],
            processes: Vec::new(),
            drain_s: None,
            sustainable_rate: None,
            error: None,
            remarks: Vec::new(),
        }
    }

    fn refused(change: impl FnOnce(&mut Share), says: &str) {
        let mut nonsense = told();
        change(&mut nonsense);
        let wrong = share(&plan(), &Seating::default(), &nonsense).unwrap_err();
        assert!(wrong.contains(says), "{wrong}");
    }

    #[test]
    fn a_share_that_can_be_is_taken_and_nonsense_is_named() {
        assert_eq!(share(&plan(), &Seating::default(), &told()), Ok(()));
        refused(|share| share.roles.clear(), "results of 0 roles");
        refused(|share| share.books.clear(), "books of 0 roles");
        refused(|share| share.measured_s = f64::INFINITY, "inf");
        refused(|share| share.measured_s = -1.0, "-1");
        refused(|share| share.roles[0].name = "q".to_owned(), "results of `q`");
        refused(
            |share| share.roles[0].clients = 3,
            "3 clients of a role that has 2",
        );
        refused(|share| share.roles[0].rate = f64::NAN, "NaN");
        refused(
            |share| share.roles[0].totals.sent = u64::MAX,
            "18446744073709551615 messages",
        );
        refused(
            |share| share.books[0].streams = vec![(7, 1)],
            "stream 7, which is not its own",
        );
        refused(
            |share| share.books[0].given_up = vec![(7, vec![0..5, 9..u64::MAX])],
            "messages 9 to",
        );
        refused(|share| share.books[0].active = Some((5, 4)), "from 5 to 4");
        let first = derived_numbers::streams(0, &plan().roles["p"]).next().unwrap();
        refused(
            |share| share.books[0].streams = vec![(first, 1 << 60)],
            "of a stream",
        );
    }

    #[test]
    fn seconds_and_progress_are_of_the_load_that_was_given() {
        let of_second = |change: fn(&mut RateSample)| {
            let mut sample = RateSample::default();
            change(&mut sample);
            let roles = vec![RoleSecond {
                sample,
                histogram: String::new(),
                changes: 0,
                came: AudienceArrivals::default(),
            }];
            second(&plan(), &HostSecond { number: 0, roles })
        };
        assert_eq!(of_second(|_| ()), Ok(()));
        for nonsense in [
            (|sample| sample.seconds = -1.0) as fn(&mut RateSample),
            |sample| sample.at_s = 1e300,
            |sample| sample.acknowledged = u64::MAX,
            |sample| sample.clients = 9,
        ] {
            assert!(of_second(nonsense).is_err());
        }
        let of_role = RoleProgress {
            made: 1 << 54,
            ..RoleProgress::default()
        };
        for (roles, is_taken) in [
            (vec![], true),
            (vec![RoleProgress::default()], true),
            (vec![RoleProgress::default(); 2], false),
            (vec![of_role], false),
        ] {
            let told = Progress {
                roles,
                ..Progress::default()
            };
            assert_eq!(progress(&plan(), &told).is_ok(), is_taken);
        }
    }
}
