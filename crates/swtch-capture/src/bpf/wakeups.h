/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Wakeups: who ended a wait, where and when, and moves to another CPU.
 */
#ifndef SWTCH_WAKEUPS_H
#define SWTCH_WAKEUPS_H

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
	       c->sends			  ? WAKER_SENDER :
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
	maybe_copy_waker(ctx, c, p, st);
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

#endif
