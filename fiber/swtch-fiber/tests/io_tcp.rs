//! TCP in both modes, by both drivers, on one scheduler and on two.

mod io_ways;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_ways::in_all_ways;
use swtch_fiber::net::{TcpListener, TcpStream};
use swtch_fiber::sync::Event;
use swtch_fiber::{JoinError, Runtime, sleep, spawn, yield_now};

/// A limit that no test here should come near.
const LONG: Duration = Duration::from_secs(60);

fn local() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port of loopback")
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = local();
    let address = listener.local_addr().expect("bound");
    let near = TcpStream::connect(address).expect("it listens");
    let (far, peer) = listener.accept().expect("it connected");
    assert_eq!(near.local_addr().expect("connected"), peer);
    (near, far)
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let bytes = stream.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..bytes])?;
    }
}

/// A server with many connections is the main purpose of this module.
#[test]
fn a_hundred_connections_get_back_what_they_sent() {
    in_all_ways(|runtime| {
        let served = runtime.run(|| {
            let listener = local();
            let address = listener.local_addr().expect("bound");
            let server = spawn(move || {
                let echoes: Vec<_> = (0..100)
                    .map(|_| {
                        let (stream, _) = listener.accept().expect("somebody connects");
                        spawn(move || echo(stream)).expect("in a runtime")
                    })
                    .collect();
                for echo in echoes {
                    echo.join().expect("no panic").expect("no error");
                }
            });
            let clients: Vec<_> = (0..100_u32)
                .map(|number| {
                    spawn(move || {
                        let mut stream = TcpStream::connect(address).expect("it listens");
                        for turn in 0..10_u32 {
                            let sent = (number * 1000 + turn).to_le_bytes();
                            stream.write_all(&sent).expect("connected");
                            let mut back = [0; 4];
                            stream.read_exact(&mut back).expect("echoed");
                            assert_eq!(sent, back);
                        }
                        stream.shutdown(Shutdown::Write).expect("connected");
                        assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
                        10
                    })
                    .expect("in a runtime")
                })
                .collect();
            let turns: u32 = clients
                .into_iter()
                .map(|client| client.join().expect("no panic"))
                .sum();
            server.expect("in a runtime").join().expect("no panic");
            turns
        });
        assert_eq!(served.expect("no panic"), 1000);
    });
}

/// More bytes than a socket holds are sent in pieces; each byte arrives once and in order.
#[test]
fn a_large_transfer_arrives_whole() {
    const BYTES: usize = 8 << 20;
    let byte = |place: usize| u8::try_from(place % 251).expect("below 251");
    in_all_ways(|runtime| {
        let received = runtime.run(move || {
            let (near, mut far) = pair();
            let full = Arc::new(Event::manual());
            let tell = full.clone();
            let writer = spawn(move || {
                let data: Vec<u8> = (0..BYTES).map(byte).collect();
                // One write does not take everything, since no one reads before it has returned.
                let first = (&near).write(&data).expect("connected");
                tell.set();
                assert!(first < BYTES, "a socket that holds {first} bytes");
                (&near).write_all(&data[first..]).expect("connected");
            });
            full.wait();
            let mut received = Vec::new();
            far.read_to_end(&mut received).expect("connected");
            writer.expect("in a runtime").join().expect("no panic");
            received
        });
        let received = received.expect("no panic");
        assert_eq!(received.len(), BYTES);
        assert!((0..BYTES).all(|place| received[place] == byte(place)));
    });
}

/// One worker reads while another writes to the same connection.
#[test]
fn two_workers_share_a_stream() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let (near, far) = pair();
                let near = Arc::new(near);
                let reads = near.clone();
                let reader = spawn(move || {
                    let mut back = [0; 6];
                    (&*reads).read_exact(&mut back).expect("connected");
                    back
                });
                yield_now();
                let echo = spawn(move || echo(far)).expect("in a runtime");
                (&*near).write_all(b"shared").expect("connected");
                assert_eq!(
                    &reader.expect("in a runtime").join().expect("no panic"),
                    b"shared"
                );
                near.shutdown(Shutdown::Both).expect("connected");
                echo.join().expect("no panic").expect("no error");
            })
            .expect("no panic");
    });
}

