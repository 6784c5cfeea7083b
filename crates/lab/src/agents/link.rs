//! The controller's end of one agent: introduction, the network between the two, orders and reports.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::AgentAddress;
use super::proof::{Secret, Side, challenge};
use super::protocol::{
    FromAgent, Greeting, INTRODUCTION_BYTES_MAX, Introduction, IntroductionReply, Machine, ProtocolError,
    REPORT_BYTES_MAX, Reader, ToAgent, VERSION, fill, send, send_within,
};
use crate::results::{Latencies, Network, histogram};

const THERE_WITHIN: Duration = Duration::from_secs(5);
/// An agent that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const PING_EVERY: Duration = Duration::from_secs(2);
const ORDERS_WAITING: usize = 64;
const ROUND_TRIPS: u64 = 300;
const FILL_BYTES: usize = 256 << 10;
const FILL_FOR: Duration = Duration::from_millis(300);

/// A connection to an agent that takes orders.
#[derive(Debug)]
pub(crate) struct Link<R = OwnedReadHalf, W = OwnedWriteHalf> {
    reader: Reader<R>,
    writer: W,
    pub(crate) machine: Machine,
}

/// A report of an agent, or the reason why there are no more.
#[derive(Debug)]
pub(crate) enum Report {
    Said(FromAgent),
    Gone(String),
}

/// An agent with a task of its own that keeps in touch with it.
#[derive(Debug)]
pub(crate) struct Member {
    orders: mpsc::Sender<ToAgent>,
    /// Allowances by role, with the number of their load. Only the latest are sent.
    allowed: watch::Sender<(u64, BTreeMap<String, u64>)>,
    pub(crate) machine: Machine,
}

impl Link {
    /// Connects, and proves to know the secret.
    pub(super) async fn open(agent: &AgentAddress, secret: Option<&Secret>) -> Result<Self, String> {
        let about = |what: String| format!("{agent}: {what}");
        match timeout(THERE_WITHIN, introduce(&agent.address, secret)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(reason)) => Err(about(reason)),
            Err(_) => Err(about(format!("no answer within {} s", THERE_WITHIN.as_secs()))),
        }
    }

    /// Measures the network between the controller and the agent.
    pub(super) async fn measure(&mut self, name: &str) -> Result<Network, ProtocolError> {
        let mut times = histogram::empty();
        for number in 0..ROUND_TRIPS {
            let started = Instant::now();
            self.ping(number).await?;
            histogram::record(&mut times, started.elapsed(), 1);
        }
        let bytes = vec![0; FILL_BYTES];
        let (started, mut sent) = (Instant::now(), 0);
        while started.elapsed() < FILL_FOR {
            fill(&mut self.writer, &bytes).await?;
            sent += bytes.len();
        }
        self.ping(ROUND_TRIPS).await?;
        let forth = sent as f64 / started.elapsed().as_secs_f64();
        let (_, back) = self.flood(Duration::ZERO).await?;
        let both = self.flood(FILL_FOR).await?;
        Ok(Network {
            path: format!("controller to agent {name}"),
            bytes_per_second: forth,
            back_bytes_per_second: Some(back),
            both_bytes_per_second: Some(both),
            round_trip: Latencies::of(&times),
        })
    }

    /// Lets the agent send as much as it can, and sends for a while meanwhile. Returns the bytes per second
    /// there and back.
    async fn flood(&mut self, time: Duration) -> Result<(f64, f64), ProtocolError> {
        let millis = u64::try_from(FILL_FOR.as_millis()).unwrap_or(u64::MAX);
        send(&mut self.writer, &ToAgent::Flood(millis)).await?;
        let (started, bytes) = (Instant::now(), vec![0; FILL_BYTES]);
        let (reader, writer) = (&mut self.reader, &mut self.writer);
        let writing = async {
            let mut sent = 0;
            while started.elapsed() < time {
                fill(writer, &bytes).await?;
                sent += bytes.len();
            }
            Ok::<_, ProtocolError>(sent)
        };
        let reading = async {
            loop {
                if let FromAgent::Flooded(bytes) = reader.next().await? {
                    return Ok::<_, ProtocolError>(bytes as f64 / started.elapsed().as_secs_f64());
                }
            }
        };
        let (sent, back) = tokio::try_join!(writing, reading)?;
        self.ping(ROUND_TRIPS).await?;
        Ok((sent as f64 / started.elapsed().as_secs_f64(), back))
    }

    async fn ping(&mut self, number: u64) -> Result<(), ProtocolError> {
        send(&mut self.writer, &ToAgent::Ping(number)).await?;
        while self.reader.next::<FromAgent>().await? != FromAgent::Pong(number) {}
        Ok(())
    }
}

