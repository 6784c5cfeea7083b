//! Order of locks. Two threads that take two locks in different orders can wait for each other for ever. A
//! test sees that only if both do so at the same moment. With debug assertions, every thread notes here the
//! locks that it takes while it holds others. It panics the first time that two kinds of lock are taken in
//! both orders, or that a thread takes a lock that it holds already. In other builds this is nothing at all.
//!
//! Locks of one kind are made by the same statement for the same type. Their order among themselves is not
//! checked.

#[cfg(debug_assertions)]
pub(crate) use checked::{Held, Origin};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Held, Origin};

#[cfg(not(debug_assertions))]
mod unchecked {
    #[derive(Debug)]
    pub(crate) struct Origin;

    #[derive(Debug)]
    pub(crate) struct Held;

    impl Origin {
        pub(crate) const fn here() -> Self {
            Self
        }

        #[inline]
        #[expect(clippy::unused_self, reason = "the checked one looks at it")]
        pub(crate) const fn taken<T>(&self) -> Held {
            Held
        }

        #[inline]
        #[expect(clippy::unused_self, reason = "the checked one looks at it")]
        pub(crate) const fn taken_at_once<T>(&self) -> Held {
            Held
        }
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::any::type_name;
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write as _;
    use std::marker::PhantomData;
    use std::panic::Location;
    use std::ptr;
    use std::sync::{Mutex, PoisonError};

    type Place = &'static Location<'static>;

    /// Type of the value under a lock, and the statement that makes it.
    type Kind = (&'static str, Place);

    /// Where a lock was taken while another was held, which was taken at the first place.
    type Places = (Place, Place);

    #[derive(Clone, Copy)]
    struct Taken {
        lock: usize,
        kind: Kind,
        at: Place,
    }

    /// Statement that makes a lock.
    #[derive(Debug)]
    pub(crate) struct Origin(Place);

    /// A lock that this thread holds.
    #[derive(Debug)]
    pub(crate) struct Held {
        lock: usize,
        /// It is released by the thread that took it.
        of_thread: PhantomData<*const ()>,
    }

    thread_local! {
        static HELD: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
        /// Pairs of kinds that this thread has noted already.
        static NOTED: RefCell<BTreeSet<(Kind, Kind)>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Kinds that were taken while a lock of another kind was held.
    static ORDER: Mutex<BTreeMap<Kind, BTreeMap<Kind, Places>>> = Mutex::new(BTreeMap::new());

    impl Origin {
        #[track_caller]
        pub(crate) const fn here() -> Self {
            Self(Location::caller())
        }

        /// Notes that this thread is about to wait for the lock.
        #[track_caller]
        pub(crate) fn taken<T>(&self) -> Held {
            let taken = self.taken_here::<T>(Location::caller());
            let wrong = HELD.try_with(|held| held.borrow().iter().find_map(|before| check(*before, taken)));
            if let Ok(Some(wrong)) = wrong {
                #[expect(
                    clippy::panic,
                    reason = "an order that can stop the program for ever is a defect"
                )]
                {
                    panic!("{wrong}");
                }
            }
            hold(taken)
        }

        /// Notes that this thread has taken the lock without waiting for it.
        #[track_caller]
        pub(crate) fn taken_at_once<T>(&self) -> Held {
            hold(self.taken_here::<T>(Location::caller()))
        }

        fn taken_here<T>(&self, at: Place) -> Taken {
            Taken {
                lock: ptr::from_ref(self).addr(),
                kind: (type_name::<T>(), self.0),
                at,
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // The thread may be ending.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(last) = held.iter().rposition(|taken| taken.lock == self.lock) {
                    held.remove(last);
                }
            });
        }
    }

    fn hold(taken: Taken) -> Held {
        let _ = HELD.try_with(|held| held.borrow_mut().push(taken));
        Held {
            lock: taken.lock,
            of_thread: PhantomData,
        }
    }

    /// Returns the defect, if `next` must not be taken while `before` is held.
    fn check(before: Taken, next: Taken) -> Option<String> {
        if before.lock == next.lock {
            let ((name, made), first, again) = (next.kind, before.at, next.at);
            return Some(format!(
                "a lock of {name}, made at {made}, is taken at {again} by the thread that took it at {first}"
            ));
        }
        if before.kind == next.kind {
            return None;
        }
        let pair = (before.kind, next.kind);
        let is_new = NOTED.try_with(|noted| noted.borrow_mut().insert(pair)) == Ok(true);
        if !is_new {
            return None;
        }
        let mut order = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
        let known = order.entry(before.kind).or_default();
        if known.contains_key(&next.kind) {
            return None;
        }
        known.insert(next.kind, (before.at, next.at));
        let mut seen = BTreeSet::new();
        let back = way(&order, next.kind, before.kind, &mut seen)?;
        let mut text = String::from("locks are taken in orders that can stop two threads for ever:");
        for ((from, to), (held, taken)) in back.into_iter().chain([(pair, (before.at, next.at))]) {
            let _ = write!(
                text,
                "\n  {} ({}) is taken at {taken}, while {} ({}) is held since {held}",
                to.0, to.1, from.0, from.1
            );
        }
        Some(text)
    }

    /// Finds kinds that were taken one under the other, from `from` to `to`.
    fn way(
        order: &BTreeMap<Kind, BTreeMap<Kind, Places>>,
        from: Kind,
        to: Kind,
        seen: &mut BTreeSet<Kind>,
    ) -> Option<Vec<((Kind, Kind), Places)>> {
        if !seen.insert(from) {
            return None;
        }
        for (next, places) in order.get(&from)? {
            let step = ((from, *next), *places);
            if *next == to {
                return Some(vec![step]);
            }
            if let Some(mut rest) = way(order, *next, to, seen) {
                rest.insert(0, step);
                return Some(rest);
            }
        }
        None
    }
}
