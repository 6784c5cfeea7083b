//! Metrics of live topics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub struct LiveMetrics {
    pub(crate) published: Counter,
    pub(crate) unheard: Counter,
    pub(crate) delivered: Counter,
    pub(crate) dropped: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) duplicates_forgotten: Counter,
    pub(crate) taken_over: Counter,
    pub(crate) filtered: Counter,
    pub(crate) withheld: Counter,
    pub(crate) filter_errors: Counter,
    pub(crate) caught_up_bytes: Counter,
    pub(crate) missed: Counter,
    pub(crate) listening: Gauge,
    pub(crate) topics: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) patterns: Gauge,
    pub(crate) refused_lists: Counter,
    pub(crate) rewrites: Counter,
}

impl LiveMetrics {
    /// Returns the bytes of logs read for clients that catch up.
    pub fn caught_up_bytes(&self) -> u64 {
        self.caught_up_bytes.get()
    }

    /// Returns the messages published, delivered, dropped and filtered as duplicates.
    pub fn messages(&self) -> [u64; 4] {
        [&self.published, &self.delivered, &self.dropped, &self.duplicates].map(Counter::get)
    }

    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("live");
        let counters: [(&str, &str, &Counter); 13] = [
            ("published", "Messages published", &self.published),
            (
                "unheard",
                "Messages that nobody who listens subscribes to",
                &self.unheard,
            ),
            (
                "delivered",
                "Messages put into outboxes, one per receiver",
                &self.delivered,
            ),
            (
                "dropped",
                "Messages dropped because a receiver was too slow",
                &self.dropped,
            ),
            ("duplicates", "Messages filtered as duplicates", &self.duplicates),
            (
                "duplicates_forgotten",
                "What the duplicate filter forgot before its window was over, for want of room",
                &self.duplicates_forgotten,
            ),
            (
                "filtered",
                "Messages that a receiver's filter left out, one per receiver",
                &self.filtered,
            ),
            (
                "withheld",
                "Messages that a receiver has no right to read, one per receiver",
                &self.withheld,
            ),
            (
                "filter_errors",
                "Evaluations of a filter that was neither true nor false",
                &self.filter_errors,
            ),
            (
                "taken_over",
                "Clients that began to listen elsewhere",
                &self.taken_over,
            ),
            (
                "caught_up_bytes",
                "Bytes of logs read for clients that catch up",
                &self.caught_up_bytes,
            ),
            (
                "missed",
                "Stretches of logs that a client was told it does not get",
                &self.missed,
            ),
            (
                "rewrites",
                "Times that a client's stored subscriptions were written anew",
                &self.rewrites,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Changes refused because the client has too many subscriptions";
        registry.register("refused_lists", help, self.refused_lists.clone());
        self.register_gauges(registry);
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let gauges: [(&str, &str, &Gauge); 4] = [
            ("clients_listening", "Clients that listen", &self.listening),
            ("topics", "Topics that somebody subscribes to", &self.topics),
            ("subscriptions", "Subscriptions to topics", &self.subscriptions),
            (
                "pattern_subscriptions",
                "Subscriptions to patterns",
                &self.patterns,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }
}
