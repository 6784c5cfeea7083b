//! Permissions of a user in a namespace, which are rules of one form: one rule that lets it enter, and one
//! for each pattern.
//!
//! | pattern | actions on queues and exchanges of the namespace |
//! |---|---|
//! | `define` | create, delete, alter, alter settings |
//! | `send`, `receive` | write, read |

use std::collections::BTreeMap;

use crate::action::{Action, Actions};
use crate::resource::{Kind, Kinds};
use crate::rule::{Effect, Form, Rule, Subject};

const ENTER: Actions = Actions::of(&[Action::Read]);
const SEND: Actions = Actions::of(&[Action::Write]);
const RECEIVE: Actions = Actions::of(&[Action::Read]);

/// Patterns of names. A name that none matches may not be used.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Permission {
    pub define: Option<Box<str>>,
    pub send: Option<Box<str>>,
    pub receive: Option<Box<str>>,
}

impl Permission {
    /// Returns true if a rule is a part of a permission.
    #[must_use]
    pub fn is_made_of(rule: &Rule) -> bool {
        let enters =
            rule.kinds == Kind::Namespace.into() && rule.form == Form::Literal && rule.actions == ENTER;
        let is_pattern =
            rule.kinds == Kinds::NAMESPACED && rule.form == Form::Pattern && rule.namespace.is_some();
        rule.effect == Effect::Allow && rule.host.is_none() && (enters || is_pattern)
    }

    /// Returns true if a rule is about queues or exchanges of a namespace.
    pub(crate) fn is_about(rule: &Rule, namespace: &str) -> bool {
        let is_here = rule.namespace.as_deref().is_none_or(|it| it == namespace);
        is_here && Kinds::NAMESPACED.iter().any(|kind| rule.kinds.has(kind))
    }

    /// Returns the namespace of a rule that [`Self::is_made_of`].
    #[must_use]
    pub fn namespace_of(rule: &Rule) -> &str {
        rule.namespace.as_ref().unwrap_or(&rule.name)
    }

    /// Returns the permissions that are made of rules of one user, by namespace.
    #[must_use]
    pub fn all(rules: &[Rule]) -> BTreeMap<Box<str>, Self> {
        let mut found: BTreeMap<Box<str>, Self> = BTreeMap::new();
        for rule in rules {
            let permission = found.entry(Self::namespace_of(rule).into()).or_default();
            if rule.namespace.is_none() {
                continue;
            }
            let add = |pattern: &mut Option<Box<str>>, actions: Actions| {
                if rule.actions.has_all(actions) {
                    *pattern = Some(match pattern.take() {
                        Some(other) => format!("({other})|({})", rule.name).into(),
                        None => rule.name.clone(),
                    });
                }
            };
            add(&mut permission.define, Actions::DEFINE);
            add(&mut permission.send, SEND);
            add(&mut permission.receive, RECEIVE);
        }
        found
    }

    /// Returns the rules of a user that it is made of.
    #[must_use]
    pub fn rules(&self, user: &str, namespace: &str) -> Vec<Rule> {
        let rule = |kinds: Kinds, within: Option<Box<str>>, form, name: &str, actions| Rule {
            subject: Subject::User(user.into()),
            effect: Effect::Allow,
            kinds,
            namespace: within,
            form,
            name: name.into(),
            host: None,
            actions,
        };
        let enters = rule(Kind::Namespace.into(), None, Form::Literal, namespace, ENTER);
        let patterns = [
            (&self.define, Actions::DEFINE),
            (&self.send, SEND),
            (&self.receive, RECEIVE),
        ];
        let patterns = patterns.into_iter().filter_map(|(pattern, actions)| {
            let within = Some(namespace.into());
            let pattern = pattern.as_deref()?;
            Some(rule(Kinds::NAMESPACED, within, Form::Pattern, pattern, actions))
        });
        std::iter::once(enters).chain(patterns).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_reads_back_from_its_rules() {
        let permission = Permission {
            define: Some("".into()),
            send: Some("^a$".into()),
            receive: None,
        };
        let rules = permission.rules("ann", "shop");
        assert!(rules.iter().all(Permission::is_made_of));
        let all = Permission::all(&rules);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("shop".into(), permission)]);
        let other = Rule {
            form: Form::Prefix,
            ..rules[1].clone()
        };
        assert!(!Permission::is_made_of(&other));
        assert!(Permission::is_about(&other, "shop") && !Permission::is_about(&other, "/"));
        assert!(!Permission::is_about(&rules[0], "shop"), "the right to enter");
    }
}
