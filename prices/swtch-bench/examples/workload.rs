//! Runs one workload and prints, as JSON, what a trace of it must contain.
//!
//! ```text
//! cargo run -p swtch-bench --example workload                    lists the workloads
//! cargo run -p swtch-bench --example workload -- pipe --count 500
//! ```

use std::env;
use std::process::ExitCode;

use swtch_bench::{Workload, WorkloadOutcome, workload_named, workloads};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let played = match words[..] {
        [] => {
            list();
            return ExitCode::SUCCESS;
        }
        [name] => chosen(name).and_then(|workload| play(workload, workload.default_count)),
        [name, "--count", count] => chosen(name).and_then(|workload| {
            play(
                workload,
                count.parse().map_err(|_| format!("{count} is no count"))?,
            )
        }),
        _ => Err("usage: workload [NAME [--count N]]".to_owned()),
    };
    match played {
        Ok(outcome) => {
            println!(
                "{}",
                serde_json::to_string_pretty(&outcome).expect("invariant: plain data")
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn list() {
    for Workload {
        name,
        about,
        default_count,
        count_is,
        ..
    } in workloads()
    {
        println!("{name:<18} {about} ({default_count} {count_is})");
    }
}

fn chosen(name: &str) -> Result<&'static Workload, String> {
    workload_named(name)
        .ok_or_else(|| format!("no workload {name}; without a name they are listed"))
}

fn play(workload: &Workload, count: u64) -> Result<WorkloadOutcome, String> {
    workload.run(count).map_err(|error| {
        let advice = error.advice().map(|advice| format!("; {advice}"));
        format!("{error}{}", advice.unwrap_or_default())
    })
}
