//! The price list: what each kind of operation costs on one machine, and the evidence for it.

use serde::{Deserialize, Serialize};

use super::cliff::Cliff;
use super::estimate::Estimate;
use super::kind::{Members, Place, Policy};
use super::verdict::{Difference, MeasurementVerdict, Noise};

/// Version of [`PriceList`] as it is written to files. It grows whenever a field changes its
/// meaning; a new field does not need it.
pub const PRICES_VERSION: u32 = 1;

/// The most by which the kernel's count may differ from the expected number, as a fraction of it, for a price to be
/// called "per switch".
pub const COUNT_TOLERANCE: f64 = 0.005;

/// The reference arm, measured in every round of every session: 40,000 dependent multiplications
/// and additions in user mode. Another loop must get another name.
pub const REFERENCE: &str = "user-loop-40000";

/// Name of the contrast that says what one more eBPF program on `sched_switch` costs a switch.
pub const EMPTY_PROGRAM: &str = "empty-program";

/// All prices of one machine, measured in one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PriceList {
    /// [`PRICES_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The machine, kernel and boot that the prices hold for.
    pub origin: Origin,
    /// Facts of the machine that change the answers.
    pub facts: Vec<PriceFact>,
    /// The session in which the list was measured.
    pub session: Session,
    /// One row for each operation that was measured.
    pub prices: Vec<Price>,
    /// Paired differences: what the parts of a switch cost.
    pub contrasts: Vec<NamedContrast>,
    /// Costs that depend on a size, such as the working set.
    pub curves: Vec<Curve>,
    /// The step at which a ring of processes runs out of address-space identifiers, from the curves of rings without
    /// memory; `None` when there is no such step, or it was not measured.
    #[serde(default)]
    pub cliff: Option<Cliff>,
    /// The part of a switch that is spent inside the scheduler.
    #[serde(default)]
    pub kernel_share: Vec<KernelShareRow>,
    /// Kinds that this machine could not measure, and why.
    pub missing: Vec<MissingPrice>,
}

impl PriceList {
    /// Returns true if anything was measured at all.
    pub const fn has_values(&self) -> bool {
        !(self.prices.is_empty()
            && self.contrasts.is_empty()
            && self.curves.is_empty()
            && self.kernel_share.is_empty())
    }
}

/// The machine, kernel and boot that a list holds for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the host that was measured.
    pub hostname: String,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Version of the kernel, as `uname -v` prints it.
    pub kernel_version: String,
    /// Architecture of the machine, as `uname -m` prints it.
    pub machine: String,
    /// Model name of the processor.
    pub cpu_model: String,
    /// Number of CPUs that were online.
    pub cpus: usize,
    /// `/proc/sys/kernel/random/boot_id`; frequency, mitigations and microcode hold for one boot.
    pub boot_id: String,
    /// The moment of the measurement, RFC 3339 in UTC.
    pub measured_at: String,
    /// Version of swtch that measured.
    pub swtch_version: String,
}

/// One fact of the machine that changes the answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceFact {
    /// Name of the fact; it ends in the unit where there is one.
    pub name: String,
    /// Value of the fact; `None` when it could not be read.
    pub value: Option<String>,
    /// The place where the value was read, or why it could not be.
    pub source: String,
}

/// A session of measurements: how a list was measured, and how well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The effort, which is the time spent measuring: `quick`, `default` or `thorough`.
    pub effort: String,
    /// Names this session. Only prices of one session were interleaved, and only those may be
    /// compared.
    pub id: String,
    /// Seed from which the order of the arms was drawn.
    #[serde(default)]
    pub seed: u64,
    /// Wall time of the whole session, in seconds.
    pub took_s: f64,
    /// [`REFERENCE`] of the program that measured.
    pub reference: String,
    /// For each group, two arms that do the same: their difference is the error of the method
    /// itself.
    pub twins: Vec<NamedContrast>,
    /// The policy of contrasts and curves; `None` in lists from before it was kept.
    #[serde(default)]
    pub contrast_policy: Option<Policy>,
    /// The CPU on which the arms ran.
    pub cpu: Option<u32>,
    /// The session was ended early: kinds may be missing, or have fewer trees than planned.
    pub was_interrupted: bool,
    /// The facts about the machine during the measurement.
    pub noise: Noise,
    /// The verdict on what the measurement is worth.
    pub verdict: MeasurementVerdict,
    /// True if every headline result is resolved.
    pub is_resolved: bool,
}

