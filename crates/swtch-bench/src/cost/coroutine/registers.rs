//! A coroutine made of a stack and the assembly of [`crate::coroutine_switch`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use super::stack::MappedStack;
use super::{CoroutineBody, Stackful};
use crate::coroutine_switch as assembly;
use crate::error::Error;

/// Which registers a switch saves.
pub(super) trait SavedRegisters: 'static {
    /// Prepares the stack that ends at `top`, so that it starts with `enter`.
    ///
    /// # Safety
    ///
    /// As [`assembly::init_stack_frame`].
    unsafe fn lay(top: *mut u8, enter: assembly::Entry, argument: *mut ()) -> *mut u8;

    /// Switches from the current stack, whose pointer goes to `save`, to `load`.
    ///
    /// # Safety
    ///
    /// As [`assembly::switch_registers`].
    unsafe fn switch(save: *mut *mut u8, load: *mut u8);
}

/// Saves the callee-saved registers only.
pub(super) enum CalleeSavedOnly {}

impl SavedRegisters for CalleeSavedOnly {
    unsafe fn lay(top: *mut u8, enter: assembly::Entry, argument: *mut ()) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { assembly::init_stack_frame(top, enter, argument) }
    }

    #[inline]
    unsafe fn switch(save: *mut *mut u8, load: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { assembly::switch_registers(save, load) }
    }
}

/// Saves the floating-point control words too.
pub(super) enum FloatControl {}

impl SavedRegisters for FloatControl {
    unsafe fn lay(top: *mut u8, enter: assembly::Entry, argument: *mut ()) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { assembly::lay_registers_and_float_control(top, enter, argument) }
    }

    #[inline]
    unsafe fn switch(save: *mut *mut u8, load: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { assembly::switch_registers_and_float_control(save, load) }
    }
}

/// Dropping it frees the stack without unwinding: a [`CoroutineBody`] owns nothing there.
pub(super) struct AssemblyCoroutine<S> {
    sides: Box<StackPointers>,
    _stack: MappedStack,
    switch: PhantomData<S>,
}

/// The saved stack pointers of the coroutine and of its caller (that of the side that runs is
/// stale), and what the coroutine does.
struct StackPointers {
    inside: Cell<*mut u8>,
    outside: Cell<*mut u8>,
    body: CoroutineBody,
}

impl<S: SavedRegisters> Stackful for AssemblyCoroutine<S> {
    fn start(body: CoroutineBody) -> Result<Self, Error> {
        let stack = MappedStack::new()?;
        let sides = Box::new(StackPointers {
            inside: Cell::new(ptr::null_mut()),
            outside: Cell::new(ptr::null_mut()),
            body,
        });
        let argument = ptr::from_ref(&*sides).cast_mut().cast();
        // SAFETY: the stack is new, and its top is a multiple of a page.
        let laid = unsafe { S::lay(stack.top(), enter::<S>, argument) };
        sides.inside.set(laid);
        let mut coroutine = Self {
            sides,
            _stack: stack,
            switch: PhantomData,
        };
        coroutine.resume();
        Ok(coroutine)
    }

    #[inline]
    fn resume(&mut self) {
        let load = self.sides.inside.get();
        // SAFETY: the coroutine was suspended there, or `lay` prepared it there, and its stack is
        // ours.
        unsafe { S::switch(self.sides.outside.as_ptr(), load) }
    }
}

/// # Safety
///
/// `sides` are those of the coroutine whose stack this is, and stay where they are.
unsafe extern "C" fn enter<S: SavedRegisters>(sides: *mut ()) -> ! {
    // SAFETY: the caller's promise; the box is only used by shared reference.
    let sides = unsafe { &*sides.cast::<StackPointers>() };
    sides.body.run(|| {
        let load = sides.outside.get();
        // SAFETY: the code that resumed us saved its stack there, and is suspended until we switch.
        unsafe { S::switch(sides.inside.as_ptr(), load) }
    })
}
