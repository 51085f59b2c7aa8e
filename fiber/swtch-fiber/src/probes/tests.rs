use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use swtch_observe::layout::SchedulerRecord;

use super::Arguments;
use crate::arch::PROBE;
use crate::scheduler::worker::{self, WorkerCell};
use crate::{Runtime, spawn, yield_now};

/// The contents of a probe's note.
#[derive(Debug)]
struct Note {
    name: String,
    places: String,
    address: usize,
    semaphore: usize,
}

/// Eight bytes at offset `at`, little endian.
fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Two or four bytes at offset `at`, little endian.
fn small(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len]
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Range of a section in an ELF file, found by its name.
fn section(elf: &[u8], wanted: &str) -> std::ops::Range<usize> {
    let headers = word(elf, 0x28);
    let (size, count, names) = (
        small(elf, 0x3a, 2),
        small(elf, 0x3c, 2),
        small(elf, 0x3e, 2),
    );
    let range = |index: usize| {
        let start = word(elf, headers + index * size + 0x18);
        start..start + word(elf, headers + index * size + 0x20)
    };
    let names = &elf[range(names)];
    (0..count)
        .find(|index| {
            let name = &names[small(elf, headers + index * size, 4)..];
            name.starts_with(wanted.as_bytes()) && name[wanted.len()] == 0
        })
        .map(range)
        .unwrap()
}

/// The offset in the file of an address, by the program headers.
fn offset_in_file(elf: &[u8], address: usize) -> usize {
    let headers = word(elf, 0x20);
    (0..small(elf, 0x38, 2))
        .map(|index| headers + index * small(elf, 0x36, 2))
        .filter(|at| small(elf, *at, 4) == 1)
        .find_map(|at| {
            let inside = address.checked_sub(word(elf, at + 0x10))?;
            (inside < word(elf, at + 0x20)).then(|| word(elf, at + 8) + inside)
        })
        .unwrap()
}

/// All notes of the provider `swtch` in this test's own program.
fn notes(elf: &[u8]) -> Vec<Note> {
    let mut left = &elf[section(elf, ".note.stapsdt")];
    let mut notes = Vec::new();
    while left.len() > 20 {
        let length = small(left, 4, 4);
        let body = &left[20..20 + length];
        let mut words = body[24..]
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8(text.to_vec()).unwrap());
        assert_eq!(words.next().unwrap(), "swtch");
        notes.push(Note {
            name: words.next().unwrap(),
            places: words.next().unwrap(),
            address: word(body, 0),
            semaphore: word(body, 16),
        });
        left = &left[20 + length.next_multiple_of(4)..];
    }
    notes
}

/// The ELF file of the running program.
fn own_elf() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

/// Uses each probe, so that all of them are in this program.
fn hit_all(arguments: impl Fn() -> Arguments) {
    super::switch(&arguments);
    super::yield_(&arguments);
    super::wait_begin(&arguments);
    super::wait_end(&arguments);
    super::preempt_begin(&arguments);
    super::preempt_end(&arguments);
    super::task_start(&arguments);
    super::task_done(&arguments);
    super::stall(&arguments);
    super::idle(&arguments);
}

/// Tools see only the notes: a probe whose name is missing there cannot be used.
#[test]
fn each_probe_has_a_note_with_its_arguments() {
    if std::hint::black_box(false) {
        hit_all(Arguments::default);
    }
    let elf = own_elf();
    let notes = notes(&elf);
    let mut names: Vec<_> = notes.iter().map(|note| note.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "idle",
            "preempt_begin",
            "preempt_end",
            "stall",
            "switch",
            "task_done",
            "task_start",
            "wait_begin",
            "wait_end",
            "yield",
        ]
    );
    let probes = section(&elf, ".probes");
    for note in &notes {
        assert_eq!(note.places.split(' ').count(), 5, "{note:?}");
        let place = offset_in_file(&elf, note.address);
        assert_eq!(elf[place..place + PROBE.len()], *PROBE);
        let semaphore = offset_in_file(&elf, note.semaphore);
        assert!(probes.contains(&semaphore), "{note:?}");
    }
}

