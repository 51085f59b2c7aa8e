//! Tasks in a ring and the executor that polls them, by the means of `std` alone.
//!
//! A task that has the turn works, gives the turn to the next one and wakes it, which puts that one's
//! number into the queue. So each poll is one task more.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::Body;
use super::patch::Patch;

type Queue = Arc<Mutex<VecDeque<usize>>>;

/// Tasks, and those that are ready.
pub(super) struct Tasks {
    tasks: Vec<Asleep>,
    ready: Queue,
}

/// A task, and what wakes it.
type Asleep = (Pin<Box<dyn Future<Output = ()>>>, Waker);

struct Task {
    number: usize,
    ready: Queue,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push_back(self.number);
    }
}

impl Tasks {
    /// A ring of tasks of which the first has the turn.
    pub(super) fn new(bodies: &[Body]) -> Self {
        let ready = Queue::default();
        let turn = Rc::new(Cell::new(0));
        let wakers: Vec<_> = (0..bodies.len())
            .map(|number| {
                let ready = Arc::clone(&ready);
                Waker::from(Arc::new(Task { number, ready }))
            })
            .collect();
        wakers[0].wake_by_ref();
        let task = |(number, body): (usize, &Body)| -> Asleep {
            let next = (number + 1) % bodies.len();
            let patch = match body {
                Body::Nothing => None,
                Body::Patch(seed) => Some(Patch::new(*seed)),
            };
            let wakes = wakers[next].clone();
            let task = take_turns(Rc::clone(&turn), number, next, wakes, patch);
            (Box::pin(task), wakers[number].clone())
        };
        let tasks = bodies.iter().enumerate().map(task).collect();
        Self { tasks, ready }
    }

    /// Polls the task that is ready.
    pub(super) fn poll_next(&mut self) {
        let number = self
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
            .expect("invariant: each task wakes the next before it waits");
        let (task, waker) = &mut self.tasks[number];
        let polled = task.as_mut().poll(&mut Context::from_waker(waker));
        debug_assert!(polled.is_pending(), "invariant: tasks go on for ever");
    }
}

async fn take_turns(
    turn: Rc<Cell<usize>>,
    me: usize,
    next: usize,
    wakes: Waker,
    mut patch: Option<Patch>,
) {
    loop {
        poll_fn(|_| match turn.get() == me {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        if let Some(patch) = &mut patch {
            patch.touch();
        }
        turn.set(next);
        wakes.wake_by_ref();
    }
}
