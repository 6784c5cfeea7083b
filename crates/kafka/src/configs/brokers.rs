//! Settings of the broker, apart from the defaults of topics.

use stafett_broker::Broker;
use stafett_groups::GroupSettings;

use super::WITHOUT_EFFECT;
use super::config_type::ConfigType;
use super::groups::{HEARTBEAT_MS_BOUNDS as HEARTBEAT_MS, SESSION_MS_BOUNDS as SESSION_MS};
use super::topics::{self, Config};
use crate::settings::{Endpoint, KafkaSettings};

/// Sources of the values of broker settings.
pub(crate) struct BrokerView<'a> {
    pub broker: &'a Broker,
    pub settings: &'a KafkaSettings,
}

/// A setting of the broker that topics do not have.
pub(crate) struct BrokerConfig {
    pub name: &'static str,
    pub kind: ConfigType,
    pub value: fn(&BrokerView<'_>) -> String,
    pub about: &'static str,
    /// True if it cannot be changed while the broker runs.
    pub is_fixed: bool,
    /// True if it has no default. Apache Kafka reads it from its file.
    pub is_stated: bool,
}

const NUMBER: ConfigType = ConfigType::int(0);

const fn fixed(
    name: &'static str,
    kind: ConfigType,
    value: fn(&BrokerView<'_>) -> String,
    about: &'static str,
) -> BrokerConfig {
    let is_fixed = true;
    BrokerConfig {
        name,
        kind,
        value,
        about,
        is_fixed,
        is_stated: false,
    }
}

const fn stated(
    name: &'static str,
    kind: ConfigType,
    value: fn(&BrokerView<'_>) -> String,
    about: &'static str,
) -> BrokerConfig {
    let mut config = fixed(name, kind, value, about);
    config.is_stated = true;
    config
}

/// Returns a setting that can be changed and has no effect.
const fn shown(name: &'static str, kind: ConfigType, value: fn(&BrokerView<'_>) -> String) -> BrokerConfig {
    BrokerConfig {
        name,
        kind,
        value,
        about: WITHOUT_EFFECT,
        is_fixed: false,
        is_stated: false,
    }
}

/// All broker settings, sorted by name.
#[rustfmt::skip]
pub(crate) const BROKER: &[BrokerConfig] = &[
    stated("advertised.listeners", ConfigType::Text, advertised_listeners, "Addresses that clients are told."),
    fixed("auto.create.topics.enable", ConfigType::Boolean, |view| view.settings.auto_create_topics.to_string(),
        "Whether a metadata request may create the topics that it asks for."),
    shown("background.threads", ConfigType::int(1), |_| "10".to_owned()),
    fixed("broker.id", ConfigType::int(-1), |view| view.settings.broker_id.to_string(), "Number of the broker that leads."),
    fixed("connections.max.idle.ms", ConfigType::Long { min: 0 }, |view| view.settings.idle_timeout.as_millis().to_string(),
        "A connection without a request for this long is closed."),
    fixed("default.replication.factor", ConfigType::int(1), |_| "1".to_owned(),
        "Copies of a partition, as far as clients can tell."),
    fixed("delete.topic.enable", ConfigType::Boolean, |_| "true".to_owned(), "Whether topics can be deleted."),
    fixed("fetch.max.bytes", ConfigType::int(1024), |view| view.settings.fetch_bytes_max.to_string(),
        "Bytes of records in one answer to a fetch."),
    shown("follower.replication.throttled.rate", ConfigType::Long { min: 0 }, |_| i64::MAX.to_string()),
    fixed("group.consumer.assignors", ConfigType::SomeOf(&[]), |_| "uniform,range".to_owned(),
        "Assignors that the broker has."),
    fixed("group.consumer.heartbeat.interval.ms", ConfigType::int(1), |view| groups(view).consumer.heartbeat_ms.to_string(),
        "How often members of consumer groups are told to report, if there are many of them."),
    fixed("group.consumer.max.heartbeat.interval.ms", ConfigType::int(1), |_| HEARTBEAT_MS.1.to_string(), "The most that a group may set."),
    fixed("group.consumer.max.session.timeout.ms", ConfigType::int(1), |_| SESSION_MS.1.to_string(), "The most that a group may set."),
    fixed("group.consumer.max.size", ConfigType::int(1), |view| groups(view).consumer.members_max.to_string(),
        "Members of one consumer group."),
    fixed("group.consumer.migration.policy", ConfigType::OneOf(&["bidirectional", "upgrade", "downgrade", "disabled"]),
        |view| groups(view).migration.name().to_owned(),
        "Which groups may move between the classic protocol and that of consumer groups while they have members."),
    fixed("group.consumer.min.heartbeat.interval.ms", ConfigType::int(1), |_| HEARTBEAT_MS.0.to_string(), "The least that a group may set."),
    fixed("group.consumer.min.session.timeout.ms", ConfigType::int(1), |_| SESSION_MS.0.to_string(), "The least that a group may set."),
    fixed("group.consumer.session.timeout.ms", ConfigType::int(1), |view| groups(view).consumer.session_ms.to_string(),
        "A member of a consumer group that is silent for longer is put out."),
    fixed("group.initial.rebalance.delay.ms", NUMBER, |view| groups(view).initial_delay_ms.to_string(),
        "How long the first generation of a classic group waits for more members."),
    fixed("group.max.session.timeout.ms", ConfigType::int(1), |view| groups(view).session_ms_max.to_string(),
        "The longest session that members of classic groups may ask for."),
    fixed("group.max.size", ConfigType::int(1), |view| groups(view).members_max.to_string(), "Members of one classic group."),
    fixed("group.min.session.timeout.ms", ConfigType::int(1), |view| groups(view).session_ms_min.to_string(),
        "The shortest session that members of classic groups may ask for."),
    shown("leader.replication.throttled.rate", ConfigType::Long { min: 0 }, |_| i64::MAX.to_string()),
    stated("listeners", ConfigType::Text, listeners, "Addresses on which the broker listens."),
    stated("log.dirs", ConfigType::Text, |view| view.settings.log_dir.clone(), "The folder of everything that is stored."),
    shown("max.connection.creation.rate", ConfigType::int(0), |_| i32::MAX.to_string()),
    shown("max.connections", ConfigType::int(0), |_| i32::MAX.to_string()),
    shown("max.connections.per.ip", ConfigType::int(0), |_| i32::MAX.to_string()),
    fixed("max.incremental.fetch.session.cache.slots", NUMBER, |view| view.settings.fetch_sessions_max.to_string(),
        "Fetch sessions of all connections together."),
    stated("node.id", NUMBER, |view| view.settings.broker_id.to_string(), "Number of the broker that leads."),
    shown("num.io.threads", ConfigType::int(1), |_| "8".to_owned()),
    shown("num.network.threads", ConfigType::int(1), |_| "3".to_owned()),
    fixed("num.partitions", ConfigType::int(1), |view| view.broker.catalog().defaults().partitions.to_string(),
        "Partitions of a topic that is made without a number of them."),
    shown("num.recovery.threads.per.data.dir", ConfigType::int(1), |_| "2".to_owned()),
    shown("num.replica.fetchers", ConfigType::int(1), |_| "1".to_owned()),
    stated("process.roles", ConfigType::SomeOf(&["broker", "controller"]), |_| "broker,controller".to_owned(),
        "The one broker is its own controller."),
    fixed("offset.metadata.max.bytes", NUMBER, |view| groups(view).commit_text_bytes_max.to_string(),
        "Bytes of the text beside a committed offset."),
    fixed("offsets.retention.minutes", ConfigType::int(1), retention_minutes,
        "How long commits of a group without members are kept."),
    shown("producer.id.expiration.ms", ConfigType::int(1), |_| "86400000".to_owned()),
    shown("sasl.kerberos.min.time.before.relogin", ConfigType::Long { min: 0 }, |_| "60000".to_owned()),
    fixed("socket.request.max.bytes", ConfigType::int(1), |view| view.settings.request_bytes_max.to_string(),
        "Bytes of the largest request."),
];

/// Names an address without TLS and one with it.
fn named(plain: Option<&str>, tls: Option<&str>) -> String {
    let plain = plain.map(|address| format!("PLAINTEXT://{address}"));
    let tls = tls.map(|address| format!("SSL://{address}"));
    let both: Vec<String> = plain.into_iter().chain(tls).collect();
    both.join(",")
}

fn listeners(view: &BrokerView<'_>) -> String {
    named(
        view.settings.listen.as_deref(),
        view.settings.listen_tls.as_deref(),
    )
}

fn advertised_listeners(view: &BrokerView<'_>) -> String {
    let settings = view.settings;
    let told = |listen: &Option<String>, advertised: &Option<Endpoint>| {
        let listen = listen.clone()?;
        let told = advertised
            .as_ref()
            .map(|Endpoint { host, port }| format!("{host}:{port}"));
        Some(told.unwrap_or(listen))
    };
    let plain = told(&settings.listen, &settings.advertised);
    let tls = told(&settings.listen_tls, &settings.advertised_tls);
    named(plain.as_deref(), tls.as_deref())
}

fn groups<'a>(view: &BrokerView<'a>) -> &'a GroupSettings {
    view.broker.groups().settings()
}

/// Returns the retention of commits in minutes; unlimited retention is the maximum of the setting.
fn retention_minutes(view: &BrokerView<'_>) -> String {
    let minutes = groups(view).commit_retention.map(|kept| kept.as_secs() / 60);
    let minutes = minutes.and_then(|minutes| i32::try_from(minutes).ok());
    minutes.unwrap_or(i32::MAX).to_string()
}

pub(super) fn find(name: &str) -> Option<&'static BrokerConfig> {
    BROKER.iter().find(|config| config.name == name)
}

/// Returns the topic settings whose default the broker has under a name of its own.
pub(crate) fn broker_configs() -> impl Iterator<Item = &'static Config> {
    topics::ALL.iter().filter(|config| !config.broker_name.is_empty())
}
