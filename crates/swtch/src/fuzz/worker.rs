//! Runs inputs one after the other, in a process that may hang or die without harm.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashSet;

use super::{FuzzSubject, FuzzTarget};

/// Limit of a worker's address space, in bytes: what a single input may use.
pub const MOST_MEMORY: u64 = 3 << 30;

/// A worker ends after this many inputs, and another takes over: libraries keep some memory for
/// each call (a signal handler), which must not add up over an hour.
const MOST_INPUTS: u64 = 20_000;

/// Environment variables that pass a [`FuzzJob`] to the worker.
const DIRECTORY: &str = "SWTCH_FUZZ_WORKER";
const FOUND: &str = "SWTCH_FUZZ_FOUND";
const FIRST: &str = "SWTCH_FUZZ_FIRST";
const LEFT_MS: &str = "SWTCH_FUZZ_LEFT_MS";
const WORKER_SEED: &str = "SWTCH_FUZZ_WORKER_SEED";
const ONLY: &str = "SWTCH_FUZZ_ONLY";

/// A worker's orders, passed to it in environment variables.
#[derive(Clone, Debug)]
pub struct FuzzJob {
    /// The scratch directory, shared with the supervisor.
    pub directory: PathBuf,
    /// The directory for inputs that fail.
    pub found: PathBuf,
    /// The seed: an input follows from it and from the input's number.
    pub seed: u64,
    /// Number of the first input.
    pub first: u64,
    /// Time after which no further input is begun.
    pub length: Duration,
    /// A file to run as the only input, instead of drawn ones.
    pub input: Option<PathBuf>,
}

impl FuzzJob {
    /// The job of this process; `None` if it is not a worker.
    pub fn from_environment() -> Option<Self> {
        let directory = env::var_os(DIRECTORY)?.into();
        let text = |name| env::var(name).expect("the supervisor sets it");
        let number = |name| text(name).parse().expect("the supervisor writes a number");
        Some(Self {
            directory,
            found: text(FOUND).into(),
            seed: number(WORKER_SEED),
            first: number(FIRST),
            length: Duration::from_millis(number(LEFT_MS)),
            input: env::var_os(ONLY).map(PathBuf::from),
        })
    }

    /// Sets the environment variables of the job for a process that is about to start.
    pub fn to_environment(&self, command: &mut Command) {
        let left_ms = self.length.as_millis().to_string();
        let pairs: [(&str, OsString); 5] = [
            (DIRECTORY, self.directory.clone().into()),
            (FOUND, self.found.clone().into()),
            (FIRST, self.first.to_string().into()),
            (LEFT_MS, left_ms.into()),
            (WORKER_SEED, self.seed.to_string().into()),
        ];
        command.envs(pairs);
        if let Some(input) = &self.input {
            command.env(ONLY, input);
        }
    }

    /// Saves an input and returns the file's path.
    ///
    /// # Panics
    /// When it cannot be written, since the finding would be lost.
    pub fn keep(&self, word: &str, number: u64, input: &[u8]) -> PathBuf {
        fs::create_dir_all(&self.found).expect("the directory of found inputs can be made");
        let file = self.found.join(format!("{word}-{}-{number}", self.seed));
        fs::write(&file, input).expect("a found input can be written");
        file
    }
}

/// The progress of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Number of the input that is running, or will run next.
    pub next: u64,
    /// The number of inputs that this worker has run.
    pub executions: u64,
    /// The longest CPU time of an input.
    pub slowest_us: u64,
}

impl Progress {
    /// Reads the worker's progress file; zeros where it is missing or too short.
    pub fn read(directory: &Path) -> Self {
        let bytes = fs::read(directory.join("progress")).unwrap_or_default();
        let number = |at: usize| {
            let bytes = bytes.get(8 * at..8 * at + 8);
            bytes.map_or(0, |bytes| {
                u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
            })
        };
        Self {
            next: number(0),
            executions: number(1),
            slowest_us: number(2),
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.next, self.executions, self.slowest_us];
        numbers.map(u64::to_le_bytes).concat()
    }

