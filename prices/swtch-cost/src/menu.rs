//! The menu of what can be measured: sections of groups, and how much of each a given effort buys.
//!
//! A **group** is measured side by side, block by block; only arms of one group are compared. Each
//! group holds the arms of one question, a twin of its first arm (A/A: two arms that do the
//! same must come out the same), and the empty system call that prices are set against.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use swtch_bench::cost::{ArmSpec, Plan, RingSpec, check_cpu, home, may_use_fifo};
use swtch_core::cost::{Members, MissingPrice, Policy};

use super::series::ArmOperation;
use super::{empty_program, share};

mod contrasts;
mod curves;
mod others;
mod switches;

pub use curves::{STRIDES, WalkPattern};
pub use others::{uncontended, uncontended_name};

/// The amount of time that a session takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The prices that `explain` needs, in ten seconds.
    Quick,
    /// All sections, in a minute.
    Default,
    /// All sections with all their sizes, in minutes.
    Thorough,
}

impl Effort {
    /// Time after which no tree is begun to narrow intervals; what is planned is done in any case.
    pub const fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 8,
            Self::Default => 50,
            Self::Thorough => 1200,
        })
    }

    /// Its word in a saved list.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Thorough => "thorough",
        }
    }
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Hand-overs on one CPU: what a switch costs.
    Switch,
    /// Hand-overs across CPUs: remote wake-ups.
    Place,
    /// Switches that the kernel does not see.
    User,
    /// Starts of threads, processes and programs.
    Launch,
    /// Operations to compare a switch with.
    Yardstick,
    /// Contrasts that show the parts of a switch.
    Contrast,
    /// Cost of a switch over a size.
    Curve,
    /// Checks of the method against itself.
    SelfCheck,
}

impl Section {
    /// All sections, in the order of the table.
    pub const ALL: &'static [Self] = &[
        Self::Switch,
        Self::Place,
        Self::User,
        Self::Launch,
        Self::Yardstick,
        Self::Contrast,
        Self::Curve,
        Self::SelfCheck,
    ];

    /// The word on the command line and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Place => "place",
            Self::User => "user",
            Self::Launch => "launch",
            Self::Yardstick => "yardstick",
            Self::Contrast => "contrast",
            Self::Curve => "curve",
            Self::SelfCheck => "self-check",
        }
    }

    /// Its heading in the table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Switch => "A switch between two tasks of one CPU",
            Self::Place => "The same hand-overs across CPUs: remote wake-ups, not switches",
            Self::User => "Switches in user mode, which the kernel does not see",
            Self::Launch => "Tasks that are started",
            Self::Yardstick => "To compare with",
            Self::Contrast => "What a switch is made of: one thing differs, all else is the same",
            Self::Curve => "What a switch costs afterwards",
            Self::SelfCheck => "The method against itself",
        }
    }
}

/// The use of an arm's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// A row of the table.
    Price,
    /// The system call that prices are set against; a row too, once.
    Reference,
    /// It does the same as the arm of this index.
    Twin(usize),
    /// Only part of a contrast or a curve.
    Part,
}

/// An arm of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The work that is timed.
    pub spec: ArmSpec,
    /// The operation's name in the table.
    pub kind: String,
    /// The use of its time.
    pub role: Role,
}

impl Arm {
    /// A ring, called by its primitive.
    pub fn ring(spec: RingSpec, role: Role) -> Self {
        Self {
            kind: spec.primitive.as_str().to_owned(),
            spec: ArmSpec::Ring(spec),
            role,
        }
    }

