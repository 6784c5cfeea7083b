//! Kafka's ACLs as rules, and rules as ACLs.
//!
//! | Kafka | rule |
//! |---|---|
//! | `User:ann`, `Role:clerks`, `User:*` | a user, users with a tag, everyone |
//! | a literal name, `*`, a prefix | a literal name, the empty prefix, a prefix |
//! | host `*`, an address | all peers, one |
//! | the cluster `kafka-cluster` | the cluster |
//!
//! Rules with patterns, and those about things that Kafka does not know, have no ACL and are left out of
//! lists.

use std::net::IpAddr;

use stafett_access::{Action, Actions, Effect, Form, Kind, Kinds, Resource, Rule, Subject};
use stafett_kafka_wire::Str;

const ANY: i8 = 1;
const MATCH: i8 = 2;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const DENY: i8 = 2;
const ALLOW: i8 = 3;
/// Name of all things, principals and hosts.
const WILDCARD: &str = "*";
const CLUSTER_NAME: &str = "kafka-cluster";

/// Numbers of Kafka's `ResourceType`.
const KINDS: [(i8, Kind); 6] = [
    (2, Kind::Topic),
    (3, Kind::Group),
    (4, Kind::Cluster),
    (5, Kind::TransactionalId),
    (6, Kind::Token),
    (7, Kind::User),
];

/// Numbers of Kafka's `AclOperation`.
const OPERATIONS: [(i8, Actions); 14] = [
    (2, Actions::ALL),
    (3, Actions::of(&[Action::Read])),
    (4, Actions::of(&[Action::Write])),
    (5, Actions::of(&[Action::Create])),
    (6, Actions::of(&[Action::Delete])),
    (7, Actions::of(&[Action::Alter])),
    (8, Actions::of(&[Action::Describe])),
    (9, Actions::of(&[Action::Operate])),
    (10, Actions::of(&[Action::DescribeSettings])),
    (11, Actions::of(&[Action::AlterSettings])),
    (12, Actions::of(&[Action::WriteIdempotent])),
    (13, Actions::of(&[Action::CreateTokens])),
    (14, Actions::of(&[Action::DescribeTokens])),
    (15, Actions::of(&[Action::Prepare])),
];

/// One ACL, in Kafka's numbers and words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Acl {
    pub kind: i8,
    pub name: Str,
    pub form: i8,
    pub principal: Str,
    pub host: Str,
    pub operation: i8,
    pub permission: i8,
}

impl Acl {
    /// Returns the rule, or the reason why there is none.
    pub(crate) fn rule(&self) -> Result<Rule, &'static str> {
        let kind = KINDS.iter().find(|(number, _)| *number == self.kind);
        let (_, kind) = kind.ok_or("Invalid resource type")?;
        if self.name.is_empty() {
            return Err("Invalid empty resource name");
        }
        let (form, name) = match (self.form, *kind, &*self.name) {
            (LITERAL, _, WILDCARD) => (Form::Prefix, ""),
            (LITERAL, Kind::Cluster, CLUSTER_NAME) => (Form::Literal, Resource::CLUSTER_NAME),
            (_, Kind::Cluster, _) => {
                return Err("The only valid name for the CLUSTER resource is kafka-cluster");
            }
            (LITERAL, _, name) => (Form::Literal, name),
            (PREFIXED, _, name) => (Form::Prefix, name),
            _ => return Err("Invalid pattern type"),
        };
        let subject = match self.principal.split_once(':') {
            Some(("User", WILDCARD)) => Subject::Everyone,
            Some(("User", name)) if !name.is_empty() => Subject::User(name.into()),
            Some(("Role", name)) if !name.is_empty() => Subject::Role(name.into()),
            _ => return Err("The principal is User:NAME, User:* or Role:NAME"),
        };
        let host = match &*self.host {
            WILDCARD => None,
            address => Some(address.parse().map_err(|_| "The host is * or an address")?),
        };
        let actions = OPERATIONS.iter().find(|(number, _)| *number == self.operation);
        let (_, actions) = actions.ok_or("Invalid operation type")?;
        let effect = match self.permission {
            ALLOW => Effect::Allow,
            DENY => Effect::Deny,
            _ => return Err("Invalid permission type"),
        };
        Ok(Rule {
            subject,
            effect,
            kinds: Kinds::from(*kind),
            namespace: None,
            form,
            name: name.into(),
            host: host.map(|host: IpAddr| host.to_canonical()),
            actions: *actions,
        })
    }

    /// Returns true if the ACLs of a rule say all of it.
    pub(crate) fn are_all_of(rule: &Rule) -> bool {
        let has_kind = |kind: Kind| KINDS.iter().any(|(_, known)| *known == kind);
        rule.form != Form::Pattern && rule.namespace.is_none() && rule.kinds.iter().all(has_kind)
    }

    /// Returns the ACLs that a rule is.
    pub(crate) fn of_rule(rule: &Rule) -> Vec<Self> {
        let (form, name) = match (rule.form, &*rule.name) {
            (Form::Prefix, "") => (LITERAL, WILDCARD),
            (Form::Prefix, name) => (PREFIXED, name),
            (Form::Literal, name) => (LITERAL, name),
            (Form::Pattern, _) => return Vec::new(),
        };
        if rule.namespace.is_some() {
            return Vec::new();
        }
        let principal = match &rule.subject {
            Subject::User(name) => format!("User:{name}"),
            Subject::Role(name) => format!("Role:{name}"),
            Subject::Everyone => "User:*".to_owned(),
        };
        let host = rule
            .host
            .map_or_else(|| WILDCARD.to_owned(), |host| host.to_string());
        let kinds = KINDS.iter().filter(|(_, kind)| rule.kinds.has(*kind));
        let operations = OPERATIONS
            .iter()
            .filter(|(_, actions)| rule.actions.has_all(*actions));
        let acl = |(number, kind): &(i8, Kind), operation: i8| Self {
            kind: *number,
            name: if *kind == Kind::Cluster && form == LITERAL && name == Resource::CLUSTER_NAME {
                CLUSTER_NAME.into()
            } else {
                Str::copy_from(name)
            },
            form,
            principal: Str::copy_from(&principal),
            host: Str::copy_from(&host),
            operation,
            permission: match rule.effect {
                Effect::Allow => ALLOW,
                Effect::Deny => DENY,
            },
        };
        kinds
            .flat_map(|kind| operations.clone().map(move |(operation, _)| (kind, *operation)))
            .map(|(kind, operation)| acl(kind, operation))
            .collect()
    }
}

