/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Slices: whether a task has used up what the scheduler gives it, or has lost its protection from those
 * who were woken. The kernel does not say so when it asks for a reschedule.
 */
#ifndef SWTCH_SLICES_H
#define SWTCH_SLICES_H

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
	if (t->slice_asked) /* nobody had asked before: the wakeup did, see rules.rs */
		t->slice_asked |= EVIDENCE_IN_ENQUEUE;
	else if (compared && has_lost_protection(compared))
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
INTERRUPT(softirq, IN_SOFTIRQ, HOOK_SOFTIRQ_ENTRY, HOOK_SOFTIRQ_EXIT, note_sender(c, ctx), )

#endif
