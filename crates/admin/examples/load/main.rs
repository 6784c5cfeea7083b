//! Load on the API of a running broker, over HTTP and over a WebSocket.
//!
//! ```text
//! load ws 127.0.0.1:7070 SECONDS [BYTES] [DURABILITY]     one connection: sends ahead, and a consumer
//! load post 127.0.0.1:7070 SECONDS CONNECTIONS [BYTES] [DURABILITY]
//! load receive 127.0.0.1:7070 SECONDS CONNECTIONS [soon|stored]
//! load mlmq 127.0.0.1:7070 SECONDS one|mix|450            clients of a priority-queue middleware
//! load polls 127.0.0.1:7070 COUNT                         long polls that wait until the end of this program
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a load program fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "its output")]

mod http;
mod mlmq;
mod ws;

use std::time::Duration;

/// Arguments of the command line.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn text<'a>(&'a self, at: usize, default: &'a str) -> &'a str {
        self.0.get(at).map_or(default, String::as_str)
    }

    pub(crate) fn number(&self, at: usize, default: usize) -> usize {
        self.0
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    }
}

#[tokio::main]
async fn main() {
    let arguments = Arguments(std::env::args().skip(1).collect());
    let address = arguments.text(1, "127.0.0.1:7070").to_owned();
    let seconds = Duration::from_secs(arguments.number(2, 10) as u64);
    match arguments.text(0, "") {
        "ws" => {
            ws::run(
                &address,
                seconds,
                arguments.number(3, 200),
                arguments.text(4, "os"),
            )
            .await;
        }
        "post" => {
            let bytes = arguments.number(4, 100);
            http::post(
                &address,
                seconds,
                arguments.number(3, 16),
                bytes,
                arguments.text(5, "sync"),
            )
            .await;
        }
        "receive" => {
            http::receive(
                &address,
                seconds,
                arguments.number(3, 16),
                arguments.text(4, "soon"),
            )
            .await;
        }
        "mlmq" => mlmq::run(&address, seconds, arguments.text(3, "one")).await,
        "polls" => http::polls(&address, arguments.number(2, 1000)).await,
        other => println!("{other:?} is none of ws, post, receive, mlmq, polls"),
    }
}

/// Prints quantiles of times.
pub(crate) fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        times
            .get(index.min(times.len().saturating_sub(1)))
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    println!(
        "{name}: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.2} ms",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
