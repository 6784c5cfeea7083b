//! Lock that a panic does not poison: a panic in one connection's task must not end all others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until the lock is free and takes it. The values are consistent between any two statements that can
/// panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