    /// The same arm, called `kind` in the table.
    #[must_use]
    pub fn named(self, kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            ..self
        }
    }

    /// The section of its rows: that of its group, but the system call is always a yardstick.
    pub fn section(&self, of_group: Section) -> Section {
        match self.role {
            Role::Reference => Section::Yardstick,
            _ => of_group,
        }
    }

    /// The rows that it makes in the table: most make one.
    pub fn rows(&self) -> Vec<PriceRow> {
        let row = |kind: &str, timed_operation, baseline| PriceRow {
            kind: kind.to_owned(),
            timed_operation,
            baseline,
        };
        match self.spec {
            ArmSpec::Ring(_) => vec![row(&self.kind, 0, Some(1))],
            ArmSpec::Coroutine { .. } => vec![
                row(&format!("{}, bare", self.kind), 0, None),
                row(&format!("{}, in situ", self.kind), 1, Some(2)),
            ],
            _ => vec![row(&self.kind, 0, None)],
        }
    }

    /// The operation's name; of a ring with members, place and policy.
    pub fn describe(&self) -> String {
        match self.as_ring() {
            Some(ring) => format!(
                "{} ({}, {}, {})",
                self.kind, ring.members, ring.place, ring.policy
            ),
            None => self.kind.clone(),
        }
    }

    /// The ring, when it is one.
    pub const fn as_ring(&self) -> Option<&RingSpec> {
        match &self.spec {
            ArmSpec::Ring(ring) => Some(ring),
            _ => None,
        }
    }
}

/// A row that an arm makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceRow {
    /// The operation's name in the table.
    pub kind: String,
    /// Which of the arm's operations it is the price of.
    pub timed_operation: usize,
    /// The operation of the arm that does the same without a switch; its time is subtracted.
    pub baseline: Option<usize>,
}

/// Two arms that differ in one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmPair {
    /// Name of the contrast in files.
    pub name: String,
    /// One line about what differs.
    pub about: String,
    /// The operation that has what differs.
    pub with: ArmOperation,
    /// The operation that lacks what differs.
    pub without: ArmOperation,
    /// The contrast that it controls; then its own difference must be 0.
    pub control_of: Option<String>,
}

impl ArmPair {
    /// Returns true if one ring does both in turn.
    const fn is_of_one_ring(&self) -> bool {
        self.with.arm == self.without.arm
    }
}

/// A point of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// The curve that it is a point of.
    pub curve: CurveName,
    /// The size, in the unit of its curve.
    pub size: u64,
    /// Index of the arm in its group.
    pub arm: usize,
}

/// The name of a curve, and how it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurveName {
    /// Name of the curve in files.
    pub name: String,
    /// Name of the figure that shows it.
    pub figure: &'static str,
    /// Label of the curve in its figure.
    pub label: String,
    /// The quantity that the size counts, with its unit.
    pub size_is: &'static str,
}

/// Arms that are measured side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmGroup {
    /// Its name on the command line: a primitive's word or a question's.
    pub name: String,
    /// The section of its rows.
    pub section: Section,
    /// The arms, timed side by side.
    pub arms: Vec<Arm>,
    /// Contrasts between arms of the group.
    pub pairs: Vec<ArmPair>,
    /// Arms that are points of curves.
    pub spots: Vec<CurvePoint>,
    /// True if every ring's hot baseline is timed, not only those that a price or a curve needs.
    pub has_all_baselines: bool,
    /// Number of fresh process trees.
    pub trees: usize,
    /// Number of rounds in each tree.
    pub rounds: usize,
}

impl ArmGroup {
    /// A group that has no arms yet.
    pub fn new(name: &str, section: Section) -> Self {
        Self {
            name: name.to_owned(),
            section,
            arms: Vec::new(),
            pairs: Vec::new(),
            spots: Vec::new(),
            has_all_baselines: false,
            trees: 6,
            rounds: 10,
        }
    }

    /// Adds an arm and returns its index.
    pub fn add(&mut self, arm: Arm) -> usize {
        self.arms.push(arm);
        self.arms.len() - 1
    }

    /// Index of the first ring of these members under this policy.
    ///
    /// # Panics
    /// The group has no such ring yet. Any other arm would be the wrong one to compare a twin with.
    fn position_of(&self, members: Members, policy: Policy) -> usize {
        let is_such = |ring: &RingSpec| ring.members == members && ring.policy == policy;
        let position = self
            .arms
            .iter()
            .position(|arm| arm.as_ring().is_some_and(is_such));
        position.expect("invariant: the menu makes the ring before its twin")
    }

