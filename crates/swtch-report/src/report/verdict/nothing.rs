//! What is said where no time is lost: what threads did instead, whom they waited for, and which of them ran nearly all
//! the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{AwaitedThing, Holder, Nanos};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::super::names::Names;
use super::super::waker::Wakers;
use super::who::main_of;
use super::{Details, LEAST_TIME, MOST_PCT, VerdictInput, share};

/// From this share of the recording on, a thread ran nearly all the time; and from the second on, it hardly lost any.
const BUSY_PCT: f64 = 90.0;
const DECIDES_PCT: f64 = 95.0;

/// From this share of all time on, which idle threads of a runtime have, too, it is the main thing.
const MOSTLY_PCT: f64 = 30.0;

/// A thread that ran nearly all the time.
#[derive(Clone, Debug)]
pub struct BusiestThread {
    label: String,
    /// For which share of the recording.
    ran_pct: f64,
    /// Whether others of its program waited for it for most of that.
    is_awaited: bool,
}

impl BusiestThread {
    /// The thread of the programs that ran longest, if it ran nearly all the time.
    pub fn of(details: &Details, names: &Names, wakers: &Wakers, wall: Nanos) -> Option<Self> {
        let programs = 0..names.thread_count();
        let programs = programs.filter(|task| !names.process_of(*task).is_kernel);
        let busiest = programs.max_by_key(|task| (details.seen[*task].ran, Reverse(*task)))?;
        let ran = details.seen[busiest].ran;
        let ran_pct = percent(ran.as_ns(), wall.as_ns()).filter(|share| *share >= BUSY_PCT)?;
        let served = percent(wakers.blocked_for(busiest).as_ns(), wall.as_ns());
        Some(Self {
            label: names.label(busiest),
            ran_pct,
            // In a recording of the machine one busy program says nothing of the others.
            is_awaited: !names.is_of_the_machine() && served.is_some_and(|share| share >= MOST_PCT),
        })
    }

    /// Whether the program can be no faster than this thread, which loses hardly any time itself: what the others
    /// lose, they would wait for it otherwise.
    pub fn decides(&self) -> bool {
        self.is_awaited && self.ran_pct >= DECIDES_PCT
    }

    /// What is said of it.
    pub fn words(&self) -> String {
        let awaited = match self.is_awaited {
            true => ", and others wait for it",
            false => "",
        };
        format!(
            "{} ran {:.1} % of the time{awaited}: one CPU gives it no more.",
            self.label, self.ran_pct
        )
    }
}

