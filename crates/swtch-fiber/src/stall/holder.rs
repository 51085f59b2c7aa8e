//! Who holds the lock that blocks a whole scheduler?
//!
//! A worker that waits or yields with a `std::sync::MutexGuard` in its hand leaves the mutex locked.
//! When the next worker of the same scheduler locks it, the *thread* goes to sleep in the kernel,
//! and the holder, which would have to run on that thread, never unlocks.
//!
//! The kernel says at which address the thread waits. A guard holds a reference to its mutex, and
//! the mutex begins with the word that is waited at (`std`, seen in Rust 1.95: all that may be
//! unsized stays last in a structure). So the holder's stack holds that address. The reverse need
//! not be true, which is why it is *probably* the holder: a worker may merely know the mutex.

use std::ops::Range;

use super::evidence::Call;
use super::memory;

/// Bytes of one stack that are looked at, from its root on: what is in use of it is mostly less.
const SEARCHED: usize = 32 * 1024;

/// An `Arc<Mutex>` points at its counters, two words before the mutex; a structure with a mutex in it
/// points a bit further before. Beyond that, an address means nothing any more.
const BEFORE: u64 = 64;

/// At which address a thread waits, if it waits for a lock.
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

/// The workers whose stacks know the lock at `address`, those first that know it exactly.
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

    /// A range of memory that stands for a stack.
    fn stack(words: &[u64]) -> Range<usize> {
        let range = words.as_ptr_range();
        range.start.addr()..range.end.addr()
    }

    /// One who knows the mutex through its `Arc` is named only when nobody knows it exactly.
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

    /// The whole way with the real mutex: the kernel's word for what a thread waits for leads to
    /// the stack on which the guard lives.
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
                    waited_at(super::super::evidence::Sample::take(tid, &[]).call)
                })
                .unwrap();
            let start = (&raw const guard).addr();
            let stacks = [(1, stack(&[1, 2])), (9, start..start + size_of_val(&guard))];
            assert_eq!(find(address, stacks.into_iter()), [9]);
            drop(guard);
        });
    }

    /// Waking somebody is no waiting, and neither is another call.
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
