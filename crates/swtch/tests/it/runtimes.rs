//! Programs of languages with a runtime of their own: their functions stand in the place of the interpreter's.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use swtch_core::{Frame, Reason, StackKind};
use swtch_store::{Trace, WaitingWorkersRow};

use crate::machine::beside_others;
use crate::names;
use crate::recording::{Recording, TraceDir, stderr, stdout, swtch};

/// Three workers take jobs from a queue, and write one after the other; each reason to wait is in functions of its own.
const WORKERS: &str = "
import queue, threading, time
jobs, lock = queue.Queue(), threading.Lock()
class Worker(threading.Thread):
    def run(self):
        self.consume()
    def consume(self):
        while jobs.get() is not None:
            self.save()
    def save(self):
        with lock:
            time.sleep(0.004)
def pause():
    time.sleep(0.003)
def produce():
    for job in range(400):
        jobs.put(job)
        pause()
def end(workers):
    for worker in workers:
        jobs.put(None)
    for worker in workers:
        worker.join()
workers = [Worker() for _ in range(3)]
for worker in workers:
    worker.start()
produce()
end(workers)
";

/// The functions of each user stack that have names, the innermost first.
fn functions_by_stack(trace: &Trace) -> HashMap<u32, Vec<String>> {
    let frames = trace.frames().unwrap().into_iter();
    let named = frames.filter_map(|frame| Some((frame.id, frame.symbol?)));
    let names: HashMap<u32, String> = named.collect();
    let stacks = trace.stacks().unwrap().into_iter();
    let stacks = stacks.filter(|stack| stack.kind == StackKind::User);
    let functions = stacks.map(|stack| {
        let named = stack.frames.iter().filter_map(|frame| names.get(frame));
        (stack.id, named.cloned().collect())
    });
    functions.collect()
}

/// Blocked time of the waits that were seen, by reason and by the innermost of the program's own functions; `None` where
/// none is on the stack.
fn time_by_function(recording: &Recording) -> BTreeMap<(Reason, Option<String>), u64> {
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let frames = trace.frames().unwrap().into_iter();
    let frames: HashMap<u32, Frame> = frames.map(|frame| (frame.id, frame)).collect();
    let stacks = trace.stacks().unwrap().into_iter();
    let of_users = stacks.filter(|stack| stack.kind == StackKind::User);
    let own = of_users.map(|stack| {
        let mut own = stack.frames.iter().filter_map(|id| {
            let frame = frames.get(id)?;
            let is_own = frame.file.as_deref()?.ends_with("/workers.py");
            is_own.then(|| frame.symbol.clone().unwrap())
        });
        (stack.id, own.next())
    });
    let own: HashMap<u32, Option<String>> = own.collect();
    let mut times = BTreeMap::new();
    for row in recording.read().switches {
        let (Some(stack), Some(reason)) = (row.wait.stacks.user, row.wait.reason) else {
            continue;
        };
        if let (Some(time), Some(own)) = (row.wait.seen_for, own.get(&stack)) {
            *times.entry((reason, own.clone())).or_default() += time.as_ns();
        }
    }
    times
}

