/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Question: which task left which CPU, why, and how had it waited before?
 *
 * One record per switch-out, complete when it is written. What a task needs across its wait is
 * kept in a slot of its own; what belongs to the run in progress is kept per CPU, because a CPU
 * runs one task at a time.
 *
 *   sched_waking .. sched_wakeup   marker: this CPU wakes a task     (waker, moment)
 *   sched_set_need_resched_tp      who asks for the reschedule: read off the markers
 *   sched_switch                   the record; the next task's wait is loaded
 *   sched_exit_tp                  stacks of the wait that ended, in the task's own context
 *   local_timer, irq, softirq      markers, and interrupt time; on arm64 the timer is an irq
 *   sched_process_*, task_rename   identity
 *
 * With `summary` there is no record: switches are counted in a table (summary.h).
 *
 * C records evidence, Rust judges it (swtch-core/src/rules.rs).
 *
 * The state of a CPU is written under its run queue's lock by sched_switch, by requests to
 * reschedule (from any CPU), and by this CPU's own markers, so nothing here needs a lock.
 *
 * Every piece of state heals. A recording begins in the middle of everything, so the first event
 * seen may be the second half of a pair; and the kernel may skip a program or not report an event
 * at all. Beside each field of struct task_state and struct cpu_state stands what happens then:
 * whatever came before, the state of a CPU is right again after its next switch, and that of a
 * task after its next wait.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile bool scope_all = false; /* record every task */
const volatile bool has_cgroups = false; /* record tasks in or below those in `scope_cgroups` */
const volatile bool cgroup_is_v2 = true; /* which hierarchy names the cgroup of a task */
const volatile bool has_targets = false; /* processes in `targets` */
const volatile bool with_children = false; /* of the targets: those that live, those forked later */
const volatile __u32 recorder_pid = 0; /* it belongs to no tree, as little as what it starts */
const volatile bool has_need_resched = true; /* sched_set_need_resched_tp exists */
const volatile bool has_exit_hook = true; /* sched_exit_tp exists */
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
const volatile bool want_stacks = false;
const volatile __u64 stacks_min_blocked_ns = 0;
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
	__s32 waker_kernel_stack;
	__s32 waker_user_stack;
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
	__u32 pad;
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

/* ---- scope and identity ---- */

static __always_inline struct cgroup *cgroup_of(struct css_set *css)
{
	struct cgroup_subsys_state *cpu_css;
	int index;

	if (cgroup_is_v2)
		return BPF_CORE_READ(css, dfl_cgrp);
	index = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	bpf_probe_read_kernel(&cpu_css, sizeof(cpu_css), &css->subsys[index]);
	return BPF_CORE_READ(cpu_css, cgroup);
}

#define MAX_CGROUP_DEPTH 32

static __always_inline bool is_in_scope_cgroup(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *parent;
	__u64 id;
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && cgroup; i++) {
		id = BPF_CORE_READ(cgroup, kn, id);
		if (bpf_map_lookup_elem(&scope_cgroups, &id))
			return true;
		parent = BPF_CORE_READ(cgroup, self.parent);
		if (!parent)
			return false;
		cgroup = BPF_CORE_READ(parent, cgroup);
	}
	return false;
}

static __always_inline bool is_target(struct task_struct *p)
{
	__u32 pid = p->tgid;
	__u64 *ticks;

	if (!has_targets)
		return false;
	ticks = bpf_map_lookup_elem(&targets, &pid);
	return ticks && p->group_leader->start_boottime / TICKS_NS == *ticks;
}

#define ANNOUNCED 1
#define ANNOUNCED_ELSEWHERE 2 /* of a summary: in a cgroup that it has left since */

/*
 * Called when the task is first seen and when its cgroups changed: a pointer to compare, usually. A record
 * of a switch has its cgroup; a summary counts by task, so a task that moved is told of again.
 */
static __attribute__((noinline)) int settle_scope(struct task_state *st, struct css_set *css,
						  bool is_named)
{
	struct cgroup *cgroup;
	bool has_moved;
	__u64 id;

	if (!st)
		return 0;
	cgroup = cgroup_of(css);
	id = BPF_CORE_READ(cgroup, kn, id);
	has_moved = st->cgroup != id;
	st->cgroup = id;
	if (summary && has_moved && st->announced)
		st->announced = ANNOUNCED_ELSEWHERE;
	st->css = (__u64)css;
	st->in_scope = scope_all || is_named || st->inherits ||
		       (has_cgroups && is_in_scope_cgroup(cgroup));
	return 0;
}

/* A task is in the first slot of its probe sequence that was free when it was first seen. */
#define MOST_PROBES 32

/*
 * The task's address as a number. The verifier allows no arithmetic on an address but the difference
 * of two, so it is told from that of a constant.
 */
static __always_inline __u64 address_of(struct task_struct *p)
{
	return (__u64)p - (__u64)&task_slots;
}

static __always_inline struct task_state *probed_slot(__u64 address, __u32 probe)
{
	__u32 slot = address * 0x9e3779b97f4a7c15ULL >> 40; /* Fibonacci hashing */

	slot = (slot + probe) & (task_slots - 1);
	return bpf_map_lookup_elem(&tasks, &slot);
}

/*
 * Number of the probe that finds the task's slot; -1 when it has none. Global, as claim_probe, so that
 * the verifier looks at the loop once and not at each call.
 */
__attribute__((noinline)) int find_probe(__u64 address)
{
	struct task_state *st;
	int probe;

	for (probe = 0; probe < MOST_PROBES; probe++) {
		st = probed_slot(address, probe);
		if (st && st->owner == address)
			return probe;
	}
	return -1;
}

/*
 * Gives the first free slot to a task that has none; -1 when all are taken. Two CPUs that see a task
 * for the first time at once ask for the same slots in the same order, so the second finds what the
 * first has claimed.
 */
__attribute__((noinline)) int claim_probe(__u64 address)
{
	struct task_state *st;
	__u64 owner;
	int probe;

	for (probe = 0; probe < MOST_PROBES; probe++) {
		st = probed_slot(address, probe);
		if (!st)
			return -1;
		owner = __sync_val_compare_and_swap(&st->owner, 0, address);
		if (!owner || owner == address)
			return probe;
	}
	return -1;
}

static __always_inline struct task_state *slot_of_task(struct task_struct *p, bool claim)
{
	__u64 address = address_of(p);
	struct task_state *st = probed_slot(address, 0);
	int probe;

	if (st && st->owner == address)
		return st;
	/* A slot before its own may have become free since: only a task that has none claims one. */
	probe = find_probe(address);
	if (probe < 0 && claim)
		probe = claim_probe(address);
	return probe < 0 ? NULL : probed_slot(address, probe);
}

/* NULL for a task that has not been seen. */
static __always_inline struct task_state *find_task(struct task_struct *p)
{
	return slot_of_task(p, false);
}

/* The slot is empty before others see that it is free. */
static __attribute__((noinline)) int free_slot(struct task_struct *p)
{
	struct task_state *st = find_task(p);

	if (!st)
		return 0;
	__builtin_memset((char *)st + sizeof(st->owner), 0, sizeof(*st) - sizeof(st->owner));
	__sync_val_compare_and_swap(&st->owner, st->owner, 0);
	return 0;
}

/*
 * Whether a task that is seen for the first time has the mark of who forked it. The fork hook passes the
 * mark on; but from 7.0 on a tracepoint that is hit with preemption enabled can be preempted, and a program
 * that runs already is not run again on its CPU (bpf_prog_get_recursion_context, kernel/trace/bpf_trace.c):
 * a fork in between is not seen. That is the probable cause of a thread without a row in two of 32
 * recordings on 7.0 to 7.3.
 */
static __attribute__((noinline)) int is_born_into_scope(struct task_struct *p)
{
	bool is_thread = p->pid != p->tgid;
	struct task_state *st;

	if (!has_targets || (!is_thread && !with_children) || p->tgid == recorder_pid)
		return 0;
	st = is_thread ? find_task(p->group_leader) : find_task(p->real_parent);
	return st && st->in_scope;
}

/* Only a first slot can be refused: a test must not take away what a task has. */
static __always_inline bool is_refused_by_test(struct task_struct *p)
{
	return (missed_hooks & (1U << HOOK_STORAGE)) && !find_task(p) && is_missed(HOOK_STORAGE);
}

/*
 * NULL where no slot is free, which costs what the event would have told; the next event of the task
 * asks again.
 */
