//! `report --by stack`: the places that waited, as user and kernel stacks.
//!
//! A stack belongs to a wait, and was read while it lasted: the time of the others is divided among the places that were
//! seen (`swtch_core::places`). In older traces a stack was taken of each wait that was long enough.

use rustc_hash::FxHashMap;
use swtch_core::places::{DividedTime, PlaceSums, SeenWait};
use swtch_core::{Frame, Nanos, Reason, Stack, StackEnd, StackKind, Switch};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet, percent};
use swtch_output::text;
use swtch_store::StackSettings;

use super::names::Names;
use super::whose::{
    Whose, function_name, is_of_c_library, is_of_interpreted, seen_by_its_language, short_name,
    telling_frames,
};
use super::{report_sheet, words};

/// A row of the table.
struct StackRow<'a> {
    waits: &'a StackPairWaits,
    all: u64,
    processes: Vec<String>,
    user: Vec<String>,
    kernel: Vec<String>,
}

const SWITCHES: Word = words::SWITCHES.saying("waits that began at these stacks");

fn columns<'a>() -> [Column<StackRow<'a>>; 12] {
    [
        Column::new(SWITCHES, |row| Cell::Count(row.waits.waits)),
        Column::new(words::SHARE, |row| Cell::share(row.waits.waits, row.all)),
        Column::new(words::OFF, |row| Cell::Time(row.waits.off)),
        Column::new(words::OFF_LOW, |row| Cell::Time(row.waits.off_low())),
        Column::new(words::OFF_HIGH, |row| Cell::Time(row.waits.off_high())),
        Column::new(words::BLOCKED, |row| Cell::Time(row.waits.blocked)),
        Column::new(words::RUNQ, |row| Cell::Time(row.waits.runq)),
        Column::new(words::REASONS, |row| Cell::List(row.waits.reasons())),
        Column::new(words::PROCESSES, |row| Cell::List(row.processes.clone())),
        Column::new(words::USER_FRAMES, |row| Cell::List(row.user.clone())),
        Column::new(words::KERNEL_FRAMES, |row| Cell::List(row.kernel.clone())),
        Column::new(words::FOLDED, |row| {
            Cell::Text(folded(&row.processes, &row.user, &row.kernel))
        }),
    ]
}

/// The reason why a caller may be missing from a stack.
pub const CALLER_LACKING: &str = "where the C library keeps no frame pointers (as in Debian), the function that \
    called it is missing";

/// Stands where the function that called the C library may be missing.
const UNKNOWN_CALLER: &str = "?";

/// The note for a trace without stacks.
pub const NO_STACKS: &str =
    "this trace has no stacks: record again, without --no-stacks and --ring";

/// Processes named beside a stack.
const PROCESSES_NAMED: usize = 3;

/// The counts of one pair of stacks.
#[derive(Clone, Debug, Default)]
pub struct StackPairWaits {
    /// Waits that began at these stacks.
    pub waits: u64,
    pub off: Nanos,
    pub blocked: Nanos,
    pub runq: Nanos,
    /// How much shorter and longer `off` may be, in ns, as squares; 0 where all waits have stacks.
    errors: [f64; 2],
    reasons: FxHashMap<Reason, u64>,
    processes: Vec<usize>,
}

/// Numbers of a user and a kernel stack; either may be missing.
pub type Stacks = (Option<u32>, Option<u32>);

/// Where a wait was, and which time it stands for: its own, if it has a stack because it was as long as was asked for.
pub fn seen_at(row: &Switch, off: Nanos) -> Option<SeenWait<Stacks>> {
    let stacks = (row.wait.stacks.user, row.wait.stacks.kernel);
    (stacks != (None, None)).then(|| SeenWait {
        place: stacks,
        stands_for: row.wait.seen_for.unwrap_or(off),
    })
}

