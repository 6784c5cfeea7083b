//! All rules, by subject and name.
//!
//! A decision looks up the name itself, the prefixes of it whose lengths occur, and the patterns of the
//! subject, of which there are few. It does not depend on the number of rules of other subjects or for other
//! names.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use stafett_model::Lock;

use crate::action::{Action, Actions};
use crate::pattern::{BadPattern, Pattern};
use crate::resource::{Kind, Kinds, Resource};
use crate::rule::{Effect, Form, Rule, Subject};

/// Rules with patterns that one subject may have.
pub const PATTERNS_MAX: usize = 256;
/// Rules that may be stored.
const RULES_MAX: usize = 2_000_000;
/// Bytes of the longest name in a rule, of a subject or of a thing.
const NAME_BYTES_MAX: usize = 1024;
/// Compiled patterns that are kept.
const COMPILED_MAX: usize = 256;

/// A rule that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    #[error("a rule needs at least one action and one kind of thing")]
    Empty,
    #[error("a name in a rule has at most {NAME_BYTES_MAX} bytes")]
    LongName,
    #[error("a user or role has at most {PATTERNS_MAX} rules with patterns: use names and prefixes")]
    ManyPatterns,
    #[error("there are at most {RULES_MAX} rules")]
    ManyRules,
}

/// Part of a rule that is looked up. Ordered by form and name first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    form: Form,
    name: Box<str>,
    namespace: Option<Box<str>>,
    kinds: Kinds,
    effect: Effect,
    host: Option<IpAddr>,
}

impl Key {
    /// Returns the least key of a name.
    fn first(form: Form, name: &str) -> Self {
        Self {
            form,
            name: name.into(),
            namespace: None,
            kinds: Kinds::default(),
            effect: Effect::Allow,
            host: None,
        }
    }

    fn is_for(&self, resource: &Resource<'_>, peer: IpAddr) -> bool {
        self.kinds.has(resource.kind)
            && self.host.is_none_or(|host| host == peer)
            && self
                .namespace
                .as_deref()
                .is_none_or(|namespace| namespace == resource.namespace)
    }
}

/// Rules of one subject.
#[derive(Debug, Default)]
struct OfSubject {
    rows: BTreeMap<Key, Actions>,
    /// Lengths of prefixes, with the number of rules of each.
    prefix_lengths: BTreeMap<usize, usize>,
    patterns: usize,
    prohibitions: usize,
}

#[derive(Debug, Default)]
pub struct Rules {
    subjects: BTreeMap<Subject, OfSubject>,
    len: usize,
    compiled: Lock<HashMap<Box<str>, Arc<Pattern>>>,
}

/// Answer of the rules of some subjects about an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Verdict {
    /// No rule is about it.
    #[default]
    Silent,
    Allowed,
    Forbidden,
}

impl Rules {
    /// Checks a rule that is to be added behind this many new ones, which are not here yet.
    pub fn check(&self, rule: &Rule, planned: usize) -> Result<(), BadRule> {
        if rule.actions.is_empty() || rule.kinds.is_empty() {
            return Err(BadRule::Empty);
        }
        let (Subject::User(subject) | Subject::Role(subject)) = &rule.subject else {
            return self.check_name(rule, "", planned);
        };
        self.check_name(rule, subject, planned)
    }

    fn check_name(&self, rule: &Rule, subject: &str, planned: usize) -> Result<(), BadRule> {
        let namespace = rule.namespace.as_deref().unwrap_or_default();
        if [subject, namespace, &rule.name]
            .iter()
            .any(|name| name.len() > NAME_BYTES_MAX)
        {
            return Err(BadRule::LongName);
        }
        if self.len.saturating_add(planned) >= RULES_MAX && self.actions(rule).is_none() {
            return Err(BadRule::ManyRules);
        }
        if rule.form == Form::Pattern {
            Pattern::new(&rule.name)?;
            let patterns = self.subjects.get(&rule.subject).map_or(0, |rules| rules.patterns);
            if patterns >= PATTERNS_MAX && self.actions(rule).is_none() {
                return Err(BadRule::ManyPatterns);
            }
        }
        Ok(())
    }

