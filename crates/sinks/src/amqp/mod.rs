//! A queue that is read over AMQP 0-9-1, by one process at a time.
//!
//! ```text
//! connect ─▶ consume, exclusive ─▶ Claimed, with a feed ─▶ deliveries … ack once the target is behind them
//!    ▲                                                        │
//!    └────────────── Lost ◀── the connection ended ───────────┘
//! ```
//!
//! Messages have no offsets: they are numbered as they come, from the target's position on. Those
//! without an acknowledgement when a connection ends come again, so a queue is read at least once.

pub(crate) mod link;
mod message;

use bytes::Bytes;
use stafett_amqp_wire::frame::Frame;
use stafett_amqp_wire::methods::{Basic, Connection, basic, connection};
use stafett_amqp_wire::{ContentHeader, FrameKind, Method};
use stafett_model::{BatchBuilder, Codec, StoredRecord, records};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, interval, sleep};

use crate::claim::Claim;
use crate::claims::Changes;
use crate::definition::QueueSpec;
use crate::http::HttpError;
use crate::target::TargetError;
use crate::work::Change;
use link::{Address, Link, away, method_of};

const AGAIN: Duration = Duration::from_secs(1);
/// Pieces that wait for the pump. Behind them nothing is read.
const AHEAD: usize = 2;
/// Messages and bytes of a piece, about.
const PIECE_RECORDS: usize = 1000;
const PIECE_BYTES: usize = 1 << 20;
const BODY_BYTES_MAX: u64 = 256 << 20;
const BATCH_BYTES_FIRST: usize = 4096;
/// Interval of heartbeats, in seconds, unless the broker asks for a shorter one.
const HEARTBEAT: u16 = 30;
/// Interval of looks at a connection without heartbeats.
const NEVER: Duration = Duration::from_hours(1);

/// Records of a queue, numbered from 0 on within each piece.
pub(crate) type Feed = mpsc::Receiver<Vec<StoredRecord>>;

/// Request to the session of a queue.
pub(crate) enum QueueRequest {
    /// The target is behind a number. The first one of a session is where it began.
    Stored {
        session: u64,
        next: u64,
    },
    /// The pump of a session has ended: messages without an acknowledgement go back.
    End {
        session: u64,
    },
    Rest(bool),
    Leave(oneshot::Sender<()>),
}

/// End of a session.
enum End {
    Failed(TargetError),
    Ended,
    Left(Option<oneshot::Sender<()>>),
}

