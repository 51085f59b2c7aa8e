//! Stacks that are read while threads wait (by default): whole without frame pointers, and nothing else of a stack is
//! kept or shown.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use swtch_core::{Reason, StackEnd, StackKind};
use swtch_store::Trace;

use crate::callers::USER;
use crate::machine::{TestProcess, beside_others, wait_until};
use crate::names;
use crate::recording::{Recording, TraceDir, report, start_recorder, stderr, stdout, swtch};
use crate::stranger::Stranger;

/// Two threads that take a mutex five calls deep and sleep while they hold it, and one that waits for both. Compiled
/// without frame pointers.
const DEEP_MUTEX: &str = r#"
#include <pthread.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long done;
static void rest(void) { struct timespec t = {0, 60000000}; nanosleep(&t, 0); }
__attribute__((noinline)) void take(void) {
	pthread_mutex_lock(&mutex); rest(); pthread_mutex_unlock(&mutex); done++;
}
__attribute__((noinline)) void third(void) { take(); done++; }
__attribute__((noinline)) void second(void) { third(); done++; }
__attribute__((noinline)) void first(void) { second(); done++; }
__attribute__((noinline)) void handle_request(void) { first(); done++; }
static void *run(void *arg) { for (int i = 0; i < 8; i++) handle_request(); return arg; }
int main(void) {
	pthread_t t[2];
	for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, run, 0);
	for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
}
"#;

const CANARY: &str = "canary-of-a-stack";

/// Sleeps in a function whose frame holds a text that stands nowhere in the program's file.
const SECRET: &str = r#"
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((noinline)) void keep(const char *text) {
	volatile char secret[64];
	for (int i = 0; i <= (int)strlen(text); i++) secret[i] = text[i];
	for (;;) { usleep(50000); secret[63]++; }
}
int main(int argc, char **argv) {
	if (argc > 1) prctl(PR_SET_DUMPABLE, 0);
	char text[] = "ENCODED";
	for (int i = 0; text[i]; i++) text[i] ^= 1;
	keep(text);
}
"#;

fn secret() -> String {
    let encoded: String = CANARY.bytes().map(|byte| char::from(byte ^ 1)).collect();
    SECRET.replace("ENCODED", &encoded)
}

fn compiled(place: &TraceDir, source: &str) -> PathBuf {
    let options = ["-O2", "-fomit-frame-pointer", "-pthread"];
    names::compiled(place, source, &options)
}