/// Counts by pair of stacks.
#[derive(Debug, Default)]
pub struct StackCounts {
    pairs: FxHashMap<Stacks, StackPairWaits>,
    waits: u64,
    without: u64,
    /// Where stacks are read at looks: off-CPU, blocked and run-queue time of a thread's waits for a reason.
    seen: PlaceSums<(usize, Reason), Stacks, 3>,
}

impl StackCounts {
    /// Adds the wait of a row that counts, of the task with this index.
    pub fn add(&mut self, row: &Switch, task: usize, names: &Names) {
        let Some(off) = row.wait.off else {
            return;
        };
        let stacks = (row.wait.stacks.user, row.wait.stacks.kernel);
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
        self.seen
            .add((task, reason), [off, blocked, runq], seen_at(row, off));
        if stacks == (None, None) {
            self.without += 1;
            return;
        }
        self.waits += 1;
        let pair = self.pairs.entry(stacks).or_default();
        pair.waits += 1;
        pair.off += off;
        pair.blocked += blocked;
        pair.runq += runq;
        *pair.reasons.entry(reason).or_default() += 1;
        pair.name_process(names.thread(task).process);
    }

    /// Pairs of stacks, longest off-CPU time first; those that look alike are one. Where only some waits were seen,
    /// the times are those of all waits, divided among the places as they were seen.
    fn ranked(
        &self,
        symbols: &Symbols,
        divided: Option<&DividedTime<Stacks, 3>>,
    ) -> Vec<(Stacks, StackPairWaits)> {
        let mut merged: FxHashMap<Stacks, StackPairWaits> = FxHashMap::default();
        for (stacks, waits) in self.sorted() {
            let mut waits = waits.clone();
            if let Some(time) = divided.and_then(|divided| divided.places.get(&stacks)) {
                [waits.off, waits.blocked, waits.runq] = time.times;
                waits.errors = [time.less.powi(2), time.more.powi(2)];
            }
            let alike = symbols.first_alike(stacks);
            merged.entry(alike).or_default().merge(&waits);
        }
        let mut ranked: Vec<_> = merged.into_iter().collect();
        ranked.sort_by(|a, b| b.1.off.cmp(&a.1.off).then(a.0.cmp(&b.0)));
        ranked
    }

    /// By number, so that the processes that are named beside a pair are the same in each report.
    fn sorted(&self) -> Vec<(Stacks, &StackPairWaits)> {
        let pairs = self.pairs.iter().map(|(stacks, waits)| (*stacks, waits));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_by_key(|(stacks, _)| *stacks);
        pairs
    }

    /// The report. `asked` says whether the recording took stacks at all.
    pub fn sheet(&self, symbols: &Symbols, names: &Names, asked: bool) -> Sheet {
        let divided = symbols.are_whole.then(|| self.seen.divide());
        let ranked = self.ranked(symbols, divided.as_ref());
        let rows = ranked
            .iter()
            .map(|(stacks, waits)| self.row(*stacks, waits, symbols, names));
        let mut sheet = report_sheet("stack", &columns(), rows);
        sheet.not_in_tables = &["folded"];
        if !asked {
            sheet.notes.push(NO_STACKS.to_owned());
        } else if let Some(divided) = divided {
            sheet.notes.push(self.looks_in_words(&divided, symbols));
        } else if self.without > 0 {
            sheet.notes.push(format!(
                "{} had no stack: shorter than asked for, or the task stayed runnable",
                text::counted(self.without, "wait")
            ));
        }
        if !symbols.are_whole {
            sheet.notes.extend(self.cut_short(&ranked, symbols));
            sheet.notes.extend(self.callers_lacking(&ranked, symbols));
        }
        sheet
    }

