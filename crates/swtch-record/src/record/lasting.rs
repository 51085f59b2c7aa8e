//! Puts threads that were blocked all the time into groups that wait alike, as the trace keeps them: a
//! server may have 20,000 of them.

use rustc_hash::FxHashMap;
use swtch_capture::LastingWait;
use swtch_core::Timestamp;
use swtch_store::{LastingGroup, LastingWaits};

/// Most groups that a trace keeps.
const MOST_GROUPS: usize = 500;

/// Most threads of a group whose ids are kept.
const MOST_IDS: usize = 16;

/// Bits of a task's state (include/linux/sched.h, v6.18).
const TASK_INTERRUPTIBLE: u32 = 0x1;
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_STOPPED: u32 = 0x4;
const TASK_TRACED: u32 = 0x8;
const TASK_PARKED: u32 = 0x40;
const TASK_NOLOAD: u32 = 0x400;

/// The threads in groups: those with the least ordinary state first, then the largest.
pub fn grouped(waits: &[LastingWait]) -> LastingWaits {
    let mut told = LastingWaits::default();
    let mut groups: FxHashMap<_, LastingGroup> = FxHashMap::default();
    for wait in waits {
        let state = state_letter(wait.state);
        // A parked one is that of a CPU which is offline.
        if wait.is_kthread && matches!(state, 'S' | 'I' | 'P') {
            told.idle_kernel_threads += 1;
            continue;
        }
        told.threads += 1;
        let key = (wait.pid, state, wait.syscall, wait.function.as_deref());
        let group = groups.entry(key).or_insert_with(|| group_of(wait, state));
        add(group, wait);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let sleeps = |group: &LastingGroup| group.state == "S";
        let order = sleeps(a).cmp(&sleeps(b));
        let order = order.then(b.threads.cmp(&a.threads));
        order.then_with(|| (a.pid, &a.tids).cmp(&(b.pid, &b.tids)))
    });
    let left_out = groups.split_off(groups.len().min(MOST_GROUPS));
    told.not_listed = left_out.iter().map(|group| group.threads).sum();
    told.groups = groups;
    told
}

fn group_of(wait: &LastingWait, state: char) -> LastingGroup {
    let ran = wait.ran.map(Timestamp::as_ns);
    LastingGroup {
        pid: wait.pid.get(),
        program: String::from_utf8_lossy(&wait.program).into_owned(),
        state: state.to_string(),
        syscall: wait.syscall,
        function: wait.function.clone(),
        ran_first_ns: ran,
        ran_last_ns: ran,
        ..LastingGroup::default()
    }
}

fn add(group: &mut LastingGroup, wait: &LastingWait) {
    let ran = wait.ran.map(Timestamp::as_ns);
    group.threads += 1;
    group.ran_first_ns = group
        .ran_first_ns
        .zip(ran)
        .map(|(first, ran)| first.min(ran));
    group.ran_last_ns = group.ran_last_ns.zip(ran).map(|(last, ran)| last.max(ran));
    if group.tids.len() < MOST_IDS {
        group.tids.push(wait.tid.get());
    }
}

/// The letter that `ps` shows for a state.
const fn state_letter(state: u32) -> char {
    if state & TASK_TRACED != 0 {
        't'
    } else if state & TASK_STOPPED != 0 {
        'T'
    } else if state & TASK_UNINTERRUPTIBLE != 0 && state & TASK_NOLOAD != 0 {
        'I'
    } else if state & TASK_INTERRUPTIBLE != 0 {
        'S'
    } else if state & TASK_PARKED != 0 {
        'P'
    } else {
        // So does the kernel with a frozen thread, and with one at a lock of PREEMPT_RT.
        'D'
    }
}

#[cfg(test)]
mod tests {
    use swtch_core::{Pid, Tid};

    use super::*;

    fn wait(pid: u32, tid: u32, state: u32, syscall: u32) -> LastingWait {
        LastingWait {
            pid: Pid::new(pid),
            tid: Tid::new(tid),
            program: b"node".to_vec(),
            state,
            syscall: Some(syscall),
            is_kthread: false,
            function: Some("wait_for_partner".to_owned()),
            ran: Some(Timestamp::from_ns(u64::from(tid))),
        }
    }

    #[test]
    fn threads_that_wait_alike_are_one_group_and_uncommon_states_come_first() {
        let mut waits: Vec<_> = (0..20_000).map(|tid| wait(7, 100 + tid, 1, 202)).collect();
        waits.push(wait(8, 8, 0x102, 58));
        waits.push(LastingWait {
            is_kthread: true,
            ..wait(2, 2, 0x402, 0)
        });
        let told = grouped(&waits);
        assert_eq!((told.threads, told.idle_kernel_threads), (20_001, 1));
        let [stuck, asleep] = &told.groups[..] else {
            panic!("{:?}", told.groups)
        };
        assert_eq!(
            (stuck.pid, stuck.state.as_str(), stuck.threads),
            (8, "D", 1)
        );
        assert_eq!((asleep.state.as_str(), asleep.threads), ("S", 20_000));
        assert_eq!((asleep.tids.len(), asleep.tids[0]), (MOST_IDS, 100));
        assert_eq!(
            (asleep.ran_first_ns, asleep.ran_last_ns),
            (Some(100), Some(20_099))
        );
    }

    #[test]
    fn what_is_not_kept_is_counted() {
        let waits: Vec<_> = (0..600).map(|pid| wait(pid, pid, 1, 0)).collect();
        let told = grouped(&waits);
        assert_eq!((told.groups.len(), told.not_listed), (500, 100));
    }

    #[test]
    fn states_have_the_letters_of_ps() {
        for (state, letter) in [
            (0x1, 'S'),
            (0x2001, 'S'),
            (0x2, 'D'),
            (0x2102, 'D'),
            (0x402, 'I'),
            (0x104, 'T'),
            (0x8, 't'),
            (0x40, 'P'),
            (0x8000, 'D'),
        ] {
            assert_eq!(state_letter(state), letter, "{state:#x}");
        }
    }
}
