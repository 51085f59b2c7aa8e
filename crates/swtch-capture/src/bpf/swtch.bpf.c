/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Question: which task left which CPU, why, and how had it waited before?
 *
 * One record per switch-out, complete when it is written. What a task needs across its wait is
 * kept in task-local storage; what belongs to the run in progress is kept per CPU, because a CPU
 * runs one task at a time.
 *
 *   sched_waking .. sched_wakeup   marker: this CPU wakes a task     (waker, moment)
 *   sched_set_need_resched_tp      who asks for the reschedule: read off the markers
 *   sched_switch                   the record; the next task's wait is loaded
 *   sched_exit_tp                  stacks of the wait that ended, in the task's own context
 *   local_timer, irq, softirq      markers, and interrupt time
 *   sched_process_*, task_rename   identity
 *
 * C records evidence, Rust judges it (swtch-core/src/rules.rs).
 *
 * The state of a CPU is written under its run queue's lock by sched_switch, by requests to
 * reschedule (from any CPU), and by this CPU's own markers, so nothing here needs a lock.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile bool scope_all = false; /* record every task */
const volatile __u64 scope_cgroup = 0; /* record tasks in or below this cgroup; 0 none */
const volatile bool cgroup_is_v2 = true; /* which hierarchy names the cgroup of a task */
const volatile bool has_targets = false; /* processes in `targets` */
const volatile bool has_need_resched = true; /* sched_set_need_resched_tp exists */
const volatile bool has_exit_hook = true; /* sched_exit_tp exists */
const volatile bool has_tick_hook = true; /* local_timer_entry exists */
const volatile bool has_state_argument = true; /* sched_switch passes prev_state (5.18) */
const volatile __s32 syscall_clone3 = -1;
const volatile bool want_stacks = false;
const volatile __u64 stacks_min_blocked_ns = 0;
const volatile bool want_oracle =
	false; /* for tests: stacks of the request and of the switch-out */
const volatile __u32 slots_per_cpu = 1; /* switch records, a power of two */
const volatile __u8
	syscalls_on_files[128]; /* bit n: call n's first argument is the file it waits on */

#define TICKS_NS 10000000ULL /* /proc/PID/stat counts start times in 1/100 s (USER_HZ) */

