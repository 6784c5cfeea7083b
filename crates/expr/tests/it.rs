//! Expressions over records: results, errors, and refusals.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and its record has some variables only"
)]

use proptest::prelude::*;
use stafett_expr::{Expression, Fault, Found, NoJson, Paths, Record, Value, Variable};

const VARIABLES: &[Variable] = &[
    Variable::Value,
    Variable::Headers,
    Variable::Key,
    Variable::Topic,
    Variable::Offset,
    Variable::Timestamp,
];

#[derive(Debug)]
struct Text<'a>(&'a str);

impl Record for Text<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        match variable {
            Variable::Key => Value::of_bytes(b"the key"),
            Variable::Topic => Value::Text("events".into()),
            Variable::Offset => Value::Int(7),
            Variable::Timestamp => Value::Time("2026-11-22T23:30:00.25Z".parse().unwrap()),
            _ => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        (name == "v").then(|| Value::Text("3".into()))
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        paths.read(self.0, found)
    }
}

/// A record with many headers, which are decoded for each look.
#[derive(Debug)]
struct ManyHeaders;

impl Record for ManyHeaders {
    fn variable(&self, _: Variable) -> Value<'_> {
        Value::Null
    }

    fn header(&self, _: &str) -> Option<Value<'_>> {
        Some(Value::Int(1))
    }

    fn header_work(&self) -> usize {
        100_000
    }

    fn read<'r>(&'r self, _: &Paths, _: &mut Found<'r>) -> Result<(), NoJson> {
        Err(NoJson)
    }
}

#[test]
fn each_look_at_a_header_costs_the_bytes_of_all_headers() {
    for source in ["headers.a == 2", "!('a' in headers)"] {
        let whole = vec![source; 20].join(" || ");
        let expression = compiled(&whole).with_work_max(1_000_000);
        assert_eq!(expression.is_true(&ManyHeaders), Err(Fault::Costly), "{source}");
        let mut left = 1_000_000;
        assert_eq!(
            compiled(source).is_true_within(&ManyHeaders, &mut left),
            Ok(false)
        );
        assert!((800_000..=900_000).contains(&left), "{left}");
    }
}

const RECORD: &str = r#"{"eventType": "QUIT", "retentionTime": 100, "share": 0.5, "ok": true, "none": null,
    "context": {"country": "SE", "tags": ["a", "b\n", 3], "deep": {"x": -1}}, "when": "2026-03-29T00:59:59Z", "max": 9223372036854775807}"#;

fn compiled(source: &str) -> Expression {
    Expression::compile(source, VARIABLES).unwrap_or_else(|why| panic!("{source}: {why}"))
}

fn result(source: &str) -> Result<String, Fault> {
    let expression = compiled(source);
    let value = expression.evaluate(&Text(RECORD))?.to_json();
    Ok(value.unwrap_or_else(|| "no JSON".to_owned()))
}

fn all(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        let found = result(source).unwrap_or_else(|why| format!("! {why}"));
        assert_eq!(found, *expected, "{source}");
    }
}

#[test]
fn conditions_are_what_cel_says() {
    all(&[
        ("value.eventType == 'QUIT'", "true"),
        ("value.eventType != \"QUIT\"", "false"),
        ("value.retentionTime > 99 && value.share < 1", "true"),
        ("value.retentionTime >= 100.0", "true"),
        ("value.retentionTime == 100.5", "false"),
        ("value.context.country in ['NO', 'SE']", "true"),
        ("'a' in value.context.tags && 3 in value.context.tags", "true"),
        ("'c' in value.context.tags", "false"),
        ("'country' in value.context", "true"),
        ("value.context.tags[1] == 'b\\n'", "true"),
        ("value['context'].deep.x == -1", "true"),
        ("value.context.tags == ['a', 'b\\n', 3.0]", "true"),
        ("has(value.context.x) || value.ok", "true"),
        ("has(value.none) && value.none == null", "true"),
        ("!value.ok", "false"),
        ("!!value.ok", "true"),
        ("value.ok ? 'yes' : value.nothing", "\"yes\""),
        (
            "value.eventType.startsWith('QU') && value.eventType.endsWith('T')",
            "true",
        ),
        ("value.eventType.contains('UI')", "true"),
        ("value.eventType.matches('^Q.*T$')", "true"),
        ("matches(value.eventType, 'UIX')", "false"),
        ("value.eventType == 3", "false"),
        ("headers.v == '3' && 'v' in headers && has(headers.v)", "true"),
        ("'w' in headers", "false"),
        ("topic == 'events' && offset == 7 && key == 'the key'", "true"),
        ("1 < 2 == true", "true"),
        ("value.max < 9223372036854775808.0", "true"),
        ("b'ab' < b'ac'", "true"),
        ("true // the rest is a comment", "true"),
    ]);
}

