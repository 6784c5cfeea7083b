//! The lab's drivers for users' clients: librdkafka for Kafka's protocol, lapin for AMQP.
//!
//! `stafett lab run` starts this program with `attend` for experiments with `driver = "client"`, and talks to
//! it over its standard input and output (`stafett_lab::clients`). As an `agent` it runs load for a
//! controller on another machine, instead of `stafett lab agent`.
//!
//! - [`amqp`]: lapin
//! - `kafka`: librdkafka; absent in builds without it
//! - [`pipes`]: standard input and output, reserved for the lab

mod amqp;
#[cfg(feature = "librdkafka")]
mod kafka;
mod pipes;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use stafett_lab::agents::proof::Secret;
use stafett_lab::agents::{Agent, attend};
use stafett_lab::drivers::http::Http;
use stafett_lab::drivers::live::Live;
use stafett_lab::drivers::{Driver, Drivers};
use stafett_lab::experiment::{DriverKind, Protocol};
use stafett_lab::systems;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const USAGE: &str = "Usage:
  stafett-lab-clients agent [--listen HOST:PORT] [--secret-file FILE]
      run load for `stafett lab run --agent` on another machine, with librdkafka and lapin for driver = \"client\"
  stafett-lab-clients attend
      what `stafett lab run` starts; it speaks to it over standard input and output
  stafett-lab-clients --version

An agent listens on 127.0.0.1:7071 by default; what other machines can reach needs a secret.";
const LISTEN: &str = "127.0.0.1:7071";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["attend"] => run(serve_pipes()),
        ["agent", options @ ..] => agent_options(options).and_then(|options| run(serve_network(options))),
        ["--version"] => told(&version()),
        ["--help" | "-h"] => told(USAGE),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // The write fails if standard error is closed.
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
    }
}

fn told(text: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{text}").map_err(|error| error.to_string())
}

fn version() -> String {
    let mut text = format!(
        "stafett-lab-clients {} (lapin {}",
        env!("CARGO_PKG_VERSION"),
        amqp::version()
    );
    #[cfg(feature = "librdkafka")]
    text.push_str(&format!(", librdkafka {}", kafka::version()));
    text.push(')');
    text
}

fn run(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).min(8))
        .enable_all()
        .build()
        .map_err(|error| format!("no threads can be started: {error}"))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Serves the parent process until it closes its end.
async fn serve_pipes() -> Result<(), String> {
    let (input, output) = pipes::take()
        .map_err(|error| format!("standard input and output are no pipes of `stafett lab run`: {error}"))?;
    attend(input, output, drivers(), CancellationToken::new()).await;
    Ok(())
}

struct AgentOptions {
    listen: String,
    secret: Option<Secret>,
}

fn agent_options(mut words: &[&str]) -> Result<AgentOptions, String> {
    let mut options = AgentOptions {
        listen: LISTEN.to_owned(),
        secret: None,
    };
    loop {
        words = match words {
            [] => return Ok(options),
            ["--listen", address, rest @ ..] => {
                (*address).clone_into(&mut options.listen);
                rest
            }
            ["--secret-file", file, rest @ ..] => {
                let read = std::fs::read_to_string(Path::new(file)).map_err(|error| error.to_string());
                let secret = read.and_then(|text| Secret::new(&text));
                options.secret = Some(secret.map_err(|error| format!("{file}: {error}"))?);
                rest
            }
            _ => return Err(USAGE.to_owned()),
        };
    }
}

async fn serve_network(options: AgentOptions) -> Result<(), String> {
    let say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    let agent = Agent::bind(&options.listen, options.secret, drivers(), say)
        .await
        .map_err(|error| error.to_string())?;
    let at = agent.address().map_err(|error| error.to_string())?;
    told(&format!("agent listening on {at}"))?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let serving = agent.serve(stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    serving.await;
    Ok(())
}

/// Returns users' clients for experiments that ask for them, else the lean drivers.
fn drivers() -> Drivers {
    Arc::new(|system, address, plan| {
        if plan.run.driver == DriverKind::Lean {
            return systems::driver(system, address, plan);
        }
        client(systems::protocol(system, plan)?, address)
    })
}

fn client(protocol: Protocol, address: &str) -> Result<Arc<dyn Driver>, String> {
    match protocol {
        #[cfg(feature = "librdkafka")]
        Protocol::Kafka => Ok(Arc::new(kafka::Librdkafka::new(address))),
        #[cfg(not(feature = "librdkafka"))]
        Protocol::Kafka => Err(format!(
            "this stafett-lab-clients was built without librdkafka: `{}` builds it with",
            stafett_lab::clients::BUILD
        )),
        Protocol::Amqp => Ok(Arc::new(amqp::Lapin::new(address))),
        Protocol::Live => Ok(Arc::new(Live::new(address))),
        Protocol::Http => Ok(Arc::new(Http::new(address))),
    }
}
