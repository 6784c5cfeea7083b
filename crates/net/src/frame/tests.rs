//! Reading frames from streams that behave well and badly. Time is paused: nothing here waits for real.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::arrival::WINDOW;
use crate::budget::{BudgetSettings, ByteBudget};
use crate::metrics::ListenerMetrics;
use crate::registry::ConnectionEntry;

const MIB: usize = 1024 * 1024;

struct Peer {
    reader: FrameReader,
    near: DuplexStream,
    far: DuplexStream,
    budget: Arc<ByteBudget>,
    drain: CancellationToken,
    metrics: Arc<ListenerMetrics>,
}

fn peer(limits: FrameLimits) -> Peer {
    let (near, far) = duplex(4 * MIB);
    let budget = ByteBudget::new(BudgetSettings { bytes: 4 * MIB });
    let drain = CancellationToken::new();
    let metrics = Arc::<ListenerMetrics>::default();
    let entry = ConnectionEntry::of(1, Arc::clone(&metrics));
    let reader = FrameReader::new(limits, Arc::clone(&budget), entry, drain.clone());
    Peer {
        reader,
        near,
        far,
        budget,
        drain,
        metrics,
    }
}

fn encoded<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> BytesMut {
    let mut bytes = BytesMut::new();
    for payload in payloads {
        bytes.put_i32(i32::try_from(payload.len()).unwrap());
        bytes.put(payload);
    }
    bytes
}

impl Peer {
    async fn next(&mut self) -> Result<(Status, Vec<Frame>), FrameError> {
        let mut frames = Vec::new();
        let status = self.reader.next_frames(&mut self.near, &mut frames).await?;
        Ok((status, frames))
    }

    /// Creates another connection with the same budget.
    fn another(&self) -> Self {
        let (near, far) = duplex(4 * MIB);
        let (budget, metrics) = (Arc::clone(&self.budget), Arc::clone(&self.metrics));
        let entry = ConnectionEntry::of(2, Arc::clone(&metrics));
        let drain = self.drain.clone();
        Self {
            reader: FrameReader::new(FrameLimits::default(), Arc::clone(&budget), entry, drain.clone()),
            near,
            far,
            budget,
            drain,
            metrics,
        }
    }

    /// Sends the length of a frame and no more.
    async fn announce(&mut self, size: usize) {
        let length = i32::try_from(size).unwrap().to_be_bytes();
        self.far.write_all(&length).await.unwrap();
        self.nothing_yet().await;
    }

    /// Receives one frame; returns its size, and its memory to the budget.
    async fn whole(&mut self) -> usize {
        let (_, frames) = self.next().await.unwrap();
        frames[0].payload.len()
    }

    /// Polls once for frames and expects to wait.
    async fn nothing_yet(&mut self) {
        let mut frames = Vec::new();
        let mut next = Box::pin(self.reader.next_frames(&mut self.near, &mut frames));
        let pending =
            std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
    }
}

