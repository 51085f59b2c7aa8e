//! The reader's process: looks at threads that wait, unwinds their stacks, and tells the recorder where they wait.
//!
//! What is read of a stack stays here, and only until it is unwound: addresses of functions leave this process.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::prctl::set_dumpable;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use swtch_capture::{
    CodeFile, ConfinedWork, LookRefusal, LookSources, LookedRole, LookedStack, LookedThread, Looks,
    ScriptPlace, ScriptRuntime, UserFrame, monotonic_ns, open_compiled, process_cpu_ns,
};
use swtch_core::{Pid, StackEnd};
use swtch_runtimes::go::GoPlaces;
use swtch_runtimes::{SourcePlace, go, python};
use swtch_unwind::{Chain, ChainEnd, REGISTERS, Registers, STACK_POINTER, StackCopy, chain};

use super::budget::CpuBudget;
use super::goroutines::{Goroutines, ReadGoroutine};
use super::javas::JavaProcess;
use super::memory::watched;
use super::messages::{
    FoundFile, FoundKernelStack, FoundLook, FoundStack, FoundWorkers, LookOrders, MOST_FRAMES,
    MOST_LOOKS, MOST_WORKERS, NotRead, StackNews,
};
use super::process_code::{CodeIs, MOST_TABLE_BYTES, ProcessCode, ProcessCodes};
use super::pythons::{LoopFrames, PythonThread, Pythons};
use super::{MOST_STACKS, end_of};
use crate::helper::HelperWork;
use crate::packets::{self, Blocking};

/// The most frames of all these stacks together, which both processes keep to the end: 16 bytes each here, 4 there.
const MOST_FRAMES_TOLD: usize = 1 << 24;

/// The most bytes of a path and of a name of a function that are told.
const MOST_OF_A_PATH: usize = 1536;
const MOST_OF_A_NAME: usize = 768;

/// The most interpreters that are told as not read.
const MOST_UNKNOWN: usize = 16;

/// The most places in programs of interpreters that are told.
const MOST_SCRIPTS: u32 = 1 << 17;

/// The most processes whose code is kept in memory.
const MOST_PROCESSES: usize = 1024;

/// The most virtual machines of Java that are read: each takes a descriptor.
const MOST_JAVAS: usize = 64;

/// The most copies that are known again.
const MOST_COPIES: usize = 1 << 16;

/// Runs `swtch read-stacks`, with the recorder's socket as its stdin. Returns exit code 0 when the recorder has ended.
///
/// # Errors
/// When a right cannot be dropped, or stdin is not such a socket.
pub fn read_stacks() -> Result<u8> {
    let work = HelperWork {
        name: c"swtch-stacks",
        bpf: ConfinedWork::LooksAtTasks,
    };
    let socket = work.begin()?;
    // No dump of this process holds what it has read, and no other process of the user reads it here.
    set_dumpable(false).context("keeping out of core dumps")?;
    let told = packets::receive::<LookOrders>(&socket, Blocking::Wait);
    let Some((orders, beside)) = told.context("hearing from the recorder")? else {
        return Ok(0);
    };
    let Ok([program, wakers, deep]) = <[OwnedFd; 3]>::try_from(beside) else {
        bail!("the recorder sent no program that looks");
    };
    let sources = LookSources {
        program,
        wakers,
        waker_slots: orders.waker_slots,
        deep,
        deep_slots: orders.deep_slots,
    };
    let mut reader = ReadingProcess {
        socket,
        looks: Looks::new(sources)?,
        unwound: UnwoundStacks::default(),
        looked: monotonic_ns(),
    };
    reader.run(orders)?;
    Ok(0)
}

struct ReadingProcess {
    socket: OwnedFd,
    looks: Looks,
    unwound: UnwoundStacks,
    /// When it looked last; before it has, when it began.
    looked: u64,
}

