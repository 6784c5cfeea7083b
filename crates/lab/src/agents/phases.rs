//! The course of a load on several hosts, without I/O: reports of the hosts, and the next orders to them.
//!
//! ```text
//! Connecting ── all connected ──▶ Running ── all have sent ──▶ Settling ── all came, or silence ──▶ Ending
//!              Begin                 │  Over(role), End                                      Stop
//! ```

use std::time::Duration;

use super::credits::Credits;
use super::protocol::ToAgent;
use crate::experiment::{Does, Plan, Role};
use crate::workload::client_placement::Seating;
use crate::workload::derived_numbers;
use crate::workload::together::{Progress, RoleProgress};

/// Agents may take so much longer than their plan says.
const GRACE: Duration = Duration::from_mins(3);

/// Stage of a load.
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
    /// Roles whose end all hosts have been told, by place.
    over: Vec<bool>,
    /// Credits of roles that wait for receivers, by place.
    credits: Vec<(usize, Credits)>,
    ends_early: bool,
    is_ended: bool,
    /// Start of the stage, since the load was prepared.
    since: Duration,
    /// Messages received, and the time of the last change.
    received: (u64, Duration),
    /// Time that the readers of a backlog took, once everything had come.
    drain: Option<Duration>,
    pub(super) is_drained: bool,
}

