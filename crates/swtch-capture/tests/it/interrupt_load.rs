//! A load that keeps every CPU busy with interrupts. Each kind of wait in it has one known kind of
//! waker.
//!
//! ```text
//!  who waits            for what                      woken by
//!  lockers              a mutex (futex, no timeout)   a task: the thread that unlocks
//!  writers              a pair of UNIX sockets        a task: the thread that writes
//!  sleepers             20 to 200 µs                  the timer interrupt
//!  receivers            UDP over loopback             a softirq: NET_RX, run by the sender's CPU
//!  readers              a page of a file, O_DIRECT    the disk's interrupt, or a softirq
//! ```
//!
//! The senders of UDP make it hard: their CPUs are inside a softirq for much of the time.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The thing that a thread of the load waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadRole {
    /// A mutex that other threads hold.
    Locker,
    /// A byte from a UNIX socket.
    Writer,
    /// A time from 20 to 200 µs.
    Sleeper,
    /// A datagram over the loopback device.
    Receiver,
    /// Nothing: it sends datagrams all the time.
    Sender,
    /// A page from the disk, uncached.
    Reader,
}

/// The running load, which ends when it is dropped.
pub struct InterruptLoad {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    roles: Receiver<(u32, ThreadRole)>,
}

impl InterruptLoad {
    /// Starts the threads of all roles.
    pub fn start() -> Self {
        let (tell, roles) = channel();
        let mut load = Self {
            is_over: Arc::default(),
            threads: Vec::new(),
            roles,
        };
        load.add_lockers(&tell);
        load.add_writers(&tell);
        load.add_datagrams(&tell);
        for micros in [20, 50, 200] {
            load.add(&tell, ThreadRole::Sleeper, move |is_over| {
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_micros(micros));
                }
            });
        }
        load.add(&tell, ThreadRole::Reader, read_uncached);
        load
    }

    /// The threads that have started so far: kernel thread id and role.
    pub fn roles(&self) -> impl Iterator<Item = (u32, ThreadRole)> {
        self.roles.try_iter()
    }

    fn add(
        &mut self,
        tell: &Sender<(u32, ThreadRole)>,
        role: ThreadRole,
        body: impl FnOnce(&AtomicBool) + Send + 'static,
    ) {
        let (tell, is_over) = (tell.clone(), Arc::clone(&self.is_over));
        self.threads.push(thread::spawn(move || {
            // SAFETY: has no arguments and cannot fail.
            let tid = unsafe { libc::gettid() };
            tell.send((tid.cast_unsigned(), role))
                .expect("the load outlives its threads");
            body(&is_over);
        }));
    }

    fn add_lockers(&mut self, tell: &Sender<(u32, ThreadRole)>) {
        let lock = Arc::new(Mutex::new(0u64));
        for _ in 0..8 {
            let lock = Arc::clone(&lock);
            self.add(tell, ThreadRole::Locker, move |is_over| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut held = lock.lock().expect("nobody panics with it");
                    for _ in 0..2_000 {
                        *held = std::hint::black_box(*held + 1);
                    }
                }
            });
        }
    }

    fn add_writers(&mut self, tell: &Sender<(u32, ThreadRole)>) {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        self.add(tell, ThreadRole::Writer, move |is_over| {
            let mut byte = [0];
            while !is_over.load(Ordering::Relaxed) {
                ours.write_all(&byte).expect("the peer reads");
                ours.read_exact(&mut byte).expect("the peer answers");
            }
        });
        self.add(tell, ThreadRole::Writer, move |_| {
            let mut byte = [0];
            // The thread ends with its peer's socket.
            while theirs.read_exact(&mut byte).is_ok() && theirs.write_all(&byte).is_ok() {}
        });
    }

    /// Two senders that never wait, and two receivers. A receiver checks every 50 ms whether the
    /// load is over.
    fn add_datagrams(&mut self, tell: &Sender<(u32, ThreadRole)>) {
        for _ in 0..2 {
            let receiver = UdpSocket::bind("127.0.0.1:0").expect("a loopback port");
            let address = receiver.local_addr().expect("the port has a number");
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a loopback port");
            self.add(tell, ThreadRole::Receiver, move |is_over| {
                receiver
                    .set_read_timeout(Some(Duration::from_millis(50)))
                    .expect("a time above 0");
                let mut bytes = [0; 64];
                while !is_over.load(Ordering::Relaxed) {
                    // A time-out is an answer, too.
                    let _ = receiver.recv(&mut bytes);
                }
            });
            self.add(tell, ThreadRole::Sender, move |is_over| {
                while !is_over.load(Ordering::Relaxed) {
                    // A full buffer at the receiver drops datagrams, which is no error here.
                    let _ = sender.send_to(&[0; 16], address);
                }
            });
        }
    }
}

impl Drop for InterruptLoad {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "a thread of the load failed"
            );
        }
    }
}

/// Reads this program's own file from the disk, by `O_DIRECT` where the file system has it.
pub fn read_uncached(is_over: &AtomicBool) {
    #[repr(align(4096))]
    struct AlignedPage([u8; 4096]);
    let path = std::env::current_exe().expect("the test has a file");
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    let file = direct
        .or_else(|_| File::open(&path))
        .expect("the test's file can be read");
    let pages = file.metadata().expect("the file is there").len() / 4096;
    let mut page = AlignedPage([0; 4096]);
    for number in (0..pages).step_by(7).cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        file.read_exact_at(&mut page.0, number * 4096)
            .expect("a page of the file");
        thread::sleep(Duration::from_millis(1));
    }
}
