//! Locks that a panic does not poison: the next lock holder continues with the value as it is. A panic in one
//! connection's task must not end all others, and structures here are consistent between any two statements
//! that can panic.
//!
//! Builds with debug assertions check the order in which threads take them (`lock_order.rs`).

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::lock_order::{Held, Origin};

/// Mutual exclusion lock.
#[derive(Debug)]
pub struct Lock<T> {
    origin: Origin,
    inner: Mutex<T>,
}

/// A [`Lock`] that is held, and released when this is dropped.
#[derive(Debug)]
#[clippy::has_significant_drop]
pub struct LockGuard<'a, T> {
    inner: MutexGuard<'a, T>,
    held: Held,
}

impl<T> Lock<T> {
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self {
            origin: Origin::here(),
            inner: Mutex::new(value),
        }
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T> {
        let held = self.origin.taken::<T>();
        LockGuard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            held,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        let held = self.origin.taken_at_once::<T>();
        Some(LockGuard { inner, held })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Lock<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock for many readers or one writer.
#[derive(Debug)]
pub struct SharedLock<T> {
    origin: Origin,
    inner: RwLock<T>,
}

/// A [`SharedLock`] that is held together with other readers, and released when this is dropped.
#[derive(Debug)]
#[clippy::has_significant_drop]
pub struct ReadGuard<'a, T> {
    inner: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A [`SharedLock`] that is held exclusively, and released when this is dropped.
#[derive(Debug)]
#[clippy::has_significant_drop]
pub struct WriteGuard<'a, T> {
    inner: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> SharedLock<T> {
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self {
            origin: Origin::here(),
            inner: RwLock::new(value),
        }
    }

    /// Waits until no writer holds the lock, and takes it together with other readers. One that holds it
    /// already must not: a writer that waits in between would hold up both.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = self.origin.taken::<T>();
        ReadGuard {
            inner: self.inner.read().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    /// Waits until the lock is free and takes it exclusively.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = self.origin.taken::<T>();
        WriteGuard {
            inner: self.inner.write().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }
}

impl<T: Default> Default for SharedLock<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
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
    pub fn wait<'a, T>(&self, guard: LockGuard<'a, T>) -> LockGuard<'a, T> {
        let LockGuard { inner, held } = guard;
        let inner = self.0.wait(inner).unwrap_or_else(PoisonError::into_inner);
        LockGuard { inner, held }
    }

    /// Like [`Self::wait`], up to `patience`.
    pub fn wait_timeout<'a, T>(&self, guard: LockGuard<'a, T>, patience: Duration) -> LockGuard<'a, T> {
        let LockGuard { inner, held } = guard;
        let waited = self.0.wait_timeout(inner, patience);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        LockGuard { inner, held }
    }

    /// Waits while `busy`.
    pub fn wait_while<'a, T>(
        &self,
        guard: LockGuard<'a, T>,
        busy: impl FnMut(&mut T) -> bool,
    ) -> LockGuard<'a, T> {
        let LockGuard { inner, held } = guard;
        let waited = self.0.wait_while(inner, busy);
        let inner = waited.unwrap_or_else(PoisonError::into_inner);
        LockGuard { inner, held }
    }

    /// Waits while `busy`, up to `patience`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: LockGuard<'a, T>,
        patience: Duration,
        busy: impl FnMut(&mut T) -> bool,
    ) -> LockGuard<'a, T> {
        let LockGuard { inner, held } = guard;
        let waited = self.0.wait_timeout_while(inner, patience, busy);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        LockGuard { inner, held }
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

    /// What `wrong` panics with, in a thread of its own.
    #[cfg(debug_assertions)]
    fn said(wrong: impl FnOnce() + Send) -> String {
        let ended = std::thread::scope(|scope| scope.spawn(wrong).join());
        *ended.unwrap_err().downcast::<String>().unwrap()
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_lock_that_its_thread_holds_is_not_taken_again() {
        let (one, many) = (Lock::new(1), SharedLock::new(1));
        let said_of_one = said(|| drop((one.lock(), one.lock())));
        assert!(said_of_one.starts_with("a lock of i32"), "{said_of_one}");
        let said_of_many = said(|| drop((many.read(), many.read())));
        assert!(
            said_of_many.contains("by the thread that took it"),
            "{said_of_many}"
        );
        // Released locks are free.
        drop(one.lock());
        drop((one.lock(), many.write()));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn locks_are_not_taken_in_two_orders_even_if_no_thread_waits() {
        let (first, second, third) = (Lock::new('a'), Lock::new('b'), SharedLock::new('c'));
        drop((first.lock(), second.lock()));
        drop((second.lock(), third.read()));
        drop((first.lock(), third.write()));
        let said = said(|| drop((third.write(), first.lock())));
        assert!(said.lines().count() >= 3, "{said}");
        // A lock that is free, and taken without a wait, holds up no other thread.
        let held = second.lock();
        assert!(first.try_lock().is_some());
        drop(held);
    }
}
