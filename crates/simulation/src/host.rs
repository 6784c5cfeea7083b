//! Time, randomness and number of processors of a simulated program.
//!
//! The broker gets these from the operating system, through the standard library and other crates. The
//! functions below replace those of the C library: before [`begin`] they ask the kernel, then they return
//! simulated values. So the broker needs no special build. One process runs one seed.

#![allow(
    unsafe_code,
    reason = "functions of the C library are replaced, and called with their arguments as they came"
)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::random::Random;

static IS_SIMULATED: AtomicBool = AtomicBool::new(false);
static RANDOM: AtomicU64 = AtomicU64::new(0);
static WALL_MS: AtomicI64 = AtomicI64::new(0);
/// Each read advances it by a nanosecond, so no loop that waits for time to pass runs forever.
static STEADY_NS: AtomicI64 = AtomicI64::new(0);

/// Starts the simulation in this process.
pub fn begin(seed: u64) {
    RANDOM.store(seed, Relaxed);
    IS_SIMULATED.store(true, Relaxed);
}

/// Sets the wall clock and the steady clock, both in milliseconds.
pub fn set_time(wall_ms: i64, steady_ms: i64) {
    WALL_MS.store(wall_ms, Relaxed);
    STEADY_NS.fetch_max(steady_ms * 1_000_000, Relaxed);
}

/// Returns a random number from the operating system.
pub fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 16
}

/// Returns the wall clock in milliseconds since 1970.
pub fn wall_ms() -> i64 {
    WALL_MS.load(Relaxed)
}

fn is_simulated() -> bool {
    IS_SIMULATED.load(Relaxed)
}

/// Replaces `clock_gettime(2)`.
///
/// # Safety
///
/// `into` points to a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, into: *mut libc::timespec) -> c_int {
    let ns = match clock {
        _ if !is_simulated() => None,
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(WALL_MS.load(Relaxed) * 1_000_000),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
            Some(STEADY_NS.fetch_add(1, Relaxed))
        }
        _ => None,
    };
    let Some(ns) = ns else {
        // SAFETY: the arguments are passed on unchanged.
        let done = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, into) };
        return c_int::try_from(done).unwrap_or(-1);
    };
    // SAFETY: the caller guarantees that it points to a `timespec`.
    if let Some(into) = unsafe { into.as_mut() } {
        into.tv_sec = ns.div_euclid(1_000_000_000);
        into.tv_nsec = ns.rem_euclid(1_000_000_000);
    }
    0
}

/// Replaces `getrandom(2)`.
///
/// # Safety
///
/// `into` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(into: *mut c_void, bytes: usize, flags: c_uint) -> isize {
    if !is_simulated() {
        // SAFETY: the arguments are passed on unchanged.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, into, bytes, flags) };
        return isize::try_from(got).unwrap_or(-1);
    }
    let mut random = Random::new(RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed));
    for at in 0..bytes {
        let byte = random.next().to_le_bytes()[0];
        // SAFETY: the caller guarantees `bytes` bytes.
        unsafe { into.cast::<u8>().add(at).write(byte) };
    }
    isize::try_from(bytes).unwrap_or(-1)
}

/// Replaces `getsockname(2)`: sockets within the process get an address like network sockets.
///
/// # Safety
///
/// `into` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    socket: c_int,
    into: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    if !is_simulated() {
        // SAFETY: the arguments are passed on unchanged.
        let done = unsafe { libc::syscall(libc::SYS_getsockname, socket, into, length) };
        return c_int::try_from(done).unwrap_or(-1);
    }
    let address = libc::sockaddr_in {
        sin_family: u16::try_from(libc::AF_INET).unwrap_or_default(),
        sin_port: 9092_u16.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: callers pass a `sockaddr_storage`, which holds every kind of address.
    unsafe {
        into.cast::<libc::sockaddr_in>().write_unaligned(address);
        *length = 16;
    }
    0
}

/// Replaces `sched_getaffinity(2)`: two processors on every machine.
///
/// # Safety
///
/// `into` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(process: c_int, bytes: usize, into: *mut c_void) -> c_int {
    if !is_simulated() {
        // SAFETY: the arguments are passed on unchanged.
        let done = unsafe { libc::syscall(libc::SYS_sched_getaffinity, process, bytes, into) };
        return if done < 0 { -1 } else { 0 };
    }
    // SAFETY: the caller guarantees `bytes` bytes; a set of processors has at least one.
    unsafe {
        into.cast::<u8>().write_bytes(0, bytes);
        into.cast::<u8>().write(3);
    }
    0
}
