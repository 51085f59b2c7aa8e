//! One run's figures, from one pass over its trace.
//!
//! Amounts and lengths are kept for each block of the trace's time, because a single run is judged
//! by its blocks ([`swtch_core::compare`]). Where runs are compared, one block is the whole run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_core::compare::LEAST_BLOCKS;
use swtch_core::cost::{Account, Billing};
use swtch_core::{
    Arch, Category, Distribution, Nanos, Pid, Reason, StackKind, Switch, TaskKey, Timestamp,
    TurnKind,
};
use swtch_store::{Columns, Meta, Trace};

use super::figure::{AmountKey, FUNCTIONS_NAMED, StackPlace, WaitKey};
use super::judge::Per;

use crate::report::bill::is_complete;
use crate::report::departure::{Departure, Departures};
use crate::report::filter::{CountedParts, Filter};
use crate::report::filtered_trace::FilteredTrace;
use crate::report::head::told_length;
use crate::report::names::Names;
use crate::report::programs::of_kernel;
use crate::report::spans::SpansByThread;
use crate::report::stack::Stacks;
use crate::report::turns::TurnsByThread;
use crate::report::verdict::is_recorder;
use crate::report::workers::WorkerTimes;
use crate::report::{Symbols, WAIT, WAIT_OBJECT};

/// The most blocks of a run.
const MOST_BLOCKS: u64 = 40;

/// The shortest block: several turns of tasks that share a CPU (a slice is about 3 ms).
const SHORTEST_BLOCK: Nanos = Nanos::from_ns(5_000_000);

/// A run, as far as it is compared.
#[derive(Debug)]
pub struct MeasuredRun {
    /// The trace.
    pub path: PathBuf,
    /// Its `meta.json`.
    pub meta: Meta,
    /// Sentences about what is missing from the trace.
    pub missing: Vec<String>,
    /// Number of lost records.
    pub lost: u64,
    /// Length of the part that counts.
    pub length: Nanos,
    /// Number of blocks that it was divided into.
    pub blocks: usize,
    /// Amounts by block.
    pub amounts: BTreeMap<AmountKey, MeasuredAmount>,
    /// Lengths of waits and spans by block.
    pub lengths: BTreeMap<WaitKey, Vec<Distribution>>,
    /// The number of units (turns or spans) in each block; empty if nothing is divided by them.
    pub units: Vec<f64>,
    /// How many more turns there may be.
    pub more_turns: f64,
    /// The number of spans of each kind that ended in each block.
    pub spans: BTreeMap<Rc<str>, Vec<f64>>,
}

impl MeasuredRun {
    /// All of its units.
    pub fn all_units(&self) -> f64 {
        self.units.iter().sum()
    }

    /// Its length in seconds.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn seconds(&self) -> f64 {
        self.length.as_ns() as f64 / 1e9
    }
}

/// An amount of one run.
#[derive(Clone, Debug, Default)]
pub struct MeasuredAmount {
    /// The amount in each block.
    pub blocks: Vec<f64>,
    /// The number of events that it is the sum of.
    pub events: u64,
}

impl MeasuredAmount {
    fn add(&mut self, block: usize, blocks: usize, amount: f64) {
        if self.blocks.is_empty() {
            self.blocks.resize(blocks, 0.0);
        }
        self.blocks[block] += amount;
        self.events += 1;
    }

    fn merge(&mut self, other: &Self) {
        if self.blocks.is_empty() {
            self.blocks.resize(other.blocks.len(), 0.0);
        }
        for (sum, more) in self.blocks.iter_mut().zip(&other.blocks) {
            *sum += more;
        }
        self.events += other.events;
    }

    /// The amount of the whole run.
    pub fn total(&self) -> f64 {
        self.blocks.iter().sum()
    }
}

/// The division of a run into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBlocks {
    /// The whole run is one block.
    Whole,
    /// As many blocks as its length allows.
    Many,
}

