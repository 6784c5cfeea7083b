//! `stafett lab run --agent`: load from other processes, and from other hosts, which are network namespaces
//! here.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use stafett_lab::agents::{AgentAddress, Crew};
use tempfile::TempDir;

use crate::short::{SHORT, SONGS, json, lab, said, written};

/// A short experiment with three who send and two who receive.
fn spread() -> String {
    SHORT
        .replace("clients = 2", "clients = 3")
        .replace("does = \"consume\"", "does = \"consume\"\nclients = 2")
        .replace("[\"produce_rate\"]", "[\"produce_rate\", \"delivery_p99_us\"]")
}

/// An agent of its own, ended with this.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: String,
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

    pub(crate) fn here() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett-lab"));
        command.args(["agent", "--listen", "127.0.0.1:0"]);
        Self::start(command)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The run of an experiment with these agents.
fn with_agents(folder: &TempDir, text: &str, agents: &str) -> Command {
    let mut command = lab(folder, &written(folder, text));
    command.args(["--agent", agents]);
    command
}

fn accounts_for_every_message(folder: &TempDir, output: &Output) {
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
    for rate in ["produce_rate", "consume_rate"] {
        let ceiling = &run["ceilings"][0];
        assert!(ceiling[rate].as_f64().is_some_and(|rate| rate > 0.0), "{ceiling}");
    }
    assert!(
        run["network"]["path"].as_str().unwrap().contains("agent"),
        "{}",
        run["network"]["path"]
    );
}

#[test]
fn two_agents_share_a_load_and_account_for_every_message() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (Agent::here(), Agent::here());
    let agents = format!("{},b={}", one.address, other.address);
    let output = with_agents(&folder, &spread(), &agents).output().unwrap();
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
    let folder = TempDir::new().unwrap();
    let (one, other) = (Agent::here(), Agent::here());
    let text = spread()
        .replace("rate = { fixed = 2000 }", "total = 5000\non = [\"a\"]")
        .replace("clients = 2", "clients = 2\nafter = \"producers\"\non = [\"b\"]")
        .replace(", \"delivery_p99_us\"", ", \"drain_s\"")
        .replace("duration = \"1s\"", "duration = \"60s\"")
        .replace("warmup = \"200ms\"", "warmup = \"0s\"");
    let agents = format!("a={},b={}", one.address, other.address);
    let output = with_agents(&folder, &text, &agents).output().unwrap();
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
    let folder = TempDir::new().unwrap();
    let (stays, mut goes) = (Agent::here(), Agent::here());
    let text = spread().replace("duration = \"1s\"", "duration = \"1h\"");
    let agents = format!("{},{}", stays.address, goes.address);
    let mut running = with_agents(&folder, &text, &agents).spawn().unwrap();
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
        let folder = TempDir::new().unwrap();
        let output = lab(&folder, &written(&folder, text))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(says), "{}", said(&output));
        assert!(!folder.path().join("run").exists());
    };
    let agent = Agent::here();
    let here = agent.address.as_str();
    let short = spread();
    let apart = short
        .replace("rate = {", "on = [\"a\"]\nrate = {")
        .replace("clients = 2", "clients = 2\non = [\"b\"]");
    let two = format!("a={here},b={here}");
    refused(&apart, &["--agent", &two], "the clocks of two hosts");
    refused(&apart, &[], "roles.consumers.on names agents");
    refused(&short, &["--agent", "127.0.0.1:1"], "agent `1` at 127.0.0.1:1");
    refused(&short, &["--agent", "nowhere"], "is no agent");
    refused(&short, &["--agent", "../a=127.0.0.1:1"], "is no agent");
    refused(&short, &["--agent", "10.0.0.1:7071"], "cannot reach stafett");
    let output = Command::new(env!("CARGO_BIN_EXE_stafett-lab"))
        .args(["agent", "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("give it a secret"), "{}", said(&output));
}

/// Two hosts beside this one: network namespaces with a cable each, gone with this.
struct Hosts {
    names: [String; 2],
    /// With the next, what no other test on this machine uses.
    net: u8,
    /// Tests of one process have different ones.
    test: usize,
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
    fn new(test: usize) -> Result<Self, String> {
        let id = std::process::id();
        let hosts = Self {
            names: [format!("lab{id}-{test}a"), format!("lab{id}-{test}b")],
            net: u8::try_from(id % 250).unwrap(),
            test,
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
        format!("10.213.{}.{}", self.net, 8 * self.test + 4 * place + 1)
    }

    fn theirs(&self, place: usize) -> String {
        format!("10.213.{}.{}", self.net, 8 * self.test + 4 * place + 2)
    }

    fn agent(&self, place: usize, secret: &Path) -> Agent {
        let mut command = Command::new("ip");
        command
            .args([
                "netns",
                "exec",
                &self.names[place],
                env!("CARGO_BIN_EXE_stafett-lab"),
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
    let hosts = match Hosts::new(0) {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("skipped, as network namespaces need root and iproute2: {reason}");
            return;
        }
    };
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "known to both\n").unwrap();
    let (one, other) = (hosts.agent(0, &secret), hosts.agent(1, &secret));
    let agents = format!("{},{}", one.address, other.address);
    let host = hosts.ours(0);
    let short = spread();
    let without = with_agents(&folder, &short, &agents)
        .args(["--host", &host])
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(said(&without).contains("it wants a secret"), "{}", said(&without));
    let with_secret = |folder: &TempDir, text: &str| {
        with_agents(folder, text, &agents)
            .args(["--host", &host, "--secret-file"])
            .arg(&secret)
            .output()
            .unwrap()
    };
    let output = with_secret(&folder, &short);
    accounts_for_every_message(&folder, &output);
    let said_there = fs::read_to_string(folder.path().join("run/logs/0001/agent-2.log")).unwrap();
    assert!(said_there.contains("the load begins"), "{said_there}");
    let folder = TempDir::new().unwrap();
    // No latency breaks the bound: each rate that comes through holds.
    let adaptive = "rate = { adaptive = { first = 200, p99 = \"1m\", every = \"1s\", raise = 2.0 } }";
    let text = short
        .replace("rate = { fixed = 2000 }", adaptive)
        .replace("duration = \"1s\"", "duration = \"20s\"");
    let output = with_secret(&folder, &text);
    accounts_for_every_message(&folder, &output);
    let metrics = &json(&folder, "points/0001.json")["metrics"];
    assert!(
        metrics["sustainable_rate"].as_f64().unwrap() >= 200.0,
        "{metrics}"
    );
}

/// The checkout, where the scripts are that fetch and start other systems.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn has_kafka() -> Result<(), String> {
    let output = Command::new(root().join("tools/peers/kafka"))
        .arg("fetch")
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(said(&output)),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn kafka_that_is_started_here_is_reached_from_two_other_hosts() {
    let ready = Hosts::new(1).and_then(|hosts| has_kafka().map(|()| hosts));
    let hosts = match ready {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("skipped, as it needs root, iproute2, java and mvn: {reason}");
            return;
        }
    };
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "known to both\n").unwrap();
    let (one, other) = (hosts.agent(0, &secret), hosts.agent(1, &secret));
    let text = spread().replace("[\"stafett\"]", "[\"kafka\"]");
    let output = Command::new(env!("CARGO_BIN_EXE_stafett-lab"))
        .current_dir(root())
        .args(["run"])
        .arg(written(&folder, &text))
        .arg("--out")
        .arg(folder.path().join("run"))
        .args(["--agent", &format!("{},{}", one.address, other.address)])
        .args(["--host", &hosts.ours(0), "--secret-file"])
        .arg(&secret)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    accounts_for_every_message(&folder, &output);
}

#[test]
fn live_topics_are_followed_on_two_hosts_and_every_delivery_is_accounted_for() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (Agent::here(), Agent::here());
    let agents = format!("{},{}", one.address, other.address);
    let output = with_agents(&folder, SONGS, &agents).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    let metrics = &point["metrics"];
    // Four of the forty users wait for each report, on whichever hosts they are.
    let reported = metrics["received"].as_f64().unwrap() / 4.0;
    assert!(reported > 0.0 && reported.fract() == 0.0, "{metrics}");
    assert_eq!(
        (&metrics["lost"], &metrics["duplicated"]),
        (&0.0.into(), &0.0.into())
    );
}

