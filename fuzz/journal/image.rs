//! Stopped journals, with a record of everything that was ever stored in them, and ways to damage their
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stafett_journal::disk::fuzzing::{SEGMENT_HEADER_BYTES, seal_segment, seal_sidecar};
use stafett_journal::disk::settings::Clock;
use stafett_journal::disk::{CompactionSettings, DiskJournal, RewritePolicy, Settings};
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{
    Append, BatchFrame, Change, Frame, Journal, LogSpec, Metrics, Outcome, OwnerEpoch, RequestId, Selection,
    StateChange, StateSpace, StateWait, Target,
};
use stafett_model::{BatchBuilder, Codec, Durability, LogId, ProducerId, Record};

use crate::reading::read_at;

/// The space whose values count up, so that one that is too old gives itself away.
pub const COUNTERS: StateSpace = StateSpace(3);

/// How a journal was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Closed,
    PowerLost,
    /// Killed while some of a body's chunks were written, and not all.
    BetweenChunks,
}

/// A stopped journal.
pub struct Image {
    disk: SimulatedDisk,
    /// Every batch that a log ever held, by its base offset, as a reader gets it.
    pub written: BTreeMap<LogId, BTreeMap<u64, Bytes>>,
    /// Logs whose deletion is in the checkpoint.
    pub deleted: Vec<LogId>,
    /// Each counter's value in the checkpoint, and the latest.
    pub counters: BTreeMap<Bytes, (u64, u64)>,
    /// The files that may be damaged, each with the bytes at which something starts or ends.
    files: Vec<(String, Vec<u32>)>,
}

/// Small segments, nothing done behind one's back.
pub fn settings() -> Settings {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    Settings {
        compaction: CompactionSettings::default(),
        segment_bytes: 64 << 10,
        tail_cache_bytes: 16 << 10,
        checkpoint_bytes: 1 << 40,
        kept_back_segments: 0,
        disk_free_bytes_min: 0,
        rewrite: RewritePolicy {
            young: Duration::ZERO,
            merge_bytes: 100 << 10,
            dead_bytes_tolerated: 0,
            ..RewritePolicy::default()
        },
        rewrite_bytes_per_second: u64::MAX,
        boot: [1; 16],
        clock: Clock::new(|| NOW.fetch_add(1, Ordering::Relaxed)),
        threads: false,
    }
}

impl Image {
    /// How many there are.
    pub const COUNT: u8 = 5;

    /// One of the images.
    pub fn choose(choice: u8) -> &'static Self {
        static IMAGES: LazyLock<Vec<Image>> = LazyLock::new(Image::all);
        &IMAGES[usize::from((choice & 0x7f) % Self::COUNT)]
    }

    fn all() -> Vec<Self> {
        let mut images = Vec::new();
        for (rounds, rewritten, end) in [
            (12, false, End::Killed),
            (30, true, End::Killed),
            (12, true, End::Closed),
            (30, true, End::PowerLost),
            (6, false, End::BetweenChunks),
        ] {
            let mut author = Author::new();
            author.write(rounds / 2);
            author.checkpoint();
            if rewritten {
                author.write(rounds);
                author.checkpoint();
                author.journal.rewrite();
                author.write(2);
                author.checkpoint();
            }
            author.write(rounds / 2);
            match end {
                End::Killed | End::PowerLost => {}
                End::Closed => author.journal.close(),
                End::BetweenChunks => author.stop_between_chunks(),
            }
            let disk = author.disk.fork();
            if end == End::PowerLost {
                disk.lose_power(7);
            } else {
                disk.kill();
            }
            images.push(author.into_image(disk));
        }
        images
    }

    /// Returns an unused copy of the disk, with this journal on it.
    pub fn disk(&self) -> SimulatedDisk {
        self.disk.fork()
    }

    /// The names of the files that may be damaged.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str())
    }

    /// The same, with its files damaged. Each edit is six bytes: which file, near which of its places, how
    /// far from there, what to do, and two more for that.
    pub fn damaged(&self, edits: &[u8], sealed: bool) -> SimulatedDisk {
        let disk = self.disk.fork();
        let mut touched = BTreeSet::new();
        for edit in edits.chunks_exact(6).take(32) {
            let [file, place, shift, what, one, two] = edit.try_into().expect("chunks of six");
            let (name, places) = &self.files[usize::from(file) % self.files.len()];
            let Some(mut bytes) = disk.contents(name) else {
                continue;
            };
            let near = places[usize::from(place) % places.len()] as usize + usize::from(shift);
            let at = near.min(bytes.len());
            let rest = &mut bytes[at..];
            let count = rest.len().min(usize::from(one) * 8 + 1);
            match what % 8 {
                0 | 1 if !rest.is_empty() => rest[0] ^= one.max(1),
                2 => {
                    let count = rest.len().min(4);
                    let value = u32::from_le_bytes([one, two, one, two]);
                    rest[..count].copy_from_slice(&value.to_le_bytes()[..count]);
                }
                3 => rest[..count].fill(0),
                4 => rest[..count].fill(two),
                5 => {
                    // What belongs elsewhere, as from a write that went astray.
                    let (_, places) = &self.files[usize::from(two) % self.files.len()];
                    let source = disk.contents(&self.files[usize::from(two) % self.files.len()].0);
                    let from = places[usize::from(place) % places.len()] as usize;
                    let source = source
                        .as_deref()
                        .and_then(|bytes| bytes.get(from..))
                        .unwrap_or(&[]);
                    let count = count.min(source.len());
                    rest[..count].copy_from_slice(&source[..count]);
                }
                6 if one < 64 => bytes.truncate(at),
                7 if one < 32 => {
                    let _ = disk.storage().remove(name);
                    continue;
                }
                _ => continue,
            }
            touched.insert(name);
            put(&disk, name, &bytes);
        }
        for name in touched.iter().filter(|_| sealed) {
            let Some(mut bytes) = disk.contents(name) else {
                continue;
            };
            if name.ends_with(".seg") {
                seal_segment(&mut bytes);
            } else {
                seal_sidecar(&mut bytes);
            }
            put(&disk, name, &bytes);
        }
        disk
    }
}

