/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wire: what the eBPF programs write and decode.rs reads. The only description of it; Rust's
 * types come from the object's BTF. Times are CLOCK_MONOTONIC in ns, 0 is "not known". Numbers of
 * causes, classes, objects and wakers are those of swtch-core/src/evidence.rs, in order.
 */
#ifndef SWTCH_RECORD_H
#define SWTCH_RECORD_H

enum record_kind {
	RECORD_SWITCH = 1,
	RECORD_TASK = 2,
};

#define KEY_IDLE 0u
#define KEY_UNKNOWN 0xffffffffu /* the task's storage was refused */
#define NO_SYSCALL (-1)
#define NO_STACK (-1)

enum cause {
	CAUSE_NONE,
	CAUSE_WAKEUP,
	CAUSE_REMOTE_WAKEUP,
	CAUSE_NEW_TASK,
	CAUSE_TICK,
	CAUSE_BALANCE,
	CAUSE_OWN,
	CAUSE_FOREIGN,
	CAUSE_NO_HOOK,
};

enum class {
	CLASS_IDLE,
	CLASS_EXT,
	CLASS_FAIR,
	CLASS_RT,
	CLASS_DEADLINE,
	CLASS_STOP,
};

enum wait_object {
	OBJECT_NONE,
	OBJECT_REGULAR,
	OBJECT_BLOCK,
	OBJECT_CHAR,
	OBJECT_FIFO,
	OBJECT_SOCKET,
	OBJECT_EVENTFD,
	OBJECT_TIMERFD,
	OBJECT_OTHER,
};

enum waker_kind {
	WAKER_NONE,
	WAKER_TASK,
	WAKER_TIMER,
	WAKER_INTERRUPT,
	WAKER_SOFTIRQ,
};

enum evidence {
	EVIDENCE_VOLUNTARY = 1 << 0,
	EVIDENCE_IN_IOWAIT = 1 << 1,
	EVIDENCE_THROTTLED = 1 << 2,
	EVIDENCE_DL_THROTTLED = 1 << 3,
	EVIDENCE_FROZEN = 1 << 4,
	EVIDENCE_MEMSTALL = 1 << 5,
	EVIDENCE_EXITING = 1 << 6,
	EVIDENCE_KTHREAD = 1 << 7,
	EVIDENCE_COMPAT = 1 << 8,
	EVIDENCE_KERNEL_PREEMPT = 1 << 9,
	EVIDENCE_SLICE_END = 1 << 10,
	EVIDENCE_IN_ENQUEUE = 1 << 11,
	EVIDENCE_GROUP_SLICE_END = 1 << 12,
	EVIDENCE_NEXT_STOPPER = 1 << 13,
	EVIDENCE_RAN_SLICE = 1 << 14,
	EVIDENCE_TICK_IN_RUN = 1 << 15,
	EVIDENCE_WOKEN_IS_NEXT = 1 << 16,
	EVIDENCE_LAZY = 1 << 17,
	EVIDENCE_WQ_WORKER = 1 << 18,
	EVIDENCE_ROUND_ROBIN = 1 << 19,
	EVIDENCE_MIGRATION_PENDING = 1 << 20,
	EVIDENCE_PROTECTION_LAPSED = 1 << 21,
	EVIDENCE_WOKEN_SINCE_TICK = 1 << 22,
	EVIDENCE_MOVED_IS_NEXT = 1 << 23,
};

enum task_event {
	TASK_SEEN,
	TASK_FORK,
	TASK_EXEC,
	TASK_RENAME,
	TASK_EXIT,
};

/* One switch-out: the run of the task that leaves, and the wait that came before that run. */
struct switch_record {
	__u32 kind; /* RECORD_SWITCH */
	__u16 cpu;
	__u16 wake_cpu; /* whose run queue it was woken to */
	__u64 ts;
	__u64 run_start;
	__u64 charged_ns; /* sum_exec_runtime of the run; ~0 not known */
	__u64 out_ts; /* its previous switch-out */
	__u64 wake_ts; /* last wakeup before the run, maybe before out_ts */
	__u64 moved_ts; /* last move to another run queue while it waited */
	__u64 cause_ts; /* first request to reschedule */
	__u64 wait_key; /* inode number, or futex word address; 0 none */
	__u64 args[3]; /* of the system call, when it blocked */
	__u64 cgroup;
	__u64 kernel_count; /* nvcsw + nivcsw after this switch: the kernel's own count */
	__u64 user_word; /* what the thread's user-mode scheduler ran on it, when has_user_word */
	__u32 task; /* keys */
	__u32 next_task;
	__u32 waker;
	__u32 nominator;
	__u32 state; /* prev_state */
	__u32 evidence;
	__u32 irq_ns; /* interrupts inside the run, saturated */
	__s32 syscall;
	__s32 kernel_stack; /* of the wait */
	__s32 user_stack;
	__s32 waker_kernel_stack; /* of who ended it, there */
	__s32 waker_user_stack;
	__s16 prio;
	__s16 next_prio;
	__u8 class;
	__u8 next_class;
	__u8 cause;
	__u8 wait_object;
	__u8 waker_kind;
	__u8 was_runnable; /* it had left runnable at out_ts */
	__u8 in_scope; /* 0: recorded only because a task in scope waited for the CPU */
	__u8 has_user_word;
	__u8 pad[4];
};