#[tokio::test(start_paused = true)]
async fn pipelined_frames_come_together_from_one_read() {
    let mut peer = peer(FrameLimits::default());
    peer.far
        .write_all(&encoded([&b"one"[..], b"two", b"three"]))
        .await
        .unwrap();
    let (status, frames) = peer.next().await.unwrap();
    assert_eq!(status, Status::Frames);
    assert_eq!(
        frames.iter().map(|frame| &frame.payload[..]).collect::<Vec<_>>(),
        [&b"one"[..], b"two", b"three"]
    );
    assert_eq!(
        peer.budget.in_use(),
        3 + 3 + 5 + 3 * HEADER_BYTES,
        "no more than was received is charged"
    );
    assert_eq!(peer.metrics.received_bytes.get(), 23);
    drop(frames);
    assert_eq!(peer.budget.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn frames_of_all_sizes_come_whole_whatever_the_pieces() {
    for piece in [1, 3, 1000, 70_000, 3_000_000] {
        let mut peer = peer(FrameLimits::default());
        let sizes = [1, 2, 60_000, 5, 65_532, 65_533, 70_000, 1, 500_000, 16_384, 300];
        let sizes: &[usize] = if piece == 1 { &sizes[..3] } else { &sizes };
        let sent: Vec<Vec<u8>> = sizes
            .iter()
            .map(|size| (0..*size).map(|at| u8::try_from(at % 251).unwrap()).collect())
            .collect();
        let bytes = encoded(sent.iter().map(Vec::as_slice));
        let mut received = Vec::new();
        let mut pieces = bytes.chunks(piece);
        while received.len() < sent.len() {
            match pieces.next() {
                Some(piece) => peer.far.write_all(piece).await.unwrap(),
                None => peer.far.shutdown().await.unwrap(),
            }
            let mut frames = Vec::new();
            let mut next = Box::pin(peer.reader.next_frames(&mut peer.near, &mut frames));
            // One poll returns all that is there: dropping it here must not lose anything.
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx))).await;
            drop(next);
            if let std::task::Poll::Ready(result) = polled {
                assert_eq!(result.unwrap(), Status::Frames);
            }
            received.extend(frames.into_iter().map(|frame| frame.payload));
        }
        assert!(sent.iter().eq(received.iter()), "in pieces of {piece}");
        assert_eq!(peer.budget.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn lying_lengths_are_refused_by_name_after_the_frames_before_them() {
    for given in [-1, i32::MIN, i32::MAX, 0, 1001] {
        let mut peer = peer(FrameLimits {
            frame_bytes_max: 1000,
            ..FrameLimits::default()
        });
        let mut bytes = encoded([&b"good"[..]]);
        bytes.put_i32(given);
        bytes.put(&b"rest"[..]);
        peer.far.write_all(&bytes).await.unwrap();
        let (status, frames) = peer.next().await.unwrap();
        assert_eq!((status, frames.len()), (Status::Frames, 1));
        let error = peer.next().await.unwrap_err();
        assert!(matches!(error, FrameError::Length { given: said, min: 1, max: 1000 } if said == given));
        assert_eq!(peer.metrics.errors("frame_length"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_holds_for_the_next_frame() {
    let mut peer = peer(FrameLimits {
        frame_bytes_max: 10,
        ..FrameLimits::default()
    });
    peer.reader.set_frame_bytes_max(20);
    peer.far.write_all(&encoded([&[7; 20][..]])).await.unwrap();
    assert_eq!(peer.next().await.unwrap().1.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_frames_come_at_once_and_none_is_lost() {
    let mut peer = peer(FrameLimits {
        frames_max: 10,
        ..FrameLimits::default()
    });
    peer.far
        .write_all(&encoded(std::iter::repeat_n(&b"x"[..], 25)))
        .await
        .unwrap();
    for expected in [10, 10, 5] {
        assert_eq!(peer.next().await.unwrap().1.len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_owns_none_of_the_budget_and_is_closed_in_time() {
    let mut peer = peer(FrameLimits::default());
    peer.nothing_yet().await;
    assert_eq!(peer.budget.in_use(), 0);
    let start = Instant::now();
    assert!(matches!(peer.next().await.unwrap_err(), FrameError::Idle { .. }));
    assert!(start.elapsed() >= Duration::from_mins(10));
}

#[tokio::test(start_paused = true)]
async fn one_byte_a_second_is_cut_off_though_it_never_stops() {
    let mut peer = peer(FrameLimits::default());
    let far = &mut peer.far;
    let sender = async {
        far.write_all(&1000_i32.to_be_bytes()).await.unwrap();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            far.write_all(b"x").await.unwrap();
        }
    };
    let start = Instant::now();
    let mut frames = Vec::new();
    tokio::select! {
        result = peer.reader.next_frames(&mut peer.near, &mut frames) => {
            let error = result.unwrap_err();
            assert!(matches!(error, FrameError::Slow { received: 20..40, expected: 1004, .. }), "{error}");
        }
        () = sender => {}
    }
    assert!(start.elapsed() < Duration::from_secs(32));
    assert_eq!(peer.metrics.errors("frame_slow"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_half_sent_length_is_cut_off_like_a_half_sent_frame() {
    let mut peer = peer(FrameLimits::default());
    peer.far.write_all(&[0, 0]).await.unwrap();
    let start = Instant::now();
    assert!(matches!(
        peer.next().await.unwrap_err(),
        FrameError::Slow { received: 2, .. }
    ));
    assert!(start.elapsed() < Duration::from_secs(32));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_is_clean_only_between_frames() {
    let mut clean = peer(FrameLimits::default());
    clean.far.write_all(&encoded([&b"x"[..]])).await.unwrap();
    clean.far.shutdown().await.unwrap();
    assert_eq!(clean.next().await.unwrap().0, Status::Frames);
    assert_eq!(clean.next().await.unwrap().0, Status::Closed);

    let mut torn = peer(FrameLimits::default());
    torn.far.write_all(&encoded([&b"xyz"[..]])[..5]).await.unwrap();
    torn.far.shutdown().await.unwrap();
    let error = torn.next().await.unwrap_err();
    assert!(
        matches!(
            error,
            FrameError::Truncated {
                received: 5,
                expected: 7
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_takes_its_bytes_before_its_payload_is_read() {
    let mut peer = peer(FrameLimits::default());
    peer.announce(MIB / 2).await;
    assert_eq!(peer.budget.in_use(), MIB / 2 + HEADER_BYTES);
    drop(peer.reader);
    assert_eq!(
        peer.budget.in_use(),
        0,
        "an aborted connection gives its bytes back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_beyond_the_whole_budget_fails_rather_than_hangs() {
    let mut peer = peer(FrameLimits::default());
    peer.far
        .write_all(&i32::try_from(50 * MIB).unwrap().to_be_bytes())
        .await
        .unwrap();
    assert!(matches!(peer.next().await.unwrap_err(), FrameError::Budget(_)));
}

#[tokio::test(start_paused = true)]
async fn a_large_frame_takes_its_bytes_in_steps_as_they_arrive() {
    let mut peer = peer(FrameLimits::default());
    let size = 5 * MIB / 2;
    peer.announce(size).await;
    assert_eq!(peer.budget.in_use(), MIB);
    peer.far.write_all(&vec![1; MIB]).await.unwrap();
    peer.nothing_yet().await;
    assert_eq!(peer.budget.in_use(), 2 * MIB);
    peer.far.write_all(&vec![2; size - MIB]).await.unwrap();
    let (_, frames) = peer.next().await.unwrap();
    assert_eq!(frames[0].payload.len(), size);
    assert!(frames[0].payload[..MIB].iter().all(|byte| *byte == 1));
    assert!(frames[0].payload[MIB..].iter().all(|byte| *byte == 2));
    assert_eq!(peer.budget.in_use(), size + HEADER_BYTES);
    drop(frames);
    assert_eq!(peer.budget.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn half_arrived_frames_that_fill_the_pool_are_completed_one_after_the_other() {
    let mut first = peer(FrameLimits::default());
    let mut others = [first.another(), first.another()];
    let size = 5 * MIB / 2;
    for peer in [&mut first].into_iter().chain(&mut others) {
        peer.announce(size).await;
    }
    assert_eq!(
        first.budget.in_use(),
        2 * MIB + size + HEADER_BYTES,
        "the pool is full, and the third goes beyond it"
    );
    for peer in [&mut first].into_iter().chain(&mut others) {
        peer.far.write_all(&vec![1; size]).await.unwrap();
    }
    let [second, third] = &mut others;
    let (one, two, three) = tokio::join!(first.whole(), second.whole(), third.whole());
    assert_eq!([one, two, three], [size; 3]);
    assert_eq!(first.budget.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_half_sent_frame_gives_way_to_another_that_waits() {
    for drip in [None, Some(Duration::from_millis(100))] {
        let mut silent = peer(FrameLimits::default());
        silent.announce(900_000).await;
        let mut other = silent.another();
        other
            .far
            .write_all(&encoded([&vec![7; 900_000][..]]))
            .await
            .unwrap();
        let start = Instant::now();
        let Peer {
            mut reader,
            mut near,
            mut far,
            ..
        } = silent;
        let dripping = async {
            while let Some(pause) = drip {
                tokio::time::sleep(pause).await;
                far.write_all(b"x").await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let error = async move {
            let mut frames = Vec::new();
            // The reader ends with the connection.
            let error = reader.next_frames(&mut near, &mut frames).await.unwrap_err();
            drop((reader, near));
            error
        };
        let ended = async {
            tokio::select! {
                error = error => error,
                () = dripping => unreachable!("it drips for ever"),
            }
        };
        let comes = other.whole();
        let (error, size) = tokio::join!(ended, comes);
        assert_eq!(size, 900_000);
        assert!(
            matches!(
                error,
                FrameError::GaveWay {
                    expected: 900_004,
                    ..
                }
            ),
            "{error}"
        );
        assert!(start.elapsed() <= 2 * WINDOW, "{:?}", start.elapsed());
        assert_eq!(other.metrics.errors("gave_way"), 1);
        assert_eq!(other.budget.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_frame_that_makes_progress_does_not_give_way() {
    let mut slow = peer(FrameLimits::default());
    slow.announce(900_000).await;
    let mut other = slow.another();
    other
        .far
        .write_all(&encoded([&vec![7; 900_000][..]]))
        .await
        .unwrap();
    let Peer {
        reader, near, far, ..
    } = &mut slow;
    let mut frames = Vec::new();
    let sending = async {
        for piece in vec![1; 900_000].chunks(75_000) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            far.write_all(piece).await.unwrap();
        }
    };
    let receiving = async {
        reader.next_frames(near, &mut frames).await.unwrap();
        frames.clear();
    };
    let ((), (), size) = tokio::join!(sending, receiving, other.whole());
    assert_eq!(size, 900_000);
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_nobody_reads_is_no_fault_of_the_sender() {
    let mut slow = peer(FrameLimits::default());
    slow.announce(900_000).await;
    let mut other = slow.another();
    other
        .far
        .write_all(&encoded([&vec![7; 900_000][..]]))
        .await
        .unwrap();
    let rest = async {
        // The reader is busy with earlier frames.
        tokio::time::sleep(5 * WINDOW).await;
        let mut frames = Vec::new();
        let Peer {
            reader, near, far, ..
        } = &mut slow;
        let sending = async {
            tokio::time::sleep(WINDOW / 2).await;
            far.write_all(&vec![1; 900_000]).await.unwrap();
        };
        let (received, ()) = tokio::join!(reader.next_frames(near, &mut frames), sending);
        assert_eq!(received.unwrap(), Status::Frames);
    };
    let ((), size) = tokio::join!(rest, other.whole());
    assert_eq!(size, 900_000);
}

#[tokio::test(start_paused = true)]
async fn without_budget_nothing_is_read_and_small_frames_pass_large_ones() {
    let mut peer = peer(FrameLimits::default());
    let all = peer.budget.reserve(MIB).await.unwrap();
    peer.far
        .write_all(&encoded([&vec![1; 100_000][..]]))
        .await
        .unwrap();
    peer.nothing_yet().await;
    assert!(
        peer.metrics.received_bytes.get() <= 64 * 1024,
        "the rest stays in the socket"
    );

    let (mut near, mut far) = duplex(1000);
    let mut other = FrameReader::new(
        FrameLimits::default(),
        Arc::clone(&peer.budget),
        ConnectionEntry::of(2, Arc::clone(&peer.metrics)),
        CancellationToken::new(),
    );
    far.write_all(&encoded([&b"small"[..]])).await.unwrap();
    let mut frames = Vec::new();
    assert_eq!(
        other.next_frames(&mut near, &mut frames).await.unwrap(),
        Status::Frames
    );

    drop(all);
    assert_eq!(peer.next().await.unwrap().1[0].payload.len(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_sender_is_not_blamed_for_the_time_that_it_waits_for_budget() {
    let mut peer = peer(FrameLimits::default());
    let all = peer.budget.reserve(MIB).await.unwrap();
    peer.far
        .write_all(&encoded([&vec![1; 100_000][..]]))
        .await
        .unwrap();
    let release = async move {
        tokio::time::sleep(Duration::from_mins(3)).await;
        drop(all);
    };
    let mut frames = Vec::new();
    let (result, ()) = tokio::join!(peer.reader.next_frames(&mut peer.near, &mut frames), release);
    assert_eq!(result.unwrap(), Status::Frames);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_the_wait_for_a_frame() {
    let mut peer = peer(FrameLimits::default());
    peer.nothing_yet().await;
    peer.drain.cancel();
    assert_eq!(peer.next().await.unwrap().0, Status::Draining);
}

/// Parses a stream naively: its frames, and the kind of error that ends it.
fn naive(mut bytes: &[u8], max: u32) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let Some((length, rest)) = bytes.split_first_chunk() else {
            return (frames, Some("frame_truncated"));
        };
        let Some(length) = u32::try_from(i32::from_be_bytes(*length))
            .ok()
            .filter(|n| (1..=max).contains(n))
        else {
            return (frames, Some("frame_length"));
        };
        let Some((payload, rest)) = rest.split_at_checked(length as usize) else {
            return (frames, Some("frame_truncated"));
        };
        frames.push(payload.to_vec());
        bytes = rest;
    }
    (frames, None)
}

/// Frames, and now and then other bytes.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop_oneof![4 => 1..100_usize, 1 => 1..100_000_usize]
        .prop_map(|size| encoded([&vec![size.to_le_bytes()[0]; size][..]]).to_vec());
    let piece = prop_oneof![20 => whole, 1 => prop::collection::vec(any::<u8>(), 0..10)];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_stream_in_any_pieces_means_what_a_naive_reading_says(
        stream in streams(),
        sizes in prop::collection::vec(1..50_000_usize, 1..20),
    ) {
        let limits = FrameLimits { frame_bytes_max: 90_000, frames_max: 7, ..FrameLimits::default() };
        let (expected, ending) = naive(&stream, limits.frame_bytes_max);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let Peer { mut reader, mut near, mut far, budget, .. } = peer(limits);
            let send = async {
                let mut rest = &stream[..];
                for size in sizes.iter().cycle() {
                    let (piece, after) = rest.split_at((*size).min(rest.len()));
                    far.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = after;
                    if rest.is_empty() {
                        break;
                    }
                }
                far.shutdown().await.unwrap();
            };
            let receive = async {
                let (mut received, mut frames) = (Vec::new(), Vec::new());
                let end = loop {
                    match reader.next_frames(&mut near, &mut frames).await {
                        Ok(Status::Frames) => assert!((1..=7).contains(&frames.len())),
                        Ok(_) => break None,
                        Err(error) => break Some(error.kind()),
                    }
                    received.extend(frames.drain(..).map(|frame| frame.payload.to_vec()));
                };
                (received, end)
            };
            let ((), (received, end)) = tokio::join!(send, receive);
            drop(reader);
            assert_eq!(budget.in_use(), 0);
            assert!(received == expected);
            assert_eq!(end, ending);
        });
    }
}
