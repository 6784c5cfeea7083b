//! Users and rules that are made by the thousand.

use std::sync::Arc;

use stafett_access::{
    Action, Actions, Caller, Effect, Form, Kind, PATTERNS_MAX, Rule, SUPERUSER, Subject, User, Verifiers,
};
use stafett_broker::{AccessError, Broker, BrokerSettings};
use stafett_journal::MemoryJournal;

async fn start(journal: MemoryJournal) -> (Broker, Arc<MemoryJournal>) {
    let journal = Arc::new(journal);
    let shared: Arc<dyn stafett_journal::Journal> = Arc::<MemoryJournal>::clone(&journal);
    let broker = Broker::start(shared, BrokerSettings::default()).await;
    (broker.unwrap(), journal)
}

fn user(name: &str, tags: &[&str]) -> User {
    User::new(name, Verifiers::default(), tags).unwrap()
}

fn rule(form: Form, name: String) -> Rule {
    Rule {
        subject: Subject::User("ann".into()),
        effect: Effect::Allow,
        kinds: Kind::Topic.into(),
        namespace: None,
        form,
        name: name.into(),
        host: None,
        actions: Actions::of(&[Action::Read]),
    }
}

#[tokio::test]
async fn thousands_of_users_and_rules_are_stored_together_and_judged_one_by_one() {
    let (broker, journal) = start(MemoryJournal::new()).await;
    let (access, by) = (broker.access(), Caller::internal());
    let mut users: Vec<User> = (0..5000).map(|number| user(&format!("u{number}"), &[])).collect();
    let root = access.put_user(&by, user("root", &[SUPERUSER])).await;
    assert!(root.unwrap());
    // The last administrator stays one.
    users.insert(4000, user("root", &[]));
    let done = access.put_users(&by, users).await;
    let refused: Vec<usize> = (0..done.len()).filter(|at| done[*at].is_err()).collect();
    assert_eq!(refused, [4000]);
    assert!(matches!(done[4000], Err(AccessError::LastAdministrator(_))));
    // More patterns than a user may have, among other rules.
    let names = (0..5000).map(|number| rule(Form::Literal, format!("t{number}")));
    let patterns = (0..PATTERNS_MAX + 10).map(|number| rule(Form::Pattern, format!("^p{number}$")));
    let rules: Vec<Rule> = patterns.chain(names).collect();
    let done = access.add_rules(&by, rules.clone()).await;
    let refused: Vec<usize> = (0..done.len()).filter(|at| done[*at].is_err()).collect();
    assert_eq!(refused, (PATTERNS_MAX..PATTERNS_MAX + 10).collect::<Vec<_>>());
    drop(broker);
    let (broker, journal) = start(journal.reopen()).await;
    let access = broker.access();
    let counts = |broker: &Broker| {
        let directory = broker.access().directory();
        (
            directory.user_count(),
            directory.with_rules(stafett_access::Rules::len),
        )
    };
    assert_eq!(counts(&broker), (5001, 5000 + PATTERNS_MAX));
    access.remove_rules(&by, rules).await.unwrap();
    assert_eq!(counts(&broker), (5001, 0));
    drop(broker);
    let (broker, _journal) = start(journal.reopen()).await;
    assert_eq!(counts(&broker), (5001, 0));
}
