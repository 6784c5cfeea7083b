//! The audit while the journal takes nothing.

use std::sync::Arc;

use stafett_access::{Change, SUPERUSER, User, Verifiers};
use stafett_broker::{AuditTrail, Broker, BrokerSettings};
use stafett_journal::ManualJournal;

const STORED: &str = "stafett.audit";

#[tokio::test(start_paused = true)]
async fn entries_wait_while_the_disk_is_full_and_are_stored_once_when_it_is_not() {
    let journal = Arc::new(ManualJournal::default());
    let broker = Broker::start(Arc::<ManualJournal>::clone(&journal), BrokerSettings::default());
    let broker = broker.await.unwrap();
    let (access, catalog) = (broker.access(), broker.catalog());
    let root = User::new("root", Verifiers::default(), &[SUPERUSER]).unwrap();
    access.directory().apply([Change::PutUser(root)]);
    let trail = AuditTrail::default();
    let count = || {
        let topic = catalog.topics().named(STORED)?;
        Some(catalog.bounds(topic.log(0)?)?.end.0)
    };
    // Nor can the topic be made.
    journal.set_used_up(true);
    for number in 0..100 {
        trail.add(number, format!("{{\"entry\": {number}}}").into_bytes());
    }
    assert!(!trail.store_waiting(access, catalog).await);
    assert_eq!(count(), None);
    journal.set_used_up(false);
    assert!(trail.store_waiting(access, catalog).await);
    assert_eq!(count(), Some(100));
    // The same with the topic there.
    journal.set_used_up(true);
    trail.add(100, b"{}".to_vec());
    assert!(!trail.store_waiting(access, catalog).await);
    trail.add(101, b"{}".to_vec());
    assert!(!trail.store_waiting(access, catalog).await);
    journal.set_used_up(false);
    assert!(trail.store_waiting(access, catalog).await);
    assert_eq!(count(), Some(102));
    broker.stop().await;
}
