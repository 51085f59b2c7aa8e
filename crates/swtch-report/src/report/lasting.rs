//! Which threads were blocked all the time, and where?
//!
//! They make no switch and are in no row: the recorder looks at all threads in scope when it begins and
//! when it ends (`meta.json`, `lasting`). Most of them are idle, as a pool without work. What is told
//! first are those that hardly can be: uninterruptible (D), stopped (T, t), or in a call that is not one
//! in which idle threads wait.

use std::cmp::Reverse;

use swtch_core::{Arch, Nanos};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{counted, grouped};
use swtch_store::{LastingGroup, LastingWaits, Meta};

use super::filter::{Filter, matches};
use super::group::or_missing;
use super::words;

/// A row of the table.
struct LastingLine<'a> {
    of: &'a AlikeThreads<'a>,
    start_ns: u64,
}

fn columns<'a>() -> [Column<LastingLine<'a>>; 10] {
    fn ids(ids: &[u32]) -> Cell {
        let ids = ids.iter().take(MOST_IDS);
        Cell::List(ids.map(ToString::to_string).collect())
    }
    [
        Column::new(words::PROGRAM, |row| {
            Cell::text(row.of.like.program.as_str())
        }),
        Column::new(words::THREADS, |row| Cell::Count(row.of.threads)),
        Column::new(words::PROCESS_COUNT, |row| {
            Cell::Count(row.of.pids.len() as u64)
        }),
        Column::new(words::STATE, |row| Cell::text(row.of.like.state.as_str())),
        Column::new(words::SYSCALL, |row| {
            or_missing(row.of.call.as_ref(), Cell::text)
        }),
        Column::new(words::KERNEL_FUNCTION, |row| {
            or_missing(row.of.like.function.as_ref(), Cell::text)
        }),
        Column::new(words::LAST_RAN_BEFORE, |row| {
            Cell::time(before(row.start_ns, row.of.ran_last_ns))
        }),
        Column::new(words::FIRST_RAN_BEFORE, |row| {
            Cell::time(before(row.start_ns, row.of.ran_first_ns))
        }),
        Column::new(words::PIDS, |row| ids(&row.of.pids)),
        Column::new(words::TIDS, |row| ids(&row.of.tids)),
    ]
}

/// Most ids of a row.
const MOST_IDS: usize = 16;

/// Most groups that are told in sentences.
const MOST_TOLD: usize = 2;

/// Calls in which threads wait that have nothing to do.
const IDLE_CALLS: [&str; 35] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "futex_wait",
    "futex_waitv",
    "io_getevents",
    "io_pgetevents",
    "io_uring_enter",
    "mq_timedreceive",
    "msgrcv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "preadv",
    "pselect6",
    "read",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "restart_syscall",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "select",
    "semop",
    "semtimedop",
    "splice",
    "tee",
    "wait4",
    "waitid",
];

/// The threads of a trace that pass a filter.
#[derive(Debug)]
pub struct LastingThreads<'m> {
    all: &'m LastingWaits,
    /// The threads that wait alike; first those that hardly can be idle.
    groups: Vec<AlikeThreads<'m>>,
    is_filtered: bool,
    start_ns: u64,
}

/// Threads of one program that wait alike, in one process or in several.
#[derive(Debug)]
struct AlikeThreads<'m> {
    /// One of its groups.
    like: &'m LastingGroup,
    call: Option<String>,
    threads: u64,
    pids: Vec<u32>,
    tids: Vec<u32>,
    ran_first_ns: Option<u64>,
    ran_last_ns: Option<u64>,
}

impl<'m> AlikeThreads<'m> {
    fn new(like: &'m LastingGroup, arch: Option<Arch>) -> Self {
        Self {
            like,
            call: call_of(like, arch),
            threads: 0,
            pids: Vec::new(),
            tids: Vec::new(),
            ran_first_ns: like.ran_first_ns,
            ran_last_ns: like.ran_last_ns,
        }
    }

    fn add(&mut self, group: &LastingGroup) {
        self.threads = self.threads.saturating_add(group.threads);
        self.pids.push(group.pid);
        self.tids.extend(&group.tids);
        let first = self.ran_first_ns.zip(group.ran_first_ns);
        self.ran_first_ns = first.map(|(a, b)| a.min(b));
        let last = self.ran_last_ns.zip(group.ran_last_ns);
        self.ran_last_ns = last.map(|(a, b)| a.max(b));
    }

    fn is_alike(&self, group: &LastingGroup) -> bool {
        let like = self.like;
        (like.syscall, &like.program) == (group.syscall, &group.program)
            && (&like.state, &like.function) == (&group.state, &group.function)
    }

