/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side keeps: settings, which user space writes before it loads this, tables, and the
 * state of each CPU and of each task.
 *
 * Beside each field of struct task_state and struct cpu_state stands what happens when the first event
 * seen is the second half of a pair, or an event was missed.
 */
#ifndef SWTCH_STATE_H
#define SWTCH_STATE_H

/* Set before loading. */
const volatile bool scope_all = false; /* record every task */
const volatile bool has_cgroups = false; /* record tasks in or below those in `scope_cgroups` */
const volatile bool cgroup_is_v2 = true; /* which hierarchy names the cgroup of a task */
const volatile bool has_targets = false; /* processes in `targets` */
const volatile bool with_children = false; /* of the targets: those that live, those forked later */
const volatile __u32 recorder_pid = 0; /* it belongs to no tree, as little as what it starts */
const volatile bool has_need_resched = true; /* sched_set_need_resched_tp exists */
const volatile bool has_tick_hook = true; /* local_timer_entry exists */
const volatile __s32 tick_irq = -1; /* without that hook: number of the timer interrupt (arm64) */
const volatile bool has_state_argument = true; /* sched_switch passes prev_state (5.18) */
const volatile __s32 syscall_clone3 = -1;
const volatile __s32 syscall_restart = -1;
const volatile bool summary = false; /* count switches in the kernel, see summary.h */
const volatile __u32 summary_places = 1; /* for groups of switches, a power of two */
const volatile bool watches_stacks =
	false; /* of one task at a time, of a summary, see summary_stacks.h */
const volatile __u8 syscalls_with_arguments[128]; /* bit n: the rules read call n's arguments */
const volatile __u8
	syscalls_on_futexes[128]; /* bit n: call n waits on the futex at its first argument */
const volatile bool want_oracle =
	false; /* for tests: stacks of the request and of the switch-out */
const volatile __u32 slots_per_cpu = 1; /* switch records, a power of two */
const volatile __u32 task_slots = 1; /* tasks, a power of two */
const volatile __u8
	syscalls_on_files[128]; /* bit n: call n's first argument is the file it waits on */

/* For tests: of the events of these hooks (a bit each, enum hook), each CPU misses one in so many. */
const volatile __u32 missed_hooks = 0;
const volatile __u32 miss_one_in = 1;

#define TICKS_NS 10000000ULL /* /proc/PID/stat counts start times in 1/100 s (USER_HZ) */

/* The processes asked for: pid -> start time in USER_HZ ticks, so that a reused pid does not match.
 * User space makes room for them, and for what make_target of tree.h adds. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} targets SEC(".maps");

/* The cgroups asked for, by id. User space makes room for them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u8);
} scope_cgroups SEC(".maps");

/* CPU -> its state; resized to the number of CPUs, mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/*
 * Switch records: one ring a CPU, side by side in one array that user space maps. The writer is
 * sched_switch alone, which cannot interrupt itself, so a slot, a barrier and a counter are enough:
 * 20 ns less than a BPF ring buffer, and a full ring costs one comparison.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct switch_record);
} records SEC(".maps");

/* CPU -> its ring of task records, which come from any context. One each: a shared ring takes its
 * lock before it looks for room. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/*
 * Threads of user-mode schedulers: kernel pid -> process, which a reused pid does not match, and the
 * address, in the thread's own memory, of the word that says what runs on it. User space fills it while recording and then moves the generation on,
 * so that each thread is looked up once a generation; 0 is "no such thread anywhere", and all that
 * other programs pay is that comparison.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct watched_word);
} words SEC(".maps");

volatile __u32 words_generation = 0;

/*
 * Set once every program is attached, cleared before the first is detached. Attaching takes a
 * millisecond: a task named meanwhile, with the kernel's count of its switches, could leave its CPU
 * before sched_switch is attached, and its rows were one less than its count says.
 */
volatile bool recording = false;

/*
 * What a task needs across its wait. "Missed" says what becomes of a field when the event that
 * writes it was not seen.
 */