impl ReadingProcess {
    /// Looks until the recorder says that it has ended. What was found until then is told.
    fn run(&mut self, orders: LookOrders) -> Result<()> {
        let mut budget = CpuBudget::new(orders.cpu_thousandths, monotonic_ns());
        loop {
            let before = process_cpu_ns();
            match self.look() {
                Err(error) if is_end(&error) => return Ok(()),
                looked => looked?,
            }
            // What is read once, tables of files above all, is not part of what a look costs.
            let once =
                std::mem::take(&mut self.unwound.reading_ns) + self.unwound.codes.take_reading_ns();
            let once = if self.unwound.reads_again { 0 } else { once };
            let used = process_cpu_ns().saturating_sub(before + once);
            let pause = budget.pause_after(used, monotonic_ns());
            if packets::await_message(&self.socket, pause)? {
                return self.end();
            }
        }
    }

    /// Waits for the recorder's end: until then it can ask what this process has cost.
    fn end(&mut self) -> Result<()> {
        match self
            .tell_news()
            .and_then(|()| self.tell(&StackNews::Done, None))
        {
            Err(error) if is_end(&error) => Ok(()),
            told => {
                told?;
                Ok(packets::await_end(&self.socket)?)
            }
        }
    }

    fn look(&mut self) -> Result<()> {
        let mut looks = Vec::new();
        let now = monotonic_ns();
        let between = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let unwound = &mut self.unwound;
        unwound.forget_if_many();
        unwound.pythons.begin_look();
        self.looks.look(|threads| {
            // What a thread's memory says holds as long as it does not run: it is read before stacks are unwound.
            let python = threads
                .iter()
                .map(|thread| match (thread.role, thread.stack) {
                    (LookedRole::Waiter, Ok(_)) => unwound.pythons.thread(thread),
                    _ => None,
                });
            let python: Vec<_> = python.collect();
            for (thread, python) in threads.iter().zip(python) {
                let Some(numbers) = unwound.numbers_of(thread, python) else {
                    continue;
                };
                looks.push(FoundLook {
                    task: thread.task.get(),
                    ts: thread.ts.as_ns(),
                    out: thread.out.as_ns(),
                    user: numbers.user,
                    kernel: numbers.kernel,
                    between: (thread.role == LookedRole::Waiter).then_some(between),
                    holder: numbers.holder,
                });
            }
        })?;
        self.tell_news()?;
        for some in looks.chunks(MOST_LOOKS) {
            self.tell(&StackNews::Looks(some.to_vec()), None)?;
        }
        let workers = self.unwound.workers(between);
        self.tell_news()?;
        for some in workers.chunks(MOST_WORKERS) {
            self.tell(&StackNews::Workers(some.to_vec()), None)?;
        }
        Ok(())
    }

    fn tell_news(&mut self) -> Result<()> {
        for (news, file) in std::mem::take(&mut self.unwound.news) {
            self.tell(&news, file.as_ref())?;
        }
        Ok(())
    }

    fn tell(&self, news: &StackNews, file: Option<&File>) -> Result<()> {
        let beside: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        packets::send(&self.socket, news, &beside, Blocking::Wait).context("telling the recorder")
    }
}

/// The recorder is gone.
fn is_end(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| {
        matches!(
            cause.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        )
    })
}

/// The stacks that were met.
#[derive(Debug, Default)]
struct UnwoundStacks {
    codes: ProcessCodes,
    /// When the code of a process was read last, and of which address space.
    read: FxHashMap<Pid, CodeRead>,
    /// A copy that was unwound, by process and by a hash of its registers and bytes: a thread that waits
    /// in the same place again mostly has the same stack.
    copies: FxHashMap<(Pid, u64), KnownCopy>,
    /// The same of goroutines, of which each stack may be another.
    goroutine_copies: FxHashMap<(Pid, u64), u32>,
    pythons: Pythons,
    goroutines: Goroutines,
    /// Virtual machines of Java.
    javas: FxHashMap<Pid, Rc<JavaProcess>>,
    compiled: CompiledLists,
    unknown: UnknownRuntimes,
    /// The number of each place in a program that an interpreter runs.
    scripts: FxHashMap<ScriptPlace, u32>,
    /// The number of a stack by its frames and how they end: processes that run the same program share them.
    numbers: FxHashMap<(Vec<FramePlace>, StackEnd), u32>,
    kernel_numbers: FxHashMap<Vec<u64>, u32>,
    /// The number of each file that stacks name, and whether it could be opened.
    files: FxHashMap<CodeFile, (u32, bool)>,
    /// Processes of which stacks were not read.
    refused: FxHashSet<(Pid, NotRead)>,
    /// What was not told yet, with files to hand over.
    news: Vec<(StackNews, Option<File>)>,
    /// How many stacks were told; the next has this number.
    told: u32,
    /// The frames of all of them.
    frames_told: usize,
    /// True once there was one too many.
    is_full: bool,
    /// True once something was forgotten: what is read from then on may be read for the second time.
    reads_again: bool,
    /// CPU time that reading the maps of new processes took.
    reading_ns: u64,
}

