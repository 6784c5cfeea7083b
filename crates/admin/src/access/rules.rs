//! `/v1/rules`: permissions and prohibitions.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Actions, Effect, Form, Kind, Kinds, Rule, Subject};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, post};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Problem, Query, Slot, body};

use super::routes::of_access;
use crate::refusals;
use crate::{Routes, answer};

const LIST: List<Named, RuleStatus> = List {
    name: |rule| ("", &rule.name),
    sorts: &[],
    shown: |rule| shown(&rule.rule),
};

/// A rule, with the name by which it is listed.
struct Named {
    name: String,
    rule: Rule,
}

/// A rule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AccessRule")]
#[serde(deny_unknown_fields)]
struct RuleStatus {
    /// `user:NAME`, `role:TAG`, or `everyone`.
    who: String,
    /// True if the actions are forbidden, which goes before a permission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deny: bool,
    /// Actions: `read`, `write`, `create`, `delete`, `alter`, `describe`, `define` (create, delete, alter),
    /// `all`, and others.
    actions: Vec<String>,
    /// Kinds of things: `topic`, `group`, `queue`, `exchange`, `transactional_id`, `live_topic`, `namespace`,
    /// `cluster`, and others.
    on: Vec<String>,
    /// Name of the things. One of `name`, `prefix` and `pattern` is there; an empty prefix stands for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Regular expression; without anchors it matches anywhere in a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    /// Namespace of queues and exchanges; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Address of the peer; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/rules", "Lists rules.")
                .query(&[Parameter::text(
                    "who",
                    "Only rules of user:NAME, role:TAG or everyone.",
                )])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            post(
                "/v1/rules",
                "Adds a rule. Its actions are added to those of a rule that is the same otherwise.",
            )
            .event("rule.made")
            .body::<RuleStatus>()
            .answers::<RuleStatus>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::Overloaded]),
            add,
        )
        .route(
            delete("/v1/rules", "Takes the actions of the rule in the body away.")
                .event("rule.deleted")
                .body::<RuleStatus>()
                .answers::<RuleStatus>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::Overloaded]),
            remove,
        )
}

fn who(subject: &Subject) -> String {
    match subject {
        Subject::User(name) => format!("user:{name}"),
        Subject::Role(name) => format!("role:{name}"),
        Subject::Everyone => "everyone".to_owned(),
    }
}

fn shown(rule: &Rule) -> RuleStatus {
    let named = |form: Form| (rule.form == form).then(|| rule.name.to_string());
    RuleStatus {
        who: who(&rule.subject),
        deny: rule.effect == Effect::Deny,
        actions: rule.actions.words().into_iter().map(str::to_owned).collect(),
        on: rule.kinds.iter().map(|kind| kind.word().to_owned()).collect(),
        name: named(Form::Literal),
        prefix: named(Form::Prefix),
        pattern: named(Form::Pattern),
        namespace: rule.namespace.as_deref().map(str::to_owned),
        host: rule.host.map(|host| host.to_string()),
    }
}

fn subject(text: &str) -> Result<Subject, Problem> {
    match text.split_once(':') {
        None if text == "everyone" => Ok(Subject::Everyone),
        Some(("user", name)) if !name.is_empty() => Ok(Subject::User(name.into())),
        Some(("role", name)) if !name.is_empty() => Ok(Subject::Role(name.into())),
        _ => Err(Problem::bad_request("who is user:NAME, role:TAG or everyone")),
    }
}

impl RuleStatus {
    fn rule(&self) -> Result<Rule, Problem> {
        let unknown = |what: &str, word: &str| Problem::bad_request(format!("{word:?} is no {what}"));
        let actions = self
            .actions
            .iter()
            .map(|word| Actions::of_word(word).ok_or_else(|| unknown("action", word)));
        let actions = actions.collect::<Result<Vec<_>, _>>()?;
        let kinds = self
            .on
            .iter()
            .map(|word| Kind::of_word(word).ok_or_else(|| unknown("kind of thing", word)));
        let kinds = Kinds::of(&kinds.collect::<Result<Vec<_>, _>>()?);
        let (form, name) = match (&self.name, &self.prefix, &self.pattern) {
            (Some(name), None, None) => (Form::Literal, name),
            (None, Some(prefix), None) => (Form::Prefix, prefix),
            (None, None, Some(pattern)) => (Form::Pattern, pattern),
            _ => return Err(Problem::bad_request("one of name, prefix and pattern is given")),
        };
        if self.namespace.is_some() && !kinds.is_within(Kinds::NAMESPACED) {
            return Err(Problem::bad_request(
                "only queues and exchanges lie in a namespace",
            ));
        }
        let host = self.host.as_deref().map(|host| {
            let address = host.parse::<IpAddr>();
            address.map_err(|_| Problem::bad_request("host is an address"))
        });
        Ok(Rule {
            subject: subject(&self.who)?,
            effect: if self.deny { Effect::Deny } else { Effect::Allow },
            kinds,
            namespace: self.namespace.as_deref().map(Into::into),
            form,
            name: name.as_str().into(),
            host: host.transpose()?.map(|host| host.to_canonical()),
            actions: actions.into_iter().fold(Actions::NONE, Actions::with),
        })
    }
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let wanted = query.get("who").map(subject).transpose()?;
    let rules: Vec<Rule> = broker.access().directory().with_rules(|rules| match &wanted {
        Some(subject) => rules.of(subject).collect(),
        None => rules.iter().collect(),
    });
    let named = rules.into_iter().map(|rule| {
        // Rules have no names of their own: this one is the same as long as the rule is there.
        let kinds: Vec<_> = rule.kinds.iter().map(Kind::word).collect();
        let (who, form, name) = (who(&rule.subject), rule.form.word(), &rule.name);
        let namespace = rule.namespace.as_deref().unwrap_or_default();
        let host = rule.host.map(|host| host.to_string()).unwrap_or_default();
        let effect = if rule.effect == Effect::Deny {
            "deny"
        } else {
            "allow"
        };
        let name = format!(
            "{who} {} {form} {name} {namespace} {effect} {host}",
            kinds.join("+")
        );
        Named { name, rule }
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, named.collect())?))
}

async fn add(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let wanted: RuleStatus = body::json(request).await?;
    let (broker, rule) = (broker.get()?, wanted.rule()?);
    let by = super::caller(&broker);
    let added = broker.access().add_rules(&by, vec![rule.clone()]).await;
    added.into_iter().collect::<Result<(), _>>().map_err(of_access)?;
    Ok(answer(StatusCode::CREATED, &shown(&rule)))
}

async fn remove(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let wanted: RuleStatus = body::json(request).await?;
    let (broker, rule) = (broker.get()?, wanted.rule()?);
    let by = super::caller(&broker);
    broker
        .access()
        .remove_rules(&by, vec![rule.clone()])
        .await
        .map_err(of_access)?;
    Ok(answer(StatusCode::OK, &shown(&rule)))
}
