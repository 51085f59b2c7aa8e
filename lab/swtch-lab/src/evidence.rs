//! What a trace says of the members of a load: their runs, why each ended, and what ran next.
//!
//! ```text
//!   came to be     began                                           ended
//! ──────┼────────────┼───────────────────────────────────────────────┼──────▶ time
//!    ▓▓▓│  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│░░░░░░░░░░░│▓▓▓▓▓▓▓▓▓▓▓│      │░░░░│▓▓▓▓▓▓▓▓▓
//!       out                 out: slice             out: futex
//!                           taken by adder-2       blocked, then runnable
//! ```
//!
//! A trace has rows of all tasks of the recording; only those of members are kept, which are few
//! enough to hold in memory. What it does *not* do: judge. Experiments do that.

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use swtch_bench::load::PlayedMember;
use swtch_core::{Category, Nanos, Reason, Switch, TaskEvent, TaskKey};
use swtch_plot::content::{Lane, LaneSpan, Lanes, SpanKind};
use swtch_plot::palette::Fill;
use swtch_report::report::Names;
use swtch_store::{Columns, Trace};

/// What the colours of a time line mean, in the order of the indices in its spans.
const KINDS: [(&str, Fill); 3] = [
    ("running", Fill::RUNNING),
    ("runnable, waits for the CPU", Fill::QUEUED),
    ("blocked", Fill::BLOCKED),
];
/// A member has the CPU.
pub const RUNNING: usize = 0;
const RUNNABLE: usize = 1;
/// A member waits for something other than the CPU.
pub const BLOCKED: usize = 2;

/// The runs of all members of a load, as its trace shows them.
#[derive(Clone, Debug, Default)]
pub struct LoadRuns {
    /// One for each member, in the order of [`swtch_bench::load::LoadResults::members`].
    pub members: Vec<MemberRuns>,
    /// Records that the recorder lost.
    pub lost: u64,
}

/// The runs of one member, as the trace shows them.
#[derive(Clone, Debug, Default)]
pub struct MemberRuns {
    /// When it began its body: ns of the trace clock.
    pub began_ns: u64,
    /// When it ended its body: ns of the trace clock.
    pub ended_ns: u64,
    /// All its runs that the trace has, in order of time: before, in and after its body.
    pub runs: Vec<Run>,
}

/// A run and the wait before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Switch-in, in ns of the trace clock.
    pub from_ns: u64,
    /// Switch-out, in ns of the trace clock.
    pub to_ns: u64,
    /// Why the member left its CPU.
    pub reason: Reason,
    /// The task that got the CPU next.
    pub next_task: NextTask,
    /// Whether it left inside a system call.
    pub in_call: bool,
    /// How long it was runnable before the run; `None` when that was not seen.
    pub runnable: Option<Nanos>,
}

/// The task that got the CPU after a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextTask {
    /// A member, by its index in [`LoadRuns::members`].
    Member(usize),
    /// The process that plays the load, but no member.
    Player,
    /// A recorder: a process of this program that is not recorded itself.
    Recorder,
    /// The CPU went idle: no task followed.
    Idle,
    /// Another task, by name. Kernel tasks of which each CPU has one share a name: `kworker`.
    Other(String),
}

impl LoadRuns {
    /// Reads the trace of a load that these members played.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn read(trace: &Trace, members: &[PlayedMember]) -> Result<Self> {
        let mut tasks = trace.tasks().context("reading the tasks of the trace")?;
        tasks.sort_by_key(|event| event.ts);
        let mut reader = TraceReader::new(&tasks, members);
        let columns = Columns::TS
            | Columns::TASK
            | Columns::RAN
            | Columns::REASON
            | Columns::SYSCALL
            | Columns::NEXT_TASK
            | Columns::RUNQ;
        trace
            .scan(columns, None, &mut |row| reader.add(row))
            .context("reading the switches of the trace")?;
        Ok(Self {
            members: reader.member_runs,
            lost: trace.meta().counts.lost,
        })
    }

    /// The time line of these members, from the first begin to the last end of a body.
    pub fn lanes(&self, labels: &[(usize, String)]) -> Lanes {
        let members = || labels.iter().map(|(place, _)| &self.members[*place]);
        let start = members().map(|member| member.began_ns).min().unwrap_or(0);
        let end = members()
            .map(|member| member.ended_ns)
            .max()
            .unwrap_or(start);
        let lane = |(place, label): &(usize, String)| Lane {
            label: label.clone(),
            spans: self.members[*place].spans(start),
        };
        let lanes: Vec<Lane> = labels.iter().map(lane).collect();
        let kinds = lanes.iter().flat_map(|lane| &lane.spans);
        let last_kind = kinds.map(|span| span.kind).max().unwrap_or(RUNNING);
        Lanes {
            lanes,
            kinds: KINDS[..=last_kind]
                .iter()
                .map(|&(name, fill)| SpanKind::named(name, fill))
                .collect(),
            length_ns: end - start,
            aligned_with: Vec::new(),
        }
    }
}

