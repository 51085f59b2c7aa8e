//! Shows where blocked time changed: the flame graphs of A and B as one tree.
//!
//! ```text
//! A            B              merged (A, B)
//! all 100      all 130        all (100, 130)
//! └ lock 100   ├ lock 90      ├ lock (100, 90)
//!              └ retry 40     └ retry (0, 40)
//! ```
//!
//! The runs of a side are summed, and divided by their lengths together or by their number. A frame
//! that one side does not have has 0 there. Frames are not tested one by one: there are hundreds,
//! and each would make all others less sure. So a change is shown here, and none is claimed.
//!
//! To draw the widths of B alone would hide the frames that only A has
//! (<https://www.brendangregg.com/blog/2014-11-09/differential-flame-graphs.html>), so a frame keeps
//! both numbers, and the page draws both sides.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use swtch_core::Nanos;

use super::answer::signed_percent;
use super::judge::Per;
use super::measure::MeasuredRun;
use crate::opening;
use crate::report::Filter;
use crate::report::filtered_trace::FilteredTrace;
use crate::report::flame::{FlameNaming, FlameNode, FrameKind};

/// A frame that changed by less than this part of A's time counts as unchanged: runs of one program
/// differ by as much.
const SMALL_CHANGE: f64 = 0.1;

/// A frame in both sides, and the frames below it.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameDiff {
    /// The name of the program or function, or the word for the reason.
    pub name: String,
    /// The kind of thing that it stands for.
    pub kind: FrameKind,
    /// Blocked time in A, in ns per second or per run.
    pub a_ns: f64,
    /// Blocked time in B.
    pub b_ns: f64,
    /// The frames below it, those with the most time in either side first.
    pub children: Vec<Self>,
}

/// The change of a frame's time, as it is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameChange {
    /// At most half of A's time, or none.
    Halved,
    /// Less than in A.
    Less,
    /// About as in A.
    Similar,
    /// More than in A.
    More,
    /// At least twice A's time, or new.
    Doubled,
}

impl FrameChange {
    /// All changes, from less to more.
    pub const ALL: [Self; 5] = [
        Self::Halved,
        Self::Less,
        Self::Similar,
        Self::More,
        Self::Doubled,
    ];

    /// Says what is true of such a frame.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Halved => "half of A or less, or gone",
            Self::Less => "less than A",
            Self::Similar => "within 10 % of A",
            Self::More => "more than A",
            Self::Doubled => "twice A or more, or new",
        }
    }

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    fn of(a_ns: f64, b_ns: f64) -> Self {
        match b_ns - a_ns {
            more if more > 0.0 && b_ns >= 2.0 * a_ns => Self::Doubled,
            less if less < 0.0 && b_ns <= a_ns / 2.0 => Self::Halved,
            more if more > SMALL_CHANGE * a_ns => Self::More,
            less if less < -SMALL_CHANGE * a_ns => Self::Less,
            _ => Self::Similar,
        }
    }
}

/// The tree of one side, and what its times are divided by.
#[derive(Debug)]
struct SideTree {
    tree: FlameNode,
    divisor: f64,
}

impl SideTree {
    /// Sums the trees of all runs of a side.
    fn read(runs: &[MeasuredRun], filter: &Filter, per: Per) -> Result<Self> {
        let mut tree = FlameNode::default();
        for run in runs {
            let shown = || format!("reading the stacks of {}", run.path.display());
            tree.add(tree_of(run, filter).with_context(shown)?);
        }
        let divisor = match per {
            Per::Second => runs.iter().map(MeasuredRun::seconds).sum(),
            Per::Run => runs.iter().map(|_| 1.0).sum(),
            Per::Turn | Per::Span => runs.iter().map(MeasuredRun::all_units).sum(),
        };
        Ok(Self { tree, divisor })
    }
}

fn tree_of(run: &MeasuredRun, filter: &Filter) -> Result<FlameNode> {
    let trace = opening::open(&run.path)?;
    let mut session = FilteredTrace::open(&trace, filter)?;
    let symbols = session.symbols()?;
    FlameNode::of(&mut session, &symbols, FlameNaming::AcrossRuns)
}