static __always_inline struct task_state *task_state_of(struct task_struct *p, struct cpu_state *c)
{
	struct task_state *st = NULL;
	struct css_set *css;

	if (!is_refused_by_test(p))
		st = slot_of_task(p, true);
	if (!st) {
		c->storage_failed++;
		return NULL;
	}
	css = p->cgroups;
	if (!st->key) {
		/* Another CPU may see the task for the first time right now: one key counts. */
		__sync_val_compare_and_swap(&st->key, 0, __sync_fetch_and_add(&last_key, 1) + 1);
		st->kernel_stack = NO_STACK;
		st->user_stack = NO_STACK;
		st->waker_kernel_stack = NO_STACK;
		st->waker_user_stack = NO_STACK;
		st->waker = KEY_UNKNOWN;
		st->last_call = NO_SYSCALL;
		st->inherits = is_born_into_scope(p);
		settle_scope(st, css, is_target(p));
	} else if (st->css != (__u64)css) {
		settle_scope(st, css, is_target(p));
	}
	return st;
}

#include "tree.h"

static __always_inline void *reserve(struct cpu_state *c, __u32 cpu, __u64 size)
{
	void *ring = bpf_map_lookup_elem(&rings, &cpu);

	return ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;
}

static __attribute__((noinline)) int tell(struct task_struct *p, struct task_state *st, __u32 event)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = state_of(cpu);
	struct task_record *r;

	if (!c || !st || !recording)
		return 0;
	r = reserve(c, cpu, sizeof(*r));
	if (!r) {
		c->lost_task_records++;
		return 0;
	}
	st->announced = ANNOUNCED; /* before its cgroup is read: another CPU may change both */
	r->kind = RECORD_TASK;
	r->event = event;
	r->ts = bpf_ktime_get_ns();
	r->start_boottime_ns = BPF_CORE_READ(p, start_boottime);
	r->cgroup = st->cgroup;
	r->nvcsw = BPF_CORE_READ(p, nvcsw);
	r->nivcsw = BPF_CORE_READ(p, nivcsw);
	r->task = st->key;
	r->tid = BPF_CORE_READ(p, pid);
	r->pid = BPF_CORE_READ(p, tgid);
	r->parent_pid = BPF_CORE_READ(p, real_parent, tgid);
	r->prio = BPF_CORE_READ(p, prio);
	r->class = r->prio < 0 ? CLASS_DEADLINE : r->prio < MAX_RT_PRIO ? CLASS_RT : CLASS_FAIR;
	r->is_kthread = !!(BPF_CORE_READ(p, flags) & PF_KTHREAD);
	r->in_scope = st->in_scope;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	BPF_CORE_READ_STR_INTO(&r->comm, p, comm);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void announce(struct task_struct *p, struct task_state *st)
{
	if (st->announced != ANNOUNCED)
		tell(p, st, TASK_SEEN);
}

/* ---- markers: what this CPU is doing ---- */

/*
 * Waking, starting and moving a task happen one at a time and with interrupts off. So there is one
 * window, the last that was opened; an interrupt and a switch close it.
 */
static __always_inline void open_window(struct cpu_state *c, enum window window,
					struct task_struct *p, __u32 key, __u64 now)
{
	c->window = window;
	c->window_task = (__u64)p;
	c->window_key = key;
	c->window_ts = now;
}

static __always_inline void close_window(struct cpu_state *c)
{
	c->window = WINDOW_NONE;
}

static __always_inline bool is_window(struct cpu_state *c, enum window window,
				      struct task_struct *p)
{
	return c->window == window && c->window_task == (__u64)p;
}

/*
 * What may be going on around an interrupt: hard interrupts do not nest, and soft ones are only
 * ever interrupted by hard ones (__do_softirq runs when the last hard one is left, or in a task).
 * So each entry and each exit says the whole state, and one that was missed is made good by the
 * next, or by the next switch: see sched_switch.
 */
static __always_inline __u32 around_interrupt(struct cpu_state *c, __u32 interrupt)
{
	return interrupt == IN_SOFTIRQ ? 0 : c->interrupts & IN_SOFTIRQ;
}

/* The interrupt is marked before its start is written, and unmarked after its length was added: a
 * hard one that comes in between then leaves the start alone. */
static __always_inline void enter_interrupt(struct cpu_state *c, __u32 interrupt)
{
	__u32 around = around_interrupt(c, interrupt);

	c->interrupts = around | interrupt;
	barrier();
	if (!around)
		c->irq_start = bpf_ktime_get_ns();
	close_window(c);
}

static __always_inline void leave_interrupt(struct cpu_state *c, __u32 interrupt)
{
	__u32 around = around_interrupt(c, interrupt);

	/* Without its entry, whether missed or before the recording, its length is not known. */
	if ((c->interrupts & interrupt) && !around)
		c->irq_ns += bpf_ktime_get_ns() - c->irq_start;
	barrier();
	c->interrupts = around;
	close_window(c);
}

/* ---- slices ---- */

/*
 * Here everything is read through typed pointers: bpf_rdonly_cast exists longer than se->deadline, and a
 * probe_read costs 10 ns.
 *
 * update_deadline (kernel/sched/fair.c, 6.6 and later) renews the deadline to vruntime + slice,
 * weighted, and asks for the reschedule at once: a deadline that far off is a slice just used up.
 */
static __always_inline bool is_renewed_within(__u64 left, __u64 slice, __u64 weight, int shift)
{
	if (!weight || (__s64)left < 0)
		return false;
	if (weight != NICE_0_LOAD)
		slice = slice * NICE_0_LOAD / weight;
	return left + (slice >> shift) + 1 >= slice;
}

/* __calc_delta rounds: allow 1/1024. */
static __always_inline bool is_renewed(__u64 left, __u64 slice, __u64 weight)
{
	return is_renewed_within(left, slice, weight, 10);
}

/*
 * From 7.3 on tasks of all groups stand in one queue (sched/fair.c, v7.3): a task's virtual time
 * runs by h_load, and the deadlines of its groups are not kept any more.
 */
static __always_inline bool is_flat(struct sched_entity *se)
{
	return bpf_core_field_exists(se->h_load);
}

static __always_inline __u64 weight_of(struct sched_entity *se)
{
	return is_flat(se) ? se->h_load.weight : se->load.weight;
}

/*
 * protect_slice (6.17 and later): past vprot any update_curr asks, whatever it was called for, such
 * as the removal of another task. Equality does not count: cancel_protect_slice, for a woken task
 * with a short slice, moves vprot to vruntime.
 */
static __always_inline bool is_unprotected(struct sched_entity *se)
{
	return (__s64)(se->vruntime - se->vprot) > 0;
}

static __always_inline __u32 protection_evidence(struct task_struct *p)
{
	struct sched_entity *se = &p->se;
	int i;

	if (!bpf_core_field_exists(se->vprot) || p->prio < MAX_RT_PRIO || p->__state)
		return 0;
	for (i = 0; i <= MAX_GROUP_DEPTH && se; i++) {
		if (is_unprotected(se))
			return EVIDENCE_PROTECTION_LAPSED;
		if (is_flat(se))
			return 0;
		se = se->parent;
	}
	return 0;
}

static __always_inline __u32 slice_evidence(struct task_struct *p)
{
	struct sched_entity *se = p->se.parent;
	int i;

	if (is_renewed(p->se.deadline - p->se.vruntime, p->se.slice, weight_of(&p->se)))
		return EVIDENCE_SLICE_END;
	if (is_flat(&p->se))
		return 0;
	for (i = 0; i < MAX_GROUP_DEPTH && se; i++) {
		if (is_renewed(se->deadline - se->vruntime, se->slice, se->load.weight))
			return EVIDENCE_GROUP_SLICE_END;
		se = se->parent;
	}
	return 0;
}

/* Of a fair task; what real-time tasks have there is left over. */
static __always_inline __u32 own_slice_evidence(struct task_struct *p)
{
	__u32 evidence = p->prio < MAX_RT_PRIO ? 0 : slice_evidence(p);

	return evidence ?: protection_evidence(p);
}

/*
 * Entities in the run queue of this one, itself included. The field was renamed in 6.14; where it has a
 * third name nobody seems to be there, and nothing is found.
 */
static __always_inline unsigned int queued_with(struct sched_entity *se)
{
	struct cfs_rq___before_6_14 *old = typed(se->cfs_rq, struct cfs_rq___before_6_14);
	struct cfs_rq *queue = typed(se->cfs_rq, struct cfs_rq);

	if (bpf_core_field_exists(old->nr_running))
		return old->nr_running;
	return bpf_core_field_exists(queue->nr_queued) ? queue->nr_queued : 0;
}

/* Entities that must be queued for a request: by one that is queued already, and by the one that comes. */
#define IN_COMPANY 2
#define AFTER_QUEUEING 3
#define NEVER_ENOUGH (~0U)

/* In slice_asked: not the slice, but a task that was woken has asked. */
#define WOKEN_ASKED 1

/*
 * A request of this age was obeyed, and the same task picked again, which no event tells: so it is where
 * the others in the queue only seem to be there, because they are about to sleep (DELAY_DEQUEUE).
 */
