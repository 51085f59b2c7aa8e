//! A crate reads perf's format, and it trusts what it reads. What [`super::layout`] did not find may still
//! make it panic: that is the file's fault, so it is said as such, once, and without a backtrace.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside of [`guarded`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// The reader of the file gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file is damaged: its reader cannot go on")]
pub struct Damaged;

/// What `read` returns. After an error nothing that it changed may be used again.
///
/// # Errors
/// When `read` panics.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, Damaged> {
    HOOK.call_once(silence);
    let outer = INSIDE.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(read));
    INSIDE.set(outer);
    done.map_err(|_| Damaged)
}

/// Our own panics stay loud.
fn silence() {
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !INSIDE.get() {
            loud(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_reader_is_a_damaged_file() {
        let empty: [u8; 0] = std::hint::black_box([]);
        let index = std::hint::black_box(7);
        assert_eq!(guarded(|| empty[index]), Err(Damaged));
        assert_eq!(guarded(|| 7), Ok(7));
        assert!(!INSIDE.get());
    }
}
