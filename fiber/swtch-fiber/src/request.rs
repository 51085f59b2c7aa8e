//! The request that a worker serves, published for whoever looks at the process from outside: OpenTelemetry's thread
//! context (OTEP 4947), which `swtch record --span otel` and others read.
//!
//! ```text
//!   worker ──▶ request ──▶ record: ids           a task that is spawned serves the request of its spawner
//!      │ switched in
//!      ▼
//!   variable of the thread, otel_thread_ctx_v1 ──▶ record of the worker that runs
//! ```
//!
//! A reader looks when the thread has left its CPU, so it is enough that the compiler keeps the order of stores.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use crate::arch;
use crate::scheduler::worker;

/// A request, by the ids that others know it by: of its trace, and of the part of that which is served here, as W3C's
/// Trace Context has them.
///
/// Readers find it only if the program's own symbols are exported. One line of its `build.rs` does so:
///
/// ```
/// println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
/// ```
///
/// ```
/// let runtime = swtch_fiber::Runtime::builder().schedulers(1).build()?;
/// let request = swtch_fiber::Request::new([7; 16], [1; 8]);
/// runtime.run(move || {
///     request.serve(|| {
///         let helper = swtch_fiber::spawn(|| swtch_fiber::Request::current().is_some());
///         assert!(helper.expect("inside of a runtime").join().expect("no panic"));
///     });
///     assert!(swtch_fiber::Request::current().is_none());
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Request(Arc<ContextRecord>);

/// What is published of it (OTEP 4947, "Thread-Local Context Record").
#[repr(C)]
struct ContextRecord {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    valid: u8,
    reserved: u8,
    attributes_size: u16,
}

impl Request {
    /// A request with these ids.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8]) -> Self {
        Self(Arc::new(ContextRecord {
            trace_id,
            span_id,
            valid: 1,
            reserved: 0,
            attributes_size: 0,
        }))
    }

    /// The request that the calling worker serves; `None` if it serves none, and on a thread that is not a worker.
    #[must_use]
    pub fn current() -> Option<Self> {
        // SAFETY: the calling worker runs.
        unsafe { worker::current()?.own() }.request.clone()
    }

    /// Calls `body`, which serves this request: until it returns, the worker carries the ids wherever it waits, and so do
    /// the tasks that it spawns and its preemptive sections. On a thread that is not a worker, the thread does.
    pub fn serve<Output>(&self, body: impl FnOnce() -> Output) -> Output {
        let _restores = OuterRequest {
            outer: ThreadVariable::of_this_thread().publish(self.record()),
            outer_request: replace_current(Some(self.clone())),
        };
        body()
    }

    fn record(&self) -> *const ContextRecord {
        Arc::as_ptr(&self.0)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.0.trace_id);
        let span_id = u64::from_be_bytes(self.0.span_id);
        write!(formatter, "Request({trace_id:032x}, {span_id:016x})")
    }
}

/// Calls `body`, which serves this request, if there is one.
pub(crate) fn serve<Output>(request: Option<Request>, body: impl FnOnce() -> Output) -> Output {
    match request {
        Some(request) => request.serve(body),
        None => body(),
    }
}

/// Sets the request of the calling worker, and returns the one before. Does nothing on other threads.
fn replace_current(request: Option<Request>) -> Option<Request> {
    // SAFETY: the calling worker runs.
    let own = unsafe { worker::current()?.own() };
    std::mem::replace(&mut own.request, request)
}

/// Brings back what was before a request, also when its body unwinds.
struct OuterRequest {
    outer: *const ContextRecord,
    outer_request: Option<Request>,
}

impl Drop for OuterRequest {
    fn drop(&mut self) {
        ThreadVariable::of_this_thread().publish(self.outer);
        replace_current(self.outer_request.take());
    }
}

/// Where a thread publishes what it serves.
#[derive(Clone, Copy)]
pub(crate) struct ThreadVariable(*const AtomicPtr<ContextRecord>);

impl ThreadVariable {
    pub(crate) fn of_this_thread() -> Self {
        Self(arch::thread_context_variable().cast())
    }

    /// Publishes the request of the worker that runs from now on, or none. Called on the thread itself.
    #[inline(always)]
    pub(crate) fn publish_request(self, request: Option<&Request>) {
        self.publish(request.map_or(ptr::null(), Request::record));
    }

    /// Returns what was published before.
    #[inline(always)]
    fn publish(self, record: *const ContextRecord) -> *const ContextRecord {
        // SAFETY: the variable lives as long as its thread, the calling one.
        let variable = unsafe { &*self.0 };
        let before = variable.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        variable.store(record.cast_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Mode, Runtime, WaitType, preemptive, sleep, spawn, yield_now};

    /// The ids that a reader would see on this thread.
    fn seen() -> Option<u8> {
        let variable = ThreadVariable::of_this_thread();
        // SAFETY: of the calling thread; what is published lives.
        let record = unsafe { (*variable.0).load(Ordering::Relaxed).as_ref() };
        record.map(|record| record.trace_id[0])
    }

    fn request(number: u8) -> Request {
        Request::new([number; 16], [number; 8])
    }

    /// Two workers of one thread wait in turns; each sees its own request after each wait.
    #[test]
    fn each_worker_carries_its_request_over_switches() {
        for mode in [Mode::Fiber, Mode::Thread] {
            let runtime = Runtime::builder().schedulers(1).mode(mode).build().unwrap();
            let serve = |number| {
                move || {
                    request(number).serve(|| {
                        for _ in 0..50 {
                            yield_now();
                            assert_eq!(seen(), Some(number));
                        }
                        sleep(Duration::from_millis(1));
                        assert_eq!(seen(), Some(number));
                    });
                    yield_now();
                    assert_eq!(seen(), None);
                }
            };
            let ended = runtime.run(move || {
                let tasks = [1, 2].map(|number| spawn(serve(number)).unwrap());
                tasks.map(|task| task.join().is_ok())
            });
            assert_eq!(ended.unwrap(), [true, true], "{mode:?}");
        }
    }

    #[test]
    fn what_a_request_spawns_serves_it() {
        let runtime = Runtime::builder().schedulers(2).build().unwrap();
        let seen_there = runtime.run(|| {
            request(3).serve(|| {
                let section = preemptive(WaitType::PREEMPTIVE_OTHER, seen);
                let within = request(4).serve(seen);
                let spawned = [0, 1].map(|_| spawn(seen).unwrap());
                let [one, other] = spawned.map(|task| task.join().unwrap());
                [section, within, one, other, seen()]
            })
        });
        let three = Some(3);
        assert_eq!(seen_there.unwrap(), [three, Some(4), three, three, three]);
    }

    /// A thread that is not a worker publishes, too, and a panic ends the request.
    #[test]
    fn a_panic_ends_the_request() {
        let panicked = std::panic::catch_unwind(|| {
            request(5).serve(|| {
                assert_eq!(seen(), Some(5));
                std::panic::resume_unwind(Box::new(()));
            });
        });
        assert!(panicked.is_err());
        assert_eq!(seen(), None);
    }
}
