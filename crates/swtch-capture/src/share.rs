//! Measures how much of a switch is spent inside the scheduler itself: `__schedule()`, on one CPU.
//!
//! ```text
//!   task that leaves        sched_entry_tp ┐          what is counted, with the probes' own part
//!                             __schedule() │ length   [`ShareCounts::mean_ns`]
//!   task that comes          sched_exit_tp ┘┐ echo    the probes' own part alone
//!                                           ┘         [`ShareCounts::probe_ns`]
//! ```
//!
//! Included in the length: everything from the first lines of `__schedule()` to its last ones,
//! which run in the task that comes. That is choosing this task, switching memory, registers and
//! stacks, releasing the run queue, and whatever interrupts or a hypervisor did meanwhile. Not
//! included: entering and leaving the kernel, the system call, waking the other task
//! (`try_to_wake_up`), the rest of `schedule()`, and the effect of cold caches afterwards.
//!
//! Also included is the end of the first probe, after it read the clock, and the beginning of the
//! second. The echo measures just that, on every switch and outside the length: the ends of the
//! same two programs, one after the other on one tracepoint (`bpf/share.bpf.c`).
//!
//! Not known: the two tracepoints call their programs a little differently (some ns). And reading
//! the clock waits for earlier instructions, so work that would have overlapped across the two
//! tracepoints no longer does.
//!
//! Other programs on the same tracepoints, such as a recording, lengthen what is measured here.

use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::Ordering;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::{Btf, types::Typedef};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use swtch_core::CpuId;

use crate::error::Error;
use crate::mapped::Mapped;
use crate::probe::VMLINUX_BTF;
use crate::refusal;
use crate::skeleton::share::types::{share_counts, share_state};
use crate::skeleton::share::{ShareSkel, ShareSkelBuilder};

/// Both are needed; the first argument of each has been the same since they came with 6.15.
const HOOKS: [&str; 2] = ["sched_entry_tp", "sched_exit_tp"];

/// `SHARE_STEPS` of `bpf/share.h`: slots for each doubling of the length.
const STEPS: usize = 32;

/// `SHARE_SLOTS` of `bpf/share.h`: all slots.
const SLOTS: usize = 513;

/// The tasks whose switches count. Switches to or from idle never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredTasks {
    /// Switches between any two tasks.
    Everyone,
    /// Switches between two tasks of this policy (`SCHED_BATCH`, …), which separates the tasks of a
    /// benchmark from all others on a busy CPU.
    Policy(u32),
}

/// Lengths of `__schedule()` for some switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareCounts {
    /// Number of switches that were counted.
    pub switches: u64,
    /// Sum of their lengths, including the probes' own part.
    pub total_ns: u64,
    /// Switches whose echo was measured; as many as `switches`, unless the kernel calls the
    /// programs in another order than they were attached.
    pub echoes: u64,
    /// Sum of all echoes: the probes' own part.
    pub echo_ns: u64,
    slots: Vec<u64>,
}

/// Lengths of switches, by whether the process changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Switches between threads of one process.
    pub within: ShareCounts,
    /// Switches between two different processes.
    pub across: ShareCounts,
}

impl ShareCounts {
    fn none() -> Self {
        Self {
            switches: 0,
            total_ns: 0,
            echoes: 0,
            echo_ns: 0,
            slots: vec![0; SLOTS],
        }
    }

    /// The counts that were added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let slots = self.slots.iter().zip(&before.slots);
        Self {
            switches: self.switches.saturating_sub(before.switches),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            echoes: self.echoes.saturating_sub(before.echoes),
            echo_ns: self.echo_ns.saturating_sub(before.echo_ns),
            slots: slots.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// The sums of both counts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let slots = self.slots.iter().zip(&other.slots);
        Self {
            switches: self.switches + other.switches,
            total_ns: self.total_ns + other.total_ns,
            echoes: self.echoes + other.echoes,
            echo_ns: self.echo_ns + other.echo_ns,
            slots: slots.map(|(one, other)| one + other).collect(),
        }
    }

    /// Mean length with the probes' own part; `None` without a switch.
    pub fn mean_ns(&self) -> Option<f64> {
        mean(self.total_ns, self.switches)
    }

