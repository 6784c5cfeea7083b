//! The console in a browser, as it is used: Chromium against a broker that is killed once.
//!
//! `tests/browser/console.cjs` has the steps, and looks at every page for accessibility and width.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::broker::{Broker, lines_of, root};
use crate::peer;

/// Returns Chromium and the modules to drive it with.
fn browser() -> Option<(PathBuf, PathBuf)> {
    let Some(chromium) = peer::on_path("chromium") else {
        peer::skip("Chromium is not there", "apt-get install chromium");
        return None;
    };
    let modules = root().join("target/browser/node_modules");
    if !modules.join("axe-core").exists() {
        peer::skip("playwright-core and axe-core are not there", "scripts/setup");
        return None;
    }
    Some((chromium, modules))
}

fn script(name: &str) -> PathBuf {
    root().join("tests/browser").join(name)
}

/// Runs a script against a broker, which is empty at first.
fn is_used(name: &str) {
    let Some((chromium, modules)) = browser() else {
        return;
    };
    let broker = Broker::start();
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "timeout", "-k", "5", "1500", "node"])
        .arg(script(name))
        .arg(chromium)
        .arg(format!("http://{}", broker.http()))
        .env("NODE_PATH", modules)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// `tests/browser/daily.cjs` has the work.
#[test]
fn the_work_of_a_day_is_done_by_keys_alone_and_by_the_mouse_alone() {
    is_used("daily.cjs");
}

/// `tests/browser/many.cjs` makes 2,000 of each; it takes the number as an argument.
#[test]
fn pages_of_a_broker_with_many_queues_and_topics_are_well() {
    is_used("many.cjs");
}

#[test]
fn the_console_is_used_in_a_browser_and_outlives_its_broker() {
    let Some((chromium, modules)) = browser() else {
        return;
    };
    let mut broker = Broker::start();
    let mut driver = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "timeout", "-k", "5", "1500", "node"])
        .arg(script("console.cjs"))
        .arg(chromium)
        .arg(format!("http://{}", broker.http()))
        .env("NODE_PATH", modules)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = driver.stdin.take().unwrap();
    let mut said = Vec::new();
    for line in lines_of(driver.stdout.take().unwrap()) {
        match &*line {
            "kill" => broker.kill(),
            "start" => broker.launch(),
            _ => {
                said.push(line);
                continue;
            }
        }
        answers.write_all(b"done\n").unwrap();
    }
    let status = driver.wait().unwrap();
    assert!(status.success(), "{}", said.join("\n"));
}
