//! Scripts of sessions, in `crates/amqp/tests/scripts`: files by topic, with any number of scripts each.
//!
//! ```text
//! # A sentence: the behaviour that the script shows.
//! 1 queue.declare jobs durable              an event: a method on channel 1, in one read
//! > 1 queue.declare-ok jobs 0 0             everything that the client sees of it
//! 1 basic.publish "" jobs = hello           a method with content; properties and headers as NAME=VALUE
//! & 1 basic.get jobs no-ack                 in the same read as the line before
//! > 1 basic.get-ok 1 "" jobs 0 = hello
//! ```
//!
//! Methods have their numbers and strings in order, the names of their bits, and `NAME=VALUE` of their table;
//! `""` is the empty string, `70000*x` a body, `amq.gen-*` the last generated name. Other events:
//!
//! ```text
//! with [message-max=N] [budget=N] [create-vhosts]         before all others
//! connect NAME [channels=N] [vhost=V] [without=blocked|cancel-notify] │ knock NAME
//! NAME 1 METHOD …                                         of another client than `a`, which is there
//! 1 header SIZE │ 1 body TEXT │ 0 heartbeat │ 1 method OCTETS … │ bytes OCTETS …
//! stop │ leave │ wait MS
//! hold │ hold-batches │ hold-state │ release            appends
//! commit [N] │ refuse [N]                                 one of them, by the number of older ones
//! space-is-short │ space-is-enough │ disk-is-used-up │ disk-has-space
//! overload NAME │ overload-ends NAME                      its frames have waited too long
//! topic NAME PARTITIONS │ delete-vhost NAME
//! ```
//!
//! `> waits: …` is an operation that is not done yet; input behind it waits too. There is no socket and no disk.
//! The broker's own tasks (hand-out, dead-lettering, changes of topics) need a runtime: one thread, with paused
//! time, so that a script always runs the same way.
//!
//! `UPDATE_SCRIPTS=1` writes the observed lines into the files.

pub(super) mod bench;
mod client;
mod wire;

use std::path::PathBuf;

use self::bench::Bench;

macro_rules! scripts {
    ($($name:ident)*) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*
    };
}

scripts! {
    access basic_consume basic_deliver basic_get basic_publish basic_qos basic_settle channel confirm
    connection content direct_reply exchange_bind exchange_declare exchange_delete exchange_types frames handshake
    memory not_stored overload queue_bind queue_declare queue_delete queue_over_topic queue_purge quorum_queues space
    stop streams tx vhosts
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts"))
}

#[test]
fn every_script_is_run() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let known: Vec<String> = FILES.iter().map(|name| format!("{name}.txt")).collect();
    assert_eq!(found, known);
}

/// Runs the scripts of a file, each on a broker of its own.
fn run(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut seen = Vec::new();
    for script in expected.split("\n\n").filter(|script| !script.trim().is_empty()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        seen.push(runtime.unwrap().block_on(play(script.trim())));
    }
    let seen = seen.join("\n\n") + "\n";
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(&path, seen).unwrap();
    } else if seen != expected {
        panic!("{}:\n{}", path.display(), difference(&expected, &seen));
    }
}

/// Plays a script. Returns it with everything that was seen.
async fn play(script: &str) -> String {
    let mut lines = script.lines().filter(|line| !line.starts_with('>')).peekable();
    let title = lines.next().unwrap();
    assert!(
        title.starts_with("# ") && title.ends_with('.'),
        "{title}: a script has a sentence"
    );
    let options = lines.next_if(|line| line.starts_with("with "));
    let words: Vec<String> = options
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    let mut bench = Bench::start(&words).await;
    let mut seen: Vec<String> = [title].into_iter().chain(options).map(str::to_owned).collect();
    while let Some(line) = lines.next() {
        seen.push(line.to_owned());
        if line.starts_with('#') {
            continue;
        }
        let mut more = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("& ")) {
            seen.push(line.to_owned());
            more.push(line[2..].to_owned());
        }
        bench.perform(line, &more).await;
        seen.extend(bench.settle().await.into_iter().map(|line| format!("> {line}")));
    }
    seen.join("\n")
}

/// Returns the lines from the first different one on, of both texts.
fn difference(expected: &str, seen: &str) -> String {
    let same = expected
        .lines()
        .zip(seen.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let lines = |text: &str, sign: &str| {
        let lines: Vec<&str> = text.lines().skip(same).take(12).collect();
        format!("{sign} {}\n", lines.join(&format!("\n{sign} ")))
    };
    let before: Vec<&str> = expected.lines().take(same).collect();
    let context = before[before.len().saturating_sub(6)..].join("\n  ");
    format!("  {context}\n{}{}", lines(expected, "-"), lines(seen, "+"))
}
