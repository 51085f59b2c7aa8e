//! A verdict on a switch-out from kernel stacks alone: the stack at the switch-out says where the
//! task was, the stack of the request to reschedule says who asked.
//!
//! ```text
//!   schedule ◀ futex_do_wait ◀ …            left in a sleeping state: the place it sleeps in
//!   __resched_curr ◀ wakeup_preempt ◀ …     left runnable: who asked, and for what
//! ```
//!
//! Nothing here uses the recorder's markers or rules, so the two can be compared. Functions are
//! those seen on 6.18 (x86-64); names that other versions have are marked. A name includes its
//! clones (`poll_schedule_timeout.constprop.0`). Static functions may be inlined and missing from a
//! stack, so a verdict rests on several names where it can.

use swtch_core::Reason;

/// Relation of the next task to the one that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Successor {
    /// Of the same class, or idle.
    Peer,
    /// Of a higher scheduling class.
    Higher,
    /// The CPU's stopper task (migration/N).
    Stopper,
    /// Of a lower scheduling class.
    Lower,
}

/// The facts known of a switch-out besides markers. Stacks are function names, the innermost first.
#[derive(Debug)]
pub struct Witness<'a> {
    /// True if it left in a sleeping state (or dead).
    pub is_blocked: bool,
    /// Relation of the task that ran next.
    pub successor: Successor,
    /// Stack of the task at the switch-out.
    pub switch_stack: Option<&'a [String]>,
    /// Stack of the request to reschedule, if there was one.
    pub cause_stack: Option<&'a [String]>,
}

/// The verdict from the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackVerdict {
    /// The reason is one of these.
    Reasons(&'static [Reason]),
    /// The stacks do not tell reasons apart here.
    Undecided,
}

use StackVerdict::{Reasons, Undecided};

/// The verdict on a switch-out, from its stacks.
pub fn verdict(witness: &Witness) -> StackVerdict {
    let Some(switch_stack) = witness.switch_stack else {
        return Undecided;
    };
    let place = TrimmedStack::behind(switch_stack, SCHEDULE);
    if witness.is_blocked {
        return blocked(&place);
    }
    if witness.successor == Successor::Stopper {
        return Reasons(&[Reason::Migrate]);
    }
    let request = witness
        .cause_stack
        .map(|stack| TrimmedStack::behind(stack, RESCHEDULE));
    left_runnable(&place, request.as_ref(), witness.successor)
}

/// Functions of the switch itself, below the place that called for it.
const SCHEDULE: &[&str] = &[
    "__schedule",
    "schedule",
    "schedule_idle",
    "schedule_preempt_disabled",
    "schedule_timeout",
];

/// Functions of the request to reschedule itself.
const RESCHEDULE: &[&str] = &["__resched_curr", "resched_curr", "resched_curr_lazy"];

/// A stack without the functions of the event itself.
struct TrimmedStack<'a>(Vec<&'a str>);

impl<'a> TrimmedStack<'a> {
    fn behind(stack: &'a [String], event: &[&str]) -> Self {
        let names: Vec<_> = stack.iter().map(|name| base_name(name)).collect();
        let last = names.iter().position(|name| event.contains(name));
        let start = last.map_or(0, |first| {
            let run = names[first..]
                .iter()
                .take_while(|name| event.contains(name));
            first + run.count()
        });
        Self(names[start..].to_vec())
    }

    fn innermost(&self) -> &'a str {
        self.0.first().copied().unwrap_or("")
    }

    fn has(&self, functions: &[&str]) -> bool {
        self.0.iter().any(|name| functions.contains(name))
    }

    /// The innermost of these functions.
    fn nearest(&self, functions: &[&str]) -> Option<&'a str> {
        self.0.iter().copied().find(|name| functions.contains(name))
    }
}

