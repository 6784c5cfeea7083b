//! Import of definitions: existing items stay, missing ones are added. An error ends the import and names the
//! item; items before it remain.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stafett_access::Limited;
use stafett_messaging::queues::PolicyKind;
use stafett_model::Namespace;

use super::call::{Call, Fields, changed, short};
use super::client::{Client, ClientError};
use super::queues::Entry;
use super::refusal::{Answered, Refusal};
use super::{
    USER, bindings, exchanges, limits, policies, policy_definition, queues, topic_permissions, users, values,
    vhosts,
};

/// Header of the answer with the kinds of items that were passed over.
pub const PASSED_OVER: &str = "stafett-passed-over";
/// Kinds of items that have no meaning here.
const WITHOUT_MEANING: [&str; 4] = ["policies", "parameters", "global_parameters", "limits"];

/// Imports the definitions of a body. Items that name no virtual host are of `vhost`.
pub(super) async fn run(call: &Call, vhost: Option<&str>) -> Answered {
    let fields = body(call)?;
    let mut import = Import {
        call,
        vhost,
        clients: HashMap::new(),
    };
    for (kind, items) in [
        ("users", list(&fields, "users")?),
        ("vhosts", list(&fields, "vhosts")?),
        ("permissions", list(&fields, "permissions")?),
        ("topic_permissions", list(&fields, "topic_permissions")?),
        ("parameters", list(&fields, "parameters")?),
        ("policies", list(&fields, "policies")?),
        ("exchanges", list(&fields, "exchanges")?),
        ("queues", list(&fields, "queues")?),
        ("bindings", list(&fields, "bindings")?),
    ] {
        for item in items {
            let Value::Object(item) = item else {
                return Err(Refusal::bad_request(json!([kind, "not_an_object", item])));
            };
            let item = Fields(item.clone());
            match kind {
                "users" => import.user(&item).await?,
                "vhosts" => import.vhost(&item).await?,
                "permissions" => import.permission(&item).await?,
                "topic_permissions" => import.topic_permission(&item).await?,
                "exchanges" => import.exchange(&item).await?,
                "queues" => import.queue(&item).await?,
                "parameters" => import.parameter(&item).await?,
                "policies" => import.policy(PolicyKind::User, &item, &item).await?,
                _ => import.binding(&item).await?,
            }
        }
    }
    let mut response = changed(false);
    passed_over(&fields)?;
    if let Some(passed_over) = passed_over_header(&fields) {
        tracing::warn!(
            ?passed_over,
            "definitions without a meaning here were passed over"
        );
        response.headers_mut().insert(PASSED_OVER, passed_over);
    }
    Ok(response)
}

/// Returns the value of the header [`PASSED_OVER`] for a document. `None` if nothing of it is passed over.
pub fn passed_over_header(fields: &Map<String, Value>) -> Option<HeaderValue> {
    let kinds = passed_over(fields).ok().filter(|kinds| !kinds.is_empty())?;
    HeaderValue::from_str(&kinds).ok()
}

/// Returns the fields of the body.
fn body(call: &Call) -> Result<Map<String, Value>, Refusal> {
    fields_of(&call.headers, call.body())
}

/// Returns the fields of a document with definitions, in a request with these headers. `None` if it is
/// malformed, or of another type.
pub fn definitions_of(headers: &HeaderMap, body: &Bytes) -> Option<Map<String, Value>> {
    fields_of(headers, body).ok()
}

/// Returns the fields of a body: JSON, or a form with the file as `file`.
fn fields_of(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    let unreadable = || Refusal::bad_request("failed_to_parse_json");
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let mut parts = content_type.split(';').map(str::trim);
    let json: Bytes = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "application/json" => body.clone(),
        "multipart/form-data" => {
            let boundary = parts.find_map(|part| part.strip_prefix("boundary="));
            let boundary = boundary
                .map(|text| text.trim_matches('"'))
                .filter(|text| !text.is_empty());
            let file = boundary.and_then(|boundary| file_of(body, boundary));
            file.ok_or_else(unreadable)?
        }
        _ => return Err(Refusal::wrong_content_type()),
    };
    if json.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&json) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) | Err(_) => Err(unreadable()),
    }
}

