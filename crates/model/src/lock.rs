//! Locks that a panic does not poison: the next lock holder continues with the value as it is. A panic in one
//! connection's task must not end all others, and structures here are consistent between any two statements
//! that can panic.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct SharedLock<T>(RwLock<T>);

impl<T> SharedLock<T> {
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Waits until no writer holds the lock, and takes it together with other readers.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lock is free and takes it exclusively.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes threads that wait for a change of a value under a [`Lock`].
#[derive(Debug, Default)]
pub struct WakeUp(Condvar);

impl WakeUp {
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a wake-up; it may come without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Self::wait`], up to `patience`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, patience: Duration) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits while `busy`.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        busy: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_while(guard, busy);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `busy`, up to `patience`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
        busy: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, patience, busy);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_holder_leaves_the_value_to_the_next() {
        let (one, many) = (Lock::new(1), SharedLock::new(1));
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let (mut one, mut many) = (one.lock(), many.write());
                (*one, *many) = (2, 2);
                panic!("while it holds both");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*one.lock(), 2);
        assert_eq!(*many.read(), 2);
        assert_eq!(*many.write(), 2);
        assert_eq!(one.try_lock().map(|value| *value), Some(2));
        assert_eq!(one.into_inner(), 2);
    }
}
