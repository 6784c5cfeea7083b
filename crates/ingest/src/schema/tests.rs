//! Events that fit, those that do not, and schemas that are refused.

use serde_json::json;

use super::*;

const EVENT: &str = r##"{
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "An event",
    "type": "object",
    "required": ["eventType"],
    "properties": {
        "eventType": { "enum": ["PLAY", "QUIT"] },
        "retentionTime": { "type": "integer", "minimum": 0, "exclusiveMaximum": 1000, "multipleOf": 5 },
        "app": { "type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-zå]+$" },
        "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" }, "minItems": 1, "maxItems": 2 },
        "where": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/place" }] }
    },
    "additionalProperties": { "type": ["string", "number"] },
    "$defs": {
        "tag": { "const": {"a": [1]} },
        "place": {
            "type": "object",
            "properties": { "within": { "$ref": "#/$defs/place" }, "a/b": false },
            "additionalProperties": false
        }
    }
}"##;

fn misfits() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!([]), "", "object"),
        (json!({}), "/eventType", "a value"),
        (
            json!({"eventType": "STOP"}),
            "/eventType",
            r#"one of ["PLAY","QUIT"]"#,
        ),
        (
            json!({"eventType": "QUIT", "retentionTime": 1.5}),
            "/retentionTime",
            "integer",
        ),
        (
            json!({"eventType": "QUIT", "retentionTime": -5}),
            "/retentionTime",
            "at least 0",
        ),
        (
            json!({"eventType": "QUIT", "retentionTime": 1000}),
            "/retentionTime",
            "less than 1000",
        ),
        (
            json!({"eventType": "QUIT", "retentionTime": 7}),
            "/retentionTime",
            "a multiple of 5",
        ),
        (
            json!({"eventType": "QUIT", "app": "t"}),
            "/app",
            "at least 2 characters",
        ),
        (
            json!({"eventType": "QUIT", "app": "åååå"}),
            "/app",
            "at most 3 characters",
        ),
        (
            json!({"eventType": "QUIT", "app": "TV"}),
            "/app",
            "a text that ^[a-zå]+$ matches",
        ),
        (
            json!({"eventType": "QUIT", "tags": []}),
            "/tags",
            "at least 1 items",
        ),
        (
            json!({"eventType": "QUIT", "tags": [{"a": [1]}, {"a": [2]}]}),
            "/tags/1",
            r#"one of [{"a":[1]}]"#,
        ),
        (
            json!({"eventType": "QUIT", "where": {"within": {"x": 1}}}),
            "/where/within/x",
            "no value here",
        ),
        (
            json!({"eventType": "QUIT", "where": {"a/b": 1}}),
            "/where/a~1b",
            "no value here",
        ),
        (
            json!({"eventType": "QUIT", "more": true}),
            "/more",
            "number or string",
        ),
    ]
}

#[test]
fn events_fit_or_the_place_that_does_not_is_told() {
    let schema = Schema::parse(EVENT).unwrap();
    for event in [
        json!({"eventType": "QUIT"}),
        json!({"eventType": "PLAY", "retentionTime": 995.0, "app": "två", "more": "x", "less": 1}),
        json!({"eventType": "PLAY", "tags": [{"a": [1.0]}], "where": null}),
        json!({"eventType": "PLAY", "where": {"within": {"within": {}}}}),
    ] {
        assert_eq!(schema.check(&event), Ok(()), "{event}");
    }
    for (event, path, expected) in misfits() {
        let misfit = schema.check(&event).unwrap_err();
        assert_eq!((&*misfit.path, &*misfit.expected), (path, expected), "{event}");
    }
    assert!(schema.names("app") && !schema.names("more"));
}

#[test]
fn names_are_found_behind_references_and_numbers_are_compared_as_they_are() {
    let any =
        r##"{"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#"}], "$defs": {"a": {"properties": {"x": true}}}}"##;
    let any = Schema::parse(any).unwrap();
    assert!(any.names("x") && !any.names("y"));
    let cents = Schema::parse(r#"{"multipleOf": 0.01}"#).unwrap();
    let fits = [19.99, 0.3, 19.995].map(|price| cents.check(&json!(price)).is_ok());
    assert_eq!(fits, [true, true, false]);
    let even = Schema::parse(r#"{"multipleOf": 2}"#).unwrap();
    assert!(even.check(&json!(9_007_199_254_740_993_i64)).is_err());
    let id = Schema::parse(r#"{"const": 9007199254740993}"#).unwrap();
    assert!(id.check(&json!(9_007_199_254_740_992_i64)).is_err());
}

#[test]
fn keywords_that_are_not_known_are_refused_with_their_place() {
    for (text, why) in [
        ("{", "not JSON: "),
        ("3", "the schema: a schema is an object, true or false"),
        (
            r#"{"properties": {"a": {"format": "email"}}}"#,
            "/properties/a: the keyword format is not known",
        ),
        (r#"{"if": true}"#, "the schema: the keyword if is not known here"),
        (r#"{"type": "text"}"#, "/type: it has to be a type of JSON"),
        (r#"{"pattern": "(?=a)"}"#, "/pattern: "),
        (r#"{"minLength": -1}"#, "/minLength: it has to be a whole number"),
        (
            r##"{"$ref": "#/$defs/none"}"##,
            "/$ref: it has to be a place that is there",
        ),
        (
            r#"{"$ref": "https://x.example/s.json"}"#,
            "/$ref: it has to be a place in this document",
        ),
        (r#"{"anyOf": []}"#, "/anyOf: it has to be a list of schemas"),
        (
            r#"{"multipleOf": 0}"#,
            "/multipleOf: it has to be a number above 0",
        ),
        (r#"{"const": 1, "enum": [1]}"#, "/enum: it has to be the only one"),
    ] {
        let said = Schema::parse(text).unwrap_err();
        assert!(said.starts_with(why), "{text}: {said}");
    }
}

#[test]
fn no_schema_takes_for_ever() {
    for text in [
        r##"{"$ref": "#"}"##,
        r##"{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}"##,
        r##"{"properties": {"a": {"$ref": "#/properties/a"}}}"##,
    ] {
        let schema = Schema::parse(text).unwrap();
        let misfit = schema.check(&json!({"a": 1})).unwrap_err();
        assert_eq!(
            misfit.expected, "a value that is checked in fewer steps",
            "{text}"
        );
    }
    let list = Schema::parse(r#"{"items": {"type": "integer"}}"#).unwrap();
    let many: Vec<u32> = (0..WORK_MAX).collect();
    assert!(list.check(&json!(many)).is_err());
}