    /// Says which figures are estimates, and how much time has no place.
    fn looks_in_words(&self, divided: &DividedTime<Stacks, 3>, symbols: &Symbols) -> String {
        let without = divided.without[0];
        let all: Nanos = divided.places.values().map(|place| place.times[0]).sum();
        let placed = divided.places.iter();
        let ended = placed.filter_map(|((user, _), place)| {
            let end = symbols.ends.get(&(*user)?)?;
            Some((*end, place.times[0]))
        });
        let time = |is_wanted: &dyn Fn(StackEnd) -> bool| -> Nanos {
            let wanted = ended.clone().filter(|(end, _)| is_wanted(*end));
            wanted.map(|(_, time)| time).sum()
        };
        let known = time(&|_| true).as_ns();
        let guessed = percent(time(&|end| end == StackEnd::Guessed).as_ns(), known);
        let whole = percent(
            time(&|end| [StackEnd::Start, StackEnd::Guessed].contains(&end)).as_ns(),
            known,
        );
        let guessed = guessed.filter(|share| *share >= 0.1).map_or_else(String::new, |share| {
            format!(" ({share:.1} % past code whose caller was found on the stack, without tables or frame pointer)")
        });
        format!(
            "stacks were read of {} of {} while they lasted; each thread's off-CPU time, which is known, is divided \
             among the places where it was seen; {} of {} has no place{}",
            text::grouped(self.waits),
            text::counted(self.waits + self.without, "wait"),
            without,
            all + without,
            whole.map_or_else(String::new, |whole| format!(
                "; the user stacks of {whole:.1} % of the rest go to where the thread began{guessed}"
            )),
        )
    }

    /// Says of how many waits the function that called the C library may be missing between others.
    fn callers_lacking(
        &self,
        ranked: &[(Stacks, StackPairWaits)],
        symbols: &Symbols,
    ) -> Option<String> {
        let is_lacking = |user| may_lack_a_caller(&symbols.frames(StackKind::User, user));
        let lacking = ranked.iter().filter(|((user, _), _)| is_lacking(*user));
        let waits: u64 = lacking.map(|(_, waits)| waits.waits).sum();
        (waits > 0).then(|| {
            format!(
                "{} of {} are in a function of the C library: {CALLER_LACKING}",
                text::counted(waits, "wait"),
                text::grouped(self.waits),
            )
        })
    }

    /// Says what to do where callers are missing.
    fn cut_short(&self, ranked: &[(Stacks, StackPairWaits)], symbols: &Symbols) -> Option<String> {
        let is_short = |user| symbols.depth(StackKind::User, user) == 1;
        let short = ranked.iter().filter(|((user, _), _)| is_short(*user));
        let waits: u64 = short.map(|(_, waits)| waits.waits).sum();
        (waits > 0).then(|| {
            format!(
                "{} of {} have one frame in user mode: that code keeps no frame pointers, by which the \
                 kernel finds callers. swtch explain --backend proc -p PID finds them without, by looking \
                 at waits now and then",
                text::counted(waits, "wait"),
                text::grouped(self.waits),
            )
        })
    }

    fn row<'a>(
        &self,
        stacks: Stacks,
        waits: &'a StackPairWaits,
        symbols: &Symbols,
        names: &Names,
    ) -> StackRow<'a> {
        let mut processes = Vec::new();
        for process in &waits.processes {
            let comm = &names.process(*process).comm;
            if !processes.contains(comm) {
                processes.push(comm.clone());
            }
        }
        StackRow {
            waits,
            all: self.waits,
            processes,
            user: symbols.frames(StackKind::User, stacks.0),
            kernel: symbols.frames(StackKind::Kernel, stacks.1),
        }
    }
}

impl StackPairWaits {
    fn off_low(&self) -> Nanos {
        let less = Nanos::from_rounded(self.errors[0].sqrt());
        self.off.saturating_sub(less)
    }

    fn off_high(&self) -> Nanos {
        self.off + Nanos::from_rounded(self.errors[1].sqrt())
    }

    fn merge(&mut self, other: &Self) {
        self.waits += other.waits;
        self.off += other.off;
        self.blocked += other.blocked;
        self.runq += other.runq;
        // Places err independently of each other.
        for (error, other) in self.errors.iter_mut().zip(other.errors) {
            *error += other;
        }
        for (reason, waits) in &other.reasons {
            *self.reasons.entry(*reason).or_default() += waits;
        }
        for process in &other.processes {
            self.name_process(*process);
        }
    }

