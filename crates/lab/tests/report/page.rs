//! What stands in the files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use stafett_lab::report::{ReportError, compare, report};
use stafett_lab::results::{Ceiling, Folder, Outcome, OutcomeKind, Point, Reached, Run, Status};
use tempfile::TempDir;

use crate::{Reported, experiments, fixture};

/// Returns the text between two marks.
#[track_caller]
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from} is there"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to} is there")).0
}

fn one(text: &str, change: impl FnOnce(&Path)) -> String {
    let folder = TempDir::new().unwrap();
    fixture::write(folder.path(), "one", text, 7);
    change(folder.path());
    let written = report(folder.path(), folder.path()).unwrap();
    std::fs::read_to_string(written.html).unwrap()
}

#[test]
fn page_loads_nothing_from_anywhere() {
    let html = Reported::new().text("report.html");
    for loading in [
        "http:",
        "https:",
        "src=",
        "<script",
        "url(",
        "@import",
        "<link rel=\"stylesheet\"",
    ] {
        assert!(!html.contains(loading), "{loading}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn every_row_of_numbers_has_its_durability() {
    let html = Reported::new().text("report.html");
    let mut rows = 0;
    for table in html.split("<h3>The numbers</h3>").skip(1) {
        for row in between(table, "<tbody>", "</tbody>").split("<tr").skip(1) {
            assert!(row.contains("class=\"durability "), "{row}");
            rows += 1;
        }
    }
    assert!(rows > 20, "{rows} rows");
}

#[test]
fn a_level_that_a_system_lacks_is_shown_as_the_one_it_gives() {
    let html = one(experiments::BATCH, |_| {});
    let table = between(&html, "<h3>The numbers</h3>", "</section>");
    let lesser = table
        .split("<tr")
        .filter(|row| row.contains("asked: sync"))
        .collect::<Vec<_>>();
    assert!(!lesser.is_empty());
    assert!(
        lesser
            .iter()
            .all(|row| row.contains("RabbitMQ") && row.contains("interval:1,200ms"))
    );
}

#[test]
fn failures_refusals_losses_and_skips_are_results() {
    let html = Reported::new().text("report.html");
    for word in [">refused<", ">failed<", ">lost messages<", ">skipped<"] {
        assert!(html.contains(word), "{word}");
    }
    assert!(html.contains("no driver speaks its protocol yet"));
    assert!(html.contains("did not answer for 30 s, then died"));
    assert!(html.contains("Nothing was measured"));
}

#[test]
fn what_systems_say_cannot_become_markup() {
    let html = Reported::new().text("report.html");
    assert!(html.contains("smaller than a frame &lt;&amp;&gt;"));
    assert!(!html.contains("<&>"));
}

#[test]
fn command_environment_ceilings_and_driver_are_there() {
    let html = Reported::new().text("report.html");
    for text in [
        "stafett lab run batch --seed 1",
        "Imaginary processor of the tests",
        "there is no stub of this protocol",
        "lapin",
        "of ceiling",
        "stafett 0.1.0 (0123abcd)",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn design_without_repetitions_says_that_it_has_no_intervals() {
    let html = one(&experiments::unreplicated(), |_| {});
    assert!(
        html.contains("without replication there is no experimental error, and so no confidence interval")
    );
    assert!(html.contains("not known"));
    let html = one(experiments::FACTORS, |_| {});
    assert!(!html.contains("without replication"));
    assert!(html.contains("3 repetitions of each combination"));
}

#[test]
fn interrupted_run_says_how_far_it_got() {
    let html = one(experiments::PEAK, |path| {
        let folder = Folder::new(path);
        let mut run = folder.read_run().unwrap();
        run.status = Status::Interrupted;
        folder.write_run(&run).unwrap();
        std::fs::remove_file(path.join("points/0003.json")).unwrap();
    });
    assert!(html.contains("<strong>Interrupted</strong>: 8 of 9 points are there"));
}

#[test]
fn same_results_give_the_same_report() {
    assert_eq!(one(experiments::BATCH, |_| {}), one(experiments::BATCH, |_| {}));
}

#[test]
fn csv_has_a_row_for_every_point_and_json_a_cell_for_every_setting() {
    let reported = Reported::new();
    let csv = reported.text("report.csv");
    let json: Value = serde_json::from_str(&reported.text("report.json")).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let points: usize = runs
        .iter()
        .map(|run| {
            run["cells"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cell| cell["outcomes"].as_array().unwrap().len())
                .sum::<usize>()
        })
        .sum();
    assert_eq!(csv.lines().count(), points + 1);
    let batch = runs.iter().find(|run| run["name"] == "batch").unwrap();
    assert_eq!(batch["cells"].as_array().unwrap().len(), 30);
    let factors = runs.iter().find(|run| run["name"] == "factors").unwrap();
    assert_eq!(
        factors["effects"][0]["analysis"]["effects"]
            .as_array()
            .unwrap()
            .len(),
        15
    );
}

#[test]
fn folder_without_a_run_is_an_error_that_says_what_is_expected() {
    let folder = TempDir::new().unwrap();
    let error = report(folder.path(), folder.path()).unwrap_err();
    assert!(matches!(error, ReportError::NoRun { .. }));
    assert!(error.to_string().contains("expected run.json in it"), "{error}");
    assert!(report(&folder.path().join("absent"), folder.path()).is_err());
}

#[test]
fn runs_are_compared_by_ratios_to_the_first() {
    let folder = TempDir::new().unwrap();
    let sides = ["before", "after"].map(|name| folder.path().join(name));
    for (seed, side) in (1..).zip(&sides) {
        fixture::write(side, "peak", experiments::PEAK, seed);
    }
    let written = compare(&sides, folder.path()).unwrap();
    let html = std::fs::read_to_string(written.html).unwrap();
    assert!(html.contains("after against before"));
    assert!(html.contains("not told apart"));
    assert!(html.contains("<svg class=\"chart wide\""));
}

#[test]
fn runs_without_a_common_experiment_are_said_to_have_none() {
    let folder = TempDir::new().unwrap();
    let sides = ["before", "after"].map(|name| folder.path().join(name));
    fixture::write(&sides[0], "peak", experiments::PEAK, 1);
    fixture::write(&sides[1], "batch", experiments::BATCH, 1);
    let written = compare(&sides, folder.path()).unwrap();
    assert!(
        std::fs::read_to_string(written.html)
            .unwrap()
            .contains("Nothing to compare")
    );
}

/// The points of a run, changed.
fn with_points(folder: &Path, change: impl Fn(&mut Point)) {
    let folder = Folder::new(folder);
    let run = folder.read_run().unwrap();
    for mut point in folder.read_points(&run).unwrap() {
        change(&mut point);
        folder.write_point(&point).unwrap();
    }
}

/// The same of the run itself.
fn with_run(folder: &Path, change: impl FnOnce(&mut Run)) {
    let folder = Folder::new(folder);
    let mut run = folder.read_run().unwrap();
    change(&mut run);
    folder.write_run(&run).unwrap();
}

#[test]
fn what_a_point_had_when_it_failed_stands_in_the_table_as_failed_and_in_no_figure() {
    let fails = |folder: &Path| {
        with_points(folder, |point| {
            if point.system == "kafka" {
                point.outcome =
                    Outcome::because(OutcomeKind::Failed, "the system ended under load: signal: 9");
            }
        });
    };
    let html = one(experiments::LEVELS, fails);
    let table = between(&html, "<h3>The numbers</h3>", "</section>");
    let rows: Vec<&str> = between(table, "<tbody>", "</tbody>").split("<tr").collect();
    let failed: Vec<_> = rows.iter().filter(|row| row.contains(">failed</span>")).collect();
    assert_eq!(failed.len(), 4, "one of each level");
    for row in failed {
        assert!(
            row.contains("Apache Kafka") && row.contains("class=\"durability "),
            "{row}"
        );
        assert!(row.contains("M/s") || row.contains("class=\"num\""), "{row}");
        assert!(
            !row.contains("<td class=\"num\">–</td><td class=\"num\">–</td><td class=\"num\">–</td>"),
            "{row}"
        );
    }
    assert!(html.contains("Failed: what was seen until then."));
    for figure in html.split("<figure").skip(1) {
        let (figure, _) = figure.split_once("</figure>").unwrap();
        assert!(!figure.contains("Apache Kafka"), "{figure}");
    }
    // A point that failed before there was a load has nothing to show.
    let html = one(experiments::LEVELS, |folder| {
        fails(folder);
        with_points(folder, |point| {
            if point.outcome.kind == OutcomeKind::Failed {
                point.roles.clear();
            }
        });
    });
    assert!(!between(&html, "<h3>The numbers</h3>", "</section>").contains(">failed</span>"));
}

#[test]
fn a_figure_that_points_should_have_and_have_not_is_marked_as_empty() {
    let html = one(experiments::LEVELS, |folder| {
        with_points(folder, |point| {
            point.metrics.remove("produce_rate");
        });
    });
    assert_eq!(html.matches("class=\"nothing empty\"").count(), 1);
    // That no rate kept within a bound is a result.
    let adaptive = experiments::LOOPS
        .replace(
            "window = 50",
            "rate = { adaptive = { first = 10, p99 = \"1ms\", every = \"1s\" } }",
        )
        .replace("\"latency\"", "\"bars\"\nx = \"system\"")
        .replace("\"acknowledged\"", "\"sustainable_rate\"");
    let html = one(&adaptive, |_| {});
    assert!(html.contains("No rate that was tried kept within its bound."));
    assert!(!html.contains("class=\"nothing empty\""));
    for text in [experiments::SKIPPED, experiments::FACTORS, experiments::PEAK] {
        assert!(!one(text, |_| {}).contains("class=\"nothing empty\""));
    }
}

#[test]
fn shares_of_a_time_are_what_each_level_adds() {
    let html = one(experiments::SHARES, |folder| {
        with_points(folder, |point| {
            let at = |level: &str| point.durability.asked == level;
            let time = if at("memory") {
                242.0
            } else if at("os") {
                300.0
            } else {
                420.0
            };
            point.metrics.insert("acknowledged_p50_us".to_owned(), time);
            if point.system == "kafka" && at("memory") {
                point.durability.given = "os".to_owned();
            }
        });
    });
    let told = html.replace('\u{202f}', " ");
    let rows = |system: &str| {
        let (_, chart) = told.split_once(&format!("<h4>{system}</h4>")).unwrap();
        let (chart, _) = chart.split_once("</svg>").unwrap();
        let titles = chart.split("<title>").skip(1);
        titles
            .map(|title| title.split_once("</title>").unwrap().0.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rows("Stafett"),
        [
            "Network: 5.0 % · 21.0 µs · memory",
            "Broker and clients: 53 % · 221 µs · memory",
            "os, beyond that: 14 % · 58.0 µs · os",
            "sync, beyond that: 29 % · 120 µs · sync",
        ]
    );
    // It has no level below `os`: the two are one.
    let kafka = rows("Apache Kafka");
    assert_eq!(kafka.len(), 3);
    assert_eq!(kafka[1], "Broker and clients: 60 % · 250 µs · os");
}

#[test]
fn latency_of_a_closed_loop_is_not_said_to_see_a_stall() {
    let open = "so that a stall counts for everything it held up";
    let closed = "In a closed loop a client sends when it has its answers: a stall is seen by the messages that were under \
                  way, at most 50 of each client, and not by those that it held up.";
    let html = one(experiments::LOOPS, |_| {});
    assert!(html.contains(closed) && !html.contains(open));
    let fixed = experiments::LOOPS.replace("window = 50", "rate = { fixed = 1000 }");
    let html = one(&fixed, |_| {});
    assert!(html.contains("Taken from the intended moment of sending") && html.contains(open));
    assert!(!html.contains("In a closed loop a client sends when"));
    // The grid says which of the curves are which.
    let both = experiments::LOOPS.replace("window = 50", "").replace(
        "\"roles.producers.size\" = [100]",
        "\"roles.producers.rate\" = [\"closed\", { fixed = 1000 }]",
    );
    let html = one(&both, |_| {});
    assert!(html.contains("Where a rate is given: taken from the intended moment of sending"));
    assert!(html.contains("messages that were under way and not by those"));
}

#[test]
fn why_a_ceiling_was_not_measured_is_said() {
    let html = one(experiments::BATCH, |folder| {
        with_run(folder, |run| {
            let ceiling = run.ceilings.remove(0);
            run.ceilings = ["1KiB", "4KiB", "16KiB"]
                .map(|batch| Ceiling {
                    parameters: BTreeMap::from([("roles.producers.batch".to_owned(), batch.into())]),
                    ..ceiling.clone()
                })
                .to_vec();
            for rest in &mut run.ceilings[1..] {
                (rest.produce_rate, rest.consume_rate) = (None, None);
                rest.reason = Some("only the first is measured".to_owned());
            }
        });
    });
    assert!(
        html.contains("Without a ceiling: lean with 2 combinations of settings: only the first is measured.")
    );
    assert!(html.contains("title=\"only the first is measured\">–</td>"));
}

#[test]
fn the_network_to_a_system_elsewhere_is_not_that_of_this_machine() {
    let html = one(experiments::PEAK, |folder| {
        with_run(folder, |run| {
            let connect = run.network.take().map(|network| network.round_trip);
            run.reached = vec![
                Reached {
                    system: "kafka".to_owned(),
                    address: "broker:9092".to_owned(),
                    connect,
                    reason: None,
                },
                Reached {
                    system: "rabbitmq".to_owned(),
                    address: "far:5672".to_owned(),
                    connect: None,
                    reason: Some("nobody answered".to_owned()),
                },
            ];
        });
    });
    assert!(!html.contains("loopback"));
    let told = html.replace('\u{202f}', " ");
    assert!(told.contains("The way to Apache Kafka at broker:9092: a connection, which is a round trip, takes 21.0 µs (median)"), "{told}");
    assert!(told.contains("The way to RabbitMQ at far:5672: its round trip was not measured (nobody answered); its throughput was not measured."));
}

#[test]
fn what_is_otherwise_in_a_smaller_run_stands_in_its_setting() {
    let small = "[small]\n\"run.repetitions\" = 1\n\"topics.main.partitions\" = 2\n\
                 \"grid.roles.producers.batch\" = [\"1KiB\", \"4KiB\"]\n\n[[figures]]";
    let text = experiments::BATCH.replacen("[[figures]]", small, 1);
    let html = one(&text, |folder| with_run(folder, |run| run.scale = 0.5));
    assert!(html.contains("<dt>At this scale: partitions</dt><dd>2</dd>"));
    assert!(html.contains("<dt>At this scale: batch</dt><dd>1KiB, 4KiB</dd>"));
    assert!(!html.contains("At this scale: repetitions"));
    assert!(!one(&text, |_| {}).contains("At this scale"));
}

#[test]
fn points_of_several_revisions_are_said_to_be() {
    let html = one(experiments::PEAK, |folder| {
        with_points(folder, |point| {
            if point.number == 2 {
                point.revision = Some("89abcdef".to_owned());
            }
        });
    });
    assert!(html.contains("measured by the revisions 0123abcd, 89abcdef"));
    assert!(!one(experiments::PEAK, |_| {}).contains("Not all of one program"));
}

#[test]
fn charts_of_reports_and_of_the_pages_have_the_same_colours() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let colours = |file: &str| -> std::collections::BTreeSet<String> {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let settings = text.split([';', '{', '\n']).map(str::trim);
        let of_charts = |setting: &&str| {
            let name = setting.split(':').next().unwrap_or_default();
            let is_line = name.len() == 4 && name.starts_with("--c");
            is_line || ["--grid", "--axis", "--paper", "--ink"].contains(&name)
        };
        settings.filter(of_charts).map(str::to_owned).collect()
    };
    let reports = colours("crates/charts/src/style.css");
    assert_eq!(reports.len(), 2 * 12, "{reports:?}");
    assert_eq!(reports, colours("console/src/ui/style.css"));
}