impl MemberRuns {
    /// The runs that ended in a switch-out while it did its body.
    pub fn switch_outs(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(|run| self.began_ns <= run.to_ns && run.to_ns < self.ended_ns)
    }

    /// The runs that ended in a switch-out before it began its body.
    pub fn switch_outs_before(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.to_ns < self.began_ns)
    }

    /// The runs that ended in a preemption while it did its body.
    pub fn preemptions(&self) -> impl Iterator<Item = &Run> {
        self.switch_outs()
            .filter(|run| run.reason.category() == Category::Preemption)
    }

    /// How long it had a CPU between two moments.
    pub fn ran_between(&self, from_ns: u64, to_ns: u64) -> Nanos {
        let parts = self.runs.iter().map(|run| {
            let (from, to) = (run.from_ns.max(from_ns), run.to_ns.min(to_ns));
            to.saturating_sub(from)
        });
        Nanos::from_ns(parts.sum())
    }

    /// What it did during its body, as spans that count from `start_ns`.
    fn spans(&self, start_ns: u64) -> Vec<LaneSpan> {
        let mut spans = Vec::new();
        let mut push = |from: u64, to: u64, kind: usize| {
            let (from, to) = (from.max(self.began_ns), to.min(self.ended_ns));
            if from < to {
                spans.push(LaneSpan {
                    from_ns: from - start_ns,
                    to_ns: to - start_ns,
                    kind,
                });
            }
        };
        let mut out = self.began_ns;
        for run in &self.runs {
            let runnable = run.runnable.map_or(0, Nanos::as_ns);
            let woken = run.from_ns.saturating_sub(runnable).max(out);
            push(out, woken, BLOCKED);
            push(woken, run.from_ns, RUNNABLE);
            push(run.from_ns.max(out), run.to_ns, RUNNING);
            out = run.to_ns;
        }
        spans
    }
}

/// The state while the rows of a trace are read.
struct TraceReader {
    names: Names,
    /// Index of a member, by the index of its task.
    members: FxHashMap<usize, usize>,
    /// Time of the last switch-out of each member, in ns.
    last_out: Vec<Option<u64>>,
    member_runs: Vec<MemberRuns>,
}

impl TraceReader {
    fn new(tasks: &[TaskEvent], members: &[PlayedMember]) -> Self {
        let names = Names::new(tasks);
        let mut places = FxHashMap::default();
        for event in tasks {
            // A thread id may have belonged to another task before; that task was not in scope.
            let is_of = |member: &PlayedMember| {
                member.tid == event.tid && member.pid == event.pid && event.in_scope
            };
            if let Some(place) = members.iter().position(is_of) {
                places.insert(names.index(event.task), place);
            }
        }
        let runs_of = |member: &PlayedMember| MemberRuns {
            began_ns: member.began_ns,
            ended_ns: member.ended_ns,
            runs: Vec::new(),
        };
        Self {
            names,
            members: places,
            last_out: vec![None; members.len()],
            member_runs: members.iter().map(runs_of).collect(),
        }
    }

    fn add(&mut self, row: &Switch) {
        let Some(&place) = self.members.get(&self.names.index(row.task)) else {
            return;
        };
        let to_ns = row.ts.as_ns();
        // A run has no length when the recording began inside it. It is then taken to begin at the
        // last switch-out, or to be empty if none was recorded.
        let since = self.last_out[place].unwrap_or(to_ns);
        let from_ns = row
            .ran
            .map_or(since, |ran| to_ns.saturating_sub(ran.as_ns()));
        self.last_out[place] = Some(to_ns);
        let next_task = self.next_task(row.next_task);
        self.member_runs[place].runs.push(Run {
            from_ns,
            to_ns,
            reason: row.rule.reason,
            next_task,
            in_call: row.evidence.syscall.is_some(),
            runnable: row.wait.runq,
        });
    }

    fn next_task(&self, next: Option<TaskKey>) -> NextTask {
        let Some(next) = next else {
            return NextTask::Other("(unnamed)".to_owned());
        };
        if next == TaskKey::IDLE {
            return NextTask::Idle;
        }
        let index = self.names.index(next);
        if let Some(place) = self.members.get(&index) {
            return NextTask::Member(*place);
        }
        let thread = self.names.thread(index);
        if thread.in_scope {
            return NextTask::Player;
        }
        if thread.comm.starts_with(RECORDER) {
            return NextTask::Recorder;
        }
        NextTask::Other(name_without_cpu(&thread.comm).to_owned())
    }
}

