//! The price list: what each kind of operation costs on one machine, with everything that is needed to
//! believe it.

use serde::{Deserialize, Serialize};

use super::cliff::Cliff;
use super::estimate::Estimate;
use super::kind::{Members, Place, Policy};
use super::verdict::{Difference, Noise, Verdict};

/// Version of [`PriceList`] as it is written to files. It grows whenever a field changes its meaning;
/// a new field does not need it.
pub const PRICES_VERSION: u32 = 1;

/// How exactly the kernel's count must meet the expected number for a price to be called "per
/// switch".
pub const COUNT_TOLERANCE: f64 = 0.005;

/// The reference arm that stands in every round of every session: 40,000 dependent multiplications and
/// additions in user mode. Another loop must get another name.
pub const REFERENCE: &str = "user-loop-40000";

/// All prices of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PriceList {
    /// [`PRICES_VERSION`] of the program that wrote it.
    pub version: u32,
    /// Where and when it was measured.
    pub origin: Origin,
    /// Facts of the machine that change the answers.
    pub facts: Vec<Fact>,
    /// What was measured at all, and how well.
    pub session: Session,
    /// One row per operation.
    pub prices: Vec<Price>,
    /// What a switch is made of: paired differences.
    pub contrasts: Vec<NamedContrast>,
    /// Costs that depend on a size.
    pub curves: Vec<Curve>,
    /// Where a ring of processes runs out of address-space identifiers, from the curves of rings without
    /// memory; `None` when there is no such step, or it was not measured.
    #[serde(default)]
    pub cliff: Option<Cliff>,
    /// What of a switch lies inside the scheduler.
    #[serde(default)]
    pub kernel_share: Vec<KernelShareRow>,
    /// What this machine does not have, and why.
    pub missing: Vec<Missing>,
}

impl PriceList {
    /// Whether anything was measured at all.
    pub const fn has_values(&self) -> bool {
        !(self.prices.is_empty()
            && self.contrasts.is_empty()
            && self.curves.is_empty()
            && self.kernel_share.is_empty())
    }
}

/// Which machine, kernel and boot a list holds for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the host.
    pub hostname: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub machine: String,
    /// The processor's name.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// `/proc/sys/kernel/random/boot_id`; frequency, mitigations and microcode hold for a boot.
    pub boot_id: String,
    /// When it was measured, RFC 3339 in UTC.
    pub measured_at: String,
    /// Version of swtch.
    pub swtch_version: String,
}

/// One fact of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name; ends in the unit where it has one.
    pub name: String,
    /// Its value; `None` when it could not be read.
    pub value: Option<String>,
    /// Where it was read, or why it could not be.
    pub source: String,
}

/// How the list was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// `quick`, `default` or `thorough`.
    pub effort: String,
    /// Names this session. Only prices of one session were interleaved, and only those may be compared.
    pub id: String,
    /// What the order of the arms was drawn by.
    #[serde(default)]
    pub seed: u64,
    /// Wall time of all of it.
    pub took_s: f64,
    /// [`REFERENCE`] of the program that measured.
    pub reference: String,
    /// Two arms that do the same, for each group: how far the method itself is off.
    pub twins: Vec<NamedContrast>,
    /// The policy of contrasts and curves; `None` in lists from before it was kept.
    #[serde(default)]
    pub contrast_policy: Option<Policy>,
    /// The CPU that was measured on.
    pub cpu: Option<u32>,
    /// It was ended early: kinds may be missing, or have fewer trees than planned.
    pub was_interrupted: bool,
    /// What is known about the machine meanwhile.
    pub noise: Noise,
    /// What the measurement is worth.
    pub verdict: Verdict,
    /// Whether every headline is resolved.
    pub is_resolved: bool,
}