    /// Returns true if threads that have nothing to do look like that.
    fn is_idle(&self) -> bool {
        let call = self.call.as_deref();
        let is_idle_call = call.is_none_or(|call| IDLE_CALLS.contains(&call));
        self.like.state == "I" || (self.like.state == "S" && is_idle_call)
    }

    /// `process 7`, or `3 processes`.
    fn whose(&self) -> String {
        match &self.pids[..] {
            [pid] => format!("process {pid}"),
            several => counted(several.len() as u64, "process"),
        }
    }

    fn sentence(&self, start_ns: u64) -> String {
        let place = match (&self.call, &self.like.function) {
            (Some(call), Some(function)) => format!("in {call} (kernel: {function}), "),
            (Some(call), None) => format!("in {call}, "),
            (None, Some(function)) => format!("in the kernel's {function}, "),
            (None, None) => String::new(),
        };
        let since = match before(start_ns, self.ran_last_ns) {
            Some(before) if self.threads == 1 => format!("; last on a CPU {before} before it"),
            Some(before) => format!("; the last of them was on a CPU {before} before it"),
            None => String::new(),
        };
        format!(
            "{} of {} ({}) {place}state {}, since before the recording{since}",
            counted(self.threads, "thread"),
            self.like.program,
            self.whose(),
            state_words(&self.like.state),
        )
    }
}

impl<'m> LastingThreads<'m> {
    /// Returns the threads of a trace; `None` if its recorder did not look for them, or the filter asks for something
    /// that only a switch has.
    pub fn of(meta: &'m Meta, filter: &Filter, arch: Option<Arch>) -> Option<Self> {
        let all = meta
            .lasting
            .as_ref()
            .filter(|_| filter.reasons.is_empty())?;
        let mut groups: Vec<AlikeThreads<'_>> = Vec::new();
        for group in all.groups.iter().filter(|group| takes(filter, group)) {
            let place = groups.iter().position(|alike| alike.is_alike(group));
            let place = place.unwrap_or_else(|| {
                groups.push(AlikeThreads::new(group, arch));
                groups.len() - 1
            });
            groups[place].add(group);
        }
        let sleeps = |alike: &AlikeThreads<'_>| alike.like.state == "S";
        groups.sort_by_key(|one| (one.is_idle(), sleeps(one), Reverse(one.threads)));
        Some(Self {
            all,
            groups,
            is_filtered: !(filter.pids.is_empty() && filter.comms.is_empty()),
            start_ns: meta.start_ns,
        })
    }

    /// A sentence for each of the main groups that are hardly idle, or, with `idle_too`, of all; and one
    /// for how many more there are.
    pub fn told(&self, idle_too: bool) -> Vec<String> {
        let is_told = |alike: &&AlikeThreads<'_>| idle_too || !alike.is_idle();
        let told: Vec<_> = self.groups.iter().filter(is_told).collect();
        let first = told.iter().take(MOST_TOLD);
        let mut lines: Vec<_> = first.map(|alike| alike.sentence(self.start_ns)).collect();
        let more = told.iter().skip(MOST_TOLD).map(|alike| alike.threads);
        let more = more.fold(0, u64::saturating_add);
        if more > 0 {
            let threads = counted(more, "thread");
            lines.push(format!("and {threads} more (--full)"));
        }
        lines
    }

    /// The table of all groups.
    pub fn sheet(&self) -> Sheet {
        let rows = self.groups.iter().map(|of| LastingLine {
            of,
            start_ns: self.start_ns,
        });
        let mut sheet = Sheet::of("lasting", &columns(), rows);
        sheet.not_in_tables = &["first_ran_before_ns", "tids"];
        sheet.notes = self.notes();
        sheet
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "threads that were blocked at the start and at the end and made no switch in between; one \
             that ran for a moment is not among them. Last ran before: how long before the recording \
             the last of them was given a CPU"
                .to_owned(),
        ];
        if self.all.not_listed > 0 {
            let threads = counted(self.all.not_listed, "thread");
            notes.push(format!("{threads} more are in groups that were not kept"));
        }
        if self.all.idle_kernel_threads > 0 && !self.is_filtered {
            let threads = grouped(self.all.idle_kernel_threads);
            notes.push(format!(
                "left out: kernel threads that had nothing to do ({threads})"
            ));
        }
        notes
    }
}

fn takes(filter: &Filter, group: &LastingGroup) -> bool {
    let mut pids = filter.pids.iter();
    let mut comms = filter.comms.iter();
    (filter.pids.is_empty() || pids.any(|pid| pid.get() == group.pid))
        && (filter.comms.is_empty() || comms.any(|pattern| matches(pattern, &group.program)))
}

