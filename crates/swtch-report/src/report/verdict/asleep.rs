//! Words for programs that mostly wait until a time they chose: nobody but them knows whether for something.

use rustc_hash::FxHashMap;
use swtch_core::{AwaitedThing, Nanos, Reason, Spent, StackKind};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::super::ends::scaled_down;
use super::super::workers::sum_of;
use super::nothing::MainWait;
use super::{VerdictInput, capitalised};

/// From this share on waits are called by what they are then.
const NEARLY_ALL_PCT: f64 = 90.0;

/// In what a thread of Java is that sleeps: it waits at a word for what does not come.
const SLEEP: [&str; 1] = ["JVM_Sleep"];

/// In what threads of Java and of its machine are that wait for their next task (JDK 11 to 25).
const FOR_TASKS: [&str; 9] = [
    "java.util.concurrent.ForkJoinPool.awaitWork",
    "java.util.concurrent.ThreadPoolExecutor.getTask",
    "java.util.concurrent.DelayScheduler.loop",
    "java.util.TimerThread.mainLoop",
    "CompileQueue::get(",
    "MonitorDeflationThread::",
    "ServiceThread::",
    "G1ServiceThread::",
    "WatcherThread::",
];

impl VerdictInput<'_> {
    /// Tells of programs that mostly sleep, or mostly wait for what does not come in time.
    pub(super) fn asleep_instead(&self) -> Option<MainWait> {
        let (asleep, timed_out) = (&self.details.asleep, &self.details.timed_out);
        let limited = self.timed_out_and_not_for_tasks();
        let in_doubt = "If these are tries for what others have (a lock, a file, an answer), that time is lost.";
        let (sum, what, place, doubt) = if asleep.blocked >= limited {
            let at_work = self.asleep_at_work(asleep.blocked);
            let at_work = at_work.map(|words| format!("{}.", capitalised(&words)));
            (
                asleep,
                "sleeps",
                self.in_function(&self.details.ends_of(Reason::Sleep).waited_in),
                at_work.unwrap_or_else(|| in_doubt.to_owned()),
            )
        } else {
            let sleeps = self.at_words_in(&SLEEP);
            let is_asleep = percent(sum_of(&sleeps).as_ns(), limited.as_ns());
            let is_asleep = is_asleep.is_some_and(|share| share >= NEARLY_ALL_PCT);
            let (what, place) = match is_asleep {
                true => ("sleeps", self.in_function(&sleeps)),
                false => (
                    "waits for what does not come before a time limit",
                    String::new(),
                ),
            };
            (timed_out, what, place, in_doubt.to_owned())
        };
        let mean = Nanos::from_ns(sum.blocked.as_ns().checked_div(sum.waits)?);
        // How often is known of all such waits alone.
        let is_all = asleep.blocked >= limited || limited == timed_out.blocked;
        let how_long = match is_all {
            true => format!(
                "{}, {mean} each (mean), {} in all",
                counted(sum.waits, "time"),
                sum.blocked
            ),
            false => format!("{limited} in all, without threads that wait for their next task"),
        };
        // Threads that wait for one that sleeps are paced by it, as in a runtime; a pipeline is held up.
        let through = self.objects.between_processes().of(Spent::Clock);
        let time = asleep.blocked + limited + through;
        let waited = self.waited_for_those(through, time);
        let words = format!(
            "It mostly {what}{place}: {how_long}. {doubt}{}",
            waited
                .as_ref()
                .map_or_else(String::new, |waited| format!(" {waited}.")),
        );
        self.is_mostly(time).then_some(MainWait {
            awaited: match waited {
                Some(_) => &[AwaitedThing::Clock, AwaitedThing::Own],
                None => &[AwaitedThing::Clock],
            },
            time,
            is_doubtful: true,
            words,
        })
    }

    /// At most how long threads waited for what did not come before a time limit, and was not their next task: which of
    /// their waits had a limit is not known by place.
    fn timed_out_and_not_for_tasks(&self) -> Nanos {
        let for_tasks = sum_of(&self.at_words_in(&FOR_TASKS));
        let others = self.of_programs(Reason::Futex).blocked_in_all();
        let others = others.saturating_sub(for_tasks);
        self.details.timed_out.blocked.min(others)
    }

    /// The time for which threads waited at words in functions that begin so, in each user stack.
    fn at_words_in(&self, functions: &[&str]) -> FxHashMap<u32, u64> {
        let waited_in = &self.details.ends_of(Reason::Futex).waited_in;
        let blocked = self.of_programs(Reason::Futex).blocked_in_all();
        let is_in = |stack: u32| {
            self.symbols.is_some_and(|symbols| {
                let frames = symbols.frames(StackKind::User, Some(stack));
                let begins = |frame: &String| functions.iter().any(|name| frame.starts_with(name));
                frames.iter().any(begins)
            })
        };
        let parts = scaled_down(waited_in, blocked);
        parts.filter(|(stack, _)| is_in(*stack)).collect()
    }
}
