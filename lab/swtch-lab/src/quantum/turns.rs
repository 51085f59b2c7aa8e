//! The turns of two tasks on one CPU in one play: their lengths while both wanted the CPU.

use swtch_core::Nanos;
use swtch_core::stats::{EventRate, quantile};

use crate::evidence::MemberRuns;
use crate::load_experiment::PlayResult;
use crate::measured::LabNumber;

/// The time in which both wanted the CPU is cut into this many parts of equal length, and switches
/// are counted in each: their spread gives the interval of the rate.
const PARTS: u64 = 10;

/// The turns of one play.
#[derive(Clone, Debug, Default)]
pub struct HogTurns {
    /// The tasks that share the CPU.
    pub hogs: Vec<Hog>,
    /// Seconds of CPU time that the two had while both wanted the CPU, without what others took.
    /// Without a recording, all of their CPU time.
    pub ran_s: f64,
    /// Switches from one to the other in that time; without a recording, all switches of both.
    pub switches: u64,
    /// Switches per second of CPU time in each part of that time. Empty without a recording.
    pub by_part: Vec<f64>,
    /// From the end of the first to the begin of the second, in ns; negative when they overlapped.
    pub apart_ns: f64,
}

/// One of the tasks, with its turns.
#[derive(Clone, Debug, Default)]
pub struct Hog {
    /// Name of its group in the load.
    pub name: String,
    /// CPU time of each of its turns, in ns. Empty without a recording.
    pub runs_ns: Vec<f64>,
    /// Share of the CPU while both wanted it, from 0 to 1; `None` without a recording.
    pub share: Option<f64>,
    /// CPU time over switch-outs, as the kernel counted them, in ns.
    counted_mean_ns: Option<f64>,
}

impl HogTurns {
    /// Reads the turns of a play.
    pub fn of(result: &PlayResult) -> Self {
        let members = &result.played.members;
        // Under fifo the second begins when the first is done; it wanted the CPU from the start.
        let from = result.played.started_ns;
        let to = members
            .iter()
            .map(|member| member.ended_ns)
            .min()
            .unwrap_or(from);
        let mut turns = Self {
            apart_ns: apart(result),
            ..Self::default()
        };
        for (place, member) in members.iter().enumerate() {
            let counted = member.voluntary + member.involuntary;
            turns.switches += counted;
            turns.hogs.push(Hog {
                name: result.names[place].clone(),
                counted_mean_ns: (counted > 0)
                    .then(|| member.cpu_time.as_ns() as f64 / counted as f64),
                ..Hog::default()
            });
        }
        match &result.evidence {
            Some(evidence) => turns.read_trace(&evidence.members, from, to),
            // The kernel's counts are of their whole lives.
            None => {
                let ran = members.iter().map(|member| member.cpu_time.as_ns());
                turns.ran_s = ran.sum::<u64>() as f64 / 1e9;
            }
        }
        turns
    }

    /// Takes turns and hand-overs from what was recorded.
    fn read_trace(&mut self, members: &[MemberRuns], from: u64, to: u64) {
        let turns = turns(members, from, to);
        for (place, (hog, member)) in self.hogs.iter_mut().zip(members).enumerate() {
            let own = turns.iter().filter(|turn| turn.hog == place);
            hog.runs_ns = own.map(|turn| turn.ran_ns as f64).collect();
            let ran = member.ran_between(from, to).as_ns();
            hog.share = (to > from).then(|| ran as f64 / (to - from) as f64);
        }
        let ends: Vec<u64> = turns.iter().map(|turn| turn.end_ns).collect();
        self.switches = ends.len() as u64;
        self.ran_s = ran_s(members, from, to);
        self.by_part = by_part(&ends, from, to, |from, to| ran_s(members, from, to));
    }

    /// Switches from one to the other over the CPU time that they had.
    pub const fn switches(&self) -> EventRate {
        EventRate {
            count: self.switches,
            seconds: self.ran_s,
            dispersion: 0.0,
        }
    }

    /// The same rate with an interval; without a recording, it has none.
    pub fn switch_rate(&self) -> Option<LabNumber> {
        LabNumber::of(&self.by_part).or_else(|| {
            Some(LabNumber {
                point: self.switches().per_second()?,
                interval: None,
                rounds: Some(1),
            })
        })
    }

    /// The median turn of both tasks.
    pub fn median(&self) -> Option<LabNumber> {
        let all: Vec<f64> = self
            .hogs
            .iter()
            .flat_map(|hog| hog.runs_ns.clone())
            .collect();
        LabNumber::of(&all)
    }

    /// The tasks by name: tasks of the same name become one, with the turns of both.
    pub fn distinct(&self) -> Vec<Hog> {
        let mut distinct: Vec<Hog> = Vec::new();
        for hog in &self.hogs {
            match distinct.iter_mut().find(|one| one.name == hog.name) {
                Some(one) => one.runs_ns.extend(&hog.runs_ns),
                None => distinct.push(hog.clone()),
            }
        }
        distinct
    }

    /// A sentence on fifo, under which equal tasks run one after the other.
    pub fn one_after_the_other(&self) -> String {
        match self.apart_ns {
            apart if apart >= 0.0 => format!(
                "Under fifo the second began {} after the first had ended: equal ones do not share.",
                Nanos::from_rounded(apart)
            ),
            overlap => format!(
                "Under fifo the second began {} before the first had ended: another class was let in \
                 between.",
                Nanos::from_rounded(-overlap)
            ),
        }
    }
}

