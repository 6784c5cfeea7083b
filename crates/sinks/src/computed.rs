//! Steps that compute: conditions, fields by expression, and times in zones.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::TimeZone;
use stafett_expr::{Expression, Found, NoJson, Paths, PlacedRecord, Record, Value, Variable, zone};

use crate::cells::string;
use crate::document::{Document, cited};

static PRINTER: DateTimePrinter = DateTimePrinter::new();
/// Bytes of a time as a JSON string, with nanoseconds.
const TIME_BYTES: usize = 40;

/// A record with its fields as the steps before have left them.
pub(crate) struct View<'a> {
    pub(crate) document: &'a Document<'a>,
    pub(crate) source: PlacedRecord<'a>,
}

impl Record for View<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        self.source.variable(variable)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.source.header(name)
    }

    fn header_work(&self) -> usize {
        self.source.header_work()
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let fields = self
            .document
            .fields
            .iter()
            .map(|field| (&*field.name, &*field.json));
        let whole = || {
            let mut out = Vec::new();
            self.document.write(&mut out);
            String::from_utf8(out).unwrap_or_default()
        };
        paths.read_fields(fields, whole, found)
    }
}

/// Sets fields one after the other; each sees those before.
pub(crate) fn set(
    document: &mut Document<'_>,
    source: PlacedRecord<'_>,
    fields: &[(String, Expression)],
) -> Result<(), String> {
    for (name, expression) in fields {
        let view = View {
            document: &*document,
            source,
        };
        let value = expression
            .evaluate(&view)
            .map_err(|why| format!("{name}: {why}"))?;
        let json = value
            .to_json()
            .ok_or_else(|| format!("{name}: the result is no number"))?;
        drop(value);
        document.set(name, json);
    }
    Ok(())
}

/// A time as UTC, and as the clocks of a zone show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoTimes {
    pub field: String,
    pub unit: Unit,
    /// Field of the time in UTC, if it is written.
    pub utc: Option<String>,
    pub local: Option<String>,
    /// Field with the zone's name.
    pub zone_field: Option<String>,
    /// Zone of records without such a field.
    pub zone: Option<TimeZone>,
}

/// Unit of a time that is a number, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Milliseconds,
    Seconds,
    Microseconds,
}

impl Unit {
    pub(crate) fn time(self, number: i64) -> Option<Timestamp> {
        match self {
            Self::Milliseconds => Timestamp::from_millisecond(number),
            Self::Seconds => Timestamp::from_second(number),
            Self::Microseconds => Timestamp::from_microsecond(number),
        }
        .ok()
    }
}

/// Returns a time as a JSON string.
fn quoted(print: impl FnOnce(&mut String) -> Result<(), jiff::Error>) -> String {
    let mut text = String::with_capacity(TIME_BYTES);
    text.push('"');
    // Printing to a text does not fail.
    let _ = print(&mut text);
    text.push('"');
    text
}

impl TwoTimes {
    /// Writes the times of a record. One without a time stays as it is.
    pub(crate) fn apply(&self, document: &mut Document<'_>) -> Result<(), String> {
        let Some(json) = document.get(&self.field).filter(|json| *json != "null") else {
            return Ok(());
        };
        let time = self.time_of(json)?;
        let local = match &self.local {
            Some(name) => Some((name, self.zone_of(document)?.to_datetime(time))),
            None => None,
        };
        if let Some(name) = &self.utc {
            document.set(name, quoted(|text| PRINTER.print_timestamp(&time, text)));
        }
        if let Some((name, local)) = local {
            document.set(name, quoted(|text| PRINTER.print_datetime(&local, text)));
        }
        Ok(())
    }

    /// Reads a time out of its JSON text.
    pub(crate) fn time_of(&self, json: &str) -> Result<Timestamp, String> {
        let time = match json.parse::<i64>() {
            Ok(number) => self.unit.time(number),
            Err(_) => string(json).and_then(|text| text.parse().ok()),
        };
        time.ok_or_else(|| format!("{}: {} is no time", self.field, cited(json)))
    }

    pub(crate) fn zone_of(&self, document: &Document<'_>) -> Result<TimeZone, String> {
        let field = self.zone_field.as_deref();
        let named = field
            .and_then(|field| document.get(field))
            .filter(|json| *json != "null");
        let Some(json) = named else {
            return self
                .zone
                .clone()
                .ok_or_else(|| "the record has no zone".to_owned());
        };
        Self::zone_named(json)
    }

