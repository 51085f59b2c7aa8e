//! Units and moments on drawn timelines, and whether intervals keep their promise on simulated programs.

use std::collections::{BTreeMap, VecDeque};

use crate::cost::promises::SeededNoise;
use crate::evidence::Evidence;
use crate::ids::{CpuId, TaskKey};
use crate::rules::all_rules;
use crate::spans::{ProgramSpan, ThreadSpans};
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};

use super::{
    InjectedMoment, Injection, InjectionEstimates, TouchedMemory, UnitBounds, UnitResponse,
    UnitsAtMoments, resolution,
};

const TASK: TaskKey = TaskKey::new(1);
const CPU: CpuId = CpuId::new(3);

/// How a run of a drawn timeline ends.
#[derive(Clone, Copy)]
enum RunEnd {
    Blocked,
    Runnable,
}

fn row(task: TaskKey, begin: u64, end: u64, run_end: RunEnd) -> Switch {
    let rule = all_rules().next().expect("there are rules");
    let state = match run_end {
        RunEnd::Blocked => 1,
        RunEnd::Runnable => 0,
    };
    Switch {
        ts: Timestamp::from_ns(end),
        cpu: CPU,
        task,
        ran: Some(Nanos::from_ns(end - begin)),
        evidence: Evidence {
            state,
            ..Evidence::RUNNABLE
        },
        ..Switch::blank(rule)
    }
}

fn moment(at: u64, injection: Injection, began: Option<u64>) -> InjectedMoment {
    InjectedMoment {
        at: Timestamp::from_ns(at),
        cpu: CPU,
        injection,
        began: began.map(Timestamp::from_ns),
    }
}

fn responses(moments: &[InjectedMoment], bounds: UnitBounds, rows: &[Switch]) -> Vec<UnitResponse> {
    let mut units = UnitsAtMoments::new(moments, bounds);
    rows.iter().for_each(|row| units.add(row));
    units.responses().to_vec()
}

/// ```text
///            │ 100 … 150 │ the injected task │ 160 … 200 │ blocked │ 300 … 320 │
///   moment        140                                                   310, on another CPU too
/// ```
#[test]
fn a_unit_is_all_runs_from_block_to_block_without_those_of_the_intruder() {
    use RunEnd::{Blocked, Runnable};
    let rows = [
        row(TASK, 10, 20, Blocked),
        row(TASK, 100, 150, Runnable),
        row(TASK, 160, 200, Blocked),
        row(TASK, 300, 320, Blocked),
    ];
    let elsewhere = InjectedMoment {
        cpu: CpuId::new(0),
        ..moment(310, Injection::Nothing, None)
    };
    let moments = [
        moment(140, Injection::Switch, Some(150)),
        moment(250, Injection::Nothing, None),
        elsewhere,
    ];
    let expected = UnitResponse {
        injection: Injection::Switch,
        cpu_ns: 90.0,
        before_ns: 40.0,
    };
    assert_eq!(responses(&moments, UnitBounds::Blocks, &rows), [expected]);
}

/// Its begin may lie before the recording, or in records that were lost.
#[test]
fn a_unit_that_is_not_seen_whole_is_left_out() {
    use RunEnd::{Blocked, Runnable};
    let lost = Switch {
        ran: None,
        ..row(TASK, 100, 150, Runnable)
    };
    let rows = [
        row(TASK, 10, 20, Blocked),
        lost,
        row(TASK, 160, 200, Blocked),
        row(TASK, 300, 320, Blocked),
    ];
    let at = |at| moment(at, Injection::Nothing, None);
    let act = moment(305, Injection::Switch, Some(306));
    let met = responses(&[at(15), at(170), act, at(310)], UnitBounds::Blocks, &rows);
    assert_eq!(
        met.iter().map(|one| one.cpu_ns).collect::<Vec<_>>(),
        [20.0; 2]
    );
}

/// Such an act has not been done to the unit, and where nothing is done, an act that would have come too late must be left
/// out, too.
#[test]
fn a_unit_that_has_ended_when_the_act_comes_is_left_out() {
    let rows = [
        row(TASK, 10, 20, RunEnd::Blocked),
        row(TASK, 100, 150, RunEnd::Blocked),
        row(TASK, 200, 250, RunEnd::Blocked),
        row(TASK, 300, 350, RunEnd::Blocked),
    ];
    let moments = [
        moment(140, Injection::Switch, Some(151)),
        moment(210, Injection::Switch, Some(217)),
        moment(342, Injection::Nothing, None),
        moment(343, Injection::Interrupt, None),
    ];
    let mut units = UnitsAtMoments::new(&moments, UnitBounds::Blocks);
    rows.iter().for_each(|row| units.add(row));
    let met: Vec<_> = units.responses().iter().map(|one| one.before_ns).collect();
    assert_eq!(met, [10.0, 42.0]);
    assert_eq!(units.late(), 2);
}

