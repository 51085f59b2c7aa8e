//! `glommio`: stackless tasks on one thread with `io_uring`, and shares among its queues.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use glommio::{LocalExecutorBuilder, Placement, executor, spawn_local};

use crate::protocol::{Meter, serve};

/// Two tasks of one queue that yield to each other, unconditionally.
pub fn yields() -> io::Result<()> {
    let local = LocalExecutorBuilder::new(Placement::Unbound)
        .make()
        .map_err(|error| io::Error::other(error.to_string()))?;
    serve("glommio 0.9", |operations| {
        local.run(async move {
            let count = Rc::new(Cell::new(0));
            let meter = Meter::start();
            let pair = [0, 1].map(|_| {
                let count = Rc::clone(&count);
                spawn_local(async move {
                    for _ in 0..operations / 2 {
                        count.set(count.get() + 1);
                        executor().yield_now().await;
                    }
                })
            });
            for one in pair {
                one.await;
            }
            meter.stop(count.get())
        })
    })
}
