//! The kernel-stack oracle: each switch of a mixed load is judged twice, once by the rules from the
//! recorder's markers, once from kernel stacks, and the two must agree.
//!
//! Stacks cost some microseconds per switch, so only this test takes them ([`Settings::oracle`]).
//! Switches are not kept, but counted by what they are judged on: a run has millions of them and
//! some thousand distinct pairs of stacks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use swtch_capture::{Capture, RecordingScope, Settings, Stacks};
use swtch_core::{
    Arch, Class, Event, EvidenceBits, Reason, SwitchEvent, SyscallTable, classify, rules::Rule,
};

use crate::mixed_load::{LeftOut, MixedLoad, set_nice};
use crate::stack_verdict::{StackVerdict, Successor, Witness, verdict};

/// The time for which the load runs.
const DURATION: Duration = Duration::from_secs(8);

/// Reasons that the load causes on every machine.
const EXPECTED: &[Reason] = &[
    Reason::Slice,
    Reason::Wakeup,
    Reason::Class,
    Reason::Migrate,
    Reason::Yield,
    Reason::Futex,
    Reason::Pipe,
    Reason::Net,
    Reason::Poll,
    Reason::Sleep,
    Reason::Child,
    Reason::Stop,
    Reason::Exit,
];

/// Switches with the same verdict of the rules and the same stacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct OracleCase {
    rule: &'static str,
    reason: Reason,
    is_blocked: bool,
    successor: Successor,
    switch_stack: Option<u32>,
    cause_stack: Option<u32>,
}

impl OracleCase {
    fn of(event: &SwitchEvent, calls: &SyscallTable) -> Self {
        let rule: &Rule = classify(&event.evidence, calls);
        Self {
            rule: rule.name,
            reason: rule.reason,
            is_blocked: event.evidence.state != 0
                && !event.evidence.bits.has(EvidenceBits::KERNEL_PREEMPT),
            successor: successor(event),
            // With the oracle these fields hold other stacks: see `Settings::oracle`.
            switch_stack: event.wait.stacks.kernel,
            cause_stack: event.wait.stacks.user,
        }
    }
}

fn successor(event: &SwitchEvent) -> Successor {
    let (left, came) = (event.evidence.class, event.evidence.next_class);
    match came {
        Class::Stop => Successor::Stopper,
        Class::Idle => Successor::Peer,
        _ if came > left => Successor::Higher,
        _ if came < left => Successor::Lower,
        _ => Successor::Peer,
    }
}

/// Switches on which the stacks could decide.
#[derive(Clone, Copy, Default)]
struct Agreement {
    decided: u64,
    agreed: u64,
}

impl Agreement {
    /// Returns true if at least 999 of 1,000 agree.
    fn is_close(self) -> bool {
        (self.decided - self.agreed) * 1000 <= self.decided
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} agreed", self.agreed, self.decided)
    }
}

/// Counts of the verdicts of rules and stacks.
#[derive(Default)]
struct VerdictCounts {
    confusion: BTreeMap<(String, Reason), u64>,
    blocked: Agreement,
    /// Counted apart, because these are harder and fewer.
    left_runnable: Agreement,
    disagreed: BTreeMap<String, u64>,
    undecided: BTreeMap<(&'static str, String), u64>,
    unknown: u64,
}

impl VerdictCounts {
    fn add(&mut self, case: &OracleCase, witness: &Witness, count: u64) {
        if case.reason == Reason::Unknown {
            self.unknown += count;
        }
        match verdict(witness) {
            StackVerdict::Undecided => {
                *self
                    .undecided
                    .entry((case.rule, summary(witness)))
                    .or_default() += count;
            }
            StackVerdict::Reasons(reasons) => {
                let expected: Vec<_> = reasons.iter().map(|reason| reason.as_str()).collect();
                let row = (expected.join("|"), case.reason);
                *self.confusion.entry(row).or_default() += count;
                let agreement = match case.is_blocked {
                    true => &mut self.blocked,
                    false => &mut self.left_runnable,
                };
                agreement.decided += count;
                if reasons.contains(&case.reason) {
                    agreement.agreed += count;
                } else {
                    let shown = format!("{} by {}: {}", case.reason, case.rule, summary(witness));
                    *self.disagreed.entry(shown).or_default() += count;
                }
            }
        }
    }

