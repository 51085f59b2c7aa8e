//! Preemptive sections of fiber mode use helper threads: at most as many as allowed, and a shortage
//! is reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use swtch_fiber::observe::Page;
use swtch_fiber::stall::Deadlock;
use swtch_fiber::{Error, Runtime, WaitType, preemptive, spawn};

const PATIENCE: Duration = Duration::from_secs(120);

/// A gate for threads, closed until it is opened.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn pass(&self) {
        let open = self.0.lock().expect("nobody panics with it");
        drop(self.1.wait_while(open, |open| !*open));
    }

    fn open(&self) {
        *self.0.lock().expect("nobody panics with it") = true;
        self.1.notify_all();
    }
}

/// Opens a gate also when the test fails, since the runtime would wait for its sections for ever.
struct OpensAtEnd(Arc<Gate>);

impl Drop for OpensAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Threads of this process that are named as helpers of the runtime `name`.
fn helpers(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc is there");
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.starts_with(&format!("{name}-h")))
        .count()
}

/// The runtime's sections as another process sees them: those that run or wait, and those of them
/// that wait.
fn sections(task_name: &str) -> (usize, usize) {
    let page = Page::of_process(std::process::id()).expect("a runtime lives");
    let snapshot = page.snapshot().expect("it is old enough");
    let ours = |row: &&swtch_fiber::observe::CurrentWait| row.name.as_deref() == Some(task_name);
    let waiting: Vec<_> = snapshot.waiting_tasks().collect();
    let scheduler = waiting.iter().find(ours).and_then(|row| row.scheduler);
    let queued = snapshot
        .schedulers
        .iter()
        .find(|row| Some(row.scheduler) == scheduler);
    let queued = queued.map_or(0, |row| row.queued_preemptive_count);
    (waiting.iter().filter(ours).count(), queued as usize)
}

/// With one thread per section, 5,000 sections were 5,003 threads, for ten seconds.
#[test]
fn five_thousand_sections_take_no_more_threads_than_there_may_be() {
    const SECTIONS: usize = 5_000;
    const MOST: usize = 100;
    let runtime = Runtime::builder().schedulers(1).name("many").helpers(MOST);
    let runtime = runtime.build().unwrap();
    let gate = Arc::new(Gate::default());
    let _at_end = OpensAtEnd(gate.clone());
    let (at_work, most_at_work) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..SECTIONS)
        .map(|_| {
            let (gate, at_work, most) = (gate.clone(), at_work.clone(), most_at_work.clone());
            let body = move || {
                preemptive(WaitType::PREEMPTIVE_OTHER, || {
                    most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.pass();
                    at_work.fetch_sub(1, Ordering::SeqCst);
                });
            };
            let named = swtch_fiber::TaskBuilder::new().name("many sections");
            runtime.spawn_with(named, body).unwrap()
        })
        .collect();
    // A section that no longer waits for a thread may still not have begun, and its thread may not
    // have its name yet.
    let now = || {
        (
            sections("many sections"),
            at_work.load(Ordering::SeqCst),
            helpers("many"),
        )
    };
    let end = Instant::now() + PATIENCE;
    while now() != ((SECTIONS, SECTIONS - MOST), MOST, MOST) {
        let now = now();
        assert!(
            Instant::now() < end,
            "sections and those that wait, those at work, threads: {now:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    gate.open();
    for task in tasks {
        task.join().unwrap();
    }
    assert_eq!(most_at_work.load(Ordering::SeqCst), MOST);
    assert!(helpers("many") <= MOST);
}

/// The running sections wait for one that waits for a thread. Formerly this hung without a report.
#[test]
fn sections_that_need_more_threads_than_there_may_be_are_reported() {
    let (send, deadlocks) = mpsc::channel();
    let runtime = Runtime::builder()
        .schedulers(1)
        .helpers(2)
        .on_deadlock(move |deadlock| drop(send.send(deadlock.clone())))
        .build()
        .unwrap();
    let gate = Arc::new(Gate::default());
    let _at_end = OpensAtEnd(gate.clone());
    let (begins, begun) = mpsc::channel();
    let sections: Vec<_> = (0..3)
        .map(|number| {
            let (gate, begins) = (gate.clone(), begins.clone());
            let body = move || {
                preemptive(WaitType::PREEMPTIVE_OTHER, || {
                    begins.send(number).unwrap();
                    match number {
                        2 => gate.open(),
                        _ => gate.pass(),
                    }
                });
            };
            let section = runtime.spawn(body).unwrap();
            // The first two have their threads before the third asks for one.
            if number < 2 {
                assert_eq!(begun.recv_timeout(PATIENCE), Ok(number));
            }
            section
        })
        .collect();
    let deadlock = deadlocks.recv_timeout(PATIENCE).unwrap();
    let Deadlock::NoHelper {
        helpers, queued, ..
    } = deadlock
    else {
        panic!("{deadlock}");
    };
    assert_eq!((helpers, queued), (2, 1));
    assert!(
        deadlock.to_string().contains("Builder::helpers"),
        "{deadlock}"
    );
    // A thread outside opens the gate.
    gate.open();
    for section in sections {
        section.join().unwrap();
    }
}

/// Without helpers no section could run; and a task cannot be spawned where no worker runs.
#[test]
fn what_a_section_cannot_have_is_refused() {
    let built = Runtime::builder().helpers(0).build();
    assert!(matches!(
        built,
        Err(Error::Setting {
            setting: "helpers",
            ..
        })
    ));
    let runtime = Runtime::builder().schedulers(1).build().unwrap();
    let spawned = runtime.run(|| preemptive(WaitType::PREEMPTIVE_OTHER, || spawn(|| ()).err()));
    assert!(matches!(spawned.unwrap(), Some(Error::NoRuntime)));
}