/// Returns the part of a form that is called `file` (RFC 7578).
fn file_of(body: &Bytes, boundary: &str) -> Option<Bytes> {
    let delimiter = format!("--{boundary}");
    let mut at = find(body, delimiter.as_bytes())?;
    loop {
        at += delimiter.len();
        let rest = body.get(at..)?;
        let headers = rest.strip_prefix(b"\r\n")?;
        let end = find(headers, b"\r\n\r\n")?;
        let names = String::from_utf8_lossy(headers.get(..end)?).to_ascii_lowercase();
        let start = at + 2 + end + 4;
        let length = find(body.get(start..)?, format!("\r\n{delimiter}").as_bytes())?;
        if names.contains("name=\"file\"") || names.contains("name=file") {
            return Some(body.slice(start..start + length));
        }
        at = start + length + 2;
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Returns a list of items, which may be absent.
fn list<'a>(fields: &'a Map<String, Value>, kind: &str) -> Result<&'a [Value], Refusal> {
    match fields.get(kind) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(Refusal::bad_request(json!([kind, "not_a_list"]))),
    }
}

/// Counts the items that have no meaning here, by kind. Everybody has the user and the settings of the whole.
fn passed_over(fields: &Map<String, Value>) -> Result<String, Refusal> {
    let mut kinds = Vec::new();
    for kind in WITHOUT_MEANING {
        let is_known = |item: &&Value| match kind {
            "policies" => policy_definition::is_served(PolicyKind::User, item),
            "parameters" => match item.get("component").and_then(Value::as_str) {
                Some(limits::COMPONENT) => true,
                Some(policies::COMPONENT) => {
                    let value = item.get("value").unwrap_or(&Value::Null);
                    policy_definition::is_served(PolicyKind::Operator, value)
                }
                Some(_) | None => false,
            },
            "global_parameters" => {
                let name = item.get("name").and_then(Value::as_str);
                matches!(
                    name,
                    Some("cluster_tags" | "internal_cluster_id" | "cluster_name")
                )
            }
            _ => false,
        };
        let count = list(fields, kind)?.iter().filter(|item| !is_known(item)).count();
        if count > 0 {
            kinds.push(format!("{kind}={count}"));
        }
    }
    Ok(kinds.join(", "))
}

struct Import<'a> {
    call: &'a Call,
    vhost: Option<&'a str>,
    clients: HashMap<Namespace, Client>,
}

