//! The paths of the API, and the right that each needs, by the tags and permissions of the user. A path that
//! is not in the table is not there, whatever is behind it, so a new one cannot be forgotten.
//!
//! | right | who |
//! |---|---|
//! | member | a user with any tag of the management API |
//! | virtual host | a member that may enter it, or sees everything |
//! | policymaker | `policymaker`, `administrator`, `superuser`, in a virtual host that it may enter |
//! | monitor | `monitoring`, `administrator`, `superuser`: things outside of virtual hosts |
//! | administrator | `administrator`, `superuser` |
//!
//! Rights on queues and exchanges are those of AMQP, as changes and messages go through a session.

use axum::http::Method;
use stafett_access::{Action, Caller, MANAGEMENT_TAGS, POLICYMAKER, Resource, User};

use self::Right::{Administrator, Member, Monitor, Policymaker, Vhost};
use super::call::Call;
use super::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Member,
    Vhost,
    Policymaker,
    Monitor,
    Administrator,
}

/// Paths behind `/api`, with the rights to read and to do anything else. `{vhost}` and so on stand for names.
/// The first one that fits counts.
const ROUTES: &[(&str, Right, Right)] = &[
    ("", Member, Member),
    ("whoami", Member, Member),
    ("version", Member, Member),
    ("cluster-name", Member, Member),
    ("extensions", Member, Member),
    ("auth", Member, Member),
    ("auth/hash_password/{password}", Member, Member),
    ("auth/attempts/{node}", Administrator, Administrator),
    ("overview", Member, Member),
    ("feature-flags", Member, Member),
    ("deprecated-features", Member, Member),
    ("deprecated-features/used", Member, Member),
    ("health/checks/{check}", Member, Member),
    ("health/checks/{check}/{of}", Member, Member),
    ("health/checks/{check}/{count}/{unit}", Member, Member),
    ("healthchecks/node", Member, Member),
    ("healthchecks/node/{node}", Member, Member),
    ("aliveness-test/{vhost}", Vhost, Vhost),
    ("nodes", Monitor, Monitor),
    ("nodes/{node}", Monitor, Monitor),
    ("nodes/{node}/memory", Monitor, Monitor),
    // Lists of things in the virtual hosts that the user may enter.
    ("vhosts", Member, Member),
    ("queues", Member, Member),
    ("queues/detailed", Member, Member),
    ("exchanges", Member, Member),
    ("bindings", Member, Member),
    ("policies", Member, Member),
    ("parameters", Member, Member),
    ("vhosts/{vhost}", Vhost, Administrator),
    ("vhosts/{vhost}/connections", Monitor, Monitor),
    ("vhosts/{vhost}/channels", Monitor, Monitor),
    ("vhosts/{vhost}/permissions", Administrator, Administrator),
    ("vhosts/{vhost}/topic-permissions", Administrator, Administrator),
    ("queues/{vhost}", Vhost, Vhost),
    ("queues/{vhost}/{queue}", Vhost, Vhost),
    ("queues/{vhost}/{queue}/bindings", Vhost, Vhost),
    ("queues/{vhost}/{queue}/contents", Vhost, Vhost),
    ("queues/{vhost}/{queue}/get", Vhost, Vhost),
    ("exchanges/{vhost}", Vhost, Vhost),
    ("exchanges/{vhost}/{exchange}", Vhost, Vhost),
    ("exchanges/{vhost}/{exchange}/bindings/{side}", Vhost, Vhost),
    ("exchanges/{vhost}/{exchange}/publish", Vhost, Vhost),
    ("bindings/{vhost}", Vhost, Vhost),
    ("bindings/{vhost}/e/{source}/{kind}/{destination}", Vhost, Vhost),
    (
        "bindings/{vhost}/e/{source}/{kind}/{destination}/{key}",
        Vhost,
        Vhost,
    ),
    // For members without `monitoring`, their own.
    ("connections", Member, Member),
    ("connections/username/{user}", Monitor, Administrator),
    ("connections/{connection}", Monitor, Administrator),
    ("connections/{connection}/channels", Monitor, Monitor),
    ("channels", Member, Member),
    ("channels/{channel}", Monitor, Monitor),
    ("consumers", Monitor, Monitor),
    ("consumers/{vhost}", Vhost, Vhost),
    ("definitions", Administrator, Administrator),
    ("definitions/{vhost}", Administrator, Administrator),
    ("all-configuration", Administrator, Administrator),
    ("users", Administrator, Administrator),
    ("users/{user}", Administrator, Administrator),
    ("users/{user}/permissions", Administrator, Administrator),
    ("users/{user}/topic-permissions", Administrator, Administrator),
    ("permissions", Administrator, Administrator),
    ("permissions/{vhost}", Administrator, Administrator),
    ("permissions/{vhost}/{user}", Administrator, Administrator),
    ("topic-permissions", Administrator, Administrator),
    ("topic-permissions/{vhost}", Administrator, Administrator),
    ("topic-permissions/{vhost}/{user}", Administrator, Administrator),
    ("policies/{vhost}", Vhost, Vhost),
    ("policies/{vhost}/{policy}", Policymaker, Policymaker),
    ("operator-policies", Administrator, Administrator),
    ("operator-policies/{vhost}", Administrator, Administrator),
    ("operator-policies/{vhost}/{policy}", Administrator, Administrator),
    ("vhost-limits", Administrator, Administrator),
    ("vhost-limits/{vhost}", Administrator, Administrator),
    ("vhost-limits/{vhost}/{limit}", Administrator, Administrator),
    ("user-limits", Administrator, Administrator),
    ("user-limits/{user}", Administrator, Administrator),
    ("user-limits/{user}/{limit}", Administrator, Administrator),
    ("parameters/{component}", Monitor, Monitor),
    ("parameters/{component}/{vhost}/{name}", Vhost, Administrator),
    ("global-parameters", Administrator, Administrator),
    ("global-parameters/{name}", Administrator, Administrator),
    ("rebalance/queues", Administrator, Administrator),
];

