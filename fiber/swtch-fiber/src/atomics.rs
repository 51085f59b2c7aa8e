//! The atomic types and locks that the protocols between threads use. The models (`tests/models`)
//! compile the same files with the types of `loom` in place of these.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

/// A constructor: `const`, except in the models, whose types cannot be made at compile time.
macro_rules! const_new {
    ($(#[$attribute:meta])* $visible:vis fn new($($argument:ident: $kind:ty),*) -> Self $body:block) => {
        $(#[$attribute])*
        $visible const fn new($($argument: $kind),*) -> Self $body
    };
}
pub(crate) use const_new;

/// Locks `mutex`, and ignores poisoning: no code that holds a lock of this crate can panic and
/// leave the data half changed.
pub(crate) fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
