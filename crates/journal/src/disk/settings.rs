//! Settings of a journal on local disk.

use std::sync::Arc;

use super::rewrite::{CompactionSettings, RewritePolicy};

/// Source of the time, in milliseconds since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

/// Settings of a journal on local disk.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a segment: 64 KiB to 1 GiB. Bounds the size of a batch.
    pub segment_bytes: u32,
    /// Bytes of recent write groups kept in memory for readers.
    pub tail_cache_bytes: usize,
    /// Bytes written between two checkpoints: roughly the amount replayed after a crash.
    pub checkpoint_bytes: u64,
    /// Spare segments reserved for state, deletions and rewriting, so that space can always be freed.
    pub kept_back_segments: usize,
    /// Free disk space below which no spare is made, and ordinary appends are refused.
    pub disk_free_bytes_min: u64,
    pub rewrite: RewritePolicy,
    pub compaction: CompactionSettings,
    /// Bytes per second that rewriting may write.
    pub rewrite_bytes_per_second: u64,
    /// Id of the machine's boot: after another boot, unsynced data may be lost.
    pub boot: [u8; 16],
    pub clock: Clock,
    /// False if [`super::DiskJournal::pump`] does the work of the threads, as in tests.
    pub threads: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            tail_cache_bytes: 32 << 20,
            checkpoint_bytes: 128 << 20,
            kept_back_segments: 2,
            disk_free_bytes_min: 256 << 20,
            rewrite: RewritePolicy::default(),
            compaction: CompactionSettings::default(),
            rewrite_bytes_per_second: 96 << 20,
            boot: this_boot(),
            clock: Clock::system(),
            threads: true,
        }
    }
}

impl Clock {
    pub fn new(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// Returns the system's clock.
    pub fn system() -> Self {
        Self::new(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
        })
    }

    pub fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Reads Linux's random id of the current boot; if there is none, every start counts as a new boot.
fn this_boot() -> [u8; 16] {
    let mut id = [0; 16];
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => {
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
                *byte = std::str::from_utf8(pair)
                    .ok()
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                    .unwrap_or(0);
            }
        }
        Err(_) => id = random_u64().to_le_bytes().repeat(2).try_into().unwrap_or(id),
    }
    id
}

/// Returns a random number, different at each start of the program.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
