//! A coroutine by `makecontext` and `swapcontext` of glibc; musl has neither.

#[cfg(target_env = "gnu")]
pub(super) use gnu::Ucontext;
#[cfg(not(target_env = "gnu"))]
pub(super) use nowhere::Ucontext;

#[cfg(target_env = "gnu")]
mod gnu {
    use std::cell::{Cell, UnsafeCell};
    use std::ptr::{self, NonNull};

    use super::super::stack::MappedStack;
    use super::super::{CoroutineBody, Stackful};
    use crate::error::{Error, checked};

    /// Dropping it frees the stack without unwinding: a [`CoroutineBody`] owns nothing there.
    pub(in super::super) struct Ucontext {
        /// Made by [`Box::into_raw`] and owned: code on the coroutine's stack has the pointer too.
        contexts: NonNull<SavedContexts>,
        stack: MappedStack,
    }

    /// The saved contexts of the coroutine and of the code that resumes it, and what the coroutine
    /// does.
    struct SavedContexts {
        coroutine: UnsafeCell<libc::ucontext_t>,
        resumer: UnsafeCell<libc::ucontext_t>,
        body: CoroutineBody,
    }

    thread_local! {
        /// The coroutine that this thread enters next: `makecontext` can pass no pointer.
        static ENTERED: Cell<*const SavedContexts> = const { Cell::new(ptr::null()) };
    }

    impl Stackful for Ucontext {
        fn start(body: CoroutineBody) -> Result<Self, Error> {
            let stack = MappedStack::new()?;
            // SAFETY: an all-zero ucontext_t may be written to by `getcontext`.
            let [coroutine, resumer] = [(); 2].map(|()| unsafe { std::mem::zeroed() });
            let contexts = Box::into_raw(Box::new(SavedContexts {
                coroutine: UnsafeCell::new(coroutine),
                resumer: UnsafeCell::new(resumer),
                body,
            }));
            let mut started = Self {
                contexts: NonNull::new(contexts).expect("invariant: a box is never null"),
                stack,
            };
            let context = started.contexts().coroutine.get();
            // SAFETY: the context is ours to be written to.
            checked("getcontext", unsafe { libc::getcontext(context) })?;
            // SAFETY: there is no other reference to the context.
            let area = unsafe { &mut (*context).uc_stack };
            area.ss_sp = started.stack.bottom().cast();
            area.ss_size = MappedStack::SIZE;
            // SAFETY: the context is initialised and has a stack; `enter` takes nothing.
            unsafe { libc::makecontext(context, enter, 0) };
            ENTERED.set(contexts);
            started.resume();
            Ok(started)
        }

        #[inline]
        fn resume(&mut self) {
            let contexts = self.contexts();
            let (save, load) = (contexts.resumer.get(), contexts.coroutine.get());
            // SAFETY: the coroutine was suspended there, or `makecontext` prepared it there, and
            // its stack is ours.
            unsafe { libc::swapcontext(save, load) };
        }
    }

    impl Ucontext {
        #[inline]
        fn contexts(&self) -> &SavedContexts {
            // SAFETY: made by `start`, freed by `drop`; nobody has an exclusive reference to it.
            unsafe { self.contexts.as_ref() }
        }
    }

    impl Drop for Ucontext {
        fn drop(&mut self) {
            // SAFETY: made by `Box::into_raw`. The coroutine, which has the pointer too, is
            // suspended and never resumed again.
            drop(unsafe { Box::from_raw(self.contexts.as_ptr()) });
        }
    }

    extern "C" fn enter() {
        let contexts = ENTERED.get();
        // SAFETY: set by this thread just before its only way here; it lives until the coroutine
        // has run for the last time, and there are only shared references to it.
        let contexts = unsafe { &*contexts };
        contexts.body.run(|| {
            // SAFETY: the code that resumed us saved its context there, and is suspended until we
            // switch.
            unsafe { libc::swapcontext(contexts.coroutine.get(), contexts.resumer.get()) };
        })
    }
}

#[cfg(not(target_env = "gnu"))]
mod nowhere {
    use super::super::{CoroutineBody, Stackful};
    use crate::error::Error;

    /// Stands in where the C library has no `swapcontext`; it has no values.
    pub(in super::super) enum Ucontext {}

    impl Stackful for Ucontext {
        fn start(_body: CoroutineBody) -> Result<Self, Error> {
            Err(Error::NotHere("swapcontext needs glibc".to_owned()))
        }

        fn resume(&mut self) {
            match *self {}
        }
    }
}
