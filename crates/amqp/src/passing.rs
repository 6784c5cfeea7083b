//! Bytes of a connection whose virtual host another broker keeps, and the last word to its client.
//!
//! The home closes connections by itself. If it is gone, the client is told so from here, provided that the
//! last frame of the home came as a whole: nothing can be said within a frame.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stafett_amqp_wire::{FrameKind, ReplyCode};
use stafett_net::stall::StallGuard;
use stafett_net::{ConnectionEntry, Stream, WRITE_PACE};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::exception::Exception;
use crate::homes::Home;
use crate::output::Output;

/// Bytes on their way, each way.
const BUFFER_BYTES: usize = 64 << 10;
/// Time for the home to end once its client has left, and for a client that is told of the end.
const END_MAX: Duration = Duration::from_secs(3);

/// Reason why a connection is passed on no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The client left, or the home has said all.
    Left,
    /// The home is gone, in words about the virtual host.
    Lost(&'static str),
    /// The connection drains here.
    Drain,
}

/// Passes bytes on until one side ends, or the client reads nothing for as long as any client may.
pub(crate) async fn carry(
    stream: &mut Stream,
    home: Home,
    entry: &Arc<ConnectionEntry>,
    drain: &CancellationToken,
) -> (Over, bool) {
    let Home {
        stream: home,
        mut lost,
    } = home;
    let (from_client, to_client) = stream.split();
    let mut from_client = StallGuard::passing(from_client, WRITE_PACE.grace, Arc::clone(entry));
    let mut to_client = StallGuard::passing(to_client, WRITE_PACE.grace, Arc::clone(entry));
    let (mut from_home, mut to_home) = split(home);
    let mut down = Down::default();
    let over = tokio::select! {
        // The home's words come first.
        biased;
        over = down.pour(&mut from_home, &mut to_client) => over,
        over = up(&mut from_client, &mut to_home) => over,
        why = &mut lost => Over::Lost(why),
        () = drain.cancelled() => Over::Drain,
    };
    let may_speak = down.may_speak();
    let over = if over != Over::Left && down.frames.is_closing {
        Over::Left
    } else {
        over
    };
    (over, may_speak)
}

/// Closes the connection of a client that was passed on, for a reason, and waits for it to leave.
pub(crate) async fn last_word(stream: &mut Stream, reason: &str) -> io::Result<()> {
    let (mut read, mut write) = stream.split();
    let mut output = Output::default();
    output.send(0, Exception::new(ReplyCode::ConnectionForced, reason).close());
    let told = timeout(END_MAX, async {
        output.write_all(&mut write).await?;
        // A socket that is closed with unread bytes takes the last word back.
        let mut unread = vec![0; 4096];
        while read.read(&mut unread).await? > 0 {}
        Ok(())
    });
    told.await.unwrap_or(Ok(()))
}

/// Passes the client's bytes on.
async fn up(client: &mut (impl AsyncRead + Unpin), home: &mut (impl AsyncWrite + Unpin)) -> Over {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let Ok(count) = client.read(&mut buffer).await else {
            return Over::Left;
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            // The home executes all that came, and ends.
            let _ = home.shutdown().await;
            sleep(END_MAX).await;
            return Over::Left;
        }
        let written = async {
            home.write_all(bytes).await?;
            home.flush().await
        };
        if written.await.is_err() {
            // Its last words may still come.
            sleep(END_MAX).await;
            return Over::Lost("has lost its node");
        }
    }
}

/// The way from the home to the client.
#[derive(Debug, Default)]
struct Down {
    frames: Frames,
    /// The client has a part of the bytes that were read.
    is_writing: bool,
}

impl Down {
    async fn pour(
        &mut self,
        home: &mut (impl AsyncRead + Unpin),
        client: &mut (impl AsyncWrite + Unpin),
    ) -> Over {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = home.read(&mut buffer).await.unwrap_or_default();
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Over::Lost("has lost its node");
            }
            self.is_writing = true;
            self.frames.take(bytes);
            let written = async {
                client.write_all(bytes).await?;
                client.flush().await
            };
            if written.await.is_err() {
                return Over::Left;
            }
            self.is_writing = false;
        }
    }

    /// Returns true if the client waits for the begin of a frame.
    fn may_speak(&self) -> bool {
        !self.is_writing && self.frames.is_whole()
    }
}

