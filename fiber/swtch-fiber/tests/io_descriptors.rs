//! Without free descriptors there are errors, and no endless waits. Alone in its process, whose
//! limit it lowers.

mod io_ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_ways::in_all_ways_of;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use swtch_fiber::fs::File;
use swtch_fiber::net::{TcpListener, TcpStream, UdpSocket};
use swtch_fiber::{Builder, Runtime, TaskBuilder, sleep, spawn};

/// Opens files until there is no descriptor left.
fn use_up_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// The monitor that looks for stalls opens files of `/proc`. It could hold a descriptor while all
/// are used up, and free it just when there should be none.
fn unwatched() -> Builder {
    Runtime::builder().stall_threshold(Duration::ZERO)
}

/// A driver is made by the first wait on its scheduler, and needs a descriptor itself.
fn make_drivers(runtime: &Runtime) {
    for scheduler in 0..runtime.schedulers() {
        let on = TaskBuilder::new().on_scheduler(u32::try_from(scheduler).expect("1 or 2"));
        let wait = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port of loopback");
            socket
                .set_read_timeout(Some(Duration::from_micros(1)))
                .expect("not 0");
            socket.recv(&mut [0; 1]).expect_err("nothing was sent");
        };
        let waited = runtime.spawn_with(on, wait).expect("spawned").join();
        waited.expect("no panic");
    }
}

type Flag = Arc<AtomicBool>;

fn raise(flag: &Flag) {
    flag.store(true, Ordering::SeqCst);
}

fn wait_for(flag: &Flag) {
    while !flag.load(Ordering::SeqCst) {
        sleep(Duration::from_micros(100));
    }
}

/// Accepting and connecting fail; calls that already wait continue to wait, and succeed later.
#[test]
fn without_descriptors_there_is_an_error_and_not_a_hang() {
    let before = getrlimit(Resource::Nofile);
    let lowered = Rlimit {
        current: Some(200),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, lowered).expect("lower is always allowed");
    in_all_ways_of(unwatched, |runtime| {
        make_drivers(&runtime);
        runtime
            .run(|| {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
                let address = listener.local_addr().expect("bound");
                let [begins, failed, connected] = [(); 3].map(|()| Flag::default());
                let [tells_begins, tells_failed] = [&begins, &failed].map(Arc::clone);
                let learns_connected = Arc::clone(&connected);
                let waiter = spawn(move || {
                    raise(&tells_begins);
                    let first = listener.accept().map(drop);
                    raise(&tells_failed);
                    // A call without a pending connection has a descriptor for a moment. That is
                    // the last one, which the other side needs to connect.
                    wait_for(&learns_connected);
                    // The connection stays in the kernel until there is a descriptor for it.
                    let second = loop {
                        match listener.accept() {
                            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                                sleep(Duration::from_millis(1));
                            }
                            ended => break ended.map(drop),
                        }
                    };
                    (first, second)
                });
                wait_for(&begins);
                sleep(Duration::from_millis(2));
                let mut all = use_up_descriptors();
                let refused = TcpStream::connect(address).expect_err("no descriptor");
                assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
                let refused = File::open("/dev/null").expect_err("no descriptor");
                assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
                // One for this end, none for the other end.
                all.pop();
                let near = TcpStream::connect(address).expect("one descriptor");
                wait_for(&failed);
                raise(&connected);
                drop(all);
                let (first, second) = waiter.expect("in a runtime").join().expect("no panic");
                let first = first.expect_err("no descriptor");
                assert_eq!(first.raw_os_error(), Some(libc::EMFILE));
                second.expect("many descriptors");
                drop(near);
            })
            .expect("no panic");
    });
    in_all_ways_of(unwatched, |runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let all = use_up_descriptors();
        // There is no descriptor for the driver itself.
        let error = runtime.run(move || listener.accept().map(drop));
        let error = error.expect("no panic").expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        drop(all);
    });
    setrlimit(Resource::Nofile, before).expect("as it was");
}
