//! Exchanges.

use std::sync::Arc;

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::methods::exchange;
use stafett_messaging::NewExchange;
use stafett_messaging::exchanges::Exchange;
use stafett_model::Namespace;
use stafett_routing::ExchangeKind;

use super::call::{Call, Fields, changed, short};
use super::client::{ClientError, change};
use super::refusal::{Answered, Refusal};
use super::statistics::{Statistic, Window};
use super::{USER, list, values};
use crate::exchange_kinds::type_name;

/// Name of the exchange without a name, in paths.
const DEFAULT: &str = "amq.default";

/// Returns the name that an exchange of a path has.
pub(super) fn name_of(path: &str) -> &str {
    if path == DEFAULT { "" } else { path }
}

/// Returns an exchange that exists. The one without a name always does.
pub(super) fn find(call: &Call, vhost: &Namespace, name: &str) -> Option<Arc<Exchange>> {
    if name.is_empty() {
        return Some(Arc::new(default_exchange()));
    }
    call.context.exchanges().get(vhost, name)
}

fn default_exchange() -> Exchange {
    Exchange {
        name: Arc::from(""),
        is: NewExchange::new(ExchangeKind::ByName),
    }
}

pub(super) fn list(call: &Call, vhost: Option<&str>) -> Answered {
    let mut all: Vec<(Namespace, Arc<Exchange>)> = Vec::new();
    for vhost in call.vhosts(vhost)? {
        let mut named = call.context.exchanges().list(&vhost);
        named.retain(|exchange| !exchange.name.is_empty());
        named.push(Arc::new(default_exchange()));
        named.sort_by(|one, other| one.name.cmp(&other.name));
        all.extend(named.into_iter().map(|exchange| (vhost.clone(), exchange)));
    }
    let name = |(_, exchange): &(Namespace, Arc<Exchange>)| exchange.name.to_string();
    list::entries(call, all, name, |(vhost, exchange)| shown(call, vhost, exchange))
}

/// Returns the definition for an export.
pub(super) fn definition(vhost: &Namespace, exchange: &Exchange) -> Map<String, Value> {
    let is = &exchange.is;
    let definition = json!({
        "name": &*exchange.name,
        "vhost": vhost.as_str(),
        "type": type_name(is),
        "durable": is.durable,
        "auto_delete": is.auto_delete,
        "internal": is.internal,
        "arguments": values::stored(&is.arguments),
    });
    values::fields(definition)
}

fn shown(call: &Call, vhost: &Namespace, exchange: &Exchange) -> Value {
    let user = if is_predeclared(exchange) {
        "rmq-internal"
    } else {
        USER
    };
    let mut fields = definition(vhost, exchange);
    fields.insert("policy".to_owned(), Value::Null);
    fields.insert("user_who_performed_action".to_owned(), json!(user));
    if !call.flag("disable_stats") && call.needs(|field| field == "message_stats") {
        fields.insert(
            "message_stats".to_owned(),
            message_stats(call, vhost, &exchange.name),
        );
    }
    Value::Object(fields)
}

/// Returns the messages that came to an exchange, and those of them that led somewhere.
fn message_stats(call: &Call, vhost: &Namespace, name: &str) -> Value {
    let exchanges = call.context.exchanges();
    let traffic = exchanges.traffic(vhost, name);
    let counts = traffic
        .as_ref()
        .map(|traffic| traffic.counts())
        .unwrap_or_default();
    let window = Window::rates(call);
    let timeline = traffic
        .as_ref()
        .filter(|_| window.is_some())
        .map(|traffic| exchanges.sampler().timeline(&**traffic));
    let mut fields = Map::new();
    for (at, name, count) in [
        (0, "publish_in", counts.published),
        (1, "publish_out", counts.routed),
    ] {
        let rate = traffic
            .as_ref()
            .map_or(0.0, |traffic| exchanges.sampler().rate(traffic, at));
        let mut statistic = Statistic::new(count, rate);
        if let (Some(window), Some(timeline)) = (window, &timeline) {
            let count = usize::try_from(window.count).unwrap_or(usize::MAX);
            let samples = timeline.samples(at, window.length, count);
            statistic = statistic.with_increases(samples.iter().map(|sample| sample.increase));
        }
        statistic.put(&mut fields, name, window);
    }
    Value::Object(fields)
}

/// Returns true for the exchanges that every virtual host has.
pub(super) fn is_predeclared(exchange: &Exchange) -> bool {
    exchange.name.is_empty() || exchange.name.starts_with("amq.")
}

pub(super) async fn exchange(call: &Call, vhost: &str, path: &str) -> Answered {
    let name = name_of(path);
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => declare(call, vhost, name).await,
        Method::DELETE => delete(call, vhost, name).await,
        _ => {
            let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
            let found = find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
            let mut shown = shown(call, &vhost, &found);
            if let Some(fields) = shown.as_object_mut().filter(|_| !call.flag("disable_stats")) {
                fields.insert("incoming".to_owned(), json!([]));
                fields.insert("outgoing".to_owned(), json!([]));
            }
            list::object(call, shown)
        }
    }
}

async fn declare(call: &Call, vhost: &str, name: &str) -> Answered {
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_vhost)?;
    let fields = call.fields()?;
    let declare = declaration(name, &fields)?;
    let is_new = find(call, &vhost, name).is_none();
    let declared = change(call, &vhost, declare).await;
    declared.map_err(|error| error.with_reason(of_kind).of_change())?;
    Ok(changed(is_new))
}

/// Returns the declaration of an exchange.
pub(super) fn declaration(name: &str, fields: &Fields) -> Result<exchange::Declare, Refusal> {
    let kind = match fields.get("type") {
        None => "direct".to_owned(),
        Some(_) => fields.text("type")?,
    };
    Ok(exchange::Declare {
        exchange: short(name, "exchange")?.into(),
        kind: short(&kind, "type")?.into(),
        durable: fields.flag("durable")?,
        auto_delete: fields.flag("auto_delete")?,
        internal: fields.flag("internal")?,
        arguments: values::arguments(fields.get("arguments"))?,
        ..exchange::Declare::default()
    })
}

/// Returns the text that tools compare, where AMQP has another.
pub(super) fn of_kind(text: &str) -> String {
    text.replacen("invalid exchange type", "unknown exchange type", 1)
}

async fn delete(call: &Call, vhost: &str, name: &str) -> Answered {
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
    let delete = exchange::Delete {
        exchange: short(name, "exchange")?.into(),
        if_unused: call.flag("if-unused"),
        ..exchange::Delete::default()
    };
    let done = change(call, &vhost, delete).await;
    done.map_err(ClientError::of_change)?;
    Ok(changed(false))
}
