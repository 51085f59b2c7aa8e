/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The tree of processes below the targets, taken without a gap.
 *
 * User space fills `targets`, attaches the hooks, has `walk_tasks` visit every task of the machine,
 * and only then lets records be written. While `taking_tree` is set, a task belongs to the tree when
 * a target is among its ancestors. Nothing slips through:
 *
 *   it lived when the hooks were attached    the walk finds it by its ancestors
 *   it is forked afterwards                  the fork hook passes on what its parent is
 *   its parent dies before the walk comes    the exit hook enters the children into `targets`: the
 *                                            kernel gives them to init after this hook (do_exit in
 *                                            kernel/exit.c: exit_notify comes later)
 *
 * The recorder may be below a target itself, as where a shell is recorded that has started it. It and
 * what it starts are left out: recording would make the switches that are recorded. Its own command is
 * a target.
 *
 * Afterwards every member has its mark, children inherit it, and ancestors are asked no more. A child
 * for whose mark no slot is free becomes a target instead, which is asked for when the task gets a
 * slot at a later event.
 *
 * The same walk adds up how often the kernel itself counted a switch of the tasks in scope.
 */
#ifndef SWTCH_TREE_H
#define SWTCH_TREE_H

volatile bool taking_tree = false;

/* What `walk_tasks` found; user space sets it to 0 before each walk. */
volatile __u64 tree_processes = 0;
/* What nvcsw + nivcsw of the tasks in scope grew by since the walk before, or since their birth. */
volatile __u64 tree_switches = 0;
/* Tasks that could not be looked at: there were more ancestors or children than the loops allow, or
 * no slot was free for their state. */
volatile __u64 tree_missed = 0;

#define MAX_ANCESTORS 256
#define MAX_ORPHANS 512

/* Whether a target is this process or one of its ancestors. */
static __attribute__((noinline)) int is_below_target(struct task_struct *p)
{
	struct task_struct *ancestor = p;
	__u64 *ticks;
	__u32 pid;
	int i;

	for (i = 0; i < MAX_ANCESTORS; i++) {
		pid = BPF_CORE_READ(ancestor, tgid);
		ticks = bpf_map_lookup_elem(&targets, &pid);
		if (ticks &&
		    BPF_CORE_READ(ancestor, group_leader, start_boottime) / TICKS_NS == *ticks)
			return 1;
		/* The parent of init and of kthreadd is its own parent. */
		if (!pid || pid == recorder_pid)
			return 0;
		ancestor = BPF_CORE_READ(ancestor, real_parent);
		if (!ancestor)
			return 0;
	}
	__sync_fetch_and_add(&tree_missed, 1);
	return 0;
}

static __always_inline void mark_member(struct task_state *st)
{
	st->inherits = 1;
	st->in_scope = 1;
}

/* A thread passes its mark on to the threads that it starts, and to processes where that was asked. */
static __always_inline bool passes_scope_on(struct task_struct *parent, struct task_struct *child)
{
	return with_children || parent->tgid == child->tgid;
}

/* The process of this task is in scope from here on, as if it had been asked for. */
static __always_inline void make_target(struct task_struct *p)
{
	__u64 ticks = BPF_CORE_READ(p, group_leader, start_boottime) / TICKS_NS;
	__u32 pid = BPF_CORE_READ(p, tgid);

	if (bpf_map_update_elem(&targets, &pid, &ticks, BPF_ANY))
		__sync_fetch_and_add(&tree_missed, 1);
}

/* A member of the tree dies: its children stay members. */
static __always_inline void keep_orphans(struct task_struct *p)
{
	struct list_head *head = &p->children, *node = BPF_CORE_READ(p, children.next);
	struct task_struct *child;
	int i;

	for (i = 0; i < MAX_ORPHANS; i++) {
		if (!node || node == head)
			return;
		child = (void *)node - bpf_core_field_offset(struct task_struct, sibling);
		make_target(child);
		node = BPF_CORE_READ(node, next);
	}
	__sync_fetch_and_add(&tree_missed, 1);
}

/* User space reads the iterator to its end once to take the tree, and twice to count. */
SEC("iter/task")
int walk_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct cpu_state *c = this_cpu();
	struct task_state *st;
	__u64 count;

	if (!p || !c)
		return 0;
	if (taking_tree ? is_below_target(p) : is_target(p)) {
		st = task_state_of(p, c);
		if (!st)
			__sync_fetch_and_add(&tree_missed, 1);
		else if (taking_tree)
			mark_member(st);
	} else {
		st = find_task(p);
	}
	if (!st || !st->in_scope)
		return 0;
	if (p->pid == p->tgid)
		tree_processes++;
	count = p->nvcsw + p->nivcsw;
	tree_switches += count - st->counted;
	st->counted = count;
	return 0;
}

#endif
