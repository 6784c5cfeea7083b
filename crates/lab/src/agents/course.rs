//! The course of a load on several hosts, without I/O: what they told, and what they are to be told next.
//!
//! ```text
//! Connecting ── all connected ──▶ Running ── all have sent ──▶ Settling ── all came, or nothing comes ──▶ Ending
//!              Begin                 │  Over(role), End                                      Stop
//! ```

use std::time::Duration;

use super::protocol::ToAgent;
use crate::experiment::{Does, Plan, Role};
use crate::workload::together::{Progress, RoleProgress};

/// Agents may take so much longer than their plan says.
const GRACE: Duration = Duration::from_mins(3);

/// Where a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Running,
    Settling,
    Ending,
}

/// The course of one load.
#[derive(Debug)]
pub(super) struct Course<'a> {
    plan: &'a Plan,
    stage: Stage,
    hosts: Vec<Progress>,
    /// Which roles everybody was told to be over.
    over: Vec<bool>,
    is_ended: bool,
    /// When the stage began; times are since the load was prepared.
    since: Duration,
    /// What has come, and when it changed last.
    received: (u64, Duration),
    /// How long the readers of a backlog took, once everything had come.
    drain: Option<Duration>,
    pub(super) is_drained: bool,
}

impl<'a> Course<'a> {
    pub(super) fn new(plan: &'a Plan, hosts: usize) -> Self {
        Self {
            plan,
            stage: Stage::Connecting,
            hosts: vec![Progress::default(); hosts],
            over: vec![false; plan.roles.len()],
            is_ended: false,
            since: Duration::ZERO,
            received: (0, Duration::ZERO),
            drain: None,
            is_drained: true,
        }
    }

    /// A host told how far it is.
    pub(super) fn on_progress(&mut self, host: usize, progress: Progress) {
        if let Some(known) = self.hosts.get_mut(host) {
            *known = progress;
        }
    }

    /// What all hosts are to be told at `now`.
    pub(super) fn orders(&mut self, now: Duration) -> Vec<ToAgent> {
        let mut orders = Vec::new();
        if self.stage == Stage::Connecting && self.hosts.iter().all(|host| host.connected.is_some()) {
            orders.push(ToAgent::Begin);
            self.enter(Stage::Running, now);
        }
        if matches!(self.stage, Stage::Running | Stage::Settling) {
            self.watch(now);
            self.end_roles(&mut orders);
        }
        if self.stage == Stage::Running && self.hosts.iter().all(|host| host.is_sent) {
            self.enter(Stage::Settling, now);
            self.received.1 = now;
        }
        if self.stage == Stage::Running && !self.is_ended && self.has_sent_all() && self.has_all() {
            orders.push(ToAgent::End);
            self.is_ended = true;
        }
        if self.stage == Stage::Settling {
            let settle = self.plan.run.settle.0;
            let is_quiet = now.saturating_sub(self.received.1) >= settle;
            let is_endless = now.saturating_sub(self.since) >= settle * 6;
            if self.has_all() || is_quiet || is_endless {
                self.is_drained = self.has_all() || is_quiet;
                orders.push(ToAgent::Stop);
                self.enter(Stage::Ending, now);
            }
        }
        orders
    }

    /// Whether the hosts take so long that something is wrong with them.
    pub(super) fn is_stuck(&self, now: Duration) -> bool {
        let run = &self.plan.run;
        let meant = run.warmup.0 + run.duration.0 + run.settle.0.saturating_mul(6);
        self.stage != Stage::Connecting && now.saturating_sub(self.since) > meant + GRACE
    }

    /// From the start of the readers of a backlog until all of it was there.
    pub(super) fn drain(&self) -> Option<Duration> {
        self.drain
    }

    fn enter(&mut self, stage: Stage, now: Duration) {
        self.stage = stage;
        self.since = now;
    }

    fn watch(&mut self, now: Duration) {
        let received: u64 = self
            .hosts
            .iter()
            .flat_map(|host| &host.roles)
            .map(|role| role.received)
            .sum();
        if received != self.received.0 {
            self.received = (received, now);
        }
        let mut readers = self.plan.roles.values().enumerate();
        let reader = readers.find(|(_, role)| role.does == Does::Consume && role.after.is_some());
        if let Some((place, _)) = reader
            && self.drain.is_none()
            && self.has_sent_all()
            && self.has_all()
        {
            // Each host by its own clock: they began together.
            self.drain = self.of_role(place).filter_map(|role| role.spent).max();
        }
    }

    fn end_roles(&mut self, orders: &mut Vec<ToAgent>) {
        for (place, name) in self.plan.roles.keys().enumerate() {
            let has_ended = self.has_ended(place);
            if let Some(over) = self.over.get_mut(place).filter(|over| !**over && has_ended) {
                *over = true;
                orders.push(ToAgent::Over(name.clone()));
            }
        }
    }