    /// Index of the system call that prices are set against.
    pub fn reference(&self) -> Option<usize> {
        self.arms.iter().position(|arm| arm.role == Role::Reference)
    }

    /// Arms that do the same, as pairs.
    pub fn twins(&self) -> Vec<ArmPair> {
        let arms = self.arms.iter().enumerate();
        let twins = arms.filter_map(|(index, arm)| match arm.role {
            Role::Twin(of) => Some((of, index)),
            _ => None,
        });
        let pair = |(of, index)| ArmPair {
            name: format!("{}-twin", self.name),
            about: format!("{}: two arms that do the same", self.name),
            with: ArmOperation::of(index),
            without: ArmOperation::of(of),
            control_of: Some(self.name.clone()),
        };
        twins.map(pair).collect()
    }

    /// The pair of equals beside which `pair` is judged. If one ring does both operations of
    /// `pair`, one ring does both of the equals too, because two rings differ by far more.
    pub fn twin_of(&self, pair: &ArmPair) -> Option<ArmPair> {
        let is_control = |other: &&ArmPair| other.control_of.is_some() && other.is_of_one_ring();
        match pair.is_of_one_ring() {
            true => self.pairs.iter().find(is_control).cloned(),
            false => self.twins().into_iter().next(),
        }
    }

    /// Returns true if `word` means this group: its name, its section, or a kind of one of its arms.
    fn is_called(&self, word: &str) -> bool {
        self.name == word
            || self.section.as_str() == word
            || self
                .arms
                .iter()
                .any(|arm| arm.role == Role::Price && arm.kind == word)
    }

    /// The plan that the bench carries out.
    pub fn plan(&self, cpu: u32) -> Plan {
        Plan {
            arms: self.arms.iter().map(|arm| arm.spec.clone()).collect(),
            unneeded: self.unneeded(),
            cpu: Some(cpu),
            block: BLOCK,
            rounds: self.rounds,
            least_rounds: LEAST_ROUNDS.min(self.rounds),
            limit: TREE_LIMIT,
        }
    }

    /// Hot baselines that are subtracted from no price and no curve, and so need not be timed.
    fn unneeded(&self) -> Vec<(usize, usize)> {
        let is_in_curve = |arm: usize| self.spots.iter().any(|spot| spot.arm == arm);
        let arms = self.arms.iter().enumerate();
        let bare = arms.filter(|(index, arm)| {
            let is_net = arm.role == Role::Price || is_in_curve(*index);
            let has_baseline = matches!(arm.spec, ArmSpec::Ring(_));
            has_baseline && !is_net && !self.has_all_baselines
        });
        bare.map(|(index, _)| (index, ArmOperation::baseline(index).timed_operation))
            .collect()
    }

    /// About how long a tree takes: the blocks of its rounds and of some six more before the first
    /// one (finding how many operations fit a block, and warm-up), and the forks.
    pub fn tree_length(&self) -> Duration {
        let operations: usize = self
            .arms
            .iter()
            .map(|arm| arm.spec.timed_operation_count())
            .sum();
        let operations = operations - self.unneeded().len();
        BLOCK * u32::try_from((operations + 1) * (self.rounds + 6)).unwrap_or(u32::MAX)
            + Duration::from_millis(2) * u32::try_from(self.arms.len()).unwrap_or(u32::MAX)
    }
}

/// The policy of contrasts and curves, for [`Menu::steady`].
///
/// # Errors
///
/// No process can be started.
pub fn steady_policy() -> Result<Policy> {
    Ok(match may_use_fifo()? {
        true => Policy::Fifo,
        false => Policy::Batch,
    })
}

/// A seed that differs for every session.
fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |since| since.as_nanos());
    u64::try_from(nanos & u128::from(u64::MAX)).unwrap_or_default()
}