#define OBEYED_NS 200000

static __always_inline bool somebody_has_asked(struct cpu_state *t)
{
	if (t->slice_asked && bpf_ktime_get_ns() - t->slice_asked_ts > OBEYED_NS)
		t->slice_asked = 0;
	return t->slice_asked;
}

static __always_inline void note_asked(struct cpu_state *t, __u32 by)
{
	t->slice_asked = by;
	t->slice_asked_ts = bpf_ktime_get_ns();
}

static __always_inline bool has_lost_protection(struct sched_entity *se)
{
	return bpf_core_field_exists(se->vprot) && is_unprotected(se);
}

static __always_inline bool may_ask(struct cpu_state *t, struct sched_entity *runs,
				    unsigned int least)
{
	return !t->slice_asked && queued_with(runs) >= least;
}

/*
 * Without the hook: looks at the slice of the task that runs on this CPU, right after the kernel did so
 * (update_curr, v6.18: by the tick, or because a task is being queued). It asks for the CPU if the slice
 * is used up, or its protected part (6.17 and later), and if so many entities were queued: itself and
 * another one, and now the one for which the kernel looked. Who asks later changes nothing.
 *
 * A deadline also moves unasked, while the task is alone, so it must have moved since it was last seen.
 */
static __always_inline void look_at_task(struct cpu_state *t, struct task_struct *p,
					 unsigned int least)
{
	__u64 seen = t->run_deadline;

	if (!t->run_start || p->pid != t->pid || p->prio < MAX_RT_PRIO)
		return;
	t->run_deadline = p->se.deadline;
	if (!may_ask(t, &p->se, least))
		return;
	if (p->se.deadline != seen &&
	    is_renewed_within(p->se.deadline - p->se.vruntime, p->se.slice, weight_of(&p->se), 8))
		note_asked(t, EVIDENCE_SLICE_END);
	else if (has_lost_protection(&p->se))
		note_asked(t, EVIDENCE_PROTECTION_LAPSED);
}

static __always_inline bool looks_at_slices(struct task_struct *p)
{
	return !has_need_resched && bpf_core_field_exists(p->se.deadline) &&
	       bpf_core_field_exists(p->se.my_q) && bpf_ksym_exists(bpf_rdonly_cast);
}

/*
 * Where a task is queued or leaves, the weight of its group is adjusted, and with it the place of the group
 * in its own queue (reweight_entity, kernel/sched/fair.c): after the kernel has looked, and so that what was
 * protected seems not to be. So it is kept how the groups stood before.
 */
static __always_inline void note_group(struct cpu_state *t, struct sched_entity *group)
{
	struct group_seen *seen = &t->groups[group->depth & (MAX_GROUP_DEPTH - 1)];

	seen->group = (__u64)group;
	seen->vruntime = group->vruntime;
	seen->vprot = group->vprot;
	seen->exec_start = group->exec_start;
	seen->weight = group->load.weight;
}

static __always_inline bool has_protected_groups(struct sched_entity *se)
{
	return bpf_core_field_exists(se->vprot) && bpf_core_field_exists(se->depth) && !is_flat(se);
}

/* Before a task is queued on this CPU, and before a tick. */
static __always_inline void note_groups(struct cpu_state *t)
{
	struct task_struct *runs;
	struct sched_entity *se;
	int i;

	if (!t->in_scope || !t->run_start)
		return;
	runs = typed((void *)t->run_task, struct task_struct);
	if (!has_protected_groups(&runs->se))
		return;
	se = runs->se.parent;
	for (i = 0; i < MAX_GROUP_DEPTH && se; i++) {
		note_group(t, se);
		se = se->parent;
	}
}

/* Of the CPU that a wakeup is about to put its task on. */
static __always_inline void note_groups_on(struct task_struct *woken, __u32 cpu)
{
	struct cpu_state *t;

	if (!looks_at_slices(woken))
		return;
	t = state_of(cpu);
	if (t)
		note_groups(t);
}

/* Whether update_curr found a group without its protection when it charged it last. */
static __always_inline bool had_lost_protection(struct cpu_state *t, struct sched_entity *group)
{
	struct group_seen *seen;
	__u64 charged;

	if (!has_protected_groups(group))
		return false;
	seen = &t->groups[group->depth & (MAX_GROUP_DEPTH - 1)];
	if (seen->group != (__u64)group || !seen->weight) /* how it stood is not known */
		return false;
	charged = group->exec_start - seen->exec_start;
	return (__s64)(seen->vruntime + charged * NICE_0_LOAD / seen->weight - seen->vprot) > 0;
}

/* The same of a group that runs: its deadline was not seen before, so it must be quite new. */
static __always_inline void look_at_group(struct cpu_state *t, struct sched_entity *group,
					  unsigned int least)
{
	bool had_lost = had_lost_protection(t, group);

	if (has_protected_groups(group))
		note_group(t, group);
	if (!may_ask(t, group, least))
		return;
	if (is_renewed(group->deadline - group->vruntime, group->slice, group->load.weight))
		note_asked(t, EVIDENCE_GROUP_SLICE_END);
	else if (had_lost)
		note_asked(t, EVIDENCE_PROTECTION_LAPSED);
}

/* What runs of those that are queued with this one: a task, or a group. */
static __always_inline struct sched_entity *running_with(struct sched_entity *se)
{
	struct cfs_rq *queue = typed(se->cfs_rq, struct cfs_rq);
	struct sched_entity *runs = bpf_core_field_exists(queue->h_curr) ? queue->h_curr :
				    bpf_core_field_exists(queue->curr)	 ? queue->curr :
									   NULL;

	return runs ? typed(runs, struct sched_entity) : NULL;
}

static __always_inline struct task_struct *task_of(struct sched_entity *se)
{
	return typed((void *)se - bpf_core_field_offset(struct task_struct, se),
		     struct task_struct);
}

/*
 * After the kernel has queued a task on this CPU. A group in which nobody else is queued was queued with
 * it; of one that was queued before, the weight may be adjusted (reweight_entity), which is a look, too:
 * then it has been charged at the same moment.
 *
 * Then the kernel compares both: without its protection a task loses the CPU to the first that comes, and
 * nothing is found in its slice by those that come next.
 */
static __always_inline void look_at_slice_after_queueing(struct cpu_state *t,
							 struct task_struct *queued)
{
	struct sched_entity *se = &queued->se, *runs, *compared = NULL;
	unsigned int least = AFTER_QUEUEING;
	int i;

	if (!looks_at_slices(queued) || queued->prio < MAX_RT_PRIO || !t->in_scope ||
	    somebody_has_asked(t))
		return;
	for (i = 0; i <= MAX_GROUP_DEPTH && se; i++) {
		runs = running_with(se);
		if (runs && compared && runs->exec_start != compared->exec_start)
			break;
		if (runs && !runs->my_q)
			look_at_task(t, task_of(runs), least);
		else if (runs)
			look_at_group(t, runs, least);
		compared = compared ?: runs;
		if (is_flat(se))
			break;
		if (queued_with(se) > 1)
			least = IN_COMPANY;
		se = se->parent;
	}
	if (!t->slice_asked && compared && has_lost_protection(compared))
		note_asked(t, WOKEN_ASKED);
}

/* TIF_NEED_RESCHED before 6.6 (arch/x86 and arch/arm64, include/asm/thread_info.h). */
#ifdef __TARGET_ARCH_arm64
#define NEED_RESCHED_BEFORE_6_6 (1UL << 1)
#else
#define NEED_RESCHED_BEFORE_6_6 (1UL << 3)
#endif

/* Before 6.6 a slice has no end that could be read; but a tick that wakes nobody asks for its sake only. */
static __always_inline void look_at_flag_after_tick(struct cpu_state *c,
						    struct task_struct *current)
{
	if (!c->last_woken && current->prio >= MAX_RT_PRIO &&
	    (current->thread_info.flags & NEED_RESCHED_BEFORE_6_6))
		note_asked(c, EVIDENCE_SLICE_END);
}

/*
 * When a timer's interrupt begins: a bit for the task, and for each group above it, that is not alone.
 * Those that this interrupt, or another CPU, queues meanwhile have not been there when the tick looked.
 */
static __always_inline void note_company(struct cpu_state *c)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct sched_entity *se = &current->se;
	int i;

	c->company = 0;
	if (!looks_at_slices(current) || !c->in_scope)
		return;
	note_groups(c);
	for (i = 0; i <= MAX_GROUP_DEPTH && se; i++) {
		if (queued_with(se) > 1)
			c->company |= 1 << i;
		if (is_flat(se))
			return;
		se = se->parent;
	}
}

