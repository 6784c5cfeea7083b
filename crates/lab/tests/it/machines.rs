//! Machines that `stafett lab serve` prepares, with stand-ins for ssh, scp, git and cargo: the other machine is
//! a folder of this one, with a shell and programs of its own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve::Page;
use crate::short::SHORT;

/// Runs a command in the folder of the target; targets without one cannot be reached.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != "--" ]; do shift; done
cd "$MACHINES/$2" 2>/dev/null || { echo "ssh: cannot reach $2" >&2; exit 255; }
exec sh -c "$3"
"#;
const SCP: &str = r#"#!/bin/sh
while [ "$1" != "--" ]; do shift; done
at() { case "$1" in *@*:*) echo "$MACHINES/${1%%:*}/${1#*:}";; *) echo "$1";; esac; }
exec cp "$(at "$2")" "$(at "$3")"
"#;
const GIT: &str = r#"#!/bin/sh
case "$3 $4" in
"rev-parse --verify") [ "$6" = "v1^{commit}" ] && echo 0123abc || { echo "no such revision" >&2; exit 128; } ;;
"worktree add") mkdir -p "$7" ;;
"worktree remove") rm -r "$6" ;;
*) exit 2 ;;
esac
"#;
const CARGO: &str = r#"#!/bin/sh
for last; do :; done
mkdir -p "$last/release" && echo built > "$last/release/stafett" && echo built > "$last/release/stafett-lab"
"#;

struct World {
    folder: TempDir,
    page: Page,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("bin")).unwrap();
        fs::create_dir_all(at("machines/lab@far")).unwrap();
        for (name, text) in [("ssh", SSH), ("scp", SCP), ("git", GIT), ("cargo", CARGO)] {
            let path = at("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
        let machines = at("machines").display().to_string();
        let page = Page::start_with(&folder, &[("PATH", &path), ("MACHINES", &machines)]);
        Self { folder, page }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    /// Begins work at a machine, and waits for its end.
    fn does(&self, what: &str, body: &Value) -> Value {
        let job = self.page.json(&format!("POST /agents/far/{what}"), body);
        assert_eq!(job["what"], what);
        self.page
            .until_at("/agents/far/steps", |job| job["state"] != "running")
    }

    fn is_refused(&self, request: &str, body: &Value, code: &str) {
        let (_, answer) = self.page.ask(request, &body.to_string());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["code"], code, "{request}: {answer}");
    }
}

fn names(job: &Value) -> Vec<&str> {
    let steps = job["steps"].as_array().unwrap().iter();
    steps.map(|step| step["name"].as_str().unwrap()).collect()
}

fn output<'a>(job: &'a Value, name: &str) -> &'a str {
    let mut steps = job["steps"].as_array().unwrap().iter();
    let step = steps.find(|step| step["name"] == name).unwrap();
    step["output"].as_str().unwrap()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_machine_is_prepared_carries_a_run_and_is_left_as_it_was() {
    let world = World::new();
    let page = &world.page;
    let address = format!("127.0.0.1:{}", free_port());
    let touch = |name: &str| format!("touch {}", world.at(name).display());
    let broker = format!("127.0.0.1:{}", free_port());
    let far = json!({"name": "far", "address": address, "ssh": "lab@far", "broker": broker, "before": touch("before"),
                     "after": touch("after")});
    page.json("POST /agents", &far);
    let job = world.does("deploy", &json!({}));
    assert_eq!(job["state"], "done", "{job}");
    let copied = names(&job)
        .into_iter()
        .filter(|name| *name != "copy stafett-lab-clients");
    assert_eq!(
        copied.collect::<Vec<_>>(),
        [
            "start the machine",
            "reach",
            "look",
            "copy stafett-lab",
            "copy stafett",
            "start the broker",
            "start the agent",
            "prove the secret"
        ]
    );
    assert!(world.at("before").exists());
    let listed = page.json("GET /agents", &json!({}));
    assert_eq!(
        (&listed["items"][0]["state"], &listed["items"][0]["ssh"]),
        (&json!("ready"), &json!("lab@far"))
    );
    page.ask("PUT /experiments/mine", SHORT);
    let asked =
        json!({"experiment": "mine", "agents": [format!("far={address}")], "addresses": {"stafett": broker}});
    let run = page.json("POST /runs", &asked);
    let id = run["id"].as_str().unwrap();
    let run = page.until_at(&format!("/runs/{id}"), |run| run["state"] == "finished");
    assert_eq!(run["failed"], 0, "{run}");
    let logs = page.json(&format!("GET /runs/{id}/logs"), &json!({}));
    let mut paths = logs["items"].as_array().unwrap().iter();
    assert!(paths.any(|log| log["path"] == "machines/far.log"), "{logs}");
    // A program that is there already is not copied again.
    let job = world.does("deploy", &json!({}));
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(output(&job, "copy stafett-lab"), "it is there already");
    let job = world.does("stop", &json!({"remove": true}));
    assert_eq!(job["state"], "done", "{job}");
    assert!(world.at("after").exists() && !world.at("machines/lab@far/stafett-lab-far").exists());
    let (_, log) = page.ask("GET /agents/far/log", "");
    assert!(String::from_utf8(log).unwrap().contains("agent listening on"));
    assert_eq!(
        page.json("GET /agents", &json!({}))["items"][0]["state"],
        "absent"
    );
}

