//! An interrupt of another CPU after which the same task goes on.
//!
//! A perf event of a CPU is read on that CPU: the reader sends it an interrupt and waits for the answer
//! (`perf_event_read` in `kernel/events/core.c`, v6.18: `smp_call_function_single`). The event counts nothing (`DUMMY`),
//! so it takes no counter of the hardware. Seen on 6.18 (KVM): 10,000 reads, 10,000 more function call interrupts of that
//! CPU, none of another.

use crate::cost::counted_event::{CountedEvent, EventChoice};
use crate::error::Error;

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_DUMMY` (`include/uapi/linux/perf_event.h`).
const DUMMY: EventChoice = EventChoice {
    kind: 1,
    config: 9,
    flags: 0,
};

/// A CPU that can be interrupted.
#[derive(Debug)]
pub(super) struct InterruptedCpu(CountedEvent);

impl InterruptedCpu {
    /// Opens the event of a CPU, which takes root or `CAP_PERFMON`.
    pub(super) fn open(cpu: u32) -> Result<Self, Error> {
        let any_thread = -1;
        CountedEvent::open(DUMMY, any_thread, cpu.cast_signed()).map(Self)
    }

    /// Interrupts the CPU, and returns when it has answered.
    pub(super) fn interrupt(&self) -> Result<(), Error> {
        self.0.count().map(drop)
    }
}
