//! The finding about event loops that wait in the middle of a turn, where stacks tell: while they serve one, they serve no
//! other. A loop that is never idle does not wait for many at once, so that its calls do not give it away.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{AwaitedThing, LostTime, Nanos, Reason, StackKind, Tally};

use super::super::ends::scaled_down;
use super::super::stack::Symbols;
use super::super::workers::sum_of;
use super::blocked::BlockedLoops;
use super::{Details, Finding, VerdictInput, advice};

const NODE: &str = "Node";

/// What is said where functions of JavaScript have no names.
const NODE_NAMES: &str =
    "in which function it is, node --perf-basic-prof --interpreted-frames-native-stack tells";

/// The functions of event loops: one that runs what waits its turn, and below it on the stack the loop.
const LOOPS: [(&str, &str, &str); 3] = [
    (
        "asyncio",
        "Handle._run [python]",
        "BaseEventLoop._run_once [python]",
    ),
    (
        "uvloop",
        "__pyx_f_6uvloop_4loop_6Handle__run",
        "__pyx_f_6uvloop_4loop_4Loop__run",
    ),
    (NODE, "v8::Function::Call(", "node::SpinEventLoopInternal("),
];

/// Reasons for which a loop may wait in a turn, and what such waits are taken to be for otherwise. Waits for disks and
/// locks have findings of their own.
const REASONS: [(Reason, &[AwaitedThing]); 6] = [
    (Reason::Sleep, &[AwaitedThing::Clock]),
    (Reason::Child, &[AwaitedThing::Own, AwaitedThing::Others]),
    (Reason::Poll, FOR_MESSAGES),
    (Reason::Net, FOR_MESSAGES),
    (Reason::Pipe, FOR_MESSAGES),
    (Reason::Ipc, FOR_MESSAGES),
];
const FOR_MESSAGES: &[AwaitedThing] =
    &[AwaitedThing::Others, AwaitedThing::Own, AwaitedThing::Clock];

/// Time in which event loops of one kind waited in the middle of a turn: of the kind that did so longest.
#[derive(Clone, Debug, Default)]
pub struct TurnTime {
    /// In each user stack, in ns.
    stacks: FxHashMap<u32, u64>,
    by_reason: Vec<(&'static [AwaitedThing], Nanos)>,
    /// Whose loops.
    of: &'static str,
}

impl TurnTime {
    /// After all rows; `blocked` says how long programs were blocked for a reason, `loops` which are known by their calls.
    pub fn of(
        details: &Details,
        blocked: impl Fn(Reason) -> Nanos,
        loops: &BlockedLoops,
        symbols: Option<&Symbols>,
    ) -> Self {
        let mut kinds: BTreeMap<&str, Self> = BTreeMap::new();
        for (reason, awaited) in REASONS {
            let is_known = loops.time > Nanos::ZERO && matches!(reason, Reason::Net | Reason::Pipe);
            let Some(symbols) = symbols.filter(|_| !is_known) else {
                continue;
            };
            let waited_in = &details.ends_of(reason).waited_in;
            for (stack, part) in scaled_down(waited_in, blocked(reason)) {
                if let Some(of) = loop_of(stack, symbols) {
                    let kind = kinds.entry(of).or_default();
                    kind.of = of;
                    *kind.stacks.entry(stack).or_default() += part;
                    kind.by_reason.push((awaited, Nanos::from_ns(part)));
                }
            }
        }
        let longest = kinds.into_values().max_by_key(|kind| sum_of(&kind.stacks));
        longest.unwrap_or_default()
    }

    /// It was lost, whatever it would be taken for otherwise.
    pub fn take_from(&self, lost: &mut LostTime) {
        for (awaited, time) in &self.by_reason {
            lost.was_in_work(*time, awaited);
        }
    }
}

/// Whose event loop is in the middle of a turn in this stack, and does not wait in another loop within that.
fn loop_of(stack: u32, symbols: &Symbols) -> Option<&'static str> {
    let frames = symbols.frames(StackKind::User, Some(stack));
    let mut loops = LOOPS.iter();
    loops.find_map(|(name, turn, all_turns)| {
        let place = |begins: &str| frames.iter().position(|frame| frame.starts_with(begins));
        (place(turn)? < place(all_turns)?).then_some(*name)
    })
}

impl VerdictInput<'_> {
    /// Event loops that wait in the middle of a turn.
    pub(super) fn blocked_turn(&self, total: &Tally) -> Option<Finding> {
        let of = self.turns.of;
        let place = match self.in_function(&self.turns.stacks) {
            place if place.is_empty() => place,
            place => format!(",{place}"),
        };
        let seen = format!("An event loop of {of} waits in the middle of its work{place}");
        let mut finding = self.of_stacks("blocked_turn", &self.turns.stacks, &seen, total)?;
        if of == NODE && self.of_a_language(&self.turns.stacks).is_none() {
            finding.places.push(NODE_NAMES.to_owned());
        }
        finding.advice = Some(advice::LOOP.told());
        Some(finding)
    }
}