impl Import<'_> {
    /// Makes or changes a user. `guest` of another broker is not taken over: its password is known to all.
    async fn user(&mut self, item: &Fields) -> Result<(), Refusal> {
        let name = name(item, "users", "name")?;
        if name == USER {
            return Ok(());
        }
        let has_secret = ["password", "password_hash"]
            .iter()
            .any(|field| item.get(field).is_some_and(|it| *it != ""));
        if !has_secret
            && self
                .call
                .context
                .broker
                .access()
                .directory()
                .user(&name)
                .is_some()
        {
            // An export has no password hashes: the user keeps its password.
            return Ok(());
        }
        let named = |refusal: Refusal| refusal.on(&format!("user '{name}'"));
        users::put_user(self.call, &name, item).await.map_err(named)?;
        match item.get("limits") {
            Some(Value::Object(fields)) => {
                let of = Limited::User((*name).into());
                limits::put(self.call, of, fields).await.map_err(named)
            }
            _ => Ok(()),
        }
    }

    /// Takes limits of a virtual host, and operator policies; other parameters are passed over.
    async fn parameter(&mut self, item: &Fields) -> Result<(), Refusal> {
        let component = item.get("component").and_then(Value::as_str);
        if let Some(Value::Object(value)) = item
            .get("value")
            .filter(|_| component == Some(policies::COMPONENT))
        {
            let value = Fields(value.clone());
            return self.policy(PolicyKind::Operator, item, &value).await;
        }
        let Some(Value::Object(fields)) = item.get("value").filter(|_| component == Some(limits::COMPONENT))
        else {
            return Ok(());
        };
        let vhost = self.any_vhost_of(item, "parameters")?;
        let of = Limited::Namespace(vhost.as_str().into());
        let put = limits::put(self.call, of, fields).await;
        put.map_err(|refusal| refusal.on(&format!("limits of vhost '{vhost}'")))
    }

    /// Makes or replaces a policy. One that would have no effect here is passed over.
    async fn policy(&mut self, kind: PolicyKind, item: &Fields, fields: &Fields) -> Result<(), Refusal> {
        let name = name(item, "policies", "name")?;
        let vhost = self.vhost_of(item, "policies")?;
        if !policy_definition::is_served(kind, &Value::Object(fields.0.clone())) {
            return Ok(());
        }
        let put = policies::put(self.call, kind, &vhost, &name, fields).await;
        let what = format!("policy '{name}' in vhost '{vhost}'");
        put.map(drop).map_err(|refusal| refusal.on(&what))
    }

    async fn permission(&mut self, item: &Fields) -> Result<(), Refusal> {
        let user = name(item, "permissions", "user")?;
        if user == USER {
            return Ok(());
        }
        let vhost = self.any_vhost_of(item, "permissions")?;
        let put = users::put_permission(self.call, &vhost, &user, item).await;
        let what = format!("permission of user '{user}' in vhost '{vhost}'");
        put.map(drop).map_err(|refusal| refusal.on(&what))
    }

    async fn topic_permission(&mut self, item: &Fields) -> Result<(), Refusal> {
        let user = name(item, "topic_permissions", "user")?;
        if user == USER {
            return Ok(());
        }
        let vhost = self.any_vhost_of(item, "topic_permissions")?;
        let put = topic_permissions::put(self.call, &vhost, &user, item).await;
        let what = format!("topic permission of user '{user}' in vhost '{vhost}'");
        put.map(drop).map_err(|refusal| refusal.on(&what))
    }

    async fn vhost(&mut self, item: &Fields) -> Result<(), Refusal> {
        let name = name(item, "vhosts", "name")?;
        let named = |refusal: Refusal| refusal.on(&format!("virtual host '{name}'"));
        let namespace = Namespace::new(&name);
        vhosts::put(self.call, &namespace, &item.0).await.map_err(named)?;
        Ok(())
    }

    async fn exchange(&mut self, item: &Fields) -> Result<(), Refusal> {
        let name = name(item, "exchanges", "name")?;
        let vhost = self.vhost_of(item, "exchanges")?;
        if exchanges::find(self.call, &vhost, &name).is_some() {
            return Ok(());
        }
        let what = format!("exchange '{name}' in vhost '{vhost}'");
        let declare = exchanges::declaration(&name, item).map_err(|refusal| refusal.on(&what))?;
        let declared = self.client(&vhost).await?.call(declare).await;
        let declared = declared.map_err(|error| error.with_reason(exchanges::of_kind));
        declared.map(drop).map_err(|error| refused(error, &what))
    }

    async fn queue(&mut self, item: &Fields) -> Result<(), Refusal> {
        let name = name(item, "queues", "name")?;
        if name.is_empty() {
            return Err(Refusal::bad_request(json!(["queues", "key_missing", "name"])));
        }
        let vhost = self.vhost_of(item, "queues")?;
        if Entry::find(self.call, &vhost, &name).is_some() {
            return Ok(());
        }
        let what = format!("queue '{name}' in vhost '{vhost}'");
        let declare = queues::declaration(&name, item).map_err(|refusal| refusal.on(&what))?;
        let declared = self.client(&vhost).await?.call(declare).await;
        declared.map(drop).map_err(|error| refused(error, &what))
    }

    async fn binding(&mut self, item: &Fields) -> Result<(), Refusal> {
        let source = name(item, "bindings", "source")?;
        let destination = name(item, "bindings", "destination")?;
        let vhost = self.vhost_of(item, "bindings")?;
        let kind = match item.get("destination_type").and_then(Value::as_str) {
            Some("queue") | None => "q",
            Some("exchange") => "e",
            Some(other) => return Err(Refusal::bad_request(json!(["destination_type", other]))),
        };
        let key = item.text("routing_key")?;
        let what = format!("binding '{key}' from '{source}' to '{destination}' in vhost '{vhost}'");
        let arguments = values::arguments(item.get("arguments")).map_err(|refusal| refusal.on(&what))?;
        let ends = bindings::Ends {
            source: short(&source, "source")?,
            kind,
            destination: short(&destination, "destination")?,
            key: short(&key, "routing_key")?,
            arguments: &arguments,
        };
        let bound = self.client(&vhost).await?.call(ends.bind()?).await;
        bound.map(drop).map_err(|error| refused(error, &what))
    }

    fn vhost_of(&self, item: &Fields, kind: &str) -> Result<Namespace, Refusal> {
        let given = self.given_vhost(item, kind)?;
        self.call.vhost(&given).ok_or_else(|| no_vhost(&given))
    }

    /// Returns the virtual host of rights or limits. It may be in another cell of the cluster.
    fn any_vhost_of(&self, item: &Fields, kind: &str) -> Result<Namespace, Refusal> {
        let given = self.given_vhost(item, kind)?;
        self.call.any_vhost(&given).ok_or_else(|| no_vhost(&given))
    }

    fn given_vhost(&self, item: &Fields, kind: &str) -> Result<String, Refusal> {
        match self.vhost {
            Some(vhost) => Ok(vhost.to_owned()),
            None => name(item, kind, "vhost"),
        }
    }

    async fn client(&mut self, vhost: &Namespace) -> Result<&mut Client, Refusal> {
        if !self.clients.contains_key(vhost) {
            let opened = Client::open_unrestricted(self.call, vhost).await;
            let client = opened.map_err(ClientError::of_change)?;
            self.clients.insert(vhost.clone(), client);
        }
        self.clients.get_mut(vhost).ok_or_else(Refusal::starting)
    }
}