    fn name_process(&mut self, process: usize) {
        if self.processes.len() < PROCESSES_NAMED && !self.processes.contains(&process) {
            self.processes.push(process);
        }
    }

    /// Reasons of the waits, most frequent first.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        reasons
            .iter()
            .map(|(reason, _)| reason.as_str().to_owned())
            .collect()
    }
}

#[derive(Clone, Debug)]
struct NamedFrame {
    words: String,
    whose: Whose,
}

/// Frames of the stacks of a trace, as words.
#[derive(Debug, Default)]
pub struct Symbols {
    stacks: FxHashMap<(StackKind, u32), Vec<u32>>,
    /// Where the frames of user stacks end, as far as the trace says it.
    ends: FxHashMap<u32, StackEnd>,
    frames: FxHashMap<u32, NamedFrame>,
    /// Where a frame is in the source, as `server.c:88`, if it is known.
    lines: FxHashMap<u32, String>,
    /// The first stack that looks like this one.
    first_alike: FxHashMap<(StackKind, u32), u32>,
    /// True if user stacks were unwound by tables, so that no caller is missing between others.
    are_whole: bool,
}

impl Symbols {
    /// The stacks and frames of a trace.
    pub fn new(mut stacks: Vec<Stack>, frames: &[Frame]) -> Self {
        let named = frames.iter().map(|row| {
            let words = frame_words(row);
            let whose = Whose::of(row, &words);
            (row.id, NamedFrame { words, whose })
        });
        let lines = frames.iter().filter_map(|row| {
            let file = row.file.as_deref()?.rsplit('/').next()?;
            Some((row.id, format!("{file}:{}", row.line?)))
        });
        let lines = lines.collect();
        let frames = named.collect();
        stacks.sort_unstable_by_key(|row| row.id);
        let ends = stacks.iter().filter_map(|row| Some((row.id, row.end?)));
        Self {
            ends: ends.collect(),
            first_alike: first_alike(&stacks, &frames, &lines),
            stacks: stacks
                .into_iter()
                .map(|row| ((row.kind, row.id), row.frames))
                .collect(),
            frames,
            lines,
            are_whole: false,
        }
    }

    /// The same of stacks that were recorded so.
    pub fn recorded_by(self, settings: Option<StackSettings>) -> Self {
        match settings {
            Some(settings) if settings.by_looks => self.of_whole_stacks(),
            _ => self,
        }
    }

    /// The same of stacks that were unwound by tables.
    pub fn of_whole_stacks(self) -> Self {
        Self {
            are_whole: true,
            ..self
        }
    }

    /// As [`may_lack_a_caller`], of frames of a user stack.
    pub fn may_lack_a_caller(&self, frames: &[String]) -> bool {
        !self.are_whole && may_lack_a_caller(frames)
    }

    /// The stacks that stand for all that look like these. The kernel tells stacks apart by addresses,
    /// which differ between processes that run the same program; and it numbers what it takes for a
    /// caller, too, which the recorder cuts off when it is no code.
    pub fn first_alike(&self, (user, kernel): Stacks) -> Stacks {
        let first = |kind, stack| {
            self.first_alike
                .get(&(kind, stack))
                .copied()
                .unwrap_or(stack)
        };
        (
            user.map(|stack| first(StackKind::User, stack)),
            kernel.map(|stack| first(StackKind::Kernel, stack)),
        )
    }

    /// Number of frames of a stack; 0 if it was lost.
    fn depth(&self, kind: StackKind, stack: Option<u32>) -> usize {
        let frames = stack.and_then(|stack| self.stacks.get(&(kind, stack)));
        frames.map_or(0, Vec::len)
    }