/// Length of a block: the best compromise between the cost of reading the clock and changes of the
/// machine's speed (docs/PRICES.md).
const BLOCK: Duration = Duration::from_millis(1);

/// Fewest rounds of a tree for a useful median.
const LEAST_ROUNDS: usize = 5;

/// Longest time that a tree may take; a busy host stretches blocks.
const TREE_LIMIT: Duration = Duration::from_secs(10);

/// Everything that a session will measure.
#[derive(Clone, Debug)]
pub struct Menu {
    /// The CPU that is measured on.
    pub cpu: u32,
    /// The groups, in the order of the table.
    pub groups: Vec<ArmGroup>,
    /// The group for the scheduler's own part of a switch, which needs probes.
    pub share: Option<ArmGroup>,
    /// The group for what an eBPF program costs each switch, which needs the right to attach one.
    pub empty_program: Option<ArmGroup>,
    /// Kinds that this machine does not have, known before anything is measured.
    pub missing: Vec<MissingPrice>,
    /// Seed for the order of the arms.
    pub seed: u64,
    /// The policy of contrasts and curves: `SCHED_FIFO` where it is allowed, because there no other
    /// task gets the CPU within a block; `SCHED_BATCH` elsewhere.
    pub steady: Policy,
}

impl Menu {
    /// The groups of the kinds that are named, or of all when none is, in the size that `effort`
    /// allows.
    ///
    /// # Errors
    ///
    /// A word names no kind, or the kernel does not say which CPUs may be used.
    pub fn new(effort: Effort, words: &[String], cpu: Option<u32>) -> Result<Self> {
        let cpu = match cpu {
            Some(cpu) => cpu,
            None => home()?,
        };
        check_cpu(cpu)?;
        let steady = steady_policy()?;
        let mut menu = Self {
            cpu,
            groups: Vec::new(),
            share: share::group(effort, cpu),
            empty_program: Some(empty_program::group(effort, steady, cpu)),
            missing: Vec::new(),
            seed: seed_of_now(),
            steady,
        };
        menu.add_switches(effort, words);
        menu.add_places(effort)?;
        menu.add_others(effort, words);
        menu.add_contrasts(effort);
        menu.add_curves(effort);
        menu.add_self_check(words);
        menu.select(effort, words)?;
        Ok(menu)
    }

    /// A menu of the groups of an experiment, and nothing else.
    ///
    /// # Errors
    ///
    /// The CPU cannot be used, or no process can be started.
    pub fn of_groups(groups: Vec<ArmGroup>, cpu: u32) -> Result<Self> {
        check_cpu(cpu)?;
        Ok(Self {
            cpu,
            groups,
            share: None,
            empty_program: None,
            missing: Vec::new(),
            seed: seed_of_now(),
            steady: steady_policy()?,
        })
    }

    /// Keeps the groups that the words name.
    fn select(&mut self, effort: Effort, words: &[String]) -> Result<()> {
        for word in words {
            if !self.all_groups().any(|group| group.is_called(word)) {
                let here = match effort {
                    Effort::Quick => "with --quick",
                    Effort::Default | Effort::Thorough => "here",
                };
                bail!(
                    "there is no kind `{word}` {here}; kinds are: {}",
                    self.names().join(", ")
                );
            }
        }
        if !words.is_empty() {
            self.missing.retain(|missing| words.contains(&missing.kind));
            self.groups
                .retain(|group| words.iter().any(|word| group.is_called(word)));
            let is_named = |group: &ArmGroup| words.iter().any(|word| group.is_called(word));
            self.share = self.share.take().filter(is_named);
            self.empty_program = self.empty_program.take().filter(is_named);
        }
        Ok(())
    }

    fn all_groups(&self) -> impl Iterator<Item = &ArmGroup> {
        let probed = self.share.iter().chain(&self.empty_program);
        self.groups.iter().chain(probed)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for group in self.all_groups() {
            for name in [group.section.as_str(), &group.name] {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        names
    }
}