/// Returns how long before the recording that was.
fn before(start_ns: u64, ran_ns: Option<u64>) -> Option<Nanos> {
    start_ns.checked_sub(ran_ns?).map(Nanos::from_ns)
}

fn call_of(group: &LastingGroup, arch: Option<Arch>) -> Option<String> {
    let number = group.syscall?;
    let name = arch.and_then(|arch| arch.syscall_name(number));
    Some(name.map_or_else(|| format!("system call {number}"), str::to_owned))
}

fn state_words(letter: &str) -> String {
    let words = match letter {
        "D" => "uninterruptible",
        "T" => "stopped by a signal",
        "t" => "stopped by a tracer",
        "S" => "asleep",
        "I" => "idle",
        "P" => "parked",
        _ => return letter.to_owned(),
    };
    format!("{letter} ({words})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn group(program: &str, threads: u64, state: &str, syscall: u32) -> LastingGroup {
        LastingGroup {
            pid: 7,
            program: program.to_owned(),
            threads,
            tids: vec![8, 9],
            state: state.to_owned(),
            syscall: Some(syscall),
            function: Some("wait_for_partner".to_owned()),
            ran_first_ns: Some(SECOND),
            ran_last_ns: Some(8 * SECOND),
        }
    }

    fn meta(groups: Vec<LastingGroup>) -> Meta {
        Meta {
            start_ns: 10 * SECOND,
            lasting: Some(LastingWaits {
                threads: groups.iter().map(|group| group.threads).sum(),
                groups,
                ..LastingWaits::default()
            }),
            ..Meta::default()
        }
    }

    fn told(meta: &Meta, idle_too: bool) -> Vec<String> {
        let arch = Some(Arch::X86_64);
        let lasting = LastingThreads::of(meta, &Filter::default(), arch);
        lasting.unwrap().told(idle_too)
    }

    /// `starve.js` and `vforkd.c`: openat of a FIFO that nobody writes, and a parent in vfork.
    #[test]
    fn a_full_pool_and_a_parent_in_vfork_are_told_and_an_idle_pool_is_not() {
        let futex = group("server", 20_000, "S", 202);
        let meta = meta(vec![
            group("vforkd", 1, "D", 58),
            futex,
            group("node", 4, "S", 257),
        ]);
        assert_eq!(
            told(&meta, false),
            [
                "1 thread of vforkd (process 7) in vfork (kernel: wait_for_partner), state D \
                 (uninterruptible), since before the recording; last on a CPU 2.00 s before it",
                "4 threads of node (process 7) in openat (kernel: wait_for_partner), state S (asleep), \
                 since before the recording; the last of them was on a CPU 2.00 s before it",
            ]
        );
        // What can be idle comes last, however much it is.
        let all = told(&meta, true);
        assert_eq!(
            (all.len(), all[2].as_str()),
            (3, "and 20,000 threads more (--full)")
        );
    }

    /// Six `flock` that wait for one another.
    #[test]
    fn equal_waits_of_several_processes_are_told_together() {
        let of = |pid| LastingGroup {
            pid,
            ..group("flock", 1, "S", 73)
        };
        let meta = meta((1..7).map(of).collect());
        let [line] = &told(&meta, false)[..] else {
            panic!("{:?}", told(&meta, false))
        };
        assert!(
            line.starts_with("6 threads of flock (6 processes) in flock (kernel: "),
            "{line}"
        );
        let lasting = LastingThreads::of(&meta, &Filter::default(), None);
        assert_eq!(lasting.unwrap().sheet().rows.len(), 1);
    }

    #[test]
    fn a_filter_of_processes_holds_for_them_too() {
        let meta = meta(vec![group("node", 4, "S", 257)]);
        let of = |filter: &Filter| {
            let found = LastingThreads::of(&meta, filter, None);
            found.map(|found| found.sheet().rows.len())
        };
        let by_name = |name: &str| Filter {
            comms: vec![name.to_owned()],
            ..Filter::default()
        };
        assert_eq!(of(&by_name("nod*")), Some(1));
        assert_eq!(of(&by_name("python")), Some(0));
        let by_reason = Filter {
            reasons: vec![swtch_core::Reason::Slice],
            ..Filter::default()
        };
        assert_eq!(of(&by_reason), None, "a switch has a reason");
    }

    #[test]
    fn a_trace_that_did_not_look_claims_nothing() {
        assert!(LastingThreads::of(&Meta::default(), &Filter::default(), None).is_none());
    }
}