/// Numbers of stacks: of a thread, and of who held the lock that it waited for.
#[derive(Clone, Copy, Debug)]
struct LookNumbers {
    user: Option<u32>,
    kernel: Option<u32>,
    holder: Option<u32>,
}

/// Where a frame is, for all processes that map the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FramePlace {
    InFile(u32, u64),
    /// Code without a file, of a process.
    At(Pid, u64),
    /// A place in a program that an interpreter runs, by its number.
    Script(u32),
}

/// A copy that was unwound.
#[derive(Clone, Debug)]
enum KnownCopy {
    /// The number of its stack.
    Numbered(u32),
    /// Its chain, of which the interpreter knows more.
    Interpreted(Rc<Chain>),
}

#[derive(Clone, Copy, Debug)]
struct CodeRead {
    memory: u64,
    at: u64,
    /// How often it may be read again before a second has passed.
    again: u32,
}

/// How often the map of a process is read again at once, and after what time once more: reading it takes longer than a
/// look. A program loads its libraries when it begins, and a long wait is looked at once.
const MAP_READINGS: u32 = 8;
const MAP_HOLDS_NS: u64 = 1_000_000_000;

impl CodeRead {
    /// How often it may be read again now.
    fn may_again(&self, now: u64) -> u32 {
        let earned = now.saturating_sub(self.at) / MAP_HOLDS_NS;
        let earned = u32::try_from(earned).unwrap_or(MAP_READINGS);
        self.again.saturating_add(earned).min(MAP_READINGS)
    }

    /// True if code may have been mapped between this and the moment from which on a thread has not run.
    const fn may_lack_code_of(&self, thread: &LookedThread<'_>) -> bool {
        let stands_since = match thread.role {
            LookedRole::Waiter => thread.out,
            LookedRole::Waker => thread.ts,
        };
        self.at < stands_since.as_ns()
    }
}

impl UnwoundStacks {
    /// Numbers of the stacks of a thread; `None` if its process is not to be read.
    fn numbers_of(
        &mut self,
        thread: &LookedThread<'_>,
        python: Option<PythonThread>,
    ) -> Option<LookNumbers> {
        let (user, holder) = match thread.stack {
            Ok(stack) => self.number_of(thread, &stack, python)?,
            Err(LookRefusal::KernelThread) => (None, None),
            Err(refusal) => {
                let refusal = NotRead::of(refusal)?;
                if self.refused.insert((thread.pid, refusal)) {
                    self.news.push((StackNews::Refused(refusal), None));
                }
                return None;
            }
        };
        let list = self.compiled.of(thread);
        self.news.extend(list);
        let kernel = self.number_in_kernel(thread.kernel);
        Some(LookNumbers {
            user,
            kernel,
            holder,
        })
    }

    fn number_in_kernel(&mut self, addresses: &[u64]) -> Option<u32> {
        if addresses.is_empty() {
            return None;
        }
        if let Some(number) = self.kernel_numbers.get(addresses) {
            return Some(*number);
        }
        let number = u32::try_from(self.kernel_numbers.len()).ok()?;
        if number >= MOST_STACKS {
            return None;
        }
        self.kernel_numbers.insert(addresses.to_vec(), number);
        // All are where a call returns to. If the call is a function's last instruction, the next function is there.
        let found = FoundKernelStack {
            number,
            addresses: addresses.iter().map(|word| word - 1).collect(),
        };
        self.news.push((StackNews::KernelStack(found), None));
        Some(number)
    }