    /// Returns the actions of the rule that differs from this one in nothing else.
    #[must_use]
    pub fn actions(&self, rule: &Rule) -> Option<Actions> {
        let (subject, key, _) = parts(rule.clone());
        self.subjects.get(&subject)?.rows.get(&key).copied()
    }

    /// Replaces the actions of a rule; without actions it is removed.
    pub(crate) fn set(&mut self, rule: Rule) {
        let (subject, key, actions) = parts(rule);
        if actions.is_empty() {
            self.remove(&subject, &key);
            return;
        }
        let rules = self.subjects.entry(subject).or_default();
        let (form, length, effect) = (key.form, key.name.len(), key.effect);
        if rules.rows.insert(key, actions).is_some() {
            return;
        }
        self.len += 1;
        rules.prohibitions += usize::from(effect == Effect::Deny);
        match form {
            Form::Literal => {}
            Form::Prefix => *rules.prefix_lengths.entry(length).or_default() += 1,
            Form::Pattern => rules.patterns += 1,
        }
    }

    fn remove(&mut self, subject: &Subject, key: &Key) {
        let Some(rules) = self.subjects.get_mut(subject) else {
            return;
        };
        if rules.rows.remove(key).is_none() {
            return;
        }
        self.len -= 1;
        rules.prohibitions -= usize::from(key.effect == Effect::Deny);
        match key.form {
            Form::Literal => {}
            Form::Prefix => {
                let length = key.name.len();
                let count = rules.prefix_lengths.entry(length).or_insert(1);
                *count -= 1;
                if *count == 0 {
                    rules.prefix_lengths.remove(&length);
                }
            }
            Form::Pattern => rules.patterns -= 1,
        }
        if rules.rows.is_empty() {
            self.subjects.remove(subject);
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all rules, by subject.
    pub fn iter(&self) -> impl Iterator<Item = Rule> {
        let subjects = self.subjects.iter();
        subjects.flat_map(|(subject, rules)| rules.rows.iter().map(|row| whole(subject, row)))
    }

    /// Iterates over the rules of a subject.
    pub fn of<'a>(&'a self, subject: &'a Subject) -> impl Iterator<Item = Rule> {
        let rules = self.subjects.get(subject).into_iter();
        rules.flat_map(|rules| rules.rows.iter().map(|row| whole(subject, row)))
    }

    /// Returns the answer of the rules of `subject`. A prohibition goes before a permission.
    pub(crate) fn verdict(
        &self,
        subject: &Subject,
        action: Action,
        resource: &Resource<'_>,
        peer: IpAddr,
    ) -> Verdict {
        let Some(rules) = self.subjects.get(subject) else {
            return Verdict::Silent;
        };
        let mut verdict = Verdict::Silent;
        let mut visit = |key: &Key, actions: Actions| {
            if key.is_for(resource, peer) {
                match key.effect {
                    Effect::Allow if actions.permits(action) => verdict = Verdict::Allowed,
                    Effect::Deny if actions.forbids(action) => return true,
                    Effect::Allow | Effect::Deny => {}
                }
            }
            false
        };
        let is_live = resource.kind == Kind::LiveTopic && !resource.name.is_empty();
        let forbidden = rules.visit_name(Form::Literal, resource.name, &mut visit)
            // Rules on live topics had no other name once, and it stood for all of them.
            || (is_live && rules.visit_name(Form::Literal, "", &mut visit))
            || rules
                .prefix_lengths
                .range(..=resource.name.len())
                .any(|(length, _)| {
                    let prefix = resource.name.get(..*length);
                    prefix.is_some_and(|prefix| rules.visit_name(Form::Prefix, prefix, &mut visit))
                })
            || rules.patterns().any(|(key, actions)| {
                key.is_for(resource, peer)
                    && self
                        .compiled(&key.name)
                        .is_some_and(|it| it.matches(resource.name))
                    && visit(key, *actions)
            });
        if forbidden { Verdict::Forbidden } else { verdict }
    }

    /// Returns the answer about all things of a kind together: a permission holds for each of them. Any
    /// prohibition of the subject counts as one, as it may be about some of them.
    pub(crate) fn verdict_on_all(
        &self,
        subject: &Subject,
        action: Action,
        kind: Kind,
        peer: IpAddr,
    ) -> Verdict {
        let Some(rules) = self.subjects.get(subject) else {
            return Verdict::Silent;
        };
        if rules.prohibitions > 0 {
            return Verdict::Forbidden;
        }
        let all = Resource::new(kind, "");
        let mut permits = |key: &Key, actions: Actions| key.is_for(&all, peer) && actions.permits(action);
        let is_allowed = rules.visit_name(Form::Prefix, "", &mut permits)
            || (kind == Kind::LiveTopic && rules.visit_name(Form::Literal, "", &mut permits));
        if is_allowed {
            Verdict::Allowed
        } else {
            Verdict::Silent
        }
    }

    /// Returns true if a rule of `subject` forbids `action` on all things of a kind.
    pub(crate) fn forbids_all(&self, subject: &Subject, action: Action, kind: Kind, peer: IpAddr) -> bool {
        let Some(rules) = self.subjects.get(subject).filter(|rules| rules.prohibitions > 0) else {
            return false;
        };
        let mut forbids = |key: &Key, actions: Actions| {
            let is_about = key.kinds.has(kind) && key.host.is_none_or(|host| host == peer);
            key.effect == Effect::Deny && is_about && key.namespace.is_none() && actions.forbids(action)
        };
        rules.visit_name(Form::Prefix, "", &mut forbids)
            || (kind == Kind::LiveTopic && rules.visit_name(Form::Literal, "", &mut forbids))
    }

    /// Returns true if a rule of `subject` permits `action` on any thing of a kind.
    pub(crate) fn permits_any(&self, subject: &Subject, action: Action, kinds: Kinds, peer: IpAddr) -> bool {
        let rules = self.subjects.get(subject);
        rules.is_some_and(|rules| {
            rules.rows.iter().any(|(key, actions)| {
                key.effect == Effect::Allow
                    && key.kinds.iter().any(|kind| kinds.has(kind))
                    && key.host.is_none_or(|host| host == peer)
                    && actions.permits(action)
            })
        })
    }

    fn compiled(&self, pattern: &str) -> Option<Arc<Pattern>> {
        let mut compiled = self.compiled.lock();
        if let Some(known) = compiled.get(pattern) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(Pattern::new(pattern).ok()?);
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(pattern.into(), Arc::clone(&made));
        Some(made)
    }
}

impl OfSubject {
    /// Visits the rules with a name until `visit` returns true.
    fn visit_name(&self, form: Form, name: &str, visit: &mut impl FnMut(&Key, Actions) -> bool) -> bool {
        let rows = self.rows.range(Key::first(form, name)..);
        rows.take_while(|(key, _)| key.form == form && *key.name == *name)
            .any(|(key, actions)| visit(key, *actions))
    }

