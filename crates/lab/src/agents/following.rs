//! A load on several hosts, without I/O: their reports, and the orders that follow from them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::merge::{self, RoleRow, Row, Seconds};
use super::phases::Course;
use super::protocol::ToAgent;
use crate::experiment::{Plan, Role};
use crate::results::{RateSample, RoleResult};
use crate::workload::adaptive::Steering;
use crate::workload::client_placement::Seating;
use crate::workload::load::{Loaded, Second};
use crate::workload::together::{HostSecond, Progress};

/// State of a load, as far as its hosts have reported it.
#[derive(Debug)]
pub(super) struct Following<'a> {
    plan: &'a Plan,
    seating: Seating,
    pub(super) course: Course<'a>,
    seconds: Seconds,
    /// Searches for the rates of roles, by the place of the role.
    steered: Vec<(usize, Steering)>,
    /// Rates that were found and are not passed on yet.
    rates: Vec<ToAgent>,
    shares: BTreeMap<usize, Loaded>,
    hosts: usize,
}

/// News in a second of a host.
#[derive(Debug, PartialEq)]
pub(super) struct News {
    /// It is the first one to tell of it: the moment, and how long it was.
    pub(super) first: Option<(f64, f64)>,
    /// All hosts together, if it is the last report of that second.
    pub(super) whole: Option<Second>,
}

/// Results of a load.
#[derive(Debug)]
pub(super) struct Together {
    /// In the order of the agents.
    pub(super) shares: Vec<Loaded>,
    pub(super) roles: Vec<RoleResult>,
    pub(super) drain: Option<Duration>,
    pub(super) is_drained: bool,
    pub(super) sustainable_rate: Option<f64>,
}

impl<'a> Following<'a> {
    pub(super) fn new(plan: &'a Plan, seating: &Seating, hosts: usize, ends_early: bool) -> Self {
        let steering = |(place, role): (usize, &Role)| Some((place, Steering::new(role.rate.adaptive()?)));
        let roles = plan.roles.values().enumerate();
        Self {
            plan,
            seating: seating.clone(),
            course: Course::new(plan, seating, hosts, ends_early),
            seconds: Seconds::new(hosts),
            steered: roles.filter_map(steering).collect(),
            rates: Vec::new(),
            shares: BTreeMap::new(),
            hosts,
        }
    }

    /// A host told how far it is.
    pub(super) fn on_progress(&mut self, host: usize, progress: Progress) {
        self.course.on_progress(host, progress);
    }

    /// A host told a second of its load.
    pub(super) fn on_second(&mut self, host: usize, second: &HostSecond) -> Result<News, String> {
        self.check_roles("a second", second.roles.len())?;
        let known = self.seconds.known();
        let most = usize::try_from(self.course.longest().as_secs()).unwrap_or(usize::MAX);
        let whole = self.seconds.add(host, second, most)?;
        let told = whole.map(|row| summary(self.plan, row));
        if let Some(row) = whole {
            let at_work = |place: usize| self.course.is_at_work(place, &self.seating);
            steer(self.plan, row, &mut self.steered, &mut self.rates, at_work)?;
        }
        let first = second.roles.first().filter(|_| self.seconds.known() > known);
        Ok(News {
            first: first.map(|role| (role.sample.at_s, role.sample.seconds)),
            whole: told,
        })
    }

    /// Takes the results of a host: its last report.
    pub(super) fn on_share(&mut self, host: usize, share: Loaded) -> Result<(), String> {
        self.check_roles("results", share.roles.len())?;
        self.check_roles("books", share.books.len())?;
        self.shares.insert(host, share);
        Ok(())
    }

    fn check_roles(&self, what: &str, told: usize) -> Result<(), String> {
        let roles = self.plan.roles.len();
        let wrong = || format!("{what} of {told} roles where there are {roles}");
        (told == roles).then_some(()).ok_or_else(wrong)
    }

    /// Returns orders to all hosts at `now`, since the load was prepared.
    pub(super) fn orders(&mut self, now: Duration) -> Vec<ToAgent> {
        let mut orders = self.course.orders(now);
        orders.append(&mut self.rates);
        orders
    }

    /// Returns true if all hosts have handed over their results.
    pub(super) fn is_over(&self) -> bool {
        self.shares.len() >= self.hosts
    }

    /// One result out of those of all hosts.
    pub(super) fn finish(mut self) -> Result<Together, String> {
        let shares: Vec<Loaded> = self.shares.into_values().collect();
        let (drain, is_drained) = (self.course.drain(), self.course.is_drained);
        let roles = merge::roles(self.plan, &shares, &mut self.seconds, is_drained)?;
        Ok(Together {
            shares,
            roles,
            drain,
            is_drained,
            sustainable_rate: self
                .steered
                .iter()
                .find_map(|(_, steering)| steering.sustainable()),
        })
    }
}

/// A second of all hosts is known: the rates that it leads to.
fn steer(
    plan: &Plan,
    row: &Row,
    steered: &mut [(usize, Steering)],
    rates: &mut Vec<ToAgent>,
    at_work: impl Fn(usize) -> bool,
) -> Result<(), String> {
    for (place, steering) in steered {
        let told = row.roles.get(*place);
        let (Some(RoleRow { sample, changes, .. }), Some(name)) = (told, plan.roles.keys().nth(*place))
        else {
            continue;
        };
        let known = steering.changes();
        if *changes > known {
            return Err(format!("{changes} changes of the rate of `{name}`, of {known}"));
        }
        if !at_work(*place) {
            continue;
        }
        if let Some(rate) = steering.look(sample, *changes) {
            rates.push(ToAgent::Rate {
                role: name.clone(),
                rate,
            });
        }
    }
    Ok(())
}

/// Sums up a second of all hosts.
fn summary(plan: &Plan, row: &Row) -> Second {
    let samples = || row.roles.iter().map(|role| &role.sample);
    let per_second = |count: fn(&RateSample) -> u64| -> f64 {
        samples()
            .map(|sample| count(sample) as f64 / sample.seconds.max(1e-9))
            .sum()
    };
    let acknowledged = per_second(|sample| sample.acknowledged);
    let received = per_second(|sample| sample.received);
    let mut second = Second {
        at_s: samples().map(|sample| sample.at_s).fold(0.0, f64::max),
        of_s: (plan.run.warmup.0 + plan.run.duration.0).as_secs_f64(),
        rate: if acknowledged > 0.0 {
            acknowledged
        } else {
            received
        },
        received_rate: received,
        ..Second::default()
    };
    samples().for_each(|sample| second.take(sample));
    second
}
