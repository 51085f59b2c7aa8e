//! A server of fibers that publishes its requests, for recording with `--span otel`: on two schedulers, four fibers serve
//! requests for three seconds.
//!
//! Each request waits in the kernel, lets other fibers run, and spawns a part of itself, which may run on the other thread.
//! Of each stretch of a thread's time in which a request was served, up to the next switch between fibers, it prints
//! thread, begin, end (ns, `CLOCK_MONOTONIC`) and id.
#![allow(clippy::print_stdout, reason = "the answer of a program")]

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;
use swtch_fiber::{Request, Runtime, sleep, spawn};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().schedulers(2).build()?;
    let end = Instant::now() + Duration::from_secs(3);
    runtime.run(move || {
        let servers: Vec<_> = (1..=4)
            .map(|server| spawn(move || serve(server, end)))
            .collect();
        for server in servers {
            server
                .map(|server| server.join())
                .expect("inside of a runtime")
                .expect("no panic");
        }
    })?;
    Ok(())
}

fn serve(server: u64, end: Instant) {
    for number in 1.. {
        if Instant::now() > end {
            return;
        }
        let id = (server << 32) | number;
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&id.to_be_bytes());
        Request::new(trace_id, id.to_be_bytes()).serve(|| {
            wait_in_the_kernel(id);
            let part = spawn(move || wait_in_the_kernel(id)).expect("inside of a runtime");
            sleep(Duration::from_millis(2));
            wait_in_the_kernel(id);
            part.join().expect("no panic");
        });
        sleep(Duration::from_millis(1));
    }
}

/// Blocks the thread, with all of its fibers.
fn wait_in_the_kernel(id: u64) {
    let begin = now_ns();
    thread::sleep(Duration::from_millis(1));
    println!("{} {begin} {} {id:016x}{:016x}", gettid(), now_ns(), 0);
}

fn now_ns() -> i128 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec())
}
