//! Time for workers: sleeping, and timeouts, without blocking the thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::park::{self, Deadline, Expired, Limit, WaitOutcome};
use crate::wait_type::WaitType;

/// Lets others run for at least `span`. A thread that is not a worker sleeps in the kernel.
pub fn sleep(span: Duration) {
    sleep_to(Deadline::after(span));
}

/// Lets others run until `moment` at least; returns at once when that is past.
pub fn sleep_until(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        sleep(left);
    }
}

fn sleep_to(deadline: Deadline) {
    let waiter = park::prepare(WaitType::SLEEP_TASK, 0);
    let wake = park::wait(waiter, Some(deadline));
    debug_assert_eq!(wake, WaitOutcome::TimedOut, "nobody else knows the waiter");
}

/// The error of a [`timeout`] whose time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time for it was over")]
pub struct Elapsed;

/// The number of the next timeout; numbers tell nested timeouts apart.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Runs `body` on the calling worker and ends it if it takes longer than `span`: the wait that it
/// is in then, or its next wait or yield, unwinds out of it, as cancelling a task does. Destructors
/// run. So `body` may be cut off at any wait, and nowhere else. Code that neither waits nor yields
/// is not interrupted, and if it ends late without a wait, its value counts.
///
/// Timeouts may be nested: the one that passes first ends its own body. Tasks that `body` has
/// spawned go on, except those of a [`scope`](crate::scope) in it. A wait in a destructor during
/// unwinding, and a [`preemptive`](crate::preemptive) section, are not cut short.
///
/// ```
/// use std::time::Duration;
/// use swtch_fiber::{Elapsed, Runtime, sync::Event, timeout};
///
/// let runtime = Runtime::builder().schedulers(1).build()?;
/// let result = runtime.run(|| {
///     let never = Event::manual();
///     timeout(Duration::from_millis(5), || never.wait())
/// })?;
/// assert_eq!(result, Err(Elapsed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Elapsed`] when `body` was cut off.
pub fn timeout<Output>(span: Duration, body: impl FnOnce() -> Output) -> Result<Output, Elapsed> {
    let own = Limit {
        deadline: Deadline::after(span),
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
    };
    let outer = park::replace_limit(Some(own));
    // An outer timeout that ends sooner stays in force.
    if let Some(outer) = outer.filter(|outer| outer.deadline <= own.deadline) {
        park::replace_limit(Some(outer));
    }
    let result = catch_unwind(AssertUnwindSafe(body));
    park::replace_limit(outer);
    result.or_else(|payload| match payload.downcast::<Expired>() {
        Ok(expired) if expired.number == own.number => Err(Elapsed),
        Ok(of_another) => resume_unwind(of_another),
        Err(payload) => resume_unwind(payload),
    })
}

/// Waits for moments at equal distances.
///
/// ```
/// use std::time::Duration;
/// use swtch_fiber::Interval;
///
/// let mut every = Interval::new(Duration::from_millis(2));
/// assert!(every.tick() >= 1); // 2 ms from when it was made
/// assert!(every.tick() >= 1); // 4 ms
/// ```
#[derive(Debug)]
pub struct Interval {
    period_ns: u64,
    next: Deadline,
}

impl Interval {
    /// Ticks each `period` from now on.
    ///
    /// # Panics
    /// When `period` is 0.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "the period of an interval is 0");
        Self {
            period_ns: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX),
            next: Deadline::after(period),
        }
    }

    /// Waits for the next moment. Returns how many were due since the last call: more than 1 when
    /// the caller came too late for some, which are skipped; later ones keep their distance.
    pub fn tick(&mut self) -> u64 {
        let now = Deadline::after(Duration::ZERO);
        let mut due = 1;
        if self.next > now {
            sleep_to(self.next);
        } else {
            due += (now.monotonic_ns - self.next.monotonic_ns) / self.period_ns;
        }
        let step = self.period_ns.saturating_mul(due);
        self.next.monotonic_ns = self.next.monotonic_ns.saturating_add(step);
        due
    }
}
