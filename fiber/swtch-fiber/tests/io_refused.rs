//! If the kernel refuses `io_uring` (by a seccomp filter, as in containers;
//! `kernel.io_uring_disabled` gives the same answer), sockets and files use epoll, and the views
//! show why.

mod child;

use std::io::{Read, Write};

use child::{PATIENCE, in_a_child, is_child};
use swtch_fiber::net::{TcpListener, TcpStream};
use swtch_fiber::observe::{IoDriver, Page};
use swtch_fiber::{Error, Io, Mode, Runtime, spawn};

/// From here on the kernel refuses to set up rings for this process.
fn refuse_io_uring() {
    let instruction = |code: u32, value: u32, otherwise: u8| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: 0,
        jf: otherwise,
        k: value,
    };
    let number = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        instruction(libc::BPF_RET | libc::BPF_K, refuse, 0),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes numbers only.
    let without_rights = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(without_rights, 0);
    // SAFETY: the program and its instructions are readable.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The driver that the page shows for the live scheduler.
fn driver() -> Option<IoDriver> {
    let page = Page::of_process(std::process::id()).expect("there is a runtime");
    page.snapshot().expect("readable").schedulers[0].io_driver
}

fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    let address = listener.local_addr().expect("bound");
    let far = spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it sends");
        stream.write_all(&byte).expect("it reads");
    });
    let mut near = TcpStream::connect(address).expect("it listens");
    near.write_all(b"x").expect("it reads");
    let mut byte = [0];
    near.read_exact(&mut byte).expect("it sends back");
    assert_eq!(&byte, b"x");
    far.expect("it starts").join().expect("no panic");
}

/// If it is refused, epoll is used, and the views show that; a program that insists on it gets an
/// error.
#[test]
fn without_io_uring_epoll_serves_and_says_so() {
    const NAME: &str = "without_io_uring_epoll_serves_and_says_so";
    if is_child(NAME) {
        refuse_io_uring();
        let asked = Runtime::builder().schedulers(1).io(Io::Uring).build();
        let error = asked.map(drop).expect_err("it is refused");
        assert!(matches!(error, Error::IoUring { .. }), "{error}");
        assert!(
            error.to_string().contains("kernel.io_uring_disabled"),
            "{error}"
        );
        let runtime = Runtime::builder().schedulers(1).build().expect("a runtime");
        assert_eq!(runtime.io_driver(), Io::Epoll);
        assert_eq!(driver(), Some(IoDriver::EpollSinceRefused));
        runtime.run(echo).expect("no panic");
        return;
    }
    let output = in_a_child(NAME, &[], PATIENCE);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// In thread mode epoll is the choice, and nothing was refused.
#[test]
fn a_driver_by_choice_is_told_apart() {
    let runtime = Runtime::builder().schedulers(1).mode(Mode::Thread).build();
    let runtime = runtime.expect("a runtime");
    assert_eq!(driver(), Some(IoDriver::Epoll));
    drop(runtime);
}