/// What the system calls `python3`, and those that pyenv has built, of the versions that are read.
fn pythons() -> Vec<String> {
    let built = Command::new("sh")
        .args([
            "-c",
            "ls -d \"$(pyenv root)\"/versions/3.1[1-5].*/bin/python3",
        ])
        .output()
        .unwrap();
    let built = String::from_utf8(built.stdout).unwrap();
    let all = built.lines().chain(["/usr/bin/python3"]);
    let is_read = |python: &&str| {
        let asked = Command::new(python)
            .args(["-c", "import sys; print(*sys.version_info[:2])"])
            .output();
        let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        version.is_ok_and(|version| {
            ["3 11", "3 12", "3 13", "3 14", "3 15"].contains(&version.as_str())
        })
    };
    all.filter(is_read).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root"]
fn root_waits_of_python_are_in_the_functions_that_wait() {
    let _machine = beside_others();
    let pythons = pythons();
    if pythons.is_empty() {
        swtch_test::skip!("there is no python3 from 3.11 to 3.15");
    }
    for python in pythons {
        let place = TraceDir::new();
        let program = place.dir().join("workers.py");
        fs::write(&program, WORKERS).unwrap();
        let recording = Recording::that_succeeds(&["--", &python, program.to_str().unwrap()]);
        let times = time_by_function(&recording);
        let said = stderr(&recording.output);
        println!("{python}: {times:?}");
        let (mut all, mut named, mut right) = (0, 0, 0);
        for ((reason, function), time) in times {
            let places: &[&str] = match reason {
                Reason::Sleep => &["Worker.save", "pause"],
                Reason::Futex => &["Worker.save", "Worker.consume", "produce", "pause", "end"],
                _ => continue,
            };
            all += time;
            named += if function.is_some() { time } else { 0 };
            if function.is_some_and(|function| places.contains(&function.as_str())) {
                right += time;
            }
        }
        // Who has run on while the others were read has no function; how many these are depends on the machine.
        assert!(named * 2 > all, "{python}: {named} of {all} ns: {said}");
        assert!(named > 500_000_000, "{python}: {named} ns: {said}");
        assert!(
            right * 100 >= named * 95,
            "{python}: {right} of {named} ns: {said}"
        );
    }
}

/// The main thread computes, and three others want Python's lock every millisecond.
const HASHES: &str = "
import threading, time
def fold(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) & 0xffffffff
def hash_all():
    end = time.monotonic() + 3
    while time.monotonic() < end:
        fold(100000)
def serve():
    while True:
        time.sleep(0.001)
for _ in range(3):
    threading.Thread(target=serve, daemon=True).start()
hash_all()
";

#[test]
#[ignore = "needs root"]
fn root_who_holds_pythons_lock_is_told_by_its_functions() {
    let _machine = beside_others();
    let pythons = pythons();
    if pythons.is_empty() {
        swtch_test::skip!("there is no python3 from 3.11 to 3.15");
    }
    for python in pythons {
        let place = TraceDir::new();
        let program = place.dir().join("hashes.py");
        fs::write(&program, HASHES).unwrap();
        let program = program.to_str().unwrap();
        let command = ["--stack-budget", "10%", "--", &python, program];
        let recording = Recording::that_succeeds(&command);
        let trace = Trace::open(&recording.place.trace()).unwrap();
        let stacks = functions_by_stack(&trace);
        let (mut all, mut right) = (0, 0);
        for row in recording.read().switches {
            let Some(holder) = row.wait.holder_stack else {
                continue;
            };
            let named = |frame: &String| frame == "hash_all";
            all += 1;
            right += u32::from(stacks[&holder].iter().any(named));
        }
        let told = swtch(["explain", "--no-bill"])
            .arg(recording.place.trace())
            .output();
        let told = stdout(&told.unwrap());
        println!("{python}: {right} of {all}\n{told}");
        // The others hold it for a moment each, to sleep again, or for longer where they lose their CPU then.
        assert!(
            all > 20 && right * 100 >= all * 60,
            "{python}: {right} of {all}"
        );
        let words: Vec<_> = told.split_whitespace().collect();
        let words = words.join(" ");
        let lock = "Python's global interpreter lock (GIL), which is held in fold (hashes.py:3) < hash_all";
        assert!(words.contains(lock), "{words}");
    }
}

/// Six goroutines, of which one has the mutex and sleeps, so that all threads do; at the end the runtime's own measure of
/// the time at mutexes is written.
const STORE: &str = r#"
package main

import (
	"fmt"
	"runtime/metrics"
	"sync"
	"time"
)

var store sync.Mutex

func putInStore() {
	store.Lock()
	defer store.Unlock()
	time.Sleep(3 * time.Millisecond)
}

func main() {
	var group sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for i := 0; i < 6; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				putInStore()
			}
		}()
	}
	group.Wait()
	samples := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(samples)
	fmt.Println(samples[0].Value.Float64())
}
"#;

#[test]
#[ignore = "needs root"]
fn root_goroutines_that_wait_for_a_lock_are_told_though_all_threads_are_idle() {
    let _machine = beside_others();
    let asked = Command::new("go").arg("version").output();
    let version = asked.map(|output| stdout(&output)).unwrap_or_default();
    if !(20..=26).any(|minor| version.contains(&format!(" go1.{minor}"))) {
        swtch_test::skip!("there is no go from 1.20 to 1.26");
    }
    let place = TraceDir::new();
    fs::write(place.dir().join("store.go"), STORE).unwrap();
    // Most programs that are packed for containers have no list of symbols; lines are told with it alone.
    for (options, first) in [
        ("", "in main.putInStore (store.go:"),
        (
            "-ldflags=-s -w",
            "in main.putInStore (sync.Mutex, sync.RWMutex): ",
        ),
    ] {
        let built = Command::new("go")
            .args(["build", "-o", "store"])
            .args((!options.is_empty()).then_some(options))
            .arg("store.go")
            .current_dir(place.dir())
            .env("GOCACHE", place.dir().join("cache"))
            .env("GOTOOLCHAIN", "local")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", stderr(&built));
        assert_goroutines_wait(&place.dir().join("store"), first);
    }
}

