//! The reader's process: looks at threads that wait, unwinds their stacks, and tells the recorder where they wait.
//!
//! What is read of a stack stays here, and only until it is unwound: addresses of functions leave this process.

use std::collections::hash_map::Entry;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::prctl::set_dumpable;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use swtch_capture::{ConfinedWork, LookedStack, LookedThread, Looks, monotonic_ns, process_cpu_ns};
use swtch_core::Pid;
use swtch_unwind::{Chain, ChainEnd, REGISTERS, Registers, STACK_POINTER, StackCopy, chain};

use super::messages::{
    FoundLook, FoundStack, LookOrders, MOST_FRAMES, MOST_LOOKS, NotRead, StackNews,
};
use super::process_code::{CodeIs, ProcessCode, ProcessCodes};
use crate::helper::HelperWork;
use crate::packets::{self, Blocking};

/// The least time between two looks, on average: a thread that is looked at more often tells little more.
const LEAST_BETWEEN: Duration = Duration::from_millis(20);

/// The most distinct stacks that are told. More are not: their waits have no place.
const MOST_STACKS: u32 = 1 << 20;

/// The most processes whose code is kept in memory.
const MOST_PROCESSES: usize = 1024;

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
    let Some((orders, program)) = told.context("hearing from the recorder")? else {
        return Ok(0);
    };
    let Ok([program]) = <[OwnedFd; 1]>::try_from(program) else {
        bail!("the recorder sent no program that looks");
    };
    let mut reader = ReadingProcess {
        socket,
        looks: Looks::new(program),
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
    /// Looks until the recorder is gone.
    fn run(&mut self, orders: LookOrders) -> Result<()> {
        loop {
            let before = process_cpu_ns();
            match self.look() {
                Err(error) if is_end(&error) => return Ok(()),
                looked => looked?,
            }
            // What is read once, tables of files above all, is not part of what a look costs.
            let once = std::mem::take(&mut self.unwound.reading_ns);
            let used = process_cpu_ns().saturating_sub(before + once);
            let used = Duration::from_nanos(used);
            let affordable = used * (1000 / orders.cpu_thousandths.max(1));
            // At random distances: a program that does something every 20 ms is not always met at the same place.
            let between = affordable.max(LEAST_BETWEEN);
            sleep(between.mul_f64(0.5 + fastrand::f64()));
        }
    }

    fn look(&mut self) -> Result<()> {
        let (mut looks, mut fresh) = (Vec::new(), Vec::new());
        let now = monotonic_ns();
        let between = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let unwound = &mut self.unwound;
        unwound.forget_if_many();
        self.looks.look(|thread| {
            if let Some(stack) = unwound.number_of(&thread, &mut fresh) {
                looks.push(FoundLook {
                    task: thread.task.get(),
                    ts: thread.ts.as_ns(),
                    out: thread.out.as_ns(),
                    stack,
                    between,
                });
            }
        })?;
        for stack in fresh {
            self.tell(&StackNews::Stack(stack))?;
        }
        for not_read in std::mem::take(&mut self.unwound.not_read) {
            self.tell(&StackNews::Refused(not_read))?;
        }
        for some in looks.chunks(MOST_LOOKS) {
            self.tell(&StackNews::Looks(some.to_vec()))?;
        }
        Ok(())
    }

    fn tell(&self, news: &StackNews) -> Result<()> {
        packets::send(&self.socket, news, &[], Blocking::Wait).context("telling the recorder")
    }
}