struct task_state {
	/* The task that has this slot (address_of); 0: none. Missed, that it was freed: the slot is
	 * cleared when a task is forked at the same address, or, if that was missed, too, when a task
	 * leaves that has switched less often than this one had (end_run). */
	__u64 owner;
	/* Its last switch-out. Missed: the kernel's count tells (see out_count), and the wait that
	 * began there has no known length. */
	__u64 out_ts;
	__u64 out_count; /* nvcsw + nivcsw after that switch-out; another count now: one was missed */
	__u64 run_start; /* start of the run that ended then; 0 when that start was missed */
	/* Its last wakeup. Missed: the time is older than the wait, so the wait has no waker. */
	__u64 wake_ts;
	__u64 moved_ts; /* of this wait only: cleared at each switch-out */
	/* Looked up anew when `css` changes, which is compared at each event of the task. */
	__u64 cgroup;
	__u64 css; /* address of the css_set for which `cgroup` and `in_scope` hold; only compared */
	__u64 counted; /* nvcsw + nivcsw at the last walk over all tasks: see tree.h */
	__u64 word_address; /* of `words`, as of words_generation; 0 none */
	__u32 words_generation;
	__u32 key; /* given once, never changed */
	/* Who woke it: written together with wake_ts, and used only if that time is. */
	__u32 waker;
	__u16 wake_cpu;
	__u8 waker_kind;
	/* Of its last switch-out, as out_ts. */
	__u8 left_runnable;
	__s32 kernel_stack;
	__s32 user_stack;
	/* CPU + 1 on which it is counted as a waiter, 0 none. It is counted there at most once and
	 * taken off there, whatever was missed in between: see count_waiter. */
	__u32 waits_on;
	__u8 in_scope;
	__u8 inherits; /* its parent was in scope when it was forked */
	__u8 announced; /* ANNOUNCED when its record found room: one that did not is tried at the next run */
	/* Of summaries only, see summary.h: its last switch-out, and the last call it was seen in. */
	__u8 has_pending;
	__u64 pending_ts;
	__u64 pending_ran;
	__u64 pending_irq;
	union summary_key_words pending;
	__s32 last_call;
	__u32 look; /* of looks.h: of its last copy */
	__u64 looked_ts; /* the switch-out that the last wait which was copied began with */
};

/*
 * The states of all tasks. A task is given a slot when it is first seen, and its slot is free again
 * when the kernel frees the task. It is found by the task's address, because no exec changes that; the
 * pid of a thread that calls exec becomes its leader's. The kernel's own task storage cost 22 ns a
 * look-up on an EPYC on which each return of a helper is slow (spec_rstack_overflow: Safe RET), and
 * some kernels refuse it (6.19 and later, without cmpxchg16b). task_slots of them; user space maps them
 * to see which waits of a summary last.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct task_state);
} tasks SEC(".maps");

/* Stack id -> return addresses; ids are hashes, so the same stack is stored once. */
#define MAX_FRAMES 64
#define OWN_FRAMES 2 /* this program and its caller, on top of every kernel stack */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_FRAMES * sizeof(__u64));
} kernel_stacks SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_FRAMES * sizeof(__u64));
} user_stacks SEC(".maps");

__u32 last_key = 0;

/* Gives an address a type that may be read through without a helper (6.2 and later). */
extern void *bpf_rdonly_cast(const void *address, __u32 btf_id) __ksym __weak;
#define typed(address, type) ((type *)bpf_rdonly_cast((address), bpf_core_type_id_kernel(type)))

/* Keep the types in the object's BTF: Rust's are made from it. */
const volatile struct switch_record unused_switch_record;
const volatile struct task_record unused_task_record;
const volatile struct summary_group unused_summary_group;
const volatile struct task_state unused_task_state;

static __always_inline struct cpu_state *state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct cpu_state *this_cpu(void)
{
	return state_of(bpf_get_smp_processor_id());
}

/* Whether a test wants this event to be missed. The verifier removes all of it otherwise. */
static __always_inline bool is_missed(enum hook hook)
{
	struct cpu_state *c;

	if (!(missed_hooks & (1U << hook)))
		return false;
	c = this_cpu();
	if (!c || ++c->hook_events % miss_one_in)
		return false;
	c->missed++;
	return true;
}

static __always_inline __u32 cpu_of(struct task_struct *p)
{
	struct task_struct___cpu *old = (void *)p;

	if (bpf_core_field_exists(old->cpu))
		return BPF_CORE_READ(old, cpu);
	return p->thread_info.cpu;
}

/* The stopper is dressed as SCHED_FIFO 99 (sched_set_stop_task, kernel/sched/core.c). */
static __always_inline bool is_stopper(struct task_struct *p)
{
	return p->prio == 0 && (p->flags & PF_KTHREAD) && p->comm[0] == 'm' && p->comm[1] == 'i' &&
	       p->comm[2] == 'g';
}

static __always_inline __u8 class_of(struct task_struct *p)
{
	int prio = p->prio;

	if (p->pid == 0)
		return CLASS_IDLE;
	if (prio < 0)
		return CLASS_DEADLINE;
	if (prio < MAX_RT_PRIO)
		return is_stopper(p) ? CLASS_STOP : CLASS_RT;
	return p->policy == SCHED_EXT ? CLASS_EXT : CLASS_FAIR;
}

#endif
