//! One statement, its bounds, and its answer.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode, Statement};
use serde_json::{Map, Value};
use stafett_kafka_client::Client;
use stafett_model::Lock;
use stafett_sinks::Definition;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::names::identifiers;
use crate::source::Source;
use crate::table::{Registry, register};

/// Steps of SQLite between two looks at the clock.
const STEPS: i32 = 10_000;
/// Reason of a question that has reached its bound of time.
const READ_ONLY: &str = "a question begins with SELECT, WITH or VALUES: nothing is changed";
pub(crate) const TOO_LONG: &str = "the question takes longer than --time allows";

/// Bounds of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Memory of SQLite, in bytes.
    pub memory_bytes: u64,
    pub time: Duration,
    /// Rows of the answer.
    pub rows: u64,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line of names, and a line for each row, with tabulators between cells.
    Lines,
    /// An object for each row.
    Json,
}

/// Tables that a question may name: topics of a broker, and files of sinks.
#[derive(Debug)]
pub struct Tables {
    /// The reason if there is no broker: then there are files alone.
    pub client: Result<Client, String>,
    pub sinks: Vec<Definition>,
}

/// Writes the answer to a question. Returns false if it has more rows than the bound.
pub fn answer(
    handle: &Handle,
    tables: &Tables,
    text: &str,
    bounds: Bounds,
    form: Form,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let deadline = Instant::now() + bounds.time;
    let registry = Arc::new(Registry {
        sources: Lock::new(HashMap::new()),
        handle: handle.clone(),
        deadline,
    });
    let connection = bounded(bounds, deadline)?;
    register(&connection, Arc::clone(&registry))?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    let mut made = Vec::new();
    loop {
        let missing = match connection.prepare(text) {
            Ok(statement) => {
                check_twins(handle, tables, text, &made)?;
                let written = write_rows(statement, bounds, form, out);
                return written.map_err(|why| in_words(why, bounds));
            }
            Err(why) => {
                let Some(name) = missing(&why) else {
                    check_twins(handle, tables, text, &made)?;
                    return Err(in_words(anyhow!(why), bounds));
                };
                name
            }
        };
        if made.contains(&missing) {
            bail!("there is no table {missing}: a name with dots or dashes stands in double quotes");
        }
        let source = found(handle, tables, &missing)?;
        registry.sources.lock().insert(missing.clone(), Arc::new(source));
        let quoted = missing.replace('"', "\"\"");
        connection.execute_batch(&format!("CREATE VIRTUAL TABLE \"{quoted}\" USING stafett"))?;
        made.push(missing);
    }
}

/// Opens a database in memory, within bounds.
fn bounded(bounds: Bounds, deadline: Instant) -> anyhow::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit = {}; PRAGMA temp_store = MEMORY",
        bounds.memory_bytes
    ))?;
    connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
    Ok(connection)
}

/// Returns the name of the table that a statement lacks.
fn missing(why: &Error) -> Option<String> {
    let text = why.to_string();
    let (_, rest) = text.split_once("no such table: ")?;
    let end = rest.find(" in ").unwrap_or(rest.len());
    let name = rest.get(..end)?;
    Some(name.strip_prefix("main.").unwrap_or(name).to_owned())
}

fn found(handle: &Handle, tables: &Tables, name: &str) -> anyhow::Result<Source> {
    if let Some(sink) = tables.sinks.iter().find(|sink| sink.name == name) {
        return Source::of_files(sink);
    }
    let client = tables.client.as_ref();
    let client = client.map_err(|why| {
        anyhow!("there is no sink {name} in the file, and no broker to ask for a topic of that name: {why}")
    })?;
    let source = handle.block_on(Source::of_topic(client, name))?;
    source.with_context(|| {
        format!("there is no topic {name}: a name with dots or dashes stands in double quotes")
    })
}

/// Refuses a question with two tables whose names differ in case alone: SQLite takes them for one.
fn check_twins(handle: &Handle, tables: &Tables, text: &str, made: &[String]) -> anyhow::Result<()> {
    for other in identifiers(text) {
        let is_twin = |name: &&String| **name != other && name.eq_ignore_ascii_case(&other);
        if !made.contains(&other)
            && let Some(name) = made.iter().find(is_twin)
            && exists(handle, tables, &other)?
        {
            bail!(
                "{name} and {other} are two tables, and SQLite takes names that differ in case alone for one: \
                 ask about one of them, and write its name alike everywhere"
            );
        }
    }
    Ok(())
}

fn exists(handle: &Handle, tables: &Tables, name: &str) -> anyhow::Result<bool> {
    if tables.sinks.iter().any(|sink| sink.name == name) {
        return Ok(true);
    }
    match &tables.client {
        Ok(client) => Ok(handle.block_on(Source::of_topic(client, name))?.is_some()),
        Err(_) => Ok(false),
    }
}