    fn patterns(&self) -> impl Iterator<Item = (&Key, &Actions)> {
        let first = Bound::Included(Key::first(Form::Pattern, ""));
        let rows = (self.patterns > 0).then(|| self.rows.range((first, Bound::Unbounded)));
        rows.into_iter().flatten()
    }
}

fn parts(rule: Rule) -> (Subject, Key, Actions) {
    let Rule {
        subject,
        effect,
        kinds,
        namespace,
        form,
        name,
        host,
        actions,
    } = rule;
    let key = Key {
        form,
        name,
        namespace,
        kinds,
        effect,
        host,
    };
    (subject, key, actions)
}

fn whole(subject: &Subject, (key, actions): (&Key, &Actions)) -> Rule {
    Rule {
        subject: subject.clone(),
        effect: key.effect,
        kinds: key.kinds,
        namespace: key.namespace.clone(),
        form: key.form,
        name: key.name.clone(),
        host: key.host,
        actions: *actions,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    const PEERS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    ];

    /// Decides as the words of the design say, rule by rule.
    fn naive(rules: &[Rule], subject: &Subject, action: Action, on: &Resource<'_>, peer: IpAddr) -> Verdict {
        let about = |rule: &&Rule| {
            rule.subject == *subject
                && rule.kinds.has(on.kind)
                && rule.host.is_none_or(|host| host == peer)
                && rule.namespace.as_deref().is_none_or(|it| it == on.namespace)
                && match rule.form {
                    Form::Literal => *rule.name == *on.name,
                    Form::Prefix => on.name.starts_with(&*rule.name),
                    Form::Pattern if rule.name.is_empty() => on.name.is_empty(),
                    Form::Pattern => Regex::new(&rule.name).unwrap().is_match(on.name),
                }
        };
        let has = |effect, actions: &[Action]| {
            let sets = actions.iter().map(|action| Actions::of(&[*action]));
            let set = sets.fold(Actions::ALL, Actions::with);
            let mut found = rules.iter().filter(about).filter(|rule| rule.effect == effect);
            found.any(|rule| rule.actions.has_any(set))
        };
        let own = [action];
        let allowing: &[Action] = if action == Action::Describe {
            &[
                Action::Describe,
                Action::Read,
                Action::Write,
                Action::Alter,
                Action::Delete,
            ]
        } else if action == Action::DescribeSettings {
            &[Action::DescribeSettings, Action::AlterSettings]
        } else {
            &own
        };
        if has(Effect::Deny, &[action]) {
            Verdict::Forbidden
        } else if has(Effect::Allow, allowing) {
            Verdict::Allowed
        } else {
            Verdict::Silent
        }
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let subject = prop_oneof![Just(Subject::User("ann".into())), Just(Subject::Everyone)];
        let form = prop_oneof![
            (Just(Form::Literal), "[ab]{1,3}"),
            (Just(Form::Prefix), "[ab]{0,2}"),
            (
                Just(Form::Pattern),
                prop_oneof![Just(String::new()), "\\^?(a|b|\\.\\*){0,2}\\$?", "[ab]+\\$"]
            ),
        ];
        let kinds = prop_oneof![Just(Kind::Topic.into()), Just(Kinds::NAMESPACED)];
        let namespace = proptest::option::of(prop_oneof![Just("/".into()), Just("x".into())]);
        let actions = prop_oneof![
            (0..13_usize).prop_map(|at| Actions::of(&[Action::ALL[at]])),
            Just(Actions::ALL),
            Just(Actions::DEFINE)
        ];
        let effect = prop_oneof![3 => Just(Effect::Allow), 1 => Just(Effect::Deny)];
        let host = proptest::option::of((0..2_usize).prop_map(|at| PEERS[at]));
        (subject, effect, kinds, namespace, form, host, actions).prop_map(
            |(subject, effect, kinds, namespace, (form, name), host, actions)| Rule {
                subject,
                effect,
                kinds,
                namespace,
                form,
                name: name.into(),
                host,
                actions,
            },
        )
    }

    proptest! {
        #[test]
        fn decisions_are_those_of_a_naive_model(
            changes in proptest::collection::vec((any_rule(), any::<bool>()), 0..30),
            asked in proptest::collection::vec(
                (0..13_usize, "[ab]{0,3}", 0..3_usize, 0..2_usize, any::<bool>()), 1..30),
        ) {
            let mut rules = Rules::default();
            let mut model: Vec<Rule> = Vec::new();
            for (rule, keep) in changes {
                let is_same = |known: &Rule| known.key() == rule.key();
                if keep {
                    let before = rules.actions(&rule).unwrap_or_default();
                    let actions = before.with(rule.actions);
                    model.retain(|known| !is_same(known));
                    model.push(Rule { actions, ..rule.clone() });
                    rules.set(Rule { actions, ..rule });
                } else {
                    model.retain(|known| !is_same(known));
                    rules.set(Rule { actions: Actions::NONE, ..rule });
                }
            }
            model.sort();
            let mut listed: Vec<_> = rules.iter().collect();
            listed.sort();
            prop_assert_eq!(&listed, &model);
            prop_assert_eq!(rules.len(), model.len());
            for (action, name, thing, peer, is_ann) in asked {
                let on = [
                    Resource::topic(&name), Resource::queue("/", &name), Resource::exchange("x", &name),
                ][thing];
                let subject = if is_ann { Subject::User("ann".into()) } else { Subject::Everyone };
                let (action, peer) = (Action::ALL[action], PEERS[peer]);
                let expected = naive(&model, &subject, action, &on, peer);
                prop_assert_eq!(rules.verdict(&subject, action, &on, peer), expected, "{:?} {}", action, on);
            }
        }
    }

    #[test]
    fn the_name_without_letters_stands_for_all_live_topics_and_for_nothing_else() {
        let mut rules = Rules::default();
        let rule = |effect, form, name: &str, kinds, actions| Rule {
            subject: Subject::Everyone,
            effect,
            kinds,
            namespace: None,
            form,
            name: name.into(),
            host: None,
            actions,
        };
        let both = Kinds::of(&[Kind::Topic, Kind::LiveTopic]);
        let read = Actions::of(&[Action::Read]);
        rules.set(rule(Effect::Allow, Form::Literal, "", both, read));
        let live = |name| Resource::new(Kind::LiveTopic, name);
        let verdict =
            |rules: &Rules, on: &Resource<'_>| rules.verdict(&Subject::Everyone, Action::Read, on, PEERS[0]);
        let on_all = |rules: &Rules, action| {
            rules.verdict_on_all(&Subject::Everyone, action, Kind::LiveTopic, PEERS[0])
        };
        assert_eq!(verdict(&rules, &live("a")), Verdict::Allowed);
        assert_eq!(verdict(&rules, &Resource::topic("a")), Verdict::Silent);
        assert_eq!(on_all(&rules, Action::Read), Verdict::Allowed);
        assert_eq!(on_all(&rules, Action::Write), Verdict::Silent);
        let denied = |actions| rule(Effect::Deny, Form::Prefix, "a", Kind::LiveTopic.into(), actions);
        rules.set(denied(read));
        assert_eq!(verdict(&rules, &live("ab")), Verdict::Forbidden);
        assert_eq!(verdict(&rules, &live("b")), Verdict::Allowed);
        assert_eq!(on_all(&rules, Action::Read), Verdict::Forbidden);
        rules.set(denied(Actions::NONE));
        assert_eq!(on_all(&rules, Action::Read), Verdict::Allowed);
        rules.set(rule(Effect::Allow, Form::Literal, "", both, Actions::NONE));
        rules.set(rule(Effect::Allow, Form::Prefix, "a", both, read));
        assert_eq!(on_all(&rules, Action::Read), Verdict::Silent);
        rules.set(rule(Effect::Allow, Form::Prefix, "", both, read));
        assert_eq!(on_all(&rules, Action::Read), Verdict::Allowed);
    }

    #[test]
    fn a_subject_has_a_bounded_number_of_patterns() {
        let mut rules = Rules::default();
        let rule = |number: usize| Rule {
            subject: Subject::Everyone,
            effect: Effect::Allow,
            kinds: Kind::Topic.into(),
            namespace: None,
            form: Form::Pattern,
            name: format!("^{number}$").into(),
            host: None,
            actions: Actions::ALL,
        };
        for number in 0..PATTERNS_MAX {
            rules.check(&rule(number), 0).unwrap();
            rules.set(rule(number));
        }
        assert_eq!(rules.check(&rule(PATTERNS_MAX), 0), Err(BadRule::ManyPatterns));
        assert_eq!(rules.check(&rule(0), 0), Ok(()), "one that is there");
        assert_eq!(rules.check(&rule(0), RULES_MAX), Ok(()), "it is no further one");
    }
}
