//! Turns panics of a decoder into errors.
//!
//! Checksums show that a file is as it was written, not who wrote it. The crates that decode Arrow,
//! Parquet and perf's format check much of what they read, but not all: `arrow-buffer` 60.1 panics
//! at a buffer that a message places outside of its own body, for example. Such a panic is caused
//! by the file. So decoders are called through [`contained`], which turns a panic into an error and
//! keeps its message off stderr.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// True while this thread is inside of [`contained`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Message of the last panic inside of [`contained`].
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// A decoder panicked, because its input is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file is damaged: its reader cannot go on ({said})")]
pub struct Panicked {
    said: String,
}

/// Calls `read` and returns its result. After an error, nothing that `read` changed may be used
/// again.
///
/// The first call sets a panic hook that is silent inside of `read` and calls the former hook
/// elsewhere.
///
/// # Errors
/// When `read` panics.
pub fn contained<T>(read: impl FnOnce() -> T) -> Result<T, Panicked> {
    HOOK.call_once(silence_inside);
    let outer = INSIDE.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(read));
    INSIDE.set(outer);
    done.map_err(|_| Panicked {
        said: SAID.take().unwrap_or_default(),
    })
}

fn silence_inside() {
    let outside = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !INSIDE.get() {
            outside(panic);
            return;
        }
        // The source location is for the developers, when a user reports such a file.
        let place = panic
            .location()
            .map(|at| format!("{}:{}", at.file(), at.line()));
        let payload = panic.payload();
        let what = match payload.downcast_ref::<String>() {
            Some(text) => text.as_str(),
            None => payload.downcast_ref::<&str>().unwrap_or(&"no words"),
        };
        let what = what.lines().next().unwrap_or_default();
        SAID.set(Some(format!("{what}, {}", place.unwrap_or_default())));
    }));
}

/// An iterator that returns panics as errors; after one, it has ended.
#[derive(Debug)]
pub(crate) struct ContainedIter<I>(Option<I>);

impl<I> ContainedIter<I> {
    pub(crate) const fn new(inner: I) -> Self {
        Self(Some(inner))
    }
}

impl<I: Iterator> Iterator for ContainedIter<I> {
    type Item = Result<I::Item, Panicked>;

    fn next(&mut self) -> Option<Self::Item> {
        let inner = self.0.as_mut()?;
        match contained(|| inner.next()) {
            Ok(item) => item.map(Ok),
            Err(panicked) => {
                self.0 = None;
                Some(Err(panicked))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_reader_is_an_error_with_its_words() {
        let empty: [u8; 0] = std::hint::black_box([]);
        let index = std::hint::black_box(7);
        let error = contained(|| empty[index]).unwrap_err().to_string();
        assert!(error.contains("index is 7"), "{error}");
        assert!(error.contains("contain.rs"), "{error}");
        assert_eq!(contained(|| 7), Ok(7));
        assert!(!INSIDE.get());
    }

    #[test]
    fn an_iterator_ends_with_its_panic() {
        let parts = [1, 0, 2].into_iter().map(|part| 6 / part);
        let mut parts = ContainedIter::new(parts);
        assert_eq!(parts.next(), Some(Ok(6)));
        assert!(parts.next().is_some_and(|part| part.is_err()));
        assert!(parts.next().is_none());
    }
}
