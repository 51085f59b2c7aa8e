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

/* In the order in which they need each other. The rest of the road comes below, where it is needed. */
#include "state.h"
#include "scope.h"
#include "tree.h"
#include "task_records.h"
#include "markers.h"
#include "slices.h"
#include "waiters.h"
#include "thread_pointer.h"
#include "may_look.h"
#include "stack_copy.h"
#include "wakers.h"
#include "wakeups.h"
#include "requests.h"
#include "kernel_locks.h"
#include "calls.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- what the record of a switch says ---- */

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
	r->waker_kernel_stack = r->waker_user_stack = NO_STACK;
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
	}
	c->kernel_stack = st->kernel_stack;
	c->user_stack = st->user_stack;
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
	if (watches_stacks && st->key == watched_task) {
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

#include "identity.h"

#include "lasting.h"

#include "looks.h"

/* Attached to nothing: it is run to learn what the kernel's own statistics of programs take. */
SEC("raw_tp")
int do_nothing(void *ctx)
{
	return 0;
}
