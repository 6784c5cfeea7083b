//! The document against the routes and the codes.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_http::{Code, openapi};

use super::World;

/// Codes that some described route can give.
fn given() -> BTreeSet<Code> {
    let (routes, sockets) = (crate::routes(), crate::ws::routes());
    let endpoints = routes.endpoints().iter().chain(sockets.endpoints());
    let document: Value = serde_json::from_str(&crate::document()).unwrap();
    let mut given = BTreeSet::new();
    for endpoint in endpoints {
        let operation = &document["paths"][endpoint.path()][endpoint.method().as_str().to_lowercase()];
        for response in operation["responses"].as_object().unwrap().values() {
            let problem = &response["content"]["application/problem+json"]["schema"];
            let words = problem["properties"]["code"]["enum"].as_array();
            for word in words.into_iter().flatten() {
                given.insert(Code::of(word.as_str().unwrap()).unwrap());
            }
        }
    }
    given
}

#[test]
fn every_code_is_given_by_a_described_route_or_beyond_all() {
    let (given, beyond) = (given(), BTreeSet::from(openapi::BEYOND_ROUTES));
    let all = Code::ALL.iter().copied();
    let expected: BTreeSet<Code> = all.filter(|code| !openapi::OF_THE_LAB.contains(code)).collect();
    assert_eq!(&given | &beyond, expected);
    assert_eq!(
        &given & &beyond,
        BTreeSet::new(),
        "described, so not beyond routes"
    );
}

#[test]
fn every_route_is_described_and_its_names_are_those_of_its_path() {
    let document: Value = serde_json::from_str(&crate::document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with("/v1"), "{path}");
        for (method, operation) in operations.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()));
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses
                    .keys()
                    .any(|status| status.starts_with('2') || status == "101"),
                "{method} {path}"
            );
            let in_path = operation["parameters"].as_array().unwrap().iter();
            let named = in_path.filter(|it| it["in"] == "path");
            assert_eq!(named.count(), path.matches('{').count(), "{method} {path}");
        }
    }
    assert!(ids.contains("post_queues_by_queue_move"), "{ids:?}");
}

#[test]
fn every_shape_has_a_name_of_its_own() {
    let document: Value = serde_json::from_str(&crate::document()).unwrap();
    // A name that two shapes have gets a number at its end.
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(!name.ends_with(|last: char| last.is_ascii_digit()), "{name}");
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document: Value = serde_json::from_str(&crate::document()).unwrap();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Problem"));
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(name.chars().all(char::is_alphanumeric), "{name}");
    }
}

#[tokio::test]
async fn the_document_is_served_and_each_code_is_explained() {
    let world = World::new().await;
    let (status, served) = world.ask("GET /v1/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(served.to_string(), {
        let document: Value = serde_json::from_str(&crate::document()).unwrap();
        document.to_string()
    });
    for code in Code::ALL {
        let (status, explained) = world.ask(&format!("GET /v1/problems/{}", code.word())).await;
        assert_eq!(
            (status, &explained["code"]),
            (StatusCode::OK, &json!(code.word()))
        );
        assert_eq!(explained["status"], code.status().as_u16());
        assert_eq!(served["x-problems"][code.word()]["retry"], explained["retry"]);
    }
    let (status, why) = world.ask("GET /v1/problems/none").await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::NOT_FOUND, &json!("no_such_code"))
    );
}
