//! Words for where no time is lost: what threads did instead, whom they waited for, and which of them ran nearly all
//! the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{AwaitedThing, Holder, Nanos, Reason, Spent};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::super::names::Names;
use super::super::waker::Wakers;
use super::details::WaitsForOthers;
use super::who::main_of;
use super::{Details, LOST_PCT, MOST_PCT, VerdictInput, share};

/// From this share of the recording on, a thread ran nearly all the time; and from the second on, it hardly lost any.
const BUSY_PCT: f64 = 90.0;
const DECIDES_PCT: f64 = 95.0;

/// From this share of all time on, which idle threads of a runtime have, too, it is the main thing.
const MOSTLY_PCT: f64 = 30.0;

/// A thread that ran nearly all the time.
#[derive(Clone, Debug)]
pub struct BusiestThread {
    label: String,
    /// The share of the recording for which it ran.
    ran_pct: f64,
    /// True if others of its program waited for it for most of that.
    is_awaited: bool,
    /// The number of other threads that ran nearly all the time.
    more: u64,
}

impl BusiestThread {
    /// The thread of the programs that ran longest, if it ran nearly all the time.
    pub fn of(details: &Details, names: &Names, wakers: &Wakers, wall: Nanos) -> Option<Self> {
        let tasks = 0..names.thread_count();
        let busiest =
            (tasks.clone()).max_by_key(|task| (details.seen[*task].ran, Reverse(*task)))?;
        let share_of = |task: usize| percent(details.seen[task].ran.as_ns(), wall.as_ns());
        let is_busy = |task: &usize| share_of(*task).is_some_and(|share| share >= BUSY_PCT);
        let ran_pct = share_of(busiest).filter(|_| is_busy(&busiest))?;
        let busy = tasks.filter(is_busy).count();
        let served = percent(wakers.blocked_for(busiest).as_ns(), wall.as_ns());
        Some(Self {
            label: names.label(busiest),
            ran_pct,
            // In a recording of the machine one busy program says nothing of the others.
            is_awaited: !names.is_of_the_machine() && served.is_some_and(|share| share >= MOST_PCT),
            more: u64::try_from(busy.saturating_sub(1)).unwrap_or(u64::MAX),
        })
    }

    /// Returns true if the program can be no faster than this thread, which loses hardly any time itself: what the
    /// others lose, they would wait for it otherwise.
    pub fn decides(&self) -> bool {
        self.is_awaited && self.more == 0 && self.ran_pct >= DECIDES_PCT
    }

    /// Returns what is said of it.
    pub fn words(&self) -> String {
        let one = format!("{} ran {:.1} % of the time", self.label, self.ran_pct);
        if self.more > 0 {
            let more = counted(self.more, "more thread");
            return format!(
                "{one}, and {more} {BUSY_PCT} % and above: a CPU each gives them no more."
            );
        }
        if self.is_awaited {
            format!(
                "{one}, and others wait for it: together they are as fast as this one thread, to which one CPU gives no \
                 more."
            )
        } else {
            format!("{one}: one CPU gives it no more.")
        }
    }
}

/// The wait in which threads mostly are, where no time is known to be lost.
pub(super) struct MainWait {
    pub awaited: &'static [AwaitedThing],
    pub time: Nanos,
    /// True if it may be lost all the same.
    pub is_doubtful: bool,
    pub words: String,
}

