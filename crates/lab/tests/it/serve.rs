//! `stafett lab serve` with real runs: the page is killed, found again, and runs are stopped and go on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::Agent;
use crate::short::SHORT;

const PATIENCE: Duration = Duration::from_mins(2);

/// The page's process. It ends with its test; runs that it started end with their last point.
pub(crate) struct Page {
    process: Child,
    address: String,
}

impl Page {
    fn start(folder: &TempDir) -> Self {
        Self::start_with(folder, &[])
    }

    pub(crate) fn start_with(folder: &TempDir, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_stafett-lab"))
            .envs(variables.iter().copied())
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--runs",
                "runs",
                "--experiments",
                "own",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("the lab is at http://").unwrap();
        let address = address.strip_suffix("/lab/").unwrap().to_owned();
        Self { process, address }
    }

    /// Returns status, and the body.
    pub(crate) fn ask(&self, request: &str, body: &str) -> (u16, Vec<u8>) {
        let (method, path) = request.split_once(' ').unwrap();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} /lab/v1{path} HTTP/1.0\r\nhost: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    pub(crate) fn json(&self, request: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(request, &body.to_string());
        let answer = serde_json::from_slice(&answer).unwrap_or_default();
        assert!(status < 300, "{request}: {status} {answer}");
        answer
    }

    fn run(&self, id: &str) -> Value {
        self.json(&format!("GET /runs/{id}"), &json!({}))
    }