impl Hog {
    /// The mean turn: of the recorded turns, else from the kernel's counts.
    pub fn mean_ns(&self) -> Option<f64> {
        match self.runs_ns.is_empty() {
            true => self.counted_mean_ns,
            false => Some(self.runs_ns.iter().sum::<f64>() / self.runs_ns.len() as f64),
        }
    }

    /// The turn that this share of all (0 to 1) does not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.runs_ns, share)
    }
}

/// From the first end of all to the last begin, in ns.
fn apart(result: &PlayResult) -> f64 {
    let members = &result.played.members;
    let ended = members
        .iter()
        .map(|member| member.ended_ns)
        .min()
        .unwrap_or(0);
    let began = members
        .iter()
        .map(|member| member.began_ns)
        .max()
        .unwrap_or(0);
    began as f64 - ended as f64
}

/// A turn of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    hog: usize,
    /// CPU time that it had, in ns.
    ran_ns: u64,
    /// When it had the CPU last: ns of the trace clock.
    end_ns: u64,
}

/// The turns that end between two moments, without the first, which may have begun before, and the
/// last, which may go on. Runs of one task with only other tasks between are one turn.
fn turns(members: &[MemberRuns], from: u64, to: u64) -> Vec<Turn> {
    let runs = members.iter().enumerate();
    let runs = runs.flat_map(|(hog, member)| member.runs.iter().map(move |run| (hog, run)));
    let mut runs: Vec<_> = runs
        .filter(|(_, run)| from <= run.from_ns && run.to_ns <= to)
        .collect();
    runs.sort_by_key(|(_, run)| run.from_ns);
    let mut turns: Vec<Turn> = Vec::new();
    for (hog, run) in runs {
        let ran_ns = run.to_ns - run.from_ns;
        match turns.last_mut().filter(|turn| turn.hog == hog) {
            Some(turn) => {
                turn.ran_ns += ran_ns;
                turn.end_ns = run.to_ns;
            }
            None => turns.push(Turn {
                hog,
                ran_ns,
                end_ns: run.to_ns,
            }),
        }
    }
    // The last one may go on beyond the time that is looked at.
    turns.pop();
    if !turns.is_empty() {
        turns.remove(0);
    }
    turns
}

/// Seconds of CPU time that they had between two moments, together.
fn ran_s(members: &[MemberRuns], from: u64, to: u64) -> f64 {
    let ran = members
        .iter()
        .map(|member| member.ran_between(from, to).as_ns());
    ran.sum::<u64>() as f64 / 1e9
}

/// Switches per second of CPU time in each part of the time; parts without CPU time are left out.
fn by_part(outs: &[u64], from: u64, to: u64, ran_s: impl Fn(u64, u64) -> f64) -> Vec<f64> {
    let part_ns = (to - from) / PARTS;
    if part_ns == 0 {
        return Vec::new();
    }
    let rate = |part: u64| {
        let (begin, end) = (from + part * part_ns, from + (part + 1) * part_ns);
        let count = outs.iter().filter(|out| (begin..end).contains(out)).count();
        let seconds = ran_s(begin, end);
        (seconds > 0.0).then(|| count as f64 / seconds)
    };
    (0..PARTS).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{NextTask, Run};
    use swtch_core::Reason;

    #[test]
    fn switches_are_counted_in_parts_of_the_time() {
        let outs: Vec<u64> = (0..100).map(|tick| 1_000 + tick * 10).collect();
        let ran_s = |from: u64, to: u64| (to - from) as f64 / 1e9;
        let rates = by_part(&outs, 1_000, 2_000, ran_s);
        assert_eq!(rates.len(), 10);
        assert!(
            rates.iter().all(|rate| (*rate - 1e8).abs() < 1.0),
            "{rates:?}"
        );
        assert!(by_part(&outs, 5, 5, ran_s).is_empty());
    }

    /// ```text
    /// hog 0   ▓▓▓▓      ▓▓  ▓▓      ▓▓▓▓
    /// hog 1       ▓▓▓▓          ▓▓▓▓
    /// other               ▒▒
    ///        0   10  20    30      40
    /// ```
    #[test]
    fn a_stranger_in_between_does_not_end_a_turn() {
        let run = |(from_ns, to_ns)| Run {
            from_ns,
            to_ns,
            reason: Reason::Slice,
            next_task: NextTask::Idle,
            in_call: false,
            runnable: None,
        };
        let member = |runs: &[(u64, u64)]| MemberRuns {
            runs: runs.iter().copied().map(run).collect(),
            ..MemberRuns::default()
        };
        let members = [
            member(&[(0, 10), (20, 24), (26, 30), (40, 50)]),
            member(&[(10, 20), (30, 40)]),
        ];
        let lengths: Vec<(usize, u64)> = turns(&members, 0, 50)
            .iter()
            .map(|turn| (turn.hog, turn.ran_ns))
            .collect();
        assert_eq!(lengths, [(1, 10), (0, 8), (1, 10)]);
    }

    #[test]
    fn equal_tasks_are_one_distribution() {
        let hog = |name: &str, run| Hog {
            name: name.to_owned(),
            runs_ns: vec![run],
            ..Hog::default()
        };
        let turns = HogTurns {
            hogs: vec![hog("hog", 1.0), hog("hog", 3.0), hog("nice-5", 9.0)],
            ..HogTurns::default()
        };
        let distinct = turns.distinct();
        assert_eq!(distinct.len(), 2);
        assert_eq!(distinct[0].runs_ns, [1.0, 3.0]);
        assert_eq!(turns.median().unwrap().point, 3.0);
    }
}
