//! Switches of user-mode schedulers beside those of the kernel: how fast the counters of their pages grow.
//!
//! ```text
//! task events ─▶ finder (a process with the right to look) ─Page─▶ counters ─▶ rates by thread, process
//! ```

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Pid, TaskEvent, Tid};
use swtch_observe::{Page, Snapshot, Tids};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::report::live::UserLevelRates;

use swtch_record::record::user_level::{Finder, FinderReport, MOST_REFUSED};

/// The schedulers of all processes, as far as they were found.
#[derive(Debug, Default)]
pub struct LiveSchedulers {
    /// `None` in tests.
    finder: Option<Finder>,
    pages: Vec<LivePage>,
    rates: UserLevelRates,
    /// The reasons why something is not shown.
    refused: Vec<String>,
}

#[derive(Debug)]
struct LivePage {
    page: Page,
    /// Switches of each scheduler, by its place and the number of its runtime.
    counted: FxHashMap<(usize, u32), u64>,
    /// The moment of that count; `None` before the first time.
    read_at_ns: Option<u64>,
}

impl LiveSchedulers {
    /// Reads the schedulers that this finder finds.
    pub fn new(finder: Finder) -> Self {
        Self {
            finder: Some(finder),
            ..Self::default()
        }
    }

    /// The rates of the last frame.
    pub const fn rates(&self) -> &UserLevelRates {
        &self.rates
    }

    /// CPU time of the process that looks for schedulers.
    pub fn cpu_time(&self) -> Nanos {
        self.finder
            .as_ref()
            .map_or(Nanos::ZERO, |finder| finder.process().cpu_time())
    }

    /// Notes an event of a task: its process may have a scheduler.
    pub fn meet(&mut self, event: &TaskEvent) {
        if let Some(finder) = &mut self.finder {
            finder.meet(event);
        }
    }

    /// Takes over what was found since the last call.
    pub fn look(&mut self) {
        let Some(finder) = &mut self.finder else {
            return;
        };
        finder.pass_on();
        for met in finder.found() {
            match met {
                FinderReport::Page(page) => self.pages.push(LivePage {
                    page: *page,
                    counted: FxHashMap::default(),
                    read_at_ns: None,
                }),
                FinderReport::Refused(why) if self.refused.len() < MOST_REFUSED => {
                    self.refused.push(why);
                }
                FinderReport::Refused(_) => {}
            }
        }
    }

    /// Says why schedulers are not shown, once nothing else is written on the terminal.
    pub fn tell_refused(&self) {
        for why in &self.refused {
            message!("swtch: {}", escaped(why));
        }
    }

    /// Ends a frame: the rates since the one before.
    pub fn end_frame(&mut self) {
        self.rates = UserLevelRates::default();
        self.pages.retain(|page| !page.page.has_ended());
        for page in &mut self.pages {
            // A page that cannot be read at this moment is read in the next frame.
            if let Ok(snapshot) = page.page.snapshot() {
                page.add_rates(&snapshot, &mut self.rates);
            }
        }
    }
}

impl LivePage {
    /// Adds what its schedulers have switched since the last time, per second.
    fn add_rates(&mut self, snapshot: &Snapshot, rates: &mut UserLevelRates) {
        let before = self.read_at_ns.replace(snapshot.taken_monotonic_ns);
        let passed = before.map(|before| snapshot.taken_monotonic_ns.saturating_sub(before));
        let mut tids = Tids::default();
        tids.look(self.page.pid());
        for row in &snapshot.schedulers {
            let known = self
                .counted
                .insert((row.scheduler, row.runtime), row.context_switches_count);
            let (Some(passed @ 1..), Some(known)) = (passed, known) else {
                continue;
            };
            let grown = row.context_switches_count.saturating_sub(known);
            let rate = grown as f64 * 1e9 / passed as f64;
            let pid = Pid::new(self.page.pid());
            *rates.by_process.entry(pid).or_default() += rate;
            if let Some(tid) =
                only_thread(snapshot, row.scheduler).and_then(|own| tids.to_ours(own))
            {
                *rates.by_thread.entry(Tid::new(tid)).or_default() += rate;
            }
        }
    }
}

/// The thread that all workers of a scheduler run on; `None` if each has its own.
fn only_thread(snapshot: &Snapshot, scheduler: usize) -> Option<u32> {
    let mut threads = snapshot
        .threads
        .iter()
        .filter(|thread| thread.scheduler == Some(scheduler));
    let first = threads.next()?;
    threads.next().is_none().then_some(first.os_thread_id)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use swtch_fiber::{Runtime, yield_now};

    use super::*;

    /// Reads the runtime's own count of its switches before and after a frame ends.
    fn end_frame(schedulers: &mut LiveSchedulers, runtime: &Runtime) -> [(u64, Instant); 2] {
        let look = || {
            let counters = runtime.counters();
            let switches = counters.iter().map(|one| one.context_switches_count).sum();
            (switches, Instant::now())
        };
        let before = look();
        schedulers.end_frame();
        [before, look()]
    }

    /// Two workers hand the scheduler to each other: the kernel sees none of that. Other tests may have
    /// schedulers in this process.
    #[test]
    fn the_switches_of_a_scheduler_are_those_of_its_thread_and_process() {
        let runtime = Runtime::builder().schedulers(1).build().unwrap();
        let thread = || std::fs::read_link("/proc/thread-self").unwrap();
        let thread = runtime.run(thread).unwrap();
        let tid = thread
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let pid = Pid::new(std::process::id());
        let mut schedulers = LiveSchedulers::default();
        schedulers.pages.push(LivePage {
            page: Page::of_process(pid.get()).unwrap(),
            counted: FxHashMap::default(),
            read_at_ns: None,
        });
        let [begins, begun] = end_frame(&mut schedulers, &runtime);
        assert_eq!(
            schedulers.rates().by_process.get(&pid),
            None,
            "no frame yet"
        );
        let there = Arc::new(AtomicU32::new(0));
        let tasks = [(); 2].map(|()| {
            let there = there.clone();
            runtime.spawn(move || {
                there.fetch_add(1, Ordering::Relaxed);
                while there.load(Ordering::Relaxed) < 2 {
                    yield_now();
                }
                (0..1000).for_each(|_| yield_now());
            })
        });
        for task in tasks {
            task.unwrap().join().unwrap();
        }
        let [ends, ended] = end_frame(&mut schedulers, &runtime);
        assert!(ends.0 - begun.0 >= 1000, "{begun:?} {ends:?}");
        let rate = |switches: u64, since: Duration| switches as f64 / since.as_secs_f64();
        let least = rate(ends.0 - begun.0, ended.1 - begins.1);
        let most = rate(ended.0 - begins.0, ends.1 - begun.1);
        let own = schedulers.rates().by_thread[&Tid::new(tid)];
        assert!((least..=most).contains(&own), "{own}: {least} to {most}");
        assert!(schedulers.rates().by_process[&pid] >= own);
        drop(runtime);
    }
}
