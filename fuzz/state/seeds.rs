//! Writes the first inputs under `corpus/`: the rows of a broker that has something of everything, whole and
//! one by one.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use stafett_access::{Action, Actions, Caller, Effect, Form, Kind, Limit, Limited, Rule, SUPERUSER, Subject, User, Verifiers};
use stafett_broker::{Broker, BrokerSettings, Scope, StoredSink};
use stafett_fuzz_state::{SPACES, write_row};
use stafett_groups::classic::{Join, Sync};
use stafett_groups::{CommitSender, NewCommit, Strategy};
use stafett_journal::{Journal, MemoryJournal, StateItem, StateSpace};
use stafett_live_topics::{ClientName, LiveSettings, LogRule, Message as LiveMessage, Payload, PendingAppends, SubscriptionChange, SubscriptionEdit};
use stafett_messaging::{Destination, NewBinding, NewExchange};
use stafett_delivery::Settle;
use stafett_messaging::queues::{Declare, NewPolicy, PolicyKind, PolicyScope, PolicySettings, Publication, Targets};
use stafett_model::{Message, Namespace};
use stafett_queue::{DeadLetter, QueueSettings};
use stafett_routing::{ExchangeKind, HeaderMatch};
use stafett_shares::PlaceStart;
use stafett_topics::{NewTopic, Topic, TopicSettings};

/// Space of the positions of clients of live logs. They need a connection: a row is made by hand.
const POSITIONS: u8 = 12;

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    let journal = Arc::new(MemoryJournal::new());
    runtime.block_on(fill(&journal));
    let stored = journal.reopen();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/rows");
    fs::create_dir_all(&folder)?;
    let mut whole = Vec::new();
    let mut number = 0;
    for space in 1..=SPACES {
        let mut rows = Vec::new();
        let visited = stored.load_state(StateSpace(space.into()), &mut |item| {
            let (is_delta, key, value) = match item {
                StateItem::Value { key, value } => (false, key, value),
                StateItem::Delta { key, delta } => (true, key, delta),
            };
            let mut row = Vec::new();
            write_row(&mut row, space, is_delta, key, value);
            rows.push(row);
        });
        visited.expect("a journal in memory can be read");
        if space == POSITIONS {
            let mut row = Vec::new();
            let place = [&[1][..], &[9; 16], &1_u32.to_be_bytes(), &7_u64.to_be_bytes()].concat();
            write_row(&mut row, space, false, &0_u32.to_be_bytes(), &place);
            rows.push(row);
        }
        assert!(!rows.is_empty(), "nothing is stored in space {space}");
        for row in rows {
            whole.extend_from_slice(&row);
            fs::write(folder.join(format!("seed-{space}-{number}")), row)?;
            number += 1;
        }
    }
    fs::write(folder.join("seed-whole"), whole)
}

async fn fill(journal: &Arc<MemoryJournal>) {
    let rule = LogRule {
        prefix: "charts/".into(),
        topic: "charts".into(),
        partitions: 1,
    };
    let live = LiveSettings {
        logs: vec![rule],
        ..LiveSettings::default()
    };
    let started = Broker::start(journal.clone(), BrokerSettings { live_topics: live, ..BrokerSettings::default() }).await;
    let broker = Arc::new(started.unwrap());
    broker.open_live_logs().await.unwrap();
    let mut settings = TopicSettings::default();
    settings.other.insert("word".into(), "text".into());
    let new = NewTopic {
        name: "topic".into(),
        partitions: Some(3),
        settings,
    };
    let topic = broker.catalog().create(vec![new]).await.remove(0).unwrap();
    let edit = |before: &TopicSettings| {
        let mut settings = before.clone();
        settings.other.insert("session".into(), "7".into());
        Ok::<_, std::convert::Infallible>(settings)
    };
    broker
        .alter_scope(Scope::Group("group".into()), edit)
        .await
        .unwrap();
    broker.catalog().new_producer_id().await.unwrap();
    let app = stafett_apps::Definition {
        topics: vec!["topic".into()],
        tables: [("table".into(), stafett_apps::Table::default())].into(),
        ..stafett_apps::Definition::default()
    };
    broker.apps().declare("app", app, stafett_apps::Start::Latest).await.unwrap();
    fill_groups(&broker, topic.id).await;
    fill_transactions(&broker, &topic).await;
    fill_queues(&broker).await;
    fill_live(&broker).await;
    fill_access(&broker).await;
    let length = PolicySettings { length_max: Some(5), ..PolicySettings::default() };
    let policy = NewPolicy {
        name: "policy".into(),
        pattern: "^q".into(),
        priority: 1,
        scope: PolicyScope::ALL,
        settings: length,
        definition: b"as it came"[..].into(),
    };
    let queues = broker.messaging().queues();
    queues.put_policy(PolicyKind::User, &Namespace::default(), policy).await.unwrap();
    let sink = StoredSink { definition: "{}".into(), rests: true };
    broker.edit_sink("sink", move |_| Ok(Some(sink))).await.unwrap();
    broker.stop().await;
}

