//! The agent: waits for a controller and runs its seats of a load, one controller at a time.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::proof::{Secret, Side, challenge};
use super::protocol::{
    Greeting, INTRODUCTION_BYTES_MAX, Introduction, IntroductionReply, Machine, ORDER_BYTES_MAX,
    ProtocolError, Reader, VERSION, send,
};
use super::session::{Means, Session};
use crate::drivers::Drivers;
use crate::environment;

/// Reason why an agent takes no orders: it has one controller at a time.
pub(super) const TAKEN: &str = "another controller is there";

/// Connections that have not proven themselves.
const STRANGERS_MAX: usize = 16;
const INTRODUCED_WITHIN: Duration = Duration::from_secs(5);

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    inside: Arc<Inside>,
}

/// State that all connections of an agent share.
struct Inside {
    secret: Option<Secret>,
    machine: Machine,
    /// A controller is there.
    is_taken: AtomicBool,
    means: Means,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Reason why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{address} cannot be listened on: {source}")]
    Listen { address: String, source: io::Error },
    #[error(
        "an agent at {0} would send load for whoever reaches it: give it a secret (--secret-file FILE), or let it listen on 127.0.0.1"
    )]
    Open(SocketAddr),
}

impl Agent {
    /// Listens. If other machines can reach it, it needs a secret. Loads are run with `drivers`; `say` is
    /// told of controllers that come and go.
    /// Fails if the address is not available, or open to everybody.
    pub async fn bind(
        address: &str,
        secret: Option<Secret>,
        drivers: Drivers,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        let failed = |source| AgentError::Listen {
            address: address.to_owned(),
            source,
        };
        for found in lookup_host(address).await.map_err(failed)? {
            if !found.ip().is_loopback() && secret.is_none() {
                return Err(AgentError::Open(found));
            }
        }
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self {
            listener,
            inside: Arc::new(Inside {
                secret,
                machine: machine(),
                is_taken: AtomicBool::new(false),
                means: Means {
                    drivers,
                    reads_anywhere: false,
                    precise: true,
                },
                say: Box::new(say),
            }),
        })
    }

    /// Fails where the system does not tell it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves one controller after the other until it is told to stop.
    pub async fn serve(self, stop: CancellationToken) {
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, from)) = accepted else {
                // Out of descriptors, say: it may get better.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(turn) = Arc::clone(&strangers).try_acquire_owned() else {
                continue;
            };
            // Without it answers are only slower.
            let _ = stream.set_nodelay(true);
            let (inside, stop) = (Arc::clone(&self.inside), stop.child_token());
            tasks.spawn(async move {
                let (reader, writer) = stream.into_split();
                let introduced = inside.introduce(reader, writer).await;
                drop(turn);
                match introduced {
                    Ok((reader, writer, taken)) => {
                        (inside.say)(&format!("{from} tells what to do"));
                        let why = Session::new(reader, writer, inside.means.clone()).run(stop).await;
                        drop(taken);
                        (inside.say)(&format!("{from} went away: {why}"));
                    }
                    Err(why) => (inside.say)(&format!("{from} {why}")),
                }
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// Serves the controller that started this program and speaks to it over a pipe each way, until it goes; why
/// it went.
pub async fn attend<R, W>(reader: R, writer: W, drivers: Drivers, stop: CancellationToken) -> String
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let means = Means {
        drivers,
        // It runs for the user that started it.
        reads_anywhere: true,
        precise: true,
    };
    attend_with(means, reader, writer, stop).await
}

/// As [`attend`].
pub(super) async fn attend_with<R, W>(means: Means, reader: R, writer: W, stop: CancellationToken) -> String
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let inside = Arc::new(Inside {
        secret: None,
        machine: machine(),
        is_taken: AtomicBool::new(false),
        means,
        say: Box::new(|_| ()),
    });
    match inside.introduce(reader, writer).await {
        Ok((reader, writer, _taken)) => Session::new(reader, writer, inside.means.clone()).run(stop).await,
        Err(why) => format!("the controller {why}"),
    }
}

type Ends<R, W> = (Reader<R>, W, ControllerLease);

/// A controller has this agent to itself.
struct ControllerLease(Arc<Inside>);

impl Drop for ControllerLease {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl Inside {
    /// Exchanges introductions. The error is the end of a sentence about the controller.
    async fn introduce<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self: &Arc<Self>,
        reader: R,
        writer: W,
    ) -> Result<Ends<R, W>, String> {
        let reader = Reader::new(reader, INTRODUCTION_BYTES_MAX);
        match timeout(INTRODUCED_WITHIN, self.meet(reader, writer)).await {
            Ok(Ok(Some(ends))) => Ok(ends),
            Ok(Ok(None)) => Err("was refused".to_owned()),
            Ok(Err(error)) => Err(format!("did not introduce itself: {error}")),
            Err(_) => Err("did not introduce itself in time".to_owned()),
        }
    }

    /// As [`Self::introduce`], without a bound on the time. `None` if the controller was refused.
    async fn meet<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self: &Arc<Self>,
        mut reader: Reader<R>,
        mut writer: W,
    ) -> Result<Option<Ends<R, W>>, ProtocolError> {
        let ours = challenge();
        let greeting = Greeting {
            protocol: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            needs_secret: self.secret.is_some(),
            challenge: ours.clone(),
        };
        send(&mut writer, &greeting).await?;
        let introduction: Introduction = reader.next().await?;
        let taken = match self.judge(&introduction, &ours) {
            Ok(taken) => taken,
            Err(reason) => {
                send(&mut writer, &IntroductionReply::Refused { reason }).await?;
                return Ok(None);
            }
        };
        let proof = |secret: &Secret| secret.proof(Side::Agent, &introduction.challenge);
        let welcome = IntroductionReply::Welcome {
            proof: self.secret.as_ref().map(proof),
            machine: self.machine.clone(),
        };
        send(&mut writer, &welcome).await?;
        reader.allow(ORDER_BYTES_MAX);
        Ok(Some((reader, writer, taken)))
    }

    /// Takes a controller on: the agent is its own from now on. The error is the reason for a refusal.
    fn judge(
        self: &Arc<Self>,
        introduction: &Introduction,
        challenge: &str,
    ) -> Result<ControllerLease, String> {
        if introduction.protocol != VERSION {
            return Err(format!(
                "this agent ({}) speaks version {VERSION} of the protocol, and the controller ({}) version {}",
                env!("CARGO_PKG_VERSION"),
                introduction.version,
                introduction.protocol
            ));
        }
        let is_proven = self.secret.as_ref().is_none_or(|secret| {
            let proof = introduction.proof.as_deref().unwrap_or_default();
            secret.is_proven(Side::Controller, challenge, proof)
        });
        if !is_proven {
            return Err("the secret is another one".to_owned());
        }
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return Err(TAKEN.to_owned());
        }
        Ok(ControllerLease(Arc::clone(self)))
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

fn machine() -> Machine {
    // The same in all network namespaces of a machine, another one after every boot.
    let id = procfs::sys::kernel::random::boot_id().unwrap_or_default();
    let found = environment::describe(Path::new("."), Path::new("/"));
    Machine {
        id,
        cores: environment::cores(),
        memory_bytes: found.memory_bytes,
        cpu: found.cpu,
        kernel: found.kernel,
    }
}