/// An intruder that has not got its CPU has done nothing.
#[test]
fn an_act_that_never_came_is_left_out() {
    let rows = [
        row(TASK, 10, 20, RunEnd::Blocked),
        row(TASK, 100, 150, RunEnd::Blocked),
    ];
    let act = moment(110, Injection::Switch, Some(117));
    let never = moment(120, Injection::Switch, None);
    let met = responses(&[act, never], UnitBounds::Blocks, &rows);
    assert_eq!(met.len(), 1);
}

/// ```text
///   runs    │ 100 … 150 │   │ 160 … 300 │
///   spans       120 ─────────── 180   200 ── 210
///   moments       130 (act)       190   205
/// ```
#[test]
fn of_a_span_the_runs_within_it_count() {
    let rows = [
        row(TASK, 100, 150, RunEnd::Blocked),
        row(TASK, 160, 300, RunEnd::Blocked),
    ];
    let span = |begin, end| ProgramSpan {
        begin: Timestamp::from_ns(begin),
        end: Timestamp::from_ns(end),
        trace: None,
    };
    let spans = VecDeque::from([span(50, 60), span(90, 101), span(120, 180), span(200, 210)]);
    let bounds = UnitBounds::Spans(BTreeMap::from([(TASK, spans)]));
    let at = |at| moment(at, Injection::Nothing, None);
    let act = moment(130, Injection::Switch, Some(131));
    let met = responses(&[act, at(190), at(205)], bounds, &rows);
    let met: Vec<_> = met.iter().map(|one| (one.cpu_ns, one.before_ns)).collect();
    assert_eq!(met, [(50.0, 10.0), (10.0, 5.0)]);
}

/// Requests of 10 µs have ended when an act comes. Twenty of them have not, and are the same work every time.
#[test]
fn short_spans_are_taken_together() {
    let request = |number: u64| ProgramSpan {
        begin: Timestamp::from_ns(number * 30_000),
        end: Timestamp::from_ns(number * 30_000 + 10_000),
        trace: None,
    };
    let thread = ThreadSpans::new(TASK, (0..50).map(request).collect());
    let (bounds, in_unit) = UnitBounds::of_spans([thread]);
    assert_eq!(in_unit, 20);
    let UnitBounds::Spans(units) = bounds else {
        panic!("spans")
    };
    let ends: Vec<_> = units[&TASK]
        .iter()
        .map(|unit| (unit.begin.as_ns(), unit.end.as_ns()))
        .collect();
    assert_eq!(ends, [(0, 580_000), (600_000, 1_180_000)]);
}

/// A program whose units have lengths of many kinds, and what acts cost it.
struct ModelProgram {
    /// Standard deviation of the logarithm of units' lengths; the median is 100 µs.
    spread: f64,
    interrupt_ns: f64,
    switch_ns: f64,
    /// What each walk costs: of 64 KiB, 512 KiB, 2 MiB.
    memory_ns: [f64; 3],
    /// How many units in a hundred the hypervisor stops for a millisecond, without saying so.
    stopped_pct: f64,
    /// CPU time that the program uses meanwhile for new work, of each ns for which the CPU was held.
    piles_up: f64,
}

const INDIFFERENT: ModelProgram = ModelProgram {
    spread: 0.8,
    interrupt_ns: 0.0,
    switch_ns: 0.0,
    memory_ns: [0.0; 3],
    stopped_pct: 0.0,
    piles_up: 0.0,
};

const DEAR: ModelProgram = ModelProgram {
    spread: 0.8,
    interrupt_ns: 10_000.0,
    switch_ns: 2_000.0,
    memory_ns: [3_000.0, 20_000.0, 60_000.0],
    stopped_pct: 5.0,
    piles_up: 0.3,
};

impl ModelProgram {
    /// Runs it for so many units; an act takes 5 µs and more to come, and moments are drawn whatever the program does.
    fn responses(&self, seed: u64, units: u32) -> Vec<UnitResponse> {
        let mut noise = SeededNoise::new(seed);
        let (mut now, mut rows, mut moments) = (0.0, Vec::new(), Vec::new());
        let mut next = 0.0;
        for _ in 0..units {
            let mut left = 100_000.0 * (self.spread * noise.normal()).exp();
            if noise.rng.f64() * 100.0 < self.stopped_pct {
                left += 1e6;
            }
            let mut begin = now;
            while next < begin + left {
                if next < begin {
                    // The program waits.
                    next += 300_000.0 * -(1.0 - noise.rng.f64()).ln();
                    continue;
                }
                let injection = Injection::LOTS[noise.rng.usize(..Injection::LOTS.len())];
                let came = next + 5_000.0 - 10_000.0 * (1.0 - noise.rng.f64()).ln();
                let takes = injection.takes_the_cpu();
                let is_told = takes || injection == Injection::Interrupt;
                moments.push(moment(
                    whole(next),
                    injection,
                    is_told.then_some(whole(came)),
                ));
                let (adds, held) = self.cost(injection);
                left -= came - begin;
                if left > 0.0 {
                    if takes {
                        rows.push(row(TASK, whole(begin), whole(came), RunEnd::Runnable));
                        begin = came + held;
                    } else {
                        left += came - begin;
                    }
                    left += adds;
                } else {
                    left += came - begin;
                }
                next = came + held + 300_000.0 * -(1.0 - noise.rng.f64()).ln();
            }
            now = begin + left;
            rows.push(row(TASK, whole(begin), whole(now), RunEnd::Blocked));
            now += 50_000.0;
        }
        responses(&moments, UnitBounds::Blocks, &rows)
    }