/* When it ends. */
static __always_inline void look_at_slice_after_tick(struct cpu_state *c)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct sched_entity *group;
	int i;

	if (has_need_resched || !c->in_scope || somebody_has_asked(c))
		return;
	if (!bpf_core_field_exists(current->se.deadline))
		look_at_flag_after_tick(c, current);
	if (!looks_at_slices(current))
		return;
	look_at_task(c, current, c->company & 1 ? IN_COMPANY : NEVER_ENOUGH);
	group = is_flat(&current->se) ? NULL : current->se.parent;
	for (i = 1; i <= MAX_GROUP_DEPTH && group; i++) {
		if (c->company >> i & 1)
			look_at_group(c, group, IN_COMPANY);
		group = group->parent;
	}
}

#define INTERRUPT(name, interrupt, entry_hook, exit_hook, at_entry, at_exit)                       \
	SEC("tp_btf/" #name "_entry")                                                              \
	int name##_entry(void *ctx)                                                                \
	{                                                                                          \
		struct cpu_state *c = this_cpu();                                                  \
                                                                                                   \
		if (!c || is_missed(entry_hook))                                                   \
			return 0;                                                                  \
		enter_interrupt(c, interrupt);                                                     \
		at_entry;                                                                          \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int name##_exit(void *ctx)                                                                 \
	{                                                                                          \
		struct cpu_state *c = this_cpu();                                                  \
                                                                                                   \
		if (!c || is_missed(exit_hook))                                                    \
			return 0;                                                                  \
		leave_interrupt(c, interrupt);                                                     \
		at_exit;                                                                           \
		return 0;                                                                          \
	}

/* Without the hook that tells, who asked last is inferred from what came last: see rules.rs. */
static __always_inline void note_tick(struct cpu_state *c)
{
	c->tick_in_run = 1;
	c->last_woken = c->last_moved = KEY_IDLE;
	note_company(c);
}

static __always_inline void note_woken(struct cpu_state *t, __u32 woken)
{
	/* A task that is woken before it has left, and so stays, asks nobody for the CPU. */
	if (!has_need_resched && woken != t->task)
		t->last_woken = woken;
}

/* Both hooks of an interrupt have its number first. */
static __always_inline __u32 kind_of_irq(void *ctx)
{
	const __u64 *arguments = ctx;

	return (__s32)arguments[0] == tick_irq ? IN_TICK : IN_HARDIRQ;
}

INTERRUPT(local_timer, IN_TICK, HOOK_TIMER_ENTRY, HOOK_TIMER_EXIT, note_tick(c),
	  look_at_slice_after_tick(c))
INTERRUPT(irq_handler, kind_of_irq(ctx), HOOK_IRQ_ENTRY, HOOK_IRQ_EXIT,
	  if (kind_of_irq(ctx) == IN_TICK) note_tick(c),
	  if (kind_of_irq(ctx) == IN_TICK) look_at_slice_after_tick(c))
INTERRUPT(softirq, IN_SOFTIRQ, HOOK_SOFTIRQ_ENTRY, HOOK_SOFTIRQ_EXIT, , )

/* ---- waiters: tasks in scope that are runnable and do not run ---- */

/* Where every task is recorded, nobody need be found out; a summary does not say who ran while
 * another waited. */
static __always_inline bool names_waiters(void)
{
	return !scope_all && !summary;
}

/* Another CPU's count may be written here at any time; its own part needs no lock. */
static __always_inline void add_to_waiters(__u32 cpu, int number)
{
	struct cpu_state *c = state_of(cpu);

	if (!c)
		return;
	if (cpu == bpf_get_smp_processor_id())
		c->waiters += number;
	else
		__sync_fetch_and_add(&c->waiters_from_afar, number);
}

/* Takes the task off the count of the CPU that it is counted on, if any. */
static __always_inline void discount_waiter(struct task_state *st)
{
	if (!st->waits_on)
		return;
	add_to_waiters(st->waits_on - 1, -1);
	st->waits_on = 0;
}

/* Counts the task as a waiter of this CPU, and of no other. */
static __always_inline void count_waiter(struct task_state *st, __u32 cpu)
{
	if (st->waits_on == cpu + 1 || !recording)
		return;
	discount_waiter(st);
	add_to_waiters(cpu, 1);
	st->waits_on = cpu + 1;
}

static __always_inline bool has_waiters(struct cpu_state *c)
{
	return c->waiters + c->waiters_from_afar > 0;
}

/* ---- wakeups ---- */

/* Where the waker is, when the wait that it ends is long enough for stacks. */
static __always_inline void take_waker_stacks(void *ctx, struct cpu_state *c, struct task_struct *p,
					      struct task_state *st)
{
	struct task_struct *current = bpf_get_current_task_btf();

	st->waker_kernel_stack = st->waker_user_stack = NO_STACK;
	/* An interrupt says who was interrupted, not why; a task on its CPU does not wait yet. */
	if (st->waker_kind != WAKER_TASK || p->on_cpu || st->left_runnable || !st->out_ts ||
	    st->wake_ts < st->out_ts + stacks_min_blocked_ns)
		return;
	st->waker_kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, OWN_FRAMES);
	if (st->waker_kernel_stack < 0)
		c->stack_failed++;
	if (!(current->flags & PF_KTHREAD))
		st->waker_user_stack = bpf_get_stackid(ctx, &user_stacks, BPF_F_USER_STACK);
}

/*
 * The key of the task that runs here: the one that the last switch brought, unless that switch was
 * not seen.
 */
static __always_inline __u32 key_of_current(struct cpu_state *c)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct task_state *st;

	if (c->started && c->pid == current->pid)
		return c->task;
	if (!current->pid)
		return KEY_IDLE;
	st = task_state_of(current, c);
	return st ? st->key : KEY_UNKNOWN;
}

static __always_inline __u8 waker_kind_here(struct cpu_state *c)
{
	return !c->interrupts		  ? WAKER_TASK :
	       c->interrupts & IN_TICK	  ? WAKER_TIMER :
	       c->interrupts & IN_HARDIRQ ? WAKER_INTERRUPT :
					    WAKER_SOFTIRQ;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct cpu_state *c = this_cpu();
	struct task_state *st, *waker;
	struct task_struct *current;

	if (!c || is_missed(HOOK_WAKING))
		return 0;
	st = task_state_of(p, c);
	open_window(c, WINDOW_WAKING, p, st ? st->key : KEY_UNKNOWN, bpf_ktime_get_ns());
	c->waking_in_scope = st ? st->in_scope : 0;
	note_groups_on(p, cpu_of(p));
	if (!st || !st->in_scope)
		return 0;
	st->wake_ts = c->window_ts;
	st->wake_cpu = cpu_of(p);
	st->waker_kind = waker_kind_here(c);
	st->waker = key_of_current(c);
	if (names_waiters())
		count_waiter(st, st->wake_cpu);
	if (want_stacks)
		take_waker_stacks(ctx, c, p, st);
	if (!summary && !c->announced) {
		current = bpf_get_current_task_btf();
		waker = current->pid ? task_state_of(current, c) : NULL;
		if (waker) {
			announce(current, waker);
			c->announced = recording; /* once a run, however it went */
		}
	}
	return 0;
}

/* A request of this age, raised on this CPU outside every window, belongs to the wakeup that ends. */
#define SAME_WAKEUP_NS 20000