    /// The numbers of the user stack of a thread, and of that of who held the lock which it waited for; `None` if its
    /// process has ended, or there are too many.
    fn number_of(
        &mut self,
        thread: &LookedThread<'_>,
        stack: &LookedStack<'_>,
        python: Option<PythonThread>,
    ) -> Option<(Option<u32>, Option<u32>)> {
        let pid = thread.pid;
        let read = self.read.get(&pid);
        if read.is_none_or(|read| read.memory != thread.memory) {
            self.goroutines.see(thread);
            self.read_code(thread)?;
        }
        let key = (pid, hash_of(stack));
        match self.copies.get(&key) {
            Some(KnownCopy::Numbered(number)) => return Some((Some(*number), None)),
            Some(KnownCopy::Interpreted(chain)) => {
                let chain = Rc::clone(chain);
                return self.number_of_interpreted(thread, &chain, python);
            }
            None => {}
        }
        let mut chain = self.chain_of(pid, stack)?;
        let is_java_met = self.meet_java(thread, &chain);
        if is_java_met == Some(true) {
            chain = self.chain_of(pid, stack)?;
        }
        // A chain that ends early is the sign of a library that was loaded meanwhile.
        let read = self.read.get(&pid)?;
        let lacks =
            (chain.end != ChainEnd::Root || chain.is_guessed) && read.may_lack_code_of(thread);
        let is_read = lacks && read.may_again(monotonic_ns()) > 0;
        if is_read {
            self.read_code(thread)?;
            chain = self.chain_of(pid, stack)?;
        }
        let holds = is_read || !lacks;
        let code = self.codes.known(pid)?;
        let mut addresses = chain.addresses.iter();
        if thread.role == LookedRole::Waiter
            && addresses.any(|address| code.python_at(*address).is_some())
        {
            let chain = Rc::new(chain);
            let known = holds.then(|| (key, KnownCopy::Interpreted(Rc::clone(&chain))));
            self.copies.extend(known);
            return self.number_of_interpreted(thread, &chain, python);
        }
        let go = self.go_of(thread, &chain);
        let is_met = go.is_none_or(|places| self.goroutines.meet(thread, places))
            && is_java_met != Some(false);
        for unknown in self.goroutines.take_unknown() {
            let words = format!(
                "goroutines of {unknown} are not read, but where its threads are: what is read is {}",
                go::SUPPORTED
            );
            let words = self.unknown.of(words);
            self.news.extend(words);
        }
        let frames = self.frames_of(pid, &chain.addresses)?;
        let frames = self.name_methods(pid, &chain, stack, frames);
        let is_compiled = |address: &u64| self.codes.known(pid)?.is_made_at(*address).then_some(());
        if chain
            .addresses
            .iter()
            .any(|address| is_compiled(address).is_some())
        {
            self.compiled.meet(thread);
        }
        let number = self.number_of_named(pid, frames, &chain)?;
        self.copies
            .extend((holds && is_met).then_some((key, KnownCopy::Numbered(number))));
        Some((Some(number), None))
    }

    /// The same of a stack in which functions of Python stand in the place of the interpreter's own.
    fn number_of_interpreted(
        &mut self,
        thread: &LookedThread<'_>,
        chain: &Chain,
        mut python: Option<PythonThread>,
    ) -> Option<(Option<u32>, Option<u32>)> {
        let code = self.codes.known(thread.pid)?;
        let loops = chain
            .addresses
            .iter()
            .map(|address| code.python_at(*address));
        let loops: Vec<_> = loops.collect();
        let (file, moved_by) = loops.iter().flatten().next().copied()?;
        if self.pythons.meet(thread, file, moved_by) {
            python = self.pythons.thread(thread);
        }
        let (found, holder) = python.map(|thread| (thread.loops, thread.holder)).unzip();
        for unknown in self.pythons.take_unknown() {
            let words = format!(
                "stacks of {unknown} show the interpreter's functions alone: what is read is {}",
                python::SUPPORTED
            );
            let words = self.unknown.of(words);
            self.news.extend(words);
        }
        let calls = loops.iter().flatten().count();
        let is_cut = end_of(chain) != StackEnd::Start;
        let found: Option<Vec<LoopFrames>> =
            found.filter(|found| found.len() == calls || (is_cut && found.len() > calls));
        let in_loop: Vec<_> = loops.iter().map(Option::is_some).collect();
        let mut frames = Vec::with_capacity(chain.addresses.len());
        let native = self.frames_of(thread.pid, &chain.addresses)?;
        let mut found = found.map(Vec::into_iter);
        for (frame, in_loop) in native.into_iter().zip(in_loop) {
            let functions = found.as_mut().filter(|_| in_loop).and_then(Iterator::next);
            match functions {
                Some(functions) => frames.extend(self.scripts_of(ScriptRuntime::Python, functions)),
                None => frames.push(frame),
            }
        }
        let number = self.number_of_named(thread.pid, frames, chain)?;
        Some((Some(number), self.number_of_holder(thread.pid, holder)))
    }

