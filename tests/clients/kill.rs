//! The process is killed at random moments under load from a real idempotent producer and started again, or a
//! sync of it fails and it restarts by itself: no acknowledged record is lost, none is doubled, and each
//! partition keeps its order. Of transactions, all or nothing is there.
//!
//! The moments are numbers of acknowledgements drawn from a seed, which a failure prints; `STAFETT_TEST_SEED`
//! sets it.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::broker::{Broker, external, get, lines_of, root};
use crate::peer;

const ROUNDS: u32 = 6;
const TOPIC: &str = "killed";
const SCRIPTS: [&str; 2] = ["kill_load.py", "kill_verify.py"];
/// Maximum acknowledgements between two kills.
const PRODUCED_MAX: u64 = 20_000;
/// Guard against a hanging test: the producer continues by itself once the broker is back.
const ACKNOWLEDGEMENT_LIMIT: Duration = Duration::from_mins(2);

#[test]
fn kills_at_os_lose_and_double_nothing() {
    survives("os", TOPIC, SCRIPTS, PRODUCED_MAX, kill);
}

#[test]
fn kills_at_sync_lose_and_double_nothing() {
    survives("sync", TOPIC, SCRIPTS, PRODUCED_MAX, kill);
}

const TRANSFERS: [&str; 2] = ["transfer_load.py", "transfer_verify.py"];
/// Maximum transfers between two kills.
const TRANSFERS_MAX: u64 = 150;

#[test]
fn kills_at_os_leave_no_transaction_in_part() {
    survives("os", "transfers", TRANSFERS, TRANSFERS_MAX, kill);
}

#[test]
fn kills_at_sync_leave_no_transaction_in_part() {
    survives("sync", "transfers", TRANSFERS, TRANSFERS_MAX, kill);
}

#[test]
fn failed_syncs_lose_and_double_nothing() {
    survives("sync", TOPIC, SCRIPTS, PRODUCED_MAX, |broker| {
        match broker.fail_a_sync() {
            Ok(()) => true,
            Err(reason) => {
                peer::skip(
                    &format!("strace cannot let a sync fail: {reason}"),
                    "apt-get install strace",
                );
                false
            }
        }
    });
}

/// Time limit of a recovery.
const RECOVERY_LIMIT: Duration = Duration::from_mins(1);

#[test]
fn syncs_that_fail_again_while_it_recovers_refuse_no_client_and_give_no_port_away() {
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot fail",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return;
    }
    let broker = Broker::start();
    let create = |topic: &str| {
        let mut command = peer::command(&crate::broker::binary());
        command.args(["topic", "create", topic, "--server", broker.kafka()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let Some(mut failing) = broker.fail_syncs() else {
        peer::skip("there is no strace to let syncs fail", "apt-get install strace");
        return;
    };
    let mut client = create("first").spawn().unwrap();
    let begun = Instant::now();
    // The journal fails, and then two starts.
    while broker.logged("starting again") < 3 {
        assert!(
            begun.elapsed() < RECOVERY_LIMIT,
            "it does not start again and again"
        );
        if !failing.works() {
            drop(client.kill());
            drop(client.wait());
            peer::skip("strace cannot let syncs fail here", "allow ptrace");
            return;
        }
        for address in [broker.kafka(), broker.amqp(), broker.http()] {
            TcpStream::connect(address).expect("clients wait and are not refused");
            TcpListener::bind(address).expect_err("nobody else gets the port");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(broker.logged("cannot be opened") >= 2, "starts failed");
    assert_eq!(broker.logged("in use"), 0);
    drop(failing);
    assert!(
        !get(broker.http(), "/health").is_empty(),
        "a client that waited is answered"
    );
    while !get(broker.http(), "/health").contains("\"ok\"") {
        assert!(begun.elapsed() < 2 * RECOVERY_LIMIT, "it does not recover");
        thread::sleep(Duration::from_millis(10));
    }
    drop(client.kill());
    drop(client.wait());
    assert!(create("second").status().unwrap().success());
}

pub(crate) fn kill(broker: &mut Broker) -> bool {
    broker.kill_and_restart();
    true
}

/// Hits the broker repeatedly while the first script loads it, until `hit` returns false. The second script
/// checks the result.
pub(crate) fn survives(
    durability: &'static str,
    topic: &str,
    [load, verify]: [&str; 2],
    awaited_max: u64,
    hit: fn(&mut Broker) -> bool,
) {
    survives_at(Broker::kafka, durability, topic, [load, verify], awaited_max, hit);
}

/// Like [`survives`], with the address of another listener for the scripts.
pub(crate) fn survives_at(
    address: fn(&Broker) -> &str,
    durability: &'static str,
    topic: &str,
    [load, verify]: [&str; 2],
    awaited_max: u64,
    hit: fn(&mut Broker) -> bool,
) {
    let Some(python) = peer::python() else { return };
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot be killed",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return;
    }
    let mut moments = Moments::from_seed();
    let mut broker = Broker::start_at(durability);
    let scripts = root().join("tests/clients/python");
    let acknowledged = broker.folder().join("acknowledged");
    let said = broker.folder().join("producer.log");
    let mut producer = peer::command(&python)
        .arg(scripts.join(load))
        .args([address(&broker), topic])
        .arg(&acknowledged)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let mut stop = producer.stdin.take().unwrap();
    let progress = lines_of(producer.stdout.take().unwrap());
    for _ in 0..ROUNDS {
        let mut awaited = moments.draw(awaited_max);
        while awaited > 0 {
            let line = progress.recv_timeout(ACKNOWLEDGEMENT_LIMIT).unwrap_or_else(|_| {
                panic!(
                    "the producer makes no progress: {}",
                    fs::read_to_string(&said).unwrap()
                )
            });
            awaited = awaited.saturating_sub(line.parse::<u64>().unwrap());
        }
        if !hit(&mut broker) {
            break;
        }
        // Acknowledgements from before the kill do not count towards the next moment.
        progress.try_iter().for_each(drop);
    }
    stop.write_all(b"stop\n").unwrap();
    progress.iter().for_each(drop);
    assert!(
        producer.wait().unwrap().success(),
        "the producer could not deliver everything"
    );
    broker.restart();
    let verify = scripts.join(verify);
    let verdict = peer::run_text(
        peer::command(&python)
            .arg(verify)
            .args([address(&broker), topic])
            .arg(&acknowledged),
    );
    assert!(fs::metadata(&acknowledged).unwrap().len() > 0);
    println!("{verdict}");
}

/// Number of acknowledgements before the next kill, drawn by xorshift.
struct Moments(u64);

impl Moments {
    fn from_seed() -> Self {
        let clock = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .subsec_nanos()
                .into()
        };
        let seed: u64 = env::var("STAFETT_TEST_SEED").map_or_else(|_| clock(), |text| text.parse().unwrap());
        println!("STAFETT_TEST_SEED={seed}");
        Self(seed | 1)
    }

    fn draw(&mut self, max: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1 + self.0 % max
    }
}