    /// Mean of the probes' own part; `None` when it is not known for these switches.
    pub fn probe_ns(&self) -> Option<f64> {
        // User space reads while the kernel counts: one switch may fall between the two reads.
        let is_known = self.echoes + 1 >= self.switches;
        mean(self.echo_ns, self.echoes).filter(|_| is_known)
    }

    /// Mean length without the probes' own part.
    pub fn share_ns(&self) -> Option<f64> {
        Some(self.mean_ns()? - self.probe_ns()?)
    }

    /// The length, with the probes' own part, that this `fraction` (0 to 1) of all switches did not
    /// exceed: the middle of its slot, known within 3 %. `None` without a switch or when it is 1 ms
    /// or longer.
    pub fn quantile_ns(&self, fraction: f64) -> Option<f64> {
        let counted: u64 = self.slots.iter().sum();
        let wanted = fraction.clamp(0.0, 1.0) * as_f64(counted);
        let mut seen = 0;
        let slot = self.slots.iter().position(|count| {
            seen += count;
            seen > 0 && as_f64(seen) >= wanted
        })?;
        let (low, width) = slot_bounds(slot)?;
        Some(as_f64(low) + (as_f64(width) - 1.0) / 2.0)
    }
}

fn mean(total_ns: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| as_f64(total_ns) / as_f64(count))
}

/// The shortest length of a slot, and how many ns it covers; `None` for the last, which has no end.
fn slot_bounds(slot: usize) -> Option<(u64, u64)> {
    if slot + 1 >= SLOTS {
        return None;
    }
    let shift = (slot / STEPS).saturating_sub(1);
    let low = (slot - shift * STEPS) as u64;
    Some((low << shift, 1 << shift))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and lengths are far below 2^53"
)]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// The attached probes. Dropping them detaches them.
pub struct KernelShare {
    // Declared first: the mapping and the links go before the maps and programs.
    state: Mapped<share_state>,
    _skel: ShareSkel<'static>,
    before: Shares,
}

impl fmt::Debug for KernelShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelShare").finish_non_exhaustive()
    }
}

impl KernelShare {
    /// Attaches the probes for one CPU. They count from [`Self::open`] on. The probes run on the
    /// other CPUs, too, but return there at once.
    ///
    /// # Errors
    /// When privileges, BTF or a tracepoint is missing (Linux before 6.15).
    pub fn attach(cpu: CpuId, whose: MeasuredTasks) -> Result<Self, Error> {
        refusal::listen();
        require_hooks()?;
        // When the skeleton is dropped, only a few bytes of this storage stay allocated.
        let storage: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ShareSkelBuilder::default()
            .open(storage)
            .map_err(Error::of_load)?;
        let Some(constants) = open.maps.rodata_data.as_deref_mut() else {
            unreachable!("the object has constants")
        };
        constants.only_cpu = u32::from(cpu.get());
        constants.only_policy = match whose {
            MeasuredTasks::Everyone => -1,
            MeasuredTasks::Policy(policy) => i32::try_from(policy).unwrap_or(i32::MAX),
        };
        let mut skel = open.load().map_err(Error::of_load)?;
        let state = Mapped::new(&skel.maps.share, 1)?;
        macro_rules! attach {
            ($($program:ident),+) => {
                $(skel.links.$program = Some(skel.progs.$program.attach().map_err(|source| {
                    Error::Attach { program: stringify!($program).to_owned(), source }
                })?);)+
            };
        }
        // The kernel calls the programs of one tracepoint in the order in which they were attached.
        attach!(share_exit, echo_entry, echo_exit, share_entry);
        Ok(Self {
            state,
            _skel: skel,
            before: Shares {
                within: ShareCounts::none(),
                across: ShareCounts::none(),
            },
        })
    }

    /// Starts counting switches from now on.
    pub fn open(&self) {
        self.state
            .word(0, offset_of!(share_state, is_open))
            .store(1, Ordering::Release);
    }

    /// Stops counting. A call of `__schedule()` in progress still counts.
    pub fn close(&self) {
        self.state
            .word(0, offset_of!(share_state, is_open))
            .store(0, Ordering::Release);
    }

    /// Starts the counts again from zero.
    pub fn reset(&mut self) {
        self.before = self.all();
    }