    /// The number of a stack in which several functions may stand in the place of one address.
    fn number_of_named(
        &mut self,
        pid: Pid,
        mut frames: Vec<UserFrame>,
        chain: &Chain,
    ) -> Option<u32> {
        let end = match frames.len() > MOST_FRAMES {
            true => StackEnd::Deep,
            false => end_of(chain),
        };
        frames.truncate(MOST_FRAMES);
        self.number_of_frames(pid, frames, end)
    }

    /// The number of the stack of who holds a lock: functions of Python alone.
    fn number_of_holder(&mut self, pid: Pid, functions: Option<LoopFrames>) -> Option<u32> {
        let functions = functions.filter(|functions| !functions.is_empty())?;
        let mut frames = self.scripts_of(ScriptRuntime::Python, functions);
        frames.truncate(MOST_FRAMES);
        self.number_of_frames(pid, frames, StackEnd::Start)
    }

    /// The functions of a stack.
    fn chain_of(&self, pid: Pid, stack: &LookedStack<'_>) -> Option<Chain> {
        let code = self.codes.known(pid)?;
        let java = self.java_of(pid);
        if let Some(java) = java {
            java.begin();
        }
        code.set_java(java);
        Some(chain_of(stack, code))
    }

    /// The virtual machine of the program that a process runs now.
    fn java_of(&self, pid: Pid) -> Option<&Rc<JavaProcess>> {
        let read = self.read.get(&pid)?;
        self.javas.get(&pid).filter(|java| java.is_of(read.memory))
    }

    /// Meets the virtual machine of Java of a process of which a thread is in code without a file: `Some(true)` if it is
    /// new, `Some(false)` if it cannot be read now.
    fn meet_java(&mut self, thread: &LookedThread<'_>, chain: &Chain) -> Option<bool> {
        let code = self.codes.known(thread.pid)?;
        let mut addresses = chain.addresses.iter();
        let is_known = || {
            let known = self.javas.get(&thread.pid);
            known.is_some_and(|known| known.is_of(thread.memory))
        };
        if thread.role == LookedRole::Waker
            || !addresses.any(|address| code.is_made_at(*address))
            || is_known()
        {
            return None;
        }
        let met = JavaProcess::meet(thread, code.java()?);
        if let Some(java) = met {
            if self.javas.len() >= MOST_JAVAS {
                self.javas.clear();
            }
            if !java.is_known() {
                self.news.extend(self.unknown.of(UNKNOWN_JAVA.to_owned()));
            }
            self.javas.insert(thread.pid, Rc::new(java));
            return Some(true);
        }
        Some(false)
    }

    /// Puts methods of Java in the place of the code that its virtual machine has made for them.
    fn name_methods(
        &mut self,
        pid: Pid,
        chain: &Chain,
        stack: &LookedStack<'_>,
        frames: Vec<UserFrame>,
    ) -> Vec<UserFrame> {
        let Some(java) = self.java_of(pid).map(Rc::clone) else {
            return frames;
        };
        let copy = copy_of(stack);
        let pointers = chain.frame_pointers.iter();
        let mut named = Vec::with_capacity(frames.len());
        for (frame, pointer) in frames.into_iter().zip(pointers) {
            let methods = match frame {
                UserFrame::At(address) => java.methods_at(address, *pointer, |at| copy.word(at)),
                UserFrame::InFile(..) | UserFrame::Script(_) => Vec::new(),
            };
            if methods.is_empty() {
                named.push(frame);
            }
            named.extend(self.scripts_of(ScriptRuntime::Java, methods));
        }
        named
    }

