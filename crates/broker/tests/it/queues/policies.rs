//! Policies: which one is in force, at once, for new queues and after a restart.

use std::sync::Arc;
use std::time::Duration;

use stafett_access::Caller;
use stafett_journal::MemoryJournal;
use stafett_messaging::queues::{
    AppendOutcome, BadPolicy, Declare, NewPolicy, Overflow, PolicyError, PolicyKind, PolicyScope,
    PolicySettings, QueueSettings, Refused, Setting,
};
use stafett_model::Namespace;

use super::support::{World, durable, messages, settle_down};

fn policy(name: &str, pattern: &str, priority: i32, settings: PolicySettings) -> NewPolicy {
    NewPolicy {
        name: name.into(),
        pattern: pattern.into(),
        priority,
        scope: PolicyScope::ALL,
        settings,
        definition: b"as it came"[..].into(),
    }
}

fn length(max: u64) -> PolicySettings {
    PolicySettings {
        length_max: Some(max),
        ..PolicySettings::default()
    }
}

impl World {
    async fn put_policy(&self, kind: PolicyKind, new: NewPolicy) -> bool {
        let queues = self.broker.messaging().queues();
        queues.put_policy(kind, &Namespace::default(), new).await.unwrap()
    }

    async fn delete_policy(&self, kind: PolicyKind, name: &str) {
        let queues = self.broker.messaging().queues();
        queues
            .delete_policy(kind, &Namespace::default(), name)
            .await
            .unwrap();
    }

