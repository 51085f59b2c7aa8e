//! The `io_uring` driver: operations go into one ring, their results come out of another.
//!
//! In fiber mode one thread does both. Completions are therefore processed when that thread asks
//! (`DEFER_TASKRUN`, Linux 6.1), and the kernel sets a flag when there are some. In thread mode any
//! worker's thread may hold the scheduler. There the kernel finishes an operation on the thread
//! that submitted it, which it wakes for that (`task_work`), and the completion appears in the ring
//! without a call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use swtch_observe::clock;

use super::{Interest, IoRequest, Operation, PATIENCE, time_until};
use crate::last_words;
use crate::scheduler::{Mode, Waiter};

/// Most operations that one system call submits; more wait in `backlog` for the next call.
const SUBMISSIONS: u32 = 256;

/// Size of the completion ring. Further completions are kept by the kernel in its own memory
/// (`IORING_FEAT_NODROP`), which is slower.
const COMPLETIONS: u32 = 4096;

/// Submit once this many operations are queued.
const BATCH: u32 = 32;

/// Marks the completion of a cancel request, whose result does not matter.
const STOP: u64 = 0;

/// Marks the completion of the wait for the alarm.
const ALARM: u64 = 1;

/// The rings of one scheduler.
pub(super) struct Uring {
    ring: IoUring,
    completions: cqueue::CompletionStatus,
    /// Entries that found no room in the ring.
    backlog: VecDeque<squeue::Entry>,
    /// Operations that are not submitted yet.
    unsent: u32,
    /// The moment at which the first unsubmitted operation was started, ticks.
    unsent_since: u64,
    /// The moment at which `turn` last found no unread completions, ticks.
    looked: u64,
    patience: u64,
    alarm: RawFd,
    alarm_armed: bool,
    rang: bool,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Uring")
            .field("unsent", &self.unsent)
            .finish_non_exhaustive()
    }
}

/// Builds the rings for this mode.
///
/// # Errors
/// The kernel's error; `ENOSYS` when the kernel is older than 5.11.
pub(super) fn build(mode: Mode) -> io::Result<IoUring> {
    let mut plain = IoUring::builder();
    plain.dontfork().setup_cqsize(COMPLETIONS);
    let ring = match mode {
        Mode::Thread => plain.build(SUBMISSIONS)?,
        Mode::Fiber => {
            let mut single = plain.clone();
            single
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag();
            match single.build(SUBMISSIONS) {
                // Kernels before 6.1 refuse these flags.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    plain.build(SUBMISSIONS)?
                }
                built => built?,
            }
        }
    };
    let has = ring.params();
    if has.is_feature_ext_arg() && has.is_feature_nodrop() && has.is_feature_fast_poll() {
        Ok(ring)
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }
}

impl Uring {
    pub(super) fn new(mode: Mode, alarm: BorrowedFd<'_>) -> io::Result<Self> {
        let mut ring = build(mode)?;
        // SAFETY: `completions` lives beside the ring, and is not used after it.
        let completions = unsafe { ring.completion().status() };
        Ok(Self {
            ring,
            completions,
            backlog: VecDeque::new(),
            unsent: 0,
            unsent_since: 0,
            looked: 0,
            patience: clock::rate().ticks_in(PATIENCE),
            alarm: alarm.as_raw_fd(),
            alarm_armed: false,
            rang: false,
        })
    }