#[test]
fn values_are_computed_exactly() {
    all(&[
        ("value.retentionTime / 7", "14"),
        ("value.retentionTime % 7 - 3 * 2", "-4"),
        ("2 + 3 * 4 - -1", "15"),
        ("(2 + 3) * 4", "20"),
        ("value.share * 2.0", "1.0"),
        ("double(value.retentionTime) / 8.0", "12.5"),
        ("int(2.9) + int('5') + int(-2.9)", "5"),
        (
            "string(value.retentionTime) + '/' + string(value.share)",
            "\"100/0.5\"",
        ),
        (
            "size('äöü') + size(value.context.tags) + size([1, 2]) + size(value.context)",
            "11",
        ),
        ("' Ab '.trim().lowerAscii() + 'x'.upperAscii()", "\"abX\""),
        ("[1, 'a', null, 1.5]", "[1,\"a\",null,1.5]"),
        ("value.context.deep", "{\"x\": -1}"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("'\\u00e4\\x41' + r'\\n'", "\"äA\\\\n\""),
        ("1e3", "1000.0"),
    ]);
}

#[test]
fn times_have_zones() {
    all(&[
        ("timestamp.getHours()", "23"),
        ("timestamp.getHours('Europe/Stockholm')", "0"),
        ("timestamp.getDate('+01:00')", "23"),
        ("timestamp.getMonth()", "10"),
        ("timestamp.getDayOfWeek()", "0"),
        ("timestamp.getDayOfYear()", "325"),
        ("timestamp.getMilliseconds()", "250"),
        ("day(timestamp, 'Europe/Stockholm')", "\"2026-11-23\""),
        ("week(timestamp, 'UTC')", "\"2026-W47\""),
        ("month(timestamp, 'Asia/Tokyo')", "\"2026-11\""),
        // The clock goes from 1:59:59 to 3:00:00 on that day.
        (
            "local(timestamp(value.when) + duration('1s'), 'Europe/Stockholm')",
            "\"2026-03-29T03:00:00\"",
        ),
        (
            "local(timestamp(value.when), 'Europe/Stockholm')",
            "\"2026-03-29T01:59:59\"",
        ),
        ("timestamp - timestamp(value.when) > duration('5000h')", "true"),
        ("timestamp(0)", "\"1970-01-01T00:00:00Z\""),
        ("duration('1h30m') - duration('90m') == duration('0s')", "true"),
        ("duration('-1500ms')", "\"-1.5s\""),
        ("timestamp('1969-12-31T23:59:59Z') < timestamp(0)", "true"),
        (
            "timestamp.getHours('Mars/Olympus')",
            "! there is no such time zone",
        ),
        ("timestamp.getHours('+24:00')", "! there is no such time zone"),
        ("timestamp.getHours('+01:60')", "! there is no such time zone"),
        ("timestamp.getHours('--01:00')", "! there is no such time zone"),
        ("timestamp.getHours('-23:59')", "23"),
    ]);
}

#[test]
fn what_has_no_value_says_why() {
    all(&[
        ("value.x == 1", "! there is no value.x"),
        (
            "value.context.tags[5] == 1",
            "! there is no value.context.tags[5]",
        ),
        ("headers.w == 1", "! there is no headers[\"w\"]"),
        (
            "value.eventType + 1",
            "! + does not take a text and a whole number",
        ),
        (
            "value.share + 1",
            "! + does not take a fraction and a whole number",
        ),
        (
            "value.eventType < 1",
            "! < does not take a text and a whole number",
        ),
        ("value.max + 1", "! the result is too large a number"),
        (
            "-(-9223372036854775807 - 1)",
            "! the result is too large a number",
        ),
        (
            "(-9223372036854775808) / -1",
            "! the result is too large a number",
        ),
        ("1 / 0", "! a division by zero"),
        ("1 % 0", "! a division by zero"),
        (
            "!value.retentionTime",
            "! a condition is true or false, and this is a whole number",
        ),
        ("int('x')", "! the text is no whole number"),
        ("int(1e300)", "! the result is too large a number"),
        ("size(3)", "! size does not take a whole number"),
        ("1 in 2", "! in does not take a whole number and a whole number"),
        (
            "timestamp('yesterday')",
            "! the text is no time, such as 2026-11-22T16:00:00Z",
        ),
        (
            "value.context.contains('x')",
            "! contains does not take an object and a text",
        ),
        // A side that decides makes a fault of the other side harmless.
        ("value.x == 1 && false", "false"),
        ("value.x == 1 || true", "true"),
        ("value.x == 1 || false", "! there is no value.x"),
    ]);
    let expression = compiled("value.a == 1");
    for text in ["", "nonsense", "{\"a\": 1", "{\"a\": NaN}"] {
        assert_eq!(expression.is_true(&Text(text)), Err(Fault::NoJson), "{text}");
    }
    assert!(expression.is_true(&Text("[1]")).is_err());
    assert_eq!(
        compiled("offset").is_true(&Text("")),
        Err(Fault::NoCondition("a whole number"))
    );
}

#[test]
fn a_wrong_expression_is_refused_with_its_place() {
    for (source, why) in [
        ("", "a value was expected (at column 1)"),
        ("value.a ==", "a value was expected (at column 11)"),
        ("value.a = 1", "'=' has no meaning (at column 9)"),
        ("(1", ") was expected (at column 3)"),
        ("1 2", "an operator or the end was expected (at column 3)"),
        (
            "valu.a",
            "there is no valu; there are value, headers, key, topic, offset, timestamp (at column 1)",
        ),
        (
            "exchange == 'x'",
            "there is no exchange; there are value, headers, key, topic, offset, timestamp (at column 1)",
        ),
        (
            "value.l.all(x, x > 1)",
            "all is a loop, and there are none (at column 9)",
        ),
        (
            "value.l.exists(1, 2)",
            "exists is a loop, and there are none (at column 9)",
        ),
        ("frob(1)", "there is no function frob (at column 1)"),
        (
            "'a'.startsWith()",
            "startsWith does not take 0 arguments (at column 5)",
        ),
        (
            "value.a.matches(value.b)",
            "the pattern of matches is a constant text (at column 9)",
        ),
        (
            "value.a.matches('(')",
            "the pattern is wrong: error: unclosed group (at column 9)",
        ),
        (
            "value[value.a]",
            "in brackets stands a whole number or a text (at column 7)",
        ),
        ("'a", "the text has no end (at column 1)"),
        ("'\\q'", "there is no such escape (at column 2)"),
        ("9223372036854775808", "whole numbers have 64 bits (at column 1)"),
        (
            "0x10",
            "a number is written in decimal digits, without letters behind it (at column 1)",
        ),
        (
            "headers == 1",
            "a header's name was expected: headers.NAME (at column 9)",
        ),
        ("has(value)", "has takes a field, such as value.x (at column 1)"),
        ("topic.x", "only value and headers have fields (at column 7)"),
        ("while", "while is a reserved word (at column 1)"),
        ("'äö' && §", "'§' has no meaning (at column 9)"),
    ] {
        let refused = Expression::compile(source, VARIABLES).map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), why, "{source}");
    }
}

