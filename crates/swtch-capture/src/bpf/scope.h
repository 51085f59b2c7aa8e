/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whose switches are recorded: tasks by process tree and cgroup, and the slot that each has for what it
 * needs across its wait.
 */
#ifndef SWTCH_SCOPE_H
#define SWTCH_SCOPE_H

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
		st->waker = KEY_UNKNOWN;
		st->last_call = NO_SYSCALL;
		st->inherits = is_born_into_scope(p);
		settle_scope(st, css, is_target(p));
	} else if (st->css != (__u64)css) {
		settle_scope(st, css, is_target(p));
	}
	return st;
}

#endif
