//! Reads less often from a peer that sends many small pieces, as network cards moderate their interrupts.
//!
//! A peer that sends each message by itself makes the system wake a reader for nearly every message, and a
//! wake-up costs more than the message. A reader that was woken repeatedly for few bytes, and on which no
//! client waits, asks the system to wake it only when several messages have arrived (`SO_RCVLOWAT`), and
//! checks every millisecond for fewer.
//!
//! ```text
//!           16 small reads within 4 ms
//! woken ──────────────────────────────────▶ delayed
//!   ◀──────────────────────────────────────
//!     few bytes, half the previous rate, very many bytes, or a client waits for an answer
//! ```
//!
//! A peer that sends less because it is read later was waiting for answers. After each such case, twice as
//! many small reads are needed before reads are delayed again, so a client that asks and waits loses next to
//! nothing.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use tokio::time::Instant;

/// Consecutive reads that have to be small and close together before reads are delayed.
const READS: u32 = 16;
const READS_MAX: u32 = 4096;
/// Mean time between such reads, at most.
const BETWEEN: Duration = Duration::from_micros(250);
/// Mean bytes of such a read, less than this.
const SMALL_BYTES: u64 = 4 << 10;
/// Bytes at which the system wakes a reader whose reads are delayed. With more, the acknowledgements sent
/// along with reads would be too late for the sender.
const WAKE_BYTES: libc::c_int = 2 << 10;
/// Maximum delay of a read. Timers are no finer.
const PUT_OFF: Duration = Duration::from_millis(1);
/// Fewer bytes than this, twice in a row, mean that the peer has become quiet.
const QUIET_BYTES: usize = 1 << 10;
/// More bytes than this at once could stall the peer: reads are no longer delayed.
const MUCH_BYTES: usize = 32 << 10;
/// Delayed reads after which the rate is compared with the previous rate.
const LOOKED_AT: u32 = 8;

/// Reading mode of one connection, and the recent reads that decide about it.
#[derive(Debug)]
pub struct Moderation {
    /// Reads counted together.
    window: Option<Window>,
    /// Small reads needed before reads are delayed; [`READS`] to [`READS_MAX`].
    needed: u32,
    put_off: Option<PutOff>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    reads: u32,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct PutOff {
    due: Instant,
    /// Previous rate, in bytes per second.
    rate: u64,
    was_quiet: bool,
}

impl Default for Moderation {
    fn default() -> Self {
        Self {
            window: None,
            needed: READS,
            put_off: None,
        }
    }
}

impl Moderation {
    /// Returns the time of the next read if reads are delayed. It is due earlier if the system reports bytes
    /// to read.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.put_off.map(|put_off| put_off.due)
    }

    /// Records a read of `bytes`. `is_waited_for` is true if a client may be waiting for its results.
    pub fn on_read(&mut self, now: Instant, bytes: usize, is_waited_for: bool) -> Change {
        if is_waited_for {
            return self.end(true);
        }
        let Some(put_off) = &mut self.put_off else {
            return self.on_read_at_once(now, bytes);
        };
        let is_quiet = bytes < QUIET_BYTES;
        if bytes >= MUCH_BYTES || is_quiet && put_off.was_quiet {
            return self.end(is_quiet);
        }
        put_off.was_quiet = is_quiet;
        put_off.due = now + PUT_OFF;
        let window = self.window.get_or_insert_with(|| Window::since(now));
        window.add(bytes);
        if window.reads > LOOKED_AT {
            let rate = window.rate(now);
            if rate < put_off.rate / 2 {
                return self.end(true);
            }
            put_off.rate = rate;
            self.needed = READS;
            self.window = Some(Window::since(now));
        }
        Change::None
    }

    fn on_read_at_once(&mut self, now: Instant, bytes: usize) -> Change {
        let window = self.window.get_or_insert_with(|| Window::since(now));
        window.add(bytes);
        if now.duration_since(window.since) > BETWEEN * self.needed {
            self.window = None;
        } else if window.reads >= self.needed {
            let (is_small, rate) = (
                window.bytes < SMALL_BYTES * u64::from(window.reads),
                window.rate(now),
            );
            self.window = None;
            if is_small {
                self.put_off = Some(PutOff {
                    due: now + PUT_OFF,
                    rate,
                    was_quiet: false,
                });
                return Change::On;
            }
        }
        Change::None
    }

    fn end(&mut self, was_wrong: bool) -> Change {
        self.window = None;
        if self.put_off.take().is_none() {
            return Change::None;
        }
        if was_wrong {
            self.needed = (self.needed * 2).min(READS_MAX);
        }
        Change::Off
    }
}

impl Window {
    fn since(now: Instant) -> Self {
        Self {
            since: now,
            reads: 0,
            bytes: 0,
        }
    }

    fn add(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes as u64;
    }

    /// Returns the bytes per second.
    fn rate(&self, now: Instant) -> u64 {
        let us = now.duration_since(self.since).as_micros().max(1);
        u64::try_from(u128::from(self.bytes) * 1_000_000 / us).unwrap_or(u64::MAX)
    }
}