/// Without a listener a probe costs only its test; computing the arguments would cost more.
#[test]
fn nobody_listening_no_arguments_are_made() {
    let made = Cell::new(0);
    // These probes are not used by the test with a listener.
    for probe in [super::yield_, super::idle, super::stall] as [fn(_); 3] {
        probe(|| {
            made.set(made.get() + 1);
            Arguments::default()
        });
    }
    assert_eq!(made.get(), 0);
}

/// Counts, in the kernel, the hits of one probe by the thread that creates this.
struct Listener(File);

impl Listener {
    /// Asks the kernel to count hits, and to raise the semaphore meanwhile, as `bpftrace` does. The
    /// layout is that of `struct perf_event_attr`, `include/uapi/linux/perf_event.h`.
    fn new(program: &Path, place: usize, semaphore: usize) -> Self {
        let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").unwrap();
        let path = std::ffi::CString::new(program.as_os_str().as_encoded_bytes()).unwrap();
        let mut attributes = [0_u64; 16];
        attributes[0] = kind.trim().parse::<u64>().unwrap() | 128 << 32;
        // The offset of the semaphore goes into the upper half (`format/ref_ctr_offset`).
        attributes[1] = (semaphore as u64) << 32;
        attributes[7] = path.as_ptr().addr() as u64;
        attributes[8] = place as u64;
        // SAFETY: the attributes are as long as they say, and the path outlives the call.
        let fd =
            unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made and has no other owner.
        Self(unsafe { File::from_raw_fd(i32::try_from(fd).unwrap()) })
    }

    /// Listens to the probe with this name.
    fn of(elf: &[u8], name: &str) -> Self {
        let notes = notes(elf);
        let note = notes.iter().find(|note| note.name == name).unwrap();
        let place = offset_in_file(elf, note.address);
        let semaphore = offset_in_file(elf, note.semaphore);
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        Self::new(&program, place, semaphore)
    }

    fn hits(&mut self) -> u64 {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).unwrap();
        u64::from_le_bytes(count)
    }
}

/// The kernel is the listener: it counts each hit while it listens, and none afterwards.
#[test]
#[ignore = "needs root"]
fn root_a_listener_counts_every_hit() {
    let elf = own_elf();
    let made = Cell::new(0_u64);
    let run = || {
        for _ in 0..10_000 {
            super::preempt_end(|| {
                made.set(made.get() + 1);
                Arguments::default()
            });
        }
    };
    let mut listener = Listener::of(&elf, "preempt_end");
    run();
    assert_eq!(listener.hits(), 10_000);
    assert_eq!(made.get(), 10_000);
    drop(listener);
    run();
    assert_eq!(made.get(), 10_000);
}

/// The scheduler's own counters and the kernel's count of hits must agree.
#[test]
#[ignore = "needs root"]
fn root_hits_are_what_the_scheduler_counts() {
    let elf = own_elf();
    let runtime = Runtime::builder().schedulers(1).build().unwrap();
    let body = move || {
        let probes = [
            "switch",
            "yield",
            "wait_begin",
            "wait_end",
            "task_start",
            "task_done",
        ];
        let mut listeners = probes.map(|name| Listener::of(&elf, name));
        let record = record_of_this_scheduler();
        let counts = || {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            [
                of(&record.context_switches_count),
                of(&record.yield_count),
                of(&record.tasks_completed_count),
            ]
        };
        let before = counts();
        let other = spawn(|| (0..5000).for_each(|_| yield_now())).unwrap();
        (0..3000).for_each(|_| yield_now());
        other.join().unwrap();
        let after = counts();
        let counted: [u64; 3] = std::array::from_fn(|i| after[i] - before[i]);
        (counted, listeners.each_mut().map(Listener::hits))
    };
    let ([switches, yields, ended], hits) = runtime.run(body).unwrap();
    let [switch, yield_, wait_begin, wait_end, task_start, task_done] = hits;
    assert_eq!(switch, switches);
    // A wait counts as a yield of the scheduler, because it is progress.
    assert_eq!(yield_ + wait_begin, yields);
    assert_eq!((wait_begin, wait_end), (1, 1));
    assert_eq!((task_start, task_done), (1, ended));
    assert!(switch > 6000, "{switch}");
}

fn record_of_this_scheduler() -> &'static SchedulerRecord {
    let scheduler = worker::current().and_then(WorkerCell::scheduler).unwrap();
    // SAFETY: the calling worker holds the scheduler.
    unsafe { scheduler.core() }.accounts.record()
}