    /// Frames of a stack, the innermost first.
    pub fn frames(&self, kind: StackKind, stack: Option<u32>) -> Vec<String> {
        let Some(stack) = stack else {
            return Vec::new();
        };
        let Some(frames) = self.stacks.get(&(kind, stack)) else {
            return vec!["(stack lost)".to_owned()];
        };
        let words = |frame: &u32| {
            self.frames
                .get(frame)
                .map_or("(frame lost)", |frame| frame.words.as_str())
        };
        frames.iter().map(|frame| words(frame).to_owned()).collect()
    }
}

impl Symbols {
    /// The program's functions in a user stack, the innermost first, after a sign for one that may be missing.
    pub fn functions_in_line(&self, stack: u32, most: usize) -> Option<String> {
        let own = self.own_frames(stack);
        let names = own.iter().take(most).filter_map(|number| {
            let frame = self.frames.get(number)?;
            Some(short_name(function_name(&frame.words)))
        });
        let mut names: Vec<_> = names.collect();
        if names.is_empty() {
            return None;
        }
        if !self.are_whole && may_lack_a_caller(&self.frames(StackKind::User, Some(stack))) {
            names.insert(0, UNKNOWN_CALLER.to_owned());
        }
        Some(names.join(" < "))
    }

    /// Numbers of the frames of a user stack that show why the program waits, the innermost first.
    fn own_frames(&self, stack: u32) -> Vec<u32> {
        let Some(numbers) = self.stacks.get(&(StackKind::User, stack)) else {
            return Vec::new();
        };
        let named = numbers.iter().map(|number| match self.frames.get(number) {
            Some(frame) => (frame.words.as_str(), frame.whose),
            None => ("", Whose::Waiting),
        });
        let mut named: Vec<_> = named.collect();
        seen_by_its_language(&mut named);
        let places = telling_frames(named.iter().copied());
        places.into_iter().map(|place| numbers[place]).collect()
    }

    /// The innermost of these frames, as words.
    pub fn first_own(&self, stack: u32) -> Option<String> {
        let first = *self.own_frames(stack).first()?;
        Some(self.frames.get(&first)?.words.clone())
    }

    /// The program's functions of a user stack as [`Self::functions_in_line`] names them, the innermost with its line in
    /// the source: `take_ticket (server.c:88) < handle < main`.
    pub fn functions_with_line(&self, stack: u32, most: usize) -> Option<String> {
        let functions = self.functions_in_line(stack, most)?;
        let own = self.own_frames(stack);
        let line = own.first().and_then(|first| self.lines.get(first));
        Some(match (line, functions.split_once(" < ")) {
            (None, _) => functions,
            // A caller that may be missing stands first, and the line is not its own.
            (Some(_), Some((UNKNOWN_CALLER, _))) => functions,
            (Some(line), None) => format!("{functions} ({line})"),
            (Some(line), Some((first, callers))) => format!("{first} ({line}) < {callers}"),
        })
    }
}

/// For each of these stacks, in the order of their numbers, the first with the same words. Functions that an interpreter
/// runs have no addresses in these, by which two places in one would differ: their lines count.
fn first_alike(
    stacks: &[Stack],
    frames: &FxHashMap<u32, NamedFrame>,
    lines: &FxHashMap<u32, String>,
) -> FxHashMap<(StackKind, u32), u32> {
    let words_of = |number: &u32| {
        let words = frames.get(number).map_or("", |frame| frame.words.as_str());
        let line = lines.get(number).filter(|_| is_of_interpreted(words));
        (words, line)
    };
    let mut firsts: FxHashMap<(StackKind, Vec<_>), u32> = FxHashMap::default();
    let first = |row: &Stack| {
        let words = row.frames.iter().map(words_of).collect();
        let first = *firsts.entry((row.kind, words)).or_insert(row.id);
        ((row.kind, row.id), first)
    };
    stacks.iter().map(first).collect()
}