static __always_inline void credit_late(struct cpu_state *t, __u32 woken, __u32 cause,
					__u32 evidence)
{
	__u64 now;

	if (t->cause != CAUSE_OWN && t->cause != CAUSE_FOREIGN)
		return;
	now = bpf_ktime_get_ns();
	if (t->cause_ts && now - t->cause_ts > SAME_WAKEUP_NS)
		return;
	t->cause = cause;
	t->cause_ts = now;
	t->cause_evidence |= evidence;
	t->nominator = woken;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	struct cpu_state *c = this_cpu(), *t;
	struct task_state *st = NULL;
	__u32 woken;
	bool in_scope;

	if (!c || is_missed(HOOK_WAKEUP))
		return 0;
	t = state_of(cpu_of(p));
	if (!t)
		return 0;
	if (is_window(c, WINDOW_WAKING, p)) {
		woken = c->window_key;
		in_scope = c->waking_in_scope;
	} else { /* another CPU queued this wakeup; it is finished here, without sched_waking */
		st = task_state_of(p, c);
		if (!st)
			return 0;
		woken = st->key;
		in_scope = st->in_scope;
		credit_late(t, woken, CAUSE_REMOTE_WAKEUP, 0);
	}
	close_window(c);
	note_woken(t, woken);
	look_at_slice_after_queueing(t, p);
	if (!names_waiters())
		return 0;
	/* One that still runs keeps its CPU, and waits for none; a stranger that preempts is named. */
	if (in_scope ? p->on_cpu : t->cause && t->nominator == woken) {
		st = st ?: task_state_of(p, c);
		if (!st)
			return 0;
		if (in_scope)
			discount_waiter(st);
		else
			announce(p, st);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct cpu_state *c = this_cpu(), *t;
	struct task_state *st;

	if (!c || is_missed(HOOK_WAKEUP_NEW))
		return 0;
	st = task_state_of(p, c);
	t = state_of(cpu_of(p));
	if (!st || !t)
		return 0;
	/* A new task waits from here on; nobody else wakes it. */
	st->wake_ts = bpf_ktime_get_ns();
	st->waker = key_of_current(c);
	st->waker_kind = WAKER_TASK;
	st->wake_cpu = cpu_of(p);
	open_window(c, WINDOW_STARTING, p, st->key, st->wake_ts);
	credit_late(t, st->key, CAUSE_NEW_TASK, EVIDENCE_IN_ENQUEUE);
	note_woken(t, st->key);
	look_at_slice_after_queueing(t, p);
	if (names_waiters() && st->in_scope)
		count_waiter(st, st->wake_cpu);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest_cpu)
{
	struct cpu_state *c = this_cpu(), *to;
	struct task_state *st;
	__u64 now;

	if (!c || is_missed(HOOK_MIGRATE))
		return 0;
	st = task_state_of(p, c);
	if (st && st->waits_on)
		count_waiter(st, dest_cpu);
	if (is_window(c, WINDOW_WAKING, p)) { /* where the wakeup puts it */
		note_groups_on(p, dest_cpu);
		if (st)
			st->wake_cpu = dest_cpu;
		return 0;
	}
	now = bpf_ktime_get_ns();
	open_window(c, WINDOW_MOVING, p, st ? st->key : KEY_UNKNOWN, now);
	to = state_of(dest_cpu);
	if (!has_need_resched && to && st)
		to->last_moved = st->key;
	if (st && st->in_scope && !p->on_cpu)
		st->moved_ts = now;
	return 0;
}

/* ---- who asks for the reschedule ---- */

/*
 * activate_task sets on_rq after the task and all its groups are queued; until then update_curr has
 * asked, from then on wakeup_preempt.
 */
static __always_inline bool is_being_queued(struct task_struct *woken)
{
	return woken->on_rq != TASK_ON_RQ_QUEUED;
}

/*
 * Whether what the window is open for concerns this CPU. No event closes the window of a start or a
 * move, so it ends by age, too: the request follows within a microsecond, but after the moves of up
 * to 32 tasks (sched_nr_migrate_break, kernel/sched/fair.c). A wakeup that was queued to another CPU
 * leaves its window open here; it is over when the state is 0.
 */
#define WINDOW_NS 50000

static __always_inline bool is_window_for(struct cpu_state *c, enum window window, __u32 cpu)
{
	struct task_struct *task;

	if (c->window != window)
		return false;
	task = typed((void *)c->window_task, struct task_struct);
	if (task->thread_info.cpu != cpu)
		return false;
	if (window == WINDOW_WAKING)
		return task->__state;
	return bpf_ktime_get_ns() - c->window_ts <= WINDOW_NS;
}

static __always_inline bool is_window_task_being_queued(struct cpu_state *c)
{
	return is_being_queued(typed((void *)c->window_task, struct task_struct));
}

SEC("tp_btf/sched_set_need_resched_tp")
int BPF_PROG(sched_set_need_resched, struct task_struct *p, int cpu, int tif)
{
	__u32 cause, evidence = 0, nominator = KEY_UNKNOWN;
	struct cpu_state *c, *t;

	if (is_missed(HOOK_NEED_RESCHED))
		return 0;
	t = state_of(cpu);
	if (!t || !t->in_scope)
		return 0;
	if (want_oracle && !(t->cause && t->cause_tif != tif))
		t->cause_stack = bpf_get_stackid(ctx, &kernel_stacks, 0);
	/* A lazy request made urgent: the first cause stands. The tif numbers differ by kernel, so
	 * they are only compared with each other. */
	if (t->cause && t->cause_tif != tif &&
	    (p->thread_info.flags & (1UL << (t->cause_tif & 63)))) {
		t->cause_evidence |= EVIDENCE_LAZY;
		return 0;
	}
	c = this_cpu();
	if (!c)
		return 0;
	t->cause_tif = tif;
	if (is_window_for(c, WINDOW_WAKING, cpu)) {
		t->cause = CAUSE_WAKEUP;
		t->nominator = c->window_key;
		t->cause_ts = c->window_ts;
		t->cause_evidence = 0;
		if (is_window_task_being_queued(c))
			t->cause_evidence = EVIDENCE_IN_ENQUEUE | slice_evidence(p);
		return 0;
	}
	if ((c->interrupts & IN_TICK) ||
	    (!has_tick_hook && tick_irq < 0 && (c->interrupts & IN_HARDIRQ) && c == t)) {
		cause = CAUSE_TICK;
		evidence = slice_evidence(p);
	} else if (is_window_for(c, WINDOW_STARTING, cpu)) {
		cause = CAUSE_NEW_TASK;
		nominator = c->window_key;
	} else if (is_window_for(c, WINDOW_MOVING, cpu)) {
		cause = CAUSE_BALANCE;
		nominator = c->window_key;
		if (is_window_task_being_queued(c))
			evidence = protection_evidence(p);
	} else if (c == t && !c->interrupts) {
		/*
		 * In its own context, or in __schedule itself, where it does not matter: half of
		 * all requests on a pipe. No time is read for it. A call that charges the run time
		 * (of its own CPU time: update_curr) may find the slice used up.
		 */
		t->cause = CAUSE_OWN;
		t->cause_evidence = p->__state ? 0 : own_slice_evidence(p);
		t->nominator = KEY_UNKNOWN;
		t->cause_ts = 0;
		return 0;
	} else {
		cause = CAUSE_FOREIGN;
		evidence = protection_evidence(p);
	}
	t->cause = cause;
	t->cause_evidence = evidence;
	t->nominator = nominator;
	t->cause_ts = bpf_ktime_get_ns();
	return 0;
}

/* ---- locks of the kernel ---- */

/*
 * How many of a lock's queue are looked at, from its end. A task that has just begun to wait is the last;
 * behind it are those who came since, or while it was woken in vain.
 */
#define MOST_QUEUED_BEHIND 8

/*
 * Whether the task that leaves the CPU stands in the queue of the read-write semaphore at this address. The
 * queue changes while it is read, and its nodes lie on the stacks of tasks: each read may fail, and then the
 * task is not found.
 *
 * It is global, so that the verifier looks at it once and not for each way that leads here, which took as long
 * as all of the program besides. Such a function takes numbers only: the address must have been read by a
 * helper.
 */
__attribute__((noinline)) int is_queued_at(__u64 address)
{
	const struct task_struct *p = (void *)bpf_get_current_task();
	struct rw_semaphore *lock = (void *)address;
	struct rwsem_waiter *waiter = NULL;
	int i;

	if (bpf_core_field_exists(lock->wait_list))
		waiter = (void *)BPF_CORE_READ(lock, wait_list.prev);
	else if (bpf_core_field_exists(lock->first_waiter))
		waiter = (void *)BPF_CORE_READ(lock, first_waiter, list.prev);
	for (i = 0; i < MOST_QUEUED_BEHIND && waiter; i++) {
		if (BPF_CORE_READ(waiter, task) == p)
			return true;
		waiter = (void *)BPF_CORE_READ(waiter, list.prev);
	}
	return false;
}

/*
 * A wait for a read-write semaphore counts as load, killable or not, and is no I/O. Nearly all that blocks
 * often sleeps otherwise, and costs no look at any queue.
 */
static __always_inline bool may_wait_for_rwsem(__u32 state, __u32 evidence)
{
	return (state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE &&
	       !(evidence & EVIDENCE_IN_IOWAIT);
}

/*
 * What the kernel says of the lock that a task blocks on. It does not tell of those that a signal may end
 * the wait for, as mmap and most page faults wait for the address space's lock: the queue does.
 */
__attribute__((noinline)) int lock_evidence(__u32 state, __u32 evidence)
{
	const struct task_struct *p = (void *)bpf_get_current_task();
	struct mm_struct *mm;
	__u32 found = 0;

	if ((bpf_core_field_exists(p->blocked_on) && BPF_CORE_READ(p, blocked_on)) ||
	    (bpf_core_field_exists(p->blocker) && BPF_CORE_READ(p, blocker)))
		found = EVIDENCE_KERNEL_LOCK;
	if (!may_wait_for_rwsem(state, evidence))
		return found;
	mm = BPF_CORE_READ(p, mm);
	if (mm && is_queued_at((__u64)&mm->mmap_lock))
		found |= EVIDENCE_MMAP_LOCK;
	return found;
}

/* ---- the switch ---- */

static __always_inline __u8 kind_of_anonymous(struct file *file)
{
	const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	char start[8] = {};

	bpf_probe_read_kernel_str(start, sizeof(start), name);
	if (start[1] == 'e' && start[2] == 'v' && start[3] == 'e' && start[6] == 'f')
		return OBJECT_EVENTFD; /* [eventfd] */
	if (start[1] == 't' && start[2] == 'i' && start[3] == 'm')
		return OBJECT_TIMERFD; /* [timerfd] */
	return OBJECT_OTHER_FD;
}

/* What a mode alone tells; OBJECT_REGULAR where the file system must be asked, too. */
static __always_inline __u8 kind_of_mode(unsigned short mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return OBJECT_FIFO;
	case S_IFSOCK:
		return OBJECT_SOCKET;
	case S_IFCHR:
		return OBJECT_CHAR;
	case S_IFBLK:
		return OBJECT_BLOCK;
	default: /* anonymous inodes say regular since 6.16, nothing before */
		return OBJECT_REGULAR;
	}
}

static __always_inline void describe_file(struct switch_record *r, struct task_struct *p,
					  __u32 state, __u64 fd)
{
	struct files_struct *files = p->files;
	struct inode *inode;
	struct fdtable *fdt;
	struct file *file;
	__u64 magic = 0;

	if (!files)
		return;
	fdt = files->fdt;
	if (fd >= fdt->max_fds)
		return;
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		file = typed(typed(fdt->fd + fd, struct hlist_node)->next, struct file);
		if (!file)
			return;
		inode = file->f_inode;
		r->wait_key = inode->i_ino;
		r->wait_object = kind_of_mode(inode->i_mode);
		if (r->wait_object == OBJECT_REGULAR)
			magic = inode->i_sb->s_magic;
	} else {
		if (bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd) || !file)
			return;
		inode = BPF_CORE_READ(file, f_inode);
		r->wait_key = BPF_CORE_READ(inode, i_ino);
		r->wait_object = kind_of_mode(BPF_CORE_READ(inode, i_mode));
		if (r->wait_object == OBJECT_REGULAR)
			magic = BPF_CORE_READ(inode, i_sb, s_magic);
	}
	if (magic == ANON_INODE_FS_MAGIC)
		r->wait_object = kind_of_anonymous(file);
	else if (may_wait_for_rwsem(state, r->evidence)) {
		inode = BPF_CORE_READ(file, f_inode);
		r->evidence |= is_queued_at((__u64)&inode->i_rwsem) * EVIDENCE_INODE_LOCK;
	}
}