impl VerdictInput<'_> {
    /// The first sentences where no thread lost time: what they mostly did instead, and then the figures.
    pub fn nothing_is_lost(&self) -> String {
        let decides = self.busiest.as_ref().filter(|busiest| busiest.decides());
        if let Some(busiest) = decides {
            return format!(
                "{} Hardly any time is lost that counts: {}",
                busiest.words(),
                self.had_work()
            );
        }
        let others = [self.for_its_kind(), self.mostly_for_others()];
        let others = others.into_iter().flatten().next();
        let mostly = [others, self.asleep_instead(), self.mostly_for_each_other()];
        let mut mostly: Vec<_> = mostly.into_iter().flatten().collect();
        mostly.sort_by_key(|main| Reverse(main.time));
        let told: Vec<_> = mostly
            .iter()
            .flat_map(|main| main.awaited)
            .copied()
            .collect();
        let unread_workers = self.unread_workers();
        let is_doubtful = unread_workers.is_some() || mostly.iter().any(|main| main.is_doubtful);
        let beginning = if is_doubtful {
            "Else hardly any time is lost"
        } else if mostly.is_empty() {
            "Hardly any time is lost"
        } else {
            "In the program itself hardly any time is lost"
        };
        let mut sentences: Vec<_> = mostly.into_iter().map(|main| main.words).collect();
        sentences.extend(unread_workers);
        sentences.extend(self.busiest.as_ref().map(BusiestThread::words));
        sentences.push(format!("{beginning}: {}", self.had_work()));
        if let Some(waited) = self.waited_otherwise(&told) {
            let besides = if told.is_empty() {
                "They"
            } else {
                "Besides, they"
            };
            sentences.push(format!("{besides} waited {waited}."));
        }
        sentences.extend(self.workers_waited());
        sentences.join(" ")
    }

    /// Says how long its threads had work, and what became of that time.
    fn had_work(&self) -> String {
        let lost = &self.lost;
        let idle = self.preemptors.held_by(Holder::Idle).min(lost.no_cpu);
        let is_mostly_idle = percent(idle.as_ns(), lost.no_cpu.as_ns());
        let idle = if is_mostly_idle.is_some_and(|share| share >= MOSTLY_PCT) {
            format!(" (of that {idle} until CPUs that were idle had woken up)")
        } else {
            String::new()
        };
        format!(
            "its threads had work for {}, of which they ran for {}, had no CPU for {}{idle}, and were blocked in the \
             middle of work for {}.",
            lost.at_work().saturating_sub(lost.workers),
            lost.ran,
            lost.no_cpu,
            lost.blocked(AwaitedThing::Work),
        )
    }

    /// Returns true if this is the main thing that a program did. In a recording of the machine, that of most programs
    /// is to wait for something.
    pub(super) fn is_mostly(&self, time: Nanos) -> bool {
        let share = percent(time.as_ns(), self.busy_whole().as_ns());
        !self.names.is_of_the_machine() && share.is_some_and(|share| share >= MOSTLY_PCT)
    }

    /// All time, without that of threads that had no work, and of parents.
    fn busy_whole(&self) -> Nanos {
        let not_busy = self.waited_for_work() + self.waited_for_children();
        self.lost.whole().saturating_sub(not_busy)
    }

    /// Returns how long threads waited for work that others of their program hand out.
    fn waited_for_work(&self) -> Nanos {
        self.at_locks
            .handed_out
            .min(self.lost.blocked(AwaitedThing::Own))
    }

    fn waited_for_children(&self) -> Nanos {
        let own = self.lost.blocked(AwaitedThing::Own);
        let children = self.of_programs(Reason::Child).blocked_in_all();
        children.min(own.saturating_sub(self.waited_for_work()))
    }

    /// Tells of threads that mostly wait for others, a client for its server, a server for its clients; or for those of
    /// their program that do.
    fn mostly_for_others(&self) -> Option<MainWait> {
        let others = self.lost.blocked(AwaitedThing::Others);
        let own = self.lost.blocked(AwaitedThing::Own);
        let through = self.at_locks.elsewhere.of(Spent::Others).min(own);
        let time = others + through;
        let whom = self.for_whom().filter(|_| self.is_mostly(time))?;
        let waited = self.waited_for_those(through, time);
        Some(MainWait {
            awaited: match waited {
                Some(_) => &[AwaitedThing::Others, AwaitedThing::Own],
                None => &[AwaitedThing::Others],
            },
            time,
            is_doubtful: waited.is_some(),
            words: format!(
                "It mostly waits for others, for work or an answer: {whom}, {others} in all.{}",
                waited.map_or_else(String::new, |waited| format!(
                    " {waited}: for work, or for what these had (a lock), and then that time is lost."
                ))
            ),
        })
    }

    /// Tells of such waits, if they are a large part of all of that time: `For 7.22 s others of its threads waited for
    /// those that did so (walsender 99.9 %)`.
    pub(super) fn waited_for_those(&self, through: Nanos, all: Nanos) -> Option<String> {
        let share = percent(through.as_ns(), all.as_ns());
        share.filter(|share| *share >= MOSTLY_PCT)?;
        let processes = &self.details.for_processes;
        let are_most = percent(processes.sum().as_ns(), through.as_ns());
        let are_most = are_most.is_some_and(|share| share >= MOST_PCT);
        let which = self.ended_by_programs(processes).filter(|_| are_most);
        let which = which.map_or_else(String::new, |which| format!(" ({which})"));
        Some(format!(
            "For {through} others of its threads waited for those that did so{which}"
        ))
    }

    /// Tells of threads that mostly wait for each other, and not because these sleep or wait for others, nor for their
    /// children.
    fn mostly_for_each_other(&self) -> Option<MainWait> {
        let meanwhile = &self.at_locks.elsewhere;
        let not_here = meanwhile.of(Spent::Clock) + meanwhile.of(Spent::Others);
        let time = self.lost.blocked(AwaitedThing::Own);
        let time = time.saturating_sub(self.waited_for_work());
        let here = meanwhile.whole().saturating_sub(not_here);
        self.is_mostly(here.min(time)).then(|| MainWait {
            time,
            awaited: &[AwaitedThing::Own],
            is_doubtful: true,
            words: format!(
                "Its threads mostly wait {}, {time} in all: for work, or for what these had (a lock), and then that time \
                 is lost.",
                self.for_each_other()
            ),
        })
    }

    /// The time in which threads were blocked, and not known to be in the middle of work, by what they waited for,
    /// without what is told already.
    fn waited_otherwise(&self, told: &[AwaitedThing]) -> Option<String> {
        let others = match self.for_whom() {
            Some(whom) => format!("for others, work or an answer ({whom})"),
            None => "for others".to_owned(),
        };
        let for_work = self.waited_for_work();
        let blocked = |awaited| (self.lost.blocked(awaited), awaited);
        let (own, is_own) = blocked(AwaitedThing::Own);
        let for_children = self.waited_for_children();
        let for_each_other = own.saturating_sub(for_work + for_children);
        let mut parts = [
            (blocked(AwaitedThing::Others), others),
            ((for_each_other, is_own), self.for_each_other()),
            ((for_children, is_own), "for child processes".to_owned()),
            (
                (for_work, is_own),
                "for work that others of them hand out".to_owned(),
            ),
            (
                blocked(AwaitedThing::Clock),
                "until a time they chose".to_owned(),
            ),
            (
                blocked(AwaitedThing::Untold),
                "for what is not told".to_owned(),
            ),
        ]
        .map(|((time, awaited), words)| (time, awaited, words));
        parts.sort_by_key(|part| Reverse(part.0));
        let whole = self.lost.whole().as_ns();
        let is_small = |time: Nanos| percent(time.as_ns(), whole).is_none_or(|pct| pct < LOST_PCT);
        let parts = parts
            .iter()
            .filter(|(time, awaited, _)| !is_small(*time) && !told.contains(awaited));
        let parts: Vec<_> = parts
            .map(|(time, _, words)| format!("{time} {words}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// `for each other (gzip 99.0 %; whoever ended that, meanwhile: ran 80.0 %, slept 15.0 %)`
    fn for_each_other(&self) -> String {
        let processes = &self.details.for_processes;
        let own = self.lost.blocked(AwaitedThing::Own);
        let own = own.saturating_sub(self.waited_for_work());
        let is_most = percent(processes.sum().as_ns(), own.as_ns());
        let is_most = is_most.is_some_and(|share| share >= MOST_PCT);
        let whom = self.ended_by_programs(processes).filter(|_| is_most);
        let meanwhile = self.spent_in_words(&self.at_locks.elsewhere);
        let meanwhile = meanwhile.map(|words| format!("whoever ended that, meanwhile: {words}"));
        let told: Vec<_> = [whom, meanwhile].into_iter().flatten().collect();
        if told.is_empty() {
            "for each other".to_owned()
        } else {
            format!("for each other ({})", told.join("; "))
        }
    }

    /// Names the programs that ended the waits for others, for work or an answer.
    fn for_whom(&self) -> Option<String> {
        self.ended_by_programs(&self.details.for_others)
    }

    /// Names the programs that ended such waits: `load 62.0 %, interrupts: network, disk 38.0 %`.
    pub(super) fn ended_by_programs(&self, waits: &WaitsForOthers) -> Option<String> {
        let programs = self.by_program(waits);
        let all: Nanos = programs.iter().map(|(_, time)| *time).sum();
        let named = programs.into_iter().map(|(label, time)| {
            let words = format!("{label} {}", share(time.as_ns(), all.as_ns()));
            (words, time.as_ns())
        });
        main_of(named, all.as_ns())
    }

    /// Tells of waits for others of which most were ended by processes of the same name that are not recorded: by the
    /// other backends of a server, not by its clients.
    fn for_its_kind(&self) -> Option<MainWait> {
        let others = self.details.for_others.by_task.iter().enumerate();
        let of_its_kind = others.filter(|(task, _)| {
            let process = self.names.thread(*task).process;
            self.programs.is_namesake(process)
        });
        let of_its_kind: Nanos = of_its_kind.map(|(_, time)| *time).sum();
        let others = self.lost.blocked(AwaitedThing::Others);
        let whom = self.for_whom().filter(|_| self.is_mostly(others))?;
        let share = percent(of_its_kind.as_ns(), others.as_ns());
        share.filter(|share| *share >= MOST_PCT)?;
        Some(MainWait {
            awaited: &[AwaitedThing::Others],
            time: others,
            is_doubtful: true,
            words: format!(
                "It mostly waits for processes of its own kind that are not recorded ({whom}), {others} in all: perhaps \
                 for what these had (a lock), and then that time is lost; record all of them, or -a."
            ),
        })
    }

    /// Returns how long such waits were by program that ended them, the longest first.
    pub(super) fn by_program(&self, waits: &WaitsForOthers) -> Vec<(&str, Nanos)> {
        let mut programs: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (task, time) in waits.by_task.iter().enumerate() {
            let process = self.names.thread(task).process;
            *programs.entry(self.programs.label(process)).or_default() += *time;
        }
        *programs.entry("interrupts: network, disk").or_default() += waits.by_interrupts;
        let mut programs: Vec<_> = programs
            .into_iter()
            .filter(|one| one.1 > Nanos::ZERO)
            .collect();
        programs.sort_by_key(|(label, time)| (Reverse(*time), *label));
        programs
    }
}