/// A frame as `symbol+0x12 [module]`, or its address where nothing more is known.
pub fn frame_words(frame: &Frame) -> String {
    let offset = frame.offset.filter(|offset| *offset > 0);
    let place = match (&frame.symbol, offset) {
        (Some(symbol), Some(offset)) => format!("{symbol}+{offset:#x}"),
        (Some(symbol), None) => symbol.clone(),
        // The address in the file is the same in each run; that in a process is not.
        (None, _) => format!("{:#x}", frame.file_address.unwrap_or(frame.address)),
    };
    match &frame.module {
        // `[kernel]`, `[vdso]`: no file, and bracketed already.
        Some(module) if module.starts_with('[') => format!("{place} {module}"),
        Some(module) => format!("{place} [{}]", module.rsplit('/').next().unwrap_or(module)),
        None => place,
    }
}

/// Returns true if a stack goes from a function of the C library to one that is not. The kernel follows frame pointers:
/// where the library's function keeps none, the register still holds that of its caller, whose frame then leads to the
/// caller's caller.
pub fn may_lack_a_caller(frames: &[String]) -> bool {
    let mut frames = frames.iter();
    frames.next().is_some_and(|frame| is_of_c_library(frame))
        && frames.next().is_some_and(|frame| !is_of_c_library(frame))
}

/// Says what the sign in such a line means; `None` if it is not in it.
pub fn sign_in_words(line: &str) -> Option<String> {
    let sign = line.strip_prefix(UNKNOWN_CALLER)?;
    sign.starts_with(" <")
        .then(|| format!("{UNKNOWN_CALLER}: libc may hide a caller: no frame pointer"))
}

/// A frame without its address or offset: `read [libc.so.6]`, or `(unnamed) [libc.so.6]`.
pub fn function_of(frame: &str) -> String {
    let (place, module) = match frame.split_once(" [") {
        Some((place, module)) => (place, format!(" [{module}")),
        None => (frame, String::new()),
    };
    if place.starts_with("0x") {
        return format!("(unnamed){module}");
    }
    let name = place.split_once("+0x").map_or(place, |(name, _)| name);
    format!("{name}{module}")
}

/// Returns true if a kernel's frame is of tracing. Stacks are taken at a tracepoint, and its function is on some of
/// them only (seen on 6.18: `__traceiter_sched_exit_tp` below `__schedule`), so that one place of the program would
/// look like two.
pub fn is_of_tracing(frame: &str) -> bool {
    frame.starts_with("__traceiter_")
}

/// One line from the outermost to the innermost frame, as flame graph programs read it.
pub fn folded(processes: &[String], user: &[String], kernel: &[String]) -> String {
    let clean = |frame: &String| frame.replace(';', ":");
    let mut line: Vec<String> = processes.first().map(clean).into_iter().collect();
    line.extend(user.iter().rev().map(clean));
    line.extend(
        kernel
            .iter()
            .rev()
            .map(|frame| format!("{}_[k]", clean(frame))),
    );
    line.join(";")
}

/// The first `most` stacks, each under a line of its numbers, the innermost frame first.
pub fn to_table(sheet: &Sheet, most: usize) -> String {
    let mut page = String::new();
    for row in sheet.rows.iter().take(most) {
        let [
            waits,
            share,
            off,
            off_low,
            off_high,
            blocked,
            runq,
            reasons,
            processes,
            user,
            kernel,
            _,
        ] = &row[..]
        else {
            unreachable!("a row has a cell for each column");
        };
        page += &format!(
            "{} waits  {} %  off {}{}  blocked {}  runq {}  {}  ({})\n",
            waits.to_table(),
            share.to_table(),
            off.to_table(),
            interval_words(off_low, off_high),
            blocked.to_table(),
            runq.to_table(),
            reasons.to_table(),
            processes.to_table(),
        );
        page += &frames_lines("kernel", kernel);
        page += &frames_lines("user", user);
        page.push('\n');
    }
    page + &sheet.rest(most)
}

/// ` (1.40 to 1.62 s)`; nothing where the time is exact.
fn interval_words(low: &Cell, high: &Cell) -> String {
    if low == high {
        return String::new();
    }
    format!(" ({} to {})", low.to_table(), high.to_table())
}