impl VerdictInput<'_> {
    /// The first sentence where no thread lost time: what they did instead.
    pub fn nothing_is_lost(&self) -> String {
        let lost = &self.lost;
        let part =
            |time: Nanos| format!("{time} ({})", share(time.as_ns(), lost.at_work().as_ns()));
        let in_work = part(lost.blocked(AwaitedThing::Work));
        if let Some(busiest) = self.busiest.as_ref().filter(|busiest| busiest.decides()) {
            return format!(
                "Hardly any time is lost that counts: {} All its threads together ran for {}, could run and had no CPU \
                 for {}, and were blocked in the middle of work for {in_work}.",
                busiest.words(),
                lost.ran,
                part(lost.no_cpu),
            );
        }
        let idle = self.preemptors.held_by(Holder::Idle);
        let doubts = [self.asleep_instead(), self.for_its_kind()];
        let doubts: Vec<_> = doubts.into_iter().flatten().collect();
        let how = if doubts.is_empty() {
            ""
        } else {
            "known to be "
        };
        let beginning = match self.mostly_for_others() {
            Some(others) => {
                format!("Hardly any time is {how}lost in the program itself: {others}. Its")
            }
            None => format!("Hardly any time is {how}lost: its"),
        };
        let mut words = format!(
            "{beginning} threads ran for {}, could run and had no CPU for {}, and were blocked in the \
             middle of work for {in_work}.",
            lost.ran,
            part(lost.no_cpu.saturating_sub(idle)),
        );
        if idle >= LEAST_TIME {
            words += &format!(
                " Until CPUs that were idle had woken up it took {}.",
                part(idle)
            );
        }
        if let Some(waited) = self.waited_otherwise() {
            words += &format!(" They waited {waited}.");
        }
        for doubt in doubts {
            words += &format!(" {doubt}");
        }
        if let Some(busiest) = &self.busiest {
            words += &format!(" {}", busiest.words());
        }
        words
    }

    /// Whether this is the main thing that a program did. In a recording of the machine, that of most programs is to
    /// wait for something.
    fn is_mostly(&self, time: Nanos) -> bool {
        let share = percent(time.as_ns(), self.lost.whole().as_ns());
        !self.names.is_of_the_machine() && share.is_some_and(|share| share >= MOSTLY_PCT)
    }

    /// What is said if threads mostly wait for others: a client for its server, a server for its clients.
    fn mostly_for_others(&self) -> Option<String> {
        let others = self.lost.blocked(AwaitedThing::Others);
        let whom = self.for_whom().filter(|_| self.is_mostly(others))?;
        Some(format!(
            "it waits for others most of the time, for work or an answer, {others} in all ({whom})"
        ))
    }

    /// The time in which threads were blocked, and not known to be in the middle of work, by what they waited for.
    fn waited_otherwise(&self) -> Option<String> {
        let others = match self
            .for_whom()
            .filter(|_| self.mostly_for_others().is_none())
        {
            Some(whom) => format!("for others, work or an answer ({whom})"),
            None => "for others".to_owned(),
        };
        let parts = [
            (AwaitedThing::Others, others),
            (AwaitedThing::Own, "for each other".to_owned()),
            (AwaitedThing::Clock, "until a time they chose".to_owned()),
            (AwaitedThing::Untold, "for what is not told".to_owned()),
        ];
        let mut parts = parts.map(|(awaited, words)| (self.lost.blocked(awaited), words));
        parts.sort_by_key(|part| Reverse(part.0));
        let told = parts.iter().filter(|(time, _)| *time >= LEAST_TIME);
        let told: Vec<_> = told
            .map(|(time, words)| format!("{time} {words}"))
            .collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// Which programs ended the waits for others: `load 62.0 %, interrupts: network, disk 38.0 %`.
    fn for_whom(&self) -> Option<String> {
        let programs = self.others_by_program();
        let all: Nanos = programs.iter().map(|(_, time)| *time).sum();
        let named = programs.into_iter().map(|(label, time)| {
            let words = format!("{label} {}", share(time.as_ns(), all.as_ns()));
            (words, time.as_ns())
        });
        main_of(named, all.as_ns())
    }

    /// What is said if most waits for others were ended by processes of the same name that are not recorded: by the
    /// other backends of a server, not by its clients.
    fn for_its_kind(&self) -> Option<String> {
        let others = self.details.for_others.iter().enumerate();
        let of_its_kind = others.filter(|(task, _)| {
            let process = self.names.thread(*task).process;
            self.programs.is_namesake(process)
        });
        let of_its_kind: Nanos = of_its_kind.map(|(_, time)| *time).sum();
        let others = self.lost.blocked(AwaitedThing::Others);
        let share = percent(of_its_kind.as_ns(), others.as_ns());
        let is_most = share.is_some_and(|share| share >= MOST_PCT);
        (is_most && self.is_mostly(others)).then(|| {
            format!(
                "For {of_its_kind} it waited for processes of its own kind that are not recorded: perhaps for what these \
                 had (a lock), and then that time is lost (record all of them, or -a)."
            )
        })
    }

    /// How long it waited for others, by who ended that, the longest first.
    fn others_by_program(&self) -> Vec<(&str, Nanos)> {
        let mut programs: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (task, time) in self.details.for_others.iter().enumerate() {
            let process = self.names.thread(task).process;
            *programs.entry(self.programs.label(process)).or_default() += *time;
        }
        *programs.entry("interrupts: network, disk").or_default() += self.details.for_interrupts;
        let mut programs: Vec<_> = programs
            .into_iter()
            .filter(|one| one.1 > Nanos::ZERO)
            .collect();
        programs.sort_by_key(|(label, time)| (Reverse(*time), *label));
        programs
    }

    /// What is said of programs that mostly wait until a time they chose: nobody but them knows whether for something.
    fn asleep_instead(&self) -> Option<String> {
        let (time, times) = self.details.until_chosen;
        let mean = Nanos::from_ns(time.as_ns().checked_div(times)?);
        self.is_mostly(time).then(|| {
            format!(
                "They slept, or waited for what did not come in time, {} of {mean} (mean): if these are tries for \
                 something that others have (a lock, a file, an answer), that time is lost.",
                counted(times, "time")
            )
        })
    }
}