fn no_vhost(name: &str) -> Refusal {
    let reason = format!("Please create virtual host \"{name}\" prior to importing definitions.");
    Refusal::bad_request(reason)
}

/// Returns a text that an item must have.
fn name(item: &Fields, kind: &str, field: &str) -> Result<String, Refusal> {
    match item.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(Refusal::bad_request(json!([kind, "key_missing", field]))),
    }
}

/// Names the item, if the reason does not.
fn refused(error: ClientError, what: &str) -> Refusal {
    match error {
        ClientError::Closed(closed) => {
            let (code, reason) = closed.text.split_once(" - ").unwrap_or((&closed.text, ""));
            let text = format!("{}: {reason}", code.to_ascii_lowercase());
            let text = if text.contains(what) {
                text
            } else {
                format!("{what}: {text}")
            };
            Refusal::bad_request(text)
        }
        other @ (ClientError::Ended | ClientError::NoSpace) => other.of_change(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_form_is_found() {
        let form = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n--b\r\n\
                    Content-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\
                    Content-Type: text/plain\r\n\r\n{}\r\n--b--\r\n";
        assert_eq!(file_of(&Bytes::from(form), "b").as_deref(), Some(&b"{}"[..]));
        for bad in [
            "",
            "--b",
            "--b\r\n",
            "--b--\r\n",
            "--b\r\nname=\"file\"\r\n\r\n{}",
            "--b\r\nname=\"other\"\r\n\r\n{}\r\n--b--\r\n",
        ] {
            assert_eq!(file_of(&Bytes::from(bad), "b"), None, "{bad}");
        }
    }

    #[test]
    fn items_without_a_meaning_are_counted() {
        let fields = json!({
            "users": [{ "name": "guest" }, { "name": "ann" }],
            "permissions": [{ "user": "guest" }],
            "policies": [
                { "apply-to": "streams", "definition": { "max-length-bytes": 1 } },
                { "definition": { "federation-upstream-set": "all" } },
                { "definition": { "max-length": 1 } },
            ],
            "parameters": [
                { "component": "operator_policy", "value": { "definition": { "expires": 1 } } },
                { "component": "operator_policy", "value": { "definition": { "max-age": 1 } } },
            ],
            "global_parameters": [{ "name": "internal_cluster_id" }],
        });
        let passed_over = |fields: &Value| passed_over(fields.as_object().unwrap());
        assert_eq!(passed_over(&fields).unwrap(), "policies=2, parameters=1");
        let wrong = json!({ "policies": 7 });
        assert!(passed_over(&wrong).is_err());
    }
}