/// The frames of a stack, one a line, the innermost first.
pub fn frames_lines(part: &str, frames: &Cell) -> String {
    let Cell::List(frames) = frames else {
        return String::new();
    };
    let line = |(place, frame): (usize, &String)| {
        let part = if place == 0 { part } else { "" };
        format!("  {part:<6}  {}\n", text::escaped(frame))
    };
    frames.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row};

    fn symbols() -> Symbols {
        let frame = |frame, symbol: &str, module: Option<&str>| Frame {
            id: frame,
            address: 0x1000,
            symbol: Some(symbol.to_owned()),
            offset: Some(16),
            module: module.map(str::to_owned),
            ..Frame::default()
        };
        let frames = [
            frame(1, "schedule", None),
            frame(2, "pipe_read", None),
            frame(3, "read\u{1b};x", Some("/lib/libc.so.6")),
            Frame {
                id: 4,
                address: 0xabc,
                ..Frame::default()
            },
        ];
        let stack = |stack, kind, frames| Stack {
            id: stack,
            kind,
            frames,
            ..Stack::default()
        };
        let stacks = vec![
            stack(7, StackKind::Kernel, vec![1, 2]),
            Stack {
                end: Some(StackEnd::Start),
                ..stack(7, StackKind::User, vec![3, 4])
            },
        ];
        Symbols::new(stacks, &frames)
    }

    fn fed() -> Sheet {
        let names = names();
        let mut places = StackCounts::default();
        let mut with = after(row(1, Reason::Pipe), Reason::Pipe, 900, 100);
        (with.wait.stacks.user, with.wait.stacks.kernel) = (Some(7), Some(7));
        let without = after(row(1, Reason::Pipe), Reason::Pipe, 1, 1);
        for row in [with, without] {
            places.add(&row, names.index(row.task), &names);
        }
        places.sheet(&symbols(), &names, true)
    }

    /// Three short waits, of which a look met one, and one of another reason, of which none was met.
    #[test]
    fn where_some_waits_were_seen_their_places_have_the_time_of_all() {
        let names = names();
        let mut places = StackCounts::default();
        let unseen = after(row(1, Reason::Pipe), Reason::Pipe, 900, 100);
        let mut seen = unseen;
        seen.wait.stacks.user = Some(7);
        seen.wait.seen_for = Some(Nanos::from_ns(20_000));
        let elsewhere = after(row(1, Reason::Pipe), Reason::Sleep, 40, 10);
        for row in [unseen, seen, unseen, elsewhere] {
            places.add(&row, names.index(row.task), &names);
        }
        let how = StackSettings {
            by_looks: true,
            ..StackSettings::default()
        };
        let sheet = places.sheet(&symbols().recorded_by(Some(how)), &names, true);
        // One look that met one wait tells next to nothing: all may have been elsewhere.
        let times = [3000, 620, 3000, 2700, 300].map(|ns| Cell::Time(Nanos::from_ns(ns)));
        assert_eq!(sheet.rows[0][2..7], times);
        let note = "stacks were read of 1 of 4 waits while they lasted; each thread's off-CPU time, which is known, \
                    is divided among the places where it was seen; 50 ns of 3.05 µs has no place; the user stacks \
                    of 100.0 % of the rest go to where the thread began";
        assert_eq!(sheet.notes, [note]);
    }

    /// Their addresses differ, but not their frames.
    #[test]
    fn stacks_that_look_the_same_are_one_place() {
        let names = names();
        let stacks = [7, 8, 9].map(|id| Stack {
            id,
            kind: StackKind::User,
            frames: if id == 9 { vec![1, 1] } else { vec![1] },
            ..Stack::default()
        });
        let frame = Frame {
            id: 1,
            symbol: Some("read".to_owned()),
            ..Frame::default()
        };
        let symbols = Symbols::new(stacks.to_vec(), &[frame]);
        let mut counts = StackCounts::default();
        for (stack, off) in [(7, 100), (8, 200), (9, 250)] {
            let mut row = after(row(1, Reason::Pipe), Reason::Pipe, off, 10);
            row.wait.stacks.user = Some(stack);
            counts.add(&row, names.index(row.task), &names);
        }
        let sheet = counts.sheet(&symbols, &names, true);
        assert_eq!(sheet.rows.len(), 2);
        assert_eq!(sheet.rows[0][0], Cell::Count(2));
        assert_eq!(sheet.rows[0][2], Cell::Time(Nanos::from_ns(320)));
        assert_eq!(sheet.rows[1][0], Cell::Count(1));
        assert!(
            sheet.notes[0].starts_with("2 waits of 3 have one frame"),
            "{:?}",
            sheet.notes
        );
    }

    /// `main > serve > handle > take_ticket > read`, recorded: `read` keeps no frame pointer.
    #[test]
    fn a_caller_of_the_c_library_that_may_be_missing_is_marked_and_not_invented() {
        let line = |functions: &[(&str, &str)]| {
            let frames = functions
                .iter()
                .zip(0..)
                .map(|((symbol, module), id)| Frame {
                    id,
                    symbol: Some((*symbol).to_owned()),
                    module: Some((*module).to_owned()),
                    ..Frame::default()
                });
            let frames: Vec<_> = frames.collect();
            let stack = Stack {
                kind: StackKind::User,
                frames: frames.iter().map(|frame| frame.id).collect(),
                ..Stack::default()
            };
            Symbols::new(vec![stack], &frames).functions_in_line(0, 3)
        };
        let [read, fread] = ["read", "fread"].map(|name| (name, "libc.so.6"));
        let [handle, main] = ["handle", "main"].map(|name| (name, "deepfp"));
        let lacking = line(&[read, handle, main]).unwrap();
        assert_eq!(lacking, "? < handle < main");
        assert!(sign_in_words(&lacking).is_some_and(|words| words.contains("frame pointer")));
        for whole in [&[handle, main][..], &[read], &[read, fread, main]] {
            let line = line(whole).unwrap_or_default();
            assert_eq!(sign_in_words(&line), None, "{line}");
        }
    }

    #[test]
    fn the_function_of_a_tracepoint_is_of_tracing() {
        assert!(is_of_tracing("__traceiter_sched_exit_tp+0x4d [kernel]"));
        assert!(!is_of_tracing("__schedule+0x2a [kernel]"));
    }

    #[test]
    fn a_frame_is_its_function() {
        for (frame, function) in [
            ("lock+0x12 [server]", "lock [server]"),
            ("lock [server]", "lock [server]"),
            ("0x7f001122 [libc.so.6]", "(unnamed) [libc.so.6]"),
            ("0x7f001122", "(unnamed)"),
            ("schedule+0x10", "schedule"),
        ] {
            assert_eq!(function_of(frame), function);
        }
    }

    #[test]
    fn a_stack_is_shown_from_the_innermost_frame_and_harmless() {
        let table = to_table(&fed(), 20);
        let expected = "\
1 waits  100.0 %  off 1.00 µs  blocked 900 ns  runq 100 ns  pipe  (server)
  kernel  schedule+0x10
          pipe_read+0x10
  user    read\\x1b;x+0x10 [libc.so.6]
          0xabc

note: 1 wait had no stack: shorter than asked for, or the task stayed runnable
note: 1 wait of 1 are in a function of the C library: where the C library keeps no frame pointers (as in Debian), the function that called it is missing
";
        assert_eq!(table, expected);
    }

    #[test]
    fn folded_stacks_run_from_the_outside_and_hold_no_stray_separator() {
        let folded =
            "server;0xabc;read\u{1b}:x+0x10 [libc.so.6];pipe_read+0x10_[k];schedule+0x10_[k]";
        assert_eq!(fed().rows[0][11], Cell::text(folded));
    }

    #[test]
    fn a_trace_without_stacks_says_how_to_get_them() {
        let sheet = StackCounts::default().sheet(&Symbols::default(), &names(), false);
        assert!(sheet.notes[0].contains("--no-stacks"));
    }
}
