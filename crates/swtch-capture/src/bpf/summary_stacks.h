/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks of a summary: of one task, while somebody looks at it.
 *
 *   switch-out            in            switch-out
 *  ─────┼─────────────────┼──────────────────┼──▶ of the watched task
 *       └ its stacks are taken               └ it and the wait that followed are added to the sums
 *                                              of its key and those stacks
 *
 * A wait whose switch-out was before `watched_since` is left out: its stacks were not taken, or were
 * taken when the task was watched earlier, and their ids may have got another meaning.
 */
#ifndef SWTCH_SUMMARY_STACKS_H
#define SWTCH_SUMMARY_STACKS_H

/* Written by user space. KEY_IDLE: no task is watched. */
volatile __u32 watched_task = KEY_IDLE;
volatile __u64 watched_since = 0;

/* Switch-outs of one task with the same stacks (ids, or errors of bpf_get_stackid), and the waits that
 * followed them. */
struct stack_sums_key {
	union summary_key_words group;
	__s32 kernel_stack;
	__s32 user_stack;
};

struct stack_sums {
	__u64 switches;
	__u64 off_ns;
	__u64 runq_ns; /* the part of it that the task waited for a CPU, where that is known */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space makes room where tasks may be watched */
	__type(key, struct stack_sums_key);
	__type(value, struct stack_sums);
} stack_sums SEC(".maps");

static __always_inline struct stack_sums *stack_sums_of(const struct stack_sums_key *key)
{
	struct stack_sums *sums = bpf_map_lookup_elem(&stack_sums, key);
	struct stack_sums none = {};

	if (sums)
		return sums;
	bpf_map_update_elem(&stack_sums, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&stack_sums, key);
}

/* Adds the pending switch-out of the task and the wait that followed, by where it left its CPU. */
static __attribute__((noinline)) int add_to_stacks(struct cpu_state *c, struct task_state *st)
{
	__u64 runnable = runnable_since(c);
	struct stack_sums_key key = {};
	struct stack_sums *sums;

	key.group = st->pending;
	key.kernel_stack = c->kernel_stack;
	key.user_stack = c->user_stack;
	sums = stack_sums_of(&key);
	if (!sums) {
		c->stack_failed++;
		return 0;
	}
	sums->switches++;
	sums->off_ns += c->run_start - c->out_ts;
	if (runnable)
		sums->runq_ns += c->run_start - runnable;
	return 0;
}

static __always_inline bool is_watched(const struct cpu_state *c, const struct task_state *st)
{
	return watches_stacks && st->key == watched_task && c->out_ts >= watched_since;
}

#endif
