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
#define KEY_UNKNOWN 0xffffffffu /* no slot was free for the task's state */
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
	OBJECT_OTHER_FD,
};

enum waker_kind {
	WAKER_NONE,
	WAKER_TASK,
	WAKER_TIMER,
	WAKER_INTERRUPT,
	WAKER_SOFTIRQ,
	WAKER_SENDER,
};

/* Bit 24 is of imports only. */
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
	EVIDENCE_REQUESTS_NOT_SEEN = 1 << 25,
	EVIDENCE_KERNEL_LOCK = 1 << 26,
	EVIDENCE_MMAP_LOCK = 1 << 27,
	EVIDENCE_INODE_LOCK = 1 << 28,
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
	__s32 kernel_stack; /* of the wait: no more, but for tests (want_oracle) */
	__s32 user_stack;
	__s32 waker_kernel_stack; /* of who ended it: no more */
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
 * Summaries: switch-outs that the rules cannot tell apart are counted together, in a map. The key
 * holds what swtch-core/src/rules.rs reads of a switch and no more, so an entry gets the reason
 * that each of its switches would have got as a record.
 */
enum summary_argument {
	ARGUMENT_0_IS_ZERO = 1 << 0,
	ARGUMENT_1_IS_ZERO = 1 << 1,
	ARGUMENT_IS_VFORK = 1 << 2, /* CLONE_VFORK in the first */
	ARGUMENT_IS_LOCK = 1 << 3, /* F_SETLKW or F_OFD_SETLKW, the second */
};

struct summary_key {
	__u64 futex; /* address of the futex word that it waits for, see futex_of in summary.h; else 0 */
	__u32 task; /* keys, as in struct switch_record */
	__u32 next_task; /* who took the CPU, when it was taken; else KEY_IDLE */
	__u32 state; /* 0 when it left runnable */
	__u32 evidence; /* the bits that rules read of such a switch */
	__s32 syscall; /* restart_syscall is replaced by the call that it continues */
	__u8 arguments; /* enum summary_argument, of calls whose arguments the rules read */
	__u8 wait_object;
	__u8 cause; /* CAUSE_NONE for a task that blocked, as are both classes */
	__u8 class;
	__u8 next_class;
	__u8 pad[7];
};

/* The futex of a group of waits for many of them: there was no room to tell them apart. */
#define FUTEX_OF_MANY 1

/* Slot 0 of a histogram is for lengths below 256 ns, slot n for those from 2^(n+7) ns, and the last
 * for those of 275 s and more. */
#define SUMMARY_SLOTS 32

/* Sums over the switch-outs of one key: the runs that they ended, the waits that followed. */
struct summary_value {
	__u64 switches;
	__u64 ran_ns; /* of runs whose start is known */
	__u64 irq_ns;
	__u64 longest_run_ns;
	__u64 waits; /* that have ended in a run */
	__u64 off_ns;
	__u64 longest_off_ns;
	__u64 split_waits; /* those whose wakeup is known, so that they have a run-queue time */
	__u64 split_off_ns;
	__u64 runq_ns;
	__u64 longest_runq_ns;
	__u64 open_waits; /* that had not ended when the recording did */
	__u64 open_ns;
	__u64 off[SUMMARY_SLOTS];
	__u64 runq[SUMMARY_SLOTS];
};

/* The key as five words, which are compared faster than its fields. */
union summary_key_words {
	struct summary_key key;
	__u64 words[5];
};

/* A place in the table of groups. The key is written by whoever has claimed the place, before the first
 * switch is added. */
struct summary_group {
	__u64 is_taken;
	union summary_key_words key;
	struct summary_value sums;
};

/* What this CPU is doing to a task right now. */
enum window {
	WINDOW_NONE,
	WINDOW_WAKING,
	WINDOW_STARTING,
	WINDOW_MOVING,
};

/* Which interrupts a CPU is in: bits. */
enum interrupt {
	IN_TICK = 1 << 0,
	IN_HARDIRQ = 1 << 1,
	IN_SOFTIRQ = 1 << 2,
};

/* The hooks whose events a test may have missed: bit numbers of `missed_hooks`. */
enum hook {
	HOOK_SWITCH,
	HOOK_WAKING,
	HOOK_WAKEUP,
	HOOK_WAKEUP_NEW,
	HOOK_MIGRATE,
	HOOK_NEED_RESCHED,
	HOOK_FORK,
	HOOK_TIMER_ENTRY,
	HOOK_TIMER_EXIT,
	HOOK_IRQ_ENTRY,
	HOOK_IRQ_EXIT,
	HOOK_SOFTIRQ_ENTRY,
	HOOK_SOFTIRQ_EXIT,
	HOOK_STORAGE, /* no hook: the first slot of a task, which is refused then */
};

/* Places in the table of a summary that a CPU remembers to have taken: a power of two. */
#define CLAIMS_KEPT 256

/* Groups of tasks above a task that are looked at: a power of two. */
#define MAX_GROUP_DEPTH 4

/* How a group of tasks stood in its queue (struct sched_entity). */
struct group_seen {
	__u64 group; /* its address */
	__u64 vruntime;
	__u64 vprot;
	__u64 exec_start;
	__u64 weight;
};

