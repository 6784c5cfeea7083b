//! Roll-ups into PostgreSQL: each record counts once, whatever is killed.

use stafett_sinks::definition::{Definition, TargetSpec};
use stafett_sinks::target::postgres::Postgres;
use stafett_sinks::target::{Steps, Target};
use tokio_postgres::Client;

use crate::server::Server;
use crate::suite::{Letters, killing_at, life, place, record};

const RECORDS: u64 = 100;

const USAGE: &str = r#"
    [[sink.usage.transform]]
    where = "value.type == 'QUIT'"

    [sink.usage.rollup]
    time = { field = "ts", zone_field = "zone", zone = "UTC" }
    every = ["day", "month"]
    by = [[], ["app"]]

    [sink.usage.rollup.attributes]
    app = "app"

    [sink.usage.rollup.values]
    visits = { count = true }
    seconds = { sum = "seconds", scale = 2 }
    longest = { max = "seconds", scale = 2 }
    shortest = { min = "seconds", scale = 2 }
    stay = { mean = "seconds", scale = 2 }
    users = { distinct = "user" }
"#;

fn definition(server: &Server, table: &str) -> Definition {
    let text = format!(
        "[sink.usage]\nfrom = \"events\"\nto = \"postgres\"\nurl = \"{}\"\ntable = \"{table}\"\nmode = \"rollup\"\n{USAGE}",
        server.url()
    );
    Definition::parse(&text).unwrap().remove(0)
}

fn target(sink: &Definition, steps: Steps) -> Box<dyn Target> {
    let TargetSpec::Postgres(spec) = &sink.target else {
        panic!("a target of PostgreSQL");
    };
    Box::new(Postgres::new(&sink.name, spec, &sink.columns, &sink.mode, steps))
}

/// Records of two apps over three days in two zones, some of another type, and one that is poison.
fn log(partition: u32) -> Vec<stafett_model::StoredRecord> {
    let value = |offset: u64| {
        let kind = if offset % 5 == 4 { "PING" } else { "QUIT" };
        let zone = ["UTC", "Europe/Stockholm"][usize::from(offset.is_multiple_of(3))];
        let hour = offset % 72;
        let seconds = format!("{}.{:02}", offset % 7, offset % 100);
        if offset == 33 {
            return r#"{"type":"QUIT","ts":"soon"}"#.to_owned();
        }
        format!(
            r#"{{"type":"{kind}","ts":"2026-11-{:02}T{:02}:30:00Z","zone":"{zone}","app":"app {}","seconds":{seconds},"user":{}}}"#,
            29 + hour / 24 % 2,
            hour % 24,
            (offset + u64::from(partition)) % 2,
            offset % 11
        )
    };
    (0..RECORDS)
        .map(|offset| record(offset, &value(offset)))
        .collect()
}

