//! `pipe-token`: the cost of a switch, from two tasks that pass a token to and fro.
//!
//! ```text
//! one group, all side by side:
//!   pipe      × threads, processes × together, apart, free × default, batch
//!   condvar   × threads            × together, apart, free × default
//!   futex     × threads, processes × together              × default, batch
//!   coroutine, empty system call, a twin
//! another group: rings of 2 and of 12 threads or processes, with pages to look up
//! ```
//!
//! Every hand-over has its hot baseline beside it: the same calls by one task alone. The second
//! group measures what a lost address-space identifier costs: the kernel keeps six a CPU
//! (`TLB_NR_DYN_ASIDS`, `arch/x86/mm/tlb.c`, v6.18), so a ring of twelve address spaces finds its
//! TLB empty at every switch, as if there were no identifiers at all.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::{
    ArmSpec, Coroutine, InstructionRate, Neighbour, PageSize, RingSpec, WorkSpec, home,
    instruction_rate, neighbours,
};
use swtch_core::cost::{Estimate, Members, Place, Policy, Primitive};
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::Verdict;
use super::context::ExperimentContext;
use super::findings::{Findings, FindingsTable};
use super::measured::cannot_be_tested;
use super::parameters::Parameters;
use super::quantities::Quantities;
use super::timed::{
    self, Timed, WHISKERS, cells, is_larger, is_within, named_dot, scaled, subtitle, time,
    unpaired_difference,
};
use swtch_cost::menu::{Arm, ArmGroup, Role, Section, steady_policy};
use swtch_cost::series::{ArmOperation, Blocks};

const TOKENS: &str = "tokens";
const SPACES: &str = "address spaces";

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let cpu = home()?;
    let trees = timed::trees(parameters)?;
    let apart = apart(cpu)?;
    let groups = vec![tokens(trees, cpu, apart.as_ref().ok()), spaces(trees, cpu)?];
    let budget = Duration::from_secs(if context.is_quick { 10 } else { 34 });
    let timed = Timed::side_by_side(groups, budget, context)?;
    let mut findings = timed.findings();
    findings.notes.extend(
        apart
            .err()
            .map(|why| format!("nothing is passed between two CPUs: {why}")),
    );
    let mut quantities = Quantities::of_arms();
    if let Some(measured) = timed.group(TOKENS) {
        let tokens = Tokens(Blocks::of(measured));
        findings.tables.push(tokens.table());
        findings.pictures.push(tokens.picture());
        findings.sentences.extend(tokens.sentences());
        tokens.add_together_and_free(&mut quantities);
        tokens.add_own_price(&mut quantities);
        tokens.add_instructions(&mut quantities);
        tokens.add_coroutines(&mut quantities);
    }
    if let Some(measured) = timed.group(SPACES) {
        add_flushes(&Blocks::of(measured), &mut quantities);
    }
    findings.answers = quantities.answers("pipe-token");
    Ok(findings)
}

/// The CPU nearest to `home` with its relation to it, or the reason why there is none.
fn apart(home: u32) -> Result<Result<(Place, u32), String>> {
    let neighbours = neighbours(home)?;
    let near = neighbours
        .iter()
        .find_map(|Neighbour { place, cpu }| Some((*place, *cpu.as_ref().ok()?)));
    Ok(near.ok_or_else(|| "this process may use one CPU only".to_owned()))
}

fn tokens(trees: usize, cpu: u32, apart: Option<&(Place, u32)>) -> ArmGroup {
    let mut group = ArmGroup::new(TOKENS, Section::Switch);
    (group.trees, group.rounds) = (trees, 8);
    let mut places = vec![(Place::SameCpu, Some((cpu, cpu)))];
    places.extend(apart.map(|(place, other)| (*place, Some((cpu, *other)))));
    places.push((Place::Free, None));
    let mut add = |primitive, members, policy, (place, cpus): &(Place, Option<(u32, u32)>)| {
        let ring = RingSpec {
            place: *place,
            cpus: *cpus,
            ..RingSpec::pair(primitive, members, policy, cpu)
        };
        group.add(Arm::ring(ring, Role::Price));
    };
    let together = places[0];
    for policy in [Policy::Default, Policy::Batch] {
        for members in Members::ALL {
            add(Primitive::FutexShared, *members, policy, &together);
            for place in &places {
                add(Primitive::Pipe, *members, policy, place);
            }
        }
    }
    for place in &places {
        add(Primitive::Condvar, Members::Threads, Policy::Default, place);
    }
    group.add(Arm {
        spec: ArmSpec::Coroutine {
            which: Coroutine::Corosensei,
        },
        kind: "coroutine".to_owned(),
        role: Role::Price,
    });
    group.add(Arm::reference());
    timed::add_twin(&mut group);
    group
}

