//! A coroutine made of a stack and the assembly of [`crate::coroutine_switch`], with two choices of
//! the registers that a switch saves.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::stack::MappedStack;
use super::{CoroutineBody, Stackful};
use crate::coroutine_switch::{self, Entry};
use crate::error::Error;

/// Which registers a switch saves.
pub(super) trait SavedRegisters: 'static {
    /// Prepares the stack that ends at `top`, so that it starts with `enter`.
    ///
    /// # Safety
    ///
    /// As [`coroutine_switch::init_stack_frame`].
    unsafe fn init_stack_frame(top: *mut u8, enter: Entry, argument: *mut ()) -> *mut u8;

    /// Switches from the current stack, whose pointer goes to `save`, to `load`.
    ///
    /// # Safety
    ///
    /// As [`coroutine_switch::switch_registers`].
    unsafe fn switch(save: *mut *mut u8, load: *mut u8);
}

/// Saves the callee-saved registers only.
pub(super) enum CalleeSavedOnly {}

impl SavedRegisters for CalleeSavedOnly {
    unsafe fn init_stack_frame(top: *mut u8, enter: Entry, argument: *mut ()) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { coroutine_switch::init_stack_frame(top, enter, argument) }
    }

    #[inline]
    unsafe fn switch(save: *mut *mut u8, load: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { coroutine_switch::switch_registers(save, load) }
    }
}

/// Saves the floating-point control words too.
pub(super) enum CalleeSavedAndFloatControl {}

impl SavedRegisters for CalleeSavedAndFloatControl {
    unsafe fn init_stack_frame(top: *mut u8, enter: Entry, argument: *mut ()) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { coroutine_switch::init_stack_frame_with_float_control(top, enter, argument) }
    }

    #[inline]
    unsafe fn switch(save: *mut *mut u8, load: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { coroutine_switch::switch_registers_and_float_control(save, load) }
    }
}

/// Dropping it frees the stack without unwinding: a [`CoroutineBody`] owns nothing there.
pub(super) struct AssemblyCoroutine<R> {
    /// Made by [`Box::into_raw`] and owned: code on the coroutine's stack has the pointer too, so a
    /// `Box`, which claims to be the only way to its value when it is moved, would be wrong.
    state: NonNull<CoroutineState>,
    stack: MappedStack,
    _registers: PhantomData<R>,
}

/// The state that a coroutine and the code that resumes it share: the stack pointers of both (that of the one that runs
/// is stale), and what the coroutine does.
struct CoroutineState {
    coroutine_sp: Cell<*mut u8>,
    resumer_sp: Cell<*mut u8>,
    body: CoroutineBody,
}

impl<R: SavedRegisters> Stackful for AssemblyCoroutine<R> {
    fn start(body: CoroutineBody) -> Result<Self, Error> {
        let stack = MappedStack::new()?;
        let state = Box::into_raw(Box::new(CoroutineState {
            coroutine_sp: Cell::new(ptr::null_mut()),
            resumer_sp: Cell::new(ptr::null_mut()),
            body,
        }));
        let mut coroutine = Self {
            state: NonNull::new(state).expect("invariant: a box is never null"),
            stack,
            _registers: PhantomData,
        };
        // SAFETY: the stack is new, and its top is a multiple of a page.
        let frame = unsafe { R::init_stack_frame(coroutine.stack.top(), enter::<R>, state.cast()) };
        coroutine.state().coroutine_sp.set(frame);
        coroutine.resume();
        Ok(coroutine)
    }

    #[inline]
    fn resume(&mut self) {
        let state = self.state();
        // SAFETY: the pointer was saved by the coroutine's last switch or made by `start`, and its
        // stack is ours.
        unsafe { R::switch(state.resumer_sp.as_ptr(), state.coroutine_sp.get()) }
    }
}

impl<R> AssemblyCoroutine<R> {
    #[inline]
    fn state(&self) -> &CoroutineState {
        // SAFETY: made by `start`, freed by `drop`; nobody has an exclusive reference to it.
        unsafe { self.state.as_ref() }
    }
}

impl<R> Drop for AssemblyCoroutine<R> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`. The coroutine, which has the pointer too, is suspended
        // and never resumed again.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

/// # Safety
///
/// `state` is that of the coroutine whose stack this is, and lives until the coroutine has run for
/// the last time.
unsafe extern "C" fn enter<R: SavedRegisters>(state: *mut ()) -> ! {
    // SAFETY: the caller's promise; there are only shared references to it.
    let state = unsafe { &*state.cast::<CoroutineState>() };
    state.body.run(|| {
        let load = state.resumer_sp.get();
        // SAFETY: the code that resumed us saved its stack pointer there, and is suspended until we
        // switch.
        unsafe { R::switch(state.coroutine_sp.as_ptr(), load) }
    })
}