/*
 * Where user mode left its registers: at the same distance from the stack of every task, so the helper
 * is asked once on each CPU. It took 20 ns, because two functions return on the way.
 */
static __always_inline struct pt_regs *registers_of(struct cpu_state *c, struct task_struct *p)
{
	__u64 stack;

	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return (struct pt_regs *)bpf_task_pt_regs(p);
	/* Read back from a map, an address is a number that the verifier lets us reckon with. */
	*(volatile __u64 *)&c->stack_of_prev = (__u64)p->stack;
	stack = *(volatile __u64 *)&c->stack_of_prev;
	if (!c->registers_above_stack) {
		*(volatile __u64 *)&c->registers_above_stack = (__u64)bpf_task_pt_regs(p);
		*(volatile __u64 *)&c->registers_above_stack -= stack;
	}
	return typed((void *)(stack + c->registers_above_stack), struct pt_regs);
}

/* Whether the bit of this system call is set in a list of calls. The mask is for verifiers (6.1) that do
 * not remember a bound which the compiler has found twice; the barrier keeps the compiler from
 * dropping it. */
static __always_inline bool is_listed(const volatile __u8 calls[128], __s32 number)
{
	__u32 bit = number;

	if (bit >= 1024)
		return false;
	asm volatile("" : "+r"(bit));
	return calls[(bit & 1023) >> 3] >> (bit & 7) & 1;
}

static __always_inline void describe_call(struct cpu_state *c, struct switch_record *r,
					  struct task_struct *p, __u32 state, bool blocks)
{
	struct pt_regs *regs;
	__s32 number;

	r->syscall = NO_SYSCALL;
	r->wait_object = OBJECT_NONE;
	r->wait_key = 0;
	r->args[0] = r->args[1] = r->args[2] = 0;
	if (r->evidence & EVIDENCE_KTHREAD)
		return;
	regs = registers_of(c, p);
#if defined(__TARGET_ARCH_x86)
	number = regs->orig_ax;
	if (p->thread_info.status & TS_COMPAT)
		r->evidence |= EVIDENCE_COMPAT;
#else
	number = regs->syscallno;
	if (regs->pstate & PSR_MODE32_BIT)
		r->evidence |= EVIDENCE_COMPAT;
#endif
	r->syscall = number;
	if (!blocks || number < 0)
		return;
#if defined(__TARGET_ARCH_x86)
	r->args[0] = regs->di;
	r->args[1] = regs->si;
	r->args[2] = regs->dx;
#else
	r->args[0] = regs->orig_x0;
	r->args[1] = regs->regs[1];
	r->args[2] = regs->regs[2];
#endif
	/* clone3's flags are the first word of what its argument points to. */
	if (number == syscall_clone3)
		bpf_probe_read_user(&r->args[0], sizeof(r->args[0]), (void *)r->args[0]);
	if (is_listed(syscalls_on_files, number))
		describe_file(r, p, state, (__u32)r->args[0]);
}

static __always_inline __u32 evidence_of(struct cpu_state *c, struct task_struct *prev,
					 struct task_struct *next, bool blocks, bool preempt)
{
	__u32 flags = prev->flags, evidence = c->cause ? c->cause_evidence : 0;

	if (blocks || (c->run_start && prev->nvcsw != c->run_nvcsw))
		evidence |= EVIDENCE_VOLUNTARY;
	if (flags & (PF_KTHREAD | PF_IO_WORKER))
		evidence |= EVIDENCE_KTHREAD;
	if (flags & (PF_WQ_WORKER | PF_IO_WORKER))
		evidence |= EVIDENCE_WQ_WORKER;
	if (preempt)
		evidence |= EVIDENCE_KERNEL_PREEMPT;
	if (c->tick_in_run)
		evidence |= EVIDENCE_TICK_IN_RUN;
	if (c->requests_unseen)
		evidence |= EVIDENCE_REQUESTS_NOT_SEEN;
	if (blocks) {
		if (flags & PF_EXITING)
			evidence |= EVIDENCE_EXITING;
		if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
			evidence |= EVIDENCE_IN_IOWAIT;
		if (flags & PF_MEMALLOC || (bpf_core_field_exists(prev->in_memstall) &&
					    BPF_CORE_READ_BITFIELD(prev, in_memstall)))
			evidence |= EVIDENCE_MEMSTALL;
		if (BPF_CORE_READ_BITFIELD(prev, frozen))
			evidence |= EVIDENCE_FROZEN;
		if (bpf_core_field_exists(prev->migration_pending) && prev->migration_pending)
			evidence |= EVIDENCE_MIGRATION_PENDING;
		return evidence;
	}
	if (bpf_core_field_exists(prev->throttled)) {
		if (prev->throttled)
			evidence |= EVIDENCE_THROTTLED;
	} else if (bpf_core_field_exists(prev->se.cfs_rq) &&
		   BPF_CORE_READ(prev, se.cfs_rq, throttle_count) > 0) {
		evidence |= EVIDENCE_THROTTLED;
	}
	if (prev->prio < 0 && BPF_CORE_READ_BITFIELD(prev, dl.dl_throttled))
		evidence |= EVIDENCE_DL_THROTTLED;
	if (prev->policy == SCHED_RR)
		evidence |= EVIDENCE_ROUND_ROBIN;
	if (next->prio == 0 && is_stopper(next))
		evidence |= EVIDENCE_NEXT_STOPPER;
	if (bpf_core_field_exists(prev->se.slice) && c->run_start &&
	    prev->se.sum_exec_runtime - c->run_charged >= prev->se.slice)
		evidence |= EVIDENCE_RAN_SLICE;
	return evidence;
}

/* Who came to this CPU since the last tick. */
static __always_inline __u32 last_comers(struct cpu_state *c, __u32 next_key)
{
	__u32 evidence = 0;

	if (c->last_woken)
		evidence |= EVIDENCE_WOKEN_SINCE_TICK;
	if (next_key && c->last_woken == next_key)
		evidence |= EVIDENCE_WOKEN_IS_NEXT;
	if (next_key && c->last_moved == next_key)
		evidence |= EVIDENCE_MOVED_IS_NEXT;
	return evidence;
}

/*
 * Without the hook the slice is looked at when the task leaves, some microseconds after the request.
 * A deadline also moves when a task is placed on its run queue, so it must have moved in this run;
 * and it moves unasked while the task is alone, so what is left must still be near a whole slice,
 * and besides this task and the one that came last another must be queued. Nobody need have come: a
 * call that charges the run time finds its slice used up, too.
 */