async fn rows(client: &Client, table: &str) -> Vec<String> {
    let statement = format!("SELECT whole::text FROM {table} whole ORDER BY every, bucket, zone, by, app");
    let rows = client.query(&statement, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn sum_up(sink: &Definition, partition: u32) -> Letters {
    let mut letters = Letters::default();
    let target = &mut *target(sink, Steps::default());
    life(sink, target, &place(partition), &log(partition), &mut letters)
        .await
        .unwrap();
    letters
}

#[tokio::test]
async fn figures_are_exact_and_each_record_counts_once_over_kills_at_each_step() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    let plain = definition(&server, "plain");
    target(&plain, Steps::default()).prepare(true).await.unwrap();
    for partition in [0, 1] {
        assert_eq!(sum_up(&plain, partition).await.0, [33], "the poison record");
    }
    let expected = rows(&client, "plain").await;
    // 160 of 200 records are of the type; of these one of each partition is poison.
    let statement = "SELECT sum(visits)::text, sum(seconds)::text, sum(stay_sum)::text, sum(stay_count)::text, \
        max(longest)::text, min(shortest)::text FROM plain WHERE every = 'month' AND by = ''";
    let all = client.query_one(statement, &[]).await.unwrap();
    let all: Vec<String> = (0..6).map(|place| all.get(place)).collect();
    let wanted = |offset: &u64| offset % 5 != 4 && *offset != 33;
    let units: u64 = (0..RECORDS)
        .filter(wanted)
        .map(|offset| offset % 7 * 100 + offset % 100)
        .sum();
    let seconds = format!("{}.{:02}", units * 2 / 100, units * 2 % 100);
    assert_eq!(all, ["158", &seconds, &seconds, "158", "6.97", "0.00"]);
    // Users are the same in both partitions, and count once.
    let statement = "SELECT sum(users)::text, (SELECT count(*)::text FROM plain_members) FROM plain";
    let users = client.query_one(statement, &[]).await.unwrap();
    assert_eq!(users.get::<_, String>(0), users.get::<_, String>(1));
    let statement = "SELECT users::text FROM plain WHERE every = 'month' AND bucket = '2026-11-01' AND zone = 'UTC' AND by = ''";
    let users = client.query_one(statement, &[]).await.unwrap();
    assert_eq!(users.get::<_, String>(0), "11");
    let days = client
        .query_one(
            "SELECT sum(visits)::text FROM plain WHERE every = 'day' AND by = 'app'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(days.get::<_, String>(0), "158");

    let killed = definition(&server, "killed");
    let killed = Definition {
        name: "killed".to_owned(),
        ..killed
    };
    target(&killed, Steps::default()).prepare(true).await.unwrap();
    for partition in [0, 1] {
        let log = log(partition);
        for n in 1.. {
            let (steps, reached) = killing_at(n);
            let target = &mut *target(&killed, steps);
            let ended = life(&killed, target, &place(partition), &log, &mut Letters::default()).await;
            if ended.is_ok() {
                assert!(reached.load(std::sync::atomic::Ordering::Relaxed) < n);
                break;
            }
        }
    }
    assert_eq!(rows(&client, "killed").await, expected);
    let statement =
        "SELECT count(*)::text FROM (SELECT * FROM killed_members EXCEPT SELECT * FROM plain_members) more";
    let more = client.query_one(statement, &[]).await.unwrap();
    assert_eq!(more.get::<_, String>(0), "0");
}

#[tokio::test]
async fn several_partitions_add_to_the_same_rows_at_once() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.connect().await;
    let sink = definition(&server, "together");
    target(&sink, Steps::default()).prepare(true).await.unwrap();
    tokio::join!(sum_up(&sink, 0), sum_up(&sink, 1), sum_up(&sink, 2));
    let statement = "SELECT sum(visits)::text FROM together WHERE every = 'day' AND by = ''";
    let row = client.query_one(statement, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), (3 * 79).to_string());
    let TargetSpec::Postgres(spec) = &sink.target else {
        panic!("a target of PostgreSQL");
    };
    let mut store = Postgres::new(&sink.name, spec, &sink.columns, &sink.mode, Steps::default());
    let set = "UPDATE stafett_flushes SET topic_id = gen_random_uuid() WHERE partition = 0; \
        UPDATE stafett_positions there SET topic_id = (SELECT topic_id FROM stafett_flushes lines \
        WHERE lines.partition = there.partition ORDER BY first DESC LIMIT 1); \
        UPDATE stafett_flushes lines SET topic_id = (SELECT topic_id FROM stafett_positions there \
        WHERE lines.partition = there.partition) WHERE partition = 0; \
        INSERT INTO stafett_flushes SELECT sink, topic, partition, 200, 300, 1, 1, 1, now(), topic_id \
        FROM stafett_positions WHERE partition = 0";
    client.batch_execute(set).await.unwrap();
    let found = store.figures().await.unwrap();
    let first = &found.places[0];
    assert_eq!(
        (first.first, first.next, first.is_whole),
        (Some(0), RECORDS, true),
        "{first:?}"
    );
    let change = "UPDATE stafett_flushes SET first = first + 1 WHERE partition = 0 AND first > 0; \
        UPDATE stafett_flushes SET topic_id = gen_random_uuid() WHERE partition = 0 AND first = 0";
    client.batch_execute(change).await.unwrap();
    assert!(!store.figures().await.unwrap().places[0].is_whole);
    client.batch_execute("DELETE FROM stafett_flushes").await.unwrap();
    assert_eq!(store.figures().await.unwrap().places[0].first, None);
    // A position that comes meanwhile is noticed.
    let more = "INSERT INTO stafett_positions SELECT sink, topic, 9, next, epoch FROM stafett_positions WHERE partition = 0";
    client.batch_execute(more).await.unwrap();
    let rows = stafett_sinks::rows::Rows::new(sink.columns.len());
    let refused = store
        .replace_figures(&found, &rows, false)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("events-9 has moved on meanwhile"), "{refused}");
}

#[test]
fn a_wrong_roll_up_is_refused_with_its_place() {
    let whole = format!(
        "[sink.usage]\nfrom = \"events\"\nto = \"postgres\"\nurl = \"env:U\"\ntable = \"t\"\nmode = \"rollup\"\n{USAGE}"
    );
    assert!(Definition::parse(&whole).is_ok());
    for (part, change, why) in [
        (
            "every = [\"day\", \"month\"]",
            "every = [\"day\", \"decade\"]",
            "sink.usage.rollup.every: \"decade\" is not one of hour, day, week, month, each once",
        ),
        (
            "by = [[], [\"app\"]]",
            "by = [[\"apple\"]]",
            "sink.usage.rollup.by: \"apple\" is none of the attributes, each once",
        ),
        (
            "by = [[], [\"app\"]]",
            "by = [[], []]",
            "sink.usage.rollup.by: a set is there twice",
        ),
        (
            ", zone_field = \"zone\", zone = \"UTC\"",
            "",
            "sink.usage.rollup.time.zone: buckets of time need a zone, or a zone_field",
        ),
        (
            "visits = { count = true }",
            "visits = { count = true, sum = \"a\" }",
            "a value has one of count, sum, mean, min, max and distinct",
        ),
        (
            "visits = { count = true }",
            "zone = { count = true }",
            "sink.usage.rollup.values: there are two columns zone",
        ),
        ("scale = 2", "scale = 10", "seconds.scale: it is at most 9"),
        (
            "mode = \"rollup\"",
            "mode = \"append\"\n[sink.usage.columns]\na = { type = \"text\" }",
            "sink.usage.rollup: it belongs to mode = \"rollup\"",
        ),
        (
            "to = \"postgres\"",
            "to = \"files\"\npath = \"/p\"",
            "sink.usage.mode: a roll-up needs a target that adds: postgres",
        ),
    ] {
        let text = whole.replacen(part, change, 1);
        assert_ne!(text, whole, "{part}");
        let text = if change.contains("files") {
            text.replace("url = \"env:U\"\ntable = \"t\"\n", "")
        } else {
            text
        };
        let refused = Definition::parse(&text).unwrap_err().to_string();
        assert!(refused.ends_with(why), "{refused} is not {why}");
    }
}