    fn length_max(&self, name: &str) -> Option<u64> {
        self.get(name).unwrap().settings().length_max
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_holds_for_waiting_messages_at_once_and_its_end_ends_that() {
    let world = World::new().await;
    world.declare("dead", durable()).await;
    let queue = world.declare("orders.eu", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    let to_dead = PolicySettings {
        dead_letter_exchange: Some("".into()),
        dead_letter_key: Some("dead".into()),
        ..length(7)
    };
    assert!(
        world
            .put_policy(PolicyKind::User, policy("p", "^orders", 0, to_dead))
            .await
    );
    settle_down().await;
    assert_eq!((world.ready("orders.eu"), world.ready("dead")), (7, 3));
    assert_eq!(world.length_max("dead"), None);
    let refusing = PolicySettings {
        overflow: Some(Overflow::RejectPublish),
        ..length(7)
    };
    assert!(
        !world
            .put_policy(PolicyKind::User, policy("p", "^orders", 0, refusing))
            .await
    );
    let refused = world.try_publish(&queue, messages(10..11)).await;
    assert_eq!(refused, [AppendOutcome::Refused(Refused::QueueFull)]);
    assert_eq!(&*queue.policies().user.unwrap().new.name, "p");
    let expiring = PolicySettings {
        ttl_ms: Some(1000),
        ..PolicySettings::default()
    };
    world
        .put_policy(PolicyKind::User, policy("q", "^orders", 1, expiring))
        .await;
    assert_eq!(world.length_max("orders.eu"), None, "one policy is in force");
    tokio::time::sleep(Duration::from_secs(2)).await;
    settle_down().await;
    assert_eq!(world.ready("orders.eu"), 0);
    world.delete_policy(PolicyKind::User, "q").await;
    assert_eq!(world.length_max("orders.eu"), Some(7));
    world.delete_policy(PolicyKind::User, "p").await;
    assert_eq!(*queue.settings(), QueueSettings::default());
    assert!(queue.policies().user.is_none());
}

#[tokio::test(start_paused = true)]
async fn policies_are_in_force_for_new_queues_and_after_restarts_and_crashes() {
    let mut world = World::new().await;
    world
        .put_policy(PolicyKind::User, policy("p", "^a", 0, length(5)))
        .await;
    world
        .put_policy(PolicyKind::Operator, policy("p", "^a", 0, length(9)))
        .await;
    world
        .put_policy(PolicyKind::User, policy("gone", "^a", 9, length(1)))
        .await;
    world.delete_policy(PolicyKind::User, "gone").await;
    let larger = Declare {
        settings: QueueSettings {
            length_max: Some(20),
            ..QueueSettings::default()
        },
        ..durable()
    };
    world.declare("a", larger.clone()).await;
    world.declare("b", durable()).await;
    for round in 0..3 {
        assert_eq!((world.length_max("a"), world.length_max("b")), (Some(5), None));
        // It is declared again as it was.
        world.declare("a", larger.clone()).await;
        world = if round == 0 {
            world.restart().await
        } else {
            world.crash().await
        };
    }
    let queues = world.broker.messaging().queues();
    let found = queues.policies(PolicyKind::User);
    let [(namespace, found)] = &*found else {
        panic!("{found:?}");
    };
    let expected = policy("p", "^a", 0, length(5));
    assert_eq!(*namespace, Namespace::default());
    assert_eq!(format!("{:?}", found.new), format!("{expected:?}"));
    world.delete_policy(PolicyKind::User, "p").await;
    assert_eq!(world.length_max("a"), Some(9), "the operator's");
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_at_a_queue_lies_over_a_policy_and_within_that_of_an_operator() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world
        .put_policy(PolicyKind::User, policy("p", "", 0, length(5)))
        .await;
    let queues = world.broker.messaging().queues();
    let change = queues.change_settings(&queue, |_| vec![Setting::LengthMax(Some(30))]);
    change.await.unwrap();
    assert_eq!(world.length_max("q"), Some(30));
    world
        .put_policy(PolicyKind::Operator, policy("o", "", 0, length(20)))
        .await;
    assert_eq!(world.length_max("q"), Some(20));
    let change = queues.change_settings(&queue, |_| vec![Setting::LengthMax(None)]);
    change.await.unwrap();
    assert_eq!(world.length_max("q"), Some(5), "as declared, under both");
    world.delete_policy(PolicyKind::User, "p").await;
    assert_eq!(world.length_max("q"), Some(20));
}

#[tokio::test(start_paused = true)]
async fn policies_are_for_their_kinds_of_queues_and_their_namespace() {
    let world = World::new().await;
    let two = Declare {
        settings: QueueSettings {
            two_priorities: true,
            ..QueueSettings::default()
        },
        ..durable()
    };
    world.declare("two", two).await;
    world.declare("plain", durable()).await;
    let of_two = NewPolicy {
        scope: PolicyScope {
            plain: false,
            two_priorities: true,
        },
        ..policy("p", "", 0, length(5))
    };
    world.put_policy(PolicyKind::User, of_two).await;
    assert_eq!(
        (world.length_max("two"), world.length_max("plain")),
        (Some(5), None)
    );
    let (broker, other) = (&world.broker, Namespace::new("other"));
    let queues = broker.messaging().queues();
    let put = queues.put_policy(PolicyKind::User, &other, policy("p", "", 0, length(1)));
    assert!(matches!(put.await, Err(PolicyError::NoSuchNamespace)));
    broker
        .messaging()
        .exchanges()
        .create_namespace(&other)
        .unwrap()
        .1
        .await
        .unwrap();
    let put = queues.put_policy(PolicyKind::User, &other, policy("p", "", 0, length(1)));
    put.await.unwrap();
    assert_eq!(world.length_max("plain"), None);
    // A namespace that is made again begins without.
    broker
        .delete_namespace(&Arc::new(Caller::internal()), &other)
        .await
        .unwrap();
    broker
        .messaging()
        .exchanges()
        .create_namespace(&other)
        .unwrap()
        .1
        .await
        .unwrap();
    assert!(queues.policy(PolicyKind::User, &other, "p").is_none());
    let bad = queues.put_policy(PolicyKind::User, &other, policy("p", "(", 0, length(1)));
    assert!(matches!(bad.await, Err(PolicyError::Bad(BadPolicy::Pattern(_)))));
    let gone = queues.delete_policy(PolicyKind::Operator, &other, "p");
    assert!(matches!(gone.await, Err(PolicyError::NoSuchPolicy)));
    let world = world.restart().await;
    assert_eq!(
        world.broker.messaging().queues().policies(PolicyKind::User).len(),
        1
    );
}

#[tokio::test]
async fn queues_that_are_declared_beside_changes_of_policies_have_the_last_one() {
    let world = Arc::new(World::on(Arc::new(MemoryJournal::new())).await);
    for round in 0..50_u64 {
        let changing = Arc::clone(&world);
        let changes = async move {
            for max in 1..4 {
                changing
                    .put_policy(PolicyKind::User, policy("p", "", 0, length(max + round)))
                    .await;
            }
        };
        let declaring = async {
            for number in 0..8 {
                world.declare(&format!("q{round}.{number}"), durable()).await;
            }
        };
        tokio::join!(changes, declaring);
        for queue in world.broker.messaging().queues().all() {
            assert_eq!(queue.settings().length_max, Some(3 + round), "{}", queue.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_a_full_disk_refuses_is_not_in_force() {
    let (world, journal) = World::undecided().await;
    world.declare("q", durable()).await;
    journal.set_used_up(true);
    let queues = world.broker.messaging().queues();
    let namespace = Namespace::default();
    let put = queues.put_policy(PolicyKind::User, &namespace, policy("p", "", 0, length(1)));
    assert!(matches!(put.await, Err(PolicyError::NotStored(_))));
    assert_eq!(world.length_max("q"), None);
    assert!(queues.policies(PolicyKind::User).is_empty());
}

#[tokio::test]
async fn a_change_of_many_queues_leaves_turns_to_others() {
    let world = World::new().await;
    let transient = Declare::default();
    for number in 0..2000 {
        world.declare(&format!("q{number}"), transient.clone()).await;
    }
    let mut turns = 0;
    let putting = world.put_policy(PolicyKind::User, policy("p", "^q", 0, length(5)));
    tokio::pin!(putting);
    loop {
        tokio::select! {
            biased;
            _ = &mut putting => break,
            () = tokio::task::yield_now() => turns += 1,
        }
    }
    assert!(turns >= 2000 / 64, "{turns}");
    let all = world.broker.messaging().queues().all();
    assert!(all.iter().all(|queue| queue.settings().length_max == Some(5)));
}