/// Ring sizes for which address-space identifiers suffice, and do not.
const FEW: u32 = 2;
const MANY: u32 = 12;

/// Pages that each member looks up when it has the turn.
const PAGES: u32 = 64;

fn spaces(trees: usize, cpu: u32) -> Result<ArmGroup> {
    let mut group = ArmGroup::new(SPACES, Section::Contrast);
    (group.trees, group.rounds) = (trees, 8);
    let policy = steady_policy()?;
    for count in [FEW, MANY] {
        for members in [Members::Threads, Members::Processes] {
            let ring = RingSpec {
                count,
                work: WorkSpec::Pages {
                    pages: PAGES,
                    size: PageSize::Small,
                },
                ..RingSpec::pair(Primitive::FutexShared, members, policy, cpu)
            };
            group.add(Arm::ring(ring, Role::Part));
        }
    }
    timed::add_twin(&mut group);
    Ok(group)
}

/// Blocks of the first group.
struct Tokens<'m>(Blocks<'m>);

impl Tokens<'_> {
    /// The rings that are priced, with the index of their arm.
    fn rings(&self) -> impl Iterator<Item = (usize, &RingSpec)> {
        let arms = self.0.group().arms.iter().enumerate();
        let priced = arms.filter(|(_, arm)| arm.role == Role::Price);
        priced.filter_map(|(index, arm)| Some((index, arm.as_ring()?)))
    }

    fn find(
        &self,
        primitive: Primitive,
        members: Members,
        policy: Policy,
        is_there: fn(Place) -> bool,
    ) -> Option<usize> {
        let mut rings = self.rings();
        let found = rings.find(|(_, ring)| {
            (ring.primitive, ring.members, ring.policy) == (primitive, members, policy)
                && is_there(ring.place)
        });
        found.map(|(arm, _)| arm)
    }

    /// Two threads on one CPU under the default policy, as applications have them. A woken thread
    /// may preempt its waker, but in a pair the kernel counts one switch a hand-over all the same.
    fn switch(&self, primitive: Primitive) -> Option<usize> {
        self.find(primitive, Members::Threads, Policy::Default, is_together)
    }

    fn coroutine(&self) -> Option<usize> {
        let mut arms = self.0.group().arms.iter();
        arms.position(|arm| matches!(arm.spec, ArmSpec::Coroutine { .. }))
    }

    fn net(&self, arm: usize) -> Option<Estimate> {
        self.0
            .difference(ArmOperation::baseline(arm), ArmOperation::of(arm))
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new(
            "pipe-token",
            &[
                "token",
                "members",
                "place",
                "policy",
                "hand_over_ns",
                "hand_over_half_width_ns",
                "hand_over_low_ns",
                "hand_over_high_ns",
                "own_price_ns",
                "net_ns",
                "net_half_width_ns",
                "net_low_ns",
                "net_high_ns",
                "switches",
                "voluntary",
                "involuntary",
                "left_out",
            ],
        );
        sheet.not_in_tables = &[
            "hand_over_low_ns",
            "hand_over_high_ns",
            "net_low_ns",
            "net_high_ns",
            "voluntary",
            "involuntary",
        ];
        sheet.rows = self
            .rings()
            .map(|(arm, ring)| self.row(arm, ring))
            .collect();
        sheet.rows.extend(self.coroutine_row());
        FindingsTable::new(
            "A token handed on: all of it, the calls without a peer, and the rest",
            sheet,
        )
    }

    fn row(&self, arm: usize, ring: &RingSpec) -> Vec<Cell> {
        let own = self.0.estimate(ArmOperation::baseline(arm));
        let (voluntary, involuntary) = self.0.switches(ArmOperation::of(arm));
        let mut all = vec![
            Cell::text(ring.primitive.as_str()),
            Cell::text(ring.members.as_str()),
            Cell::text(ring.place.as_str()),
            Cell::text(ring.policy.as_str()),
        ];
        all.extend(cells(self.0.estimate(ArmOperation::of(arm)).as_ref()));
        all.push(own.map_or(Cell::Missing, |own| Cell::Estimated(own.point)));
        all.extend(cells(self.net(arm).as_ref()));
        all.extend([voluntary + involuntary, voluntary, involuntary].map(Cell::Ratio));
        all.push(Cell::Count(self.0.dropped_of(ArmOperation::of(arm)) as u64));
        all
    }

    /// Of a coroutine, operation 1 is its work with switches (the price "in situ"), operation 2 the
    /// same work without.
    fn coroutine_row(&self) -> Option<Vec<Cell>> {
        let arm = self.coroutine()?;
        let [whole, own] = [1, 2].map(|timed_operation| ArmOperation {
            arm,
            timed_operation,
        });
        let mut all = vec![
            Cell::text("coroutine"),
            Cell::Missing,
            Cell::Missing,
            Cell::Missing,
        ];
        all.extend(cells(self.0.estimate(whole).as_ref()));
        all.push(
            self.0
                .estimate(own)
                .map_or(Cell::Missing, |own| Cell::Estimated(own.point)),
        );
        all.extend(cells(self.0.difference(own, whole).as_ref()));
        let (voluntary, involuntary) = self.0.switches(whole);
        all.extend([voluntary + involuntary, voluntary, involuntary].map(Cell::Ratio));
        all.push(Cell::Count(self.0.dropped_of(whole) as u64));
        Some(all)
    }

    fn sentences(&self) -> Vec<String> {
        let of = |members| {
            let arm = self.find(Primitive::Pipe, members, Policy::Default, is_together)?;
            let (voluntary, involuntary) = self.0.switches(ArmOperation::of(arm));
            Some(format!(
                "Two {members} on one CPU pass a byte in {}, {} of it net of the pipe, with {:.3} switches.",
                time(&self.0.estimate(ArmOperation::of(arm))?),
                time(&self.net(arm)?),
                voluntary + involuntary
            ))
        };
        Members::ALL
            .iter()
            .filter_map(|members| of(*members))
            .collect()
    }

    /// The whole time of one operation over that of another.
    fn ratio(&self, one: ArmOperation, over: ArmOperation) -> Option<Estimate> {
        Some(self.0.contrast(over, one)?.ratio)
    }

    /// B1: by pipe or condition variable, two threads on one CPU take about half the time of free
    /// ones.
    fn add_together_and_free(&self, all: &mut Quantities) -> Option<()> {
        /// Ratios that count as the same time.
        const ALIKE: std::ops::Range<f64> = 0.8..1.25;
        if timed::cpus() == 1 {
            all.cannot("B1", "nothing", "this process may use one CPU only");
        }
        let mut are_alike = true;
        for (primitive, name) in [(Primitive::Pipe, "pipe"), (Primitive::Condvar, "condvar")] {
            let find = |is_there| {
                let arm = self.find(primitive, Members::Threads, Policy::Default, is_there);
                arm.map(ArmOperation::of)
            };
            let (together, free) = (find(is_together)?, find(is_free)?);
            let in_words = |operation| Some(time(&self.0.estimate(operation)?));
            let apart = find(is_apart).and_then(in_words);
            let apart = apart.map_or_else(String::new, |apart| format!(" ({apart} apart)"));
            let (of_together, of_free) = (in_words(together)?, in_words(free)?);
            all.words(
                name,
                format!("{of_together} together, {of_free} free{apart}"),
            );
            let half = self.ratio(together, free)?;
            are_alike &= is_within(&half, ALIKE) == Verdict::Holds;
            all.list("half", [(name.to_owned(), Some(half))]);
        }
        all.words("alike", match are_alike {
            true => "; free threads take as long as those together: the kernel has put them on one CPU by \
                     itself, while apart each hand-over has to wake an idle CPU",
            false => "",
        });
        Some(())
    }

    /// E1: the token's own price is not negligible, and pipes overstate the switch.
    fn add_own_price(&self, all: &mut Quantities) -> Option<()> {
        let [pipe, futex] = [
            self.switch(Primitive::Pipe)?,
            self.switch(Primitive::FutexShared)?,
        ];
        let own = |arm| self.ratio(ArmOperation::baseline(arm), ArmOperation::of(arm));
        all.number("own", own(pipe));
        all.number("own-of-futex", own(futex));
        all.number("net", self.net(pipe));
        all.number("futex-net", self.net(futex));
        let dearer = self
            .0
            .contrast(ArmOperation::of(futex), ArmOperation::of(pipe))?;
        all.number("pipe-over-futex", Some(dearer.ratio));
        all.judge("E1", is_larger(&dearer, timed::twins(&self.0).as_ref()));
        Some(())
    }

    /// B5: tens of thousands of instructions fit into one switch.
    fn add_instructions(&self, all: &mut Quantities) -> Option<()> {
        let net = self.net(self.switch(Primitive::Pipe)?)?;
        match best_rate() {
            Err(why) => {
                let ours = format!("a switch takes {}", time(&net));
                all.cannot("B5", ours, format!("no instructions are counted: {why}"));
            }
            Ok(rate) => {
                let independent = scaled(&net, rate.independent);
                all.number("instructions", Some(independent));
                all.number("thousands", Some(scaled(&independent, 1e-3)));
                all.number("chained", Some(scaled(&net, rate.chained)));
                all.words("rate", format!("{:.2}", rate.independent));
            }
        }
        Some(())
    }

    /// B6: a coroutine is switched far more cheaply than a thread.
    fn add_coroutines(&self, all: &mut Quantities) -> Option<()> {
        let in_situ = ArmOperation {
            arm: self.coroutine()?,
            timed_operation: 1,
        };
        let thread = ArmOperation::of(self.switch(Primitive::FutexShared)?);
        all.number("coroutines", self.ratio(thread, in_situ));
        all.number("coroutine", self.0.estimate(in_situ));
        Some(())
    }

    fn picture(&self) -> Picture {
        let dot = |(arm, ring): (usize, &RingSpec)| {
            let label = format!("{}, {}, {}", ring.primitive, ring.members, ring.policy);
            Some(named_dot(label, Some(ring.place.as_str()), &self.net(arm)?))
        };
        Picture {
            name: "pipe-token".to_owned(),
            title: "What handing a token on costs, net of the token itself".to_owned(),
            subtitle: subtitle(),
            explanation: format!(
                "Same CPU: a switch. Elsewhere: a remote wake-up. Free: where the kernel put them. {WHISKERS}"
            ),
            notes: Vec::new(),
            content: Content::Dots(Dots {
                axis: Axis::new("net time of a hand-over", Measure::Time, Scale::Logarithmic),
                rows: self.rings().filter_map(dot).collect(),
            }),
        }
    }
}

