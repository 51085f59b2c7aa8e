//! The picture of one recorded scan: who runs at each level when the hog comes.

use anyhow::Result;
use swtch_bench::load::PlayedMember;
use swtch_core::{Nanos, Pid, Tid};
use swtch_output::text;
use swtch_plot::content::{Content, Lane, LaneSpan, Lanes, SpanKind};
use swtch_plot::palette::Fill;
use swtch_plot::{self, Picture};

use super::VERB;
use super::script::{HogPhase, Scan, Scanned, ScannerKind, Script, ScriptResult, UserRun};
use crate::context::{ExperimentContext, RecordingChoice};
use crate::evidence::{BLOCKED, LoadRuns, RUNNING};

/// The picture shows this many quanta before the hog comes, and after.
const BEFORE: u32 = 4;
const AFTER: u32 = 9;

/// What the colours mean.
const KINDS: [(&str, Fill); 3] = [
    ("has its turn (user level)", Fill::WORKER),
    ("has the CPU (OS level)", Fill::RUNNING),
    ("runnable, waits for the CPU", Fill::QUEUED),
];
const TURN: usize = 0;
const CPU: usize = 1;
const WAITS: usize = 2;

/// Scans once more, recorded; `None` when told to stop, or when the scan had no hog.
///
/// # Errors
/// It cannot be played or recorded, or its trace not be read.
pub fn picture(context: &ExperimentContext, scan: &Scan) -> Result<Option<Picture>> {
    let script = Script::Scan(Scan {
        who: ScannerKind::Workers,
        ..scan.clone()
    });
    let run = context.run_script::<_, ScriptResult>(VERB, &script, RecordingChoice::Wanted)?;
    let Some(run) = run else {
        return Ok(None);
    };
    let (Some(trace), ScriptResult::Scanned(scanned)) = (&run.trace, &run.result) else {
        return Ok(None);
    };
    let Some(comes_ns) = scanned
        .of(HogPhase::Hog)
        .next()
        .map(|window| window.from_ns)
    else {
        return Ok(None);
    };
    let quantum = u64::try_from(scan.quantum.as_nanos())?;
    let shown = (
        comes_ns.saturating_sub(quantum * u64::from(BEFORE)),
        comes_ns + quantum * u64::from(AFTER),
    );
    let threads = scanned.threads.iter().copied().chain([scanned.hog]);
    let members: Vec<PlayedMember> = threads.map(|thread| member(thread, shown)).collect();
    let evidence = LoadRuns::read(trace, &members)?;
    let mut lanes = worker_lanes(scanned, shown);
    lanes.extend(thread_lanes(&evidence));
    Ok(Some(Picture {
        name: "two-levels-lanes".to_owned(),
        title: "Who runs at each level, before and after a hog comes".to_owned(),
        subtitle: swtch_plot::subtitle(&swtch_host::origin()),
        explanation: format!(
            "workers by their scheduler's own record, threads by the kernel's; quantum {}",
            Nanos::from_ns(quantum)
        ),
        notes: lost_note(scanned),
        content: Content::Lanes(Lanes {
            lanes,
            kinds: Vec::from(KINDS.map(|(name, fill)| SpanKind::named(name, fill))),
            length_ns: shown.1 - shown.0,
            aligned_with: Vec::new(),
        }),
    }))
}

fn lost_note(scanned: &Scanned) -> Vec<String> {
    match scanned.lost_runs {
        0 => Vec::new(),
        lost => vec![format!("{} are missing", text::counted(lost, "run"))],
    }
}

/// A lane for each worker that had a turn, in the order of their tasks.
fn worker_lanes(scanned: &Scanned, (from_ns, to_ns): (u64, u64)) -> Vec<Lane> {
    let is_shown = |run: &&UserRun| from_ns < run.to_ns && run.from_ns < to_ns;
    let mut tasks: Vec<u64> = scanned
        .runs
        .iter()
        .filter(is_shown)
        .map(|run| run.task)
        .collect();
    tasks.sort_unstable();
    tasks.dedup();
    let lane = |(number, task): (usize, u64)| {
        let runs = scanned.runs.iter().filter(is_shown);
        let own = runs.filter(|run| run.task == task);
        Lane {
            label: format!("worker {number}"),
            spans: own
                .map(|run| LaneSpan {
                    from_ns: run.from_ns.max(from_ns) - from_ns,
                    to_ns: run.to_ns.min(to_ns) - from_ns,
                    kind: TURN,
                })
                .collect(),
        }
    };
    tasks.into_iter().enumerate().map(lane).collect()
}

/// A thread as [`LoadRuns::read`] expects it, as if its body lasted from one moment to the other.
const fn member((pid, tid): (u32, u32), (began_ns, ended_ns): (u64, u64)) -> PlayedMember {
    PlayedMember {
        group: 0,
        index: 0,
        pid: Pid::new(pid),
        tid: Tid::new(tid),
        cpu: None,
        began_ns,
        ended_ns,
        cpu_time: Nanos::ZERO,
        voluntary: 0,
        involuntary: 0,
        gaps: Vec::new(),
    }
}

/// What the threads did, by the trace. Nothing is drawn while one is blocked or not yet there.
fn thread_lanes(evidence: &LoadRuns) -> Vec<Lane> {
    let labels = [(0, "their thread".to_owned()), (1, "hog".to_owned())];
    let mut lanes = evidence.lanes(&labels).lanes;
    for lane in &mut lanes {
        lane.spans.retain(|span| span.kind != BLOCKED);
        for span in &mut lane.spans {
            span.kind = if span.kind == RUNNING { CPU } else { WAITS };
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that began before the picture does, and one that ends after it.
    #[test]
    fn runs_are_cut_at_both_ends_of_the_picture() {
        let run = |task, from_ns, to_ns| UserRun {
            task,
            from_ns,
            to_ns,
        };
        let scanned = Scanned {
            runs: vec![
                run(7, 50, 120),
                run(9, 120, 180),
                run(7, 180, 900),
                run(8, 900, 950),
            ],
            ..Scanned::default()
        };
        let lanes = worker_lanes(&scanned, (100, 200));
        let spans: Vec<Vec<(u64, u64)>> = lanes
            .iter()
            .map(|lane| {
                lane.spans
                    .iter()
                    .map(|span| (span.from_ns, span.to_ns))
                    .collect()
            })
            .collect();
        assert_eq!(spans, [vec![(0, 20), (80, 100)], vec![(20, 80)]]);
        assert_eq!(lanes[1].label, "worker 1");
    }
}