fn assert_goroutines_wait(program: &Path, first: &str) {
    let command = ["--stack-budget", "10%", "--", program.to_str().unwrap()];
    let recording = Recording::that_succeeds(&command);
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let mut rows = Vec::new();
    trace
        .each_worker(&mut |row| rows.push(row.clone()))
        .unwrap();
    let locks = rows
        .iter()
        .filter(|row| row.reason.as_deref() == Some("sync.Mutex.Lock"));
    let thousandths = |rows: &mut dyn Iterator<Item = &WaitingWorkersRow>| {
        rows.map(|row| row.thousandths * row.between.as_ns() / 1_000_000_000)
            .sum::<u64>()
    };
    let waited = thousandths(&mut locks.clone());
    let known = stdout(&recording.output);
    println!("{waited} thousandths of a second; by Go's own measure {known}");
    // Five of six wait; looks begin once the tables of the program are read.
    assert!((7_500..=18_000).contains(&waited), "{waited}: {rows:?}");
    let stacks = functions_by_stack(&trace);
    let is_in_store = |row: &&WaitingWorkersRow| {
        let named = |frame: &String| frame == "main.putInStore";
        row.stack
            .is_some_and(|stack| stacks[&stack].iter().any(named))
    };
    let right = thousandths(&mut locks.filter(is_in_store));
    assert!(right * 100 >= waited * 95, "{right} of {waited}: {rows:?}");
    let told = swtch(["explain", "--no-bill"])
        .arg(recording.place.trace())
        .output();
    let told = stdout(&told.unwrap());
    let first = format!("1. Goroutines wait for a lock {first}");
    assert!(told.contains(&first), "{told}");
}

/// Four threads, of which one has the monitor and sleeps; each has a futex word of its own.
const LEDGER: &str = "
public class Ledger {
    static synchronized void book() throws InterruptedException {
        Thread.sleep(3);
    }
    public static void main(String[] words) throws InterruptedException {
        long end = System.nanoTime() + 4_000_000_000L;
        Thread[] threads = new Thread[4];
        for (int place = 0; place < threads.length; place++) {
            threads[place] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        book();
                    }
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            });
            threads[place].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
";

/// The virtual machines of Java that are installed with a compiler.
fn javas() -> Vec<String> {
    let found = Command::new("sh")
        .args([
            "-c",
            "ls -d /usr/lib/jvm/*/bin/javac | xargs -n1 readlink -f | sort -u",
        ])
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let found = found.lines().filter_map(|line| line.strip_suffix("javac"));
    let is_read = |java: &&str| {
        let asked = Command::new(format!("{java}javac"))
            .arg("-version")
            .output();
        let version = asked.map(|output| stdout(&output)).unwrap_or_default();
        let major = version.trim().strip_prefix("javac ");
        let major = major.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major >= 11)
    };
    found.filter(is_read).map(str::to_owned).collect()
}

/// Four threads that work while they have a lock, in methods that the compiler puts into each other.
const SHOP: &str = "
import java.util.concurrent.locks.ReentrantLock;
public class Shop {
    static final ReentrantLock stock = new ReentrantLock();
    static long left = 1;
    static long price() {
        for (int item = 0; item < 3000; item++) {
            left = left * 31 + item;
        }
        return left;
    }
    static void reserve() {
        stock.lock();
        try {
            price();
        } finally {
            stock.unlock();
        }
    }
    static void order() {
        reserve();
    }
    public static void main(String[] words) throws InterruptedException {
        long end = System.nanoTime() + 4_000_000_000L;
        Thread[] threads = new Thread[4];
        for (int place = 0; place < threads.length; place++) {
            threads[place] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    order();
                }
            });
            threads[place].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
";