/// The stacks of a recording, as they are reported.
fn stacks_of(recording: &Recording) -> String {
    let output = recording.report(&["--by", "stack"]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// Without rights a command of one's own has stacks as well, and nothing else of them is kept.
#[test]
#[ignore = "needs root"]
fn root_without_root_a_wait_is_shown_with_all_its_callers() {
    let _machine = beside_others();
    let (place, stranger) = (TraceDir::new(), Stranger::new());
    let deep = ["take", "third", "second", "first", "handle_request", "run"];
    let small = ["-O2", "-fomit-frame-pointer", "-pthread"];
    // The kernel does not tell the frame pointer that these need.
    let debug = ["-O0", "-fno-omit-frame-pointer", "-pthread"];
    for (source, options, callers) in [
        (DEEP_MUTEX, &small[..], &deep[..]),
        (DEEP_MUTEX, &debug, &deep),
        (&secret(), &small, &["keep", "main"]),
    ] {
        let program = names::compiled(&place, source, options);
        let own = stranger.dir().join("own");
        fs::copy(&program, &own).unwrap();
        let words = ["record", "-o", "own.swtch", "--", "timeout", "2", "./own"];
        let output = stranger.run(&[], &words);
        let said = stderr(&output);
        assert!(said.contains("by perf events"), "{said}");
        assert_eq!(files_with(stranger.dir(), CANARY), Vec::<PathBuf>::new());
        let trace = stranger.dir().join("own.swtch");
        let stacks = stdout(&report(&trace, &["--by", "stack"]));
        let mut rest = stacks.as_str();
        for caller in callers {
            let found = rest.find(&format!("{caller}+"));
            rest = &rest[found.unwrap_or_else(|| panic!("no {caller} in its place: {stacks}"))..];
        }
        fs::remove_dir_all(&trace).unwrap();
    }
}

/// Who closes his memory is not looked into, and that is said.
#[test]
#[ignore = "needs root"]
fn root_without_root_stacks_that_may_not_be_read_are_counted() {
    let _machine = beside_others();
    let (place, stranger) = (TraceDir::new(), Stranger::new());
    let program = compiled(&place, &secret());
    let own = stranger.dir().join("own");
    fs::copy(&program, &own).unwrap();
    let words = [
        "record",
        "-o",
        "own.swtch",
        "--",
        "timeout",
        "1",
        "./own",
        "closed",
    ];
    let said = stderr(&stranger.run(&[], &words));
    assert!(said.contains("stacks of 1 process were not read"), "{said}");
    let trace = Trace::open(&stranger.dir().join("own.swtch")).unwrap();
    assert!(trace.meta().counts.stored > 10, "{said}");
}

#[test]
#[ignore = "needs root"]
fn root_a_wait_is_shown_with_all_its_callers_without_frame_pointers() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, DEEP_MUTEX);
    let recording = Recording::that_succeeds(&["--", program.to_str().unwrap()]);
    let stacks = stacks_of(&recording);
    let callers = [
        "take+",
        "third+",
        "second+",
        "first+",
        "handle_request+",
        "run+",
    ];
    let mut rest = stacks.as_str();
    for caller in callers {
        let found = rest.find(caller);
        rest = &rest[found.unwrap_or_else(|| panic!("no {caller} in its place: {stacks}"))..];
    }
    // Each chain ends where its thread began.
    let read = recording.read();
    let seen: Vec<_> = read
        .switches
        .iter()
        .filter_map(|row| row.wait.stacks.user)
        .collect();
    assert!(seen.len() > 5, "{stacks}");
    let blocks: Vec<&str> = stacks
        .split("\n\n")
        .filter(|block| block.contains("  user  "))
        .collect();
    for block in blocks {
        let last = block
            .lines()
            .rfind(|line| line.starts_with("          ") || line.contains("  user  "));
        let last = last.unwrap();
        assert!(last.contains("clone") || last.contains("_start"), "{block}");
    }
}

/// What waits has no tables and no frame pointers, as the C library of Alpine; its callers have tables.
const WAITS: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
extern long syscall(long, ...);
__attribute__((noinline)) long enters(long a, long b)
{
	volatile long kept[6] = {a, b, a + 1, b + 1, a + 2, b + 2};
	return syscall(SYS_nanosleep, kept[0], kept[1]) + kept[5];
}
__attribute__((noinline)) long waits(long a, long b) { return enters(a, b) + 1; }
"#;
const CALLS_WAITS: &str = r#"
#include <time.h>
long waits(long, long);
__attribute__((noinline)) void third(void) { struct timespec t = {0, 5000000}; waits((long)&t, 0); __asm__ volatile(""); }
__attribute__((noinline)) void second(void) { third(); __asm__ volatile(""); }
__attribute__((noinline)) void handle_request(void) { second(); __asm__ volatile(""); }
int main(void) { for (int i = 0; i < 300; i++) handle_request(); }
"#;

#[test]
#[ignore = "needs root"]
fn root_callers_of_code_without_tables_are_found_and_marked_as_guessed() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let file = |name: &str| place.dir().join(name);
    fs::write(file("waits.c"), WAITS).unwrap();
    fs::write(file("calls.c"), CALLS_WAITS).unwrap();
    let compile = |words: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-fomit-frame-pointer"])
            .args(words)
            .current_dir(place.dir());
        let compiled = compiler.output().unwrap();
        assert!(compiled.status.success(), "{}", stderr(&compiled));
    };
    compile(&[
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-c",
        "waits.c",
    ]);
    compile(&["-o", "prog", "calls.c", "waits.o"]);
    let recording = Recording::that_succeeds(&["--", file("prog").to_str().unwrap()]);
    let shown = stacks_of(&recording);
    let callers = ["enters+", "third+", "second+", "handle_request+", "main+"];
    let mut rest = shown.as_str();
    for caller in callers {
        let found = rest.find(caller);
        rest = &rest[found.unwrap_or_else(|| panic!("no {caller} in its place: {shown}"))..];
    }
    assert!(
        shown.contains("past code whose caller was found on the stack"),
        "{shown}"
    );
}

