//! Random programs over all primitives, with random timeouts and cancellations. The invariants are
//! checked at the end: nothing was shared twice, nothing lost, no task left waiting.
//!
//! A failure names its seed; `SWTCH_SEED=N` runs that one alone.

mod sync_common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use swtch_fiber::sync::channel::{self, Receiver, Sender};
use swtch_fiber::sync::{Condvar, Event, Mutex, RwLock, Semaphore};
use swtch_fiber::{Mode, check_quantum, timeout, yield_now};
use sync_common::{runtime, until};

const TASKS: usize = 24;
const STEPS: usize = 60;
const PERMITS: usize = 5;

/// The primitives that the tasks share, and what the tasks observed.
struct World {
    mutex: Mutex<u64>,
    in_mutex: AtomicBool,
    lock: RwLock<u64>,
    /// Number of readers, or -1000 for a writer.
    in_lock: AtomicI64,
    semaphore: Semaphore,
    in_semaphore: AtomicI64,
    sender: Sender<u64>,
    receiver: Receiver<u64>,
    next_message: AtomicU64,
    sent: std::sync::Mutex<Vec<u64>>,
    received: std::sync::Mutex<Vec<u64>>,
    event: Event,
    sets: AtomicU64,
    passes: AtomicU64,
    condvar: Condvar,
}

/// Undoes a count when the task unwinds out of a critical section.
struct Inside<'a>(&'a AtomicI64, i64);

impl<'a> Inside<'a> {
    fn new(count: &'a AtomicI64, weight: i64) -> (Self, i64) {
        let before = count.fetch_add(weight, Ordering::SeqCst);
        (Self(count, weight), before)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

fn short(random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(0..300))
}

impl World {
    fn new(capacity: usize) -> Self {
        let (sender, receiver) = channel::bounded(capacity);
        Self {
            mutex: Mutex::new(0),
            in_mutex: AtomicBool::new(false),
            lock: RwLock::new(0),
            in_lock: AtomicI64::new(0),
            semaphore: Semaphore::new(PERMITS),
            in_semaphore: AtomicI64::new(0),
            sender,
            receiver,
            next_message: AtomicU64::new(0),
            sent: std::sync::Mutex::default(),
            received: std::sync::Mutex::default(),
            event: Event::automatic(),
            sets: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            condvar: Condvar::new(),
        }
    }

    fn pause(random: &mut Rng) {
        match random.u8(0..4) {
            0 => yield_now(),
            1 => drop(check_quantum()),
            2 => swtch_fiber::sleep(Duration::from_micros(random.u64(0..100))),
            _ => {}
        }
    }

    fn step(&self, random: &mut Rng) {
        match random.u8(0..9) {
            0 => self.add(random),
            1 => self.read(random),
            2 => self.write(random),
            3 => self.use_permits(random),
            4 | 5 => self.send(random),
            6 => self.receive(random),
            7 if random.bool() => {
                self.sets.fetch_add(1, Ordering::SeqCst);
                self.event.set();
            }
            7 => {
                if self.event.wait_timeout(short(random)) {
                    self.passes.fetch_add(1, Ordering::SeqCst);
                }
            }
            _ => self.wait_for_a_notification(random),
        }
    }

