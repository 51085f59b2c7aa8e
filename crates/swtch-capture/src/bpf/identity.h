/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Identity: tasks begin, become another program, change their name and end.
 */
#ifndef SWTCH_IDENTITY_H
#define SWTCH_IDENTITY_H

/* While the tree of the targets is taken, a task belongs to it by its ancestors (tree.h). */
static __always_inline bool joins_tree(struct task_struct *p)
{
	return with_children && taking_tree && is_below_target(p);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct cpu_state *c = this_cpu();
	struct task_state *parent_state, *child_state;
	bool inherits;

	if (!c || is_missed(HOOK_FORK))
		return 0;
	/* The window belongs to the task that the parent started before this one (markers.h). */
	close_window(c);
	free_slot(child); /* of an earlier task at this address, whose end was not seen */
	parent_state = task_state_of(parent, c);
	child_state = task_state_of(child, c);
	if (parent_state && joins_tree(parent))
		mark_member(parent_state);
	/*
	 * A child of a task in scope is in scope; where cgroups are the scope, the child's own cgroup decides. A child
	 * for which there is no slot becomes a target, which is asked for when it gets one.
	 */
	inherits = (parent_state ? parent_state->in_scope : is_target(parent)) && !has_cgroups &&
		   passes_scope_on(parent, child);
	if (!child_state) {
		if (inherits && has_targets)
			make_target(child);
		return 0;
	}
	if (inherits)
		mark_member(child_state);
	if (child_state->in_scope)
		tell(child, child_state, TASK_FORK);
	return 0;
}

/* Tells of a change of a task that is in scope, or that a record has named. */
static __always_inline int tell_change(struct task_struct *p, __u32 event)
{
	struct cpu_state *c = this_cpu();
	struct task_state *st = c ? task_state_of(p, c) : NULL;

	if (st && (st->in_scope || st->announced))
		tell(p, st, event);
	return 0;
}

/* A thread that is no leader has taken its leader's pid by now. Its slot is found by its address, which stays. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p)
{
	return tell_change(p, TASK_EXEC);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	if (joins_tree(p))
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
	struct cpu_state *c = this_cpu();
	struct task_state *st = c ? task_state_of(p, c) : NULL;
	struct task_record *r;

	if (!st || !(st->in_scope || st->announced))
		return 0;
	r = begin_task_record(p, st, TASK_RENAME);
	if (!r)
		return 0;
	bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), comm);
	finish_task_record(r, p);
	return 0;
}

#endif