#[test]
fn who_sends_on_one_host_waits_for_who_receives_on_another() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (Agent::here(), Agent::here());
    let text = spread()
        .replace(
            "rate = { fixed = 2000 }",
            "total = 5000\nahead = 100\non = [\"a\"]",
        )
        .replace("does = \"consume\"", "does = \"consume\"\non = [\"b\"]")
        .replace(", \"delivery_p99_us\"", "")
        .replace("duration = \"1s\"", "duration = \"60s\"")
        .replace("warmup = \"200ms\"", "warmup = \"0s\"");
    let agents = format!("a={},b={}", one.address, other.address);
    let output = with_agents(&folder, &text, &agents).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    let metrics = &point["metrics"];
    assert_eq!(
        (&metrics["sent"], &metrics["received"]),
        (&5000.0.into(), &5000.0.into())
    );
}

#[tokio::test]
async fn a_run_waits_for_an_agent_that_a_page_looks_at() {
    let agent = Agent::here();
    let agents = AgentAddress::parse_all(&[format!("one={}", agent.address)]).unwrap();
    let gather = async |patience| Crew::gather(agents.clone(), None, patience).await;
    let page = gather(Duration::ZERO).await.unwrap();
    let refused = gather(Duration::ZERO).await.unwrap_err();
    assert!(refused.contains("another controller"), "{refused}");
    let leave = async { drop(page) };
    let (run, ()) = tokio::join!(gather(Duration::from_mins(1)), leave);
    assert_eq!(run.unwrap().describe().len(), 1);
}