/// Returns true if the caller may enter a virtual host, or sees everything.
pub(super) fn may_see(caller: &Caller, vhost: &str) -> bool {
    caller.may(Action::Read, &Resource::namespace(vhost)) || is_monitor(caller)
}

/// Returns true for a user that sees things outside of virtual hosts, and those of other users.
pub(super) fn is_monitor(caller: &Caller) -> bool {
    caller.may(Action::Describe, &Resource::CLUSTER)
}

/// Refuses a request that the user may not make, and one of a path that is not there.
pub(super) fn check(call: &Call) -> Result<(), Refusal> {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let user = call.context.broker.access().directory().user(&call.user.user);
    check_path(&call.user.caller, user.as_deref(), &call.method, &path)
}

fn check_path(caller: &Caller, user: Option<&User>, method: &Method, path: &[&str]) -> Result<(), Refusal> {
    let found = right(method, path);
    if caller.is_unrestricted() {
        return found.map(drop).ok_or_else(Refusal::no_object);
    }
    let has_tag = |tag: &str| user.is_some_and(|user| user.has_tag(tag));
    if !MANAGEMENT_TAGS.iter().any(|tag| has_tag(tag)) {
        return Err(Refusal::no_member());
    }
    let (right, vhost) = found.ok_or_else(Refusal::no_object)?;
    let (is_allowed, why) = match right {
        Member => (true, ""),
        Policymaker if !has_tag(POLICYMAKER) && !is_administrator(caller) => {
            (false, "User not authorised to access object")
        }
        Vhost | Policymaker => {
            let vhost = if vhost.is_empty() { "/" } else { vhost };
            (
                may_see(caller, vhost),
                "User not authorised to access virtual host",
            )
        }
        Monitor => (is_monitor(caller), "Not monitor user"),
        Administrator => (is_administrator(caller), "Not administrator user"),
    };
    if is_allowed {
        Ok(())
    } else {
        Err(Refusal::not_authorised(why))
    }
}

fn is_administrator(caller: &Caller) -> bool {
    caller.check(Action::Alter, &Resource::CLUSTER).is_ok()
}

/// Returns the right that a request needs, and the virtual host in its path; `None` for a path that is not
/// there.
fn right<'a>(method: &Method, path: &[&'a str]) -> Option<(Right, &'a str)> {
    let reads = *method == Method::GET || *method == Method::OPTIONS;
    ROUTES.iter().find_map(|(template, read, change)| {
        let vhost = vhost_in(template, path)?;
        Some((if reads { *read } else { *change }, vhost))
    })
}