    /// The frames of places in a program that a runtime runs.
    fn scripts_of(&mut self, runtime: ScriptRuntime, places: Vec<SourcePlace>) -> Vec<UserFrame> {
        let places = places.into_iter();
        places.map(|place| self.script(runtime, place)).collect()
    }

    /// The frame of one of them, which is told if it is new.
    fn script(&mut self, runtime: ScriptRuntime, place: SourcePlace) -> UserFrame {
        let place = ScriptPlace {
            runtime,
            function: told(&place.function, MOST_OF_A_NAME),
            file: place.file.map(|file| told(&file, MOST_OF_A_PATH)),
            line: place.line,
        };
        if let Some(number) = self.scripts.get(&place) {
            return UserFrame::Script(*number);
        }
        let next = u32::try_from(self.scripts.len()).unwrap_or(u32::MAX);
        if next >= MOST_SCRIPTS {
            return UserFrame::At(0);
        }
        self.news.push((StackNews::Script(place.clone()), None));
        self.scripts.insert(place, next);
        UserFrame::Script(next)
    }

    /// Forgets all that was read, if it is of too many processes, of which most have ended, or too large.
    fn forget_if_many(&mut self) {
        let is_large = self.codes.bytes_of_tables() >= MOST_TABLE_BYTES;
        let is_many = self.read.len() > MOST_PROCESSES || self.copies.len() > MOST_COPIES;
        if !is_large && !is_many {
            return;
        }
        if is_large {
            self.codes = ProcessCodes::default();
        } else {
            self.codes.forget_others(&FxHashSet::default());
        }
        self.read.clear();
        self.pythons.forget();
        self.javas.clear();
        self.compiled.0.clear();
        self.copies.clear();
        self.reads_again = true;
    }

    /// Reads what a process maps; what was known of its copies holds no longer if that has changed.
    fn read_code(&mut self, thread: &LookedThread<'_>) -> Option<()> {
        let (now, before) = (monotonic_ns(), process_cpu_ns());
        let pid = thread.pid;
        let state = self.codes.of(pid).map(|(_, state)| state);
        // Reading it again is part of what looks cost.
        if !self.read.contains_key(&pid) {
            self.reading_ns += process_cpu_ns().saturating_sub(before);
        }
        if state? == CodeIs::New {
            self.copies.retain(|(of, _), _| *of != pid);
            self.goroutine_copies.retain(|(of, _), _| *of != pid);
        }
        let read = self.read.get(&pid);
        let read = read.filter(|read| read.memory == thread.memory);
        let again = read.map_or(MAP_READINGS, |read| read.may_again(now).saturating_sub(1));
        let read = CodeRead {
            memory: thread.memory,
            at: now,
            again,
        };
        self.read.insert(pid, read);
        Some(())
    }

