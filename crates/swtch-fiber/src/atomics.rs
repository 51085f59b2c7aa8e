//! What the protocols between threads are made of. The models (`tests/models`) compile the same files
//! with the types of `loom` in place of these.

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

/// Locks it. Nothing panics under the locks of this crate that would leave them half changed.
pub(crate) fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
