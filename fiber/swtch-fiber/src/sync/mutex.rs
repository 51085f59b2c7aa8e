//! A mutex, which blocks the worker and not its thread.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::park::Deadline;
use crate::sync::raw_mutex::RawMutex;

/// A value that one worker at a time may use. While a worker waits for it, the scheduler's other
/// workers run.
///
/// It may be held over a yield or a wait. It is not poisoned, see [the module](crate::sync). A
/// waiter is overtaken at most once.
///
/// ```
/// use swtch_fiber::{Runtime, scope, sync::Mutex};
///
/// let runtime = Runtime::builder().schedulers(2).build()?;
/// let sum = runtime.run(|| {
///     let sum = Mutex::new(0);
///     scope(|scope| {
///         for number in 0..10 {
///             let sum = &sum;
///             scope.spawn(move || *sum.lock() += number).expect("inside of a runtime");
///         }
///     });
///     sum.into_inner()
/// })?;
/// assert_eq!(sum, 45);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct Mutex<Value: ?Sized> {
    raw: RawMutex,
    value: UnsafeCell<Value>,
}

// SAFETY: the lock lets one thread at a time use the value, and so moves it between threads.
unsafe impl<Value: ?Sized + Send> Send for Mutex<Value> {}
// SAFETY: as above.
unsafe impl<Value: ?Sized + Send> Sync for Mutex<Value> {}

impl<Value> Mutex<Value> {
    /// A mutex that is not locked.
    pub const fn new(value: Value) -> Self {
        Self {
            raw: RawMutex::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> Value {
        self.value.into_inner()
    }
}

impl<Value: ?Sized> Mutex<Value> {
    /// Locks the mutex, and waits until that is possible.
    ///
    /// # Panics
    /// When the calling task holds the mutex already, since it would wait for ever.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Value> {
        let locked = self.raw.lock(None);
        debug_assert!(locked, "without a deadline nothing times out");
        MutexGuard::new(self)
    }

    /// Locks the mutex if it is free, without waiting.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Value>> {
        self.raw.try_lock().then(|| MutexGuard::new(self))
    }

    /// Locks the mutex; `None` when that was not possible within `span`.
    pub fn lock_timeout(&self, span: Duration) -> Option<MutexGuard<'_, Value>> {
        let locked = self.raw.try_lock() || self.raw.lock(Some(Deadline::after(span)));
        locked.then(|| MutexGuard::new(self))
    }

    /// Returns true if the mutex is locked at this moment.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// The value, without locking: the exclusive reference excludes other users.
    pub fn get_mut(&mut self) -> &mut Value {
        self.value.get_mut()
    }
}

impl<Value: ?Sized + fmt::Debug> fmt::Debug for Mutex<Value> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => fields.field("value", &&*guard),
            None => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}

impl<Value: Default> Default for Mutex<Value> {
    fn default() -> Self {
        Self::new(Value::default())
    }
}

impl<Value> From<Value> for Mutex<Value> {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

/// The right to use the value of a [`Mutex`]; dropping it unlocks.
#[must_use = "it unlocks at once if it is not kept"]
pub struct MutexGuard<'mutex, Value: ?Sized> {
    mutex: &'mutex Mutex<Value>,
    /// The owner is a task, which stays on its thread, so the guard must too.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared value.
unsafe impl<Value: ?Sized + Sync> Sync for MutexGuard<'_, Value> {}

impl<'mutex, Value: ?Sized> MutexGuard<'mutex, Value> {
    /// Makes the guard. The caller has locked `mutex`.
    #[inline]
    fn new(mutex: &'mutex Mutex<Value>) -> Self {
        Self {
            mutex,
            not_send: PhantomData,
        }
    }

    pub(crate) fn mutex(&self) -> &'mutex Mutex<Value> {
        self.mutex
    }
}

impl<Value: ?Sized> Deref for MutexGuard<'_, Value> {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        // SAFETY: the guard's owner has locked it.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<Value: ?Sized> DerefMut for MutexGuard<'_, Value> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Value {
        // SAFETY: as above.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<Value: ?Sized> Drop for MutexGuard<'_, Value> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

impl<Value: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, Value> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