impl<'a> Course<'a> {
    /// `ends_early`: when all that was to be sent has come, even if there is time left.
    pub(super) fn new(plan: &'a Plan, seating: &Seating, hosts: usize, ends_early: bool) -> Self {
        let credits = |(place, role): (usize, &Role)| {
            let ahead = role
                .ahead
                .filter(|_| derived_numbers::readers(plan, role).next().is_some())?;
            let open = (0..hosts).map(|host| seating.clients_on(host, place, role.clients) > 0);
            Some((place, Credits::new(ahead, open.collect())))
        };
        Self {
            plan,
            credits: plan.roles.values().enumerate().filter_map(credits).collect(),
            stage: Stage::Connecting,
            hosts: vec![Progress::default(); hosts],
            over: vec![false; plan.roles.len()],
            ends_early,
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

    /// Returns orders to all hosts at `now`.
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
        if self.stage == Stage::Running {
            self.hand_out();
        }
        if self.stage == Stage::Running && self.hosts.iter().all(|host| host.is_sent) {
            self.enter(Stage::Settling, now);
            self.received.1 = now;
        }
        let may_end = self.stage == Stage::Running && self.ends_early && !self.is_ended;
        if may_end && self.has_sent_all() && self.has_all() {
            orders.push(ToAgent::End);
            self.is_ended = true;
        }
        if self.stage == Stage::Settling {
            let settle = self.plan.run.settle.0;
            let is_quiet = now.saturating_sub(self.received.1) >= settle;
            let is_endless = now.saturating_sub(self.since) >= settle.saturating_mul(6);
            let has_each = self.has_each();
            if has_each || is_quiet || is_endless {
                self.is_drained = has_each || is_quiet;
                orders.push(ToAgent::Stop);
                self.enter(Stage::Ending, now);
            }
        }
        orders
    }

    /// Returns true if the hosts take far longer than their plan.
    pub(super) fn is_stuck(&self, now: Duration) -> bool {
        self.stage != Stage::Connecting && now.saturating_sub(self.since) > self.longest()
    }

    /// Returns the time that a load may take.
    pub(super) fn longest(&self) -> Duration {
        let run = &self.plan.run;
        run.warmup.0 + run.duration.0 + run.settle.0.saturating_mul(6) + GRACE
    }

    /// From the start of the readers of a backlog until all of it was there.
    pub(super) fn drain(&self) -> Option<Duration> {
        self.drain
    }

    /// By role, returns how many messages the clients of each host may have made, if they wait for receivers.
    pub(super) fn allowances(&self) -> impl Iterator<Item = (&'a str, &[u64])> {
        let plan = self.plan;
        let name = move |place: usize| plan.roles.keys().nth(place).map_or("", String::as_str);
        let credits = self.credits.iter();
        credits.map(move |(place, credits)| (name(*place), credits.allowed()))
    }

    /// Returns true if all clients of the role are at work, on every host that has some.
    pub(super) fn is_at_work(&self, place: usize, seating: &Seating) -> bool {
        let clients = self.plan.roles.values().nth(place).map_or(0, |role| role.clients);
        let mut hosts = self.of_role(place).enumerate();
        self.stage == Stage::Running
            && hosts.all(|(host, role)| !role.has_ended || seating.clients_on(host, place, clients) == 0)
    }

    fn hand_out(&mut self) {
        let mut credits = std::mem::take(&mut self.credits);
        for (place, of_role) in &mut credits {
            let received = self.plan.roles.values().nth(*place).and_then(|role| {
                let readers = derived_numbers::readers(self.plan, role);
                let received = readers.map(|(reader, role)| {
                    self.received(reader) / derived_numbers::deliveries(self.plan, role).max(1)
                });
                received.min()
            });
            let hosts: Vec<RoleProgress> = self.of_role(*place).collect();
            of_role.hand_out(received.unwrap_or(0), &hosts);
        }
        self.credits = credits;
    }

    fn received(&self, place: usize) -> u64 {
        self.of_role(place).map(|role| role.received).sum()
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

    /// Returns true if every audience has as many messages as there are.
    fn has_all(&self) -> bool {
        self.consumers()
            .all(|(place, role)| self.received(place) >= self.due(role))
    }

    /// Returns true if every audience has exactly the messages that there are. If some came twice, others may
    /// be missing.
    fn has_each(&self) -> bool {
        self.consumers().all(|(place, role)| {
            let is_awaited = derived_numbers::producers(self.plan, role).next().is_some();
            !is_awaited || self.received(place) == self.due(role) && !self.may_repeat(role)
        })
    }

    fn consumers(&self) -> impl Iterator<Item = (usize, &'a Role)> {
        let roles = self.plan.roles.values().enumerate();
        roles.filter(|(_, role)| role.does == Does::Consume)
    }

    /// Returns how many messages are due to a role.
    fn due(&self, consumer: &'a Role) -> u64 {
        let producers = derived_numbers::producers(self.plan, consumer);
        let made: u64 = producers
            .flat_map(|(place, _)| self.of_role(place))
            .map(|producer| producer.made)
            .sum();
        made.saturating_mul(derived_numbers::deliveries(self.plan, consumer))
    }

    /// Returns true if some of a role's messages are sent twice without a filter.
    fn may_repeat(&self, consumer: &'a Role) -> bool {
        let topics = derived_numbers::set(self.plan, consumer).and_then(|set| self.plan.topics.get(set));
        let is_filtered = topics.is_some_and(|topics| topics.filter.is_some());
        let is_alone =
            |role: &Role| role.duplicates <= 0.0 && (role.copies == 1 || consumer.follows.is_some());
        !is_filtered && !derived_numbers::producers(self.plan, consumer).all(|(_, role)| is_alone(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    fn plan(roles: &str) -> Plan {
        let text = format!(
            "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nwarmup = \"0s\"\nsettle = \"10s\"\n[roles.p]\ndoes = \"produce\"\n\
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
        let mut course = Course::new(plan, &Seating::default(), 2, true);
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
    fn a_load_that_is_to_last_lasts_whatever_came() {
        let plan = plan("");
        let mut course = Course::new(&plan, &Seating::default(), 1, false);
        course.on_progress(0, told(false, 0, 0, false));
        assert_eq!(course.orders(second(1)), [ToAgent::Begin]);
        course.on_progress(0, told(false, 5, 5, true));
        assert_eq!(course.orders(second(2)), [ToAgent::Over("p".to_owned())]);
        assert_eq!(course.orders(second(3)), []);
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

    #[test]
    fn what_came_twice_does_not_stand_for_what_did_not_come() {
        let repeating = "[roles.q]\ndoes = \"produce\"\ntotal = 1\nduplicates = 0.5";
        for (roles, received, is_certain) in [
            ("", [5, 5], true),
            ("", [5, 6], false),
            (repeating, [5, 5], false),
        ] {
            let plan = plan(roles);
            let mut course = begun(&plan);
            for (host, received) in received.into_iter().enumerate() {
                course.on_progress(host, told(true, received, 5, true));
            }
            let orders = course.orders(second(20));
            assert_eq!(orders.contains(&ToAgent::Stop), is_certain, "{received:?}");
            assert!(
                course.orders(second(30)).contains(&ToAgent::Stop) || is_certain,
                "it is quiet"
            );
            assert!(course.is_drained);
        }
    }

    #[test]
    fn who_waits_for_who_receives_may_send_what_came_back() {
        let plan = plan("[roles.q]\ndoes = \"produce\"\nahead = 10");
        let mut course = begun(&plan);
        assert_eq!(course.allowances().collect::<Vec<_>>(), [("q", &[5, 5][..])]);
        let of_q = |made| RoleProgress {
            made,
            ..RoleProgress::default()
        };
        for (host, made) in [(0, 5), (1, 2)] {
            let mut told = told(false, 3, 0, true);
            told.roles.push(of_q(made));
            course.on_progress(host, told);
        }
        let _ = course.orders(second(3));
        // Six arrived, so sixteen may be in flight: the host that has used up its allowance gets more.
        assert_eq!(course.allowances().collect::<Vec<_>>(), [("q", &[9, 7][..])]);
    }
}
