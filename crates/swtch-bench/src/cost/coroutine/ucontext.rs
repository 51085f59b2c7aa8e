//! A coroutine by `makecontext` and `swapcontext` of glibc; musl has neither.

#[cfg(target_env = "gnu")]
pub(super) use gnu::Ucontext;
#[cfg(not(target_env = "gnu"))]
pub(super) use nowhere::Ucontext;

#[cfg(target_env = "gnu")]
mod gnu {
    use std::cell::{Cell, UnsafeCell};
    use std::ptr;

    use super::super::stack::MappedStack;
    use super::super::{CoroutineBody, Stackful};
    use crate::error::{Error, checked};

    /// Dropping it frees the stack without unwinding: a [`CoroutineBody`] owns nothing there.
    pub(in super::super) struct Ucontext {
        sides: Box<SavedContexts>,
        _stack: MappedStack,
    }

    /// The saved contexts of the coroutine and of its caller, and what the coroutine does.
    struct SavedContexts {
        inside: UnsafeCell<libc::ucontext_t>,
        outside: UnsafeCell<libc::ucontext_t>,
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
            let [inside, outside] = [(); 2].map(|()| unsafe { std::mem::zeroed() });
            let sides = Box::new(SavedContexts {
                inside: UnsafeCell::new(inside),
                outside: UnsafeCell::new(outside),
                body,
            });
            let inside = sides.inside.get();
            // SAFETY: the context is ours to be written to.
            checked("getcontext", unsafe { libc::getcontext(inside) })?;
            // SAFETY: there is no other reference to the context.
            let area = unsafe { &mut (*inside).uc_stack };
            area.ss_sp = stack.bottom().cast();
            area.ss_size = MappedStack::SIZE;
            // SAFETY: the context is initialised and has a stack; `enter` takes nothing.
            unsafe { libc::makecontext(inside, enter, 0) };
            ENTERED.set(ptr::from_ref(&*sides));
            let mut coroutine = Self {
                sides,
                _stack: stack,
            };
            coroutine.resume();
            Ok(coroutine)
        }

        #[inline]
        fn resume(&mut self) {
            let (save, load) = (self.sides.outside.get(), self.sides.inside.get());
            // SAFETY: the coroutine was suspended there, or `makecontext` prepared it there, and
            // its stack is ours.
            unsafe { libc::swapcontext(save, load) };
        }
    }

    extern "C" fn enter() {
        let sides = ENTERED.get();
        // SAFETY: set by this thread just before its only way here; the box lives as long as the
        // stack, and is only used by shared reference.
        let sides = unsafe { &*sides };
        sides.body.run(|| {
            // SAFETY: the code that resumed us saved its context there, and is suspended until we
            // switch.
            unsafe { libc::swapcontext(sides.inside.get(), sides.outside.get()) };
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