/// Measures the figures of a trace.
///
/// # Errors
///
/// When the trace cannot be read, or nothing lies in the span that was asked for.
pub fn measure(
    trace: &Trace,
    filter: &Filter,
    billing: Option<&Billing>,
    (blocks, per): (RunBlocks, Option<Per>),
) -> Result<MeasuredRun> {
    let mut filtered = FilteredTrace::open(trace, filter)?;
    if told_length(trace.meta()).is_none() {
        // The length of a trace that did not end is known when its rows have been read.
        filtered.scan(Columns::NONE, &mut |_, _, _| ())?;
    }
    let length = filtered.head().duration_of(&filtered.selection());
    let names = filtered.names();
    let clock = BlockClock::new(&filtered, length, blocks);
    let mut columns = Columns::TS | Columns::REASON | Columns::NEXT_TASK | WAIT;
    if filtered.head().meta.stacks.is_some() {
        columns = columns | Columns::STACKS;
    }
    if billing.is_some() {
        columns = columns | Columns::CPU | Columns::RAN;
    }
    if per == Some(Per::Turn) {
        columns = columns | Columns::RAN | Columns::WAKER | WAIT_OBJECT;
    }
    let mut counts = FigureCounts::new(&names, clock.blocks);
    let mut turns = (per == Some(Per::Turn)).then(|| CountedTurns::new(clock.blocks));
    let (arch, recorder) = (
        filtered.arch(),
        filtered.head().meta.recorder_pid.map(Pid::new),
    );
    let mut priced = billing.map(|billing| PricedRun::new(&names, &filtered, billing, &clock));
    filtered.scan_from_start(columns, &mut |row, task, counted| {
        let block = clock.block(row.ts);
        counts.add(row, task, counted, block, &names);
        let is_of_a_program =
            || !names.process_of(task).is_kernel && !is_recorder(task, &names, recorder);
        if let Some(turns) = turns
            .as_mut()
            .filter(|_| counted.switch && is_of_a_program())
        {
            turns.add(row, task, block, arch, &names);
        }
        if let Some(priced) = &mut priced {
            priced.add(row, task, counted, block, &names);
        }
    })?;
    let symbols = match filtered.head().meta.stacks {
        Some(_) => filtered.symbols()?,
        None => Symbols::default(),
    };
    let mut amounts = counts.amounts(&names, &symbols);
    amounts.extend(priced.map(|priced| (AmountKey::Price, priced.finish())));
    let goroutines = match turns {
        Some(_) => filtered.worker_times()?,
        None => WorkerTimes::default(),
    };
    let runs_goroutines = |task: usize| goroutines.are_known_of(names.process_of(task).pid);
    let (units, more_turns) =
        turns.map_or_else(Default::default, |turns| turns.by_block(runs_goroutines));
    let spans = counts.add_spans(&filtered.spans()?, &clock);
    let head = filtered.head();
    Ok(MeasuredRun {
        path: head.path.clone(),
        meta: head.meta.clone(),
        missing: head.missing(),
        lost: head.lost(),
        length,
        blocks: clock.blocks,
        amounts,
        lengths: counts.lengths,
        units,
        more_turns,
        spans,
    })
}

/// Turns by block.
struct CountedTurns {
    turns: TurnsByThread,
    blocks: usize,
    /// Of each task, those at several descriptors and those at one, in each block.
    counts: FxHashMap<usize, Vec<[u64; 2]>>,
}

impl CountedTurns {
    fn new(blocks: usize) -> Self {
        Self {
            turns: TurnsByThread::default(),
            blocks,
            counts: FxHashMap::default(),
        }
    }

    fn add(&mut self, row: &Switch, task: usize, block: usize, arch: Option<Arch>, names: &Names) {
        let before = self.turns.ended(task);
        self.turns.add(row, task, arch, names);
        let after = self.turns.ended(task);
        if before != after {
            let counts = self.counts.entry(task);
            let counts = counts.or_insert_with(|| vec![[0; 2]; self.blocks]);
            for kind in 0..2 {
                counts[block][kind] += after[kind] - before[kind];
            }
        }
    }

    /// The turns of all threads that take turns, and how many more they may be.
    fn by_block(self, runs_goroutines: impl Fn(usize) -> bool) -> (Vec<f64>, f64) {
        let mut turns = vec![0.0; self.blocks];
        let mut perhaps_more = 0.0;
        for (task, counts) in &self.counts {
            let known = self.turns.kind(*task);
            let Some((kind, more)) = known.filter(|_| !runs_goroutines(*task)) else {
                continue;
            };
            perhaps_more += more as f64;
            for (sum, [at_many, at_one]) in turns.iter_mut().zip(counts) {
                *sum += match kind {
                    TurnKind::AtMany => *at_many,
                    TurnKind::AtOne => *at_one,
                } as f64;
            }
        }
        (turns, perhaps_more)
    }
}

/// Divides the counted time of a trace into blocks.
#[derive(Clone, Copy, Debug)]
struct BlockClock {
    from: Timestamp,
    length: Nanos,
    blocks: usize,
}

impl BlockClock {
    fn new(filtered: &FilteredTrace<'_>, length: Nanos, blocks: RunBlocks) -> Self {
        let start = Timestamp::from_ns(filtered.head().meta.start_ns);
        let fitting = (length.as_ns() / SHORTEST_BLOCK.as_ns()).min(MOST_BLOCKS);
        let many = usize::try_from(fitting).unwrap_or(1);
        Self {
            from: filtered.selection().from().max(start),
            length,
            blocks: match blocks {
                RunBlocks::Many if many >= LEAST_BLOCKS => many,
                _ => 1,
            },
        }
    }

