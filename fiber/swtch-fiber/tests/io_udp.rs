//! UDP in both modes, by both drivers, on one scheduler and on two.

mod io_ways;

use std::io::ErrorKind;
use std::time::Duration;

use io_ways::in_all_ways;
use swtch_fiber::net::UdpSocket;
use swtch_fiber::{JoinError, sleep, spawn};

fn local() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a port of loopback")
}

/// A datagram arrives whole, with the address of its sender.
#[test]
fn a_datagram_comes_back() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let server = local();
                let address = server.local_addr().expect("bound");
                let echo = spawn(move || {
                    let mut buffer = [0; 64];
                    for _ in 0..20 {
                        let (bytes, peer) = server.recv_from(&mut buffer).expect("sent");
                        server.send_to(&buffer[..bytes], &peer).expect("bound");
                    }
                })
                .expect("in a runtime");
                let client = local();
                client.connect(address).expect("any address will do");
                assert_eq!(client.peer_addr().expect("connected"), address);
                for length in 1..=20 {
                    let datagram = vec![7; length];
                    client.send(&datagram).expect("connected");
                    let mut back = [0; 64];
                    assert_eq!(client.recv(&mut back).expect("echoed"), length);
                    assert_eq!(back[..length], datagram);
                }
                echo.join().expect("no panic");
            })
            .expect("no panic");
    });
}

/// Datagrams get lost, so a receiver must be able to stop waiting.
#[test]
fn a_receive_times_out_and_can_be_cancelled() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let socket = local();
                socket
                    .set_read_timeout(Some(Duration::from_millis(3)))
                    .expect("not 0");
                let error = socket.recv_from(&mut [0; 8]).expect_err("nothing was sent");
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                socket.set_read_timeout(None).expect("none is allowed");
                let receives = spawn(move || socket.recv_from(&mut [0; 8]).map(drop));
                let receives = receives.expect("in a runtime");
                sleep(Duration::from_millis(3));
                receives.cancel();
                assert!(matches!(receives.join(), Err(JoinError::Cancelled)));
            })
            .expect("no panic");
    });
}

/// A timeout of 0 could mean "none" or "at once": std refuses it, and so do we.
#[test]
fn a_timeout_of_nothing_is_refused() {
    let error = local().set_read_timeout(Some(Duration::ZERO));
    assert_eq!(error.expect_err("refused").kind(), ErrorKind::InvalidInput);
}
