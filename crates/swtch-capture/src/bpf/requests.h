/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Requests: who asks for the reschedule of a CPU, and with what evidence.
 */
#ifndef SWTCH_REQUESTS_H
#define SWTCH_REQUESTS_H

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

#endif
