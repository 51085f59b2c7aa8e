//! A ring of tasks and the executor that polls them, built on `std` alone.
//!
//! A task that has the turn works, gives the turn to the next task and wakes it, which pushes the
//! next task's number onto the queue. So each poll is one hop.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::CoroutineBody;
use super::patch::Patch;

type Queue = Arc<Mutex<VecDeque<usize>>>;

/// All tasks, and the queue of ready ones.
pub(super) struct Tasks {
    tasks: Vec<TaskAndWaker>,
    ready: Queue,
}

/// A task and its own waker.
type TaskAndWaker = (Pin<Box<dyn Future<Output = ()>>>, Waker);

/// The waker of a task: it pushes the task's number onto the queue.
struct TaskWaker {
    number: usize,
    ready: Queue,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push_back(self.number);
    }
}

impl Tasks {
    /// A ring of tasks; the first one has the turn.
    pub(super) fn new(bodies: &[CoroutineBody]) -> Self {
        let ready = Queue::default();
        let turn = Rc::new(Cell::new(0));
        let wakers: Vec<_> = (0..bodies.len())
            .map(|number| {
                let ready = Arc::clone(&ready);
                Waker::from(Arc::new(TaskWaker { number, ready }))
            })
            .collect();
        wakers[0].wake_by_ref();
        let task = |(number, body): (usize, &CoroutineBody)| -> TaskAndWaker {
            let next = (number + 1) % bodies.len();
            let patch = match body {
                CoroutineBody::Nothing => None,
                CoroutineBody::Patch(seed) => Some(Patch::new(*seed)),
            };
            let wakes = wakers[next].clone();
            let task = take_turns(Rc::clone(&turn), number, next, wakes, patch);
            (Box::pin(task), wakers[number].clone())
        };
        let tasks = bodies.iter().enumerate().map(task).collect();
        Self { tasks, ready }
    }

    /// Polls the next ready task.
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
