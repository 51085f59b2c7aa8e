//! Replaces `src/atomics.rs` by the types of `loom`.

pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// As in the crate, but not `const`.
macro_rules! const_new {
    ($(#[$attribute:meta])* $visible:vis fn new($($argument:ident: $kind:ty),*) -> Self $body:block) => {
        $(#[$attribute])*
        $visible fn new($($argument: $kind),*) -> Self $body
    };
}
pub(crate) use const_new;

pub(crate) fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
