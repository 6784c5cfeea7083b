//! Asking the processor to bring memory near before it is needed, so that what several look-ups wait for is
//! waited for once.

/// Asks for the line of the cache that a value begins in.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "a hint to the processor: nothing is read by it, and no safe function gives it"
)]
pub(crate) fn bring<T>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint reads nothing and faults on nothing, and this is the address of a value that is there.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
}

/// Elsewhere the look-up itself brings it.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn bring<T>(_: &T) {}