    /// Waits until the run is as wanted.
    fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_at(&format!("/runs/{id}"), wanted)
    }

    /// Waits until a state is as wanted.
    pub(crate) fn until_at(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.json(&format!("GET {path}"), &json!({}));
            if wanted(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The short experiment with as many points.
fn points(count: usize) -> String {
    let clients: Vec<_> = (1..=count).collect();
    let factor = format!("\"roles.producers.clients\" = {clients:?}");
    SHORT.replace("\"system.durability\" = [\"os\"]", &factor)
}

/// Points of a run that is stopped while it has some to do, however slow the page is.
const MANY: usize = 7;

#[test]
fn a_run_outlives_its_page_stops_behind_a_point_and_goes_on_to_the_end() {
    let folder = TempDir::new().unwrap();
    let page = Page::start(&folder);
    page.ask("PUT /experiments/mine", &points(MANY));
    let begun = page.json("POST /runs", &json!({"experiment": "mine", "title": "first"}));
    let id = begun["id"].as_str().unwrap().to_owned();
    let next = page.json("POST /runs", &json!({"experiment": "mine"}));
    page.until(&id, |run| run["done"] == 1 && run["now"]["at_s"].is_number());
    // The page is killed; the run does not notice.
    drop(page);
    let page = Page::start(&folder);
    let run = page.run(&id);
    assert_eq!(run["state"], "running", "{run}");
    assert_eq!(page.run(next["id"].as_str().unwrap())["state"], "queued");
    let (status, _) = page.ask(&format!("DELETE /runs/{id}"), "");
    assert_eq!(status, 409);
    page.ask(&format!("DELETE /runs/{}", next["id"].as_str().unwrap()), "");
    assert_eq!(page.ask(&format!("POST /runs/{id}/stop"), "").0, 202);
    let run = page.until(&id, |run| run["state"] != "running");
    assert_eq!(run["state"], "interrupted", "{run}");
    assert!(run["done"] != 0 && run["done"] != MANY, "{run}");
    assert_eq!(page.ask(&format!("POST /runs/{id}/resume"), "").0, 202);
    let run = page.until(&id, |run| run["state"] == "finished");
    assert_eq!((&run["done"], &run["failed"]), (&json!(MANY), &json!(0)), "{run}");
    assert_eq!(run["notes"]["title"], "first");
    let points = page.json(&format!("GET /runs/{id}/points?outcome=done"), &json!({}));
    assert_eq!(points["matched"], MANY);
    let (_, report) = page.ask(&format!("GET /runs/{id}/report.html"), "");
    assert!(String::from_utf8(report).unwrap().contains("Does it run?"));
    let (_, zip) = page.ask(&format!("GET /runs/{id}/download.zip"), "");
    let has = |name: &str| zip.windows(name.len()).any(|it| it == name.as_bytes());
    assert!(has("points/0004.json") && has("run.json"));
    let live = std::fs::read_to_string(folder.path().join("runs").join(&id).join("live.ndjson")).unwrap();
    assert_eq!(live.matches("\"event\":\"ended\"").count(), MANY);
    assert_eq!(live.matches("\"event\":\"closed\"").count(), 2);
    let laws = page.json(&format!("GET /runs/{id}/laws"), &json!({}));
    let bounds = laws["items"].as_array().unwrap().iter();
    assert_eq!(
        bounds.filter(|line| line["law"] == "bound").count(),
        MANY,
        "{laws}"
    );
    is_analyzed(&page, &id);
    is_measured_again(&page, &folder, &id);
}

fn is_analyzed(page: &Page, id: &str) {
    let question = json!({"of": [{"run": id, "roles": ["producers"]}], "by": ["roles.producers.clients"], "what": "throughput",
                          "window_s": 1, "stat": "mean"});
    let found = page.json("POST /analyze", &question);
    let series = found["series"].as_array().unwrap();
    assert_eq!(series.len(), MANY, "{found}");
    assert_eq!(series[0]["name"], "clients 1");
    let value = |place: &Value| place.as_f64().is_some_and(|rate| rate > 0.0);
    assert!(
        series
            .iter()
            .all(|series| series["values"].as_array().unwrap().iter().any(value)),
        "{found}"
    );
    for (form, has) in [
        ("svg", "clients 4"),
        ("csv", "clients 4,os,"),
        ("gnuplot", "plot $data0"),
    ] {
        let (status, text) = page.ask(&format!("POST /analyze?as={form}"), &question.to_string());
        let text = String::from_utf8(text).unwrap();
        assert!(status == 200 && text.contains(has), "{form}: {text}");
    }
    let refused = page.ask("POST /analyze", r#"{"of": [], "logs": []}"#);
    assert_eq!(refused.0, 400);
    page.json("PUT /charts/rates", &question);
    let kept = page.json("GET /charts", &json!({}));
    assert_eq!(
        (
            &kept["items"][0]["name"],
            &kept["items"][0]["question"]["of"][0]["run"]
        ),
        (&json!("rates"), &json!(id))
    );
    let (_, zip) = page.ask(&format!("GET /runs/{id}/download.zip"), "");
    assert!(
        zip.windows(17).any(|it| it == b"charts/rates.json"),
        "a kept chart is downloaded with its run"
    );
    assert_eq!(page.ask("DELETE /charts/rates", "").0, 204);
    assert_eq!(page.ask("DELETE /charts/rates", "").0, 404);
}

fn is_measured_again(page: &Page, folder: &TempDir, id: &str) {
    assert_eq!(page.ask(&format!("POST /runs/{id}/points/2/again"), "").0, 202);
    let run = page.until(id, |run| run["state"] == "finished" && run["done"] == MANY);
    assert_eq!(run["failed"], 0, "{run}");
    let point = page.json(&format!("GET /runs/{id}/points/2"), &json!({}));
    let remarks = point["remarks"].as_array().unwrap().iter();
    let about = |it: &Value| {
        it.as_str()
            .unwrap()
            .starts_with("measured again; earlier results are in points/aside: 1")
    };
    assert_eq!(remarks.filter(|it| about(it)).count(), 1, "{point}");
    let aside = folder
        .path()
        .join("runs")
        .join(id)
        .join("points/aside/0002-1.json");
    assert!(aside.exists());
    assert_eq!(page.ask(&format!("POST /runs/{id}/points/9/again"), "").0, 404);
}

#[test]
fn a_run_that_is_stopped_at_once_throws_its_point_away() {
    let folder = TempDir::new().unwrap();
    let page = Page::start(&folder);
    page.ask(
        "PUT /experiments/mine",
        &points(4).replace("duration = \"1s\"", "duration = \"60s\""),
    );
    let begun = page.json("POST /runs", &json!({"experiment": "mine"}));
    let id = begun["id"].as_str().unwrap().to_owned();
    page.until(&id, |run| run["now"]["at_s"].is_number());
    page.json(&format!("POST /runs/{id}/stop"), &json!({"now": true}));
    let run = page.until(&id, |run| run["state"] != "running");
    assert_eq!(
        (&run["state"], &run["done"]),
        (&json!("interrupted"), &json!(0)),
        "{run}"
    );
}

/// `tests/browser/lab.cjs` has the steps.
#[test]
fn the_page_is_used_in_a_browser() {
    is_used("lab.cjs", "the_page_is_used_in_a_browser");
}

/// `tests/browser/lab_daily.cjs` has the work.
#[test]
fn the_work_of_a_day_is_done_by_keys_alone_and_by_the_mouse_alone() {
    let name = "the_work_of_a_day_is_done_by_keys_alone_and_by_the_mouse_alone";
    is_used("lab_daily.cjs", name);
}

/// Runs a script against a page without runs, and two agents.
fn is_used(script: &str, test: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules = root.join("target/browser/node_modules");
    let path = std::env::var_os("PATH").unwrap();
    let chromium = std::env::split_paths(&path)
        .map(|folder| folder.join("chromium"))
        .find(|program| program.exists());
    let Some(chromium) = chromium.filter(|_| modules.join("axe-core").exists()) else {
        return skip(&root, test);
    };
    let folder = TempDir::new().unwrap();
    let page = Page::start(&folder);
    let agents = [Agent::here(), Agent::here()];
    let output = Command::new("timeout")
        .args(["-k", "5", "1500", "node"])
        .arg(root.join("tests/browser").join(script))
        .arg(chromium)
        .arg(format!("http://{}", page.address))
        .args(agents.iter().map(|agent| &agent.address))
        .env("NODE_PATH", modules)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Says that the test did not run, as the tests with other programs do.
fn skip(root: &Path, test: &str) {
    let line = format!(
        "skipped: {test}: Chromium or axe-core is not there (install with: apt-get install chromium; scripts/setup)\n"
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = root.join("target/clients");
    std::fs::create_dir_all(&folder).unwrap();
    let skipped = File::options()
        .create(true)
        .append(true)
        .open(folder.join("skipped"));
    skipped.unwrap().write_all(line.as_bytes()).unwrap();
}