/// The cost of one operation on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The operation: a primitive's word, or the name of another kind.
    pub kind: String,
    /// The section of the table that it belongs to.
    pub section: String,
    /// The members that take turns, threads or processes; `None` for operations of a single task.
    pub members: Option<Members>,
    /// Number of members that take turns.
    pub count: Option<u32>,
    /// CPUs on which the members run.
    pub place: Option<Place>,
    /// Scheduling policy of the members.
    pub policy: Option<Policy>,
    /// Wall time per operation; in a ring, of one hand-off.
    pub hand_off_ns: Estimate,
    /// Wall time per operation of the same calls without a peer.
    pub baseline_ns: Option<Estimate>,
    /// Hand-off less baseline, paired round by round.
    pub net_ns: Option<Estimate>,
    /// Voluntary switches per operation, counted by the kernel.
    pub voluntary_per_op: f64,
    /// Involuntary switches per operation, counted by the kernel.
    pub involuntary_per_op: f64,
    /// The unit of the price: one switch, or one operation.
    pub per: PriceUnit,
    /// Hand-off as a multiple of an empty system call of the same rounds.
    pub system_calls: Option<f64>,
    /// Hand-off as a multiple of [`REFERENCE`], paired round by round, which takes out the
    /// machine's speed. Lists of two sessions can be compared by nothing else.
    pub relative: Option<Estimate>,
    /// Rounds that were dropped, for declared reasons.
    pub dropped_rounds: usize,
}

/// The unit of a price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "per", content = "because")]
pub enum PriceUnit {
    /// One switch: the kernel counted as many as expected, within [`COUNT_TOLERANCE`].
    Switch,
    /// One operation; the text says why it is not one switch.
    Operation(String),
}

impl PriceUnit {
    /// Compares the kernel's switches per operation with the `expected` number.
    pub fn judge(counted_per_op: f64, expected: f64) -> Self {
        if expected == 0.0 {
            return Self::Operation("no switch is expected".to_owned());
        }
        let ratio = counted_per_op / expected;
        if (ratio - 1.0).abs() <= COUNT_TOLERANCE {
            Self::Switch
        } else {
            Self::Operation(format!(
                "the kernel counted {counted_per_op:.3} switches a hop, not {expected}"
            ))
        }
    }
}

/// Two arms that differ in one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedContrast {
    /// The thing that differs: `address-space`, `avx512`, `ibpb`.
    pub name: String,
    /// Meaning of the contrast, in one line.
    pub about: String,
    /// Cost with the thing, minus cost without it.
    pub difference_ns: Estimate,
    /// Cost with the thing, divided by cost without it.
    pub ratio: Estimate,
    /// Probability of a difference at least as large if there were none, adjusted for the number of
    /// contrasts (Holm).
    pub p: f64,
    /// Name of the contrast that this one controls. A control should come to 0.
    pub control_of: Option<String>,
    /// Evidence that the state did differ: register components that the CPU had in use at the
    /// switches (XINUSE on x86-64), with and without.
    #[serde(default)]
    pub proof: Option<String>,
    /// The verdict whether there is a difference, by comparison with two arms that do the same.
    pub verdict: Difference,
}

/// A cost as a function of a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Name of the curve, such as `working-set-random-private`.
    pub name: String,
    /// Text for the legend of a plot.
    pub label: String,
    /// The figure that the curve belongs to: `working-set`, `tlb`, `branches`.
    pub figure: String,
    /// Meaning of the size, with its unit: `working_set_bytes`.
    pub size_is: String,
    /// Points of the curve, in order of size.
    pub points: Vec<Point>,
}

/// One point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size, in the unit that [`Curve::size_is`] names.
    pub size: f64,
    /// Cost of a hop minus the same work without switches, with hot caches.
    pub net_ns: Estimate,
    /// Cost of the same work without switches, with hot caches.
    pub hot_ns: Option<Estimate>,
}

/// The part of a switch that is spent inside the scheduler itself: in `__schedule()`, from `sched_entry_tp` in the task
/// that leaves to `sched_exit_tp` in the task that comes.
///
/// The system call, the wakeup of the other task and the return from the kernel are not included.
/// Trees with the probes and trees without took turns; `net_ns` and `hand_off_ns` are of those
/// without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelShareRow {
    /// The primitive by which the members switch, as a word.
    pub kind: String,
    /// The members that take turns: threads or processes.
    pub members: Members,
    /// Scheduling policy of the members.
    pub policy: Policy,
    /// Number of switches that the probes counted.
    pub switches: u64,
    /// Mean time in `__schedule()`, less `probe_ns`; each round gives one value.
    pub share_ns: Estimate,
    /// Time that the probes themselves add to the length, measured on the same switches and
    /// subtracted.
    pub probe_ns: Estimate,
    /// Median over all switches, `probe_ns` included.
    pub p50_ns: Option<f64>,
    /// 99th percentile over all switches, `probe_ns` included.
    pub p99_ns: Option<f64>,
    /// Hand-off less baseline, in trees without probes.
    pub net_ns: Estimate,
    /// Wall time of a hand-off in trees without probes.
    pub hand_off_ns: Estimate,
    /// `share_ns` of each tree in per cent of `net_ns` of the tree beside it.
    pub share_pct_of_net: Estimate,
    /// The time by which a hand-off takes longer with the probes: each tree less the tree beside it.
    pub slow_down_ns: Estimate,
}

/// A kind that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPrice {
    /// Name of the kind that is missing.
    pub kind: String,
    /// The reason why it could not be measured, in words.
    pub why: String,
}
