//! Rights: what a client reaches before its login, without rules, and after a right was revoked.

use std::net::{IpAddr, Ipv4Addr};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use stafett_access::{
    Action, Actions, Change, Effect, Form, Kind, Rule, SUPERUSER, Subject, User, Verifiers,
};
use stafett_broker::BearerSettings;
use stafett_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use stafett_kafka_wire::messages::{
    ConsumerGroupHeartbeatRequest, ListTransactionsRequest, MetadataRequest, OffsetFetchRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
    share_fetch,
};
use stafett_kafka_wire::{ApiKey, ErrorCode};
use stafett_messaging::queues::Declare;
use stafett_model::Namespace;
use stafett_store::wall_ms;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::group_offsets::commit;
use crate::peer::{Client, PATIENCE, Server, batch, fetch};

const REFUSED: i16 = ErrorCode::TopicAuthorizationFailed as i16;

fn rule(kind: Kind, name: &str, actions: &[Action]) -> Change {
    Change::SetRule(Rule {
        subject: Subject::User("ann".into()),
        effect: Effect::Allow,
        kinds: kind.into(),
        namespace: None,
        form: Form::Literal,
        name: name.into(),
        host: None,
        actions: Actions::of(actions),
    })
}

/// Closes the broker; `ann` has no rules.
pub(crate) fn close(server: &Server) {
    let verifiers = Verifiers::of_password(b"secret", b"a salt of 16 byt");
    server.broker.access().directory().apply([
        Change::PutUser(User::new("root", verifiers.clone(), &[SUPERUSER]).unwrap()),
        Change::PutUser(User::new("ann", verifiers, &[]).unwrap()),
    ]);
}

fn apply(server: &Server, changes: impl IntoIterator<Item = Change>) {
    server.broker.access().directory().apply(changes);
}

pub(crate) async fn logged_in(server: &Server, user: &str) -> Client {
    let mut client = server.client().await;
    let handshake = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    assert_eq!(client.call(1, &handshake).await.error_code, 0);
    let proof = SaslAuthenticateRequest {
        auth_bytes: format!("\0{user}\0secret").into_bytes().into(),
    };
    assert_eq!(client.call(2, &proof).await.error_code, 0);
    client
}

#[tokio::test]
async fn before_a_login_every_api_but_those_of_the_login_ends_the_connection() {
    let server = Server::start().await;
    close(&server);
    for api in 0..128_i16 {
        let is_of_login = [
            ApiKey::SaslHandshake,
            ApiKey::ApiVersions,
            ApiKey::SaslAuthenticate,
        ]
        .iter()
        .any(|known| *known as i16 == api);
        if is_of_login {
            continue;
        }
        for version in [0_i16, 3, 9, 12] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let mut frame = vec![0, 0, 0, 64];
            frame.extend(api.to_be_bytes());
            frame.extend(version.to_be_bytes());
            frame.extend([0, 0, 0, 1, 255, 255]);
            frame.resize(4 + 64, 0);
            stream.write_all(&frame).await.unwrap();
            let mut answer = Vec::new();
            let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
            // A reset is an end too.
            assert!(read.is_err() || answer.is_empty(), "API {api} version {version}");
        }
    }
}

#[tokio::test]
async fn a_refused_login_is_answered_and_ends_the_connection() {
    let server = Server::start().await;
    close(&server);
    let mut client = server.client().await;
    let handshake = |mechanism: &'static str| SaslHandshakeRequest {
        mechanism: mechanism.into(),
    };
    let refused = client.call(1, &handshake("GSSAPI")).await.error_code;
    assert_eq!(refused, ErrorCode::UnsupportedSaslMechanism as i16);
    assert_eq!(client.frame().await, None);
    // Also one that had logged in as this user before.
    for mut client in [server.client().await, logged_in(&server, "ann").await] {
        assert_eq!(client.call(1, &handshake("PLAIN")).await.error_code, 0);
        let proof = SaslAuthenticateRequest {
            auth_bytes: b"\0ann\0wrong".to_vec().into(),
        };
        let refused = client.call(2, &proof).await.error_code;
        assert_eq!(refused, ErrorCode::SaslAuthenticationFailed as i16);
        assert_eq!(client.frame().await, None);
    }
}

#[tokio::test]
async fn logins_at_once_of_one_user_are_all_let_in() {
    let server = Server::start().await;
    close(&server);
    let mut waiting = Vec::new();
    for _ in 0..300 {
        let mut client = server.client().await;
        let handshake = SaslHandshakeRequest {
            mechanism: "PLAIN".into(),
        };
        assert_eq!(client.call(1, &handshake).await.error_code, 0);
        waiting.push(client);
    }
    let proof = SaslAuthenticateRequest {
        auth_bytes: b"\0ann\0secret".to_vec().into(),
    };
    for client in &mut waiting {
        client.send(2, &proof).await;
    }
    for client in &mut waiting {
        let (_, answer) = client.receive::<SaslAuthenticateRequest>(2).await;
        assert_eq!(answer.error_code, 0, "{answer:?}");
    }
}