#[test]
fn depth_and_length_have_bounds() {
    let chain = |count| format!("1{}", " + 1".repeat(count));
    assert_eq!(result(&chain(60)).unwrap(), "61");
    let many = |count| format!("{}1{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(result(&many(60)).unwrap(), "1");
    let or = format!("false{}", " || false".repeat(400));
    assert_eq!(result(&or).unwrap(), "false");
    for source in [
        chain(100),
        many(100),
        format!("{}true", "!".repeat(100)),
        format!("{}1", "-".repeat(100)),
        format!("value{}", ".a".repeat(100)),
        format!("{}1{}", "[".repeat(100), "]".repeat(100)),
        format!("{}1", "true ? 1 : ".repeat(100)),
        "x".repeat(5000),
    ] {
        assert!(Expression::compile(&source, VARIABLES).is_err(), "{source}");
    }
}

/// Expressions of 4 KiB look at a record of 1 MiB a number of times only.
#[test]
fn the_most_costly_expressions_end_early() {
    let record = format!(
        "{{\"a\":\"{}\",\"l\":[{}0]}}",
        "x".repeat(1 << 20),
        "1,".repeat(200_000)
    );
    let repeated = |part: &str, by: &str| {
        let count = (4000 - part.len()) / (part.len() + by.len());
        format!("{part}{}", format!("{by}{part}").repeat(count))
    };
    for source in [
        repeated("value.a.contains('xy')", " || "),
        repeated("value.a.matches('(x+x+)+y')", " || "),
        repeated("1.5 in value.l", " || "),
        repeated("value.l == [1]", " || "),
        repeated("size(value.l) < 0", " || "),
        "value.a".to_owned() + &" + value.a".repeat(40) + " == ''",
        format!("{}value.a", "value.a + (".repeat(30)) + &")".repeat(30) + " == ''",
    ] {
        let result = compiled(&source).is_true(&Text(&record));
        assert!(matches!(result, Err(Fault::Costly)), "{result:?} {source}");
    }
    let found_once = repeated("value.l[9]==3", "||");
    assert_eq!(compiled(&found_once).is_true(&Text(&record)), Ok(false));
}

/// A look into a list reads all its items, whatever it is for.
#[test]
fn all_looks_into_a_list_cost_the_same() {
    let record = format!("{{\"l\":[{}0]}}", "1,".repeat(1000));
    for look in ["1.5 in value.l", "value.l == [1]", "size(value.l) == 0"] {
        let mut left = 1 << 20;
        assert_eq!(
            compiled(look).is_true_within(&Text(&record), &mut left),
            Ok(false)
        );
        let spent = (1 << 20) - left;
        assert!((8_000..16_000).contains(&spent), "{spent} {look}");
    }
}

#[test]
fn patterns_of_an_expression_share_one_bound() {
    let many = vec![r"value.a.matches(r'\w{9}')"; 100].join(" || ");
    let refused = Expression::compile(&many, VARIABLES).unwrap_err().to_string();
    assert!(
        refused.contains("all patterns of an expression have at most 262144 bytes"),
        "{refused}"
    );
    let small = vec!["value.a.matches('^ab.*c$')"; 30].join(" || ");
    assert!(Expression::compile(&small, VARIABLES).is_ok());
}

proptest! {
    #[test]
    fn any_text_is_an_expression_or_is_refused(source in ".{0,60}") {
        drop(Expression::compile(&source, VARIABLES));
    }

    #[test]
    fn any_words_are_an_expression_or_are_refused(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "value", ".", "a", "(", ")", "[", "]", ",", "'x'", "1", "0", "1.5", "&&", "||", "!", "-", "+", "*", "/", "%",
                "==", "<", "in", "?", ":", "has(value.a)", "size(", "timestamp(", "duration(", "headers", "null", "true",
                ".contains(", ".getHours(", "'UTC'", "9223372036854775807",
            ]),
            0..20,
        ),
        record in r#"\{"a": ?(1|"x"|\[1,2\]|\{"b":null\}|-9223372036854775808|1e308|true)\}"#,
    ) {
        if let Ok(expression) = Expression::compile(&words.concat(), VARIABLES) {
            let text = Text(&record);
            drop(expression.evaluate(&text).map(|value| value.to_json()));
        }
    }
}