    /// Writes the progress file.
    ///
    /// # Panics
    /// When the scratch file cannot be written.
    pub fn write(self, directory: &Path) {
        fs::write(directory.join("progress"), self.to_bytes()).expect("a scratch file");
    }
}

/// Runs inputs until the time is up.
///
/// # Panics
/// When the scratch files cannot be written.
pub fn run(target: FuzzTarget, job: &FuzzJob) {
    let panics = listen_for_panics();
    let mut subject = target.subject(&job.directory);
    // After the corpus is made, which may start a thread of its own.
    setrlimit(Resource::RLIMIT_AS, MOST_MEMORY, MOST_MEMORY).expect("a limit can be lowered");
    let mut runner = InputRunner::new(job, panics);
    if let Some(input) = &job.input {
        let input = fs::read(input).expect("the named input can be read");
        runner.run(&mut *subject, job.first, &input);
        return;
    }
    let saved = saved_inputs(target);
    let began = Instant::now();
    for number in job.first..job.first + MOST_INPUTS {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        match saved.get(at) {
            Some(input) => runner.run(&mut *subject, number, input),
            None if began.elapsed() >= job.length => break,
            None => {
                // Neighbouring numbers must not lead to similar random states.
                let seed = job.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
                let input = subject.draw(&mut fastrand::Rng::with_seed(seed));
                runner.run(&mut *subject, number, &input);
            }
        }
    }
}

/// Inputs that once failed, ordered by file name.
fn saved_inputs(target: FuzzTarget) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(target.saved_inputs()) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = paths.iter().map(fs::read);
    read.map(|input| input.expect("a saved input can be read"))
        .collect()
}

/// Places of panics since they were last read.
type Panics = Arc<Mutex<Vec<String>>>;

/// Records where panics happen, on every thread. Panics that the code under test contains by itself
/// are silenced by a hook of its own, which does not call this one.
fn listen_for_panics() -> Panics {
    let panics = Panics::default();
    let places = Arc::clone(&panics);
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or_else(String::new, |location| {
            format!("{}:{}", location.file(), location.line())
        });
        let mut places = places
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        places.push(place);
    }));
    panics
}

struct InputRunner<'a> {
    job: &'a FuzzJob,
    panics: Panics,
    /// Places of which an input was saved; further panics there are only counted.
    known: FxHashSet<String>,
    progress: Progress,
    file: File,
}

impl<'a> InputRunner<'a> {
    fn new(job: &'a FuzzJob, panics: Panics) -> Self {
        let file = OpenOptions::new()
            .write(true)
            .open(job.directory.join("progress"));
        Self {
            job,
            panics,
            known: FxHashSet::default(),
            progress: Progress::default(),
            file: file.expect("the supervisor made it"),
        }
    }

    fn run(&mut self, subject: &mut dyn FuzzSubject, number: u64, input: &[u8]) {
        fs::write(self.job.directory.join("input"), input).expect("a scratch file");
        self.progress.next = number;
        self.tell();
        let began = cpu_time();
        // The hook has recorded a panic. State that a panic left half done does not matter: it is
        // made anew for each input.
        drop(panic::catch_unwind(AssertUnwindSafe(|| subject.run(input))));
        let took = cpu_time().saturating_sub(began);
        self.note_panics(number, input);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.progress.slowest_us = self.progress.slowest_us.max(took_us);
        self.progress.executions += 1;
        self.progress.next = number + 1;
        self.tell();
    }

    fn tell(&self) {
        let written = self.file.write_all_at(&self.progress.to_bytes(), 0);
        written.expect("a scratch file");
    }

    fn note_panics(&mut self, number: u64, input: &[u8]) {
        let panics = self.panics.lock();
        let places = std::mem::take(&mut *panics.unwrap_or_else(|poisoned| poisoned.into_inner()));
        if places.is_empty() {
            return;
        }
        let list = self.job.directory.join("panics");
        let mut list = OpenOptions::new()
            .append(true)
            .create(true)
            .open(list)
            .expect("a scratch file");
        for place in places {
            let file = match self.known.insert(place.clone()) {
                true => self.job.keep("panic", number, input),
                false => PathBuf::new(),
            };
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(list, "{name}\t{place}").expect("a scratch file");
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(time)
}