static __always_inline __u32 late_slice_evidence(struct cpu_state *c, struct task_struct *p)
{
	__u64 left = p->se.deadline - p->se.vruntime;
	unsigned int least = c->last_woken || c->last_moved ? AFTER_QUEUEING : IN_COMPANY;

	if (p->prio < MAX_RT_PRIO || !c->run_start || queued_with(&p->se) < least ||
	    p->se.deadline == c->run_deadline)
		return 0;
	return is_renewed_within(left, p->se.slice, weight_of(&p->se), 5) ? EVIDENCE_SLICE_END : 0;
}

/*
 * `evidence` must lie in a map: the verifier forgets what it knows of a value that is stored there. With a
 * register it followed each combination of the bits, and refused the program after a million instructions
 * (seen where the hook is missing that says who asked for the CPU).
 */
static __always_inline void note_evidence(__u32 *evidence, struct cpu_state *c,
					  struct task_struct *prev, struct task_struct *next,
					  __u32 next_key, __u32 state, bool blocks, bool preempt)
{
	*evidence = evidence_of(c, prev, next, blocks, preempt);
	if (blocks)
		*evidence |= lock_evidence(state, *evidence);
	if (!has_need_resched && !blocks) {
		*evidence |= last_comers(c, next_key);
		/* Of a run whose start was missed it may be the one's before. */
		if (c->slice_asked && c->run_start)
			*evidence |= c->slice_asked & ~WOKEN_ASKED;
		else if (bpf_core_field_exists(prev->se.deadline))
			*evidence |= late_slice_evidence(c, prev);
	}
}

static __always_inline struct switch_record *next_slot(struct cpu_state *c, __u32 cpu)
{
	__u64 used;
	__u32 slot;

	c->tail_seen = *(volatile __u64 *)&c->tail;
	used = c->head - c->tail_seen;
	if (used >= slots_per_cpu)
		return NULL;
	if (!used)
		*(volatile __u64 *)&c->origin = c->head;
	slot = cpu * slots_per_cpu + ((c->head - c->origin) & (slots_per_cpu - 1));
	return bpf_map_lookup_elem(&records, &slot);
}

/* The record must be seen no later than the head that covers it. */
static __always_inline void publish_slot(struct cpu_state *c)
{
#if defined(__TARGET_ARCH_x86)
	barrier(); /* stores are seen in order */
	*(volatile __u64 *)&c->head = c->head + 1;
#else
	__sync_fetch_and_add(&c->head, 1);
#endif
}

/*
 * What the user-mode scheduler of `prev` says that it runs. `prev` is still current here and its
 * memory is mapped (trace_sched_switch comes before context_switch in __schedule); a word that is
 * not in memory right now cannot be read and is counted. One that ends has left its scheduler, and
 * perhaps its memory. Not inline: inline it cost every other recording 8 ns a switch.
 */
static __attribute__((noinline)) int add_user_word(struct cpu_state *c, struct switch_record *r,
						   struct task_struct *prev)
{
	struct watched_word *watched;
	struct task_state *st;
	__u32 pid;

	if (!c || !r || !prev || !c->in_scope)
		return 0;
	st = find_task(prev);
	if (!st)
		return 0;
	if (st->words_generation != words_generation) {
		pid = prev->pid;
		watched = bpf_map_lookup_elem(&words, &pid);
		st->word_address =
			watched && watched->pid == (__u32)prev->tgid ? watched->address : 0;
		st->words_generation = words_generation;
	}
	if (!st->word_address || prev->flags & PF_EXITING)
		return 0;
	if (bpf_probe_read_user(&r->user_word, sizeof(r->user_word), (void *)st->word_address))
		c->words_unread++;
	else
		r->has_user_word = 1;
	return 0;
}

static __always_inline void emit(struct cpu_state *c, __u32 cpu, __u64 now,
				 struct task_struct *prev, struct task_struct *next, __u32 next_key,
				 __u32 state, bool preempt)
{
	struct switch_record *r = next_slot(c, cpu);
	bool blocks;

	if (!r) {
		if (c->lost == c->lost_acknowledged)
			c->lost_first_ts = now;
		c->lost_last_ts = now;
		c->lost++;
		return;
	}
	r->kind = RECORD_SWITCH;
	r->cpu = cpu;
	r->ts = now;
	r->run_start = c->run_start;
	r->charged_ns = c->run_start ? prev->se.sum_exec_runtime - c->run_charged : ~0ULL;
	r->out_ts = c->out_ts;
	r->wake_ts = c->wake_ts;
	r->wake_cpu = c->wake_cpu;
	r->moved_ts = c->moved_ts;
	r->waker = c->waker;
	r->waker_kind = c->waker_kind;
	r->was_runnable = c->was_runnable;
	r->kernel_stack = c->kernel_stack;
	r->user_stack = c->user_stack;
	r->waker_kernel_stack = c->waker_kernel_stack;
	r->waker_user_stack = c->waker_user_stack;
	r->cgroup = c->run_cgroup;
	r->in_scope = c->in_scope;
	r->task = c->started ? c->task : KEY_UNKNOWN;
	r->next_task = next_key;
	r->kernel_count = prev->nvcsw + prev->nivcsw;
	r->state = state;
	r->irq_ns = c->irq_ns > 0xffffffff ? 0xffffffff : c->irq_ns;
	r->prio = prev->prio;
	r->next_prio = next->prio;
	r->class = class_of(prev);
	r->next_class = class_of(next);
	r->cause = has_need_resched ? c->cause : CAUSE_NO_HOOK;
	r->cause_ts = c->cause ? c->cause_ts : 0;
	r->nominator = c->cause ? c->nominator : KEY_UNKNOWN;
	blocks = state && !preempt;
	note_evidence(&r->evidence, c, prev, next, next_key, state, blocks, preempt);
	r->has_user_word = 0;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	describe_call(c, r, prev, state, blocks);
	if (words_generation)
		add_user_word(c, r, prev);
	publish_slot(c);
	c->stored++;
}

#include "summary.h"

/* Nobody has asked yet for a reschedule of the run that begins. */
static __always_inline void forget_requests(struct cpu_state *c)
{
	c->cause = CAUSE_NONE;
	c->requests_unseen = 0;
	c->last_woken = c->last_moved = KEY_IDLE;
	c->tick_in_run = 0;
	c->slice_asked = 0;
}

/* The run of `next` begins: load what its record will need. */
static __always_inline void begin_run(struct cpu_state *c, __u64 now, struct task_struct *next,
				      struct task_state *st)
{
	c->pid = next->pid;
	c->run_task = (__u64)next;
	c->run_start = now;
	c->run_charged = next->se.sum_exec_runtime;
	c->run_nvcsw = next->nvcsw;
	c->run_count = next->nvcsw + next->nivcsw;
	if (!has_need_resched && bpf_core_field_exists(next->se.deadline))
		c->run_deadline = next->se.deadline;
	c->irq_ns = 0;
	c->started = 1;
	c->out_ts = c->wake_ts = c->moved_ts = 0;
	c->waker = KEY_UNKNOWN;
	c->waker_kind = WAKER_NONE;
	c->was_runnable = 0;
	c->kernel_stack = c->user_stack = NO_STACK;
	c->waker_kernel_stack = c->waker_user_stack = NO_STACK;
	c->task = KEY_IDLE;
	c->in_scope = 0;
	c->announced = 1;
	if (!next->pid)
		return;
	if (!st) {
		c->task = KEY_UNKNOWN;
		c->in_scope = scope_all;
		c->started = 0; /* who runs is asked again when it leaves */
		return;
	}
	c->task = st->key;
	c->in_scope = st->in_scope;
	c->announced = st->announced;
	c->run_cgroup = st->cgroup;
	if (!st->in_scope)
		return;
	if (names_waiters())
		discount_waiter(st);
	/* Its last switch-out was not seen: nothing is known of this wait. */
	if (st->out_ts && st->out_count != c->run_count)
		return;
	c->out_ts = st->out_ts;
	c->was_runnable = st->left_runnable;
	c->wake_cpu = st->wake_cpu;
	c->moved_ts = st->moved_ts;
	if (!st->left_runnable && st->wake_ts >= (st->run_start ?: st->out_ts)) {
		c->wake_ts = st->wake_ts;
		c->waker = st->waker;
		c->waker_kind = st->waker_kind;
		c->waker_kernel_stack = st->waker_kernel_stack;
		c->waker_user_stack = st->waker_user_stack;
	}
	c->kernel_stack = st->kernel_stack;
	c->user_stack = st->user_stack;
}

static __always_inline bool takes_stacks_at_switch_out(const struct task_state *st, bool blocks)
{
	if (summary)
		return watches_stacks && st->key == watched_task;
	return want_stacks && !has_exit_hook && blocks;
}