#[tokio::test]
async fn a_login_that_is_not_complete_lets_no_other_request_through() {
    let server = Server::start().await;
    close(&server);
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        // One that logs in again has a user all the time.
        let mut ann = logged_in(&server, "ann").await;
        assert!(ann.call(12, &all).await.topics.is_empty());
        let handshake = SaslHandshakeRequest {
            mechanism: mechanism.into(),
        };
        assert_eq!(ann.call(1, &handshake).await.error_code, 0);
        if mechanism != "PLAIN" {
            let first = SaslAuthenticateRequest {
                auth_bytes: b"n,,n=ann,r=nonce".to_vec().into(),
            };
            assert_eq!(ann.call(2, &first).await.error_code, 0);
        }
        ann.send(12, &all).await;
        assert_eq!(ann.frame().await, None, "{mechanism}");
    }
}

#[tokio::test]
async fn commits_are_shown_of_topics_that_may_be_described_and_refused_one_by_one() {
    let server = Server::start().await;
    let mut open = server.client().await;
    open.create("seen", 1).await;
    open.create("hidden", 1).await;
    for topic in ["seen", "hidden"] {
        let committed = open.call(9, &commit("g", topic, 0, 7)).await;
        assert_eq!(committed.topics[0].partitions[0].error_code, 0);
    }
    close(&server);
    let describe = [Action::Describe];
    apply(
        &server,
        [
            rule(Kind::Group, "g", &describe),
            rule(Kind::Topic, "seen", &describe),
        ],
    );
    let mut ann = logged_in(&server, "ann").await;
    let asked = |names: Option<&[&'static str]>| OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics: names.map(|names| {
                let topics = names.iter().map(|name| OffsetFetchRequestTopics {
                    name: (*name).into(),
                    partition_indexes: vec![0],
                    ..OffsetFetchRequestTopics::default()
                });
                topics.collect()
            }),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let mut shown = async |names: Option<&[&'static str]>| {
        let group = ann.call(9, &asked(names)).await.groups.remove(0);
        assert_eq!(group.error_code, 0);
        let topics = group.topics.into_iter().map(|topic| {
            let one = &topic.partitions[0];
            (topic.name.to_string(), one.committed_offset, one.error_code)
        });
        topics.collect::<Vec<_>>()
    };
    let seen = || ("seen".to_owned(), 7, 0);
    assert_eq!(shown(None).await, [seen()]);
    let named = shown(Some(&["seen", "hidden", "none"])).await;
    let refused = |name: &str| (name.to_owned(), -1, REFUSED);
    assert_eq!(named, [seen(), refused("hidden"), refused("none")]);
    let of_one = |topics| OffsetFetchRequest {
        group_id: "g".into(),
        topics,
        ..OffsetFetchRequest::default()
    };
    let all = ann.call(5, &of_one(None)).await;
    assert_eq!((all.topics.len(), all.error_code), (1, 0));
    let hidden = OffsetFetchRequestTopic {
        name: "hidden".into(),
        partition_indexes: vec![0],
    };
    let named = ann.call(5, &of_one(Some(vec![hidden]))).await;
    assert_eq!(named.topics[0].partitions[0].error_code, REFUSED);
}

#[tokio::test]
async fn a_fetch_that_waits_and_the_connection_of_a_deleted_user_end() {
    let server = Server::start().await;
    let mut open = server.client().await;
    open.create("t", 1).await;
    close(&server);
    apply(&server, [rule(Kind::Topic, "t", &[Action::Read, Action::Write])]);
    let mut ann = logged_in(&server, "ann").await;
    let mut root = logged_in(&server, "root").await;
    assert_eq!(
        ann.fetch("t", 0, 0).await.responses[0].partitions[0].error_code,
        0
    );
    let mut waiting = fetch("t", 0, 0);
    (waiting.max_wait_ms, waiting.min_bytes) = (60_000, 1);
    ann.send(11, &waiting).await;
    apply(&server, [rule(Kind::Topic, "t", &[Action::Write])]);
    root.produce("t", 0, batch(&["secret"])).await;
    let (_, answer) = ann
        .receive::<stafett_kafka_wire::messages::FetchRequest>(11)
        .await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error_code, REFUSED);
    assert!(partition.records.clone().unwrap_or_default().is_empty());
    apply(&server, [Change::DeleteUser("ann".into())]);
    ann.send(9, &MetadataRequest::default()).await;
    assert!(ann.is_closed().await);
}

