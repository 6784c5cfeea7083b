//! Objects on their way: puts that are repeated under other names, gets that are checked, several at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use stafett_model::Lock;

use crate::database::{ChangedFile, DatabaseError, Publication};
use crate::file::{SharedFile, Whole};
use crate::objects::{Name, OBJECT_BYTES_MAX, Objects, ObjectsError, Part};
use crate::uplink::Uplink;

/// Interval between looks for a failure while a put is under way.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const A_MOMENT: Duration = Duration::from_millis(1);
/// Puts at a time of the same bytes.
const PUTS_MAX: usize = 2;
/// Pauses for which a store that refuses a put is asked again: keys may be about to change.
const REFUSED_PAUSES: u32 = 600;
/// Reads of one object with other bytes than were put, or that the store refuses, before that is an error.
const ATTEMPTS: usize = 5;

/// Does something for each item, up to `width` at a time; the first error ends it.
pub(crate) fn at_once<T: Sync>(
    width: usize,
    items: &[T],
    each: impl Fn(&T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    if let [item] = items {
        return each(item);
    }
    let next = AtomicUsize::new(0);
    let failure = Lock::new(None);
    let work = || {
        while failure.lock().is_none()
            && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = each(item) {
                failure.lock().get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 1..items.len().min(width) {
            // With fewer threads it takes longer.
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        work();
        for thread in threads {
            if thread.join().is_err() {
                failure
                    .lock()
                    .get_or_insert_with(|| io::Error::other("a thread panicked"));
            }
        }
    });
    let failure = failure.lock().take();
    failure.map_or(Ok(()), Err)
}

/// A put that has ended.
struct Ended {
    name: Name,
    result: Result<(), ObjectsError>,
    took: Duration,
}

/// Times of the last puts.
#[derive(Debug, Default)]
pub(crate) struct PutTimes {
    mean: Duration,
}

impl PutTimes {
    fn note(&mut self, took: Duration) {
        self.mean = (self.mean * 15 + took) / 16;
    }

    fn mean(&self) -> Duration {
        self.mean
    }
}

impl Uplink {
    fn store(&self) -> io::Result<&dyn Objects> {
        let none = || io::Error::other("there are objects, and cluster.objects is not set");
        self.settings.objects.as_deref().ok_or_else(none)
    }

    /// Puts bytes of a file that begin at `at`. The name is held until the database refers to the object. One
    /// that takes long has another beside it, and the first that is there counts.
    pub(crate) fn put(&self, at: u64, body: Vec<u8>) -> io::Result<(Name, Part)> {
        let metrics = &self.settings.metrics;
        let body = Arc::new(body);
        let (sender, puts) = sync_channel(PUTS_MAX);
        let mut under_way = 0;
        let mut is_logged = false;
        let mut waited = Duration::ZERO;
        let began = Instant::now();
        let patience_with_refusals = self.settings.pause * REFUSED_PAUSES;
        loop {
            self.check()?;
            if under_way == 0 || under_way < PUTS_MAX && waited >= self.slow_after() {
                if under_way > 0 {
                    metrics.hedged_puts.inc();
                }
                self.begin_put(&body, &sender)?;
                under_way += 1;
                waited = Duration::ZERO;
            }
            let patience = LOOK_INTERVAL.min(self.slow_after().max(A_MOMENT));
            let Ok(Ended { name, result, took }) = puts.recv_timeout(patience) else {
                waited = waited.saturating_add(patience);
                continue;
            };
            under_way -= 1;
            metrics.put_seconds.observe(took.as_secs_f64());
            match result {
                Ok(()) => {
                    metrics.puts.inc();
                    self.put_times.lock().note(took);
                    let part = Part::of(at, name.to_string(), &body);
                    return Ok((name, part));
                }
                Err(error @ ObjectsError::Refused(_)) if began.elapsed() >= patience_with_refusals => {
                    return Err(self.fail(error.to_string()));
                }
                Err(error) => {
                    metrics.failed_puts.inc();
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(%error, "putting it under another name");
                    }
                }
            }
            drop(name);
            if under_way == 0 {
                self.wait_a_moment();
            }
        }
    }

    /// Begins a put in a thread of its own, which holds the name until there is an answer.
    fn begin_put(&self, body: &Arc<Vec<u8>>, sender: &SyncSender<Ended>) -> io::Result<()> {
        self.store()?;
        let Some(store) = self.settings.objects.clone() else {
            return Ok(());
        };
        let (body, sender, name) = (Arc::clone(body), sender.clone(), self.names.take());
        let put = move || {
            let began = Instant::now();
            let put = || store.put(&name.to_string(), &body);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(put));
            let panicked = |_| Err(ObjectsError::Refused("the put panicked".to_owned()));
            let result = result.unwrap_or_else(panicked);
            // The other one may have been first.
            let _ = sender.send(Ended {
                name,
                result,
                took: began.elapsed(),
            });
        };
        let thread = std::thread::Builder::new().name("cluster-put".into()).spawn(put);
        thread.map(drop)
    }

    /// Returns the time after which a put is slow.
    fn slow_after(&self) -> Duration {
        self.settings.slow_put_after.max(self.put_times.lock().mean() * 3)
    }

    /// Gets an object, and compares it with its checksum. Cut and changed bodies are read again. A refusal
    /// of the store is an error of this read alone.
    pub(crate) fn get(&self, file: &str, part: &Part) -> io::Result<Vec<u8>> {
        let store = self.store()?;
        let metrics = &self.settings.metrics;
        let mut wrong = "missing".to_owned();
        for _ in 0..ATTEMPTS {
            let began = Instant::now();
            let got = self.until_answered(|| match store.get(&part.object) {
                Err(error @ ObjectsError::Refused(_)) => Ok(Err(error)),
                got => got.map(Ok).map_err(DatabaseError::from),
            })?;
            metrics.gets.inc();
            metrics.get_seconds.observe(began.elapsed().as_secs_f64());
            match got {
                Ok(Some(body)) if part.is_of(&body) => {
                    self.on_read(part);
                    return Ok(body);
                }
                Ok(Some(_)) => "damaged".clone_into(&mut wrong),
                Ok(None) => "missing".clone_into(&mut wrong),
                Err(error) => wrong = format!("not read: {error}"),
            }
            self.wait_a_moment();
        }
        Err(self.on_lost(file, part, &wrong))
    }

    /// Has copies of parts in the cache, as far as that has space. Lost ones are left out.
    pub(crate) fn fetch(&self, file: &str, parts: &[Part]) -> io::Result<()> {
        let missing: Vec<&Part> = parts
            .iter()
            .filter(|part| !self.cache.has(&part.object) && !self.lost.has(&part.object))
            .collect();
        at_once(self.settings.requests_max, &missing, |part| {
            let body = self.get(file, part)?;
            self.cache.add(part, &body);
            Ok(())
        })
    }

    /// Puts a file, and publishes it as its parts. The caller has the turn.
    pub(crate) fn publish_parts(&self, file: &Arc<SharedFile>, whole: &Whole) -> io::Result<()> {
        let step = OBJECT_BYTES_MAX as u64;
        let places: Vec<u64> = (0..whole.bytes.div_ceil(step))
            .map(|number| number * step)
            .collect();
        let put = Lock::new(Vec::new());
        at_once(self.settings.requests_max, &places, |at| {
            let bytes = usize::try_from(step.min(whole.bytes - at)).unwrap_or(OBJECT_BYTES_MAX);
            let mut body = vec![0; bytes];
            if whole.local.read_at(&mut body, *at)? < bytes {
                let why = format!("the local copy of {} is too short", whole.name);
                return Err(self.fail(why));
            }
            let done = self.put(*at, body)?;
            put.lock().push(done);
            Ok(())
        })?;
        // Names are held until the database refers to them.
        let (names, mut parts): (Vec<Name>, Vec<Part>) = put.into_inner().into_iter().unzip();
        parts.sort_by_key(|part| part.at);
        self.send(&Publication {
            removed: Vec::new(),
            changed: vec![ChangedFile {
                name: whole.name.clone(),
                bytes: whole.bytes,
                is_new: true,
                blocks: Vec::new(),
                parts: Some(parts.clone()),
            }],
        })?;
        drop(names);
        file.on_stored(whole.bytes, parts);
        self.cache.add_file(file, whole.bytes);
        Ok(())
    }
}