    /// Returns true if the kernel knows all operations and has no completions for us.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.completions.is_empty() && self.unsent == 0 && !self.kernel_wants_a_call()
    }

    /// True if there are completions that only a system call brings into the ring.
    #[inline]
    fn kernel_wants_a_call(&self) -> bool {
        // SAFETY: the holder of the scheduler has no other submission queue borrowed.
        let submissions = unsafe { self.ring.submission_shared() };
        submissions.taskrun() || submissions.cq_overflow()
    }

    pub(super) fn start(&mut self, request: IoRequest<'_>, operation: &Operation) {
        let mark = ptr::from_ref(operation).expose_provenance() as u64;
        self.push(to_entry(request).user_data(mark));
    }

    /// Asks the kernel to cancel an operation. The operation's own completion says whether that
    /// came in time.
    pub(super) fn stop(&mut self, operation: &Operation) {
        let mark = ptr::from_ref(operation).expose_provenance() as u64;
        self.push(opcode::AsyncCancel::new(mark).build().user_data(STOP));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.unsent == 0 {
            self.unsent_since = clock::ticks();
        }
        self.unsent += 1;
        // Nothing may overtake the backlog: a cancel request must come after its operation.
        if self.backlog.is_empty() {
            // SAFETY: buffers and paths live until the completion (see `operation::run`).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Submits, or fetches completions, when that is due.
    pub(super) fn turn(&mut self) {
        if !self.completions.is_empty() {
            return;
        }
        let now = clock::ticks();
        // After a long run the next one may be long as well, so submit now instead of waiting for
        // more.
        let long_run = now.saturating_sub(self.looked) >= self.patience;
        let waited = self.unsent != 0
            && (self.unsent >= BATCH || now.saturating_sub(self.unsent_since) >= self.patience);
        if long_run || waited {
            self.submit();
        }
        self.looked = now;
    }

    /// Submits all operations to the kernel, without waiting.
    fn submit(&mut self) {
        loop {
            self.refill();
            let before = self.unsent;
            if !entered(self.ring.submit()) {
                return;
            }
            self.count_unsent();
            if self.unsent == 0 || self.unsent == before {
                return;
            }
        }
    }

    fn refill(&mut self) {
        let mut submissions = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { submissions.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn count_unsent(&mut self) {
        let unsent = self.ring.submission().len() + self.backlog.len();
        self.unsent = u32::try_from(unsent).unwrap_or(u32::MAX);
    }

    /// Submits and sleeps, until there is a completion or `until`.
    pub(super) fn sleep(&mut self, until: Option<u64>) {
        if !self.alarm_armed {
            let bell = opcode::PollAdd::new(Fd(self.alarm), poll_bits(Interest::Read));
            self.push(bell.build().user_data(ALARM));
            self.alarm_armed = true;
        }
        if self.unsent > SUBMISSIONS {
            self.submit();
        }
        self.refill();
        let slept = match until.map(time_until) {
            None => self.ring.submit_and_wait(1),
            Some(left) => {
                let left = Timespec::new()
                    .sec(left.tv_sec.unsigned_abs())
                    .nsec(u32::try_from(left.tv_nsec).unwrap_or(0));
                let limit = SubmitArgs::new().timespec(&left);
                self.ring.submitter().submit_with_args(1, &limit)
            }
        };
        if !entered(slept) {
            // The kernel is short of memory, so give it some time.
            std::thread::sleep(PATIENCE);
        }
        self.count_unsent();
    }

    pub(super) fn next_completion(&mut self) -> Option<Waiter> {
        loop {
            let completion = self.ring.completion().next()?;
            match completion.user_data() {
                STOP => {}
                ALARM => {
                    self.alarm_armed = false;
                    self.rang = true;
                }
                mark => {
                    let place = usize::try_from(mark).expect("an address of this process");
                    // SAFETY: its worker stays in `operation::run` until it has this result, and
                    // there is one completion for each operation.
                    let operation: &Operation = unsafe { &*ptr::with_exposed_provenance(place) };
                    return Some(operation.complete(completion.result()));
                }
            }
        }
    }

    pub(super) fn take_rang(&mut self) -> bool {
        std::mem::take(&mut self.rang)
    }
}

/// Returns true if the call did its work or was cut short. False when the kernel could not do it now.
fn entered(result: io::Result<usize>) -> bool {
    let Err(error) = result else {
        return true;
    };
    match error.raw_os_error() {
        Some(libc::ETIME | libc::EINTR) => true,
        // No memory for requests, or completions have to be taken out first.
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
        _ => last_words::abort(&format!("swtch-fiber: io_uring_enter: {error}")),
    }
}

fn poll_bits(interest: Interest) -> u32 {
    let bits = match interest {
        Interest::Read => libc::POLLIN,
        Interest::Write => libc::POLLOUT,
    };
    bits.unsigned_abs().into()
}

/// With this offset the kernel uses the file's own position.
const AT_POSITION: u64 = u64::MAX;

fn to_entry(request: IoRequest<'_>) -> squeue::Entry {
    let fd = |descriptor: BorrowedFd<'_>| Fd(descriptor.as_raw_fd());
    // As the kernel itself limits it: `MAX_RW_COUNT`, include/linux/fs.h.
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).min(0x7fff_f000);
    match request {
        IoRequest::Ready {
            descriptor,
            interest,
        } => opcode::PollAdd::new(fd(descriptor), poll_bits(interest)).build(),
        IoRequest::Receive { descriptor, buffer } => {
            opcode::Recv::new(fd(descriptor), buffer.as_mut_ptr(), length(buffer.len())).build()
        }
        IoRequest::Read {
            descriptor,
            buffer,
            offset,
        } => opcode::Read::new(fd(descriptor), buffer.as_mut_ptr(), length(buffer.len()))
            .offset(offset.unwrap_or(AT_POSITION))
            .build(),
        IoRequest::Write {
            descriptor,
            buffer,
            offset,
        } => opcode::Write::new(fd(descriptor), buffer.as_ptr(), length(buffer.len()))
            .offset(offset.unwrap_or(AT_POSITION))
            .build(),
        IoRequest::Sync {
            descriptor,
            metadata,
        } => {
            let flags = if metadata {
                FsyncFlags::empty()
            } else {
                FsyncFlags::DATASYNC
            };
            opcode::Fsync::new(fd(descriptor)).flags(flags).build()
        }
        IoRequest::Open { path, flags, mode } => {
            opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr())
                .flags(flags)
                .mode(mode)
                .build()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::scheduler::alarm::Alarm;
    use crate::scheduler::worker::WorkerCell;

    /// Operations that do not fit into the ring are neither lost nor refused.
    #[test]
    fn more_operations_than_the_ring_holds_are_all_done() {
        let alarm = Alarm::new().expect("a descriptor");
        for mode in [Mode::Fiber, Mode::Thread] {
            let Ok(mut uring) = Uring::new(mode, alarm.descriptor()) else {
                swtch_test::skip!("the kernel refuses io_uring");
            };
            let room = std::fs::File::create("/dev/null").expect("Linux");
            let operations: Vec<_> = (0..3 * SUBMISSIONS)
                .map(|_| {
                    let waiter = Waiter::arm(WorkerCell::take(None), false);
                    Operation::new(waiter, room.as_raw_fd())
                })
                .collect();
            for operation in &operations {
                let request = IoRequest::Write {
                    descriptor: room.as_fd(),
                    buffer: b"x",
                    offset: Some(0),
                };
                uring.start(request, operation);
            }
            assert!(!uring.backlog.is_empty());
            let mut done = 0;
            while done < operations.len() {
                uring.sleep(None);
                while uring.next_completion().is_some() {
                    done += 1;
                }
            }
            assert_eq!(uring.unsent, 0);
        }
    }
}
