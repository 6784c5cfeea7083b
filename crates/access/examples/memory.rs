//! Memory of 100,000 users with 10 rules each, and the time of a decision: `cargo run --release -p
//! stafett-access --example memory`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use stafett_access::{
    Action, Actions, Caller, Change, Directory, Effect, Form, Kind, Resource, Rule, ScramVerifier, Subject,
    User, Verifiers,
};

const USERS: u32 = 100_000;
const RULES: u32 = 10;
const CHECKS: u32 = 1_000_000;

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn main() {
    let before = resident_mb();
    let directory = Arc::new(Directory::default());
    let verifier = |hash| {
        Some(ScramVerifier::of_password(
            hash,
            b"secret",
            b"a salt of 16 byt",
            4096,
        ))
    };
    let verifiers = Verifiers {
        sha256: verifier(stafett_access::Hash::Sha256),
        sha512: verifier(stafett_access::Hash::Sha512),
        salted: None,
    };
    for number in 0..USERS {
        let name = format!("user-{number}");
        let user = User::new(&name, verifiers.clone(), &["clerks"]).unwrap();
        let rules = (0..RULES).map(|rule| {
            Change::SetRule(Rule {
                subject: Subject::User(name.as_str().into()),
                effect: Effect::Allow,
                kinds: Kind::Topic.into(),
                namespace: None,
                form: if rule % 2 == 0 {
                    Form::Literal
                } else {
                    Form::Prefix
                },
                name: format!("department-{number}-orders-{rule}").into(),
                host: None,
                actions: Actions::of(&[Action::Read, Action::Write]),
            })
        });
        directory.apply(std::iter::once(Change::PutUser(user)).chain(rules));
    }
    println!(
        "{USERS} users, {} rules: {} MB",
        USERS * RULES,
        resident_mb() - before
    );
    let caller = Caller::user(&directory, "user-7", Ipv4Addr::LOCALHOST.into());
    for (noun, is_changed) in [("remembered", false), ("made anew", true)] {
        let begun = Instant::now();
        let count = if is_changed { CHECKS / 100 } else { CHECKS };
        for _ in 0..count {
            if is_changed {
                directory.apply([]);
            }
            assert!(caller.may(Action::Read, &Resource::topic("department-7-orders-3-eu")));
        }
        println!(
            "a decision {noun}: {} ns",
            begun.elapsed().as_nanos() / u128::from(count)
        );
    }
}