/// Forty frames of a kilobyte.
const DEEP: &str = r#"
#include <time.h>
__attribute__((noinline)) void naps(void) { struct timespec t = {0, 5000000}; nanosleep(&t, 0); __asm__ volatile(""); }
__attribute__((noinline)) void down(int left)
{
	char frame[1000];
	__asm__ volatile("" ::"r"(frame) : "memory");
	if (left) down(left - 1); else naps();
	__asm__ volatile("");
}
int main(void) { for (int i = 0; i < 400; i++) down(40); }
"#;

/// A library that is loaded after the first look at a process, with the one long wait in it.
#[test]
#[ignore = "needs root"]
fn root_a_wait_in_a_library_that_was_loaded_late_has_callers() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let library =
        "#include <unistd.h>\nint wait_in_library(int n) { usleep(2000000); return n + 1; }";
    let library = names::compiled(&place, library, &["-O2", "-shared", "-fPIC"]);
    let late = place.dir().join("late.so");
    fs::rename(library, &late).unwrap();
    let main = r#"
#include <dlfcn.h>
#include <unistd.h>
int main(int argc, char **argv) {
	usleep(300000);
	int (*wait)(int) = (int (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), "wait_in_library");
	return wait(argc) - argc - 1;
}
"#;
    let program = compiled(&place, main);
    let words = [program, late].map(|path| path.to_str().unwrap().to_owned());
    let recording = Recording::that_succeeds(&["--", &words[0], &words[1]]);
    let stacks = stacks_of(&recording);
    let callers = stacks.split_once("wait_in_library+");
    let callers = callers
        .unwrap_or_else(|| panic!("not in the library: {stacks}"))
        .1;
    assert!(callers.contains("main+"), "{stacks}");
}

#[test]
#[ignore = "needs root"]
fn root_a_large_stack_is_read_to_its_start() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, DEEP);
    let recording = Recording::that_succeeds(&["--", program.to_str().unwrap()]);
    let stacks = Trace::open(&recording.place.trace())
        .unwrap()
        .stacks()
        .unwrap();
    let deep = stacks.iter().filter(|stack| stack.frames.len() > 40);
    let ends: Vec<_> = deep.map(|stack| stack.end).collect();
    assert!(
        ends.contains(&Some(StackEnd::Start)),
        "{ends:?}: {}",
        stacks_of(&recording)
    );
}

/// A program that does nothing but ask for the time, beside another on its CPU, is in the kernel's code for that.
const ASKS_FOR_THE_TIME: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>
static time_t end;
__attribute__((noinline)) void asks(void)
{
	struct timespec t;
	for (int i = 0; i < 10000; i++) clock_gettime(CLOCK_MONOTONIC, &t);
}
static void *run(void *x) { while (time(0) < end) asks(); return x; }
int main(void)
{
	cpu_set_t one;
	pthread_t thread;
	end = time(0) + 3;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	pthread_create(&thread, 0, run, 0);
	run(0);
	pthread_join(thread, 0);
}
"#;

#[test]
#[ignore = "needs root"]
fn root_a_thread_that_was_preempted_in_the_vdso_has_callers() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, ASKS_FOR_THE_TIME);
    let recording = Recording::that_succeeds(&["--", program.to_str().unwrap()]);
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let (stacks, frames) = (trace.stacks().unwrap(), trace.frames().unwrap());
    let is_nowhere = |number: &u32| {
        frames
            .iter()
            .any(|one| one.id == *number && one.module.is_none())
    };
    let mut in_vdso = stacks
        .iter()
        .filter(|one| one.frames.first().is_some_and(is_nowhere))
        .peekable();
    if in_vdso.peek().is_none() {
        swtch_test::skip!("no thread was preempted in the vDSO: this clock is read by a call");
    }
    // The first may come before the libraries are mapped that call it.
    let ends: Vec<_> = in_vdso.map(|stack| stack.end).collect();
    assert!(
        ends.contains(&Some(StackEnd::Start)),
        "{ends:?}: {}",
        stacks_of(&recording)
    );
}