fn put(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    let file = disk.storage().open(name).expect("it is there");
    file.set_bytes(bytes.len() as u64).expect("nothing fails");
    file.write_at(&mut [std::io::IoSlice::new(bytes)], 0)
        .expect("nothing fails");
    file.sync().expect("nothing fails");
}

/// Who writes a journal, and notes what is in it.
struct Author {
    disk: SimulatedDisk,
    journal: DiskJournal,
    logs: Vec<LogId>,
    doomed: LogId,
    round: u64,
    written: BTreeMap<LogId, BTreeMap<u64, Bytes>>,
    deleted: Vec<LogId>,
    counters: BTreeMap<Bytes, (u64, u64)>,
}

impl Author {
    fn new() -> Self {
        let disk = SimulatedDisk::new();
        let journal =
            DiskJournal::open_on(disk.storage(), settings(), Metrics::new()).expect("an empty disk");
        let mut author = Self {
            disk,
            journal,
            logs: Vec::new(),
            doomed: LogId(0),
            round: 0,
            written: BTreeMap::new(),
            deleted: Vec::new(),
            counters: BTreeMap::new(),
        };
        let interval = Durability::Interval {
            records: 10,
            every: Duration::from_millis(5),
        };
        for durability in [
            Durability::Sync,
            Durability::Os,
            Durability::Memory,
            interval,
            Durability::Sync,
        ] {
            let log = author.create(durability);
            author.logs.push(log);
        }
        author
    }

    fn create(&self, durability: Durability) -> LogId {
        let first = self.journal.allocate(1);
        let spec = LogSpec {
            durability,
            ..LogSpec::default()
        };
        self.state([Frame::CreateLogs {
            first,
            count: 1,
            spec,
        }]);
        first
    }

    fn state(&self, frames: impl IntoIterator<Item = Frame>) {
        let ticket = self
            .journal
            .append(vec![Append::state(frames, StateWait::Synced)]);
        self.journal.pump();
        assert!(matches!(ticket.wait().as_slice(), [Outcome::Committed(_)]));
    }

    fn checkpoint(&mut self) {
        self.journal.checkpoint();
        for (covered, latest) in self.counters.values_mut() {
            *covered = *latest;
        }
        if self.doomed != LogId(0) && !self.deleted.contains(&self.doomed) {
            let (first, count) = (self.doomed, 1);
            self.state([Frame::DeleteLogs { first, count }]);
            self.deleted.push(first);
            self.journal.checkpoint();
        }
        self.doomed = self.create(Durability::Sync);
    }

    fn append(&mut self, append: Append) {
        self.append_all(vec![append]);
    }

    /// Appends what is staged together: what is large goes in chunks, between which the others get.
    fn append_all(&mut self, appends: Vec<Append>) {
        let ticket = self.journal.append(appends);
        self.journal.pump();
        let outcomes = ticket.wait().into_iter().flat_map(|outcome| match outcome {
            Outcome::Committed(placed) => placed,
            other => panic!("it was not stored: {other:?}"),
        });
        for placed in outcomes.collect::<Vec<_>>() {
            let batch = read_at(&self.journal, placed.log, placed.base.0)
                .expect("what is stored can be read")
                .remove(0);
            self.written
                .entry(placed.log)
                .or_default()
                .insert(placed.base.0, batch);
        }
    }

