//! Limits of the operating system.

use std::num::NonZero;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for files of the journal, the runtime and listeners.
const DESCRIPTORS_RESERVED: u64 = 512;

/// Raises the limit of open descriptors as far as this user may, and returns it.
pub(crate) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open descriptors stays as it is");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Bounds the heaps of the allocator by the processors. By default it has eight for each, among which memory
/// that comes and goes is spread, with holes: ten million keys of an app took 252 MB instead of 182.
#[expect(unsafe_code, reason = "no safe wrapper has this option")]
pub(crate) fn bound_heaps() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let heaps = libc::c_int::try_from(processors).unwrap_or(libc::c_int::MAX);
        // SAFETY: the call takes numbers alone, and changes a limit of the allocator under its own lock.
        let is_bound = unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps.max(2)) };
        if is_bound == 0 {
            tracing::debug!("the allocator has as many heaps as it likes");
        }
    }
}

/// Returns how many of the `wanted` connections are possible.
pub(crate) fn connections_max(wanted: u64, descriptors: u64) -> usize {
    let possible = descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(16);
    if possible < wanted {
        tracing::info!(
            connections_max = possible,
            wanted,
            descriptors,
            "fewer connections than connections_max allows, as the operating system limits open descriptors"
        );
    }
    usize::try_from(wanted.min(possible)).unwrap_or(usize::MAX)
}

/// Returns how many of the `wanted` relayed connections are possible: each has a descriptor on both sides.
pub(crate) fn relays_max(wanted: u64, descriptors: u64) -> usize {
    let possible = descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(16) / 2;
    usize::try_from(wanted.min(possible)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(connections_max(20_000, 1_000_000), 20_000);
        assert_eq!(connections_max(20_000, 20_000), 19_488);
        assert_eq!(connections_max(20_000, 100), 16);
        assert_eq!(relays_max(10_000, 1_000_000), 10_000);
        assert_eq!(relays_max(10_000, 1_512), 500);
        assert_eq!(relays_max(1, 1_000_000), 1);
    }
}