/// Two threads take turns on a CPU in a function that keeps what it needs to return below its stack pointer, as
/// cryptographic code does.
#[cfg(target_arch = "x86_64")]
const SPINS_BELOW: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>
void spin(long turns);
__asm__(
	".globl spin\n.type spin,@function\nspin:\n.cfi_startproc\n"
	"mov %rsp,%rax\n.cfi_def_cfa_register %rax\n"
	"sub $256,%rsp\nand $-64,%rsp\nmov %rax,-8(%rsp)\n"
	/* The frame begins 8 bytes above what lies at rsp - 8. */
	".cfi_escape 0x0f,0x05,0x77,0x78,0x06,0x23,0x08\n"
	"1: dec %rdi\njnz 1b\n"
	"mov -8(%rsp),%rsp\n.cfi_def_cfa %rsp,8\nret\n.cfi_endproc\n.size spin,.-spin\n");
__attribute__((noinline)) void works(void) { spin(100000000); __asm__ volatile(""); }
static void *run(void *end) { while (time(0) < *(time_t *)end) works(); return 0; }
int main(void) {
	cpu_set_t one;
	pthread_t thread;
	time_t end = time(0) + 3;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	pthread_create(&thread, 0, run, &end);
	run(&end);
	pthread_join(thread, 0);
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "needs root"]
fn root_what_lies_below_the_stack_pointer_is_read_too() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, SPINS_BELOW);
    let recording = Recording::that_succeeds(&["--", program.to_str().unwrap()]);
    let stacks = stacks_of(&recording);
    assert!(stacks.contains("spin+"), "{stacks}");
    for block in stacks.split("\n\n").filter(|block| block.contains("spin+")) {
        assert!(block.contains(" works+"), "{stacks}");
    }
}

/// Each wait that is longer than the time between two looks has a place: a thread waits there until it is seen.
#[test]
#[ignore = "needs root"]
fn root_long_waits_are_seen() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, DEEP_MUTEX);
    let recording =
        Recording::that_succeeds(&["--stack-budget", "100", "--", program.to_str().unwrap()]);
    let read = recording.read();
    let long = read.switches.iter().filter(|row| {
        let off = row.wait.off.map_or(0, swtch_core::Nanos::as_ns);
        off > 400_000_000
    });
    let unseen = long.clone().filter(|row| row.wait.stacks.user.is_none());
    assert!(long.count() > 0);
    assert_eq!(unseen.count(), 0);
}

/// Hands over work every 2 ms: the wait is in one function, and its end in another.
const HAND_OVER: &str = r#"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER;
static volatile int work, ended;
static volatile long done;
__attribute__((noinline)) void await_work(void) {
	pthread_mutex_lock(&mutex);
	while (!work && !ended) pthread_cond_wait(&there, &mutex);
	work = 0; pthread_mutex_unlock(&mutex); done++;
}
__attribute__((noinline)) void finish_work(int last) {
	pthread_mutex_lock(&mutex);
	work = 1; ended = last; pthread_cond_signal(&there);
	pthread_mutex_unlock(&mutex); done++;
}
static void *run(void *arg) { while (!ended) await_work(); return arg; }
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, run, 0);
	for (int i = 0; i < 1500; i++) { usleep(2000); finish_work(i == 1499); }
	pthread_join(t, 0);
}
"#;