    /// The counts since the last [`Self::reset`].
    pub fn read(&self) -> Shares {
        let now = self.all();
        Shares {
            within: now.within.since(&self.before.within),
            across: now.across.since(&self.before.across),
        }
    }

    /// The counts since the probes were attached.
    fn all(&self) -> Shares {
        Shares {
            within: self.counts(0),
            across: self.counts(1),
        }
    }

    fn counts(&self, kind: usize) -> ShareCounts {
        let base = offset_of!(share_state, counts) + kind * size_of::<share_counts>();
        const { assert!(size_of::<[u64; SLOTS]>() + 32 == size_of::<share_counts>()) };
        let read = |offset: usize| self.state.word(0, base + offset).load(Ordering::Acquire);
        let slots = offset_of!(share_counts, slots);
        ShareCounts {
            switches: read(offset_of!(share_counts, switches)),
            total_ns: read(offset_of!(share_counts, total_ns)),
            echoes: read(offset_of!(share_counts, echoes)),
            echo_ns: read(offset_of!(share_counts, echo_ns)),
            slots: (0..SLOTS).map(|slot| read(slots + slot * 8)).collect(),
        }
    }
}

fn require_hooks() -> Result<(), Error> {
    std::fs::metadata(VMLINUX_BTF).map_err(Error::NoBtf)?;
    let btf = Btf::from_path(VMLINUX_BTF).map_err(Error::Load)?;
    let is_missing = |hook: &&&str| {
        btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{hook}"))
            .is_none()
    };
    match HOOKS.iter().find(is_missing) {
        Some(hook) => Err(Error::NoShareHook(hook)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slot of a length, computed as in `bpf/share.bpf.c`.
    fn slot_of(ns: u64) -> usize {
        let slot = match ns {
            0..64 => ns,
            64..0x10_0000 => {
                let shift = u64::from(ns.ilog2()) - 5;
                shift * STEPS as u64 + (ns >> shift)
            }
            _ => SLOTS as u64 - 1,
        };
        usize::try_from(slot).expect("there are few slots")
    }

    /// No length falls between two slots or into two.
    #[test]
    fn slots_lie_side_by_side() {
        let mut next = 0;
        for slot in 0..SLOTS - 1 {
            let (low, width) = slot_bounds(slot).expect("only the last has no end");
            assert_eq!(low, next, "slot {slot}");
            assert_eq!(slot_of(low), slot);
            assert_eq!(slot_of(low + width - 1), slot);
            next = low + width;
        }
        assert_eq!(next, 1 << 20);
        assert_eq!(slot_bounds(SLOTS - 1), None);
    }

    fn counts(lengths: &[u64], echo_ns: u64) -> ShareCounts {
        let mut counts = ShareCounts::none();
        for length in lengths {
            counts.switches += 1;
            counts.total_ns += length;
            counts.echoes += 1;
            counts.echo_ns += echo_ns;
            counts.slots[slot_of(*length)] += 1;
        }
        counts
    }

    #[test]
    fn the_probes_own_part_is_taken_off_the_mean() {
        let counts = counts(&[300, 500], 60);
        assert_eq!(counts.mean_ns(), Some(400.0));
        assert_eq!(counts.share_ns(), Some(340.0));
        assert_eq!(ShareCounts::none().share_ns(), None);
    }

    /// Without the echoes the share would be too large by an unknown part, so there is none.
    #[test]
    fn without_echoes_there_is_no_share() {
        let mut counts = counts(&[300, 500, 700], 60);
        counts.echoes = 1;
        assert_eq!(counts.probe_ns(), None);
        assert_eq!(counts.share_ns(), None);
    }

    #[test]
    fn quantiles_are_the_middle_of_their_slot() {
        let counts = counts(&[10, 11, 12, 500], 0);
        assert_eq!(counts.quantile_ns(0.5), Some(11.0));
        let longest = counts.quantile_ns(1.0).expect("it was counted");
        assert!((longest / 500.0 - 1.0).abs() < 0.03, "{longest}");
        assert_eq!(ShareCounts::none().quantile_ns(0.5), None);
    }

    #[test]
    fn what_was_there_before_does_not_count() {
        let before = counts(&[10, 20], 5);
        let now = before.plus(&counts(&[30], 5));
        assert_eq!(now.since(&before), counts(&[30], 5));
    }
}
