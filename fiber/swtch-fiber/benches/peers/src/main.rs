//! Peers of `swtch-fiber`: each arm is this program with the name of the arm as its argument.
//!
//! An arm does the smallest operation that its scheduler calls by that name, and counts it from
//! inside its tasks. What it does *not* do: decide how many operations make a block, or compare.
//! The benchmark does that (`benches/switches/`), and controls it by `protocol`.

mod coroutines;
#[cfg(feature = "glommio")]
mod glommio;
mod kernel;
mod may;
mod primitives;
mod protocol;
mod tokio;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(arm) = std::env::args().nth(1) else {
        eprintln!("which arm?");
        return ExitCode::from(2);
    };
    match serve(&arm) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("no {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves `arm` until stdin ends.
fn serve(arm: &str) -> io::Result<()> {
    match arm {
        "bare-corosensei" => coroutines::bare(),
        "bare-corosensei-in-situ" => coroutines::in_situ(),
        "corosensei-ring" => coroutines::ring(),
        "corosensei-ring-in-situ" => coroutines::ring_in_situ(),
        "may" => may::yields(),
        "may-in-situ" => may::yields_in_situ(),
        "may-1000" => may::yields_of_1000(),
        "may-spawn" => may::spawns(1),
        "may-spawn-64" => may::spawns(64),
        "may-mutex" => may::mutex(),
        "tokio-current" => tokio::yields(&tokio::current_thread()?, 2),
        "tokio-multi1" => tokio::yields(&tokio::one_worker()?, 2),
        "tokio-current-1000" => tokio::yields(&tokio::current_thread()?, 1000),
        "tokio-spawn" => tokio::spawns(&tokio::current_thread()?, 1),
        "tokio-spawn-64" => tokio::spawns(&tokio::current_thread()?, 64),
        "tokio-mutex" => tokio::mutex(&tokio::current_thread()?),
        #[cfg(feature = "glommio")]
        "glommio" => glommio::yields(),
        "sched_yield-alone" => kernel::yields_alone(),
        "sched_yield-pair" => kernel::yields_pair(),
        "futex-pair" => kernel::futex_pair(),
        "thread-spawn" => kernel::spawns(),
        "std-mutex" => kernel::mutex(),
        _ => primitives::serve(arm),
    }
}