/// There is no listener: the kernel's error must be passed on.
#[test]
fn connecting_to_nobody_is_refused() {
    in_all_ways(|runtime| {
        let refused = runtime.run(|| {
            let listener = local();
            let address = listener.local_addr().expect("bound");
            drop(listener);
            TcpStream::connect(address).map(drop)
        });
        let error = refused.expect("no panic").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// A worker that waits at a listener must wake when the listener is shut down.
#[test]
fn a_closed_listener_wakes_who_waits() {
    in_all_ways(|runtime| {
        let accepted = runtime.run(|| {
            let listener = Arc::new(local());
            let waits = listener.clone();
            let waiter = spawn(move || waits.accept().map(drop)).expect("in a runtime");
            sleep(Duration::from_millis(5));
            rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both).expect("it listens");
            waiter.join().expect("no panic")
        });
        let error = accepted.expect("no panic").expect_err("shut down");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

/// A deadline ends the wait, and bytes that come later are not lost.
#[test]
fn a_read_that_timed_out_has_taken_nothing() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let (mut near, mut far) = pair();
                near.set_read_timeout(Some(Duration::from_millis(5)))
                    .expect("not 0");
                let begin = Instant::now();
                let error = near.read(&mut [0; 8]).expect_err("nothing was sent");
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                assert!(begin.elapsed() >= Duration::from_millis(5));
                far.write_all(b"late").expect("connected");
                near.set_read_timeout(Some(LONG)).expect("not 0");
                let mut got = [0; 8];
                assert_eq!(near.read(&mut got).expect("sent"), 4);
                assert_eq!(&got[..4], b"late");
            })
            .expect("no panic");
    });
}

/// Deadlines and data may race, but each byte is read once: none is lost to a deadline.
#[test]
fn no_byte_is_lost_to_deadlines() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let (mut near, mut far) = pair();
                let writer = spawn(move || {
                    for byte in 0..200_u8 {
                        far.write_all(&[byte]).expect("connected");
                        sleep(Duration::from_micros(u64::from(byte) % 7 * 50));
                    }
                });
                near.set_read_timeout(Some(Duration::from_micros(150)))
                    .expect("not 0");
                let mut received = Vec::new();
                let mut buffer = [0; 16];
                loop {
                    match near.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                    }
                }
                assert!(received.iter().copied().eq(0..200), "{received:?}");
                writer.expect("in a runtime").join().expect("no panic");
            })
            .expect("no panic");
    });
}

/// A write that the other end does not read ends with its deadline.
#[test]
fn a_write_without_room_times_out() {
    in_all_ways(|runtime| {
        let ended = runtime.run(|| {
            let (mut near, _far) = pair();
            near.set_write_timeout(Some(Duration::from_millis(5)))
                .expect("not 0");
            let data = vec![0; 1 << 20];
            loop {
                if let Err(error) = near.write(&data) {
                    return error.kind();
                }
            }
        });
        assert_eq!(ended.expect("no panic"), ErrorKind::TimedOut);
    });
}

/// A cancelled task unwinds out of an operation that the kernel has.
#[test]
fn blocked_operations_can_be_cancelled() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let listener = local();
                let (near, _far) = pair();
                let accepts = spawn(move || listener.accept().map(drop)).expect("in a runtime");
                let reads = spawn(move || (&near).read(&mut [0; 64])).expect("in a runtime");
                sleep(Duration::from_millis(5));
                accepts.cancel();
                reads.cancel();
                assert!(matches!(accepts.join(), Err(JoinError::Cancelled)));
                assert!(matches!(reads.join(), Err(JoinError::Cancelled)));
            })
            .expect("no panic");
    });
}

/// Buffers lie on stacks that go away: readers are cancelled at any moment, and their senders
/// continue.
///
/// Few rounds: on one scheduler the canceller, whose sleep has ended, is overtaken by reader and
/// writer a thousand times each, as signalled workers may be (a quarter of a second a round by
/// epoll).
#[test]
fn cancelled_readers_leave_no_buffer_to_the_kernel() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                for round in 0..8_u64 {
                    let (near, mut far) = pair();
                    let reader = spawn(move || {
                        let mut buffer = [0; 4096];
                        while (&near).read(&mut buffer).is_ok_and(|bytes| bytes != 0) {}
                    })
                    .expect("in a runtime");
                    let writer = spawn(move || while far.write_all(&[1; 4096]).is_ok() {});
                    sleep(Duration::from_micros(round * 43));
                    reader.cancel();
                    assert!(matches!(reader.join(), Err(JoinError::Cancelled)));
                    writer.expect("in a runtime").join().expect("no panic");
                }
            })
            .expect("no panic");
    });
}