impl<R, W> Link<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    /// Exchanges introductions and proofs.
    pub(crate) async fn meet(reader: R, mut writer: W, secret: Option<&Secret>) -> Result<Self, String> {
        let failed = |error: ProtocolError| error.to_string();
        let mut reader = Reader::new(reader, INTRODUCTION_BYTES_MAX);
        let greeting: Greeting = reader.next().await.map_err(failed)?;
        if greeting.protocol != VERSION {
            return Err(format!(
                "it ({}) speaks version {} of the protocol, and this program version {VERSION}",
                greeting.version, greeting.protocol
            ));
        }
        if greeting.needs_secret && secret.is_none() {
            return Err("it wants a secret: --secret-file FILE".to_owned());
        }
        let ours = challenge();
        let introduction = Introduction {
            protocol: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            proof: secret.map(|secret| secret.proof(Side::Controller, &greeting.challenge)),
            challenge: ours.clone(),
        };
        send(&mut writer, &introduction)
            .await
            .map_err(|error| error.to_string())?;
        match reader.next().await.map_err(failed)? {
            IntroductionReply::Refused { reason } => Err(reason),
            IntroductionReply::Welcome { proof, machine } => {
                let is_proven = secret.is_none_or(|secret| {
                    let proof = proof.as_deref().unwrap_or_default();
                    secret.is_proven(Side::Agent, &ours, proof)
                });
                if !is_proven {
                    return Err("it does not know the secret".to_owned());
                }
                reader.allow(REPORT_BYTES_MAX);
                Ok(Self {
                    reader,
                    writer,
                    machine,
                })
            }
        }
    }

    /// Keeps in touch from now on; reports of the agent go to `reports`, with `mark`.
    pub(crate) fn keep<M: Copy + Send + 'static>(
        mut self,
        mark: M,
        reports: mpsc::Sender<(M, Report)>,
        tasks: &TaskTracker,
    ) -> Member {
        let (orders, mut waiting) = mpsc::channel(ORDERS_WAITING);
        let (allowed, mut allowing) = watch::channel((0, BTreeMap::new()));
        let machine = self.machine.clone();
        tasks.spawn(async move {
            let error = self.relay(mark, &reports, &mut waiting, &mut allowing).await;
            // Fails if the crew is gone.
            let _ = reports.send((mark, Report::Gone(error))).await;
        });
        Member {
            orders,
            allowed,
            machine,
        }
    }

    async fn relay<M: Copy>(
        &mut self,
        mark: M,
        reports: &mpsc::Sender<(M, Report)>,
        orders: &mut mpsc::Receiver<ToAgent>,
        allowing: &mut watch::Receiver<(u64, BTreeMap<String, u64>)>,
    ) -> String {
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0;
        loop {
            let heard = self.reader.heard();
            let sent = tokio::select! {
                // Data that is there already is read before an agent counts as silent.
                biased;
                said = self.reader.next_report::<FromAgent>() => match said {
                    Ok(FromAgent::Pong(_) | FromAgent::Flooded(_)) => Ok(()),
                    Ok(said) => match reports.send((mark, Report::Said(said))).await {
                        Ok(()) => Ok(()),
                        Err(_) => return "nobody listens".to_owned(),
                    },
                    Err(error) => return error.to_string(),
                },
                order = orders.recv() => match order {
                    Some(order) => send_within(SILENCE_MAX, &mut self.writer, &order).await,
                    None => return "the controller is done with it".to_owned(),
                },
                Ok(()) = allowing.changed() => {
                    let (load, made) = allowing.borrow_and_update().clone();
                    send_within(SILENCE_MAX, &mut self.writer, &ToAgent::Allow { load, made }).await
                }
                _ = pings.tick() => {
                    number += 1;
                    send_within(SILENCE_MAX, &mut self.writer, &ToAgent::Ping(number)).await
                }
                // A message may take longer than that to come.
                () = sleep_until(heard + SILENCE_MAX) => if self.reader.heard() > heard {
                    Ok(())
                } else {
                    return format!("it said nothing for {} s", SILENCE_MAX.as_secs());
                },
            };
            if let Err(error) = sent {
                return error.to_string();
            }
        }
    }
}

impl Member {
    /// Tells the agent; one that is gone is reported as such elsewhere.
    pub(crate) async fn tell(&self, order: ToAgent) {
        let _ = self.orders.send(order).await;
    }

    /// Tells the agent how many messages of a role its clients may have sent, at its leisure: the latest
    /// number stands for those before it.
    pub(crate) fn allow(&self, load: u64, role: &str, made: u64) {
        self.allowed.send_if_modified(|(of_load, allowed)| {
            if *of_load != load {
                allowed.clear();
            }
            *of_load = load;
            allowed.insert(role.to_owned(), made) != Some(made)
        });
    }
}

async fn introduce(address: &str, secret: Option<&Secret>) -> Result<Link, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (reader, writer) = stream.into_split();
    Link::meet(reader, writer, secret).await
}
