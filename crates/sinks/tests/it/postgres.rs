//! PostgreSQL: the suite, upserts, values of all types, and tables that do not fit.

use async_trait::async_trait;
use stafett_sinks::definition::{Definition, TargetSpec};
use stafett_sinks::target::postgres::Postgres;
use stafett_sinks::target::{Place, Promise, Start, Steps, Target, TargetError};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::server::Server;
use crate::suite::{self, Letters, Store, life, place, record};

struct Table {
    definition: Definition,
    client: Client,
}

impl Table {
    async fn new(server: &Server, fields: &str) -> Self {
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"postgres\"\nurl = \"{}\"\n{fields}",
            server.url()
        );
        let definition = Definition::parse(&text).unwrap().remove(0);
        let client = server.connect().await;
        let table = Self { definition, client };
        table.target(Steps::default()).prepare(true).await.unwrap();
        table
    }

    async fn texts(&self, statement: &str) -> Vec<String> {
        let rows = self.client.query(statement, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

#[async_trait]
impl Store for Table {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        let TargetSpec::Postgres(spec) = &self.definition.target else {
            panic!("a target of PostgreSQL");
        };
        let (columns, mode) = (&self.definition.columns, &self.definition.mode);
        Box::new(Postgres::new("s", spec, columns, mode, steps))
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        let statement = "SELECT n FROM events WHERE _topic = $1 AND _partition = $2 ORDER BY ctid";
        let partition = i64::from(place.partition);
        let rows = self
            .client
            .query(statement, &[&place.topic, &partition])
            .await
            .unwrap();
        rows.iter()
            .map(|row| u64::try_from(row.get::<_, i64>(0)).unwrap())
            .collect()
    }

    fn refuses(&self) -> bool {
        true
    }
}

const COLUMNS: &str = "table = \"events\"\nplace = true\n\
     [sink.s.columns]\nn = { type = \"bigint\", null = false }\ntext = { type = \"text\" }\n";

#[tokio::test]
async fn postgres_passes_the_suite() {
    let Some(server) = Server::start().await else {
        return;
    };
    let table = Table::new(&server, COLUMNS).await;
    assert_eq!(table.target(Steps::default()).promise(), Promise::ExactlyOnce);
    let check = "ALTER TABLE events ADD CHECK (n < 1000)";
    table.client.batch_execute(check).await.unwrap();
    suite::all(&table).await;
    let lines = table
        .texts("SELECT count(*)::text FROM stafett_flushes WHERE partition = 0")
        .await;
    assert_eq!(lines, ["6"], "a line for each flush of the first run");
    let statement = "SELECT coalesce(sum(rows), 0)::text FROM stafett_flushes";
    let written = table.texts(statement).await;
    assert_eq!(written, table.texts("SELECT count(*)::text FROM events").await);
}

#[tokio::test]
async fn rows_types_and_tables_of_postgres() {
    let Some(server) = Server::start().await else {
        return;
    };
    upserts_keep_the_last_record_of_a_key(&server).await;
    values_of_all_types_arrive_as_they_were(&server).await;
    tables_that_do_not_fit_stop_the_sink(&server).await;
    a_server_that_is_away_is_tried_again(&server).await;
    positions_of_an_earlier_version_get_a_column(&server).await;
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn an_address_with_tls_is_checked_against_the_authority() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (port, certificate) = (free_port(), made.cert.pem());
    let key = made.signing_key.serialize_pem();
    let settings = |data: &std::path::Path| {
        std::fs::write(data.join("server.crt"), &certificate).unwrap();
        std::fs::write(data.join("server.key"), &key).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(data.join("server.key"), private).unwrap();
        vec!["ssl=on".to_owned(), "listen_addresses=localhost".to_owned()]
    };
    let Some(server) = Server::start_with(port, &settings).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let definition = |fields: &str| {
        let text = format!(
            "[sink.s]\nfrom = \"events\"\nto = \"postgres\"\ncreate = true\n\
             url = \"host=localhost port={port} user=postgres dbname=postgres sslmode=require\"\n{fields}\n{COLUMNS}"
        );
        Definition::parse(&text).unwrap().remove(0)
    };
    let client = server.connect().await;
    let trusting = Table {
        definition: definition(&format!("ca = '{}'", ca.display())),
        client,
    };
    let mut target = trusting.target(Steps::default());
    target.open(&place(0), Start::at(0)).await.unwrap();
    let encrypted = "SELECT count(*)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl";
    assert_eq!(trusting.texts(encrypted).await, ["1"]);
    let strange = Table {
        definition: definition(""),
        client: server.connect().await,
    };
    let refused = strange
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await;
    assert!(refused.is_err(), "its authority is not one of the system's");
}

async fn upserts_keep_the_last_record_of_a_key(server: &Server) {
    let fields = "table = \"latest\"\nmode = \"upsert\"\nkey = [\"k\"]\n\
         [sink.s.columns]\nk = { type = \"text\", null = false }\nv = { type = \"bigint\" }\n";
    let table = Table::new(server, fields).await;
    let log: Vec<_> = (0..30)
        .map(|offset| {
            record(
                offset,
                &format!("{{\"k\":\"key {}\",\"v\":{offset}}}", offset % 4),
            )
        })
        .collect();
    let mut letters = Letters::default();
    let target = &mut *table.target(Steps::default());
    life(&table.definition, target, &place(0), &log, &mut letters)
        .await
        .unwrap();
    let rows = table.texts("SELECT k || '=' || v FROM latest ORDER BY k").await;
    assert_eq!(rows, ["key 0=28", "key 1=29", "key 2=26", "key 3=27"]);
}

async fn values_of_all_types_arrive_as_they_were(server: &Server) {
    let fields = "table = 'types \"; --'\non_poison = \"stop\"\n[sink.s.columns]\nid = { type = \"bigint\" }\n\
         b = { type = \"boolean\" }\nd = { type = \"double\" }\nn = { type = \"numeric(20,5)\" }\n\
         z = { type = \"timestamptz\" }\nl = { type = \"timestamp\" }\nday = { type = \"date\" }\n\
         u = { type = \"uuid\" }\nx = { type = \"bytea\" }\nt = { type = \"text\" }\n\
         'O\"Brien' = { type = \"text\", default = \"none\" }\nrest = { type = \"jsonb\", rest = true }\n";
    let table = Table::new(server, fields).await;
    let log = [
        record(
            0,
            r#"{"id":1,"b":true,"d":-0.5,"n":-12345678.00090,"z":"1969-12-31T23:00:00-02:00","l":"0099-01-01T00:00:00",
               "day":"1899-12-31","u":"67e55044-10b1-426f-9247-bb680e5fe0c8","x":"AP8=","t":"'); DROP TABLE x; --\n",
               "more":{"a":[1,null]}}"#,
        ),
        record(1, r#"{"id":2,"n":10000,"d":1e300,"rest":"not the column"}"#),
        record(2, r#"{"id":3,"n":0.00001}"#),
    ];
    let mut letters = Letters::default();
    let target = &mut *table.target(Steps::default());
    life(&table.definition, target, &place(10), &log, &mut letters)
        .await
        .unwrap();
    assert_eq!(letters.0, [0_u64; 0]);
    table.client.batch_execute("SET timezone = 'UTC'").await.unwrap();
    let rows = table
        .texts("SELECT whole::text FROM \"types \"\"; --\" whole ORDER BY id")
        .await;
    assert_eq!(
        rows,
        [
            "(1,t,-0.5,-12345678.00090,\"1970-01-01 01:00:00+00\",\"0099-01-01 00:00:00\",1899-12-31,\
             67e55044-10b1-426f-9247-bb680e5fe0c8,\"\\\\x00ff\",\"'); DROP TABLE x; --\n\",none,\
             \"{\"\"more\"\": {\"\"a\"\": [1, null]}}\")",
            "(2,,1e+300,10000.00000,,,,,,,none,\"{\"\"rest\"\": \"\"not the column\"\"}\")",
            "(3,,,0.00001,,,,,,,none,)",
        ]
    );
}

async fn tables_that_do_not_fit_stop_the_sink(server: &Server) {
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE odd (n int)").await.unwrap();
    let text = format!(
        "[sink.s]\nfrom = \"events\"\nto = \"postgres\"\nurl = \"{}\"\ntable = \"odd\"\n\
         [sink.s.columns]\nn = {{ type = \"bigint\" }}\n",
        server.url()
    );
    let definition = Definition::parse(&text).unwrap().remove(0);
    let table = Table { definition, client };
    let refused = table
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap_err();
    let why = "column n of \"public\".\"odd\" is integer, and the sink declares bigint";
    assert_eq!(refused, TargetError::Stop(why.to_owned()));
    table.client.batch_execute("DROP TABLE odd").await.unwrap();
    let refused = table
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap_err();
    let why = "the database lacks: CREATE TABLE IF NOT EXISTS \"public\".\"odd\" (\"n\" bigint);";
    assert_eq!(refused, TargetError::Stop(why.to_owned()));
}

async fn a_server_that_is_away_is_tried_again(server: &Server) {
    let table = Table::new(server, COLUMNS).await;
    let mut target = table.target(Steps::default());
    target.open(&place(7), Start::at(0)).await.unwrap();
    // The server ends the connection: its requests fail, and a new one is opened.
    let others = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    assert!(!table.texts(others).await.is_empty());
    let log: Vec<_> = (0..3)
        .map(|offset| record(offset, &format!("{{\"n\":{offset}}}")))
        .collect();
    let mut letters = Letters::default();
    life(&table.definition, &mut *target, &place(7), &log, &mut letters)
        .await
        .unwrap();
    assert_eq!(table.rows(&place(7)).await, [0, 1, 2]);
    let mut nowhere = table.definition.clone();
    if let TargetSpec::Postgres(spec) = &mut nowhere.target {
        let text = "[sink.s]\nfrom = \"e\"\nto = \"postgres\"\nurl = \"host=/nowhere user=x\"\ntable = \"e\"\n[sink.s.columns]\n\
             n = { type = \"bigint\" }\n";
        let TargetSpec::Postgres(other) = Definition::parse(text).unwrap().remove(0).target else {
            panic!("a target of PostgreSQL");
        };
        *spec = other;
    }
    let away = Table {
        definition: nowhere,
        client: server.connect().await,
    };
    let refused = away
        .target(Steps::default())
        .open(&place(0), Start::at(0))
        .await
        .unwrap_err();
    assert!(matches!(refused, TargetError::Retry(_)), "{refused:?}");
}

async fn positions_of_an_earlier_version_get_a_column(server: &Server) {
    let table = Table::new(server, COLUMNS).await;
    let earlier = "INSERT INTO stafett_positions (sink, topic, partition, next, epoch) VALUES ('s', 'events', 8, 3, 1); \
         ALTER TABLE stafett_positions DROP COLUMN topic_id";
    table.client.batch_execute(earlier).await.unwrap();
    let mut target = table.target(Steps::default());
    let missing = target.prepare(false).await.unwrap();
    let statement = "ALTER TABLE \"public\".\"stafett_positions\" ADD COLUMN IF NOT EXISTS topic_id uuid;";
    assert_eq!(missing, [statement]);
    let one = Start {
        topic: Some(Uuid::from_u128(1)),
        ..Start::at(0)
    };
    assert_eq!(target.open(&place(8), one).await.unwrap().next, 3);
    let ids = "SELECT topic_id::text FROM stafett_positions WHERE partition = 8";
    assert_eq!(table.texts(ids).await, ["00000000-0000-0000-0000-000000000001"]);
}