/// The name without the suffix that the compiler gave to a clone of the function.
fn base_name(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

// ---- left in a sleeping state ----

/// Functions in which tasks sleep; earlier entries decide first: a fault inside a read is a fault.
const SLEEPING_PLACES: &[(&[Reason], &[&str])] = &[
    (&[Reason::Exit], &["do_task_dead"]),
    (
        &[Reason::Stop],
        &[
            "do_signal_stop",
            "ptrace_stop",
            "do_jobctl_trap",
            "do_freezer_trap",
            "__refrigerator",
        ],
    ),
    (&[Reason::Migrate], &["affine_move_task"]),
    // In whatever call, in a fault or at the end of the task.
    (
        &[Reason::Lock],
        &[
            "__mutex_lock",
            "__mutex_lock_slowpath",
            "__mutex_lock_killable_slowpath",
            "__mutex_lock_interruptible_slowpath",
            "rwsem_down_read_slowpath",
            "rwsem_down_write_slowpath",
            "__down",
            "__down_killable",
            "__down_interruptible",
            "__down_timeout",
        ],
    ),
    (&[Reason::Fault], &["exc_page_fault", "do_user_addr_fault"]),
    (
        &[Reason::Futex],
        // futex_wait_queue: before 6.16.
        &[
            "futex_do_wait",
            "futex_wait_queue",
            "futex_lock_pi",
            "futex_wait_requeue_pi",
        ],
    ),
    (
        &[Reason::Pipe],
        // pipe_read, pipe_write: before 6.16.
        &[
            "anon_pipe_read",
            "anon_pipe_write",
            "pipe_read",
            "pipe_write",
            "fifo_open",
        ],
    ),
    (
        &[Reason::Net],
        &[
            "sk_wait_data",
            "unix_stream_read_generic",
            "unix_stream_sendmsg",
            "unix_stream_connect",
            "unix_wait_for_peer",
            "unix_dgram_sendmsg",
            "sock_alloc_send_pskb",
            "__skb_wait_for_more_packets",
            "inet_csk_accept",
            "inet_wait_for_connect",
            "__inet_stream_connect",
            "sk_stream_wait_memory",
            "tcp_recvmsg",
            "tcp_sendmsg",
            "__lock_sock",
        ],
    ),
    (
        &[Reason::Ipc],
        &[
            "__do_semtimedop",
            "do_semtimedop",
            "do_msgrcv",
            "do_msgsnd",
            "wq_sleep",
            "eventfd_read",
            "eventfd_write",
            "locks_lock_inode_wait",
            "fcntl_setlk",
        ],
    ),
    // Poll and select without files are sleeps, which the stack does not show.
    (
        &[Reason::Poll, Reason::Sleep],
        &["do_sys_poll", "do_poll", "do_select", "core_sys_select"],
    ),
    (
        &[Reason::Poll],
        &["ep_poll", "do_epoll_wait", "io_cqring_wait"],
    ),
    (
        &[Reason::Sleep],
        &[
            "do_nanosleep",
            "hrtimer_nanosleep",
            "__do_sys_pause",
            "sigsuspend",
            "do_sigtimedwait",
            "timerfd_read_iter",
        ],
    ),
    (
        &[Reason::Child],
        &["do_wait", "kernel_wait4", "wait_for_vfork_done"],
    ),
    (
        &[Reason::Io],
        &[
            "io_schedule",
            "io_schedule_timeout",
            "n_tty_read",
            "n_tty_write",
        ],
    ),
];

fn blocked(place: &TrimmedStack) -> StackVerdict {
    if let Some((reasons, _)) = SLEEPING_PLACES.iter().find(|row| place.has(row.1)) {
        return Reasons(reasons);
    }
    // wait_for_vfork_done is inlined on 6.18; a fork waits for nothing else that completes.
    if place.has(&["kernel_clone"]) && place.has(&["wait_for_completion_state"]) {
        return Reasons(&[Reason::Child]);
    }
    if place.innermost() == "worker_thread" {
        return Reasons(&[Reason::Ipc]);
    }
    // A kernel thread, or the rest of a task's end: the stack names it, but no reason does.
    Undecided
}

// ---- left runnable ----

/// Functions in which a task stands that was asked to leave: on its way to user mode, or at a point
/// where the kernel allows preemption. In any other function it called `schedule` itself.
const PREEMPTION_POINTS: &[&str] = &[
    "exit_to_user_mode_loop",
    "irqentry_exit_to_user_mode",
    "__cond_resched",
    "__cond_resched_lock",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_notrace",
    "preempt_schedule_irq",
    "irqentry_exit",
];

fn left_runnable(
    place: &TrimmedStack,
    request: Option<&TrimmedStack>,
    successor: Successor,
) -> StackVerdict {
    if request.is_some_and(|stack| stack.has(&["throttle_cfs_rq_work"])) {
        return Reasons(&[Reason::Throttle]);
    }
    let is_yielding = place.has(&["do_sched_yield", "__do_sys_sched_yield"]);
    match (is_yielding, successor) {
        (true, Successor::Higher) => return Reasons(&[Reason::Yield, Reason::Class]),
        (true, _) => return Reasons(&[Reason::Yield]),
        (false, Successor::Higher) => return Reasons(&[Reason::Class]),
        // Real-time throttling, or a yield of a class: the stacks do not tell.
        (false, Successor::Lower) => return Undecided,
        (false, _) => {}
    }
    // It was about to sleep, and was woken or had a signal before it did.
    if !PREEMPTION_POINTS.contains(&place.innermost()) {
        return Undecided;
    }
    // The throttling of a task runs here, too; a request that came before it hides it.
    if place.0.get(1) == Some(&"task_work_run") {
        return Undecided;
    }
    request.map_or(Undecided, asked)
}

/// Functions that put tasks on a run queue because they were woken or started.
const WAKING: &[&str] = &["try_to_wake_up", "sched_ttwu_pending", "wake_up_new_task"];

/// Functions that put tasks on a run queue because they were moved.
const MOVING: &[&str] = &[
    "sched_balance_rq", // load_balance before 6.10
    "load_balance",
    "move_queued_task",
    "attach_task",
    "attach_one_task",
    "attach_tasks",
    "migration_cpu_stop",
    "active_load_balance_cpu_stop",
    "push_cpu_stop",
    "sched_move_task",
    "migrate_task_to",
];

/// The scheduler's part of the timer interrupt; the second before 6.10.
const TICKING: &[&str] = &["sched_tick", "scheduler_tick"];

/// Functions that change a priority or policy.
const CHANGING: &[&str] = &[
    "set_user_nice",
    "__sched_setscheduler",
    "rt_mutex_setprio",
    "resched_cpu",
];

fn asked(request: &TrimmedStack) -> StackVerdict {
    let is_for_preference = request.has(&[
        "wakeup_preempt",
        "check_preempt_curr", // before 6.8
    ]);
    // update_curr asks because slice or protection of the running task is used up. That is the end of a
    // slice, unless the kernel looked because a task was being woken.
    if ["update_curr", "update_curr_fair"].contains(&request.innermost()) {
        let looked_for = request.nearest(&[WAKING, MOVING, TICKING].concat());
        return match looked_for {
            Some(function) if WAKING.contains(&function) => Reasons(&[Reason::Wakeup]),
            _ => Reasons(&[Reason::Slice]),
        };
    }
    if request.innermost() == "__account_cfs_rq_runtime" {
        return Undecided; // the quota was used up, but the throttling comes later
    }
    if is_for_preference {
        return match request.nearest(&[WAKING, MOVING].concat()) {
            Some(function) if WAKING.contains(&function) => Reasons(&[Reason::Wakeup]),
            Some(_) => Reasons(&[Reason::Other]),
            None => Undecided,
        };
    }
    if request.has(TICKING) {
        return Reasons(&[Reason::Slice]); // entity_tick, task_tick_rt; scheduler_tick before 6.10
    }
    if request.has(CHANGING) {
        return Reasons(&[Reason::Other]);
    }
    Undecided
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &str) -> Vec<String> {
        functions.split_whitespace().map(str::to_owned).collect()
    }

    fn blocked_in(switch_stack: &str) -> StackVerdict {
        verdict(&Witness {
            is_blocked: true,
            successor: Successor::Peer,
            switch_stack: Some(&stack(switch_stack)),
            cause_stack: None,
        })
    }

    fn preempted(switch_stack: &str, cause_stack: &str) -> StackVerdict {
        verdict(&Witness {
            is_blocked: false,
            successor: Successor::Peer,
            switch_stack: Some(&stack(switch_stack)),
            cause_stack: Some(&stack(cause_stack)),
        })
    }

    const TO_USER_MODE: &str = "bpf_prog_1_x __schedule schedule irqentry_exit_to_user_mode";

    #[test]
    fn the_place_of_a_sleeper_is_its_reason() {
        let at = "bpf_prog_1_x bpf_trace_run4 __schedule schedule ";
        let read = format!("{at} anon_pipe_read vfs_read ksys_read do_syscall_64");
        assert_eq!(blocked_in(&read), Reasons(&[Reason::Pipe]));
        let futex = format!("{at} futex_do_wait __futex_wait futex_wait do_futex");
        assert_eq!(blocked_in(&futex), Reasons(&[Reason::Futex]));
        assert_eq!(blocked_in(&format!("{at} some_lock vfs_read")), Undecided);
    }

    #[test]
    fn a_fault_inside_a_read_is_a_fault() {
        let at = "__schedule schedule io_schedule folio_wait_bit_common exc_page_fault \
                  asm_exc_page_fault copy_page_to_iter anon_pipe_read";
        assert_eq!(blocked_in(at), Reasons(&[Reason::Fault]));
    }

    #[test]
    fn a_task_that_ends_waits_for_a_lock_as_others_do() {
        let at = "__schedule schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read do_exit";
        assert_eq!(blocked_in(at), Reasons(&[Reason::Lock]));
        assert_eq!(blocked_in("__schedule schedule do_exit"), Undecided);
    }

    #[test]
    fn a_worker_is_idle_only_in_its_own_loop() {
        let idle = "__schedule schedule worker_thread kthread";
        let busy = "__schedule schedule __mutex_lock process_one_work worker_thread kthread";
        assert_eq!(blocked_in(idle), Reasons(&[Reason::Ipc]));
        assert_eq!(blocked_in(busy), Reasons(&[Reason::Lock]));
    }

    /// Half of the wakeup preemptions are this, when tasks are in cgroups.
    #[test]
    fn what_update_curr_asks_for_a_woken_task_is_a_wakeup_and_in_the_tick_the_end_of_a_slice() {
        let asked = "__resched_curr update_curr";
        let ttwu = "enqueue_task ttwu_do_activate try_to_wake_up";
        let woken = format!("{asked} reweight_entity enqueue_task_fair {ttwu}");
        assert_eq!(preempted(TO_USER_MODE, &woken), Reasons(&[Reason::Wakeup]));
        let tick =
            format!("{asked} entity_tick task_tick_fair sched_tick update_process_times {ttwu}");
        assert_eq!(preempted(TO_USER_MODE, &tick), Reasons(&[Reason::Slice]));
        let wakeup = "__resched_curr wakeup_preempt ttwu_do_activate try_to_wake_up";
        assert_eq!(preempted(TO_USER_MODE, wakeup), Reasons(&[Reason::Wakeup]));
    }

    /// The balancer may run in the context of a wakeup's interrupt: the inner function counts.
    #[test]
    fn a_task_that_was_moved_is_not_a_task_that_was_woken() {
        let moved = "__resched_curr wakeup_preempt sched_balance_rq handle_softirqs try_to_wake_up";
        assert_eq!(preempted(TO_USER_MODE, moved), Reasons(&[Reason::Other]));
    }

    #[test]
    fn a_request_from_inside_the_yield_does_not_make_it_a_preemption() {
        let yielding = "__schedule schedule __do_sys_sched_yield do_syscall_64";
        let inside = "__resched_curr update_curr pick_task_fair __schedule schedule";
        assert_eq!(preempted(yielding, inside), Reasons(&[Reason::Yield]));
    }

    #[test]
    fn a_task_that_called_schedule_itself_while_runnable_is_left_undecided() {
        let place = "__schedule schedule futex_do_wait do_futex";
        let wakeup = "__resched_curr wakeup_preempt ttwu_do_activate try_to_wake_up";
        assert_eq!(preempted(place, wakeup), Undecided);
    }
}