/// The other end resets the connection, which is an error, and not the end of the stream.
#[test]
fn a_reset_is_an_error() {
    in_all_ways(|runtime| {
        let read = runtime.run(|| {
            let (mut near, far) = pair();
            near.write_all(b"unread").expect("connected");
            let reader = spawn(move || near.read(&mut [0; 8])).expect("in a runtime");
            sleep(Duration::from_millis(2));
            // Closing with unread bytes sends a reset (RFC 2525, 2.17).
            drop(far);
            reader.join().expect("no panic")
        });
        let error = read.expect("no panic").expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// Idle connections need no threads, and do not end anything.
#[test]
fn a_thousand_idle_sockets_wait_and_then_all_wake() {
    raise_descriptors();
    in_all_ways(|runtime| {
        let sum = runtime.run(|| {
            let listener = local();
            let address = listener.local_addr().expect("bound");
            let mut far = Vec::new();
            let readers: Vec<_> = (0..1000)
                .map(|_| {
                    let near = TcpStream::connect(address).expect("it listens");
                    far.push(listener.accept().expect("it connected").0);
                    spawn(move || {
                        let mut byte = [0; 1];
                        (&near).read_exact(&mut byte).expect("sent");
                        u64::from(byte[0])
                    })
                    .expect("in a runtime")
                })
                .collect();
            sleep(Duration::from_millis(5));
            for stream in &mut far {
                stream.write_all(&[3]).expect("connected");
            }
            readers
                .into_iter()
                .map(|reader| reader.join().expect("no panic"))
                .sum::<u64>()
        });
        assert_eq!(sum.expect("no panic"), 3000);
    });
}

/// A runtime can end while the kernel still works for its workers.
#[test]
fn dropping_a_runtime_ends_pending_operations() {
    in_all_ways(|runtime| {
        let waiting: Vec<_> = (0..20)
            .map(|number| {
                let wait = move || {
                    let (near, _far) = pair();
                    if number % 2 == 0 {
                        (&near).read(&mut [0; 512]).map(drop)
                    } else {
                        local().accept().map(drop)
                    }
                };
                runtime.spawn(wait).expect("spawned")
            })
            .collect();
        runtime
            .run(|| sleep(Duration::from_millis(5)))
            .expect("no panic");
        drop(runtime);
        for waiting in waiting {
            assert!(matches!(waiting.join(), Err(JoinError::Cancelled)));
        }
    });
}

/// A runtime can end while its tasks have hardly begun: one that is bound and has not run yet is cancelled
/// too.
#[test]
fn dropping_a_runtime_at_any_moment_ends_it() {
    for round in 0..10 {
        in_all_ways(|runtime| {
            let waiting: Vec<_> = (0..20)
                .map(|_| {
                    let wait = || local().accept().map(drop);
                    runtime.spawn(wait).expect("spawned")
                })
                .collect();
            std::thread::sleep(Duration::from_micros(round * 50));
            drop(runtime);
            for waiting in waiting {
                assert!(matches!(waiting.join(), Err(JoinError::Cancelled)));
            }
        });
    }
}

/// A socket belongs to no scheduler: it may move from one to another between two operations.
#[test]
fn a_stream_serves_workers_of_two_schedulers() {
    in_all_ways(|runtime| {
        if runtime.schedulers() < 2 {
            return;
        }
        runtime
            .run(|| {
                let (near, far) = pair();
                let (near, far) = (Arc::new(near), Arc::new(far));
                let on = |scheduler| swtch_fiber::TaskBuilder::new().on_scheduler(scheduler);
                for turn in 0..20_u8 {
                    let (reads, writes) = (near.clone(), far.clone());
                    let reader = on(u32::from(turn) % 2).spawn(move || {
                        let mut byte = [0; 1];
                        (&*reads).read_exact(&mut byte).expect("sent");
                        byte[0]
                    });
                    let writer = on(u32::from(turn + 1) % 2)
                        .spawn(move || (&*writes).write_all(&[turn]).expect("connected"));
                    assert_eq!(
                        reader.expect("in a runtime").join().expect("no panic"),
                        turn
                    );
                    writer.expect("in a runtime").join().expect("no panic");
                }
            })
            .expect("no panic");
    });
}

/// The same socket works for a thread that is not a worker, which blocks in the kernel.
#[test]
fn threads_outside_use_the_same_sockets() {
    let runtime = Runtime::builder().schedulers(1).build().expect("a runtime");
    let listener = local();
    let address = listener.local_addr().expect("bound");
    let server = runtime.spawn(move || echo(listener.accept()?.0));
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("not 0");
    stream.write_all(b"from outside").expect("connected");
    let mut back = [0; 12];
    stream.read_exact(&mut back).expect("echoed");
    assert_eq!(&back, b"from outside");
    stream
        .set_read_timeout(Some(Duration::from_millis(2)))
        .expect("not 0");
    let error = stream.read(&mut back).expect_err("nothing was sent");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(stream);
    let served = server.expect("spawned").join();
    served.expect("no panic").expect("no error");
}

/// Raises the limit of descriptors to the most that this process may have.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).expect("up to the maximum");
}
