//! Settings of single groups apply at once, to existing groups and to new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use stafett_broker::{Broker, BrokerSettings, FrontEndHooks, Scope};
use stafett_groups::consumer::{EPOCH_JOIN, Heartbeat, Partitions};
use stafett_groups::{GroupOverrides, RuleOverrides};
use stafett_journal::{Journal, MemoryJournal};
use stafett_topics::TopicSettings;

const SESSION: &str = "session";
const HEARTBEAT: &str = "heartbeat";

fn read(settings: &TopicSettings) -> GroupOverrides {
    let number = |name: &str| settings.other.get(name)?.parse().ok();
    GroupOverrides {
        consumer: RuleOverrides {
            session_ms: number(SESSION),
            heartbeat_ms: number(HEARTBEAT),
        },
        ..GroupOverrides::default()
    }
}

async fn start(journal: &Arc<MemoryJournal>) -> Arc<Broker> {
    let journal: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(journal);
    let hooks = FrontEndHooks {
        group_settings: Some(read),
        ..FrontEndHooks::default()
    };
    let settings = BrokerSettings {
        hooks,
        ..BrokerSettings::default()
    };
    let broker = Broker::start(journal, settings).await.unwrap();
    Arc::new(broker)
}

async fn set(broker: &Arc<Broker>, group: &str, name: &'static str, value: Option<&'static str>) {
    let edit = move |before: &TopicSettings| {
        let mut settings = before.clone();
        match value {
            Some(value) => drop(settings.other.insert(name.into(), value.into())),
            None => drop(settings.other.remove(name)),
        }
        Ok::<_, Infallible>(settings)
    };
    broker
        .alter_scope(Scope::Group(group.into()), edit)
        .await
        .unwrap();
}

/// Sends a heartbeat. Returns the time until the next one.
fn report(broker: &Broker, group: &str, epoch: i32) -> u32 {
    let beat = Heartbeat {
        member: "m".into(),
        epoch,
        rebalance_timeout_ms: Some(1000),
        names: Some(vec!["t".into()]),
        owned: Some(Partitions::default()),
        ..Heartbeat::default()
    };
    let stepped = broker.groups().consumer_heartbeat(group, beat).unwrap();
    stepped.value.heartbeat_ms
}

fn state(broker: &Broker, group: &str) -> &'static str {
    broker.groups().state(group).unwrap().name
}

#[tokio::test(start_paused = true)]
async fn a_running_group_follows_a_shorter_session_at_once() {
    let broker = start(&Arc::default()).await;
    report(&broker, "g", EPOCH_JOIN);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(state(&broker, "g"), "stable");
    set(&broker, "g", SESSION, Some("30000")).await;
    tokio::time::sleep(Duration::from_millis(10_001)).await;
    assert_eq!(state(&broker, "g"), "empty");
}

#[tokio::test(start_paused = true)]
async fn a_running_group_follows_a_longer_session_and_the_broker_s_again_when_it_is_taken_back() {
    let broker = start(&Arc::default()).await;
    report(&broker, "g", EPOCH_JOIN);
    set(&broker, "g", SESSION, Some("60000")).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(state(&broker, "g"), "stable");
    report(&broker, "g", 1);
    set(&broker, "g", SESSION, None).await;
    tokio::time::sleep(Duration::from_millis(45_001)).await;
    assert_eq!(state(&broker, "g"), "empty");
}

#[tokio::test(start_paused = true)]
async fn members_are_told_what_is_set_for_their_group_also_after_a_restart() {
    let journal = Arc::<MemoryJournal>::default();
    let broker = start(&journal).await;
    set(&broker, "g", HEARTBEAT, Some("7000")).await;
    assert_eq!(report(&broker, "g", EPOCH_JOIN), 7000);
    assert_eq!(report(&broker, "other", EPOCH_JOIN), 1000);
    set(&broker, "g", HEARTBEAT, Some("9000")).await;
    assert_eq!(report(&broker, "g", 1), 9000);
    broker.stop().await;
    drop(broker);
    let broker = start(&Arc::new(journal.reopen())).await;
    assert_eq!(report(&broker, "g", 1), 9000);
    set(&broker, "g", HEARTBEAT, None).await;
    assert_eq!(report(&broker, "g", 1), 1000);
}
