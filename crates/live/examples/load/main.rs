//! Load on live topics, for measuring: a client that knows only the protocol of `docs/live.md`.
//!
//! ```text
//! cargo run --release -p stafett-live --example load -- HOST:PORT WHAT [KEY=VALUE]…
//!
//! topics   one client subscribes to topics=N, then messages=M are published to them in turn and delivered
//! songs    connections=C of users=U each; stations=S, each with listeners=L that report the song started
//!          every song_s=240; songs=N, each on the wish lists of wishes=W users; for seconds=T
//! fanout   connections=C subscribe to one topic; rounds=R messages to it, one after the other
//! idle     connections=C listen, and do nothing for seconds=T
//! churn    topics=N subscribed to and unsubscribed from by one client, while messages are published
//!          for seconds=T
//! stored   messages=M are published to topics=N, then one client subscribes to them from the beginning;
//!          the topics need an empty log: live.logs = "topic=topics"
//! filter   messages=M, each twice, to topics=N without a rule and then with one: live.duplicates = "once=1h"
//! memory   topics=N with one subscription each, then subscriptions=S in all, per_client=P=1000
//! restart  started together with a broker: until it answers, with topics=N if they are given
//! ```
//!
//! Each connection takes a descriptor here and one in the broker (`ulimit -n`).
//!
//! Latencies are from the moment at which a message was due to the moment at which its receiver has read it.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a tool for measuring, which ends with an error by panicking"
)]

mod client;
mod latency;
mod many;
mod one;
mod stored;

use std::collections::HashMap;

/// `KEY=VALUE` of the command line.
#[derive(Debug)]
pub(crate) struct Options(HashMap<String, f64>);

impl Options {
    pub(crate) fn number(&self, key: &str, default: f64) -> f64 {
        self.0.get(key).copied().unwrap_or(default)
    }

    #[expect(clippy::cast_sign_loss, reason = "counts are given as such")]
    pub(crate) fn count(&self, key: &str, default: usize) -> usize {
        self.0.get(key).map_or(default, |number| *number as usize)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "HOST:PORT topics|songs|fanout|idle|churn|stored|filter|memory|restart [KEY=VALUE]…";
    let (address, what) = (arguments.next().expect(usage), arguments.next().expect(usage));
    let pairs = arguments.map(|pair| {
        let (key, value) = pair.split_once('=').expect(usage);
        (key.to_owned(), value.parse().expect("a number"))
    });
    let options = Options(pairs.collect());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.count("threads", 2))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match what.as_str() {
            "topics" => one::topics(&address, &options).await,
            "churn" => one::churn(&address, &options).await,
            "songs" => many::songs(&address, &options).await,
            "fanout" => many::fan_out(&address, &options).await,
            "idle" => many::idle(&address, &options).await,
            "stored" => stored::stored(&address, &options).await,
            "filter" => stored::filter(&address, &options).await,
            "memory" => stored::memory(&address, &options).await,
            "restart" => stored::restart(&address, &options).await,
            unknown => println!("{unknown}? {usage}"),
        }
    });
}