/// The recorder is gone.
fn is_end(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// The stacks that were met.
#[derive(Debug, Default)]
struct UnwoundStacks {
    codes: ProcessCodes,
    /// When the code of a process was read last, and of which address space.
    read: FxHashMap<Pid, CodeRead>,
    /// The number of a copy that was unwound, by process and by a hash of its registers and bytes: a thread that waits
    /// in the same place again mostly has the same stack.
    copies: FxHashMap<(Pid, u64), u32>,
    numbers: FxHashMap<(Pid, Vec<u64>), u32>,
    /// Processes of which stacks were not read.
    refused: FxHashSet<(Pid, NotRead)>,
    /// Those of them that were not told yet.
    not_read: Vec<NotRead>,
    /// How many stacks were told; the next has this number.
    told: u32,
    /// CPU time that reading maps and files took.
    reading_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct CodeRead {
    memory: u64,
    at: Instant,
}

/// The least time between two readings of a process's map, unless it has executed a program: reading it takes longer
/// than a look. A chain that ends early is the sign of a library that was loaded meanwhile.
const MAP_HOLDS: Duration = Duration::from_secs(1);

impl UnwoundStacks {
    /// The number of the stack of a thread; `None` if it was not read. A stack that was not met before is added to
    /// `fresh`.
    fn number_of(&mut self, thread: &LookedThread<'_>, fresh: &mut Vec<FoundStack>) -> Option<u32> {
        let pid = thread.pid;
        let stack = match thread.stack {
            Ok(stack) => stack,
            Err(refusal) => {
                let refusal = NotRead::from(refusal);
                if self.refused.insert((pid, refusal)) {
                    self.not_read.push(refusal);
                }
                return None;
            }
        };
        let read = self.read.get(&pid).copied();
        let is_same = read.is_some_and(|read| read.memory == thread.memory);
        if !is_same {
            self.read_code(thread)?;
        }
        let key = (pid, hash_of(&stack));
        if let Some(number) = self.copies.get(&key) {
            return Some(*number);
        }
        let mut chain = chain_of(&stack, self.codes.known(pid)?);
        let is_old = read.is_some_and(|read| read.at.elapsed() > MAP_HOLDS);
        if chain.end != ChainEnd::Root && is_same && is_old {
            self.read_code(thread)?;
            chain = chain_of(&stack, self.codes.known(pid)?);
        }
        let number = self.number_of_chain(pid, chain, fresh)?;
        self.copies.insert(key, number);
        Some(number)
    }

    /// Forgets all that was read, if it is of too many processes: most of them have ended.
    fn forget_if_many(&mut self) {
        if self.read.len() > MOST_PROCESSES || self.copies.len() > MOST_COPIES {
            self.codes = ProcessCodes::default();
            self.read.clear();
            self.copies.clear();
            self.numbers.clear();
            self.refused.clear();
        }
    }

    /// Reads what a process maps; what was known of its copies holds no longer if that has changed.
    fn read_code(&mut self, thread: &LookedThread<'_>) -> Option<()> {
        let before = process_cpu_ns();
        let pid = thread.pid;
        let state = self.codes.of(pid).map(|(_, state)| state);
        self.reading_ns += process_cpu_ns().saturating_sub(before);
        if state? == CodeIs::New {
            self.copies.retain(|(of, _), _| *of != pid);
            self.numbers.retain(|(of, _), _| *of != pid);
        }
        let read = CodeRead {
            memory: thread.memory,
            at: Instant::now(),
        };
        self.read.insert(pid, read);
        Some(())
    }

    fn number_of_chain(
        &mut self,
        pid: Pid,
        chain: Chain,
        fresh: &mut Vec<FoundStack>,
    ) -> Option<u32> {
        match self.numbers.entry((pid, chain.addresses)) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(_) if self.told >= MOST_STACKS => None,
            Entry::Vacant(place) => {
                let number = self.told;
                self.told += 1;
                fresh.push(FoundStack {
                    number,
                    pid: pid.get(),
                    addresses: place.key().1.clone(),
                });
                Some(*place.insert(number))
            }
        }
    }
}

fn chain_of(stack: &LookedStack<'_>, code: &ProcessCode) -> Chain {
    let copy = StackCopy {
        start: stack.registers[usize::from(STACK_POINTER)],
        bytes: stack.bytes,
    };
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
    stack.bytes.hash(&mut hasher);
    hasher.finish()
}
