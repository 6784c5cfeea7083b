//! `stafett sql`, by the program beside the binary.

use std::fs;

use super::cli::Cli;

pub(super) fn topics_and_files_are_asked_by_sql(cli: &Cli) {
    let ask = |question: &str| cli.text(&["sql", question]);
    cli.text(&["topic", "create", "Events.full", "-p", "3"]);
    let lines = (0..3000).map(|n| {
        let (key, kind, zone) = (n % 50, ["QUIT", "PING"][n % 2], n % 3);
        format!("k{key}:{{\"n\":{n},\"type\":\"{kind}\",\"c\":{{\"z\":{zone}}}}}\n")
    });
    let lines = lines.collect::<Vec<_>>().concat();
    cli.produce(&["Events.full", "-K", ":"], lines.as_bytes());
    let found = ask("SELECT count(*), sum(value ->> 'n'), count(DISTINCT partition) FROM \"Events.full\"");
    assert_eq!(found.lines().nth(1), Some("3000\t4498500\t3"));
    let found = ask(
        "SELECT value ->> 'type' AS type, value ->> '$.c.z' AS z, count(*) FROM \"Events.full\" \
         GROUP BY 1, 2 ORDER BY 1, 2",
    );
    assert_eq!(
        found,
        "type\tz\tcount(*)\nPING\t0\t500\nPING\t1\t500\nPING\t2\t500\nQUIT\t0\t500\nQUIT\t1\t500\nQUIT\t2\t500\n"
    );
    bounds_are_exact(&ask);
    refused(cli);
}

/// Bounds of partition, offset and time narrow the read; the answers are as exact without them.
fn bounds_are_exact(ask: &impl Fn(&str) -> String) {
    let all = "SELECT count(*) FROM \"Events.full\" WHERE ";
    let count = |condition: &str| {
        let found = ask(&format!("{all}{condition}"));
        found.lines().nth(1).unwrap().parse::<i64>().unwrap()
    };
    let first = count("partition = 0");
    assert_eq!(
        count("partition = 0 AND \"offset\" >= 10 AND \"offset\" < 20"),
        10
    );
    assert_eq!(
        count("partition = 0 AND \"offset\" > 10 AND \"offset\" <= 20"),
        10
    );
    assert_eq!(count("partition = 0 AND \"offset\" < 10.5"), 11);
    assert_eq!(count("partition = '0'"), first);
    assert_eq!(count("partition < 0 OR partition > 2"), 0);
    assert_eq!(count("timestamp >= 0 AND time > '2000-01-01'"), 3000);
    assert_eq!(count("timestamp > 99999999999999"), 0);
    let join = "WITH keys AS MATERIALIZED (SELECT DISTINCT key FROM \"Events.full\") \
        SELECT count(*) FROM keys JOIN (SELECT key, count(*) AS c FROM \"Events.full\" GROUP BY 1) USING (key)";
    assert_eq!(ask(join).lines().nth(1), Some("50"));
}

fn refused(cli: &Cli) {
    for (arguments, why) in [
        (vec!["sql", "SELECT * FROM Events"], "there is no topic Events"),
        (
            vec!["sql", "SELECT * FROM Events.full"],
            "a name with dots or dashes stands in double quotes",
        ),
        (vec!["sql", "DELETE FROM \"Events.full\""], "nothing is changed"),
        (
            vec![
                "sql",
                "--time",
                "200ms",
                "SELECT count(*) FROM \"Events.full\" a, \"Events.full\" b, \"Events.full\" c",
            ],
            "longer than --time allows",
        ),
    ] {
        let said = cli.failure(&arguments);
        assert!(said.contains(why), "{said}");
    }
    let few = cli.text(&[
        "sql",
        "--rows",
        "2",
        "--json",
        "SELECT \"offset\" FROM \"Events.full\" WHERE partition = 1",
    ]);
    assert_eq!(few, "{\"offset\":0}\n{\"offset\":1}\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sinks.toml");
    fs::write(
        &file,
        "[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\n",
    )
    .unwrap();
    let said = cli.failure(&["sql", "-f", file.to_str().unwrap(), "SELECT * FROM s"]);
    assert!(said.contains("the sink s writes no files with columns"), "{said}");
}