/// Bytes of a frame before its payload.
const HEAD_BYTES: usize = 7;
/// The same with the class and the number of a method.
const BEGIN_BYTES: usize = 11;
const CLOSE: [u8; 4] = [0, 10, 0, 50];
const CLOSE_OK: [u8; 4] = [0, 10, 0, 51];

/// Place in a stream of frames.
#[derive(Debug, Default)]
struct Frames {
    begin: [u8; BEGIN_BYTES],
    /// Bytes of the begin that are there.
    filled: usize,
    /// Bytes that the frame has behind its begin.
    left: u64,
    /// The connection is being closed, or is closed.
    is_closing: bool,
}

impl Frames {
    fn take(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
                self.left -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.begin.get_mut(self.filled) {
                *place = *first;
            }
            self.filled += 1;
            bytes = rest;
            self.look();
        }
    }

    /// Looks at the begin of a frame.
    fn look(&mut self) {
        if self.filled < HEAD_BYTES {
            return;
        }
        let [kind, high, low, a, b, c, d, method @ ..] = self.begin;
        let size = u64::from(u32::from_be_bytes([a, b, c, d]));
        let may_close = kind == FrameKind::Method as u8 && (high, low) == (0, 0) && size >= 4;
        if may_close && self.filled < BEGIN_BYTES {
            return;
        }
        self.is_closing |= may_close && (method == CLOSE || method == CLOSE_OK);
        // An octet ends the frame.
        self.left = size + 1 - (self.filled - HEAD_BYTES) as u64;
        self.filled = 0;
    }

    fn is_whole(&self) -> bool {
        self.filled == 0 && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use bytes::BytesMut;
    use stafett_amqp_wire::methods::{channel, connection};
    use stafett_amqp_wire::{Method, frame};
    use tokio::io::{DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    /// Bytes of frames: a heartbeat, a method of a channel, a body, and the end of the connection.
    fn frames(with_close: bool) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        stafett_amqp_wire::Encoder::frame(&mut bytes, FrameKind::Heartbeat, 0, |_| ());
        Method::from(channel::OpenOk::default()).encode(1, &mut bytes);
        stafett_amqp_wire::Encoder::frame(&mut bytes, FrameKind::Body, 1, |e| {
            e.raw(&[7; 300]);
        });
        if with_close {
            Method::from(connection::CloseOk {}).encode(0, &mut bytes);
        }
        bytes.to_vec()
    }

    #[test]
    fn the_end_of_each_frame_is_known_however_it_comes() {
        let whole = frames(true);
        let ends: Vec<usize> = {
            let mut rest = BytesMut::from(&*whole);
            let mut ends = vec![0];
            while let Ok(Some(_)) = frame::split(&mut rest, 0) {
                ends.push(whole.len() - rest.len());
            }
            ends
        };
        assert_eq!(ends.len(), 5);
        for step in [1, 2, 7, 11, 64, whole.len()] {
            let mut frames = Frames::default();
            let mut taken = 0;
            for bytes in whole.chunks(step) {
                frames.take(bytes);
                taken += bytes.len();
                assert_eq!(
                    frames.is_whole(),
                    ends.contains(&taken),
                    "{taken} in steps of {step}"
                );
            }
            assert!(frames.is_closing);
        }
    }

    /// A client, its connection here, and the home.
    async fn sides() -> (TcpStream, Stream, DuplexStream, DuplexStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        let (near, home) = duplex(1024);
        (client.unwrap(), Stream::Plain(accepted.unwrap().0), near, home)
    }

    fn entry() -> Arc<ConnectionEntry> {
        ConnectionEntry::of(1, Arc::default())
    }

    fn home(stream: DuplexStream) -> Home {
        Home {
            stream: Box::new(stream),
            lost: Box::pin(pending()),
        }
    }

    #[tokio::test]
    async fn a_home_that_ends_between_frames_leaves_a_last_word() {
        let (mut client, mut stream, near, mut at_home) = sides().await;
        let bytes = frames(false);
        at_home.write_all(&bytes).await.unwrap();
        drop(at_home);
        let drain = CancellationToken::new();
        let ended = carry(&mut stream, home(near), &entry(), &drain).await;
        assert_eq!(ended, (Over::Lost("has lost its node"), true));
        let reading = async move {
            let mut read = vec![0; bytes.len()];
            client.read_exact(&mut read).await.unwrap();
            assert_eq!(read, bytes);
            let mut rest = vec![0; 4096];
            let count = client.read(&mut rest).await.unwrap();
            String::from_utf8_lossy(&rest[..count]).into_owned()
        };
        let (told, said) = tokio::join!(last_word(&mut stream, "vhost 'a' has lost its node"), reading);
        told.unwrap();
        assert!(
            said.contains("CONNECTION_FORCED - vhost 'a' has lost its node"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn nothing_is_said_within_a_frame_and_behind_a_close() {
        let drain = CancellationToken::new();
        let (_client, mut stream, near, mut at_home) = sides().await;
        let bytes = frames(false);
        at_home.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
        drop(at_home);
        let ended = carry(&mut stream, home(near), &entry(), &drain).await;
        assert_eq!(ended, (Over::Lost("has lost its node"), false));

        let (_client, mut stream, near, mut at_home) = sides().await;
        at_home.write_all(&frames(true)).await.unwrap();
        drop(at_home);
        assert_eq!(
            carry(&mut stream, home(near), &entry(), &drain).await.0,
            Over::Left
        );
    }

    #[tokio::test]
    async fn a_home_that_hangs_and_a_drain_end_a_connection() {
        let (_client, mut stream, near, _at_home) = sides().await;
        let drain = CancellationToken::new();
        let lost = Home {
            stream: Box::new(near),
            lost: Box::pin(async { "is at a node that does not answer" }),
        };
        let ended = carry(&mut stream, lost, &entry(), &drain).await;
        assert_eq!(ended, (Over::Lost("is at a node that does not answer"), true));
        let (_client, mut stream, near, _at_home) = sides().await;
        drain.cancel();
        assert_eq!(
            carry(&mut stream, home(near), &entry(), &drain).await,
            (Over::Drain, true)
        );
    }

    #[tokio::test]
    async fn the_home_gets_all_that_a_client_sent_before_it_left() {
        let (mut client, mut stream, near, mut at_home) = sides().await;
        client.write_all(&[5; 5000]).await.unwrap();
        drop(client);
        let drain = CancellationToken::new();
        let home_side = async move {
            let mut read = Vec::new();
            at_home.read_to_end(&mut read).await.unwrap();
            read.len()
        };
        let entry = entry();
        let (_, read) = tokio::join!(carry(&mut stream, home(near), &entry, &drain), home_side);
        assert_eq!(read, 5000);
    }
    /// The home may have given its connection up for the same reason: its end would not be read.
    #[tokio::test]
    async fn a_client_that_does_not_read_is_left() {
        let (_client, mut stream, near, mut at_home) = sides().await;
        let filling = async move {
            let body = vec![7; BUFFER_BYTES];
            while at_home.write_all(&body).await.is_ok() {}
        };
        let (drain, entry) = (CancellationToken::new(), entry());
        // Once the client's side is full, nothing but time goes on.
        tokio::time::pause();
        let since = Instant::now();
        let ending = carry(&mut stream, home(near), &entry, &drain);
        let (ended, ()) = tokio::join!(ending, filling);
        assert_eq!(ended, (Over::Left, false));
        assert_eq!(entry.metrics.errors("write_stalled"), 1);
        assert!(entry.traffic().sent_bytes > 0 && since.elapsed() >= WRITE_PACE.grace);
    }
}