#[test]
fn work_that_fails_names_its_step_and_what_cannot_be_done_is_refused() {
    let world = World::new();
    let page = &world.page;
    page.json(
        "POST /agents",
        &json!({"name": "far", "address": "127.0.0.1:9", "ssh": "lab@nowhere"}),
    );
    let job = world.does("deploy", &json!({}));
    assert_eq!(
        (&job["state"], names(&job).as_slice()),
        (&json!("failed"), &["reach"][..]),
        "{job}"
    );
    assert!(
        output(&job, "reach").starts_with("ssh: cannot reach lab@nowhere"),
        "{job}"
    );
    page.json(
        "POST /agents",
        &json!({"name": "by-hand", "address": "127.0.0.1:9"}),
    );
    world.is_refused("POST /agents/by-hand/deploy", &json!({}), "bad_settings");
    world.is_refused("POST /agents/none/start", &json!({}), "no_such_agent");
    world.is_refused("GET /agents/by-hand/steps", &json!({}), "no_such_agent");
    world.is_refused("POST /agents/far/deploy", &json!({"build": "v1"}), "bad_settings");
    for wrong in ["-oProxyCommand=x", "a b", "", "x;y"] {
        let body = json!({"name": "x", "address": "127.0.0.1:9", "ssh": wrong});
        world.is_refused("POST /agents", &body, "bad_request");
    }
}

#[test]
fn a_revision_is_built_once_and_runs_take_its_broker() {
    let world = World::new();
    let page = &world.page;
    world.is_refused(
        "POST /runs",
        &json!({"experiment": "peak", "build": "v1"}),
        "bad_settings",
    );
    page.json("POST /builds", &json!({"revision": "v1"}));
    let ended = |builds: &Value| builds["items"][0]["job"]["state"] != "running";
    let builds = page.until_at("/builds", ended);
    let build = &builds["items"][0];
    assert_eq!(
        (&build["ready"], &build["job"]["state"]),
        (&json!(true), &json!("done")),
        "{build}"
    );
    assert!(!world.at("runs/.builds/v1/tree").exists());
    let asked = json!({"experiment": "peak", "build": "v1", "not_before": 4_102_444_800_000_i64});
    let run = page.json("POST /runs", &asked);
    let arguments = run["arguments"].to_string();
    assert!(
        arguments.contains("--stafett=/") && arguments.contains("/.builds/v1/stafett"),
        "{run}"
    );
    let runs = page.json("GET /runs", &json!({}));
    assert_eq!(
        runs["matched"], 1,
        "folders of builds and machines are no runs: {runs}"
    );
    page.json("POST /builds", &json!({"revision": "v2"}));
    let builds = page.until_at("/builds", |builds| builds["items"][1]["job"]["state"] == "failed");
    assert!(
        output(&builds["items"][1]["job"], "find the revision").starts_with("no such revision"),
        "{builds}"
    );
    assert!(!Path::new(&world.at("runs/.builds/v2/stafett")).exists());
}
