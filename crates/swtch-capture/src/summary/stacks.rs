//! The stacks of one task's switches, while it is watched: the user side of `bpf/summary_stacks.h`.

use libbpf_rs::{MapCore, MapFlags};
use swtch_core::{Nanos, StackNumbers, SwitchGroup, TaskKey, Timestamp};
use swtch_wire::stack_numbers;

use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::load::Capture;
use crate::skeleton::recorder::types::{stack_sums, stack_sums_key};

/// Sums over the switches of a group that left the CPU at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSums {
    /// The group of these switches: what the rules read of them.
    pub group: SwitchGroup,
    /// The stacks of the place where the task was.
    pub stacks: StackNumbers,
    /// Number of switch-outs whose wait has ended in a run.
    pub switches: u64,
    /// Time of these waits.
    pub off: Nanos,
    /// The part of it in which the task waited for a CPU, where that is known.
    pub runq: Nanos,
}

impl Capture {
    /// From now on the stacks of this task's switches are taken, and of no other's: the sums of the task
    /// before are gone. Returns the time from which on switch-outs have stacks. The capture must have been
    /// started with [`Settings::watches_stacks`].
    ///
    /// # Errors
    /// When the kernel refuses to remove a sum.
    ///
    /// [`Settings::watches_stacks`]: crate::Settings::watches_stacks
    pub fn watch_stacks(&mut self, task: Option<TaskKey>) -> Result<Timestamp, Error> {
        self.set_watched(TaskKey::IDLE, 0);
        clear("stack_sums", self.stack_sums_map())?;
        clear("kernel_stacks", self.kernel_stacks())?;
        clear("user_stacks", self.user_stacks())?;
        let since = monotonic_ns();
        if let Some(task) = task {
            self.set_watched(task, since);
        }
        Ok(Timestamp::from_ns(since))
    }

    /// The sums of the task that is watched, in no order. What is read of a sum while it is written may be
    /// half of a change.
    ///
    /// # Errors
    /// When the kernel refuses to look one up.
    pub fn stack_sums(&self) -> Result<Vec<StackSums>, Error> {
        let map = self.stack_sums_map();
        let mut found = Vec::new();
        for key in map.keys() {
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(failed("stack_sums"))?;
            found.extend(value.and_then(|value| sums(&key, &value)));
        }
        Ok(found)
    }
}

fn clear(name: &'static str, map: &impl MapCore) -> Result<(), Error> {
    let keys: Vec<Vec<u8>> = map.keys().collect();
    for key in keys {
        match map.delete(&key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                return Err(failed(name)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn failed(map: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |source| Error::Map { map, source }
}

/// The sums in the bytes of a key and a value; `None` for those of another layout.
fn sums(key: &[u8], value: &[u8]) -> Option<StackSums> {
    let sized = key.len() == size_of::<stack_sums_key>() && value.len() == size_of::<stack_sums>();
    if !sized {
        return None;
    }
    // SAFETY: the bytes are as many as the struct has, and any are one (plain numbers).
    let key = unsafe { key.as_ptr().cast::<stack_sums_key>().read_unaligned() };
    // SAFETY: as above.
    let value = unsafe { value.as_ptr().cast::<stack_sums>().read_unaligned() };
    // SAFETY: both variants of the union are plain numbers, so any bytes are a key.
    let group = super::group(unsafe { &key.group.key })?;
    Some(StackSums {
        group,
        stacks: stack_numbers(key.kernel_stack, key.user_stack),
        switches: value.switches,
        off: Nanos::from_ns(value.off_ns),
        runq: Nanos::from_ns(value.runq_ns),
    })
}