    /// Reads a zone out of its JSON text.
    pub(crate) fn zone_named(json: &str) -> Result<TimeZone, String> {
        let found = string(json).and_then(|name| zone(&name).ok());
        found.ok_or_else(|| format!("{} is no time zone", cited(json)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use stafett_model::{Headers, Offset, StoredRecord};

    use super::*;
    use crate::definition::Definition;
    use crate::target::Place;
    use crate::transform::{Step, Verdict};

    pub(crate) fn place_and_record() -> (Place, StoredRecord) {
        let place = Place {
            topic: "events".to_owned(),
            partition: 3,
        };
        let record = StoredRecord {
            offset: Offset(7),
            timestamp: 1_795_000_000_000,
            key: Some(Bytes::from_static(b"k1")),
            value: None,
            headers: Headers::default(),
        };
        (place, record)
    }

    fn steps(text: &str) -> Vec<Step> {
        let whole =
            format!("[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\n[[sink.s.transform]]\n{text}");
        Definition::parse(&whole).unwrap().remove(0).steps
    }

    fn done(text: &str, json: &str) -> Result<(String, Verdict), String> {
        let (place, record) = place_and_record();
        let source = place.holding(&record);
        let mut document = Document::parse(json).unwrap();
        let mut verdict = Verdict::Keep;
        for step in steps(text) {
            verdict = step.apply(&mut document, source)?;
        }
        let mut out = Vec::new();
        document.write(&mut out);
        Ok((String::from_utf8(out).unwrap(), verdict))
    }

    #[test]
    fn a_condition_keeps_what_is_true_and_counts_what_fails() {
        for (condition, verdict) in [
            ("value.a == 1 && topic == 'events' && key == 'k1'", Verdict::Keep),
            ("offset == 8", Verdict::Drop { has_failed: false }),
            (
                "partition == 3 && timestamp > timestamp('2026-01-01T00:00:00Z')",
                Verdict::Keep,
            ),
            ("value.b == 1", Verdict::Drop { has_failed: true }),
            ("value.a", Verdict::Drop { has_failed: true }),
        ] {
            let found = done(&format!("where = \"{condition}\""), r#"{"a":1}"#).unwrap();
            assert_eq!(found.1, verdict, "{condition}");
        }
    }

    #[test]
    fn fields_are_set_in_their_order_and_a_failure_is_poison() {
        let set = "set = { a = \"value.a + 1\", b = \"value.a * 2\", c = \"'x' + key\", d = \"value\" }";
        let found = done(set, r#"{"a":1,"z":null}"#).unwrap().0;
        assert_eq!(
            found,
            r#"{"z":null,"a":2,"b":4,"c":"xk1","d":{"z":null,"a":2,"b":4,"c":"xk1"}}"#
        );
        let why = done("set = { a = \"value.x\" }", "{}").unwrap_err();
        assert_eq!(why, "a: there is no value.x");
        let why = done("set = { a = \"1.0 / 0.0\" }", "{}").unwrap_err();
        assert_eq!(why, "a: the result is no number");
    }

    #[test]
    fn times_are_written_twice_over_the_changes_of_the_clock() {
        let time = r#"time = { field = "ts", utc = "u", local = "l", zone_field = "z", zone = "UTC" }"#;
        for (record, expected) in [
            // One hour is there twice, another one not at all.
            (
                r#"{"ts":"2026-10-25T00:30:00Z","z":"Europe/Stockholm"}"#,
                ("2026-10-25T00:30:00Z", "2026-10-25T02:30:00"),
            ),
            (
                r#"{"ts":"2026-10-25T01:30:00Z","z":"Europe/Stockholm"}"#,
                ("2026-10-25T01:30:00Z", "2026-10-25T02:30:00"),
            ),
            (
                r#"{"ts":"2026-03-29T01:00:00Z","z":"Europe/Stockholm"}"#,
                ("2026-03-29T01:00:00Z", "2026-03-29T03:00:00"),
            ),
            (
                r#"{"ts":1000,"z":"Asia/Kathmandu"}"#,
                ("1970-01-01T00:00:01Z", "1970-01-01T05:30:01"),
            ),
            (
                r#"{"ts":-1,"z":null}"#,
                ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999"),
            ),
        ] {
            let found = done(time, record).unwrap().0;
            let (utc, local) = expected;
            let expected = format!(r#","u":"{utc}","l":"{local}"}}"#);
            assert!(found.ends_with(&expected), "{found} is not {expected}");
        }
        for (record, why) in [
            (r#"{"ts":"soon"}"#, "ts: \"soon\" is no time"),
            (
                r#"{"ts":1,"z":"Mars/Olympus"}"#,
                "\"Mars/Olympus\" is no time zone",
            ),
            (r#"{"ts":1,"z":5}"#, "5 is no time zone"),
        ] {
            assert_eq!(done(time, record).unwrap_err(), why);
        }
        assert_eq!(done(time, r#"{"ts":null}"#).unwrap().0, r#"{"ts":null}"#);
        let seconds = r#"time = { field = "ts", unit = "s", utc = "u" }"#;
        assert_eq!(
            done(seconds, r#"{"ts":1}"#).unwrap().0,
            r#"{"ts":1,"u":"1970-01-01T00:00:01Z"}"#
        );
    }

    #[test]
    fn wrong_steps_are_refused_with_their_place() {
        let refused = |text: &str| {
            let whole = format!(
                "[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\n[[sink.s.transform]]\n{text}"
            );
            Definition::parse(&whole).unwrap_err().to_string()
        };
        for (text, why) in [
            (
                "where = \"value.a ==\"",
                "where: a value was expected (at column 11)",
            ),
            ("where = 1", "where: it has to be an expression"),
            (
                "set = { a = \"frob(1)\" }",
                "set.a: there is no function frob (at column 1)",
            ),
            (
                "set = { a = 1 }",
                "set.a: it has to be an expression: a text in it has quotes of its own",
            ),
            (
                "lookup = { topic = \"t\", key = \"value.\", add = [\"a\"] }",
                "lookup.key: a name was expected behind the dot (at column 7)",
            ),
            (
                "lookup = { topic = \"t\", key = \"key\" }",
                "lookup.add: a look-up adds at least one field of the row",
            ),
            (
                "lookup = { topic = \"t\", key = \"key\", add = [\"a\"], bytes_max = \"2GiB\" }",
                "lookup.bytes_max: a table takes at most 1GiB",
            ),
            (
                "time = { field = \"a\" }",
                "time.utc: a time goes into utc, into local, or into both",
            ),
            (
                "time = { field = \"a\", local = \"b\" }",
                "time.zone: a local time needs a zone, or a zone_field",
            ),
            (
                "time = { field = \"a\", local = \"b\", zone = \"Mars\" }",
                "time.zone: there is no such time zone",
            ),
        ] {
            assert_eq!(refused(text), why, "{text}");
        }
    }
}
