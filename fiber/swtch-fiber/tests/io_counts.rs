//! The count of pending operations in the shared page. Alone in its process, whose page it reads.

mod io_ways;

use std::io::{Read, Write};
use std::time::Duration;

use io_ways::in_all_ways;
use swtch_fiber::net::{TcpListener, TcpStream};
use swtch_fiber::observe::Page;
use swtch_fiber::{sleep, spawn};

/// Operations that have not ended, on all schedulers.
fn pending() -> u32 {
    let page = Page::of_process(std::process::id()).expect("there is a runtime");
    let snapshot = page.snapshot().expect("readable");
    let schedulers = snapshot.schedulers.iter();
    schedulers.map(|scheduler| scheduler.pending_io_count).sum()
}

/// Waits until the count has this value; hangs, and so fails, if it never does.
fn until_pending(count: u32) {
    while pending() != count {
        sleep(Duration::from_micros(100));
    }
}

/// The count goes up with each wait, and down however the wait ends.
#[test]
fn pending_operations_are_counted_exactly() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
                let address = listener.local_addr().expect("bound");
                let mut far = Vec::new();
                let readers: Vec<_> = (0..10)
                    .map(|number| {
                        let near = TcpStream::connect(address).expect("it listens");
                        far.push(listener.accept().expect("it connected").0);
                        if number < 2 {
                            let soon = Some(Duration::from_millis(20));
                            near.set_read_timeout(soon).expect("not 0");
                        }
                        spawn(move || (&near).read(&mut [0; 8])).expect("in a runtime")
                    })
                    .collect();
                // Eight wait without end. Two come and go with their deadlines.
                until_pending(8);
                for stream in &mut far[2..5] {
                    stream.write_all(b"x").expect("connected");
                }
                until_pending(5);
                for reader in &readers[5..8] {
                    reader.cancel();
                }
                until_pending(2);
                drop(far);
                for reader in readers {
                    // Ended by data, the end of the stream, a deadline or a cancellation.
                    let _ended = reader.join();
                }
                until_pending(0);
            })
            .expect("no panic");
    });
}
