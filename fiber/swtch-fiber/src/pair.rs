//! A value with exactly two owners, freed by the one that is dropped last.
//!
//! A task and its handle are such owners. An `Arc` executes four locked instructions in their life
//! (one more owner, one less twice, and the weak count). With two owners one is enough: the first
//! owner to drop sets a flag, the second sees it and frees. Each locked instruction was 5 ns of a
//! spawn of 150 (AMD EPYC).

use std::fmt::{self, Debug, Formatter};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocation that both owners point to.
pub(crate) struct PairAllocation<Value: ?Sized> {
    /// Set by the first owner that is dropped.
    alone: AtomicBool,
    value: Value,
}

/// One of the two owners.
pub(crate) struct PairOwner<Value: ?Sized> {
    shared: NonNull<PairAllocation<Value>>,
}

// SAFETY: as for `Arc`: both owners reach the value, and either may drop it.
unsafe impl<Value: ?Sized + Send + Sync> Send for PairOwner<Value> {}
// SAFETY: as above.
unsafe impl<Value: ?Sized + Send + Sync> Sync for PairOwner<Value> {}

/// Makes both owners of a new value.
pub(crate) fn pair<Value>(value: Value) -> (PairOwner<Value>, PairOwner<Value>) {
    let alone = AtomicBool::new(false);
    let shared = NonNull::from(Box::leak(Box::new(PairAllocation { alone, value })));
    (PairOwner { shared }, PairOwner { shared })
}

impl<Value> PairOwner<Value> {
    /// Converts an owner to one that knows its value only as `Less`, such as a trait object.
    ///
    /// # Safety
    /// `unsize` is the coercion, `|shared| shared`. A function cannot do it for any two types.
    pub(crate) unsafe fn unsized_by<Less: ?Sized>(
        self,
        unsize: fn(*mut PairAllocation<Value>) -> *mut PairAllocation<Less>,
    ) -> PairOwner<Less> {
        let shared = unsize(ManuallyDrop::new(self).shared.as_ptr());
        // SAFETY: by the caller's promise it is the same pointer.
        let shared = unsafe { NonNull::new_unchecked(shared) };
        PairOwner { shared }
    }
}

impl<Value: ?Sized> Deref for PairOwner<Value> {
    type Target = Value;

    fn deref(&self) -> &Value {
        // SAFETY: the allocation lives while an owner does.
        &unsafe { self.shared.as_ref() }.value
    }
}

impl<Value: ?Sized + Debug> Debug for PairOwner<Value> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<Value: ?Sized> Drop for PairOwner<Value> {
    fn drop(&mut self) {
        // SAFETY: the allocation lives while an owner does.
        let alone = &unsafe { self.shared.as_ref() }.alone;
        // Acquire: the other owner's accesses to the value come before it is freed. The load saves
        // the last owner the exchange.
        if alone.load(Ordering::Acquire) || alone.swap(true, Ordering::AcqRel) {
            // SAFETY: it came from a box, and the other owner is gone.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A value that counts its drops.
    struct DropCounter<'count>(&'count AtomicU32);

    impl Drop for DropCounter<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A handle may be dropped before its task ends, and after.
    #[test]
    fn the_owner_that_is_dropped_last_drops_the_value() {
        let drops = AtomicU32::new(0);
        let (one, other) = pair(DropCounter(&drops));
        drop(one);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    /// If both are dropped at once, the value must be dropped once, not twice or never.
    #[test]
    fn owners_on_two_threads_drop_it_once() {
        let drops = AtomicU32::new(0);
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        for _ in 0..rounds {
            let (one, other) = pair(DropCounter(&drops));
            std::thread::scope(|scope| {
                scope.spawn(move || drop(one));
                drop(other);
            });
        }
        assert_eq!(drops.load(Ordering::Relaxed), rounds);
    }

    /// A task knows its closure only as something that can be run.
    #[test]
    fn an_owner_that_knows_less_owns_the_same() {
        let (one, other) = pair([1, 2, 3]);
        // SAFETY: it is the coercion.
        let slice: PairOwner<[i32]> = unsafe { one.unsized_by(|shared| shared) };
        drop(other);
        assert_eq!(&*slice, [1, 2, 3]);
    }
}
