//! Finds the worker that holds the lock that blocks a whole scheduler.
//!
//! A worker that waits or yields with a `std::sync::MutexGuard` leaves the mutex locked. When the
//! next worker of the same scheduler locks it, the *thread* sleeps in the kernel. The holder would
//! have to run on that thread, so it never unlocks.
//!
//! The kernel shows the address at which the thread waits. A guard holds a reference to its mutex,
//! and the mutex begins with the futex word (`std`, seen in Rust 1.95: a field that may be unsized
//! stays last in a structure). So the holder's stack contains that address. The reverse need not be
//! true, so it is only *probably* the holder: a worker may have another reference to the mutex.

use std::ops::Range;

use super::evidence::Call;
use super::memory;

/// Most bytes of one stack that are searched, from its root on: mostly less is in use.
const SEARCHED: usize = 32 * 1024;

/// An `Arc<Mutex>` points at its counters, two words before the mutex; a reference to a structure
/// that contains a mutex points a bit further before. An address beyond that says nothing.
const BEFORE: u64 = 64;

/// The address at which a thread waits, if it waits on a futex.
pub fn waited_at(call: Call) -> Option<u64> {
    let Call::Inside {
        number: libc::SYS_futex,
        arguments: [address, operation, ..],
        ..
    } = call
    else {
        return None;
    };
    let operation = i32::try_from(operation).ok()?;
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET).then_some(address)
}

/// The workers whose stacks contain a reference to the lock at `address`: those with the exact
/// address, or else those with an address shortly before it.
///
/// `stacks` are those of suspended and runnable workers, with the workers' numbers.
pub fn find(address: u64, stacks: impl Iterator<Item = (u32, Range<usize>)>) -> Vec<u32> {
    let mut exact = Vec::new();
    let mut near = Vec::new();
    let mut bytes = Vec::new();
    for (worker, stack) in stacks {
        bytes.resize(stack.len().min(SEARCHED), 0);
        let read = memory::read(stack.end - bytes.len(), &mut bytes);
        let (words, _) = bytes[..read].as_chunks::<8>();
        let words = || words.iter().map(|word| u64::from_ne_bytes(*word));
        if words().any(|word| word == address) {
            exact.push(worker);
        } else if words().any(|word| word < address && address - word <= BEFORE) {
            near.push(worker);
        }
    }
    if exact.is_empty() { near } else { exact }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    /// A range of memory that plays the part of a stack.
    fn stack(words: &[u64]) -> Range<usize> {
        let range = words.as_ptr_range();
        range.start.addr()..range.end.addr()
    }

    /// A worker with only the `Arc` of the mutex is named only if no worker has the exact address.
    #[test]
    fn an_exact_address_goes_before_a_near_one() {
        let near = [1, 0x7000_0000_1000 - 16];
        let exact = [0x7000_0000_1000, 5];
        let other = [0x7000_0000_1008, 0x7000_0000_0000];
        let stacks = [(3, stack(&near)), (4, stack(&exact)), (5, stack(&other))];
        assert_eq!(find(0x7000_0000_1000, stacks.clone().into_iter()), [4]);
        let stacks = [(3, stack(&near)), (5, stack(&other))];
        assert_eq!(find(0x7000_0000_1000, stacks.into_iter()), [3]);
    }

    /// A stack may be given back while it is searched.
    #[test]
    fn a_stack_that_is_gone_holds_nothing() {
        let none: Vec<u32> = find(
            0x1000,
            [(1, 0..4096), (2, Range { start: 64, end: 32 })].into_iter(),
        );
        assert_eq!(none, []);
    }

    /// The whole path with a real mutex: the address that the kernel shows for a waiting thread
    /// leads to the stack on which the guard lies.
    #[test]
    fn the_guard_of_a_std_mutex_leads_to_its_holder() {
        let mutex = Mutex::new(7_u64);
        let guard = mutex.lock().unwrap();
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: reads a number.
                send.send(unsafe { libc::gettid() }).unwrap();
                drop(mutex.lock());
            });
            let tid = receive.recv().unwrap();
            let address = (0..5000)
                .find_map(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    waited_at(super::super::evidence::ThreadSample::take(tid, &[]).call)
                })
                .unwrap();
            let start = (&raw const guard).addr();
            let stacks = [(1, stack(&[1, 2])), (9, start..start + size_of_val(&guard))];
            assert_eq!(find(address, stacks.into_iter()), [9]);
            drop(guard);
        });
    }

    /// Waking and other system calls are not waits.
    #[test]
    fn only_a_wait_has_an_address() {
        let inside = |number, operation| Call::Inside {
            number,
            arguments: [0x1234, operation, 0, 0, 0, 0],
            stack_pointer: 0,
            pc: 0,
        };
        let private_wait = 0x80;
        assert_eq!(
            waited_at(inside(libc::SYS_futex, private_wait)),
            Some(0x1234)
        );
        assert_eq!(waited_at(inside(libc::SYS_futex, private_wait | 1)), None);
        assert_eq!(waited_at(inside(libc::SYS_read, 0)), None);
        assert_eq!(waited_at(Call::Running), None);
    }
}