    fn add(&self, random: &mut Rng) {
        let guard = if random.bool() {
            Some(self.mutex.lock())
        } else {
            self.mutex.lock_timeout(short(random))
        };
        if let Some(mut value) = guard {
            struct Out<'a>(&'a AtomicBool);
            impl Drop for Out<'_> {
                fn drop(&mut self) {
                    self.0.store(false, Ordering::SeqCst);
                }
            }
            assert!(
                !self.in_mutex.swap(true, Ordering::SeqCst),
                "two have the mutex"
            );
            let _out = Out(&self.in_mutex);
            Self::pause(random);
            *value += 1;
            self.condvar.notify_one();
        }
    }

    fn read(&self, random: &mut Rng) {
        if let Some(value) = self.lock.read_timeout(short(random)) {
            let (_inside, before) = Inside::new(&self.in_lock, 1);
            assert!(before >= 0, "a reader beside a writer");
            let seen = *value;
            Self::pause(random);
            assert_eq!(*value, seen, "it changed under a reader");
        }
    }

    fn write(&self, random: &mut Rng) {
        let mut value = self.lock.write();
        let (_inside, before) = Inside::new(&self.in_lock, -1000);
        assert_eq!(before, 0, "a writer is not alone");
        Self::pause(random);
        *value += 1;
    }

    fn use_permits(&self, random: &mut Rng) {
        let count = random.usize(1..=PERMITS);
        let weight = i64::try_from(count).expect("few");
        let permit = if random.bool() {
            Some(self.semaphore.acquire_many(count))
        } else {
            self.semaphore.acquire_many_timeout(count, short(random))
        };
        if permit.is_some() {
            let (_inside, before) = Inside::new(&self.in_semaphore, weight);
            assert!(before + weight <= 5, "more permits than there are");
            Self::pause(random);
        }
    }

    fn send(&self, random: &mut Rng) {
        let message = self.next_message.fetch_add(1, Ordering::SeqCst);
        let sent = match random.u8(0..3) {
            0 => self.sender.try_send(message).is_ok(),
            1 => self.sender.send_timeout(message, short(random)).is_ok(),
            // Cut off by the timeout around it: the message was sent or not sent, never both.
            _ => matches!(
                timeout(short(random), || self.sender.send(message)),
                Ok(Ok(()))
            ),
        };
        if sent {
            self.sent.lock().expect("not poisoned").push(message);
        }
    }

    fn receive(&self, random: &mut Rng) {
        let received = match random.u8(0..3) {
            0 => self.receiver.try_recv().ok(),
            1 => self.receiver.recv_timeout(short(random)).ok(),
            _ => timeout(short(random), || self.receiver.recv())
                .ok()
                .and_then(Result::ok),
        };
        if let Some(message) = received {
            self.received.lock().expect("not poisoned").push(message);
        }
    }

    fn wait_for_a_notification(&self, random: &mut Rng) {
        let guard = self.mutex.lock();
        let (guard, _notified) = self.condvar.wait_timeout(guard, short(random));
        assert!(!self.in_mutex.load(Ordering::SeqCst), "two have the mutex");
        drop(guard);
    }

    /// Checks the invariants after all tasks have ended.
    fn check(&self, what: &str) {
        assert!(
            self.mutex.try_lock().is_some(),
            "{what}: the mutex is held by nobody"
        );
        assert!(
            self.lock.try_write().is_some(),
            "{what}: the lock is held by nobody"
        );
        assert_eq!(self.semaphore.available_permits(), PERMITS, "{what}");
        let mut received = self.received.lock().expect("not poisoned");
        while let Ok(message) = self.receiver.try_recv() {
            received.push(message);
        }
        let once: HashSet<_> = received.iter().copied().collect();
        assert_eq!(once.len(), received.len(), "{what}: a message came twice");
        let sent: HashSet<_> = self
            .sent
            .lock()
            .expect("not poisoned")
            .iter()
            .copied()
            .collect();
        assert_eq!(once, sent, "{what}: received is not what was sent");
        let left = u64::from(self.event.wait_timeout(Duration::ZERO));
        let (sets, passes) = (
            self.sets.load(Ordering::SeqCst),
            self.passes.load(Ordering::SeqCst),
        );
        assert!(
            passes + left <= sets,
            "{what}: {passes} passed, {sets} times set"
        );
        assert!(!self.condvar.notify_one(), "{what}: somebody still waits");
    }
}

fn run_case(mode: Mode, schedulers: usize, seed: u64) {
    let what = format!("seed {seed}, {mode:?}, {schedulers} schedulers");
    let mut random = Rng::with_seed(seed);
    let world = Arc::new(World::new([0, 1, 4, usize::MAX][random.usize(0..4)]));
    let runtime = runtime(mode, schedulers);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (world, mut random) = (world.clone(), random.fork());
            let body = move || (0..STEPS).for_each(|_| world.step(&mut random));
            runtime.spawn(body).expect("spawned")
        })
        .collect();
    let outside = {
        let (world, mut random) = (world.clone(), random.fork());
        std::thread::spawn(move || (0..STEPS).for_each(|_| world.step(&mut random)))
    };
    for _ in 0..TASKS {
        tasks[random.usize(0..TASKS)].cancel();
        std::thread::sleep(Duration::from_micros(random.u64(0..400)));
    }
    until(&what, || {
        outside.is_finished() && tasks.iter().all(swtch_fiber::JoinHandle::is_finished)
    });
    for task in tasks {
        if let Err(error) = task.join() {
            assert!(error.to_string().contains("cancelled"), "{what}: {error}");
        }
    }
    assert!(outside.join().is_ok(), "{what}");
    world.check(&what);
    for scheduler in runtime.counters() {
        assert_eq!(scheduler.load_factor, 0, "{what}");
        for waits in scheduler.waits {
            let (begun, ended) = (waits.waiting_tasks_count, waits.completed_count);
            assert!(
                ended <= begun,
                "{what}: {}: {ended} of {begun}",
                waits.wait_type
            );
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("SWTCH_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..6).collect(),
    }
}

/// One scheduler: all races are between waits, timeouts and the other threads.
#[test]
fn nothing_is_lost_on_one_scheduler() {
    for seed in seeds() {
        run_case(Mode::Fiber, 1, seed);
        run_case(Mode::Thread, 1, seed);
    }
}

/// Several schedulers: signals go from thread to thread.
#[test]
fn nothing_is_lost_between_schedulers() {
    for seed in seeds() {
        run_case(Mode::Fiber, 4, seed);
        run_case(Mode::Thread, 3, seed);
    }
}
