//! A token as a message of one byte in a POSIX message queue.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Token;
use crate::error::{Error, checked};

/// A queue for one message, whose name is removed as soon as it is open.
#[derive(Debug)]
pub(crate) struct MessageQueue(libc::mqd_t);

impl MessageQueue {
    pub(crate) fn new() -> Result<Self, Error> {
        static QUEUES: AtomicU32 = AtomicU32::new(0);
        let number = QUEUES.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("/swtch-{}-{number}", std::process::id()))
            .expect("invariant: digits hold no NUL");
        // SAFETY: an all-zero mq_attr is a valid one.
        let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
        attributes.mq_maxmsg = 1;
        attributes.mq_msgsize = 1;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: name and attributes live across the call; with O_CREAT it takes four arguments.
        let queue = unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, &raw const attributes) };
        let queue = checked("mq_open", queue).map(Self)?;
        // SAFETY: the name lives across the call.
        checked("mq_unlink", unsafe { libc::mq_unlink(name.as_ptr()) })?;
        Ok(queue)
    }
}

impl Token for MessageQueue {
    fn pass(&self) -> Result<(), Error> {
        // SAFETY: one byte is passed, and it is there.
        checked("mq_send", unsafe {
            libc::mq_send(self.0, c"t".as_ptr(), 1, 0)
        })
        .map(drop)
    }

    fn take(&self) -> Result<(), Error> {
        let mut byte: libc::c_char = 0;
        // SAFETY: the buffer is as long as the queue's messages; no priority is asked for.
        let length = unsafe { libc::mq_receive(self.0, &mut byte, 1, ptr::null_mut()) };
        checked("mq_receive", length).map(drop)
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and not used after this.
        unsafe { libc::mq_close(self.0) };
    }
}