    fn block(&self, ts: Timestamp) -> usize {
        let last = self.blocks - 1;
        if last == 0 {
            return 0;
        }
        let since = ts.since(self.from).unwrap_or(Nanos::ZERO).as_ns();
        let place = u128::from(since) * self.blocks as u128 / u128::from(self.length.as_ns());
        usize::try_from(place).map_or(last, |place| place.min(last))
    }
}

/// Counts of one run, while its rows are read.
#[derive(Debug)]
struct FigureCounts {
    blocks: usize,
    /// By reason, at [`Reason::index`].
    switches: Vec<MeasuredAmount>,
    wait_time: Vec<MeasuredAmount>,
    run_queue_time: MeasuredAmount,
    lengths: BTreeMap<WaitKey, Vec<Distribution>>,
    /// The name of each task's program, as a place in `comms`.
    comm_of: Vec<u32>,
    comms: Vec<Rc<str>>,
    pairs: FxHashMap<(u32, u32), MeasuredAmount>,
    stacks: FxHashMap<(Stacks, Reason, usize), MeasuredAmount>,
}

impl FigureCounts {
    fn new(names: &Names, blocks: usize) -> Self {
        let mut comms: Vec<Rc<str>> = Vec::new();
        let mut places = FxHashMap::default();
        let comm_of = (0..names.thread_count()).map(|index| {
            let comm = comm_of(names, index);
            *places.entry(comm.clone()).or_insert_with(|| {
                comms.push(comm.into());
                u32::try_from(comms.len() - 1).unwrap_or(u32::MAX)
            })
        });
        Self {
            blocks,
            switches: vec![MeasuredAmount::default(); Reason::ALL.len()],
            wait_time: vec![MeasuredAmount::default(); Reason::ALL.len()],
            run_queue_time: MeasuredAmount::default(),
            lengths: BTreeMap::new(),
            comm_of: comm_of.collect(),
            comms,
            pairs: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    fn add(
        &mut self,
        row: &Switch,
        task: usize,
        counted: CountedParts,
        block: usize,
        names: &Names,
    ) {
        if counted.switch {
            let reason = row.rule.reason;
            self.switches[reason.index()].add(block, self.blocks, 1.0);
            if reason.category() == Category::Preemption {
                self.add_preemption(row, task, block, names);
            }
        }
        if counted.wait {
            self.add_wait(row, task, block, names);
        }
    }

    fn add_preemption(&mut self, row: &Switch, task: usize, block: usize, names: &Names) {
        if let Some(next) = row.next_task.filter(|next| *next != TaskKey::IDLE) {
            let pair = (self.comm_of[names.index(next)], self.comm_of[task]);
            self.pairs
                .entry(pair)
                .or_default()
                .add(block, self.blocks, 1.0);
        }
    }

    fn add_wait(&mut self, row: &Switch, task: usize, block: usize, names: &Names) {
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        if let Some(runq) = row.wait.runq {
            let time = as_number(runq);
            self.run_queue_time.add(block, self.blocks, time);
            self.record(WaitKey::RunQueue, block, runq);
        }
        let Some(off) = row.wait.length() else {
            return;
        };
        let time = as_number(off);
        self.wait_time[reason.index()].add(block, self.blocks, time);
        self.record(WaitKey::OffCpu(reason), block, off);
        let stacks = (row.wait.stacks.user, row.wait.stacks.kernel);
        if stacks != (None, None) {
            let place = (stacks, reason, names.thread(task).process);
            let measured = self.stacks.entry(place).or_default();
            // One that was seen while it lasted stands for others.
            let time = row.wait.seen_for.map_or(time, as_number);
            measured.add(block, self.blocks, time);
        }
    }

    fn record(&mut self, key: WaitKey, block: usize, length: Nanos) {
        let blocks = self.lengths.entry(key).or_default();
        if blocks.is_empty() {
            blocks.resize(self.blocks, Distribution::default());
        }
        blocks[block].record(length);
    }

    /// Adds the lengths of spans, and returns how many of each kind ended in each block.
    fn add_spans(
        &mut self,
        spans: &SpansByThread,
        clock: &BlockClock,
    ) -> BTreeMap<Rc<str>, Vec<f64>> {
        let mut counts: BTreeMap<Rc<str>, Vec<f64>> = BTreeMap::new();
        for (_, kind, spans) in spans.each_whole() {
            let kind: Rc<str> = kind.into();
            let count = counts.entry(Rc::clone(&kind));
            let count = count.or_insert_with(|| vec![0.0; self.blocks]);
            for span in spans {
                let block = clock.block(span.end);
                count[block] += 1.0;
                self.record(WaitKey::Span(Rc::clone(&kind)), block, span.length());
            }
        }
        counts
    }

    /// The amounts by what they are of. Takes all but the lengths.
    fn amounts(&mut self, names: &Names, symbols: &Symbols) -> BTreeMap<AmountKey, MeasuredAmount> {
        let mut amounts: BTreeMap<AmountKey, MeasuredAmount> = BTreeMap::new();
        let mut put = |key, measured: &MeasuredAmount| {
            if measured.events > 0 {
                amounts.entry(key).or_default().merge(measured);
            }
        };
        for (place, reason) in Reason::ALL.iter().enumerate() {
            put(AmountKey::Switches(None), &self.switches[place]);
            put(AmountKey::Switches(Some(*reason)), &self.switches[place]);
            put(AmountKey::WaitTime(*reason), &self.wait_time[place]);
        }
        put(AmountKey::RunQueueTime, &self.run_queue_time);
        for ((taker, victim), measured) in &self.pairs {
            let [taker, victim] =
                [taker, victim].map(|comm| Rc::clone(&self.comms[*comm as usize]));
            put(AmountKey::Pair { taker, victim }, measured);
        }
        for ((stacks, reason, process), measured) in &self.stacks {
            let user = symbols.frames(StackKind::User, stacks.0);
            let kernel = symbols.frames(StackKind::Kernel, stacks.1);
            let process = &names.process(*process).comm;
            let functions = stacks
                .0
                .and_then(|stack| symbols.functions_in_line(stack, FUNCTIONS_NAMED));
            let place = StackPlace::new(*reason, process, (&user, &kernel), functions);
            put(AmountKey::Stack(place), measured);
        }
        amounts
    }
}

/// The name by which a thread is told in all runs. Kernel threads of one kind share a name, and so do the threads of
/// a pool, since their numbers differ from run to run.
fn comm_of(names: &Names, index: usize) -> String {
    let comm = &names.thread(index).comm;
    if names.process_of(index).is_kernel {
        of_kernel(comm)
    } else {
        of_pool(comm)
    }
}

/// `consumer-#` for `consumer-4`: a number at the end of a name counts, if something stands between. `python3` is no
/// third of something.
fn of_pool(comm: &str) -> String {
    let name = comm.trim_end_matches(|letter: char| letter.is_ascii_digit());
    if name.ends_with(['-', '_', '#', '.', ':', '/', ' ']) && name.len() < comm.len() {
        format!("{}#", name.trim_end_matches('#'))
    } else {
        comm.to_owned()
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn as_number(length: Nanos) -> f64 {
    length.as_ns() as f64
}

/// The direct cost of a run's switches.
#[derive(Debug)]
struct PricedRun<'b> {
    departures: Departures,
    billing: &'b Billing,
    accounts: Vec<Account>,
}

impl<'b> PricedRun<'b> {
    fn new(
        names: &Names,
        filtered: &FilteredTrace<'_>,
        billing: &'b Billing,
        clock: &BlockClock,
    ) -> Self {
        Self {
            departures: Departures::new(names, is_complete(filtered), billing),
            billing,
            accounts: vec![Account::default(); clock.blocks],
        }
    }

    /// A switch-out is handed out with the next row of its task, and counts in that row's block.
    fn add(
        &mut self,
        row: &Switch,
        task: usize,
        counted: CountedParts,
        block: usize,
        names: &Names,
    ) {
        let account = &mut self.accounts[block];
        let mut each = |one: &Departure| account.add(one.case, None);
        self.departures.add(row, task, counted, names, &mut each);
    }

    fn finish(mut self) -> MeasuredAmount {
        if let Some(last) = self.accounts.last_mut() {
            let mut each = |one: &Departure| last.add(one.case, None);
            self.departures.finish(&mut each);
        }
        let amounts = self.accounts.iter();
        let amounts: Vec<_> = amounts.map(|one| self.billing.amount(one)).collect();
        MeasuredAmount {
            blocks: amounts.iter().map(|one| one.direct.point_ns).collect(),
            events: amounts.iter().map(|one| one.switches - one.unpriced).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_pool_have_one_name() {
        for (comm, pool) in [
            ("consumer-4", "consumer-#"),
            ("GC Thread#12", "GC Thread#"),
            ("pool-1-thread-10", "pool-1-thread-#"),
            ("python3", "python3"),
            ("2048", "2048"),
            ("-", "-"),
        ] {
            assert_eq!(of_pool(comm), pool);
        }
    }
}
