//! Two tasks on one CPU pass a token to and fro. Neither can continue before the other has passed
//! it, so each blocks once per round.
//!
//! ```text
//! pinger  ─pass─┐ blocked  ┌─pass─┐ blocked
//! CPU           │ ponger   │      │
//! ponger        └take─pass─take   └take ──▶ …
//! ```
//!
//! Batch tasks do not preempt when woken, so the one that passes continues until it blocks. A block
//! is spared only if a bystander takes the CPU between pass and take and the peer runs first; the
//! kernel counts that as an involuntary switch of one of the two.

use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::futex::PrivateScope;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::token::{
    Condition, EpolledPipe, EventFd, FutexToken, MessageQueue, Pipe, PolledPipe, SemaphoreToken,
    SysvSemaphore, Tcp, Token, UnixSocket,
};
use crate::workers::{WorkerResult, start, start_process};

macro_rules! ping_pong {
    ($($constant:ident = $name:literal, $token:expr, $run:ident, $reason:ident: $about:literal;)+) => {
        $(pub(super) const $constant: Workload = Workload {
            name: $name,
            about: $about,
            needs: Needs::Nothing,
            default_count: 2000,
            count_is: "rounds",
            run: |rounds| $run(&$token, &$token, rounds, Reason::$reason),
        };)+
    };
}

ping_pong! {
    FUTEX = "futex", FutexToken::<PrivateScope>::default(), threads, Futex:
        "two threads hand a futex word to and fro";
    CONDVAR = "condvar", Condition::new()?, threads, Futex:
        "two threads hand over by condition variables (futexes inside)";
    SEMAPHORE = "semaphore", SemaphoreToken::new()?, threads, Futex:
        "two threads hand over by POSIX semaphores (futexes inside)";
    SYSV_SEMAPHORE = "sysv-semaphore", SysvSemaphore::new()?, threads, Ipc:
        "two threads hand over by System V semaphores";
    MESSAGE_QUEUE = "message-queue", MessageQueue::new()?, threads, Ipc:
        "two threads hand over by POSIX message queues";
    EVENTFD = "eventfd", EventFd::new()?, threads, Ipc:
        "two threads hand over by eventfds";
    PIPE_THREADS = "pipe", Pipe::new()?, threads, Pipe:
        "two threads pass a byte through pipes";
    PIPE_PROCESSES = "pipe-processes", Pipe::new()?, processes, Pipe:
        "two processes pass a byte through pipes";
    UNIX_SOCKET = "unix-socket", UnixSocket::new()?, threads, Net:
        "two threads pass a byte through Unix sockets";
    TCP = "tcp", Tcp::new()?, threads, Net:
        "two threads pass a byte over TCP on the loopback device";
    EPOLL = "epoll", EpolledPipe::new()?, threads, Poll:
        "two threads pass a byte through pipes that they wait for in epoll";
    POLL = "poll", PolledPipe::new()?, threads, Poll:
        "two threads pass a byte through pipes that they poll";
}

fn threads(
    ping: &impl Token,
    pong: &impl Token,
    rounds: u64,
    reason: Reason,
) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let pinger = start(scope, "pinger", || serve(ping, pong, rounds))?;
        let ponger = start(scope, "ponger", || answer(ping, pong, rounds))?;
        Ok(outcome(pinger.finish()?, ponger.finish()?, rounds, reason))
    })
}

fn processes(
    ping: &impl Token,
    pong: &impl Token,
    rounds: u64,
    reason: Reason,
) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let pinger = start_process("pinger", || serve(ping, pong, rounds).map(|()| []))?;
    let ponger = start_process("ponger", || answer(ping, pong, rounds).map(|()| []))?;
    Ok(outcome(pinger.finish()?, ponger.finish()?, rounds, reason))
}

/// Passes the token first in each round.
pub(super) fn serve(ping: &impl Token, pong: &impl Token, rounds: u64) -> Result<(), Error> {
    for _ in 0..rounds {
        ping.pass()?;
        pong.take()?;
    }
    Ok(())
}

/// Takes the token first in each round.
pub(super) fn answer(ping: &impl Token, pong: &impl Token, rounds: u64) -> Result<(), Error> {
    for _ in 0..rounds {
        ping.take()?;
        pong.pass()?;
    }
    Ok(())
}

fn outcome<T>(
    pinger: WorkerResult<T>,
    ponger: WorkerResult<T>,
    rounds: u64,
    reason: Reason,
) -> WorkloadOutcome {
    let spared = pinger.counted.involuntary + ponger.counted.involuntary;
    let because = "one block a round, less those that a preemption of either of the two spares";
    let blocks = |first| vec![Expect::blocks(reason, rounds, spared + first, because)];
    // The ponger finds the first token present if the pinger ran first.
    WorkloadOutcome {
        threads: vec![pinger.expecting(blocks(0)), ponger.expecting(blocks(1))],
    }
}
