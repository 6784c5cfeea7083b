//! Health checks.

use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::Properties;
use stafett_amqp_wire::methods::{basic, confirm, queue};

use axum::http::Method;

use super::call::{self, Call};
use super::client::{Client, ClientError, Outcome};
use super::refusal::{Answered, Refusal};

const ALIVENESS_QUEUE: &str = "aliveness-test";

pub(super) fn ok() -> Response {
    call::ok(&json!({ "status": "ok" }))
}

/// Answers `/health/checks/…`.
pub(super) fn check(call: &Call, path: &[&str]) -> Answered {
    match path {
        ["alarms" | "local-alarms"] => {
            if call.context.broker.messaging().space().is_short() {
                let alarm = json!([{ "node": super::NODE, "resource": "disk" }]);
                let fields = Map::from_iter([("alarms".to_owned(), alarm)]);
                return Err(Refusal::failed("There are alarms in effect", fields));
            }
            Ok(ok())
        }
        ["node-is-quorum-critical"] => Ok(call::ok(&json!({
            "status": "ok",
            "reason": "single node cluster",
        }))),
        ["virtual-hosts"] => Ok(ok()),
        ["is-in-service" | "ready-to-serve-clients"] => {
            if call.node.is_serving {
                Ok(ok())
            } else {
                Err(Refusal::failed("the node is starting or stopping", Map::new()))
            }
        }
        ["port-listener", port] => port_listener(call, port),
        ["protocol-listener", protocol] => protocol_listener(call, protocol),
        [
            "certificate-expiration",
            count,
            "days" | "weeks" | "months" | "years",
        ] => {
            match count.parse::<u32>() {
                // No listener has a certificate.
                Ok(_) => Ok(ok()),
                Err(_) => Err(Refusal::bad_request("Invalid expiration value.")),
            }
        }
        _ => Err(Refusal::no_object()),
    }
}

fn port_listener(call: &Call, port: &str) -> Answered {
    let Ok(port) = port.parse::<u16>() else {
        return Err(Refusal::bad_request("Invalid port"));
    };
    let ports: Vec<u16> = call
        .node
        .listeners
        .iter()
        .map(|(_, address)| address.port())
        .collect();
    if ports.contains(&port) {
        return Ok(call::ok(&json!({ "status": "ok", "port": port })));
    }
    Err(missing("ports", json!(ports), json!(port)))
}

fn protocol_listener(call: &Call, protocol: &str) -> Answered {
    let known = match protocol.to_ascii_lowercase().as_str() {
        "amqp091" | "amqp0.9.1" | "amqp0-9-1" => "amqp".to_owned(),
        other => other.to_owned(),
    };
    let protocols: Vec<&str> = call.node.listeners.iter().map(|(name, _)| *name).collect();
    if protocols.contains(&known.as_str()) {
        return Ok(call::ok(&json!({ "status": "ok", "protocol": protocol })));
    }
    Err(missing("protocols", json!(protocols), json!(protocol)))
}

fn missing(field: &str, there: Value, missing: Value) -> Refusal {
    let fields = [("missing".to_owned(), missing), (field.to_owned(), there)];
    Refusal::failed("No active listener", Map::from_iter(fields))
}

/// Declares a queue, publishes a message and takes it.
pub(super) async fn aliveness(call: &Call, vhost: &str) -> Answered {
    call.allow(&[Method::GET])?;
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    match Box::pin(round_trip(call, &vhost)).await {
        Ok(true) => Ok(ok()),
        Ok(false) => Err(Refusal::failed("the message did not come back", Map::new())),
        Err(ClientError::Closed(closed)) => Err(Refusal::failed(closed.reason(), Map::new())),
        Err(error @ (ClientError::Ended | ClientError::NoSpace)) => Err(error.of_change()),
    }
}

async fn round_trip(call: &Call, vhost: &stafett_model::Namespace) -> Result<bool, ClientError> {
    let body = Bytes::from_static(b"test_message");
    let mut client = Client::open(call, vhost, body.len()).await?;
    let declare = queue::Declare {
        queue: ALIVENESS_QUEUE.into(),
        ..queue::Declare::default()
    };
    client.call(declare).await?;
    client.call(confirm::Select::default()).await?;
    let publish = basic::Publish {
        routing_key: ALIVENESS_QUEUE.into(),
        mandatory: true,
        ..basic::Publish::default()
    };
    if client.publish(publish, Properties::NONE, body).await? != Outcome::Routed {
        return Ok(false);
    }
    Ok(client.get(ALIVENESS_QUEUE, true).await?.is_some())
}
