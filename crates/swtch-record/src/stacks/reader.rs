//! The reader's process: looks at threads that wait, unwinds their stacks, and tells the recorder where they wait.
//!
//! What is read of a stack stays here, and only until it is unwound: addresses of functions leave this process.

use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::prctl::set_dumpable;
use rustc_hash::{FxHashMap, FxHasher};
use swtch_capture::{ConfinedWork, LookedStack, LookedThread, Looks, process_cpu_ns};
use swtch_core::Pid;
use swtch_unwind::{ChainEnd, REGISTERS, Registers, STACK_POINTER, StackCopy, chain};

use super::messages::{FoundLook, FoundStack, LookOrders, MOST_FRAMES, MOST_LOOKS, StackNews};
use super::process_code::{CodeIs, ProcessCodes};
use crate::helper::HelperWork;
use crate::packets::{self, Blocking};

/// The least time between two looks: a thread that is looked at more often tells little more.
const LEAST_BETWEEN: Duration = Duration::from_millis(20);

/// The most distinct stacks that are told. More are not: their waits have no place.
const MOST_STACKS: usize = 1 << 20;

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
    };
    reader.run(orders)?;
    Ok(0)
}

struct ReadingProcess {
    socket: OwnedFd,
    looks: Looks,
    unwound: UnwoundStacks,
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
            let used = Duration::from_nanos(process_cpu_ns().saturating_sub(before));
            let between = used * (1000 / orders.cpu_thousandths.max(1));
            sleep(between.max(LEAST_BETWEEN));
        }
    }

    fn look(&mut self) -> Result<()> {
        let (mut looks, mut fresh) = (Vec::new(), Vec::new());
        let unwound = &mut self.unwound;
        self.looks.look(|thread| {
            if let Some(stack) = unwound.number_of(&thread, &mut fresh) {
                looks.push(FoundLook {
                    task: thread.task.get(),
                    ts: thread.ts.as_ns(),
                    out: thread.out.as_ns(),
                    stack,
                });
            }
        })?;
        for stack in fresh {
            self.tell(&StackNews::Stack(stack))?;
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
    /// The number of a copy that was unwound, by process and by a hash of its registers and bytes: a thread that waits
    /// in the same place again mostly has the same stack.
    copies: FxHashMap<(Pid, u64), u32>,
    numbers: FxHashMap<(Pid, Vec<u64>), u32>,
}

impl UnwoundStacks {
    /// The number of the stack of a thread; `None` if it was not read. A stack that was not met before is added to
    /// `fresh`.
    fn number_of(&mut self, thread: &LookedThread<'_>, fresh: &mut Vec<FoundStack>) -> Option<u32> {
        let stack = thread.stack.ok()?;
        let pid = thread.pid;
        let (code, state) = self.codes.of(pid)?;
        if state == CodeIs::New {
            self.copies.retain(|(of, _), _| *of != pid);
        }
        let key = (pid, hash_of(&stack));
        if let Some(number) = self.copies.get(&key) {
            return Some(*number);
        }
        let copy = StackCopy {
            start: stack.registers[usize::from(STACK_POINTER)],
            bytes: stack.bytes,
        };
        let mut values = [None; REGISTERS];
        for (value, register) in values.iter_mut().zip(stack.registers) {
            *value = Some(register);
        }
        let chain = chain(Registers::new(stack.pc, values), copy, code, MOST_FRAMES);
        let next = u32::try_from(self.numbers.len()).ok()?;
        let is_whole = chain.end == ChainEnd::Root;
        let known = self.numbers.entry((pid, chain.addresses));
        let number = match known {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(_) if next as usize >= MOST_STACKS => {
                return None;
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                fresh.push(FoundStack {
                    number: next,
                    pid: pid.get(),
                    addresses: place.key().1.clone(),
                    is_whole,
                });
                *place.insert(next)
            }
        };
        self.copies.insert(key, number);
        Some(number)
    }
}

fn hash_of(stack: &LookedStack<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    stack.pc.hash(&mut hasher);
    stack.registers.hash(&mut hasher);
    stack.bytes.hash(&mut hasher);
    hasher.finish()
}