/// A recording of a class, from its start on.
fn record_java(java: &str, class: &str, source: &str) -> Recording {
    let place = TraceDir::new();
    fs::write(place.dir().join(format!("{class}.java")), source).unwrap();
    let dir = place.dir().to_str().unwrap();
    let built = Command::new(format!("{java}javac"))
        .args(["-d", dir, &format!("{dir}/{class}.java")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    let program = format!("{java}java");
    let budget = ["--stack-budget", "20%"];
    Recording::that_succeeds(&[&budget[..], &["--", &program, "-cp", dir, class]].concat())
}

/// The words of the first screen, with one space between them.
fn explained(recording: &Recording) -> String {
    let told = swtch(["explain", "--no-bill"])
        .arg(recording.place.trace())
        .output();
    let told = stdout(&told.unwrap());
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "needs root"]
fn root_waits_for_a_monitor_of_java_are_in_the_methods_that_wait() {
    let _machine = beside_others();
    let javas = javas();
    if javas.is_empty() {
        swtch_test::skip!("there is no javac");
    }
    for java in javas {
        let recording = record_java(&java, "Ledger", LEDGER);
        let trace = Trace::open(&recording.place.trace()).unwrap();
        let stacks = functions_by_stack(&trace);
        let has = |stack: u32, name: &str| {
            let mut names = stacks[&stack].iter();
            names.any(|function| function.starts_with(name))
        };
        let (mut all, mut right) = (0, 0);
        for row in recording.read().switches {
            let (Some(stack), Some(time)) = (row.wait.stacks.user, row.wait.seen_for) else {
                continue;
            };
            if has(stack, "ObjectMonitor::enter(") {
                all += time.as_ns();
                let is_right = has(stack, "Ledger.book") && has(stack, "java.lang.Thread.run");
                right += if is_right { time.as_ns() } else { 0 };
            }
        }
        println!("{java}: {right} of {all} ns");
        // Three wait, and looks begin once the tables of the virtual machine are read.
        assert!(all > 1_000_000_000, "{java}: {right} of {all} ns");
        assert!(right * 100 >= all * 75, "{java}: {right} of {all} ns");
        let told = explained(&recording);
        let first =
            "1. Threads wait for a monitor of Java in Ledger.book (Ledger.java:4) (synchronized):";
        assert!(told.contains(first), "{told}");
    }
}

#[test]
#[ignore = "needs root"]
fn root_methods_that_java_has_put_into_others_are_told_with_their_lines() {
    let _machine = beside_others();
    let javas = javas();
    if javas.is_empty() {
        swtch_test::skip!("there is no javac");
    }
    for java in javas {
        let recording = record_java(&java, "Shop", SHOP);
        let told = explained(&recording);
        for words in [
            "Threads wait for a lock of Java in Shop.reserve (Shop.java:13) (java.util.concurrent.locks):",
            "waited in: Shop.reserve (Shop.java:13) < Shop.order < Shop.lambda$main$0",
        ] {
            assert!(told.contains(words), "{java}: {told}");
        }
    }
}

/// Code that is made while the program runs, and sleeps; the program lists it as Node does, in a file or behind a link.
const COMPILES: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
	/* push rbp; mov rbp, rsp; mov eax, SYS_nanosleep; syscall; pop rbp; ret */
	unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xb8, 35, 0, 0, 0, 0x0f, 0x05, 0x5d, 0xc3};
	int access = PROT_READ | PROT_WRITE | PROT_EXEC;
	char *at = mmap(0, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at, code, sizeof code);
	char name[64];
	snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
	FILE *list = fopen(argc > 1 ? argv[1] : name, "w");
	fprintf(list, "%lx %zx JS:*nap /app/server.js:7:3\n", (long)at, sizeof code);
	fclose(list);
	if (argc > 1) symlink(argv[1], name);
	struct timespec time = {0, 5000000};
	for (int i = 0; i < 200; i++) ((void (*)(struct timespec *, void *))at)(&time, 0);
	unlink(name);
}
"#;

#[test]
#[ignore = "needs root"]
fn root_code_that_was_compiled_meanwhile_has_the_name_that_its_runtime_lists() {
    if cfg!(not(target_arch = "x86_64")) {
        swtch_test::skip!("its code is x86-64");
    }
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = names::compiled(&place, COMPILES, &["-O1"]);
    let program = program.to_str().unwrap();
    let stacks = |words: &[&str]| {
        let recording = Recording::that_succeeds(&[&["--", program], words].concat());
        stdout(&recording.report(&["--by", "stack"]))
    };
    let named = stacks(&[]);
    let nap = named.find(" nap [jit]");
    let nap = nap.unwrap_or_else(|| panic!("no name: {named}"));
    assert!(named[nap..].contains(" main+"), "{named}");
    // A link may lead to any file.
    let elsewhere = place.dir().join("list");
    let linked = stacks(&[elsewhere.to_str().unwrap()]);
    assert!(
        linked.contains(" main+") && !linked.contains("nap"),
        "{linked}"
    );
}
