//! Clients, topics and subscriptions, as fields of answers.

use serde_json::{Value, json};
use stafett_live_topics::{Audience, ClientName, ClientPresence, Live, Page, SubscriberCount, Subscription};

use crate::command::{PageWanted, PresenceOf};
use crate::json;
use crate::rights::Rights;

pub(crate) type Fields = Vec<(&'static str, Value)>;

/// Lists a client's subscriptions. Topics that may not be seen are left out.
pub fn list(live: &Live, client: &ClientName, page: PageWanted, rights: &Rights) -> Fields {
    let page = live.subscriptions(client, page.from, page.count);
    let (mut topics, mut patterns) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            Subscription::Topic(name) if !rights.may_see(&name) => {}
            Subscription::Topic(name) => topics.push(Value::from(name)),
            Subscription::Pattern(text) => patterns.push(Value::from(text)),
        }
    }
    vec![
        ("topics", topics.into()),
        ("patterns", patterns.into()),
        ("next", page.next.into()),
    ]
}

/// Shows a presence that [`Rights`] has checked. Topics that may not be seen are left out.
pub fn presence(live: &Live, of: &PresenceOf<'_>, page: PageWanted, rights: &Rights) -> Fields {
    let PageWanted { from, count } = page;
    match of {
        PresenceOf::Clients => {
            let mut fields = counts(live);
            clients(live.present(from, count), &mut fields);
            fields
        }
        PresenceOf::Listening => {
            let mut fields = counts(live);
            clients(live.listening(from, count), &mut fields);
            fields
        }
        PresenceOf::Topics => {
            let mut page = live.subscribed_topics(from, count);
            page.items.retain(|topic| rights.may_see(&topic.name));
            vec![("topics", named("topic", page.items)), ("next", page.next.into())]
        }
        PresenceOf::Topic(topic) => {
            let mut fields = audience(live.topic_audience(topic));
            fields.push(("patterns", named("pattern", live.patterns_matching(topic))));
            clients(live.subscribers(topic, from, count), &mut fields);
            fields
        }
        PresenceOf::Pattern(pattern) => {
            let mut fields = audience(live.pattern_audience(pattern));
            clients(live.pattern_subscribers(pattern, from, count), &mut fields);
            fields
        }
    }
}

fn counts(live: &Live) -> Fields {
    let counts = live.presence();
    vec![
        ("listening", counts.listening.into()),
        ("topics", counts.topics.into()),
        ("subscriptions", counts.subscriptions.into()),
        ("patterns", counts.patterns.into()),
    ]
}

fn audience(audience: Audience) -> Fields {
    vec![
        ("subscribers", audience.subscribers.into()),
        ("listening", audience.listening.into()),
    ]
}

fn clients(page: Page<ClientPresence>, fields: &mut Fields) {
    let client = |present: ClientPresence| {
        json!({
            "client_id": json::client_id(&present.client),
            "listening": present.listening,
            "subscriptions": present.subscriptions,
        })
    };
    fields.push(("clients", page.items.into_iter().map(client).collect()));
    fields.push(("next", page.next.into()));
}

fn named(key: &str, items: Vec<SubscriberCount>) -> Value {
    let item = |item: SubscriberCount| json!({ key: item.name, "subscribers": item.subscribers });
    items.into_iter().map(item).collect()
}
