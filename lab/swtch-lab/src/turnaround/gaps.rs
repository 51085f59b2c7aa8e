//! What a process sees of its own switches (D6): gaps between two readings of the clock, each
//! compared with the times at which the recorder saw it off the CPU.
//!
//! ```text
//! readings    ||||||||||            |||||||||||||||
//! gap                 │◀──────────▶│
//! off the CPU          │◀────────▶│               lies in the gap, and is nearly all of it
//! ```

use anyhow::Result;
use swtch_bench::load::ClockGap;
use swtch_core::Nanos;
use swtch_report::report::{Cell, Sheet};

use crate::claims::list;
use crate::context::RecordingChoice;
use crate::evidence::MemberRuns;
use crate::findings::{Findings, FindingsTable};
use crate::load_experiment::LoadExperiment;
use crate::measured::LabNumber;
use crate::quantities::Quantities;
use swtch_core::stats::share;

/// The longest gaps that the table shows.
const SHOWN: usize = 8;

/// A gap, and what the recorder saw in it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ExplainedGap {
    gap: ClockGap,
    /// How long it was off the CPU in the gap, in ns.
    off_ns: u64,
    switches: u64,
}

/// Plays two readers of the clock, and adds what D6 asks.
///
/// # Errors
/// The load cannot be played.
pub fn add(
    experiment: &mut LoadExperiment<'_>,
    quantities: &mut Quantities,
    findings: &mut Findings,
) -> Result<()> {
    let result = match experiment.was_interrupted() {
        true => None,
        false => experiment.play("clock-readers", &[], RecordingChoice::Wanted)?,
    };
    if let Some(why) = experiment.why_unrecorded() {
        let ours = "gaps without a recording have no cause";
        quantities.cannot("D6", ours, format!("nothing was recorded: {why}"));
    }
    let evidence = result.as_ref().and_then(|result| result.evidence.as_ref());
    let (Some(result), Some(evidence)) = (&result, evidence) else {
        return Ok(());
    };
    let members = result.played.members.iter().zip(&evidence.members);
    let all = members.flat_map(|(member, member_runs)| {
        member.gaps.iter().map(|gap| explained(*gap, member_runs))
    });
    let mut all: Vec<ExplainedGap> = all.collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.gap.length_ns()));
    add_explained(&all, quantities);
    findings.tables.push(table(&all));
    Ok(())
}

/// The off-CPU time and the switches that the recorder saw in a gap.
fn explained(gap: ClockGap, member_runs: &MemberRuns) -> ExplainedGap {
    let offs = member_runs.runs.windows(2).map(|pair| {
        let (from, to) = (
            pair[0].to_ns.max(gap.from_ns),
            pair[1].from_ns.min(gap.to_ns),
        );
        to.saturating_sub(from)
    });
    let offs = offs.filter(|off| *off > 0);
    let (switches, off_ns) = offs.fold((0, 0), |(count, sum), off| (count + 1, sum + off));
    ExplainedGap {
        gap,
        off_ns,
        switches,
    }
}

impl ExplainedGap {
    fn is_by_switch(&self) -> bool {
        let nearly_all = list::claim("D6").given("nearly-all");
        self.off_ns as f64 >= nearly_all * self.gap.length_ns() as f64
    }
}

/// How many of the long gaps are a switch: interrupts and the hypervisor make shorter ones.
fn add_explained(all: &[ExplainedGap], quantities: &mut Quantities) {
    let long_ns = list::claim("D6").given("gap-ms") * 1e6;
    let long = all
        .iter()
        .filter(|one| one.gap.length_ns() as f64 >= long_ns);
    let long: Vec<&ExplainedGap> = long.collect();
    let by_switch = long.iter().filter(|one| one.is_by_switch()).count();
    let Some(longest) = long.first() else {
        let why = "no gap is long enough to be told from an interrupt";
        let ours = "no two readings of the clock were far enough apart";
        return quantities.cannot("D6", ours, why);
    };
    let part = share(by_switch as u64, long.len() as u64);
    quantities.number("explained", LabNumber::of_counts(part));
    quantities.words("by-switch", by_switch);
    quantities.words("long", long.len());
    quantities.words("longest", Nanos::from_ns(longest.gap.length_ns()));
    quantities.words("longest-off", Nanos::from_ns(longest.off_ns));
}

fn table(all: &[ExplainedGap]) -> FindingsTable {
    let mut sheet = Sheet::new("gaps", &["gap_ns", "off_cpu_ns", "off_cpu_pct", "switches"]);
    sheet.rows = all
        .iter()
        .take(SHOWN)
        .map(|one| {
            vec![
                Cell::Time(Nanos::from_ns(one.gap.length_ns())),
                Cell::Time(Nanos::from_ns(one.off_ns)),
                Cell::share(one.off_ns, one.gap.length_ns()),
                Cell::Count(one.switches),
            ]
        })
        .collect();
    FindingsTable::new(
        "the longest gaps between two readings of the clock, two processes on one CPU",
        sheet,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;
    use crate::evidence::{NextTask, Run};
    use swtch_core::Reason;

    const MS: u64 = 1_000_000;

    /// Off the CPU from 10 to 14 ms and from 20 to 20.1 ms.
    fn member_runs() -> MemberRuns {
        let run = |from_ns, to_ns| Run {
            from_ns,
            to_ns,
            reason: Reason::Slice,
            next_task: NextTask::Member(1),
            in_call: false,
            runnable: None,
        };
        MemberRuns {
            began_ns: 0,
            ended_ns: 40 * MS,
            runs: vec![
                run(0, 10 * MS),
                run(14 * MS, 20 * MS),
                run(20 * MS + MS / 10, 40 * MS),
            ],
        }
    }

    fn gap(from_ns: u64, to_ns: u64) -> ExplainedGap {
        explained(ClockGap { from_ns, to_ns }, &member_runs())
    }

    fn verdict(all: &[ExplainedGap]) -> Verdict {
        let mut quantities = Quantities::of_loads();
        add_explained(all, &mut quantities);
        quantities.answer("D6").verdict
    }

    #[test]
    fn a_gap_around_a_switch_is_explained_by_it() {
        let one = gap(10 * MS - 500, 14 * MS + 900);
        assert_eq!((one.off_ns, one.switches), (4 * MS, 1));
        assert!(one.is_by_switch());
    }

    #[test]
    fn a_gap_in_which_it_ran_is_not() {
        let one = gap(20 * MS - 500, 22 * MS);
        assert_eq!((one.off_ns, one.switches), (MS / 10, 1));
        assert!(!one.is_by_switch());
        assert_eq!(verdict(&[one; 40]), Verdict::DoesNotHold);
        let other = gap(10 * MS - 500, 14 * MS + 900);
        assert_eq!(verdict(&[other; 40]), Verdict::Holds);
        assert!(matches!(verdict(&[]), Verdict::CannotBeTested(_)));
    }
}
