//! Fuzzing: damaged input of every kind that swtch reads, given to the functions that read it.
//!
//! ```text
//! supervisor (the test)                     worker (a process of its own)
//!   start a worker ────────────────────────▶ draw input N from the seed ─▶ run it ─▶ N + 1
//!   look at its progress, CPU time, memory ◀─ progress file ┘                 │
//!   a hang, a death, no memory: keep the input, start another worker         └▶ panic: keep input
//! ```
//!
//! - [`mutate`] damages bytes and text. Each target knows in addition how to damage its own format
//!   without making it unreadable at once (by correct checksums and complete records).
//! - [`supervise`] watches a worker, because a hang or exhausted memory cannot be caught inside the
//!   process. [`worker`] runs the inputs.
//! - Every test here is one target. In `cargo test` it runs for a few seconds from a fixed seed.
//!   `make fuzz` runs the same tests for longer (`CONTRIBUTING.md`).
//! - Files in `crates/swtch/fuzz/TARGET/` are inputs that once failed. Each run begins with them.
//!
//! This is a module of tests and not a crate of its own, because some of what it calls (the server
//! of `swtch view`, the page to send) is private to the program `swtch`.
//!
//! libFuzzer (`cargo fuzz`) needs a nightly compiler, which this project does not require. Unlike
//! libFuzzer, this module gets no feedback from coverage. Instead, inputs are drawn from a corpus
//! that reaches every table and format, by mutators that know the formats.

mod archive;
mod http;
mod load_file;
mod memories;
mod mutate;
mod perf_data;
mod price_list;
mod records;
mod stacks;
mod supervise;
mod trace;
mod worker;

use std::path::{Path, PathBuf};

use supervise::supervise;

/// Code under test, with the inputs that suit it.
trait FuzzSubject {
    /// Draws one input: damaged data in the format of this subject.
    fn draw(&mut self, random: &mut fastrand::Rng) -> Vec<u8>;

    /// Gives an input to the code under test. Returning an error is correct; a panic is a fault.
    fn run(&mut self, input: &[u8]);
}

/// The kinds of input, each with a test of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FuzzTarget {
    Stream,
    Records,
    Parquet,
    PerfData,
    LoadFile,
    PriceList,
    Http,
    Stacks,
    Memories,
}

impl FuzzTarget {
    /// The name of the test, and of the directory of saved inputs.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Records => "records",
            Self::Parquet => "parquet",
            Self::PerfData => "perf_data",
            Self::LoadFile => "load_file",
            Self::PriceList => "price_list",
            Self::Http => "http",
            Self::Stacks => "stacks",
            Self::Memories => "memories",
        }
    }

    /// Prepares the code under test; its files go into `directory`.
    fn subject(self, directory: &Path) -> Box<dyn FuzzSubject> {
        match self {
            Self::Stream => Box::new(trace::Traces::recorded(directory)),
            Self::Records => Box::new(records::Recordings::new(directory)),
            Self::Parquet => Box::new(trace::Traces::finished(directory)),
            Self::PerfData => Box::new(perf_data::PerfFiles::new(directory)),
            Self::LoadFile => Box::new(load_file::LoadFiles::new(directory)),
            Self::PriceList => Box::new(price_list::PriceLists::new(directory)),
            Self::Http => Box::new(http::HttpSubject::new(directory)),
            Self::Stacks => Box::new(stacks::ReadStacks::new(directory)),
            Self::Memories => Box::new(memories::Memories),
        }
    }

    /// The directory of inputs that once failed: `crates/swtch/fuzz/TARGET`.
    fn saved_inputs(self) -> PathBuf {
        let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        crate_directory.join("fuzz").join(self.as_str())
    }
}

/// A trace of an unfinished import, with damaged streams and checksums that usually match the
/// damaged bytes.
#[test]
fn stream() {
    supervise(FuzzTarget::Stream);
}

/// A recording that was cut off, with damaged records and checksums that usually match the damaged
/// bytes.
#[test]
fn records() {
    supervise(FuzzTarget::Records);
}

/// A finished trace, with damaged Parquet files and checksums that usually match the damaged bytes.
#[test]
fn parquet() {
    supervise(FuzzTarget::Parquet);
}

/// Files of perf, as `swtch import` reads them.
#[test]
fn perf_data() {
    supervise(FuzzTarget::PerfData);
}

/// Files that describe loads, as `swtch lab run` reads them.
#[test]
fn load_file() {
    supervise(FuzzTarget::LoadFile);
}

/// Price lists, as `--prices` and `cost --compare` read them.
#[test]
fn price_list() {
    supervise(FuzzTarget::PriceList);
}

/// Requests to the viewer's server, as bytes on its sockets.
#[test]
fn http() {
    supervise(FuzzTarget::Http);
}

/// Files with code and stacks of other processes, as the reader of stacks meets them.
#[test]
fn stacks() {
    supervise(FuzzTarget::Stacks);
}

/// Memories of processes that say that they run Python, Go or Java.
#[test]
fn memories() {
    supervise(FuzzTarget::Memories);
}
