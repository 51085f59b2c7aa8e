//! A read-write lock: many readers or one writer.
//!
//! A reader takes one permit, a writer all of them. The permits are given out in order, which makes
//! the lock fair to both sides.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::park::Deadline;
use crate::sync::owners::{HolderIndex, Owners};
use crate::sync::permits::Permits;
use crate::wait_type::WaitType;

/// A value that many may read or one may write. Served strictly in order: a reader that comes after
/// a waiting writer waits for it. So a task must not take a second read lock while it holds one: a
/// writer may be waiting between the two.
///
/// It is not poisoned, see [the module](crate::sync).
#[repr(C)]
pub struct RwLock<Value: ?Sized> {
    /// The first field, because the monitor looks for the owners at the lock's address.
    owners: Owners,
    permits: Permits,
    value: UnsafeCell<Value>,
}

/// All permits, which a writer takes.
const ALL: usize = Permits::MOST;

// SAFETY: moving the lock moves the value.
unsafe impl<Value: ?Sized + Send> Send for RwLock<Value> {}
// SAFETY: writers move the value between threads, readers share it.
unsafe impl<Value: ?Sized + Send + Sync> Sync for RwLock<Value> {}

impl<Value> RwLock<Value> {
    /// A lock that is not held.
    pub const fn new(value: Value) -> Self {
        Self {
            owners: Owners::of_lock(),
            permits: Permits::new(ALL),
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> Value {
        self.value.into_inner()
    }
}

impl<Value: ?Sized> RwLock<Value> {
    /// Locks for reading, and waits until that is possible.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, Value> {
        let taken = self.acquire(1, WaitType::RWLOCK_SHARED, None);
        debug_assert!(taken, "without a deadline nothing times out");
        RwLockReadGuard::new(self)
    }

    /// Locks for writing, and waits until that is possible.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, Value> {
        let taken = self.acquire(ALL, WaitType::RWLOCK_EXCLUSIVE, None);
        debug_assert!(taken, "without a deadline nothing times out");
        RwLockWriteGuard::new(self)
    }

    /// Locks for reading, if there is no writer and no waiter.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, Value>> {
        self.permits
            .try_acquire(1)
            .then(|| RwLockReadGuard::new(self))
    }

    /// Locks for writing, if there is no other holder and no waiter.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, Value>> {
        self.permits
            .try_acquire(ALL)
            .then(|| RwLockWriteGuard::new(self))
    }

    /// Locks for reading; `None` when that was not possible within `span`.
    pub fn read_timeout(&self, span: Duration) -> Option<RwLockReadGuard<'_, Value>> {
        let deadline = Some(Deadline::after(span));
        self.acquire(1, WaitType::RWLOCK_SHARED, deadline)
            .then(|| RwLockReadGuard::new(self))
    }

    /// Locks for writing; `None` when that was not possible within `span`.
    pub fn write_timeout(&self, span: Duration) -> Option<RwLockWriteGuard<'_, Value>> {
        let deadline = Some(Deadline::after(span));
        self.acquire(ALL, WaitType::RWLOCK_EXCLUSIVE, deadline)
            .then(|| RwLockWriteGuard::new(self))
    }

    #[inline]
    fn acquire(&self, count: usize, wait_type: WaitType, deadline: Option<Deadline>) -> bool {
        let resource = std::ptr::from_ref(&self.owners).addr();
        self.permits
            .acquire_part(count, (wait_type, resource), deadline)
    }

    /// The value, without locking: the exclusive reference excludes other users.
    pub fn get_mut(&mut self) -> &mut Value {
        self.value.get_mut()
    }
}

impl<Value: Default> Default for RwLock<Value> {
    fn default() -> Self {
        Self::new(Value::default())
    }
}

impl<Value> From<Value> for RwLock<Value> {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

impl<Value: ?Sized + fmt::Debug> fmt::Debug for RwLock<Value> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => fields.field("value", &&*guard),
            None => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}

/// The right to read the value of an [`RwLock`]; dropping it unlocks.
#[must_use = "it unlocks at once if it is not kept"]
pub struct RwLockReadGuard<'lock, Value: ?Sized> {
    lock: &'lock RwLock<Value>,
    named: HolderIndex,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared value.
unsafe impl<Value: ?Sized + Sync> Sync for RwLockReadGuard<'_, Value> {}

impl<'lock, Value: ?Sized> RwLockReadGuard<'lock, Value> {
    /// Makes the guard. The caller has taken a permit of `lock`.
    fn new(lock: &'lock RwLock<Value>) -> Self {
        Self {
            lock,
            named: lock.owners.add(),
            not_send: PhantomData,
        }
    }
}

impl<Value: ?Sized> Deref for RwLockReadGuard<'_, Value> {
    type Target = Value;

    fn deref(&self) -> &Value {
        // SAFETY: while a reader has its permit no writer has all.
        unsafe { &*self.lock.value.get() }
    }
}

impl<Value: ?Sized> Drop for RwLockReadGuard<'_, Value> {
    fn drop(&mut self) {
        self.lock.owners.remove(self.named);
        self.lock.permits.release(1);
    }
}

impl<Value: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, Value> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// The right to write the value of an [`RwLock`]; dropping it unlocks.
#[must_use = "it unlocks at once if it is not kept"]
pub struct RwLockWriteGuard<'lock, Value: ?Sized> {
    lock: &'lock RwLock<Value>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared value.
unsafe impl<Value: ?Sized + Sync> Sync for RwLockWriteGuard<'_, Value> {}

impl<'lock, Value: ?Sized> RwLockWriteGuard<'lock, Value> {
    /// Makes the guard. The caller has taken all permits of `lock`.
    fn new(lock: &'lock RwLock<Value>) -> Self {
        lock.owners.held_alone();
        Self {
            lock,
            not_send: PhantomData,
        }
    }
}

impl<Value: ?Sized> Deref for RwLockWriteGuard<'_, Value> {
    type Target = Value;

    fn deref(&self) -> &Value {
        // SAFETY: the guard's owner has all permits.
        unsafe { &*self.lock.value.get() }
    }
}

impl<Value: ?Sized> DerefMut for RwLockWriteGuard<'_, Value> {
    fn deref_mut(&mut self) -> &mut Value {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<Value: ?Sized> Drop for RwLockWriteGuard<'_, Value> {
    fn drop(&mut self) {
        self.lock.owners.left();
        self.lock.permits.release(ALL);
    }
}

impl<Value: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, Value> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