/// The best of a few tries: other activity of the machine can only slow the loops down.
fn best_rate() -> Result<InstructionRate, swtch_bench::Error> {
    const TRIES: usize = 5;
    let mut best = instruction_rate()?;
    for _ in 1..TRIES {
        let rate = instruction_rate()?;
        best.chained = best.chained.max(rate.chained);
        best.independent = best.independent.max(rate.independent);
    }
    Ok(best)
}

fn is_together(place: Place) -> bool {
    place == Place::SameCpu
}

fn is_apart(place: Place) -> bool {
    !is_together(place) && !is_free(place)
}

fn is_free(place: Place) -> bool {
    place == Place::Free
}

/// B7: where address spaces have identifiers (PCID), their switches come close to those of threads;
/// without them, every switch empties the TLB. Identifiers cannot be switched off while the kernel
/// runs, but a large ring runs out of them.
fn add_flushes(blocks: &Blocks<'_>, all: &mut Quantities) -> Option<()> {
    let [few_threads, few, many_threads, many] = [0, 1, 2, 3].map(ArmOperation::of);
    let kept = blocks.difference(few_threads, few)?;
    let lost = blocks.difference(many_threads, many)?;
    all.number("kept", Some(kept));
    all.number("lost", Some(lost));
    all.number("closer", Some(blocks.contrast(few_threads, few)?.ratio));
    all.words("pages", PAGES);
    let has_identifiers = timed::fact_value("pcid").is_some_and(|value| value == "yes");
    let flushes = unpaired_difference(&lost, &kept);
    all.optional("flushes", has_identifiers.then_some(flushes));
    if !has_identifiers {
        let why = "this CPU shows no identifiers of address spaces (pcid)";
        all.judge("B7", cannot_be_tested(why));
    }
    Some(())
}
