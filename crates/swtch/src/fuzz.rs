//! Fuzzing: damaged input of every kind that swtch reads, given to the functions that read it.
//!
//! ```text
//! supervisor (the test)                     worker (a process of its own)
//!   start a worker ────────────────────────▶ draw input N from the seed ─▶ run it ─▶ N + 1
//!   look at its progress, CPU time, memory ◀─ progress file ┘                 │
//!   a hang, a death, no memory: keep the input, start another worker         └▶ a panic: keep the input
//! ```
//!
//! - [`mutate`] damages bytes and text; each target knows in addition how to damage its own format without
//!   making it unreadable at once (checksums that are right again, records that are whole).
//! - [`supervise`] watches a worker, because a hang and an exhausted memory cannot be caught in the process.
//!   [`worker`] runs the inputs.
//! - Every test here is one target. In `cargo test` it runs for a few seconds from a fixed seed. `make fuzz`
//!   runs the same tests for longer (`CONTRIBUTING.md`).
//! - Files in `crates/swtch/fuzz/TARGET/` are inputs that once failed. Each run begins with them.
//!
//! This is a module of tests and not a crate of its own, because what it calls is private to this program.
//! libFuzzer (`cargo fuzz`) needs a nightly compiler, which this project does not ask for. What is missing here
//! in comparison is feedback from coverage: inputs are drawn from a corpus that reaches every table and
//! format, and by mutators that know the formats.

mod archive;
mod http;
mod load_file;
mod mutate;
mod perf_data;
mod price_list;
mod supervise;
mod trace;
mod worker;

use std::path::{Path, PathBuf};

use supervise::supervise;

/// What reads a kind of input.
trait Subject {
    /// Draws an input.
    fn draw(&mut self, random: &mut fastrand::Rng) -> Vec<u8>;

    /// Gives an input to the code under test. An error is an answer; a panic is a fault.
    fn run(&mut self, input: &[u8]);
}

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Stream,
    Parquet,
    PerfData,
    LoadFile,
    PriceList,
    Http,
}

impl Target {
    /// Its word, which names the test and the directory of saved inputs.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Parquet => "parquet",
            Self::PerfData => "perf_data",
            Self::LoadFile => "load_file",
            Self::PriceList => "price_list",
            Self::Http => "http",
        }
    }

    /// Makes the code under test ready; its files go into `directory`.
    fn subject(self, directory: &Path) -> Box<dyn Subject> {
        match self {
            Self::Stream => Box::new(trace::Traces::recorded(directory)),
            Self::Parquet => Box::new(trace::Traces::finished(directory)),
            Self::PerfData => Box::new(perf_data::PerfFiles::new(directory)),
            Self::LoadFile => Box::new(load_file::LoadFiles::new(directory)),
            Self::PriceList => Box::new(price_list::PriceLists::new(directory)),
            Self::Http => Box::new(http::Requests::new(directory)),
        }
    }

    /// Where inputs are kept that once failed.
    fn saved_inputs(self) -> PathBuf {
        let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        crate_directory.join("fuzz").join(self.as_str())
    }
}

/// A trace of an unfinished recording: its streams damaged, its checksums mostly right again.
#[test]
fn stream() {
    supervise(Target::Stream);
}

/// A finished trace: its Parquet files damaged, its checksums mostly right again.
#[test]
fn parquet() {
    supervise(Target::Parquet);
}

/// What `swtch import` reads.
#[test]
fn perf_data() {
    supervise(Target::PerfData);
}

/// What `swtch lab run` reads.
#[test]
fn load_file() {
    supervise(Target::LoadFile);
}

/// What `--prices` and `cost --compare` read.
#[test]
fn price_list() {
    supervise(Target::PriceList);
}

/// What the viewer's server reads from its sockets.
#[test]
fn http() {
    supervise(Target::Http);
}
