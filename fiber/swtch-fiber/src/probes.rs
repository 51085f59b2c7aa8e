//! Static probes (USDT) for tracers: `bpftrace -e 'usdt:./program:swtch:switch { … }' -p PID`.
//!
//! A probe is a `nop` in the code whose address is given by a note in the program's file (section
//! `.note.stapsdt`). A listener asks the kernel to put a breakpoint or a call there. Without a
//! listener a probe costs one load: the note also names a counter of listeners (a *semaphore*), and
//! while it is 0 the arguments are not even computed.
//!
//! All probes are of the provider `swtch` and have the same five arguments, 8 bytes each:
//!
//! | argument | meaning |
//! |---|---|
//! | `arg0` | number of the scheduler in its runtime |
//! | `arg1` | number of the worker |
//! | `arg2` | the task's id, 0 for none |
//! | `arg3` | wait type, 0 for none |
//! | `arg4` | how long what ended here took, ns; 0 where nothing ended or no clock is read |
//!
//! The probed code is a `nop` of one byte and one of five. Kernels that turn a probed five-byte
//! `nop` into a call (x86-64, Linux 6.18) use the second, which halves the cost of a hit compared
//! with a breakpoint; tools without this feature use the first, which the note names. That call
//! pushes its return address *below* the stack pointer, where a leaf function may keep data (the
//! red zone). The assembly therefore does not promise the compiler to leave the stack alone, and
//! its functions are not inlined.

/// The arguments of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Number of the scheduler in its runtime.
    pub scheduler: u64,
    /// Number of the worker in the page.
    pub worker: u64,
    /// Id of the task, 0 for none.
    pub task: u64,
    /// Number of the wait type, 0 for none.
    pub wait_type: u64,
    /// Length of the span that ended here, ns; 0 if none.
    pub ns: u64,
}

/// Makes a module with one probe: its semaphore, and the function that hits it.
///
/// The note has the layout of `sys/sdt.h` of `SystemTap`, version 3: the addresses of the probe, of
/// `.stapsdt.base` (which shows a tool whether the file was prelinked) and of the semaphore; then
/// provider, name, and the location of each argument.
macro_rules! probe {
    ($function:ident, $name:literal, $what:literal) => {
        #[doc = concat!("Probe `swtch:", $name, "`: ", $what)]
        ///
        /// `arguments` is called only while a listener is attached.
        #[inline]
        pub fn $function(arguments: impl FnOnce() -> Arguments) {
            if $function::has_listener() {
                $function::hit(arguments());
            }
        }

        mod $function {
            use std::sync::atomic::{AtomicU16, Ordering};

            /// Number of listeners; the kernel or the tool changes it from outside.
            ///
            /// It is in the section where `bpftrace` and `perf` look for it.
            #[unsafe(link_section = ".probes")]
            static LISTENERS: AtomicU16 = AtomicU16::new(0);

            /// True while a listener is attached.
            #[inline]
            pub(super) fn has_listener() -> bool {
                LISTENERS.load(Ordering::Relaxed) != 0
            }

            /// Contains the instructions that are probed.
            #[cold]
            #[inline(never)]
            pub(super) fn hit(arguments: super::Arguments) {
                $crate::arch::hit_probe!($name, LISTENERS, arguments);
            }
        }
    };
}

probe!(
    switch,
    "switch",
    "a worker was switched out, as `context_switches_count` counts it; `ns` is how long it had run."
);
probe!(
    yield_,
    "yield",
    "a worker gave the scheduler up and stays runnable, also when it is chosen again at once; `ns` is how long it had run."
);
probe!(
    wait_begin,
    "wait_begin",
    "a worker begins to wait, or a preemptive section."
);
probe!(
    wait_end,
    "wait_end",
    "a worker runs again after that; `ns` is all the time since, with that until its turn."
);
probe!(
    preempt_begin,
    "preempt_begin",
    "a worker leaves the scheduler to run preemptively."
);
probe!(
    preempt_end,
    "preempt_end",
    "a worker wants to come back; `ns` is how long it was preemptive."
);
probe!(
    task_start,
    "task_start",
    "a task runs for the first time; `ns` is how long it waited for a worker and its turn."
);
probe!(
    task_done,
    "task_done",
    "a task ended; `ns` is how long it had run."
);
probe!(
    stall,
    "stall",
    "the monitor reports a stall; `ns` is its length so far."
);
probe!(
    idle,
    "idle",
    "a scheduler had nothing to run; `ns` is how long it slept."
);

#[cfg(test)]
mod tests;
