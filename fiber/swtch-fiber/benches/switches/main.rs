//! `cargo bench -p swtch-fiber`: switches of our scheduler and of its peers, in one run.
//!
//! ```text
//! arms      what is compared with what
//! build     builds the peers, or says why not
//! child     an arm is a process that speaks the protocol of `peers/src/protocol.rs`
//! measure   rounds: each arm once, in rotating order, on one CPU
//! report    medians, ratios within rounds with their interval; a table, JSON
//! ours      the arms of this crate: this program again, as `--arm NAME`
//! ```
//!
//! What it does *not* do: judge. `--help` lists the options.

mod arms;
mod build;
mod child;
mod measure;
mod ours;
#[path = "../peers/src/protocol.rs"]
mod protocol;
mod report;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use build::PeerPrograms;
use measure::MeasurementPlan;
use report::BenchHost;

const HELP: &str = "cargo bench -p swtch-fiber -- [OPTIONS]

  --quick          3 starts of 1 round, blocks of 5 ms: whether it works, not how fast
  --only WORDS     arms or groups, by commas: yield, yield-1000, hand-off, spawn,
                   spawn-64, mutex, primitive
  --json FILE      also write all figures there
  --cpu N          bind all arms to this CPU (else the last one that may be used)
  --starts N       how often all arms are started anew (9)
  --rounds N       rounds between two starts (2)
  --block-ms N     length of a block (20)
  --no-build       take peers as they were built before";

/// The options from the command line.
#[derive(Debug)]
struct Options {
    plan: MeasurementPlan,
    only: Vec<String>,
    json: Option<PathBuf>,
    cpu: Option<usize>,
    build: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        // `cargo test --all-targets` runs benchmarks without arguments, for them to test
        // themselves.
        None => return ExitCode::SUCCESS,
        Some("--arm") => {
            let served = ours::serve(words.get(1).map_or("", String::as_str));
            served
                .inspect_err(|error| println!("no {error}"))
                .map_err(Into::into)
        }
        Some(_) if words.iter().any(|word| word == "--help") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(_) => parse(words).and_then(|options| compare(&options)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: Vec<String>) -> Result<Options, Box<dyn Error>> {
    let quick = words.iter().any(|word| word == "--quick");
    let mut options = Options {
        plan: if quick {
            MeasurementPlan::QUICK
        } else {
            MeasurementPlan::FULL
        },
        only: Vec::new(),
        json: None,
        cpu: None,
        build: true,
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--bench" | "--quick" => {} // the first is cargo's own
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--json" => options.json = Some(value()?.into()),
            "--cpu" => options.cpu = Some(value()?.parse()?),
            "--starts" => options.plan.starts = at_least_one(&value()?)?,
            "--rounds" => options.plan.rounds = at_least_one(&value()?)?,
            "--block-ms" => options.plan.block_ns = at_least_one(&value()?)? as f64 * 1e6,
            "--no-build" => options.build = false,
            _ => return Err(format!("no option {word:?}; --help lists them").into()),
        }
    }
    Ok(options)
}

fn at_least_one(word: &str) -> Result<usize, String> {
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{word:?} is no number above 0"))
}

fn compare(options: &Options) -> Result<(), Box<dyn Error>> {
    let wanted = measure::chosen(&options.only)?;
    eprintln!("building peers");
    let programs = PeerPrograms::find(options.build)?;
    let host = BenchHost {
        model: line_of("/proc/cpuinfo", "model name"),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned(),
        cpu: bind(options.cpu)?,
    };
    let records = measure::measure(&wanted, &programs, options.plan);
    print!("{}", report::table(&records, &host, options.plan));
    if let Some(path) = &options.json {
        fs::write(path, report::json(&records, &host, options.plan))?;
    }
    Ok(())
}

/// The text after `key` and a colon in `file`.
fn line_of(file: &str, key: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or("processor not known".to_owned(), |(_, value)| {
        value.trim().to_owned()
    })
}

/// Binds this process, and so all arms that it starts, to one CPU: the wanted one, or the last that
/// it may use.
fn bind(wanted: Option<usize>) -> std::io::Result<usize> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of CPUs is plain bits, for which zeros are good values.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live set of the size that is given.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut set) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the set is live, and the number below its size.
    let allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let last = (0..size * 8).rev().find(allowed).unwrap_or(0);
    let cpu = wanted.unwrap_or(last);
    if !(0..=last).contains(&cpu) || !allowed(&cpu) {
        return Err(std::io::Error::other(format!(
            "CPU {cpu} may not be used here"
        )));
    }
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is live, and the number below its size.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: the pointer is to a live set of the size that is given.
    if unsafe { libc::sched_setaffinity(0, size, &raw const one) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(cpu)
}
