//! Records per second of a core from JSON to rows, by the steps on the way: `transforms COUNT [BEGINNING]`,
//! with those ways alone whose names begin so.
//!
//! Build it with `cargo build --release -p stafett-sinks --example transforms`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to measure with: it ends at the first failure"
)]

mod events;

use events::{COLUMNS, records};
use stafett_model::StoredRecord;
use stafett_sinks::convert::Converter;
use stafett_sinks::definition::Definition;
use stafett_sinks::gather::{Cause, Gather};
use stafett_sinks::target::Place;
use stafett_sinks::transform::Step;

/// Fields that the steps change, beside those of all records.
const MORE: &str = r#""zone":"Europe/Stockholm","context":{"country":"SE","place":{"city":"Kista"}},"#;

/// Ways from records to rows, none of which writes: nothing changed, changed as for a warehouse, a condition, and
/// summed up.
const WAYS: [(&str, &str); 7] = [
    ("columns", COLUMNS),
    (
        "drop, flatten and two times",
        r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
retention = { from = "retentionTime", type = "bigint" }
country = { from = "context_country", type = "text" }
city = { from = "context_place_city", type = "text" }
ts_utc = { type = "timestamptz" }
ts_local = { type = "timestamp" }
[[sink.rate.transform]]
drop = ["message", "active"]
[[sink.rate.transform]]
flatten = { field = "context" }
[[sink.rate.transform]]
time = { field = "at", utc = "ts_utc", local = "ts_local", zone_field = "zone", zone = "UTC" }
"#,
    ),
    (
        "drop, flatten, two times, and two fields looked up, with a row for six of seven records",
        r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
retention = { from = "retentionTime", type = "bigint" }
country = { from = "context_country", type = "text" }
city = { from = "context_place_city", type = "text" }
ts_utc = { type = "timestamptz" }
ts_local = { type = "timestamp" }
name = { type = "text" }
owner = { type = "text" }
[[sink.rate.transform]]
drop = ["message", "active"]
[[sink.rate.transform]]
flatten = { field = "context" }
[[sink.rate.transform]]
time = { field = "at", utc = "ts_utc", local = "ts_local", zone_field = "zone", zone = "UTC" }
[[sink.rate.transform]]
lookup = { topic = "apps", key = "value.applicationId", add = ["name", "owner"] }
"#,
    ),
    (
        "two fields looked up, with a row for six of seven records",
        r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
name = { type = "text" }
owner = { type = "text" }
[[sink.rate.transform]]
lookup = { topic = "apps", key = "value.applicationId", add = ["name", "owner"] }
"#,
    ),
    (
        "a condition, true of half",
        r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
[[sink.rate.transform]]
where = "value.eventType == 'QUIT' && value.retentionTime >= 500 && value.context.country in ['NO', 'SE']"
"#,
    ),
    (
        "a field computed",
        r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
seconds = { type = "bigint" }
[[sink.rate.transform]]
set = { seconds = "value.retentionTime / 1000" }
"#,
    ),
    (
        "a roll-up by day, week and month, and three sets",
        r#"
[sink.rate.rollup]
time = { field = "at", zone_field = "zone", zone = "UTC" }
every = ["day", "week", "month"]
by = [["application"], ["application", "platform"], ["application", "platform", "country"]]
[sink.rate.rollup.attributes]
application = "applicationId"
platform = "platform"
country = "context.country"
[sink.rate.rollup.values]
visits = { count = true }
retention = { sum = "retentionTime" }
"#,
    ),
];

/// Returns the time that this thread has had a processor.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos: f64 = text.split(' ').next().unwrap().parse().unwrap();
    nanos / 1e9
}

/// Prints the rate from records to rows, by the time of the processor.
fn convert(records: &[StoredRecord], what: &str, fields: &str) {
    let mode = if fields.contains("rollup") {
        "mode = \"rollup\"\n"
    } else {
        ""
    };
    let text = format!(
        "[sink.rate]\nfrom = \"rate\"\nto = \"postgres\"\nurl = \"env:NONE\"\ntable = \"rate\"\n{mode}{fields}"
    );
    let sink = Definition::parse(&text).unwrap().remove(0);
    for step in &sink.steps {
        if let Step::Lookup(lookup) = step {
            for app in 0..6 {
                let (key, row) = (
                    format!("app-{app}"),
                    format!(r#"{{"name":"App {app}","owner":"Team {app}"}}"#),
                );
                lookup.take(0, key.as_bytes(), Some(row.as_bytes())).unwrap();
            }
        }
    }
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let place = Place {
        topic: "rate".to_owned(),
        partition: 0,
    };
    let gather = Gather::new(place, sink.flush, sink.columns.len(), 0, None, 0);
    let mut gather = gather.summing(sink.rollup.as_ref());
    let (mut rows, begun) = (0, cpu_seconds());
    for (count, record) in (1..).zip(records) {
        assert!(gather.push(record, &mut converter));
        if count % 30_000 == 0 {
            let batch = gather.take(Cause::Full, 0);
            assert!(batch.poison.is_empty(), "{:?}", batch.poison.first());
            rows += batch.rows.len();
        }
    }
    let rate = records.len() as f64 / (cpu_seconds() - begun) / 1000.0;
    println!("{what:?}: {rate:.0} k/s per core, {rows} rows");
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .map_or(1_000_000, |count| count.parse().unwrap());
    let records = records(count, MORE);
    let only = std::env::args().nth(2).unwrap_or_default();
    for (what, fields) in WAYS.iter().filter(|(what, _)| what.starts_with(&only)) {
        convert(&records, what, fields);
    }
}
