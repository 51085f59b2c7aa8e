//! Runs tests with both drivers, both modes, and different numbers of schedulers.

use swtch_fiber::{Builder, Error, Io, Mode, Runtime};

/// Runs a test by both drivers, in both modes, on one scheduler and on two.
#[allow(
    dead_code,
    reason = "some tests have only runtimes of their own making"
)]
pub fn in_all_ways(test: impl Fn(Runtime)) {
    in_all_ways_of(Runtime::builder, test);
}

/// As [`in_all_ways`], with runtimes that the test configures.
pub fn in_all_ways_of(builder: impl Fn() -> Builder, test: impl Fn(Runtime)) {
    for io in [Io::Uring, Io::Epoll] {
        for mode in [Mode::Fiber, Mode::Thread] {
            for schedulers in [1, 2] {
                let builder = builder().io(io).mode(mode).schedulers(schedulers);
                let runtime = match builder.build() {
                    Ok(runtime) => runtime,
                    // If the kernel refuses io_uring, only epoll is tested.
                    Err(Error::IoUring { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(runtime.io_driver(), io);
                // Shown when the test fails.
                eprintln!("{io:?} {mode:?} {schedulers}");
                test(runtime);
            }
        }
    }
}