    fn write(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.round += 1;
            let round = self.round;
            let mut logs = self.logs.clone();
            if self.doomed != LogId(0) {
                logs.push(self.doomed);
            }
            for (nth, log) in (0..).zip(&logs) {
                let codec = if (round + nth) % 7 == 0 {
                    Codec::Lz4
                } else {
                    Codec::None
                };
                let builder = BatchBuilder::new(codec);
                self.append(Append::batch(
                    *log,
                    fill(builder, 3 + nth, (round * 97 + nth * 331) % 700),
                ));
            }
            let log = logs[0];
            let sequence = i32::try_from(round - 1).expect("few rounds") * 2;
            let numbered = BatchBuilder::new(Codec::None).producer(ProducerId(9), 0, sequence);
            self.append(Append::batch(log, fill(numbered, 2, 40)));
            if round % 3 == 0 {
                let small = self.fan_out(fill(BatchBuilder::new(Codec::None), 5, 60));
                self.append(small);
                self.large(&logs);
            }
            self.count(round);
            if round % 10 == 0 {
                let log = self.logs[4];
                let before = self.journal.bounds(log).expect("it is there").end;
                self.state([Frame::Truncate { log, before }]);
            }
        }
    }

    /// Bodies that are cut, with others between their chunks: one of several logs, one under an id and from
    /// an owner.
    fn large(&mut self, logs: &[LogId]) {
        let body = |records, bytes| fill(BatchBuilder::new(Codec::None), records, bytes);
        let shared = self.fan_out(body(4, 5_000));
        let named = Append {
            request: Some(RequestId([self.round.to_le_bytes()[0]; 16])),
            owner: Some(OwnerEpoch(self.round)),
            ..Append::batch(logs[2], body(1, 17_000))
        };
        let small = |log| Append::batch(log, body(2, 30));
        self.append_all(vec![
            shared,
            small(logs[3]),
            named,
            small(logs[2]),
            small(logs[3]),
        ]);
    }

    /// Stops the disk when a body that is cut has some of its chunks in their places. That body is not
    /// acknowledged.
    fn stop_between_chunks(&mut self) {
        self.disk.set_fault(Some(Fault {
            change: self.disk.changes() + 3,
            effect: Effect::PowerLoss,
        }));
        let large = fill(BatchBuilder::new(Codec::None), 1, 40_000);
        let ticket = self.journal.append(vec![Append::batch(self.logs[1], large)]);
        self.journal.pump();
        assert_eq!(ticket.wait().as_slice(), [Outcome::Unknown]);
    }

    fn fan_out(&self, body: Bytes) -> Append {
        let part = Selection::Range { first: 1, count: 3 };
        let targets = [(0, Selection::All), (1, part), (4, Selection::All)];
        let targets = targets.map(|(nth, records)| Target {
            log: self.logs[nth],
            records,
        });
        let frame = BatchFrame {
            body,
            targets: targets.into_iter().collect(),
        };
        Append {
            pinned_bytes: frame.body.len(),
            frames: [Frame::Batch(frame)].into_iter().collect(),
            ..Append::default()
        }
    }

    fn count(&mut self, round: u64) {
        let key = Bytes::from(format!("counter {}", round % 4));
        let change = Change::Put(Bytes::copy_from_slice(&round.to_le_bytes()));
        self.counters.entry(key.clone()).or_default().1 = round;
        let space = COUNTERS;
        let delta = StateChange {
            space: StateSpace(4),
            key: key.clone(),
            change: Change::Delta(Bytes::copy_from_slice(&round.to_le_bytes())),
        };
        self.state([
            Frame::State(StateChange { space, key, change }),
            Frame::State(delta),
        ]);
    }

    fn into_image(self, disk: SimulatedDisk) -> Image {
        let storage = disk.storage();
        let names = disk.names();
        let files = names
            .into_iter()
            .filter(|name| name.ends_with(".seg") || name.ends_with(".idx"));
        let files = files.map(|name| {
            let file = storage.open(&name).expect("it is there");
            let mut places = vec![0, 8];
            if name.ends_with(".seg") {
                places.extend(stafett_journal::disk::fuzzing::places(&*file).expect("it can be read"));
                places.push(SEGMENT_HEADER_BYTES as u32);
            } else {
                let bytes = u32::try_from(file.bytes().expect("it is there")).expect("it is small");
                places.extend((0..bytes).step_by(1024));
            }
            (name, places)
        });
        let files = files.collect();
        Image {
            disk,
            files,
            written: self.written,
            deleted: self.deleted,
            counters: self.counters,
        }
    }
}

/// Returns a batch of `records` records of `bytes` bytes each.
fn fill(mut builder: BatchBuilder, records: u64, bytes: u64) -> Bytes {
    for nth in 0..records {
        let value: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + nth) as u8).collect();
        let record = Record {
            key: None,
            value: Some(&value),
            headers: &[],
            timestamp: 1_000 + i64::try_from(bytes).expect("few bytes"),
        };
        builder.push(&record).expect("a sound record");
    }
    builder.finish().expect("a sound batch")
}
