//! Makes many decisions of one caller: `bench/rules.py` counts the instructions of each.
//!
//! `decisions RULES DECISIONS TOPICS`: a user with RULES rules makes DECISIONS checks of the right to write, over
//! TOPICS topics in turn. With `open` for RULES, the broker has no users.

#![expect(clippy::panic, reason = "a measurement ends by panicking")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use stafett_access::{
    Action, Actions, Caller, Change, Directory, Effect, Form, Kind, Resource, Rule, SUPERUSER, Subject, User,
    Verifiers,
};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn rule(form: Form, name: String) -> Change {
    Change::SetRule(Rule {
        subject: Subject::User("ann".into()),
        effect: Effect::Allow,
        kinds: Kind::Topic.into(),
        namespace: None,
        form,
        name: name.into(),
        host: None,
        actions: Actions::of(&[Action::Read, Action::Write]),
    })
}

fn caller(directory: &Arc<Directory>, rules: &str) -> Caller {
    if rules == "open" {
        return Caller::anonymous(directory, PEER);
    }
    let count: usize = rules.parse().expect("a number of rules");
    let user =
        |name, tags: &[&str]| Change::PutUser(User::new(name, Verifiers::default(), tags).expect("a name"));
    directory.apply([
        user("root", &[SUPERUSER]),
        user("ann", &[]),
        rule(Form::Prefix, "load-".to_owned()),
    ]);
    let other = |number| {
        let form = if number % 2 == 0 {
            Form::Literal
        } else {
            Form::Prefix
        };
        rule(form, format!("other-orders-{number}"))
    };
    directory.apply((1..count).map(other));
    Caller::user(directory, "ann", PEER)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rules, decisions, topics] = arguments.as_slice() else {
        panic!("decisions RULES DECISIONS TOPICS");
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (decisions, topics) = (number(decisions), number(topics));
    let directory = Arc::new(Directory::default());
    let caller = caller(&directory, rules);
    let names: Vec<String> = (0..topics).map(|topic| format!("load-{topic}")).collect();
    for name in names.iter().cycle().take(decisions) {
        // What each request of a client asks: whether its user is there, and for the right.
        assert!(black_box(&caller).is_valid());
        let checked = black_box(&caller).check(Action::Write, &Resource::topic(black_box(name)));
        assert!(checked.is_ok());
    }
}