/* The processes asked for: pid -> start time in USER_HZ ticks, so that a reused pid does not match. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} targets SEC(".maps");

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

/* What a task needs across its wait. */
struct task_state {
	__u64 out_ts; /* its last switch-out */
	__u64 run_start; /* start of the run that ended then */
	__u64 wake_ts;
	__u64 moved_ts;
	__u64 cgroup;
	struct css_set *css; /* for which `cgroup` and `in_scope` hold */
	__u64 word_address; /* of `words`, as of words_generation; 0 none */
	__u32 words_generation;
	__u32 key;
	__u32 waker;
	__s32 kernel_stack;
	__s32 user_stack;
	__s32 waker_kernel_stack;
	__s32 waker_user_stack;
	__u16 wake_cpu;
	__u8 waker_kind;
	__u8 left_runnable;
	__u8 in_scope;
	__u8 inherits; /* its parent was in scope */
	__u8 announced;
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
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

static __always_inline struct cpu_state *state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct cpu_state *this_cpu(void)
{
	return state_of(bpf_get_smp_processor_id());
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

static __always_inline bool is_in_cgroup(struct cgroup *cgroup, __u64 wanted)
{
	struct cgroup_subsys_state *parent;
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && cgroup; i++) {
		if (BPF_CORE_READ(cgroup, kn, id) == wanted)
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

/* Called when the task is first seen and when its cgroups changed: a pointer to compare, usually. */
static __attribute__((noinline)) int settle_scope(struct task_state *st, struct css_set *css,
						  bool is_named)
{
	struct cgroup *cgroup;

	if (!st)
		return 0;
	cgroup = cgroup_of(css);
	st->cgroup = BPF_CORE_READ(cgroup, kn, id);
	st->css = css;
	st->in_scope = scope_all || is_named || st->inherits ||
		       (scope_cgroup && is_in_cgroup(cgroup, scope_cgroup));
	return 0;
}

static __always_inline struct task_state *task_state_of(struct task_struct *p, struct cpu_state *c)
{
	struct task_state *st;
	struct css_set *css;

	st = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st) {
		c->storage_failed++;
		return NULL;
	}
	css = p->cgroups;
	if (!st->key) {
		st->key = __sync_fetch_and_add(&last_key, 1) + 1;
		st->kernel_stack = NO_STACK;
		st->user_stack = NO_STACK;
		st->waker_kernel_stack = NO_STACK;
		st->waker_user_stack = NO_STACK;
		st->waker = KEY_UNKNOWN;
		settle_scope(st, css, is_target(p));
	} else if (st->css != css) {
		settle_scope(st, css, is_target(p));
	}
	return st;
}

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
	st->announced = 1;
	return 0;
}

static __always_inline void announce(struct task_struct *p, struct task_state *st)
{
	if (!st->announced)
		tell(p, st, TASK_SEEN);
}

/* ---- markers: what this CPU is doing ---- */

/* Waking, starting and moving a task happen with interrupts off: an interrupt ends their windows. */
static __always_inline void close_windows(struct cpu_state *c)
{
	c->waking = 0;
	c->starting = 0;
	c->moving = 0;
}

static __always_inline void enter_interrupt(struct cpu_state *c)
{
	if (!(c->in_tick + c->in_hardirq + c->in_softirq))
		c->irq_start = bpf_ktime_get_ns();
	close_windows(c);
}

static __always_inline void leave_interrupt(struct cpu_state *c)
{
	if (!(c->in_tick + c->in_hardirq + c->in_softirq))
		c->irq_ns += bpf_ktime_get_ns() - c->irq_start;
	close_windows(c);
}

#define INTERRUPT(name, field, more)                                                               \
	SEC("tp_btf/" #name "_entry")                                                              \
	int name##_entry(void *ctx)                                                                \
	{                                                                                          \
		struct cpu_state *c = this_cpu();                                                  \
                                                                                                   \
		if (!c)                                                                            \
			return 0;                                                                  \
		enter_interrupt(c);                                                                \
		c->field++;                                                                        \
		more;                                                                              \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int name##_exit(void *ctx)                                                                 \
	{                                                                                          \
		struct cpu_state *c = this_cpu();                                                  \
                                                                                                   \
		if (!c || !c->field) /* attached inside the interrupt */                           \
			return 0;                                                                  \
		c->field--;                                                                        \
		leave_interrupt(c);                                                                \
		return 0;                                                                          \
	}

/* Without the hook that tells, who asked last is inferred from what came last: see rules.rs. */
static __always_inline void note_tick(struct cpu_state *c)
{
	c->tick_in_run = 1;
	c->last_woken = c->last_moved = KEY_IDLE;
}

static __always_inline void note_woken(struct cpu_state *t, __u32 woken)
{
	/* A task that is woken before it has left, and so stays, asks nobody for the CPU. */
	if (!has_need_resched && woken != t->task)
		t->last_woken = woken;
}

INTERRUPT(local_timer, in_tick, note_tick(c))
INTERRUPT(irq_handler, in_hardirq, )
INTERRUPT(softirq, in_softirq, )

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

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct cpu_state *c = this_cpu();
	struct task_state *st, *waker;
	struct task_struct *current;

	if (!c)
		return 0;
	st = task_state_of(p, c);
	c->waking = (__u64)p;
	c->waking_task = st ? st->key : KEY_UNKNOWN;
	c->waking_in_scope = st ? st->in_scope : 0;
	c->waking_ts = bpf_ktime_get_ns();
	if (!st || !st->in_scope)
		return 0;
	st->wake_ts = c->waking_ts;
	st->wake_cpu = cpu_of(p);
	st->waker_kind = c->in_tick    ? WAKER_TIMER :
			 c->in_hardirq ? WAKER_INTERRUPT :
			 c->in_softirq ? WAKER_SOFTIRQ :
					 WAKER_TASK;
	st->waker = c->started ? c->task : KEY_UNKNOWN;
	if (want_stacks)
		take_waker_stacks(ctx, c, p, st);
	if (!c->announced) {
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

/* Another CPU's count may be written here at any time; its own part needs no lock. Only begin_run
 * takes a waiter off again, so one that nobody would take off is not counted. */
static __always_inline void add_waiter(struct cpu_state *here, struct cpu_state *there)
{
	if (!recording)
		return;
	if (here == there)
		here->waiters++;
	else
		__sync_fetch_and_add(&there->waiters_from_afar, 1);
}

static __always_inline bool has_waiters(struct cpu_state *c)
{
	return c->waiters + c->waiters_from_afar > 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	struct cpu_state *c = this_cpu(), *t;
	struct task_state *st = NULL;
	__u32 woken;
	bool in_scope;

	if (!c)
		return 0;
	t = state_of(cpu_of(p));
	if (!t)
		return 0;
	if (c->waking == (__u64)p) {
		woken = c->waking_task;
		in_scope = c->waking_in_scope;
	} else { /* another CPU queued this wakeup; it is finished here, without sched_waking */
		st = task_state_of(p, c);
		if (!st)
			return 0;
		woken = st->key;
		in_scope = st->in_scope;
		credit_late(t, woken, CAUSE_REMOTE_WAKEUP, 0);
	}
	c->waking = 0;
	note_woken(t, woken);
	if (scope_all)
		return 0;
	if (in_scope && !p->on_cpu) {
		add_waiter(c, t);
	} else if (t->cause && t->nominator == woken) { /* name the stranger that preempts */
		st = task_state_of(p, c);
		if (st)
			announce(p, st);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct cpu_state *c = this_cpu(), *t;
	struct task_state *st;

	if (!c)
		return 0;
	close_windows(c);
	st = task_state_of(p, c);
	t = state_of(cpu_of(p));
	if (!st || !t)
		return 0;
	c->starting = (__u64)p;
	c->starting_task = st->key;
	/* A new task waits from here on; nobody else wakes it. */
	st->wake_ts = bpf_ktime_get_ns();
	st->waker = c->started ? c->task : KEY_UNKNOWN;
	st->waker_kind = WAKER_TASK;
	st->wake_cpu = cpu_of(p);
	credit_late(t, st->key, CAUSE_NEW_TASK, EVIDENCE_IN_ENQUEUE);
	note_woken(t, st->key);
	if (!scope_all && st->in_scope)
		add_waiter(c, t);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest_cpu)
{
	struct cpu_state *c = this_cpu(), *from, *to;
	struct task_state *st;

	if (!c)
		return 0;
	st = task_state_of(p, c);
	if (c->waking == (__u64)p) { /* where the wakeup puts it */
		if (st)
			st->wake_cpu = dest_cpu;
		return 0;
	}
	close_windows(c);
	c->moving = (__u64)p;
	c->moving_task = st ? st->key : KEY_UNKNOWN;
	to = state_of(dest_cpu);
	if (!has_need_resched && to && st)
		to->last_moved = st->key;
	if (!st || !st->in_scope || p->on_cpu)
		return 0;
	st->moved_ts = bpf_ktime_get_ns();
	from = state_of(cpu_of(p));
	if (scope_all || !recording || !from || !to || !p->on_rq)
		return 0;
	__sync_fetch_and_add(&from->waiters_from_afar, -1);
	__sync_fetch_and_add(&to->waiters_from_afar, 1);
	return 0;
}

/* ---- who asks for the reschedule ---- */

/*
 * Here everything is read through typed pointers: the hook exists since 6.17, bpf_rdonly_cast and
 * se->deadline longer, and a probe_read costs 10 ns.
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

#define MAX_GROUP_DEPTH 4

/*
 * protect_slice (6.17 and later): past vprot any update_curr asks, whatever it was called for, such
 * as the removal of another task. Equality does not count: cancel_protect_slice, for a woken task
 * with a short slice, moves vprot to vruntime.
 */
static __always_inline __u32 protection_evidence(struct task_struct *p)
{
	struct sched_entity *se = &p->se;
	int i;

	if (!bpf_core_field_exists(se->vprot) || p->prio < MAX_RT_PRIO || p->__state)
		return 0;
	for (i = 0; i <= MAX_GROUP_DEPTH && se; i++) {
		if ((__s64)(se->vruntime - se->vprot) > 0)
			return EVIDENCE_PROTECTION_LAPSED;
		se = se->parent;
	}
	return 0;
}

static __always_inline __u32 slice_evidence(struct task_struct *p)
{
	struct sched_entity *se = p->se.parent;
	int i;

	if (is_renewed(p->se.deadline - p->se.vruntime, p->se.slice, p->se.load.weight))
		return EVIDENCE_SLICE_END;
	for (i = 0; i < MAX_GROUP_DEPTH && se; i++) {
		if (is_renewed(se->deadline - se->vruntime, se->slice, se->load.weight))
			return EVIDENCE_GROUP_SLICE_END;
		se = se->parent;
	}
	return 0;
}

/*
 * activate_task sets on_rq after the task and all its groups are queued; until then update_curr has
 * asked, from then on wakeup_preempt.
 */
static __always_inline bool is_being_queued(struct task_struct *woken)
{
	return woken->on_rq != TASK_ON_RQ_QUEUED;
}

static __always_inline bool is_for_cpu(__u64 task, __u32 cpu)
{
	return task && typed((void *)task, struct task_struct)->thread_info.cpu == cpu;
}

/* A wakeup that was queued to another CPU leaves its marker here; it is over when the state is 0. */
static __always_inline bool is_being_woken(__u64 task, __u32 cpu)
{
	return is_for_cpu(task, cpu) && typed((void *)task, struct task_struct)->__state;
}

SEC("tp_btf/sched_set_need_resched_tp")
int BPF_PROG(sched_set_need_resched, struct task_struct *p, int cpu, int tif)
{
	__u32 cause, evidence = 0, nominator = KEY_UNKNOWN;
	struct cpu_state *c, *t;

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
	if (is_being_woken(c->waking, cpu)) {
		t->cause = CAUSE_WAKEUP;
		t->nominator = c->waking_task;
		t->cause_ts = c->waking_ts;
		t->cause_evidence = 0;
		if (is_being_queued(typed((void *)c->waking, struct task_struct)))
			t->cause_evidence = EVIDENCE_IN_ENQUEUE | slice_evidence(p);
		return 0;
	}
	if (c->in_tick || (!has_tick_hook && c->in_hardirq && c == t)) {
		cause = CAUSE_TICK;
		evidence = slice_evidence(p);
	} else if (is_for_cpu(c->starting, cpu)) {
		cause = CAUSE_NEW_TASK;
		nominator = c->starting_task;
	} else if (is_for_cpu(c->moving, cpu)) {
		cause = CAUSE_BALANCE;
		nominator = c->moving_task;
		if (is_being_queued(typed((void *)c->moving, struct task_struct)))
			evidence = protection_evidence(p);
	} else if (c == t && !(c->in_hardirq + c->in_softirq)) {
		/*
		 * In its own context, or in __schedule itself, where it does not matter: half of
		 * all requests on a pipe. No time is read for it.
		 */
		t->cause = CAUSE_OWN;
		t->cause_evidence = 0;
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
	return OBJECT_OTHER;
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

static __always_inline void describe_file(struct switch_record *r, struct task_struct *p, __u64 fd)
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
}

static __always_inline void describe_call(struct switch_record *r, struct task_struct *p,
					  bool blocks)
{
	struct pt_regs *regs;
	__s32 number;

	r->syscall = NO_SYSCALL;
	r->wait_object = OBJECT_NONE;
	r->wait_key = 0;
	r->args[0] = r->args[1] = r->args[2] = 0;
	if (r->evidence & EVIDENCE_KTHREAD)
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_x86)
	number = regs->orig_ax;
	if (p->thread_info.status & TS_COMPAT)
		r->evidence |= EVIDENCE_COMPAT;
#else
	number = regs->syscallno;
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
	if (number < 1024 && (syscalls_on_files[number >> 3] >> (number & 7) & 1))
		describe_file(r, p, (__u32)r->args[0]);
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
 * and besides this task and the one that came last another must be queued.
 */
static __always_inline unsigned int queued_with(struct task_struct *p)
{
	struct cfs_rq___before_6_14 *old = (void *)p->se.cfs_rq;

	if (bpf_core_field_exists(old->nr_running))
		return BPF_CORE_READ(old, nr_running);
	return BPF_CORE_READ(p, se.cfs_rq, nr_queued);
}

static __always_inline __u32 late_slice_evidence(struct cpu_state *c, struct task_struct *p)
{
	__u64 left = p->se.deadline - p->se.vruntime;

	if (p->prio < MAX_RT_PRIO || !c->run_start || queued_with(p) < 3 ||
	    p->se.deadline == c->run_deadline)
		return 0;
	return is_renewed_within(left, p->se.slice, p->se.load.weight, 5) ? EVIDENCE_SLICE_END : 0;
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
	st = bpf_task_storage_get(&tasks, prev, 0, 0);
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
	r->evidence = evidence_of(c, prev, next, blocks, preempt);
	if (!has_need_resched && !blocks) {
		r->evidence |= last_comers(c, next_key);
		if (bpf_core_field_exists(prev->se.deadline))
			r->evidence |= late_slice_evidence(c, prev);
	}
	r->has_user_word = 0;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	describe_call(r, prev, blocks);
	if (words_generation)
		add_user_word(c, r, prev);
	publish_slot(c);
	c->stored++;
}

/* The run of `next` begins: load what its record will need. */
static __always_inline void begin_run(struct cpu_state *c, __u64 now, struct task_struct *next,
				      struct task_state *st)
{
	c->pid = next->pid;
	c->run_start = now;
	c->run_charged = next->se.sum_exec_runtime;
	c->run_nvcsw = next->nvcsw;
	if (!has_need_resched && bpf_core_field_exists(next->se.deadline))
		c->run_deadline = next->se.deadline;
	c->irq_ns = 0;
	c->cause = CAUSE_NONE;
	c->last_woken = c->last_moved = KEY_IDLE;
	c->tick_in_run = 0;
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
		return;
	}
	c->task = st->key;
	c->in_scope = st->in_scope;
	c->announced = st->announced;
	c->run_cgroup = st->cgroup;
	if (!st->in_scope)
		return;
	if (!scope_all && has_waiters(c))
		c->waiters--;
	c->out_ts = st->out_ts;
	c->was_runnable = st->left_runnable;
	c->wake_cpu = st->wake_cpu;
	c->moved_ts = st->moved_ts;
	if (!st->left_runnable && st->wake_ts >= st->run_start) {
		c->wake_ts = st->wake_ts;
		c->waker = st->waker;
		c->waker_kind = st->waker_kind;
		c->waker_kernel_stack = st->waker_kernel_stack;
		c->waker_user_stack = st->waker_user_stack;
	}
	c->kernel_stack = st->kernel_stack;
	c->user_stack = st->user_stack;
}

/* The run of `prev` ends: keep what its next record will need. */
static __always_inline void end_run(void *ctx, struct cpu_state *c, __u64 now,
				    struct task_struct *prev, bool blocks)
{
	struct task_state *st = task_state_of(prev, c);

	if (!st)
		return;
	if (!c->started) { /* the first switch on this CPU: `prev` has run since before */
		c->task = st->key;
		c->in_scope = st->in_scope;
		c->run_cgroup = st->cgroup;
		c->waker = KEY_UNKNOWN;
		c->nominator = KEY_UNKNOWN;
		c->kernel_stack = c->user_stack = NO_STACK;
		c->waker_kernel_stack = c->waker_user_stack = NO_STACK;
		c->started = 1;
	}
	if (!st->in_scope)
		return;
	announce(prev, st);
	if (want_oracle) {
		c->kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, 0);
		c->user_stack = c->cause ? c->cause_stack : NO_STACK;
	}
	st->out_ts = now;
	st->run_start = c->run_start;
	st->left_runnable = !blocks;
	st->moved_ts = 0;
	st->kernel_stack = st->user_stack = NO_STACK;
	if (want_stacks && !has_exit_hook && blocks) {
		st->kernel_stack = bpf_get_stackid(ctx, &kernel_stacks, OWN_FRAMES);
		st->user_stack = bpf_get_stackid(ctx, &user_stacks, BPF_F_USER_STACK);
	}
	if (!scope_all && !blocks)
		c->waiters++;
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
 * Another task leaves than the one that came: a switch between was not traced. Seen on 6.18 in a
 * microVM, where switches away from some kernel threads and from one agent's threads never reach
 * the tracepoint, for perf neither. The run in progress is taken over without its start.
 */
static __always_inline void resume_untraced(struct cpu_state *c, struct task_struct *prev)
{
	c->untraced++;
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
	struct task_state *of_next = NULL;
	__u64 now;
	bool is_recorded;

	if (!c || !recording)
		return 0;
	now = bpf_ktime_get_ns();
	state = has_state_argument ? (__u32)ctx[3] : state_before_5_18(prev);
	close_windows(c);
	if (c->started && c->pid != prev->pid)
		resume_untraced(c, prev);
	if (prev->pid && (c->in_scope || !c->started))
		end_run(ctx, c, now, prev, state && !preempt);
	if (next->pid)
		of_next = task_state_of(next, c);
	/* A run out of scope is recorded, too, while a task in scope waits for this CPU. */
	is_recorded = prev->pid && (c->in_scope || (!scope_all && c->started && has_waiters(c)));
	count_switch(c, !prev->pid, is_recorded);
	if (is_recorded) {
		if (of_next)
			announce(next, of_next);
		if (!c->announced)
			announce_out_of_scope(c, prev);
		next_key = !next->pid ? KEY_IDLE : of_next ? of_next->key : KEY_UNKNOWN;
		emit(c, cpu, now, prev, next, next_key, state, preempt);
	}
	begin_run(c, now, next, of_next);
	return 0;
}

/* In the context of the task that has just been switched in, its own memory mapped. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct cpu_state *c;
	__u64 woken;

	if (!is_switch)
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

	if (!c)
		return 0;
	close_windows(c); /* of the task that this one started before */
	of_parent = task_state_of(parent, c);
	of_child = task_state_of(child, c);
	if (!of_parent || !of_child)
		return 0;
	if (of_parent->in_scope && !scope_cgroup) {
		of_child->inherits = 1;
		of_child->in_scope = 1;
	}
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
	return tell_change(p, TASK_EXIT);
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