    fn of_role(&self, place: usize) -> impl Iterator<Item = RoleProgress> + '_ {
        self.hosts
            .iter()
            .map(move |host| host.roles.get(place).copied().unwrap_or_default())
    }

    fn has_ended(&self, place: usize) -> bool {
        self.of_role(place).all(|role| role.has_ended)
    }

    fn has_sent_all(&self) -> bool {
        let mut senders = self
            .plan
            .roles
            .values()
            .enumerate()
            .filter(|(_, role)| role.does.sends_first())
            .peekable();
        senders.peek().is_some() && senders.all(|(place, _)| self.has_ended(place))
    }

    /// Whether every audience has as many messages as there are.
    fn has_all(&self) -> bool {
        let mut consumers = self
            .plan
            .roles
            .values()
            .enumerate()
            .filter(|(_, role)| role.does == Does::Consume);
        consumers.all(|(place, role)| {
            let producers = self
                .plan
                .roles
                .values()
                .enumerate()
                .filter(|(_, other)| other.does == Does::Produce && self.set(other) == self.set(role));
            let made: u64 = producers
                .flat_map(|(producer, _)| self.of_role(producer))
                .map(|producer| producer.made)
                .sum();
            let received: u64 = self.of_role(place).map(|consumer| consumer.received).sum();
            let audiences = if role.fan_out { u64::from(role.clients) } else { 1 };
            received >= made * audiences
        })
    }

    fn set<'b>(&'b self, role: &'b Role) -> Option<&'b String> {
        role.topics.as_ref().or_else(|| self.plan.topics.keys().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    fn plan(roles: &str) -> Plan {
        let text = format!(
            "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nsettle = \"10s\"\n[roles.p]\ndoes = \"produce\"\n\
             total = 10\n[roles.c]\ndoes = \"consume\"\n{roles}"
        );
        let place = "x".to_owned();
        Source { place, text }
            .plan(1.0, &std::collections::BTreeMap::new())
            .unwrap()
    }

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Received of `c`; made of `p`, and whether it has ended.
    fn told(is_sent: bool, received: u64, made: u64, has_ended: bool) -> Progress {
        let consumer = RoleProgress {
            received,
            spent: (received > 0).then(|| second(received)),
            ..RoleProgress::default()
        };
        let producer = RoleProgress {
            made,
            spent: Some(second(0)),
            has_ended,
            ..RoleProgress::default()
        };
        Progress {
            connected: Some(second(1)),
            is_sent,
            roles: vec![consumer, producer],
        }
    }

    fn begun(plan: &Plan) -> Course<'_> {
        let mut course = Course::new(plan, 2);
        course.on_progress(0, told(false, 0, 0, false));
        assert_eq!(course.orders(second(1)), [], "the other one is not connected");
        course.on_progress(1, told(false, 0, 0, false));
        assert_eq!(course.orders(second(2)), [ToAgent::Begin]);
        assert_eq!(course.orders(second(3)), []);
        course
    }

    #[test]
    fn a_load_ends_early_once_everything_came_everywhere() {
        let plan = plan("after = \"p\"");
        let mut course = begun(&plan);
        course.on_progress(0, told(false, 0, 5, true));
        assert_eq!(course.orders(second(4)), []);
        course.on_progress(1, told(false, 0, 5, true));
        assert_eq!(course.orders(second(5)), [ToAgent::Over("p".to_owned())]);
        course.on_progress(0, told(false, 7, 5, true));
        assert_eq!(course.orders(second(6)), []);
        course.on_progress(1, told(false, 3, 5, true));
        assert_eq!(course.orders(second(8)), [ToAgent::End]);
        assert_eq!(course.drain(), Some(second(7)), "as long as the slower one took");
        course.on_progress(0, told(true, 7, 5, true));
        course.on_progress(1, told(true, 3, 5, true));
        assert_eq!(course.orders(second(9)), [ToAgent::Stop]);
        assert!(course.is_drained);
        assert_eq!(course.orders(second(10)), []);
    }

    #[test]
    fn what_does_not_come_is_waited_for_as_long_as_something_comes() {
        let plan = plan("");
        let mut course = begun(&plan);
        for host in [0, 1] {
            course.on_progress(host, told(true, 3, 5, true));
        }
        let _ = course.orders(second(20));
        assert_eq!(course.orders(second(29)), []);
        course.on_progress(0, told(true, 4, 5, true));
        assert_eq!(course.orders(second(30)), []);
        assert_eq!(course.orders(second(39)), []);
        assert_eq!(course.orders(second(40)), [ToAgent::Stop]);
        assert!(course.is_drained, "it is quiet: what is missing is lost");
        let mut endless = begun(&plan);
        for at in 10..=70 {
            endless.on_progress(0, told(true, at, 1000, true));
            endless.on_progress(1, told(true, at, 1000, true));
            let orders = endless.orders(second(at));
            assert_eq!(orders.contains(&ToAgent::Stop), at == 70, "{at}");
        }
        assert!(!endless.is_drained);
        assert!(!endless.is_stuck(second(71)));
        assert!(endless.is_stuck(second(1000)));
    }
}