    fn count_of(&self, reason: Reason) -> u64 {
        let rows = self
            .confusion
            .iter()
            .filter(|((_, given), _)| *given == reason);
        rows.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for VerdictCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  switches  stacks say        rules say")?;
        for ((expected, given), count) in &self.confusion {
            writeln!(f, "{count:10}  {expected:16}  {given}")?;
        }
        let undecided: u64 = self.undecided.values().sum();
        writeln!(f, "blocked: {}", self.blocked)?;
        writeln!(f, "left runnable: {}", self.left_runnable)?;
        writeln!(
            f,
            "undecided {undecided}, unknown to the rules {}",
            self.unknown
        )?;
        for (case, count) in most(&self.disagreed) {
            writeln!(f, "disagreed {count}: {case}")?;
        }
        for ((rule, case), count) in most(&self.undecided) {
            writeln!(f, "undecided {count}: {rule}: {case}")?;
        }
        Ok(())
    }
}

/// The thirty most frequent cases, most frequent first.
fn most<K>(counts: &BTreeMap<K, u64>) -> Vec<(&K, u64)> {
    let mut rows: Vec<_> = counts.iter().map(|(case, count)| (case, *count)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows.truncate(30);
    rows
}

/// The inner functions of both stacks, without those of the probe.
fn summary(witness: &Witness) -> String {
    let inner = |stack: Option<&[String]>| {
        let names = stack.unwrap_or_default().iter();
        let names = names.filter(|name| !name.starts_with("bpf_")).take(9);
        names.map(String::as_str).collect::<Vec<_>>().join(" ◀ ")
    };
    let (place, request) = (inner(witness.switch_stack), inner(witness.cause_stack));
    if witness.is_blocked {
        place
    } else {
        format!("{:?} at {place}, asked by {request}", witness.successor)
    }
}

/// Runs the load and counts its switches.
fn record(capture: &mut Capture, calls: &SyscallTable) -> (HashMap<OracleCase, u64>, Vec<LeftOut>) {
    let mut cases = HashMap::new();
    let mut count = |_, event| {
        if let Event::Switch(switch) = event {
            *cases.entry(OracleCase::of(&switch, calls)).or_default() += 1;
        }
    };
    let load = MixedLoad::start(DURATION);
    set_nice(-15); // the load starves this thread otherwise, and the rings run full
    let start = Instant::now();
    while start.elapsed() < DURATION {
        capture.drain(&mut count);
        thread::sleep(Duration::from_millis(10));
    }
    let left_out = thread::scope(|scope| {
        let finish = scope.spawn(|| load.finish());
        while !finish.is_finished() {
            capture.drain(&mut count);
            thread::sleep(Duration::from_millis(10));
        }
        finish.join().expect("the load failed")
    });
    capture.detach();
    while capture.drain(&mut count).switches > 0 {}
    (cases, left_out)
}

fn compare(capture: &Capture, cases: &HashMap<OracleCase, u64>) -> VerdictCounts {
    let stacks = Stacks::new();
    let mut names: HashMap<u32, Option<Vec<String>>> = HashMap::new();
    for id in cases
        .keys()
        .flat_map(|case| [case.switch_stack, case.cause_stack])
        .flatten()
    {
        names
            .entry(id)
            .or_insert_with(|| stacks.kernel_functions(capture, id));
    }
    let named = |id: Option<u32>| names.get(&id?)?.as_deref();
    let mut comparison = VerdictCounts::default();
    for (case, count) in cases {
        let witness = Witness {
            is_blocked: case.is_blocked,
            successor: case.successor,
            switch_stack: named(case.switch_stack),
            cause_stack: named(case.cause_stack),
        };
        comparison.add(case, &witness, *count);
    }
    comparison
}

#[test]
#[ignore = "needs root"]
fn root_markers_agree_with_kernel_stacks() {
    let _turn = crate::alone();
    let _quiet = swtch_test::depends_on_quiet();
    let arch = Arch::from_machine(std::env::consts::ARCH).expect("a known architecture");
    let cpus = thread::available_parallelism()
        .expect("the number of CPUs")
        .get();
    let settings = Settings {
        oracle: true,
        slots_per_cpu: 1 << 19, // two seconds at 250,000 switches a second
        ..Settings::new(RecordingScope::All, cpus)
    };
    let mut capture = Capture::start(&settings, arch).expect("capturing needs root");
    let (cases, left_out) = record(&mut capture, &SyscallTable::of(arch));
    let comparison = compare(&capture, &cases);
    println!("{comparison}");
    println!("not run: {left_out:?}, {:?}", capture.counters());

    assert_eq!(capture.counters().lost, 0);
    let has_quota = !left_out
        .iter()
        .any(|part| matches!(part, LeftOut::Quota(_)));
    let throttled = has_quota.then_some(&Reason::Throttle);
    for reason in EXPECTED.iter().chain(throttled) {
        assert!(
            comparison.count_of(*reason) > 0,
            "the load made no {reason}"
        );
    }
    assert!(comparison.blocked.is_close(), "{}", comparison.blocked);
    assert!(
        comparison.left_runnable.is_close(),
        "{}",
        comparison.left_runnable
    );
}