/// Choice of ACLs.
#[derive(Debug, Clone)]
pub(crate) struct AclFilter {
    pub kind: i8,
    pub name: Option<Str>,
    pub form: i8,
    pub principal: Option<Str>,
    pub host: Option<Str>,
    pub operation: i8,
    pub permission: i8,
}

impl AclFilter {
    /// Returns true if its numbers are known.
    pub(crate) fn is_valid(&self) -> bool {
        let is_kind = self.kind == ANY || KINDS.iter().any(|(number, _)| *number == self.kind);
        let is_operation = self.operation == ANY || OPERATIONS.iter().any(|(it, _)| *it == self.operation);
        let is_form = (ANY..=PREFIXED).contains(&self.form);
        is_kind && is_operation && is_form && (ANY..=ALLOW).contains(&self.permission)
    }

    pub(crate) fn takes(&self, acl: &Acl) -> bool {
        let is = |wanted: i8, is: i8| wanted == ANY || wanted == is;
        let reads = |wanted: &Option<Str>, is: &Str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        is(self.kind, acl.kind)
            && is(self.operation, acl.operation)
            && is(self.permission, acl.permission)
            && reads(&self.principal, &acl.principal)
            && reads(&self.host, &acl.host)
            && self.takes_name(acl)
    }

    fn takes_name(&self, acl: &Acl) -> bool {
        let Some(name) = &self.name else {
            return matches!(self.form, ANY | MATCH) || self.form == acl.form;
        };
        match self.form {
            MATCH if acl.form == LITERAL => &acl.name == name || &*acl.name == WILDCARD,
            MATCH => name.starts_with(&*acl.name),
            ANY => &acl.name == name,
            form => form == acl.form && &acl.name == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(kind: i8, name: &'static str, form: i8) -> Acl {
        Acl {
            kind,
            name: name.into(),
            form,
            principal: "User:ann".into(),
            host: "*".into(),
            operation: 3,
            permission: ALLOW,
        }
    }

    #[test]
    fn each_acl_is_a_rule_and_the_same_acl_again() {
        for (number, kind) in KINDS {
            let (name, forms) = if kind == Kind::Cluster {
                (CLUSTER_NAME, &[LITERAL][..])
            } else {
                ("orders", &[LITERAL, PREFIXED][..])
            };
            for form in forms {
                for (operation, _) in OPERATIONS {
                    for (principal, host) in [("User:ann", "*"), ("User:*", "192.0.2.1"), ("Role:x", "*")] {
                        let acl = Acl {
                            operation,
                            principal: principal.into(),
                            host: host.into(),
                            ..acl(number, name, *form)
                        };
                        assert_eq!(Acl::of_rule(&acl.rule().unwrap()), std::slice::from_ref(&acl));
                    }
                }
            }
        }
        let all = acl(2, WILDCARD, LITERAL);
        assert_eq!(all.rule().unwrap().form, Form::Prefix);
        assert_eq!(Acl::of_rule(&all.rule().unwrap()), [all]);
    }

    #[test]
    fn malformed_acls_are_refused() {
        let good = acl(2, "orders", LITERAL);
        let bad = [
            acl(1, "orders", LITERAL),
            acl(9, "orders", LITERAL),
            acl(2, "", LITERAL),
            acl(2, "orders", MATCH),
            acl(4, "other", LITERAL),
            acl(4, CLUSTER_NAME, PREFIXED),
            Acl {
                principal: "ann".into(),
                ..good.clone()
            },
            Acl {
                principal: "User:".into(),
                ..good.clone()
            },
            Acl {
                host: "somewhere".into(),
                ..good.clone()
            },
            Acl {
                operation: 1,
                ..good.clone()
            },
            Acl {
                permission: 1,
                ..good
            },
        ];
        for acl in bad {
            assert!(acl.rule().is_err(), "{acl:?}");
        }
    }

    #[test]
    fn filters_take_names_as_kafka_does() {
        let filter = |name: Option<&'static str>, form| AclFilter {
            kind: ANY,
            name: name.map(Into::into),
            form,
            principal: None,
            host: None,
            operation: ANY,
            permission: ANY,
        };
        let (literal, all, prefix) = (
            acl(2, "orders", LITERAL),
            acl(2, "*", LITERAL),
            acl(2, "ord", PREFIXED),
        );
        for (filter, expected) in [
            (filter(None, ANY), [true, true, true]),
            (filter(None, LITERAL), [true, true, false]),
            (filter(Some("orders"), ANY), [true, false, false]),
            (filter(Some("orders"), MATCH), [true, true, true]),
            (filter(Some("ord"), PREFIXED), [false, false, true]),
        ] {
            assert_eq!(
                [&literal, &all, &prefix].map(|acl| filter.takes(acl)),
                expected,
                "{filter:?}"
            );
        }
    }
}
