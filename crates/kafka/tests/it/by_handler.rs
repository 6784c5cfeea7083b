//! APIs whose handlers check rights: the answers to a caller that lacks one right, for each of them. The list
//! is that of `gate/mod.rs`, which a test beside it compares with the file.

use std::fmt::Write as _;

use stafett_access::{Action, Actions, Change, Effect, Form, Kind, Rule, Subject};
use stafett_kafka_wire::messages::describe_topic_partitions::TopicRequest;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{
    CreateDelegationTokenRequest, DescribeClusterRequest, DescribeDelegationTokenRequest,
    DescribeTopicPartitionsRequest, ExpireDelegationTokenRequest, GetTelemetrySubscriptionsRequest,
    ListGroupsRequest, ListTransactionsRequest, MetadataRequest, PushTelemetryRequest,
    RenewDelegationTokenRequest,
};
use stafett_kafka_wire::{Request, Uuid};

use crate::group_offsets::commit;
use crate::peer::{Client, Server, batch, produce};
use crate::rights::{close, logged_in};
use crate::transactions::Producer;

/// For each API, rights without which it shows or does less; `|` between those of which one is enough.
/// `alike` for APIs that answer all callers alike.
const NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/by_handler.txt");
const KINDS: [Kind; 4] = [Kind::Topic, Kind::Group, Kind::TransactionalId, Kind::Cluster];

fn rule(effect: Effect, kind: Kind, actions: Actions) -> Change {
    Change::SetRule(Rule {
        subject: Subject::User("ann".into()),
        effect,
        kinds: kind.into(),
        namespace: None,
        form: Form::Prefix,
        name: "".into(),
        host: None,
        actions,
    })
}

/// Returns the whole answer to a request without contents, in its latest version.
async fn whole<R: Request>(client: &mut Client) -> String {
    let answer = client.call(R::KEY.versions().max, &R::default()).await;
    format!("{answer:?}")
}

/// Returns the answer of an API about the topic `t`, as far as it does not change with each request.
#[expect(clippy::panic, reason = "the test fails for an API without a request here")]
async fn seen(client: &mut Client, api: &str, topic_id: Uuid) -> String {
    match api {
        "Produce" => {
            let answer = client.call(9, &produce(-1, "t", 0, batch(&["x"]))).await;
            answer.responses[0].partition_responses[0].error_code.to_string()
        }
        "Fetch" => {
            let answer = client.fetch("t", 0, 0).await;
            let partition = &answer.responses[0].partitions[0];
            let has_records = partition
                .records
                .as_ref()
                .is_some_and(|records| !records.is_empty());
            format!("{} {has_records}", partition.error_code)
        }
        "Metadata" => metadata(client, topic_id).await,
        "DescribeTopicPartitions" => {
            let named = DescribeTopicPartitionsRequest {
                topics: vec![TopicRequest { name: "t".into() }],
                ..DescribeTopicPartitionsRequest::default()
            };
            let named = client.call(0, &named).await;
            format!(
                "{named:?} {}",
                whole::<DescribeTopicPartitionsRequest>(client).await
            )
        }
        "ListGroups" => whole::<ListGroupsRequest>(client).await,
        "ListTransactions" => whole::<ListTransactionsRequest>(client).await,
        "DescribeCluster" => whole::<DescribeClusterRequest>(client).await,
        // The client gets a new id each time.
        "GetTelemetrySubscriptions" => {
            let answer = client.call(0, &GetTelemetrySubscriptionsRequest::default()).await;
            answer.error_code.to_string()
        }
        "PushTelemetry" => whole::<PushTelemetryRequest>(client).await,
        "CreateDelegationToken" => whole::<CreateDelegationTokenRequest>(client).await,
        "RenewDelegationToken" => whole::<RenewDelegationTokenRequest>(client).await,
        "ExpireDelegationToken" => whole::<ExpireDelegationTokenRequest>(client).await,
        "DescribeDelegationToken" => whole::<DescribeDelegationTokenRequest>(client).await,
        other => panic!("{other} needs a request here"),
    }
}

/// Returns the topic as it is shown by name, by id, and among all.
async fn metadata(client: &mut Client, topic_id: Uuid) -> String {
    let by_name = MetadataRequestTopic {
        name: Some("t".into()),
        ..MetadataRequestTopic::default()
    };
    let by_id = MetadataRequestTopic {
        topic_id,
        ..MetadataRequestTopic::default()
    };
    let mut shown = String::new();
    for topics in [Some(vec![by_name]), Some(vec![by_id]), None] {
        let request = MetadataRequest {
            topics,
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = client.call(12, &request).await;
        let _ = write!(shown, "{:?}", answer.topics);
    }
    shown
}

/// A user `ann` on a closed broker that has a topic, a group and a transaction.
struct World {
    server: Server,
    ann: Client,
    topic: Uuid,
}

impl World {
    async fn start() -> Self {
        let server = Server::start().await;
        let mut open = server.client().await;
        let topic = open.create("t", 1).await;
        open.produce("t", 0, batch(&["secret"])).await;
        let committed = open.call(9, &commit("g", "t", 0, 1)).await;
        assert_eq!(committed.topics[0].partitions[0].error_code, 0);
        Producer::begin(&mut open, "id").await;
        close(&server);
        let ann = logged_in(&server, "ann").await;
        Self { server, ann, topic }
    }

    fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        self.server.broker.access().directory().apply(changes);
    }

    /// Returns true if the answer is another one while these rights are forbidden.
    async fn needs(&mut self, api: &str, kinds: &[Kind], action: Action, full: &str) -> bool {
        let deny = |actions| kinds.iter().map(move |kind| rule(Effect::Deny, *kind, actions));
        self.apply(deny(Actions::of(&[action])));
        let shown = seen(&mut self.ann, api, self.topic).await;
        self.apply(deny(Actions::NONE));
        shown != full
    }

    /// Returns the rights of an API, as in the file.
    async fn row(&mut self, api: &str) -> String {
        self.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::ALL)));
        let full = seen(&mut self.ann, api, self.topic).await;
        let mut needed = Vec::new();
        for kind in KINDS {
            for action in Action::ALL {
                if self.needs(api, &[kind], action, &full).await {
                    needed.push(format!("{kind:?}.{action:?}"));
                }
            }
        }
        for (place, one) in KINDS.into_iter().enumerate() {
            for other in KINDS.into_iter().skip(place + 1) {
                for action in Action::ALL {
                    let (is_alone, both) = (needed.is_empty(), [one, other]);
                    if is_alone && self.needs(api, &both, action, &full).await {
                        needed.push(format!("{one:?}.{action:?}|{other:?}.{action:?}"));
                    }
                }
            }
        }
        self.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::NONE)));
        let is_less = seen(&mut self.ann, api, self.topic).await != full;
        assert_eq!(is_less, !needed.is_empty(), "{api} without rules");
        if needed.is_empty() {
            "alike".to_owned()
        } else {
            needed.join(" ")
        }
    }
}

#[tokio::test]
async fn each_right_that_a_handler_checks_hides_or_refuses() {
    let expected = std::fs::read_to_string(NEEDED).unwrap();
    let mut world = World::start().await;
    let mut found = String::new();
    for line in expected.lines() {
        let (api, _) = line.split_once(':').unwrap();
        let row = world.row(api).await;
        let _ = writeln!(found, "{api}: {row}");
    }
    if std::env::var_os("UPDATE_NEEDED").is_some() {
        std::fs::write(NEEDED, &found).unwrap();
    }
    assert_eq!(found, expected, "the rights of an API changed");
}