impl FrameDiff {
    /// Reads the traces of both sides.
    ///
    /// # Errors
    /// When a trace cannot be read.
    pub fn read(a: &[MeasuredRun], b: &[MeasuredRun], filter: &Filter, per: Per) -> Result<Self> {
        let a = SideTree::read(a, filter, per)?;
        let b = SideTree::read(b, filter, per)?;
        Ok(Self::of(&a, &b))
    }

    fn of(a: &SideTree, b: &SideTree) -> Self {
        let sides = [Some(&a.tree), Some(&b.tree)];
        Self::merged("all", sides, [a.divisor, b.divisor])
    }

    /// Merges the frame that both sides have under one name, and all frames below it.
    fn merged(name: &str, sides: [Option<&FlameNode>; 2], divisors: [f64; 2]) -> Self {
        let below = |name: &str| sides.map(|side| side.and_then(|node| node.children.get(name)));
        let names: BTreeSet<&String> = sides
            .iter()
            .flatten()
            .flat_map(|node| node.children.keys())
            .collect();
        let merged = |name: &String| Self::merged(name, below(name), divisors);
        let mut children: Vec<_> = names.into_iter().map(merged).collect();
        // Both sides are drawn in this order, so that a frame stands at about the same place in
        // both. Equal times stay in the order of their names.
        children.sort_by(|one, other| other.larger_ns().total_cmp(&one.larger_ns()));
        let [a_ns, b_ns] = [0, 1].map(|side| match sides[side] {
            Some(node) => as_number(node.ns) / divisors[side],
            None => 0.0,
        });
        let kind = sides.iter().flatten().map(|node| node.kind).next();
        Self {
            name: name.to_owned(),
            kind: kind.unwrap_or_default(),
            a_ns,
            b_ns,
            children,
        }
    }

    fn larger_ns(&self) -> f64 {
        self.a_ns.max(self.b_ns)
    }

    /// Returns how its time changed.
    pub fn change(&self) -> FrameChange {
        FrameChange::of(self.a_ns, self.b_ns)
    }

    /// The change in percent of A, in words.
    pub fn change_words(&self) -> String {
        match (self.a_ns > 0.0, self.b_ns > 0.0) {
            (true, true) => signed_percent((self.b_ns / self.a_ns - 1.0) * 100.0),
            (false, _) => "only in B".to_owned(),
            (true, false) => "only in A".to_owned(),
        }
    }

    /// Its name; reasons stand in brackets, as in the folded export.
    pub fn label(&self) -> String {
        match self.kind {
            FrameKind::Reason => format!("[{}]", self.name),
            _ => self.name.clone(),
        }
    }

    /// Name, both times, and their difference.
    pub fn words(&self, per: Per) -> String {
        let difference = self.b_ns - self.a_ns;
        let sign = if difference < 0.0 { '-' } else { '+' };
        format!(
            "{}: A {}, B {}, {sign}{} ({})",
            self.label(),
            time_words(self.a_ns, per),
            time_words(self.b_ns, per),
            time_words(difference.abs(), per),
            self.change_words()
        )
    }
}

/// A time with its unit.
pub fn time_words(ns: f64, per: Per) -> String {
    let time = Nanos::from_rounded(ns);
    match per {
        _ if time == Nanos::ZERO => "0".to_owned(),
        Per::Second => format!("{time}/s"),
        Per::Run | Per::Turn | Per::Span => format!("{time} a {}", per.as_str()),
    }
}

/// Says why there is no flame graph; `None` if every run has stacks. A stack that only one side took would look like a
/// change of the program.
pub fn without_stacks(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<String> {
    let sides = [("A", a), ("B", b)].into_iter();
    let lacking: Vec<String> = sides
        .filter_map(|(side, runs)| lacking(side, runs))
        .collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "There is no flame graph, because {} no stacks: record again, without --no-stacks.",
            lacking.join(" and ") + " have"
        )
    })
}