#[tokio::test]
async fn a_share_session_loses_a_topic_that_may_no_longer_be_read() {
    let server = Server::start().await;
    let mut open = server.client().await;
    let topic = open.create("t", 1).await;
    close(&server);
    let read = [Action::Read];
    apply(
        &server,
        [rule(Kind::Topic, "t", &read), rule(Kind::Group, "shared", &read)],
    );
    let mut ann = logged_in(&server, "ann").await;
    let joined = ShareGroupHeartbeatRequest {
        group_id: "shared".into(),
        member_id: "me".into(),
        subscribed_topic_names: Some(vec!["t".into()]),
        ..ShareGroupHeartbeatRequest::default()
    };
    assert_eq!(ann.call(1, &joined).await.error_code, 0);
    let take = |epoch, topics| ShareFetchRequest {
        group_id: Some("shared".into()),
        member_id: Some("me".into()),
        share_session_epoch: epoch,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 500,
        batch_size: 500,
        topics,
        ..ShareFetchRequest::default()
    };
    let named = share_fetch::FetchTopic {
        topic_id: topic,
        partitions: vec![share_fetch::FetchPartition::default()],
    };
    assert_eq!(ann.call(2, &take(0, vec![named])).await.error_code, 0);
    let mut root = logged_in(&server, "root").await;
    root.produce("t", 0, batch(&["secret"])).await;
    apply(&server, [rule(Kind::Topic, "t", &[])]);
    let answer = ann.call(2, &take(1, Vec::new())).await;
    assert_eq!(answer.error_code, 0);
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let codes: Vec<i16> = partitions.clone().map(|one| one.error_code).collect();
    assert_eq!(codes, [REFUSED]);
    assert!(partitions.clone().all(|one| one.acquired_records.is_empty()));
}

#[tokio::test]
async fn a_user_without_rules_is_shown_nothing() {
    let server = Server::start().await;
    let mut open = server.client().await;
    open.create("t", 1).await;
    open.produce("t", 0, batch(&["secret"])).await;
    close(&server);
    let mut ann = logged_in(&server, "ann").await;
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    assert!(ann.call(12, &all).await.topics.is_empty());
    let fetched = ann.fetch("t", 0, 0).await;
    assert_eq!(fetched.responses[0].partitions[0].error_code, REFUSED);
    let listed = ann.call(0, &ListTransactionsRequest::default()).await;
    assert!(listed.transaction_states.is_empty());
    let mut group = fetch("t", 0, 0);
    group.topics.clear();
    assert_eq!(ann.call(11, &group).await.error_code, 0);
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert!(server.broker.access().trusted("ann", peer).is_some());
    assert!(
        server
            .broker
            .access()
            .before_login(Some("eve"), peer)
            .name()
            .is_none()
    );
    assert_eq!(
        server.broker.access().before_login(Some("ann"), peer).name(),
        Some("ann")
    );
}

#[tokio::test]
async fn a_subscription_shows_only_topics_that_may_be_described() {
    let server = Server::start().await;
    let mut open = server.client().await;
    let seen = open.create("seen", 1).await;
    open.create("hidden", 1).await;
    close(&server);
    apply(
        &server,
        [
            rule(Kind::Group, "g", &[Action::Read]),
            rule(Kind::Group, "shared", &[Action::Read]),
            rule(Kind::Topic, "seen", &[Action::Describe]),
        ],
    );
    let mut ann = logged_in(&server, "ann").await;
    let join = |member: &'static str, names: Option<&[&'static str]>, pattern: Option<&'static str>| {
        ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: member.into(),
            rebalance_timeout_ms: 60_000,
            topic_partitions: Some(Vec::new()),
            subscribed_topic_names: names.map(|names| names.iter().map(|name| (*name).into()).collect()),
            subscribed_topic_regex: pattern.map(Into::into),
            ..ConsumerGroupHeartbeatRequest::default()
        }
    };
    for names in [&["seen", "hidden"][..], &["none"]] {
        let named = ann.call(1, &join("by name", Some(names), None)).await;
        assert_eq!((named.error_code, named.assignment), (REFUSED, None));
    }
    let matched = ann.call(1, &join("by pattern", None, Some(".*"))).await;
    assert_eq!(matched.error_code, 0);
    let shown = matched.assignment.unwrap().topic_partitions;
    assert_eq!(
        shown.iter().map(|topic| topic.topic_id).collect::<Vec<_>>(),
        [seen]
    );
    let share = |names: &[&'static str]| ShareGroupHeartbeatRequest {
        group_id: "shared".into(),
        member_id: "me".into(),
        subscribed_topic_names: Some(names.iter().map(|name| (*name).into()).collect()),
        ..ShareGroupHeartbeatRequest::default()
    };
    let named = ann.call(1, &share(&["seen", "hidden"])).await;
    assert_eq!((named.error_code, named.assignment), (REFUSED, None));
    let named = ann.call(1, &share(&["seen"])).await;
    let shown = named.assignment.unwrap().topic_partitions;
    assert_eq!(
        shown.iter().map(|topic| topic.topic_id).collect::<Vec<_>>(),
        [seen]
    );
}