    /// CPU time that an act adds to the unit, and for how long it takes the CPU.
    fn cost(&self, injection: Injection) -> (f64, f64) {
        let held = |memory: TouchedMemory| [4_000.0, 30_000.0, 120_000.0][memory as usize];
        let switch = self.interrupt_ns + self.switch_ns;
        match injection {
            Injection::Nothing | Injection::Elsewhere => (0.0, 0.0),
            Injection::Interrupt => (self.interrupt_ns, 0.0),
            Injection::Switch => (switch, 1_000.0),
            Injection::Hold(memory) => (switch + self.piles_up * held(memory), held(memory)),
            Injection::Touch(memory) => {
                let all = switch + self.piles_up * held(memory) + self.memory_ns[memory as usize];
                (all, held(memory))
            }
        }
    }

    /// In how many of so many experiments the interval of each price holds the truth, and nothing is said against the
    /// control, which costs nothing.
    fn covered(&self, experiments: u64) -> ([u32; 4], u32) {
        let (mut covered, mut control) = ([0; 4], 0);
        for seed in 0..experiments {
            let estimates = InjectionEstimates::of(&self.responses(seed, 20_000)).unwrap();
            let truths = [0.0, self.memory_ns[0], self.memory_ns[1], self.memory_ns[2]];
            for ((price, truth), hits) in estimates.prices.iter().zip(truths).zip(&mut covered) {
                let holds = price.cost.interval.contains(self.switch_ns + truth);
                *hits += u32::from(holds);
            }
            control += u32::from(!estimates.elsewhere.is_clear);
        }
        (covered, control)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "moments of a simulation are small and not negative"
)]
fn whole(ns: f64) -> u64 {
    ns as u64
}

/// The interval is to hold the truth in 95 of 100 experiments, also where work piles up meanwhile.
#[test]
fn intervals_hold_what_switches_cost() {
    let (covered, control) = DEAR.covered(200);
    assert!(covered.iter().all(|hits| *hits >= 180), "{covered:?}");
    assert!(control >= 190, "{control}");
}

#[test]
fn acts_that_cost_nothing_are_not_said_to_cost_something() {
    let (covered, control) = INDIFFERENT.covered(200);
    assert!(covered.iter().all(|hits| *hits >= 180), "{covered:?}");
    assert!(control >= 190, "{control}");
}

/// Without the hold beside a walk, what piled up would be part of its price: 36 µs for the largest.
#[test]
fn work_that_piled_up_is_told_apart() {
    let estimates = InjectionEstimates::of(&DEAR.responses(7, 60_000)).unwrap();
    let piled_up = 0.3 * 120_000.0;
    assert!(
        estimates.piled_up.interval.contains(piled_up),
        "{estimates:?}"
    );
    assert!(estimates.piled_up.is_clear);
    assert!(
        estimates.interrupt.interval.contains(10_000.0),
        "{estimates:?}"
    );
    assert!(!estimates.elsewhere.is_clear, "{estimates:?}");
}

/// What is told beforehand must be what is reached.
#[test]
fn the_resolution_that_is_promised_is_reached() {
    let all = INDIFFERENT.responses(3, 40_000);
    let pilot: Vec<_> = all[..1000].to_vec();
    let promised = resolution(&pilot, count(&all)).unwrap();
    let reached = InjectionEstimates::of(&all).unwrap().prices[0]
        .cost
        .half_width_ns();
    // Some acts come too late, which widens the interval.
    assert!(
        (0.8..1.35).contains(&(reached / promised)),
        "{promised} {reached}"
    );
    assert_eq!(resolution(&pilot[..10], 1000.0), None);
}

fn count(all: &[UnitResponse]) -> f64 {
    f64::from(u32::try_from(all.len()).unwrap())
}

#[test]
fn too_few_moments_make_no_estimate() {
    let few = INDIFFERENT.responses(1, 100);
    let refused = InjectionEstimates::of(&few).unwrap_err();
    assert!(refused.to_string().contains("fewer than 30"), "{refused}");
    assert_eq!(InjectionEstimates::of(&[]).unwrap_err().met, 0);
}