/// What one operation costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The operation: a primitive's word, or another kind's name.
    pub kind: String,
    /// The section of the table it belongs to.
    pub section: String,
    /// Who takes turns; `None` for operations of a single task.
    pub members: Option<Members>,
    /// How many of them.
    pub count: Option<u32>,
    /// Where they run.
    pub place: Option<Place>,
    /// Their policy.
    pub policy: Option<Policy>,
    /// Wall time per operation: the hand-off of a ring.
    pub hand_off_ns: Estimate,
    /// The same calls without a peer.
    pub baseline_ns: Option<Estimate>,
    /// Hand-off less baseline, paired round by round.
    pub net_ns: Option<Estimate>,
    /// Voluntary switches per operation, counted by the kernel.
    pub voluntary_per_op: f64,
    /// Involuntary ones.
    pub involuntary_per_op: f64,
    /// What the price is for.
    pub per: Per,
    /// Hand-off as a multiple of an empty system call of the same rounds.
    pub system_calls: Option<f64>,
    /// Hand-off as a multiple of [`REFERENCE`], paired round by round: what is left when the machine's
    /// speed is taken out. Lists of two sessions can be compared by nothing else.
    pub relative: Option<Estimate>,
    /// Rounds that were dropped, for declared reasons.
    pub dropped_rounds: usize,
}

/// What a price may be divided by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "per", content = "because")]
pub enum Per {
    /// One switch: the kernel counted as many as expected, within [`COUNT_TOLERANCE`].
    Switch,
    /// One operation, for this reason.
    Operation(String),
}

impl Per {
    /// Judges the count of an operation that is expected to be `expected` switches.
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
    /// What differs: `address-space`, `avx512`, `ibpb`.
    pub name: String,
    /// What it says, in one line.
    pub about: String,
    /// With it less without it.
    pub difference_ns: Estimate,
    /// With it over without it.
    pub ratio: Estimate,
    /// Probability of a difference at least as large without any, adjusted for the number of contrasts
    /// (Holm).
    pub p: f64,
    /// It must come to 0: the name of what it controls.
    pub control_of: Option<String>,
    /// What was seen of the state that differs: register components that the CPU had in use at the
    /// switches (XINUSE on x86-64), with and without.
    #[serde(default)]
    pub proof: Option<String>,
    /// Whether there is a difference, measured against two arms that do the same.
    pub verdict: Difference,
}

/// Cost against size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name: `working-set-random-private`.
    pub name: String,
    /// What the line is, as a legend says it.
    pub label: String,
    /// Which figure it belongs to: `working-set`, `tlb`, `branches`.
    pub figure: String,
    /// What the size is, with its unit: `working_set_bytes`.
    pub size_is: String,
    /// The points, by size.
    pub points: Vec<Point>,
}

/// One point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size.
    pub size: f64,
    /// What a hop costs net of the same work hot and alone.
    pub net_ns: Estimate,
    /// The same work, hot and alone.
    pub hot_ns: Option<Estimate>,
}

/// How much of a switch lies inside the scheduler itself: in `__schedule()`, from `sched_entry_tp` in the
/// task that leaves to `sched_exit_tp` in the task that comes.
///
/// The system call, the wakeup of the other task and the way out of the kernel are not in it. Trees with
/// the probes and trees without took turns; `net_ns` and `hand_off_ns` are of those without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelShareRow {
    /// The primitive's word.
    pub kind: String,
    /// Who takes turns.
    pub members: Members,
    /// Their policy.
    pub policy: Policy,
    /// Switches that the probes counted.
    pub switches: u64,
    /// Mean length, less `probe_ns`: a value a round.
    pub share_ns: Estimate,
    /// What the probes themselves put into the length, measured on the same switches and taken off.
    pub probe_ns: Estimate,
    /// Half of all switches took no longer, `probe_ns` included.
    pub p50_ns: Option<f64>,
    /// 99 % of all switches took no longer, `probe_ns` included.
    pub p99_ns: Option<f64>,
    /// Hand-off less baseline, without probes.
    pub net_ns: Estimate,
    /// Hand-off without probes.
    pub hand_off_ns: Estimate,
    /// `share_ns` of each tree in per cent of `net_ns` of the tree beside it.
    pub share_pct_of_net: Estimate,
    /// How much longer a hand-off is with the probes: each tree less the tree beside it.
    pub slow_down_ns: Estimate,
}

/// A kind that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub kind: String,
    /// Why.
    pub why: String,
}