/*
 * State of one CPU, in an array that user space maps: the run in progress, the markers that tell
 * who asks for a reschedule, and the counters.
 *
 * "Missed" says what becomes of a field when an event that writes it was not seen: because the
 * recording began between the two halves of a pair, or because the kernel did not report one.
 */
struct cpu_state {
	/*
	 * The run in progress, and what the wait before it was: all written by the switch that
	 * begins the run, so the next switch writes all of it anew. Missed: another task leaves
	 * than came, or its count of switches has jumped (is_run_of); then the run has no known
	 * start, and no field of it is used.
	 */
	__u64 run_start;
	__u64 run_charged; /* sum_exec_runtime at its start */
	__u64 run_nvcsw;
	__u64 run_count; /* nvcsw + nivcsw at its start */
	__u64 run_deadline; /* se->deadline when last looked at; only without the hook that tells who asked */
	__u64 run_task; /* address of who runs; as run_deadline */
	/* the groups of who runs, by their depth, when last looked at; as run_deadline */
	struct group_seen groups[MAX_GROUP_DEPTH];
	__u64 run_cgroup;
	__u64 out_ts;
	__u64 wake_ts;
	__u64 moved_ts;
	__u32 task; /* key of the running task */
	__s32 pid; /* its kernel pid */
	__u32 waker;
	__s32 kernel_stack;
	__s32 user_stack;
	__u16 wake_cpu;
	__u8 waker_kind;
	__u8 was_runnable;
	__u8 in_scope;
	__u8 announced;
	__u8 started; /* a switch was seen on this CPU: before, nothing above holds */
	__u8 tick_in_run; /* a tick that was missed makes an inferred reason vaguer, for one run */

	/*
	 * Who asked first for a reschedule of that run: cause is CAUSE_NONE when nobody did, as
	 * each switch sets it. Missed: the switch has no cause, and the rules say so. When only the
	 * start of the run was missed, the last request is still that run's own, since a task
	 * leaves soon after; unless requests were ignored because the task that came was out of
	 * scope, which requests_unseen says.
	 */
	__u64 cause_ts;
	__u32 nominator;
	__u32 cause_evidence;
	__s32 cause_tif;
	__u32 cause;
	__u32 requests_unseen;
	/* keys of the tasks last woken and moved to this CPU during the run, since the last tick */
	__u32 last_woken;
	__u32 last_moved;
	__u64 slice_asked_ts;
	__u32 slice_asked; /* evidence that the slice has asked since; only without the hook */
	__u32 company; /* who is not alone: written by each timer's entry, read by its exit */

	/*
	 * The window: what this CPU is doing to a task right now. Opened by the first half of a
	 * pair (sched_waking) or by the only event there is (sched_wakeup_new, sched_migrate_task),
	 * closed by the second half, any interrupt and any switch. First half missed: the second
	 * one finds no window of its task, and is taken for a wakeup that another CPU queued.
	 * Second half missed: the window stays open until the next wakeup, interrupt or switch here,
	 * and counts only for a request that concerns the same task's CPU (is_window_for).
	 */
	__u64 window_task; /* address */
	__u64 window_ts;
	__u32 window_key;
	__u32 window; /* enum window */
	__u32 waking_in_scope;

	/*
	 * The interrupts that this CPU is in (enum interrupt), and since when. Each entry and exit
	 * says the whole state, and each switch clears it. Entry missed: the exit changes nothing and
	 * no time is added. Exit missed: until the next entry, exit or switch here, wakeups are taken
	 * for the interrupt's; its time is not added.
	 */
	__u32 interrupts;
	__u64 irq_start;
	__u64 irq_ns; /* of this run: each switch sets it to 0 */
	/* When the last hard interrupt was left. Missed: a soft one that follows it is taken for a sender's. */
	__u64 hard_left;
	/* Whether the soft interrupt is in a task's own call. Each entry of a soft one says it anew. */
	__u64 sends;

	/*
	 * Tasks in scope that are runnable here and do not run: counted by this CPU, and by others.
	 * Each task knows where it is counted (task_state.waits_on), so a missed event delays the
	 * count until the task's next event and never makes it drift.
	 */
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

	/* Distance from a task's stack to its user registers, the same for all tasks; 0 until asked. */
	__u64 registers_above_stack;
	__u64 stack_of_prev; /* of the task that leaves, written and read within one switch */

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
	__u64 summary_groups; /* places taken in the table of a summary */
	__u64 summary_unnamed; /* part of lost: switches of a task without a slot */
	__u64 storage_failed; /* times that no slot was free for a task */
	__u64 stack_failed;
	__u64 untraced; /* switches between that the tracepoint did not report */
	__u64 untraced_in_scope; /* of them, those away from a task in scope */
	__u64 words_unread; /* words of user-mode schedulers that could not be read */
	__u64 hook_events; /* for tests: events of the hooks in `missed_hooks` */
	__u64 missed; /* for tests: of them, those that were made to be missed */

	/* Of wakers.h: when the next waker is copied, which are let pass before, and where it is put. */
	__u64 next_waker_ts;
	__u32 wakers_to_pass;
	__u32 waker_slot;

	__s32 cause_stack; /* with want_oracle: kernel stack of the first request of the run */

	/* Of summaries: the last places that were taken, number summary_groups modulo CLAIMS_KEPT. */
	__u32 claims[CLAIMS_KEPT];

	__u64 tail __attribute__((aligned(64))); /* written by user space only */
} __attribute__((aligned(64)));

#endif