async fn fill_access(broker: &Arc<Broker>) {
    let (access, by) = (broker.access(), Caller::internal());
    let user = User::new("ann", Verifiers::default(), &[SUPERUSER]).unwrap();
    access.put_user(&by, user).await.unwrap();
    access.make_token(&by, "ann", "a token", Some(1)).await.unwrap();
    let rule = Rule {
        subject: Subject::User("ann".into()),
        effect: Effect::Allow,
        kinds: Kind::Topic.into(),
        namespace: None,
        form: Form::Pattern,
        name: "^t".into(),
        host: None,
        actions: Actions::of(&[Action::Read]),
    };
    access.add_rules(&by, vec![rule]).await.remove(0).unwrap();
    let of = Limited::Namespace("/".into());
    access.set_limits(&by, of, &[(Limit::Messages, Some(10))]).await.unwrap();
}

async fn fill_groups(broker: &Arc<Broker>, topic: stafett_topics::TopicId) {
    let strategies = vec![Strategy {
        name: "range".into(),
        metadata: Bytes::from_static(b"metadata"),
    }];
    let join = Join {
        member: "".into(),
        new_id: "member".into(),
        instance: Some("instance".into()),
        client_id: "client".into(),
        client_host: "host".into(),
        purpose: "consumer".into(),
        strategies,
        session_ms: 10_000,
        rebalance_ms: 20_000,
        must_know_id: false,
        may_skip_assignment: false,
    };
    let joined = broker.groups().join("group", join).await.unwrap();
    let sync = Sync {
        member: "member".into(),
        instance: None,
        generation: joined.generation,
        purpose: None,
        strategy: None,
        assignments: vec![("member".into(), Bytes::from_static(b"all"))],
    };
    broker.groups().sync("group", sync).await.unwrap();
    let by = CommitSender {
        epoch: -1,
        ..CommitSender::default()
    };
    let commit = NewCommit {
        topic,
        partition: 1,
        offset: 7,
        leader_epoch: 3,
        text: Some("text".into()),
    };
    broker
        .groups()
        .commit("other", &by, vec![commit])
        .unwrap()
        .durable()
        .await
        .unwrap();
}

/// Stores an open transaction with a commit, and the place of a share group.
async fn fill_transactions(broker: &Arc<Broker>, topic: &Arc<Topic>) {
    let transactions = broker.transactions();
    let instance = transactions.begin_producer("id", 60_000, None).await.unwrap();
    let by = CommitSender {
        epoch: -1,
        ..CommitSender::default()
    };
    let commit = NewCommit {
        topic: topic.id,
        partition: 0,
        offset: 5,
        leader_epoch: -1,
        text: None,
    };
    transactions
        .commit_offsets("id", instance, true, ("other", &by), vec![commit])
        .await
        .unwrap();
    broker.shares().get_or_make("shares", topic, PlaceStart::First).await.unwrap();
}

async fn fill_queues(broker: &Arc<Broker>) {
    let namespace = Namespace::default();
    let dead_letter = Some(DeadLetter {
        exchange: "exchange".into(),
        routing_key: Some("dead".into()),
    });
    let settings = QueueSettings {
        ttl_ms: Some(60_000),
        length_max: Some(9),
        priority_max: 3,
        delivery_limit: Some(2),
        dead_letter,
        ..QueueSettings::default()
    };
    let declare = Declare {
        durable: true,
        settings,
        ..Declare::default()
    };
    let queue = broker
        .messaging()
        .queues()
        .declare(&namespace, "queue", declare)
        .await
        .unwrap();
    let exchange = NewExchange {
        durable: true,
        ..NewExchange::new(ExchangeKind::Topic)
    };
    broker
        .messaging()
        .exchanges()
        .declare(&namespace, "exchange", exchange)
        .unwrap()
        .1
        .await
        .unwrap();
    let binding = NewBinding {
        source: "exchange".into(),
        destination: Destination::Queue("queue".into()),
        key: Bytes::from_static(b"a.*.#"),
        headers: HeaderMatch::default(),
        arguments: Bytes::from_static(b"opaque"),
    };
    broker.messaging().bind(&namespace, binding).unwrap().await.unwrap();
    let mut publication = Publication::default();
    let route = publication.route(Targets {
        queues: [queue.clone()].into_iter().collect(),
        ..Targets::default()
    });
    for body in ["one", "two", "three", "four", "five", "six"] {
        let message = Message {
            value: Bytes::from_static(body.as_bytes()),
            persistent: true,
            ..Message::default()
        };
        publication.push(message, route);
    }
    broker.messaging().queues().append(publication).await;
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(queue.take_one(true).await.unwrap().0.id);
    }
    queue.settle(&[(taken[1], Settle::Complete), (taken[2], Settle::Requeue)]);
}

async fn fill_live(broker: &Arc<Broker>) {
    let change = |client: ClientName, topic: &str| {
        let what = SubscriptionEdit::Subscribe([topic].into_iter().collect());
        SubscriptionChange { client, what }
    };
    let changes = vec![
        change(ClientName::Number(1), "plain"),
        change(ClientName::Number(1), "charts/a"),
    ];
    assert!(broker.live_topics().change(changes).await.iter().all(Result::is_ok));
    let mut staged = PendingAppends::default();
    let message = LiveMessage {
        topic: "charts/a",
        payload: Payload::Json("1"),
        timestamp: None,
        id: None,
        offset: None,
    };
    broker.live_topics().publish(message, &mut staged);
    drop(broker.live_topics().store(staged));
}
