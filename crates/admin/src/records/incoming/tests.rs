//! Tests of bodies with records.

use super::*;

fn template(query: &str) -> Result<Template, Problem> {
    const KEYS: [&str; 6] = ["as", "key", "key_field", "keyless", "partition", "header."];
    Template::of(&Query::strict(Some(query), &KEYS)?)
}

fn read(query: &str, format: Format, body: &'static str) -> Result<Incoming, Problem> {
    template(query)?.read(&Bytes::from_static(body.as_bytes()), format, None, Vec::new())
}

/// Reads a body, and shows keys and values.
fn shown(query: &str, format: Format, body: &'static str) -> Vec<String> {
    let text = |bytes: &Option<Bytes>| {
        let bytes = bytes.as_ref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let records = read(query, format, body).unwrap().records;
    let shown = records.iter().map(|record| {
        let [key, value] = [&record.key, &record.value].map(|it| text(it).unwrap_or_else(|| "-".to_owned()));
        format!("{key} {value}")
    });
    shown.collect()
}

#[test]
fn documents_are_values_byte_for_byte() {
    assert_eq!(
        shown("key=k", Format::Json, r#" {"b": 1.50,  "a": 2} "#),
        [r#"k {"b": 1.50,  "a": 2}"#]
    );
    assert_eq!(
        shown("", Format::Lines, "1\r\n\n\"a\"\n[2]"),
        ["- 1", "- \"a\"", "- [2]"]
    );
    assert_eq!(
        shown("as=list", Format::Json, "[1, {\"a\": 2}]"),
        ["- 1", "- {\"a\": 2}"]
    );
    assert_eq!(shown("", Format::Raw, "\u{e9} {"), ["- \u{e9} {"]);
    assert_eq!(read("", Format::Lines, "").unwrap().read, 0);
}

#[test]
fn a_key_comes_from_a_field() {
    let lines = "{\"a\": {\"b\": \"x\\u00e9\"}}\n{\"a\": {\"b\": 1.50}}\n{\"a\": 7}\n";
    assert_eq!(
        shown("key_field=a.b&keyless=store", Format::Lines, lines),
        [
            "x\u{e9} {\"a\": {\"b\": \"x\\u00e9\"}}",
            "1.50 {\"a\": {\"b\": 1.50}}",
            "- {\"a\": 7}"
        ]
    );
    let skipped = read("key_field=a.b&keyless=skip", Format::Lines, lines).unwrap();
    assert_eq!((skipped.read, skipped.records.len(), skipped.keyed), (3, 2, 2));
    let why = read("key_field=a.b", Format::Lines, lines).unwrap_err();
    assert_eq!((why.code, &why.fields["line"]), (Code::NoKey, &3.into()));
}

#[test]
fn objects_describe_records() {
    let body = r#"[{"key": "k", "value": null}, {"key": {"a": 1}, "value_base64": "/w=="}, {}]"#;
    assert_eq!(
        shown("as=record", Format::Json, body),
        ["k -", "{\"a\": 1} \u{fffd}", "- -"]
    );
    let body = r#"{"value": "v", "headers": {"b": 1, "c": null}, "timestamp": "1970-01-01T00:00:07Z", "partition": 3}"#;
    let read = read("as=record&header.a=x&partition=1", Format::Json, body).unwrap();
    let record = &read.records[0];
    assert_eq!((record.partition, record.timestamp), (Some(3), Some(7000)));
    let names: Vec<_> = record.headers.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [b"a", b"b", b"c"]);
}

#[test]
fn bad_bodies_and_queries_are_refused_with_the_line() {
    for (query, format, body, code, line) in [
        ("", Format::Json, "{", Code::BadJson, Some(1)),
        ("", Format::Json, "", Code::BadJson, Some(1)),
        ("", Format::Json, "1 2", Code::BadJson, Some(1)),
        ("", Format::Lines, "1\n\n{\"a\"\n", Code::BadJson, Some(3)),
        ("as=list", Format::Json, "{}", Code::BadRequest, Some(1)),
        ("as=record", Format::Lines, "{}\n7", Code::BadRequest, Some(2)),
        (
            "as=record",
            Format::Json,
            r#"[{}, {"offset": 1}]"#,
            Code::UnknownField,
            Some(2),
        ),
        (
            "as=record",
            Format::Json,
            r#"{"value": 1, "value_base64": ""}"#,
            Code::BadRequest,
            Some(1),
        ),
        (
            "as=record",
            Format::Json,
            r#"[{}, ["k", null, "v", null, {}, null, null]]"#,
            Code::BadRequest,
            Some(2),
        ),
        (
            "as=record",
            Format::Json,
            r#"{"key_base64": "?"}"#,
            Code::BadRequest,
            Some(1),
        ),
        (
            "as=record",
            Format::Json,
            r#"{"timestamp": "soon"}"#,
            Code::BadRequest,
            Some(1),
        ),
        (
            "as=record",
            Format::Json,
            r#"{"partition": -1}"#,
            Code::BadRequest,
            Some(1),
        ),
        (
            "as=record",
            Format::Json,
            r#"{"headers": {"": "x"}}"#,
            Code::BadRequest,
            Some(1),
        ),
        ("as=record&key=k", Format::Json, "{}", Code::BadRequest, None),
        ("key=k&key_field=a", Format::Json, "{}", Code::BadRequest, None),
        ("key_field=a..b", Format::Json, "{}", Code::BadRequest, None),
        ("key_field=a", Format::Raw, "{}", Code::BadRequest, None),
        ("as=list", Format::Raw, "[]", Code::BadRequest, None),
        ("as=row", Format::Json, "{}", Code::BadRequest, None),
        ("keyless=drop", Format::Json, "{}", Code::BadRequest, None),
        ("partition=4294967296", Format::Json, "{}", Code::BadRequest, None),
        ("header.=x", Format::Json, "{}", Code::BadRequest, None),
    ] {
        let why = read(query, format, body).unwrap_err();
        let found = why.fields.get("line").and_then(serde_json::Value::as_u64);
        assert_eq!((why.code, found), (code, line), "{query} {body}: {}", why.detail);
    }
}