/// It is not the stack at which the waker itself waits.
#[test]
#[ignore = "needs root"]
fn root_who_ends_a_wait_is_shown_where_it_lets_go() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, HAND_OVER);
    let recording = Recording::that_succeeds(&["--", program.to_str().unwrap()]);
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let frames = trace.frames().unwrap();
    let functions: HashMap<u32, Vec<&str>> = trace
        .stacks()
        .unwrap()
        .into_iter()
        .filter(|stack| stack.kind == StackKind::User)
        .map(|stack| {
            let named = |id: &u32| {
                frames
                    .iter()
                    .find(|frame| frame.id == *id)?
                    .symbol
                    .as_deref()
            };
            (stack.id, stack.frames.iter().filter_map(named).collect())
        })
        .collect();
    let read = recording.read();
    let awaited = read.switches.iter().filter(|row| {
        let own = row.wait.stacks.user.map(|stack| &functions[&stack]);
        own.is_some_and(|own| own.contains(&"await_work"))
    });
    assert!(awaited.count() > 20);
    // The main thread waits for the end of the other, and for the mutex.
    let identities = read.identities();
    let is_worker = |task| identities[&task].0 != identities[&task].1;
    let ended: Vec<_> = read
        .switches
        .iter()
        .filter(|row| row.wait.reason == Some(Reason::Futex) && is_worker(row.task))
        .filter_map(|row| row.wait.wakeup.waker_stacks.user)
        .map(|stack| &functions[&stack])
        .collect();
    // About thirty of 1,500 are looked at.
    assert!(ended.len() > 5, "{}", ended.len());
    for functions in ended {
        assert!(functions.contains(&"finish_work"), "{functions:?}");
        assert!(!functions.contains(&"await_work"), "{functions:?}");
    }
    assert_folded_stacks_sum_up(&recording.place.trace());
}

/// Time is divided among the places where threads were seen; what has no place is a line, too.
fn assert_folded_stacks_sum_up(trace: &Path) {
    let exported = swtch(["export", "--to", "folded"]).arg(trace).output();
    let folded = stdout(&exported.unwrap());
    let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let folded: u64 = lines.map(|(_, ns)| ns.parse::<u64>().unwrap()).sum();
    let answer = report(trace, &["--by", "reason", "--format", "json"]);
    let answer: Value = serde_json::from_str(&stdout(&answer)).unwrap();
    let off = answer["total"]["off_ns"].as_u64();
    assert_eq!(off, Some(folded), "{}", answer["total"]);
}

/// Every file below a directory that holds the text.
fn files_with(place: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

/// The copy begins at the stack pointer of the thread that sleeps; it must hold the text, or the test would say nothing.
fn assert_is_in_the_copy(running: &TestProcess) {
    use std::os::unix::fs::FileExt as _;
    let proc = |name: &str| format!("/proc/{}/{name}", running.pid());
    let mut bytes = vec![0; 4096];
    wait_until("the program sleeps in its function", || {
        let call = fs::read_to_string(proc("syscall")).unwrap_or_default();
        let pointer = call.split(' ').rev().nth(1).unwrap_or_default();
        let Ok(pointer) = u64::from_str_radix(pointer.trim_start_matches("0x"), 16) else {
            return false;
        };
        let memory = fs::File::open(proc("mem")).unwrap();
        let read = memory.read_at(&mut bytes, pointer).unwrap_or(0);
        bytes[..read]
            .windows(CANARY.len())
            .any(|part| part == CANARY.as_bytes())
    });
}

#[test]
#[ignore = "needs root"]
fn root_no_byte_of_a_stack_is_kept() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, &secret());
    assert!(files_with(place.dir(), CANARY).is_empty());
    let running = TestProcess::start(&mut Command::new(&program));
    assert_is_in_the_copy(&running);
    let pid = running.pid().to_string();
    // While it records, and after it was killed.
    let recorder = start_recorder(&place, &["-p", &pid]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(files_with(place.dir(), CANARY), Vec::<PathBuf>::new());
    drop(recorder);
    assert_eq!(files_with(place.dir(), CANARY), Vec::<PathBuf>::new());
    // A whole recording.
    let recording = Recording::that_succeeds(&["-d", "1", "--stack-budget", "100", "-p", &pid]);
    assert!(stacks_of(&recording).contains("keep+"));
    assert_eq!(
        files_with(recording.place.dir(), CANARY),
        Vec::<PathBuf>::new()
    );
}

