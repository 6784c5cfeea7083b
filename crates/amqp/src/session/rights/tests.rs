//! Every method against every kind of right. The methods are those of the wire crate's list, each with `x`
//! for every name; what depends on arguments and contents has tests of its own.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use stafett_access::{Actions, Change, Effect, Form, Kind, Rule, Subject};
use stafett_amqp_wire::methods;

use super::*;
use crate::session::tests::bench::Bench;

/// Most fields of a method's payload, where a table has four.
const FIELDS_MAX: u32 = 14;
const KINDS: [Kind; 3] = [Kind::Queue, Kind::Exchange, Kind::Topic];

/// For each method, rights without which it is refused to a caller that has all others. `x` is also the name
/// of a stored topic, so that a method about a queue needs the right on both.
const NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/session/rights/needed.txt");

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

/// Returns the method whose names are `x` and whose numbers and tables are empty: of the shortest payloads
/// that can be read, that with the most names.
fn sampled(class: u16, number: u16) -> Method {
    let head = [class.to_be_bytes(), number.to_be_bytes()].concat();
    let payload = |fields: u32, names: u32| {
        let each = (0..fields).map(|field| {
            if names >> field & 1 == 1 {
                &b"\x01x"[..]
            } else {
                &[0]
            }
        });
        head.iter()
            .copied()
            .chain(each.flatten().copied())
            .collect::<Bytes>()
    };
    let of_length = |fields: u32| {
        let mut names: Vec<u32> = (0..1 << fields).collect();
        names.sort_by_key(|names| std::cmp::Reverse(names.count_ones()));
        let mut payloads = names.into_iter().map(|names| payload(fields, names));
        payloads.find_map(|payload| Method::decode(payload).ok())
    };
    let found = (0..=FIELDS_MAX).find_map(of_length);
    found.unwrap_or_else(|| panic!("{:?} needs more fields", methods::name_of(class, number)))
}

fn is_refused(session: &mut Session, method: &Method) -> bool {
    let checked = if let Method::Basic(Basic::Publish(publish)) = method {
        session.check_write(&publish.exchange).map_err(MethodError::from)
    } else {
        session.check_rights(1, method)
    };
    match checked {
        Ok(()) => false,
        Err(MethodError::Exception(refused)) => {
            assert_eq!(refused.code, ReplyCode::AccessRefused, "{method:?}");
            true
        }
        Err(MethodError::End(end)) => panic!("{method:?}: {end}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_right_that_a_method_needs_is_checked() {
    let mut bench = Bench::start(&[]).await;
    bench.perform("topic x 1", &[]).await;
    let mut session = bench.session_of("ann");
    let context = Arc::clone(&session.context);
    let directory = context.broker.access().directory();
    let mut found = String::new();
    for (class, number) in methods::ALL {
        let method = sampled(*class, *number);
        assert_eq!(method.id(), (*class, *number));
        let _ = write!(found, "{}:", methods::name_of(*class, *number).unwrap());
        let is_closed = is_refused(&mut session, &method);
        directory.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::ALL)));
        assert!(!is_refused(&mut session, &method), "{method:?} is closed to all");
        let before = found.len();
        for kind in KINDS {
            for action in Action::ALL {
                directory.apply([rule(Effect::Deny, kind, Actions::of(&[action]))]);
                if is_refused(&mut session, &method) {
                    let _ = write!(found, " {kind:?}.{action:?}");
                }
                directory.apply([rule(Effect::Deny, kind, Actions::NONE)]);
            }
        }
        assert_eq!(is_closed, found.len() > before, "{method:?}");
        found.push('\n');
        directory.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::NONE)));
    }
    assert_eq!(
        found,
        std::fs::read_to_string(NEEDED).unwrap(),
        "the rights of a method changed, or a new one is not in needed.txt"
    );
}