/// Follows a queue until the requests end.
pub(crate) async fn follow(
    spec: QueueSpec,
    place: String,
    mut requests: mpsc::Receiver<QueueRequest>,
    changes: Changes,
) {
    let (mut rests, mut number) = (false, 0);
    loop {
        while rests {
            match requests.recv().await {
                Some(QueueRequest::Rest(now)) => rests = now,
                Some(QueueRequest::Leave(left)) => {
                    // The session waits no more if that fails.
                    let _ = left.send(());
                    return;
                }
                Some(QueueRequest::Stored { .. } | QueueRequest::End { .. }) => {}
                None => return,
            }
        }
        number += 1;
        let ended = match Session::open(&spec, number).await {
            Err(why) => End::Failed(why),
            Ok(mut session) => {
                let (pieces, feed) = mpsc::channel(AHEAD);
                let claim = Claim {
                    epoch: number,
                    ..Claim::of_place(&place, 0)
                };
                let lost = Change::Lost(claim.task.clone());
                if changes.send(Ok(vec![Change::Opened(claim, feed)])).await.is_err() {
                    return;
                }
                let ended = session.run(&pieces, &mut requests, &mut rests).await;
                if changes.send(Ok(vec![lost])).await.is_err() {
                    return;
                }
                ended
            }
        };
        match ended {
            End::Left(left) => {
                if let Some(left) = left {
                    let _ = left.send(());
                }
                return;
            }
            End::Ended => {}
            End::Failed(why) => {
                let why = HttpError::Away {
                    address: place.clone(),
                    why: why.to_string(),
                };
                if changes.send(Err(why)).await.is_err() {
                    return;
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// A consumer of the queue.
struct Session {
    /// Number of the session: requests about an earlier one are of no use.
    number: u64,
    link: Link,
    /// Number at which the session began in the target.
    base: Option<u64>,
    acknowledged: u64,
    making: BatchBuilder,
    delivery: Option<Delivery>,
    /// Time of the last frame, or of the last time at which none was asked for.
    heard: Instant,
}

/// A message that comes.
struct Delivery {
    header: Option<ContentHeader>,
    body: Vec<u8>,
}

impl Session {
    async fn open(spec: &QueueSpec, number: u64) -> Result<Self, TargetError> {
        let url = spec
            .url
            .resolve()
            .map_err(|why| TargetError::Stop(format!("{}: {why}", spec.url)))?;
        let mut link = Link::open(&Address::parse(&url)?, spec.ca.as_deref(), HEARTBEAT).await?;
        link.call(basic::Qos {
            prefetch_count: spec.prefetch,
            ..basic::Qos::default()
        })
        .await?;
        link.call(basic::Consume {
            queue: spec.queue.as_str().into(),
            consumer_tag: "stafett-sink".into(),
            exclusive: true,
            ..basic::Consume::default()
        })
        .await?;
        Ok(Self {
            number,
            link,
            base: None,
            acknowledged: 0,
            making: making(),
            delivery: None,
            heard: Instant::now(),
        })
    }

    async fn run(
        &mut self,
        pieces: &mpsc::Sender<Vec<StoredRecord>>,
        requests: &mut mpsc::Receiver<QueueRequest>,
        rests: &mut bool,
    ) -> End {
        let mut ready: Option<Vec<StoredRecord>> = None;
        let every = Some(self.link.heartbeat() / 2).filter(|every| !every.is_zero());
        let mut beats = interval(every.unwrap_or(NEVER));
        loop {
            let done = tokio::select! {
                request = requests.recv() => match request {
                    Some(QueueRequest::Stored { session, next }) if session == self.number => {
                        self.acknowledge(next).await
                    }
                    Some(QueueRequest::End { session }) if session == self.number => {
                        return self.close(End::Ended).await;
                    }
                    Some(QueueRequest::Stored { .. } | QueueRequest::End { .. }) => Ok(()),
                    Some(QueueRequest::Rest(now)) => {
                        *rests = now;
                        Ok(())
                    }
                    Some(QueueRequest::Leave(left)) => return self.close(End::Left(Some(left))).await,
                    None => return End::Left(None),
                },
                permit = pieces.reserve(), if ready.is_some() => match (permit, ready.take()) {
                    (Ok(permit), Some(piece)) => {
                        permit.send(piece);
                        self.heard = Instant::now();
                        Ok(())
                    }
                    // The pump is gone; its end is told by a request.
                    _ => Ok(()),
                },
                frame = self.link.frame(), if ready.is_none() => match frame {
                    Ok(frame) => self.gather(frame).map(|piece| ready = piece),
                    Err(why) => Err(why),
                },
                _ = beats.tick() => self.beat(ready.is_none()).await,
            };
            if let Err(why) = done {
                return End::Failed(why);
            }
        }
    }

    /// Sends a heartbeat. An error if nothing was heard for long while frames were read.
    async fn beat(&mut self, is_reading: bool) -> Result<(), TargetError> {
        let heartbeat = self.link.heartbeat();
        if heartbeat.is_zero() {
            return Ok(());
        }
        if is_reading && self.heard.elapsed() >= heartbeat * 2 {
            return Err(away(format!(
                "it sent nothing for {} s",
                self.heard.elapsed().as_secs()
            )));
        }
        self.link.beat();
        self.link.write().await
    }

    /// Takes a frame, and those that have come with it, up to a piece. Returns its records.
    fn gather(&mut self, first: Frame) -> Result<Option<Vec<StoredRecord>>, TargetError> {
        self.heard = Instant::now();
        let mut next = Some(first);
        while let Some(frame) = next {
            self.take(frame)?;
            if self.making.len() >= PIECE_RECORDS || self.making.bytes() >= PIECE_BYTES {
                break;
            }
            next = self.link.waiting_frame()?;
        }
        if self.making.is_empty() {
            return Ok(None);
        }
        let batch = std::mem::replace(&mut self.making, making())
            .finish()
            .map_err(away)?;
        let found = records(&batch, usize::MAX).map_err(away)?;
        found.collect::<Result<_, _>>().map(Some).map_err(away)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others say nothing about messages"
    )]
    fn take(&mut self, frame: Frame) -> Result<(), TargetError> {
        match FrameKind::of(frame.kind) {
            Some(FrameKind::Method) => match method_of(frame.payload)? {
                Method::Basic(Basic::Deliver(_)) => {
                    self.delivery = Some(Delivery {
                        header: None,
                        body: Vec::new(),
                    });
                    Ok(())
                }
                Method::Basic(Basic::Cancel(_)) => Err(TargetError::Stop("the queue is gone".to_owned())),
                _ => Ok(()),
            },
            Some(FrameKind::Header) => {
                let header = ContentHeader::decode(frame.payload).map_err(away)?;
                if header.body_size > BODY_BYTES_MAX {
                    return Err(TargetError::Stop(format!(
                        "a message of {} bytes",
                        header.body_size
                    )));
                }
                if let Some(delivery) = &mut self.delivery {
                    delivery.header = Some(header);
                }
                self.complete(&Bytes::new())
            }
            Some(FrameKind::Body) => self.complete(&frame.payload),
            Some(FrameKind::Heartbeat) => Ok(()),
            None => Err(away("it sent a frame of an unknown kind")),
        }
    }

    /// Adds a part of a body, and the message once it is whole.
    fn complete(&mut self, part: &[u8]) -> Result<(), TargetError> {
        let Some(delivery) = &mut self.delivery else {
            return Err(away("a body came without its message"));
        };
        delivery.body.extend_from_slice(part);
        let Some(header) = &delivery.header else {
            return Err(away("a body came before its header"));
        };
        if (delivery.body.len() as u64) < header.body_size {
            return Ok(());
        }
        let properties = header.properties.read();
        message::push(&mut self.making, &properties, &delivery.body).map_err(away)?;
        self.delivery = None;
        Ok(())
    }

    /// Acknowledges all messages before a number. Tags count from 1 on.
    async fn acknowledge(&mut self, next: u64) -> Result<(), TargetError> {
        let base = *self.base.get_or_insert(next);
        let tag = next.saturating_sub(base);
        if tag <= self.acknowledged {
            return Ok(());
        }
        self.acknowledged = tag;
        self.link.tell(basic::Ack {
            delivery_tag: tag,
            multiple: true,
        });
        self.link.write().await
    }

    /// Ends the connection, behind the acknowledgements.
    async fn close(&mut self, end: End) -> End {
        self.link.tell_connection(connection::Close {
            reply_code: 200,
            ..connection::Close::default()
        });
        // The broker notices by itself if this fails. Its answer says that it has the acknowledgements.
        if self.link.write().await.is_ok() {
            let closed = async {
                while let Ok(frame) = self.link.frame().await {
                    let is_method = frame.kind == FrameKind::Method as u8;
                    if is_method
                        && matches!(
                            Method::decode(frame.payload),
                            Ok(Method::Connection(Connection::CloseOk(_)))
                        )
                    {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(AGAIN, closed).await;
        }
        end
    }
}

fn making() -> BatchBuilder {
    BatchBuilder::with_capacity(Codec::None, BATCH_BYTES_FIRST)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use stafett_amqp_wire::frame::{self, PROTOCOL_HEADER};
    use stafett_amqp_wire::methods::channel;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    use super::*;
    use crate::secret::Secret;

    /// A broker that has a consumer, and then says nothing. Returns the number of heartbeats until the end, and
    /// the tags of acknowledgements.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others need no answer")]
    async fn silent(mut stream: TcpStream) -> (usize, Vec<u64>) {
        let (mut input, mut output, mut beats, mut tags) = (BytesMut::new(), BytesMut::new(), 0, Vec::new());
        let answer = |channel: u16, method: Method, output: &mut BytesMut| method.encode(channel, output);
        let mut header = [0; PROTOCOL_HEADER.len()];
        stream.read_exact(&mut header).await.unwrap();
        answer(0, connection::Start::default().into(), &mut output);
        loop {
            stream.write_all_buf(&mut output).await.unwrap();
            let Some(frame) = frame::split(&mut input, 0).unwrap() else {
                if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                    return (beats, tags);
                }
                continue;
            };
            if FrameKind::of(frame.kind) == Some(FrameKind::Heartbeat) {
                beats += 1;
                continue;
            }
            let (channel, method) = match Method::decode(frame.payload).unwrap() {
                Method::Connection(Connection::StartOk(_)) => {
                    let tune = connection::Tune {
                        heartbeat: 1,
                        ..connection::Tune::default()
                    };
                    (0, tune.into())
                }
                Method::Connection(Connection::Open(_)) => (0, connection::OpenOk::default().into()),
                Method::Channel(_) => (1, channel::OpenOk::default().into()),
                Method::Basic(Basic::Qos(_)) => (1, basic::QosOk::default().into()),
                Method::Basic(Basic::Consume(_)) => (1, basic::ConsumeOk::default().into()),
                Method::Basic(Basic::Ack(ack)) => {
                    tags.push(ack.delivery_tag);
                    continue;
                }
                _ => continue,
            };
            answer(channel, method, &mut output);
        }
    }

    /// Returns a session with a silent broker, and that broker.
    async fn session(number: u64) -> (Session, JoinSet<(usize, Vec<u64>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let spec = QueueSpec {
            url: Secret::parse(&format!("amqp://{}", listener.local_addr().unwrap())),
            ca: None,
            queue: "q".to_owned(),
            prefetch: 10,
        };
        let mut broker = JoinSet::new();
        broker.spawn(async move { silent(listener.accept().await.unwrap().0).await });
        (Session::open(&spec, number).await.unwrap(), broker)
    }

    #[tokio::test]
    async fn what_an_earlier_session_has_stored_acknowledges_nothing() {
        let (mut session, mut broker) = session(2).await;
        let (requests, mut received) = mpsc::channel(8);
        let (pieces, _feed) = mpsc::channel(AHEAD);
        for (session, next) in [(1, 70), (2, 50), (1, 77), (2, 53)] {
            requests
                .send(QueueRequest::Stored { session, next })
                .await
                .unwrap();
        }
        requests.send(QueueRequest::End { session: 1 }).await.unwrap();
        requests.send(QueueRequest::End { session: 2 }).await.unwrap();
        let ended = session.run(&pieces, &mut received, &mut false).await;
        assert!(matches!(ended, End::Ended));
        drop(session);
        let (_, tags) = broker.join_next().await.unwrap().unwrap();
        assert_eq!(tags, [3]);
    }

    #[tokio::test]
    async fn a_broker_that_falls_silent_is_left() {
        let (mut session, mut broker) = session(1).await;
        let (_requests, mut received) = mpsc::channel(1);
        let (pieces, _feed) = mpsc::channel(AHEAD);
        let ended = session.run(&pieces, &mut received, &mut false).await;
        assert!(matches!(ended, End::Failed(TargetError::Retry(why)) if why.contains("sent nothing")));
        drop(session);
        let (beats, _) = broker.join_next().await.unwrap().unwrap();
        assert!(beats >= 3, "it heard heartbeats");
    }
}
