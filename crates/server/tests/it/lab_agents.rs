//! `stafett lab run --agent`: load from other processes, and from other hosts, which are network namespaces here.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::Folder;

const SHORT: &str = r#"question = "Does it run?"
systems = ["stafett"]

[run]
duration = "1s"
warmup = "200ms"
break_in = "0s"
repetitions = 1

[topics.main]
partitions = 2

[roles.producers]
does = "produce"
clients = 3
rate = { fixed = 2000 }
linger = "0us"

[roles.consumers]
does = "consume"
clients = 2

[[figures]]
title = "Rate"
kind = "bars"
x = "system"
y = ["produce_rate", "delivery_p99_us"]
"#;

/// An agent of its own, ended with this.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("agent listening on ").unwrap();
        Self {
            address: address.to_owned(),
            child,
        }
    }

    fn here() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
        command.args(["lab", "agent", "--listen", "127.0.0.1:0"]);
        Self::start(command)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lab(folder: &Folder, text: &str) -> Command {
    let file = folder.path().join("short.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command
        .current_dir(folder.path())
        .args(["lab", "run"])
        .arg(file)
        .args(["--out", "run"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path().join("run").join(name)).unwrap()).unwrap()
}

fn accounts_for_every_message(folder: &Folder, output: &Output) {
    assert!(output.status.success(), "{}", said(output));
    let point = json(folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    let metrics = &point["metrics"];
    assert!(metrics["sent"].as_f64().unwrap() > 0.0);
    assert_eq!(metrics["acknowledged"], metrics["sent"]);
    assert_eq!(metrics["received"], metrics["sent"]);
    assert_eq!(
        (&metrics["lost"], &metrics["duplicated"]),
        (&0.0.into(), &0.0.into())
    );
    // A message whose sender and receiver sit on different hosts has no latency; the others have one.
    let consumers = &point["roles"][0];
    assert_eq!(consumers["clients"], 2);
    let measured = consumers["latencies"]["delivery"]["count"].as_u64().unwrap();
    let counted = consumers["counts"]["received"].as_u64().unwrap();
    assert!(measured > 0 && measured < counted, "{measured} of {counted}");
    let kinds: Vec<_> = point["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["broker", "client", "client"]);
    let run = json(folder, "run.json");
    assert_eq!(run["environment"]["agents"].as_array().unwrap().len(), 2);
    assert!(
        run["network"]["path"].as_str().unwrap().contains("agent"),
        "{}",
        run["network"]["path"]
    );
}

#[test]
fn two_agents_share_a_load_and_account_for_every_message() {
    let folder = Folder::new();
    let (one, other) = (Agent::here(), Agent::here());
    let output = lab(&folder, SHORT)
        .args(["--agent", &format!("{},b={}", one.address, other.address)])
        .output()
        .unwrap();
    accounts_for_every_message(&folder, &output);
    let run = json(&folder, "run.json");
    assert!(
        run["environment"]["agents"][1]
            .as_str()
            .unwrap()
            .starts_with("b ("),
        "{}",
        run["environment"]["agents"]
    );
}

#[test]
fn a_backlog_is_read_on_one_host_after_it_was_written_on_another() {
    let folder = Folder::new();
    let (one, other) = (Agent::here(), Agent::here());
    let text = SHORT
        .replace("rate = { fixed = 2000 }", "total = 5000\non = [\"a\"]")
        .replace("clients = 2", "clients = 2\nafter = \"producers\"\non = [\"b\"]")
        .replace(", \"delivery_p99_us\"", ", \"drain_s\"")
        .replace("duration = \"1s\"", "duration = \"60s\"");
    let agents = format!("a={},b={}", one.address, other.address);
    let output = lab(&folder, &text).args(["--agent", &agents]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    let metrics = &point["metrics"];
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    assert_eq!(
        (&metrics["sent"], &metrics["received"]),
        (&5000.0.into(), &5000.0.into())
    );
    assert!(metrics["drain_s"].as_f64().unwrap() > 0.0);
    assert!(point["roles"][0]["latencies"].get("delivery").is_none());
}

#[test]
fn an_agent_that_vanishes_is_a_result() {
    let folder = Folder::new();
    let (stays, mut goes) = (Agent::here(), Agent::here());
    let text = SHORT.replace("duration = \"1s\"", "duration = \"1h\"");
    let mut running = lab(&folder, &text)
        .args(["--agent", &format!("{},{}", stays.address, goes.address)])
        .spawn()
        .unwrap();
    // Once the topics are there the load is about to begin, or under way: either way it needs both.
    let mut told = BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("starting stafett") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended");
    }
    goes.child.kill().unwrap();
    goes.child.wait().unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert!(running.wait().unwrap().success(), "{rest}");
    let outcome = &json(&folder, "points/0001.json")["outcome"];
    assert_eq!(outcome["kind"], "failed", "{outcome}");
    assert!(
        outcome["reason"].as_str().unwrap().contains("agent `2`"),
        "{outcome}"
    );
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    let refused = |text: &str, arguments: &[&str], says: &str| {
        let folder = Folder::new();
        let output = lab(&folder, text).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(says), "{}", said(&output));
        assert!(!folder.path().join("run").exists());
    };
    let agent = Agent::here();
    let here = agent.address.as_str();
    let apart = SHORT
        .replace("rate = {", "on = [\"a\"]\nrate = {")
        .replace("clients = 2", "clients = 2\non = [\"b\"]");
    let two = format!("a={here},b={here}");
    refused(&apart, &["--agent", &two], "the clocks of two hosts");
    refused(&apart, &[], "roles.consumers.on names agents");
    refused(SHORT, &["--agent", "127.0.0.1:1"], "agent `1` at 127.0.0.1:1");
    refused(SHORT, &["--agent", "nowhere"], "is no agent");
    refused(SHORT, &["--agent", "10.0.0.1:7071"], "cannot reach stafett");
    let output = Command::new(env!("CARGO_BIN_EXE_stafett"))
        .args(["lab", "agent", "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("give it a secret"), "{}", said(&output));
}

/// Two hosts beside this one: network namespaces with a cable each, gone with this.
struct Hosts {
    names: [String; 2],
    /// Three bytes that no other test on this machine uses.
    net: u8,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", said(&output))),
        Err(error) => Err(format!("ip {arguments}: {error}")),
    }
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let id = std::process::id();
        let hosts = Self {
            names: [format!("lab{id}a"), format!("lab{id}b")],
            net: u8::try_from(id % 250).unwrap(),
        };
        for (place, name) in hosts.names.iter().enumerate() {
            let (ours, theirs) = (hosts.ours(place), hosts.theirs(place));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {name} type veth peer name cable netns {name}"))?;
            ip(&format!("addr add {ours}/30 dev {name}"))?;
            ip(&format!("link set {name} up"))?;
            ip(&format!("-n {name} addr add {theirs}/30 dev cable"))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            // All of them find the system at the first cable's end.
            ip(&format!("-n {name} route add default via {ours}"))?;
            ip(&format!("netns exec {name} true"))?;
        }
        Ok(hosts)
    }

    fn ours(&self, place: usize) -> String {
        format!("10.213.{}.{}", self.net, 4 * place + 1)
    }

    fn theirs(&self, place: usize) -> String {
        format!("10.213.{}.{}", self.net, 4 * place + 2)
    }

    fn agent(&self, place: usize, secret: &Path) -> Agent {
        let mut command = Command::new("ip");
        command
            .args([
                "netns",
                "exec",
                &self.names[place],
                env!("CARGO_BIN_EXE_stafett"),
                "lab",
                "agent",
            ])
            .args(["--listen", &format!("{}:0", self.theirs(place)), "--secret-file"])
            .arg(secret);
        Agent::start(command)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Its cable goes with it.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

#[test]
fn agents_on_two_hosts_load_a_system_on_a_third() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("skipped, as network namespaces need root and iproute2: {reason}");
            return;
        }
    };
    let folder = Folder::new();
    let secret = folder.path().join("secret");
    fs::write(&secret, "known to both\n").unwrap();
    let (one, other) = (hosts.agent(0, &secret), hosts.agent(1, &secret));
    let agents = format!("{},{}", one.address, other.address);
    let host = hosts.ours(0);
    let without = lab(&folder, SHORT)
        .args(["--agent", &agents, "--host", &host])
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(said(&without).contains("it wants a secret"), "{}", said(&without));
    let output = lab(&folder, SHORT)
        .args(["--agent", &agents, "--host", &host, "--secret-file"])
        .arg(&secret)
        .output()
        .unwrap();
    accounts_for_every_message(&folder, &output);
}