/// Change of the reading mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    None,
    /// Reads are delayed from now on.
    On,
    /// Reads are no longer delayed.
    Off,
}

/// Makes the system wake a reader of `socket` only when [`WAKE_BYTES`] have arrived. If that fails, every
/// byte still wakes it.
pub(crate) fn wake_late(socket: &impl AsFd) {
    set_low_water(socket, WAKE_BYTES);
}

/// Makes the system wake a reader of `socket` for every byte, at once if some are there.
pub(crate) fn wake_early(socket: &impl AsFd) {
    set_low_water(socket, 1);
}

#[expect(unsafe_code, reason = "no safe wrapper has this option")]
fn set_low_water(socket: &impl AsFd, bytes: libc::c_int) {
    const LENGTH: libc::socklen_t = 4;
    const { assert!(size_of::<libc::c_int>() == 4) };
    // SAFETY: the descriptor is open while it is borrowed, and the option's value is an `int` that lives
    // through the call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            LENGTH,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats reads of `bytes`, `apart_us` µs apart, until a change; returns the number of reads and the
    /// change.
    fn until_change(moderation: &mut Moderation, bytes: usize, apart_us: u64) -> Option<(u32, Change)> {
        let mut now = Instant::now();
        for count in 1..=10_000 {
            now += Duration::from_micros(apart_us);
            let change = moderation.on_read(now, bytes, false);
            if change != Change::None {
                return Some((count, change));
            }
        }
        None
    }

    fn put_off() -> Moderation {
        let mut moderation = Moderation::default();
        assert_eq!(until_change(&mut moderation, 140, 50), Some((READS, Change::On)));
        moderation
    }

    #[test]
    fn many_small_reads_in_a_short_time_are_put_off() {
        let mut moderation = put_off();
        let now = Instant::now();
        assert_eq!(moderation.on_read(now, 3000, false), Change::None);
        assert_eq!(moderation.due(), Some(now + PUT_OFF));
        assert_eq!(
            until_change(&mut moderation, 3000, 700),
            None,
            "as much as before"
        );
    }

    #[test]
    fn what_is_slow_or_large_is_read_when_it_comes() {
        assert_eq!(
            until_change(&mut Moderation::default(), 140, 500),
            None,
            "2,000 a second"
        );
        assert_eq!(
            until_change(&mut Moderation::default(), 60_000, 50),
            None,
            "large reads"
        );
    }

    #[test]
    fn whom_somebody_waits_for_is_read_when_it_writes() {
        let mut moderation = put_off();
        assert_eq!(moderation.on_read(Instant::now(), 3000, true), Change::Off);
        assert_eq!(moderation.due(), None);
        let now = Instant::now();
        assert!((0..100).all(|_| moderation.on_read(now, 140, true) == Change::None));
    }

    #[test]
    fn a_peer_that_becomes_quiet_or_writes_very_much_is_read_when_it_writes() {
        for (bytes, reads) in [(0, 2), (140, 2), (1 << 20, 1)] {
            assert_eq!(
                until_change(&mut put_off(), bytes, 1000),
                Some((reads, Change::Off)),
                "{bytes}"
            );
        }
    }

    #[test]
    fn a_peer_that_sends_less_for_being_read_later_is_left_alone_longer_each_time() {
        let mut moderation = put_off();
        // 2.8 MB/s before, 1.2 MB/s now: the peer waits for answers.
        let mut now = Instant::now();
        let mut change = Change::None;
        for _ in 0..=LOOKED_AT {
            now += PUT_OFF;
            change = moderation.on_read(now, 1200, false);
        }
        assert_eq!(change, Change::Off);
        assert_eq!(
            until_change(&mut moderation, 140, 50),
            Some((2 * READS, Change::On))
        );
        for more in 2..20 {
            assert_eq!(until_change(&mut moderation, 140, 1000), Some((2, Change::Off)));
            let needed = (READS << more).min(READS_MAX);
            assert_eq!(until_change(&mut moderation, 140, 50), Some((needed, Change::On)));
        }
        assert_eq!(until_change(&mut moderation, 3000, 700), None);
        assert_eq!(moderation.needed, READS, "it was worth it");
    }

    #[tokio::test]
    async fn the_system_wakes_late_and_early_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let mut peer = connecting.await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let mut into = [0; 8];
        assert!(socket.try_read(&mut into).is_err(), "nothing is there");
        wake_late(&socket);
        tokio::io::AsyncWriteExt::write_all(&mut peer, b"hello")
            .await
            .unwrap();
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(&socket, &mut into[..], flags).is_err() {
            tokio::task::yield_now().await;
        }
        // The runtime could have been notified by now, and was not.
        tokio::task::yield_now().await;
        assert!(socket.try_read(&mut into).is_err());
        wake_early(&socket);
        socket.readable().await.unwrap();
        assert_eq!(socket.try_read(&mut into).unwrap(), 5);
    }
}