/// Returns the virtual host of a path that a template fits; empty without one.
fn vhost_in<'a>(template: &str, path: &[&'a str]) -> Option<&'a str> {
    let parts = || template.split('/').filter(|part| !part.is_empty());
    if parts().count() != path.len() {
        return None;
    }
    let mut vhost = "";
    for (part, given) in parts().zip(path) {
        if part == "{vhost}" {
            vhost = given;
        } else if !part.starts_with('{') && part != *given {
            return None;
        }
    }
    Some(vhost)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use stafett_access::{Actions, Change, Directory, Effect, Form, Kind, Rule, Subject, Verifiers};

    use super::*;

    /// For each path, the tags that may read it and do anything else with it; `*` behind those that have to
    /// enter the virtual host.
    const NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/management/needed.txt");
    const TAGS: [&str; 5] = [
        "management",
        "policymaker",
        "monitoring",
        "administrator",
        "superuser",
    ];
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn allow(user: &str, kinds: Kind, actions: Actions) -> Change {
        Change::SetRule(Rule {
            subject: Subject::User(user.into()),
            effect: Effect::Allow,
            kinds: kinds.into(),
            namespace: None,
            form: Form::Prefix,
            name: "".into(),
            host: None,
            actions,
        })
    }

    /// Users with each tag: `TAG`, and `TAG in` that may enter all virtual hosts. `none` has all rules and no
    /// tag.
    fn directory() -> Arc<Directory> {
        let directory = Arc::new(Directory::default());
        let user =
            |name: &str, tags: &[&str]| Change::PutUser(User::new(name, Verifiers::default(), tags).unwrap());
        directory.apply([user("none", &[])]);
        directory.apply(Kind::ALL.map(|kind| allow("none", kind, Actions::ALL)));
        for tag in TAGS {
            let inside = format!("{tag} in");
            directory.apply([user(tag, &[tag]), user(&inside, &[tag])]);
            directory.apply([allow(&inside, Kind::Namespace, Actions::of(&[Action::Read]))]);
        }
        directory
    }

    #[test]
    fn each_path_is_open_to_the_tags_of_its_right_alone() {
        let directory = directory();
        let admits = |name: &str, method: &Method, path: &[&str]| {
            let user = directory.user(name);
            let caller = Caller::user(&directory, name, HERE);
            check_path(&caller, user.as_deref(), method, path).is_ok()
        };
        let admitted = |method: &Method, path: &[&str]| {
            assert!(!admits("none", method, path), "{path:?}");
            let of = |tag: &str| match (
                admits(tag, method, path),
                admits(&format!("{tag} in"), method, path),
            ) {
                (true, true) => Some(tag.to_owned()),
                (false, true) => Some(format!("{tag}*")),
                (_, false) => None,
            };
            TAGS.into_iter().filter_map(of).collect::<Vec<_>>().join(" ")
        };
        let mut found = String::new();
        for (template, ..) in ROUTES {
            let parts = template.split('/').filter(|part| !part.is_empty());
            let path: Vec<&str> = parts
                .map(|part| if part.starts_with('{') { "x" } else { part })
                .collect();
            let (read, change) = (admitted(&Method::GET, &path), admitted(&Method::PUT, &path));
            for method in [Method::POST, Method::DELETE, Method::PATCH] {
                assert_eq!(admitted(&method, &path), change, "{method} {template}");
            }
            let _ = writeln!(found, "/api/{template}: {read} | {change}");
        }
        if std::env::var_os("UPDATE_NEEDED").is_some() {
            std::fs::write(NEEDED, &found).unwrap();
        }
        assert_eq!(
            found,
            std::fs::read_to_string(NEEDED).unwrap(),
            "the rights of a path changed, or a new one is not in needed.txt: UPDATE_NEEDED=1 writes it"
        );
    }

    #[test]
    fn a_path_that_is_not_in_the_table_is_not_there() {
        let directory = directory();
        let root = directory.user("superuser");
        for who in [Caller::user(&directory, "superuser", HERE), Caller::internal()] {
            for path in [
                &["something", "new"][..],
                &["queues", "x", "q", "new"],
                &["health"],
            ] {
                let checked = check_path(&who, root.as_deref(), &Method::GET, path);
                assert!(checked.is_err(), "{path:?}");
            }
        }
        assert_eq!(right(&Method::GET, &["queues", "", "q"]), Some((Vhost, "")));
        assert_eq!(
            right(&Method::PUT, &["policies", "y", "p"]),
            Some((Policymaker, "y"))
        );
    }

    /// The document of the API has a row for each path of the table.
    #[test]
    fn each_path_is_in_the_document() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/management-support.md");
        let document = std::fs::read_to_string(document).unwrap();
        for (template, ..) in ROUTES {
            let first = template.split('/').next().unwrap();
            assert!(document.contains(&format!("`{first}")), "{template}");
        }
    }
}