/* Identity of a task: when first named, and at each change. */
struct task_record {
	__u32 kind; /* RECORD_TASK */
	__u32 event; /* enum task_event */
	__u64 ts;
	__u64 start_boottime_ns;
	__u64 cgroup;
	__u64 nvcsw;
	__u64 nivcsw;
	__u32 task;
	__u32 tid;
	__u32 pid;
	__u32 parent_pid;
	__s16 prio;
	__u8 class;
	__u8 is_kthread;
	__u8 in_scope;
	__u8 pad[3];
	char comm[16];
};

/* A thread of a user-mode scheduler, as user space names it. */
struct watched_word {
	__u64 address;
	__u32 pid; /* its process: tgid */
	__u32 pad;
};

/*
 * State of one CPU, in an array that user space maps: the run in progress, the markers that tell
 * who asks for a reschedule, and the counters.
 */
struct cpu_state {
	/* the run in progress; what the wait before it was */
	__u64 run_start;
	__u64 run_charged; /* sum_exec_runtime at its start */
	__u64 run_nvcsw;
	__u64 run_deadline; /* se->deadline at its start; only without the hook that tells who asked */
	__u64 run_cgroup;
	__u64 out_ts;
	__u64 wake_ts;
	__u64 moved_ts;
	__u32 task; /* key of the running task */
	__s32 pid; /* its kernel pid */
	__u32 waker;
	__s32 kernel_stack;
	__s32 user_stack;
	__s32 waker_kernel_stack;
	__s32 waker_user_stack;
	__u16 wake_cpu;
	__u8 waker_kind;
	__u8 was_runnable;
	__u8 in_scope;
	__u8 announced;
	__u8 started; /* a switch was seen on this CPU */
	__u8 tick_in_run;

	/* who asked first for a reschedule of that run: cause is CAUSE_NONE when nobody did */
	__u64 cause_ts;
	__u32 nominator;
	__u32 cause_evidence;
	__s32 cause_tif;
	__u32 cause;
	/* keys of the tasks last woken and moved to this CPU during the run, since the last tick */
	__u32 last_woken;
	__u32 last_moved;

	/* markers: what this CPU is doing right now */
	__u32 waking_task; /* keys */
	__u64 waking; /* address of the task being woken, 0 none */
	__u64 waking_ts;
	__u64 starting;
	__u64 moving;
	__u32 starting_task;
	__u32 moving_task;
	__u32 in_tick;
	__u32 in_hardirq;
	__u32 in_softirq;
	__u32 waking_in_scope;
	__u64 irq_start;
	__u64 irq_ns;

	/* tasks in scope that are runnable here and do not run: queued by this CPU, and by others */
	__s32 waiters;
	__s32 waiters_from_afar;

	/*
	 * The ring of switch records: positions of the next to be written and, as last seen, the
	 * next to be read, and the position that stands in slot 0. An empty ring starts again at
	 * slot 0, so that a reader who keeps up keeps the written part small and in the cache:
	 * writing to cold memory cost 87 ns a record.
	 */
	__u64 head;
	__u64 origin;
	__u64 tail_seen;

	/* counters: seen = stored + idle + filtered + lost */
	__u64 seen;
	__u64 idle;
	__u64 filtered;
	__u64 stored;
	__u64 lost;
	__u64 lost_first_ts; /* of the current gap */
	__u64 lost_last_ts;
	__u64 lost_acknowledged; /* written by user space: lost, as far as it has seen */
	__u64 lost_task_records;
	__u64 storage_failed;
	__u64 stack_failed;
	__u64 untraced; /* switches between that the tracepoint did not report */
	__u64 words_unread; /* words of user-mode schedulers that could not be read */

	__s32 cause_stack; /* with want_oracle: kernel stack of the first request of the run */

	__u64 tail __attribute__((aligned(64))); /* written by user space only */
} __attribute__((aligned(64)));

#endif