    fn number_of_frames(&mut self, pid: Pid, frames: Vec<UserFrame>, end: StackEnd) -> Option<u32> {
        let places = frames.iter().map(|frame| match frame {
            UserFrame::InFile(_, file, offset) => FramePlace::InFile(*file, *offset),
            UserFrame::At(address) => FramePlace::At(pid, *address),
            UserFrame::Script(number) => FramePlace::Script(*number),
        });
        let place = match self.numbers.entry((places.collect(), end)) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(_)
                if self.told >= MOST_STACKS || self.frames_told >= MOST_FRAMES_TOLD =>
            {
                if !std::mem::replace(&mut self.is_full, true) {
                    self.news.push((StackNews::Full, None));
                }
                return None;
            }
            Entry::Vacant(place) => place,
        };
        let number = self.told;
        self.told += 1;
        self.frames_told += frames.len();
        place.insert(number);
        let found = FoundStack {
            number,
            pid: pid.get(),
            frames,
            end: end.index(),
        };
        self.news.push((StackNews::Stack(found), None));
        Some(number)
    }

    /// Where the runtime of Go is, if the outermost functions of a thread are of one.
    fn go_of(&self, thread: &LookedThread<'_>, chain: &Chain) -> Option<GoPlaces> {
        let is_waiter = thread.role == LookedRole::Waiter;
        let outermost = chain.addresses.last().filter(|_| is_waiter)?;
        self.codes.known(thread.pid)?.go_at(*outermost)
    }

    /// Goroutines that wait or could run, by place.
    fn workers(&mut self, between: u64) -> Vec<FoundWorkers> {
        let ts = monotonic_ns();
        let mut found = FxHashMap::default();
        for process in self.goroutines.read() {
            for one in process.goroutines {
                let stack = self.number_of_goroutine(process.pid, &one);
                *found.entry((process.pid, one.reason, stack)).or_default() += process.each;
            }
        }
        let found = found.into_iter();
        let workers = found.map(|((pid, reason, stack), thousandths)| FoundWorkers {
            pid: pid.get(),
            ts,
            reason,
            stack,
            thousandths,
            between,
        });
        workers.collect()
    }

    fn number_of_goroutine(&mut self, pid: Pid, one: &ReadGoroutine) -> Option<u32> {
        let stack = LookedStack {
            pc: one.pc,
            registers: one.registers,
            start: one.start,
            bytes: &one.stack,
        };
        let key = (pid, hash_of(&stack));
        if let Some(number) = self.goroutine_copies.get(&key) {
            return Some(*number);
        }
        let chain = self.chain_of(pid, &stack)?;
        let frames = self.frames_of(pid, &chain.addresses)?;
        let number = self.number_of_frames(pid, frames, end_of(&chain))?;
        if self.goroutine_copies.len() >= MOST_COPIES {
            self.goroutine_copies.clear();
        }
        // What ends elsewhere may end better once the map of the process is read again.
        if chain.end == ChainEnd::Root {
            self.goroutine_copies.insert(key, number);
        }
        Some(number)
    }

    /// The frames at these addresses. A file that is new among them is told first.
    fn frames_of(&mut self, pid: Pid, addresses: &[u64]) -> Option<Vec<UserFrame>> {
        let code = self.codes.known(pid)?;
        let mut frames = Vec::with_capacity(addresses.len());
        for address in addresses {
            let frame = code.place_of(*address).map(|(file, offset)| {
                let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
                let (number, is_open) = self.files.entry(file.clone()).or_insert((next, false));
                if !*is_open {
                    let open = file.open(pid).ok();
                    *is_open = open.is_some();
                    let found = FoundFile {
                        number: *number,
                        path: told(file.path(), MOST_OF_A_PATH),
                        is_beside: *is_open,
                    };
                    self.news.push((StackNews::File(found), open));
                }
                UserFrame::InFile(*address, *number, offset)
            });
            frames.push(frame.unwrap_or(UserFrame::At(*address)));
        }
        Some(frames)
    }
}

/// Runtimes that were told as not read.
#[derive(Debug, Default)]
struct UnknownRuntimes(FxHashSet<String>);

/// What is said of a virtual machine of Java whose layout is not known.
const UNKNOWN_JAVA: &str =
    "methods of a Java virtual machine have no names: what is read is HotSpot of JDK 11 and later";

impl UnknownRuntimes {
    /// Says once that a runtime is not read, and what is.
    fn of(&mut self, words: String) -> Option<(StackNews, Option<File>)> {
        let is_new = self.0.len() < MOST_UNKNOWN && self.0.insert(words.clone());
        is_new.then_some((StackNews::UnknownRuntime(words), None))
    }
}

/// Processes that run code without a file, by their address spaces, and when the lists of what they have compiled were
/// looked for last; `None` for one that was handed over.
#[derive(Debug, Default)]
struct CompiledLists(FxHashMap<Pid, (u64, Option<Instant>)>);

/// The least time between two looks for the list of a process: a runtime writes it when it is asked to, or has compiled
/// something.
const LISTED_EVERY: Duration = Duration::from_secs(1);