#[tokio::test]
async fn a_topic_that_shows_a_queue_needs_the_right_on_the_queue() {
    let server = Server::start().await;
    let queues = server.broker.messaging().queues();
    let declare = Declare {
        durable: true,
        ..Declare::default()
    };
    let declared = queues.begin_declaring(&Namespace::default(), "secret", declare);
    declared.unwrap().stored().await.unwrap();
    close(&server);
    let topic = "queue.secret";
    apply(
        &server,
        [rule(Kind::Topic, topic, &[Action::Read, Action::Write])],
    );
    let mut ann = logged_in(&server, "ann").await;
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    assert!(ann.call(12, &all).await.topics.is_empty());
    let code = async |ann: &mut Client| ann.fetch(topic, 0, 0).await.responses[0].partitions[0].error_code;
    assert_eq!(code(&mut ann).await, REFUSED);
    apply(&server, [rule(Kind::Queue, "secret", &[Action::Read])]);
    assert_eq!(ann.call(12, &all).await.topics.len(), 1);
    assert_eq!(code(&mut ann).await, 0);
}

/// Returns a token of `ann` that ends in some seconds.
fn token(key: &EncodingKey, seconds: i64) -> String {
    let claims = serde_json::json!({
        "iss": "login", "aud": "stafett", "sub": "ann", "exp": wall_ms() / 1000 + seconds,
    });
    encode(&Header::new(Algorithm::ES256), &claims, key).unwrap()
}

#[tokio::test]
async fn a_bearer_token_logs_in_until_it_expires() {
    let server = Server::start().await;
    close(&server);
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_der(&pair.serialize_der());
    let public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    let settings = BearerSettings {
        keys: serde_json::json!({ "keys": [public] }).to_string().into_bytes(),
        issuer: "login".to_owned(),
        audience: "stafett".to_owned(),
        user_claim: "sub".to_owned(),
    };
    let handshake = SaslHandshakeRequest {
        mechanism: "OAUTHBEARER".into(),
    };
    let refused = server.client().await.call(1, &handshake).await;
    assert_eq!(refused.error_code, ErrorCode::UnsupportedSaslMechanism as i16);
    server.broker.access().set_bearer(Some(&settings)).unwrap();
    let begin = async |message: &str| {
        let mut client = server.client().await;
        assert_eq!(client.call(1, &handshake).await.error_code, 0);
        let proof = SaslAuthenticateRequest {
            auth_bytes: message.as_bytes().to_vec().into(),
        };
        let answer = client.call(2, &proof).await;
        (client, answer)
    };
    let first = |token: &str| format!("n,,\x01auth=Bearer {token}\x01\x01");
    let (mut client, answer) = begin(&first(&token(&key, 600))).await;
    assert_eq!(answer.error_code, 0);
    // The difference of clocks that is tolerated counts in the session too.
    assert!(
        (600_000..=630_000).contains(&answer.session_lifetime_ms),
        "{answer:?}"
    );
    assert!(
        client
            .call(12, &MetadataRequest::default())
            .await
            .topics
            .is_empty()
    );
    // At its end, the next request ends the connection.
    let (mut client, answer) = begin(&first(&token(&key, -29))).await;
    assert_eq!(answer.error_code, 0);
    assert!((1..=1000).contains(&answer.session_lifetime_ms), "{answer:?}");
    loop {
        client.send(12, &MetadataRequest::default()).await;
        if client.frame().await.is_none() {
            break;
        }
    }
    let failed = ErrorCode::SaslAuthenticationFailed as i16;
    let mut forged = token(&key, 600);
    forged.truncate(forged.len() - 3);
    let (mut client, answer) = begin(&first(&forged)).await;
    assert_eq!(&*answer.auth_bytes, br#"{"status":"invalid_token"}"#);
    let last = SaslAuthenticateRequest {
        auth_bytes: vec![1].into(),
    };
    assert_eq!(client.call(2, &last).await.error_code, failed);
    assert_eq!(client.frame().await, None);
    for message in [
        "",
        "n,,",
        "p=x,,\x01auth=Bearer x\x01\x01",
        "n,,\x01auth=Basic x\x01\x01",
    ] {
        let (_, answer) = begin(message).await;
        assert_eq!(answer.error_code, failed, "{message:?}");
    }
}
