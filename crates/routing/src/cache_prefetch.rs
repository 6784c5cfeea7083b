//! Prefetch of memory, so that several look-ups wait for memory together instead of one after the other.

/// Prefetches the cache line that a value begins in.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "a hint to the processor: nothing is read by it, and no safe function gives it"
)]
pub(crate) fn prefetch<T>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing and cannot fault, and the address is that of a live value.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
}

/// No-op on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_: &T) {}