fn write_rows(
    mut statement: Statement<'_>,
    bounds: Bounds,
    form: Form,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    if !statement.readonly() || statement.column_count() == 0 {
        bail!(READ_ONLY);
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let twin = names
        .iter()
        .enumerate()
        .find(|(place, name)| names.iter().take(*place).any(|it| it == *name));
    if let (Form::Json, Some((_, name))) = (form, twin) {
        bail!("two columns are named {name}: give them names with AS");
    }
    if form == Form::Lines {
        writeln!(out, "{}", names.join("\t"))?;
    }
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if count > bounds.rows {
            return Ok(false);
        }
        match form {
            Form::Lines => {
                for place in 0..names.len() {
                    let separator = if place > 0 { "\t" } else { "" };
                    write!(out, "{separator}{}", cell(row.get_ref(place)?))?;
                }
                writeln!(out)?;
            }
            Form::Json => {
                let mut object = Map::new();
                for (place, name) in names.iter().enumerate() {
                    object.insert(name.clone(), json(row.get_ref(place)?));
                }
                writeln!(out, "{}", Value::Object(object))?;
            }
        }
    }
    Ok(true)
}

/// Returns a value as people read it, in one line.
fn cell(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => printable(&String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => STANDARD.encode(bytes),
    }
}

/// Control characters must not reach the terminal as commands.
fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let letters = text.chars().map(|letter| {
        if letter.is_control() {
            letter.escape_default().to_string()
        } else {
            letter.to_string()
        }
    });
    letters.collect()
}

fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => STANDARD.encode(bytes).into(),
    }
}

/// Returns an error of SQLite as a bound, if it is one.
fn in_words(why: anyhow::Error, bounds: Bounds) -> anyhow::Error {
    let code = why.downcast_ref::<Error>().and_then(Error::sqlite_error_code);
    if why.to_string().contains("may not be modified") {
        return anyhow!(READ_ONLY);
    }
    if code == Some(ErrorCode::OutOfMemory) {
        let bytes = bounds.memory_bytes;
        anyhow!("the question takes more than {bytes} bytes: --memory is the bound")
    } else if code == Some(ErrorCode::OperationInterrupted) {
        anyhow!("{TOO_LONG}")
    } else {
        why
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The bound of memory is one of the process.
    static TURN: Lock<()> = Lock::new(());

    fn asked(text: &str, bounds: Bounds, form: Form) -> Result<(String, bool), String> {
        let tables = Tables {
            client: Err("refused".to_owned()),
            sinks: Vec::new(),
        };
        asked_of(&tables, text, bounds, form)
    }

    pub(crate) fn asked_of(
        tables: &Tables,
        text: &str,
        bounds: Bounds,
        form: Form,
    ) -> Result<(String, bool), String> {
        let _turn = TURN.lock();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut out = Vec::new();
        let whole = answer(runtime.handle(), tables, text, bounds, form, &mut out);
        let whole = whole.map_err(|why| format!("{why:#}"))?;
        Ok((String::from_utf8(out).unwrap(), whole))
    }

    pub(crate) const BOUNDS: Bounds = Bounds {
        memory_bytes: 32 << 20,
        time: Duration::from_mins(1),
        rows: 3,
    };

    #[test]
    fn an_answer_has_its_form_and_its_bound_of_rows() {
        let values = "SELECT 1 AS a, 'x\u{1b}\ty' AS b, NULL AS c, x'0001' AS d, 1.5 AS e";
        let (lines, whole) = asked(values, BOUNDS, Form::Lines).unwrap();
        assert_eq!(lines, "a\tb\tc\td\te\n1\tx\\u{1b}\\ty\tnull\tAAE=\t1.5\n");
        assert!(whole);
        let (lines, whole) = asked("VALUES (1), (2), (3), (4)", BOUNDS, Form::Json).unwrap();
        assert_eq!(lines, "{\"column1\":1}\n{\"column1\":2}\n{\"column1\":3}\n");
        assert!(!whole);
    }

    #[test]
    fn statements_that_change_or_read_elsewhere_are_refused() {
        for (text, why) in [
            ("CREATE TABLE t (a)", "nothing is changed"),
            ("ATTACH '/etc/passwd' AS other", "nothing is changed"),
            ("SELECT * FROM none", "there is no sink none in the file"),
            (
                "SELECT * FROM a.b",
                "there is no sink a.b in the file, and no broker to ask for a topic of that name: refused",
            ),
            ("SELEC 1", "syntax error"),
            ("SELECT 1; SELECT 2", "Multiple statements"),
        ] {
            let refused = asked(text, BOUNDS, Form::Lines).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_question_has_bounds_of_time_and_memory() {
        let endless =
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let bounds = Bounds {
            time: Duration::from_millis(50),
            ..BOUNDS
        };
        assert_eq!(asked(endless, bounds, Form::Lines).unwrap_err(), TOO_LONG);
        let large = "WITH RECURSIVE n(i, t) AS (VALUES (1, hex(zeroblob(100000))) UNION ALL \
            SELECT i + 1, hex(zeroblob(100000)) FROM n WHERE i < 1000) SELECT t FROM n ORDER BY t, i DESC";
        let refused = asked(large, BOUNDS, Form::Lines).unwrap_err();
        assert!(refused.contains("--memory is the bound"), "{refused}");
    }
}
