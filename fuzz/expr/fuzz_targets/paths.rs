//! Fields of JSON text: those that are read by path are those that a second reader finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;
use stafett_expr::{Expression, Found, NoJson, Paths, Record, Value, Variable};

struct Given<'a>(&'a str);

impl Record for Given<'_> {
    fn variable(&self, _: Variable) -> Value<'_> {
        Value::Null
    }

    fn header(&self, _: &str) -> Option<Value<'_>> {
        None
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        paths.read(self.0, found)
    }
}

fuzz_target!(|text: &str| {
    let all: [(&str, &[&str]); 4] = [
        ("value.a", &["a"]),
        ("value.a.b", &["a", "b"]),
        ("value['é\"']", &["é\""]),
        ("value", &[]),
    ];
    // The second reader has a bound on depth, and numbers of its own.
    let Ok(json) = serde_json::from_str::<Json>(text) else {
        return;
    };
    for (source, path) in all {
        let expression = Expression::compile(source, &[Variable::Value]).expect("it is sound");
        let given = Given(text);
        let found = expression.evaluate(&given);
        let expected = path.iter().try_fold(&json, |json, name| json.get(name));
        assert_eq!(found.is_ok(), expected.is_some(), "{source}: {found:?}");
        let (Ok(found), Some(expected)) = (found, expected) else {
            continue;
        };
        if expected.is_string() || expected.is_boolean() || expected.is_null() {
            let found = found.to_json().expect("it is JSON");
            assert_eq!(serde_json::from_str::<Json>(&found).ok().as_ref(), Some(expected), "{source}");
        }
    }
});