/// A process that lets nobody read its memory.
#[test]
#[ignore = "needs root"]
fn root_a_process_that_is_not_dumpable_is_not_looked_into() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, &secret());
    let running = TestProcess::start(Command::new(&program).arg("closed"));
    wait_until("it has closed itself", || {
        let owner = fs::metadata(format!("/proc/{}/mem", running.pid()));
        owner.is_ok()
            && fs::read_to_string(format!("/proc/{}/wchan", running.pid()))
                .is_ok_and(|at| at.contains("nanosleep"))
    });
    let pid = running.pid().to_string();
    let recording = Recording::that_succeeds(&["-d", "1", "--stack-budget", "100", "-p", &pid]);
    let read = recording.read();
    assert!(read.switches.len() > 10);
    let stacks = read.switches.iter().filter(|row| {
        row.wait
            .stacks
            .iter()
            .any(|(kind, _)| kind == StackKind::User)
    });
    assert_eq!(stacks.count(), 0);
    let said = stderr(&recording.output);
    assert!(
        said.contains("stacks of 1 process were not read: memory closed"),
        "{said}"
    );
}

/// Who may run something as root by `sudo` may not read what others' processes hold by that.
#[test]
#[ignore = "needs root"]
fn root_under_sudo_stacks_of_others_are_not_read() {
    let _machine = beside_others();
    let programs = TraceDir::of(USER);
    let program = compiled(&programs, &secret());
    let recorded = |pid: u32| {
        let place = TraceDir::of(USER);
        let pid = pid.to_string();
        let mut recorder = place.record(&["-d", "1", "--stack-budget", "100", "-p", &pid]);
        recorder.envs(["SUDO_UID", "SUDO_GID"].map(|name| (name, USER.to_string())));
        let output = recorder.output().unwrap();
        Recording { place, output }
    };
    let of_root = TestProcess::start(&mut Command::new(&program));
    let recording = recorded(of_root.pid());
    let said = stderr(&recording.output);
    assert!(said.contains("owned by another user"), "{said}");
    assert!(!stacks_of(&recording).contains("keep+"));
    let mut own = Command::new("setpriv");
    own.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let own = TestProcess::start(own.arg(&program));
    let recording = recorded(own.pid());
    let said = stderr(&recording.output);
    assert!(!said.contains("were not read"), "{said}");
    assert!(stacks_of(&recording).contains("keep+"), "{said}");
}

/// Sleeps with a stack pointer of its choice: into a file, into nothing, or into memory whose pages are handed out by
/// a process that never does.
#[cfg(target_arch = "x86_64")]
const FALSE_STACK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct timespec nap = {0, 20000000};
int main(int argc, char **argv) {
	char *stack = (char *)16;
	if (!strcmp(argv[1], "file"))
		stack = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(argv[0], O_RDONLY), 0);
	if (!strcmp(argv[1], "handed-out")) {
		int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
		struct uffdio_api api = {.api = UFFD_API};
		if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) exit(3);
		stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct uffdio_register range = {.range = {(long)stack, 65536}, .mode = UFFDIO_REGISTER_MODE_MISSING};
		if (ioctl(fd, UFFDIO_REGISTER, &range)) exit(3);
	}
	__asm__ volatile("mov %0, %%rsp\n1: mov $35, %%eax\n mov %1, %%rdi\n xor %%esi, %%esi\n syscall\n jmp 1b"
		: : "b"(stack), "r"(&nap) : "memory", "rcx", "r11", "rax", "rdi", "rsi");
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "needs root"]
fn root_a_false_stack_pointer_keeps_nobody_waiting() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, FALSE_STACK);
    for kind in ["file", "nothing", "handed-out"] {
        let running = TestProcess::start(Command::new(&program).arg(kind));
        let pid = running.pid().to_string();
        let recording = Recording::that_succeeds(&["-d", "1", "--stack-budget", "100", "-p", &pid]);
        let said = stderr(&recording.output);
        assert!(said.contains("pointed at no memory"), "{kind}: {said}");
        assert!(recording.read().switches.len() > 10, "{kind}");
    }
}