/* The run of `prev` ends: keep what its next record will need. */
static __always_inline struct task_state *end_run(void *ctx, struct cpu_state *c, __u64 now,
						  struct task_struct *prev, bool blocks)
{
	struct task_state *st = task_state_of(prev, c);

	if (!st)
		return NULL;
	if (prev->nvcsw + prev->nivcsw < st->out_count) {
		free_slot(prev); /* of an earlier task at this address: see `owner` */
		st = task_state_of(prev, c);
		if (!st)
			return NULL;
		c->started = 0;
	}
	if (!c->started) { /* the first switch on this CPU: `prev` has run since before */
		c->task = st->key;
		c->in_scope = st->in_scope;
		c->run_cgroup = st->cgroup;
		c->waker = KEY_UNKNOWN;
		c->nominator = KEY_UNKNOWN;
		c->kernel_stack = c->user_stack = NO_STACK;
		c->waker_kernel_stack = c->waker_user_stack = NO_STACK;
		c->started = 1;
		c->requests_unseen = 1;
	}
	if (!st->in_scope)
		return st;
	announce(prev, st);
	if (want_oracle) {
		c->kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, 0);
		c->user_stack = c->cause ? c->cause_stack : NO_STACK;
	}
	st->out_ts = now;
	st->out_count = prev->nvcsw + prev->nivcsw;
	st->run_start = c->run_start;
	st->left_runnable = !blocks;
	st->moved_ts = 0;
	st->kernel_stack = st->user_stack = NO_STACK;
	if (takes_stacks_at_switch_out(st, blocks)) {
		st->kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, OWN_FRAMES);
		st->user_stack = bpf_get_stackid(ctx, &user_stacks, BPF_F_USER_STACK);
	}
	if (!names_waiters())
		return st;
	if (blocks)
		discount_waiter(st);
	else
		count_waiter(st, bpf_get_smp_processor_id());
	return st;
}

static __always_inline __u32 state_before_5_18(struct task_struct *p)
{
	return bpf_core_field_exists(p->__state) ? p->__state : 0;
}

static __always_inline void count_switch(struct cpu_state *c, bool is_idle, bool is_recorded)
{
	c->seen++;
	if (is_idle)
		c->idle++;
	else if (!is_recorded)
		c->filtered++;
}

/*
 * Whether the task that leaves is the one that came, and has not left in between: each switch-out
 * counts once in nvcsw or nivcsw, before the tracepoint (__schedule, kernel/sched/core.c).
 */
static __always_inline bool is_run_of(struct cpu_state *c, struct task_struct *prev)
{
	return c->pid == prev->pid && prev->nvcsw + prev->nivcsw == c->run_count + 1;
}

/*
 * A switch between was not traced. Seen on 6.18 in a microVM, where switches away from some kernel
 * threads and from one agent's threads never reach the tracepoint, for perf neither. The run in
 * progress is taken over without its start.
 */
static __always_inline void resume_untraced(struct cpu_state *c, struct task_struct *prev)
{
	c->untraced++;
	c->untraced_in_scope += c->in_scope;
	c->requests_unseen = !c->in_scope;
	begin_run(c, 0, prev, prev->pid ? task_state_of(prev, c) : NULL);
}

static __always_inline void announce_out_of_scope(struct cpu_state *c, struct task_struct *prev)
{
	struct task_state *st = task_state_of(prev, c);

	if (st)
		announce(prev, st);
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u32 cpu = bpf_get_smp_processor_id(), state, next_key;
	struct cpu_state *c = state_of(cpu);
	struct task_state *of_prev = NULL, *of_next = NULL;
	__u64 now;
	bool is_recorded;

	if (!c || !recording || is_missed(HOOK_SWITCH))
		return 0;
	now = bpf_ktime_get_ns();
	state = has_state_argument ? (__u32)ctx[3] : state_before_5_18(prev);
	close_window(c);
	/* Nothing switches inside an interrupt: an exit that was missed ends here. (With PREEMPT_RT a
	 * soft one may: what is left of it then counts as the task's own time.) */
	c->interrupts = 0;
	if (c->started && !is_run_of(c, prev))
		resume_untraced(c, prev);
	if (prev->pid && (c->in_scope || !c->started))
		of_prev = end_run(ctx, c, now, prev, state && !preempt);
	if (next->pid)
		of_next = task_state_of(next, c);
	/* A run out of scope is recorded, too, while a task in scope waits for this CPU. */
	is_recorded =
		prev->pid && (c->in_scope || (names_waiters() && c->started && has_waiters(c)));
	count_switch(c, !prev->pid, is_recorded);
	if (is_recorded && summary) {
		if (of_next && !(state && !preempt))
			announce(next, of_next);
		next_key = !next->pid ? KEY_IDLE : of_next ? of_next->key : KEY_UNKNOWN;
		summarise(c, now, prev, of_prev, next, next_key, state, preempt);
	} else if (is_recorded) {
		if (of_next)
			announce(next, of_next);
		if (!c->announced)
			announce_out_of_scope(c, prev);
		next_key = !next->pid ? KEY_IDLE : of_next ? of_next->key : KEY_UNKNOWN;
		emit(c, cpu, now, prev, next, next_key, state, preempt);
	}
	begin_run(c, now, next, of_next);
	forget_requests(c);
	return 0;
}

/* In the context of the task that has just been switched in, its own memory mapped. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct cpu_state *c;
	__u64 woken;

	if (!is_switch || is_missed(HOOK_SCHED_EXIT))
		return 0;
	c = this_cpu();
	if (!c || !c->in_scope || c->was_runnable || !c->out_ts || c->kernel_stack != NO_STACK)
		return 0;
	woken = c->wake_ts > c->out_ts ? c->wake_ts : c->out_ts;
	if (woken - c->out_ts < stacks_min_blocked_ns)
		return 0;
	c->kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, OWN_FRAMES);
	c->user_stack = bpf_get_stackid(ctx, &user_stacks, BPF_F_USER_STACK);
	if (c->kernel_stack < 0)
		c->stack_failed++;
	return 0;
}

/* ---- identity ---- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct cpu_state *c = this_cpu();
	struct task_state *of_parent, *of_child;
	bool inherits;

	if (!c || is_missed(HOOK_FORK))
		return 0;
	close_window(c); /* of the task that this one started before */
	free_slot(child); /* of an earlier task at this address, whose end was not seen */
	of_parent = task_state_of(parent, c);
	of_child = task_state_of(child, c);
	if (of_parent && with_children && taking_tree && is_below_target(parent))
		mark_member(of_parent);
	inherits = (of_parent ? of_parent->in_scope : is_target(parent)) && !has_cgroups &&
		   passes_scope_on(parent, child);
	if (!of_child) {
		if (inherits && has_targets)
			make_target(child);
		return 0;
	}
	if (inherits)
		mark_member(of_child);
	if (of_child->in_scope)
		tell(child, of_child, TASK_FORK);
	return 0;
}

static __always_inline int tell_change(struct task_struct *p, __u32 event)
{
	struct cpu_state *c = this_cpu();
	struct task_state *st = c ? task_state_of(p, c) : NULL;

	if (st && (st->in_scope || st->announced))
		tell(p, st, event);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p)
{
	return tell_change(p, TASK_EXEC);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	if (with_children && taking_tree && is_below_target(p))
		keep_orphans(p);
	return tell_change(p, TASK_EXIT);
}

/* After its last switch, and after it was waited for (delayed_put_task_struct, kernel/exit.c). */
SEC("tp_btf/sched_process_free")
int BPF_PROG(sched_process_free, struct task_struct *p)
{
	return free_slot(p);
}

/* Fires before the name changes: the new one is the argument. */
SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *p, const char *comm)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = state_of(cpu);
	struct task_state *st = c ? task_state_of(p, c) : NULL;
	struct task_record *r;

	if (!recording || !st || !(st->in_scope || st->announced))
		return 0;
	r = reserve(c, cpu, sizeof(*r));
	if (!r) {
		c->lost_task_records++;
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = RECORD_TASK;
	r->event = TASK_RENAME;
	r->ts = bpf_ktime_get_ns();
	r->start_boottime_ns = p->start_boottime;
	r->cgroup = st->cgroup;
	r->nvcsw = p->nvcsw;
	r->nivcsw = p->nivcsw;
	r->task = st->key;
	r->tid = p->pid;
	r->pid = p->tgid;
	r->parent_pid = p->real_parent->tgid;
	r->prio = p->prio;
	r->class = class_of(p);
	r->is_kthread = !!(p->flags & PF_KTHREAD);
	r->in_scope = st->in_scope;
	bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), comm);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#include "lasting.h"

/* Attached to nothing: it is run to learn what the kernel's own statistics of programs take. */
SEC("raw_tp")
int do_nothing(void *ctx)
{
	return 0;
}
