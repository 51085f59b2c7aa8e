//! Looks at tasks that wait as bytes of `records.raw`, written here and read here: little-endian numbers.

use swtch_core::{LookEvent, LookedTask, Nanos, StackNumbers, TaskKey, Timestamp};

const LOOK_BYTES: usize = 40;

/// Stands for a stack that was not read.
const NO_STACK: u32 = u32::MAX;

/// In place of the time since the look before: the stacks are the waker's.
const OF_WAKER: u64 = u64::MAX;

/// Appends a look to `bytes`.
pub fn encode_look(look: &LookEvent, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&look.ts.as_ns().to_le_bytes());
    bytes.extend_from_slice(&look.out.as_ns().to_le_bytes());
    let (between, holder) = match look.whose {
        LookedTask::Waiter { between, holder } => (between.as_ns(), holder),
        LookedTask::Waker => (OF_WAKER, None),
    };
    bytes.extend_from_slice(&between.to_le_bytes());
    bytes.extend_from_slice(&look.task.get().to_le_bytes());
    for stack in [look.stacks.kernel, look.stacks.user, holder] {
        bytes.extend_from_slice(&stack.unwrap_or(NO_STACK).to_le_bytes());
    }
}

/// Passes on the looks in the bytes of a block. Returns the number of places where they are unreadable: 1 if they end
/// with something else than a look, and 0 otherwise.
pub fn decode_looks(bytes: &[u8], mut sink: impl FnMut(LookEvent)) -> u64 {
    let looks = bytes.chunks_exact(LOOK_BYTES);
    let rest = looks.remainder();
    looks.filter_map(decoded).for_each(&mut sink);
    u64::from(!rest.is_empty())
}

fn decoded(look: &[u8]) -> Option<LookEvent> {
    let (ts, rest) = look.split_first_chunk()?;
    let (out, rest) = rest.split_first_chunk()?;
    let (between, rest) = rest.split_first_chunk()?;
    let (task, rest) = rest.split_first_chunk()?;
    let (kernel, rest) = rest.split_first_chunk()?;
    let (user, rest) = rest.split_first_chunk()?;
    let number = |bytes| Some(u32::from_le_bytes(bytes)).filter(|number| *number != NO_STACK);
    let whose = match u64::from_le_bytes(*between) {
        OF_WAKER => LookedTask::Waker,
        between => LookedTask::Waiter {
            between: Nanos::from_ns(between),
            holder: number(*rest.first_chunk()?),
        },
    };
    Some(LookEvent {
        ts: Timestamp::from_ns(u64::from_le_bytes(*ts)),
        out: Timestamp::from_ns(u64::from_le_bytes(*out)),
        task: TaskKey::new(u32::from_le_bytes(*task)),
        whose,
        stacks: StackNumbers {
            kernel: number(*kernel),
            user: number(*user),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_read_as_they_were_written() {
        let between = Nanos::from_ns(20);
        let holder = Some(5);
        let looks = [
            (1, LookedTask::Waiter { between, holder }),
            (2, LookedTask::Waker),
        ];
        let looks = looks.map(|(number, whose)| LookEvent {
            ts: Timestamp::from_ns(1000 + number),
            task: TaskKey::new(7),
            out: Timestamp::from_ns(number),
            whose,
            stacks: StackNumbers {
                kernel: (number == 1).then_some(3),
                user: Some(9),
            },
        });
        let mut bytes = Vec::new();
        looks.iter().for_each(|look| encode_look(look, &mut bytes));
        let mut read = Vec::new();
        assert_eq!(decode_looks(&bytes, |look| read.push(look)), 0);
        assert_eq!(read, looks);
        assert_eq!(decode_looks(&bytes[..44], |_| {}), 1);
    }
}