fn lacking(side: &str, runs: &[MeasuredRun]) -> Option<String> {
    let without = runs.iter().filter(|run| run.meta.stacks.is_none()).count();
    match without {
        0 => None,
        all if all == runs.len() => Some(format!("the traces of {side}")),
        _ => Some(format!("some traces of {side}")),
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
const fn as_number(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of folded lines: `server;lock 100` is 100 ns in `lock`, below `server`.
    fn side(lines: &[&str], divisor: f64) -> SideTree {
        let mut tree = FlameNode::default();
        for line in lines {
            let (path, ns) = line.rsplit_once(' ').unwrap();
            let path = path
                .split(';')
                .map(|name| (FrameKind::User, name.to_owned()));
            tree.add_waits(path, 1, ns.parse().unwrap());
        }
        SideTree { tree, divisor }
    }

    /// The merged tree, a frame a line: `name A B`, indented by its depth.
    fn drawn(frame: &FrameDiff) -> String {
        fn draw(frame: &FrameDiff, depth: usize, page: &mut String) {
            let FrameDiff {
                name, a_ns, b_ns, ..
            } = frame;
            *page += &format!("{:depth$}{name} {a_ns} {b_ns}\n", "");
            frame
                .children
                .iter()
                .for_each(|child| draw(child, depth + 1, page));
        }
        let mut page = String::new();
        draw(frame, 0, &mut page);
        page
    }

    /// A frame that only A has stays in the tree, because it is what the change removed.
    #[test]
    fn frames_of_either_side_are_in_the_tree() {
        let a = side(&["server;lock 100", "server;old;lock 40"], 1.0);
        let b = side(&["server;lock 90", "server;new;lock 60"], 1.0);
        let expected = "\
all 140 150
 server 140 150
  lock 100 90
  new 0 60
   lock 0 60
  old 40 0
   lock 40 0
";
        assert_eq!(drawn(&FrameDiff::of(&a, &b)), expected);
    }

    /// Five runs against two, or seconds against minutes, are compared by what one run or second has.
    #[test]
    fn each_side_is_divided_by_its_own_runs_or_time() {
        let a = side(&["lock 100", "lock 100"], 4.0);
        let b = side(&["lock 100"], 2.0);
        let all = FrameDiff::of(&a, &b);
        assert_eq!(drawn(&all), "all 50 50\n lock 50 50\n");
        assert_eq!(all.change(), FrameChange::Similar);
    }

    #[test]
    fn a_side_without_waits_is_zero_everywhere() {
        let all = FrameDiff::of(&side(&[], 1.0), &side(&["lock 5"], 1.0));
        assert_eq!(drawn(&all), "all 0 5\n lock 0 5\n");
    }

    #[test]
    fn a_small_change_is_none_and_what_is_new_or_gone_stands_out() {
        for (a, b, change) in [
            (100.0, 0.0, FrameChange::Halved),
            (100.0, 50.0, FrameChange::Halved),
            (100.0, 51.0, FrameChange::Less),
            (100.0, 89.0, FrameChange::Less),
            (100.0, 91.0, FrameChange::Similar),
            (100.0, 109.0, FrameChange::Similar),
            (100.0, 111.0, FrameChange::More),
            (100.0, 199.0, FrameChange::More),
            (100.0, 200.0, FrameChange::Doubled),
            (0.0, 1.0, FrameChange::Doubled),
        ] {
            assert_eq!(FrameChange::of(a, b), change, "{a} {b}");
        }
    }

    #[test]
    fn a_frame_says_both_times_and_their_difference() {
        let frame = |name: &str, kind, a_ns, b_ns| FrameDiff {
            name: name.to_owned(),
            kind,
            a_ns,
            b_ns,
            children: Vec::new(),
        };
        let lock = frame("lock [server]", FrameKind::User, 2e6, 1.5e6);
        assert_eq!(
            lock.words(Per::Second),
            "lock [server]: A 2.00 ms/s, B 1.50 ms/s, -500 µs/s (-25.0 %)"
        );
        let new = frame("futex", FrameKind::Reason, 0.0, 1e6);
        assert_eq!(
            new.words(Per::Run),
            "[futex]: A 0, B 1.00 ms a run, +1.00 ms a run (only in B)"
        );
    }
}