impl CompiledLists {
    /// Notes that a thread is in code without a file.
    fn meet(&mut self, thread: &LookedThread<'_>) {
        let known = self.0.get(&thread.pid);
        if known.is_none_or(|known| known.0 != thread.memory) {
            let long_ago = Instant::now().checked_sub(LISTED_EVERY);
            self.0.insert(thread.pid, (thread.memory, long_ago));
        }
    }

    /// The list of a process of which a thread was just looked at, once it is there.
    fn of(&mut self, thread: &LookedThread<'_>) -> Option<(StackNews, Option<File>)> {
        let (memory, looked) = self.0.get_mut(&thread.pid)?;
        let is_due = looked.is_some_and(|looked| looked.elapsed() >= LISTED_EVERY);
        if *memory != thread.memory || !is_due {
            return None;
        }
        *looked = Some(Instant::now());
        let list = watched(|| open_compiled(thread.pid)).ok()?;
        *looked = None;
        Some((StackNews::Compiled(thread.pid.get()), Some(list)))
    }
}

/// A text as it is told, of which the end counts: a message has room for so much, in which a byte may take six.
fn told(text: &str, most: usize) -> String {
    let cut = text.len().saturating_sub(most);
    if cut == 0 {
        return text.to_owned();
    }
    let start = (cut..text.len()).find(|at| text.is_char_boundary(*at));
    format!("…{}", &text[start.unwrap_or(text.len())..])
}

const fn copy_of<'a>(stack: &LookedStack<'a>) -> StackCopy<'a> {
    StackCopy {
        start: stack.start,
        bytes: stack.bytes,
    }
}

fn chain_of(stack: &LookedStack<'_>, code: &ProcessCode) -> Chain {
    let copy = copy_of(stack);
    let mut values = [None; REGISTERS];
    for (value, register) in values.iter_mut().zip(stack.registers) {
        *value = Some(register);
    }
    chain(Registers::new(stack.pc, values), copy, code, MOST_FRAMES)
}

fn hash_of(stack: &LookedStack<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    stack.pc.hash(&mut hasher);
    stack.registers.hash(&mut hasher);
    // What lies below the stack pointer is mostly left from calls that have returned.
    let below = stack.registers[usize::from(STACK_POINTER)].saturating_sub(stack.start);
    let below = usize::try_from(below).unwrap_or(usize::MAX);
    stack.bytes.get(below..).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_path_is_told() {
        let long = format!("/{}/prog", "ü".repeat(4000));
        let cut = told(&long, MOST_OF_A_PATH);
        let most = MOST_OF_A_PATH + "…".len();
        assert!(cut.len() <= most && cut.ends_with("/prog"), "{}", cut.len());
        assert_eq!(told("/bin/prog", MOST_OF_A_PATH), "/bin/prog");
    }

    #[test]
    fn the_largest_messages_fit_into_a_packet() {
        let stack = StackNews::Stack(FoundStack {
            number: u32::MAX,
            pid: u32::MAX,
            frames: vec![UserFrame::InFile(u64::MAX, u32::MAX, u64::MAX); MOST_FRAMES],
            end: usize::MAX,
        });
        let text = "\u{1}".repeat(5000);
        let script = StackNews::Script(ScriptPlace {
            runtime: ScriptRuntime::Python,
            function: told(&text, MOST_OF_A_NAME),
            file: Some(told(&text, MOST_OF_A_PATH)),
            line: Some(u32::MAX),
        });
        let look = FoundLook {
            task: u32::MAX,
            ts: u64::MAX,
            out: u64::MAX,
            user: Some(u32::MAX),
            kernel: Some(u32::MAX),
            between: Some(u64::MAX),
            holder: Some(u32::MAX),
        };
        let workers = FoundWorkers {
            pid: u32::MAX,
            ts: u64::MAX,
            reason: Some("\\".repeat(64)),
            stack: Some(u32::MAX),
            thousandths: u64::MAX,
            between: u64::MAX,
        };
        let looks = StackNews::Looks(vec![look; MOST_LOOKS]);
        let workers = StackNews::Workers(vec![workers; MOST_WORKERS]);
        for news in [stack, script, looks, workers] {
            let bytes = serde_json::to_vec(&news).unwrap();
            assert!(bytes.len() <= packets::MOST_BYTES, "{}", bytes.len());
        }
    }
}