/// The beginning of the names of the recorder's threads: the name of this program.
const RECORDER: &str = "swtch";

/// The common name of kernel tasks that exist on every CPU: `kworker/1:2-events` and `kworker/u8:0`
/// are workers, `ksoftirqd/0` serves soft interrupts.
fn name_without_cpu(comm: &str) -> &str {
    comm.split_once('/').map_or(comm, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::{Pid, Tid, Timestamp};
    use swtch_fixtures::{after, row, seen};

    fn member(tid: u32, began_ns: u64, ended_ns: u64) -> PlayedMember {
        PlayedMember {
            group: 0,
            index: 0,
            pid: Pid::new(10),
            tid: Tid::new(tid),
            cpu: Some(0),
            began_ns,
            ended_ns,
            cpu_time: Nanos::ZERO,
            voluntary: 0,
            involuntary: 0,
            gaps: Vec::new(),
        }
    }

    fn at(mut row: Switch, from: u64, to: u64, next: u32) -> Switch {
        row.ts = Timestamp::from_ns(to);
        row.ran = Some(Nanos::from_ns(to - from));
        row.next_task = Some(TaskKey::new(next));
        row
    }

    /// ```text
    ///        began                               ended
    /// tid 11   100 ▓▓▓ 300 ░░░░ 500 ▓▓▓ 600 ····░░ 800 ▓▓▓ 900
    /// tid 12            300 ▓▓▓▓ 500
    /// ```
    fn made_up_reader() -> TraceReader {
        let tasks = [
            seen(1, 10, 11, "adder-0"),
            seen(2, 10, 12, "adder-1"),
            TaskEvent {
                in_scope: false,
                ..seen(3, 40, 40, "kworker/0:1")
            },
        ];
        let mut reader = TraceReader::new(&tasks, &[member(11, 100, 850), member(12, 300, 500)]);
        for row in [
            at(row(1, Reason::Slice), 50, 300, 2),
            at(row(2, Reason::Slice), 300, 500, 1),
            at(
                after(row(1, Reason::Futex), Reason::Slice, 0, 200),
                500,
                600,
                0,
            ),
            at(
                after(row(1, Reason::Class), Reason::Futex, 150, 50),
                800,
                900,
                3,
            ),
        ] {
            reader.add(&row);
        }
        reader
    }

    #[test]
    fn only_what_ended_in_the_body_counts_as_its_switch_outs() {
        let members = made_up_reader().member_runs;
        let reasons: Vec<_> = members[0].switch_outs().map(|run| run.reason).collect();
        assert_eq!(reasons, [Reason::Slice, Reason::Futex]);
        assert_eq!(members[0].preemptions().count(), 1);
        assert_eq!(members[0].switch_outs_before().count(), 0);
    }

    #[test]
    fn who_came_is_a_member_idle_or_named_without_its_cpu() {
        let members = made_up_reader().member_runs;
        let next_tasks: Vec<_> = members[0]
            .runs
            .iter()
            .map(|run| run.next_task.clone())
            .collect();
        let kworker = NextTask::Other("kworker".to_owned());
        assert_eq!(next_tasks, [NextTask::Member(1), NextTask::Idle, kworker]);
    }

    #[test]
    fn the_time_of_a_body_is_running_runnable_or_blocked() {
        let evidence = LoadRuns {
            members: made_up_reader().member_runs,
            lost: 0,
        };
        let lanes = evidence.lanes(&[(0, "a".to_owned())]);
        let spans: Vec<_> = lanes.lanes[0]
            .spans
            .iter()
            .map(|span| (span.from_ns, span.to_ns, span.kind))
            .collect();
        assert_eq!(
            spans,
            [
                (0, 200, RUNNING),
                (200, 400, RUNNABLE),
                (400, 500, RUNNING),
                (500, 650, BLOCKED),
                (650, 700, RUNNABLE),
                (700, 750, RUNNING)
            ]
        );
        assert_eq!(lanes.length_ns, 750);
    }

    #[test]
    fn time_on_the_cpu_is_cut_at_both_ends() {
        let member = &made_up_reader().member_runs[0];
        assert_eq!(member.ran_between(100, 550).as_ns(), 250);
    }

    #[test]
    fn names_of_one_task_per_cpu_are_one_name() {
        assert_eq!(name_without_cpu("kworker/u8:0-flush"), "kworker");
        assert_eq!(name_without_cpu("migration/3"), "migration");
        assert_eq!(name_without_cpu("rcu_sched"), "rcu_sched");
    }
}
