/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Summaries: switches are counted here, and no record is written.
 *
 *   switch-out        in        switch-out        in        switch-out
 *  ─────┼─────────────┼──────────────┼─────────────┼─────────────┼──▶ of one task
 *       └ its key and its run        └ … are added to their entry, with the wait that followed
 *         are kept in task_state …     them; then this switch-out takes their place
 *
 * So a switch takes one look-up in the table. The key holds the task, and a task leaves one CPU at a
 * time, so no entry is ever written by two CPUs at once. What a task keeps when it ends is added at
 * once; what living tasks keep when the recording ends, `flush_tasks` adds.
 *
 *   seen = idle + filtered + lost + the switches of all entries
 */
#ifndef SWTCH_SUMMARY_H
#define SWTCH_SUMMARY_H

/* What rules read of a switch-out: see swtch-core/src/summary.rs, which names the same bits. */
#define READ_OF_BLOCKED                                                                            \
	(EVIDENCE_VOLUNTARY | EVIDENCE_IN_IOWAIT | EVIDENCE_FROZEN | EVIDENCE_MEMSTALL |           \
	 EVIDENCE_EXITING | EVIDENCE_KTHREAD | EVIDENCE_COMPAT | EVIDENCE_WQ_WORKER |              \
	 EVIDENCE_KERNEL_LOCK | EVIDENCE_MMAP_LOCK | EVIDENCE_INODE_LOCK)
#define READ_OF_RUNNABLE                                                                           \
	(EVIDENCE_VOLUNTARY | EVIDENCE_THROTTLED | EVIDENCE_DL_THROTTLED | EVIDENCE_COMPAT |       \
	 EVIDENCE_NEXT_STOPPER | EVIDENCE_ROUND_ROBIN | EVIDENCE_REQUESTS_NOT_SEEN |               \
	 EVIDENCE_SLICE_END | EVIDENCE_GROUP_SLICE_END | EVIDENCE_IN_ENQUEUE |                     \
	 EVIDENCE_PROTECTION_LAPSED)
/* And where the hook is missing that says who asked for the CPU. */
#define READ_TO_INFER                                                                              \
	(EVIDENCE_RAN_SLICE | EVIDENCE_TICK_IN_RUN | EVIDENCE_WOKEN_IS_NEXT |                      \
	 EVIDENCE_WOKEN_SINCE_TICK | EVIDENCE_MOVED_IS_NEXT)

#define CLONE_VFORK 0x4000
#define F_SETLKW 7
#define F_OFD_SETLKW 38

/*
 * The groups of switches: a table whose places are found by a hash of the key, as the states of tasks
 * are by an address. A hash map of the kernel's took 44 ns more a switch. Resized by user space to
 * summary_places, which maps it, and frees the places of tasks that have ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct summary_group);
} summaries SEC(".maps");

/* Addresses of futex words are told apart while this is set: they make many more groups. Groups with one
 * take no more than a quarter of the places, so that no switch is lost for them. */
volatile bool tell_futexes = false;
volatile __u32 futex_groups = 0; /* that are in use: user space counts down */

#define MOST_GROUP_PROBES 256

static __always_inline __u32 slot_of(__u64 ns)
{
	__u64 rest = ns >> 7;
	__u32 slot = 0;

#define HALVE(bits)                                                                                \
	if (rest >> (bits)) {                                                                      \
		rest >>= (bits);                                                                   \
		slot += (bits);                                                                    \
	}
	HALVE(32)
	HALVE(16)
	HALVE(8)
	HALVE(4)
	HALVE(2)
	HALVE(1)
#undef HALVE
	return slot < SUMMARY_SLOTS ? slot : SUMMARY_SLOTS - 1;
}

static __always_inline __u64 hash_of(const union summary_key_words *key)
{
	__u64 hash = key->words[0] * 0x9e3779b97f4a7c15ULL;

	hash = ((hash ^ hash >> 29) + key->words[1]) * 0xbf58476d1ce4e5b9ULL;
	hash = ((hash ^ hash >> 32) + key->words[2]) * 0x94d049bb133111ebULL;
	hash = ((hash ^ hash >> 31) + key->words[3]) * 0xd6e8feb86659fd93ULL;
	return ((hash ^ hash >> 30) + key->words[4]) * 0x9e3779b97f4a7c15ULL >> 32;
}

static __always_inline bool is_key_of(const struct summary_group *group,
				      const union summary_key_words *key)
{
	return group->key.words[0] == key->words[0] && group->key.words[1] == key->words[1] &&
	       group->key.words[2] == key->words[2] && group->key.words[3] == key->words[3] &&
	       group->key.words[4] == key->words[4];
}

static __always_inline struct summary_group *probed_group(__u32 hash, __u32 probe)
{
	__u32 place = (hash + probe) & (summary_places - 1);

	return bpf_map_lookup_elem(&summaries, &place);
}

/* Number of the probe that finds the place of the task's pending switch-out; -1 when it has none. The
 * search goes on beyond places that are free: they may have become so since. */
__attribute__((noinline)) int find_group(struct task_state *st)
{
	struct summary_group *group;
	__u32 hash;
	int probe;

	if (!st)
		return -1;
	hash = hash_of(&st->pending);
	for (probe = 0; probe < MOST_GROUP_PROBES; probe++) {
		group = probed_group(hash, probe);
		if (group && is_key_of(group, &st->pending))
			return probe;
	}
	return -1;
}

/* Takes the first place that is free for it; -1 when there is none. */
__attribute__((noinline)) int claim_group(struct task_state *st)
{
	struct summary_group *group;
	__u32 hash;
	int probe;

	if (!st)
		return -1;
	hash = hash_of(&st->pending);
	for (probe = 0; probe < MOST_GROUP_PROBES; probe++) {
		group = probed_group(hash, probe);
		if (!group)
			return -1;
		if (__sync_val_compare_and_swap(&group->is_taken, 0, 1))
			continue;
		group->key = st->pending;
		if (st->pending.key.futex > FUTEX_OF_MANY)
			__sync_fetch_and_add(&futex_groups, 1);
		return probe;
	}
	return -1;
}

/* Number of the probe that finds or takes the place of the task's pending switch-out; -1 when there is
 * no room. `is_new` says whether it was taken. */
static __always_inline int find_or_claim(struct task_state *st, bool *is_new)
{
	int probe = find_group(st);

	*is_new = false;
	if (probe >= 0)
		return probe;
	if (st->pending.key.futex > FUTEX_OF_MANY && futex_groups >= summary_places / 4) {
		st->pending.key.futex = FUTEX_OF_MANY;
		probe = find_group(st);
		if (probe >= 0)
			return probe;
	}
	*is_new = true;
	return claim_group(st);
}

/* The entry for the pending switch-out; NULL when there is no room. */
static __always_inline struct summary_value *entry_of(struct cpu_state *c, struct task_state *st)
{
	__u32 hash = hash_of(&st->pending);
	struct summary_group *group = probed_group(hash, 0);
	bool is_new;
	int probe;

	if (group && is_key_of(group, &st->pending))
		return &group->sums;
	probe = find_or_claim(st, &is_new);
	if (probe < 0)
		return NULL;
	hash = hash_of(&st->pending);
	if (is_new) {
		c->claims[c->summary_groups & (CLAIMS_KEPT - 1)] =
			(hash + probe) & (summary_places - 1);
		c->summary_groups++;
	}
	group = probed_group(hash, probe);
	return group ? &group->sums : NULL;
}

/* Adds the pending switch-out of the task, without a wait, to its entry. */
static __always_inline struct summary_value *add_pending(struct cpu_state *c, struct task_state *st)
{
	struct summary_value *entry = entry_of(c, st);

	st->has_pending = 0;
	if (!entry) {
		c->lost++;
		return NULL;
	}
	entry->switches++;
	entry->ran_ns += st->pending_ran;
	entry->irq_ns += st->pending_irq;
	if (st->pending_ran > entry->longest_run_ns)
		entry->longest_run_ns = st->pending_ran;
	return entry;
}

/* Since when the last wait was one for a CPU, as swtch-core/src/timeline.rs computes it; 0: not known. */
static __always_inline __u64 runnable_since(const struct cpu_state *c)
{
	if (c->was_runnable || (c->wake_ts && c->wake_ts < c->out_ts))
		return c->out_ts;
	return c->wake_ts <= c->run_start ? c->wake_ts : 0;
}

/* Adds the wait before the run that ends now. */
static __always_inline void add_wait(struct cpu_state *c, struct summary_value *entry)
{
	__u64 off = c->run_start - c->out_ts, runnable = runnable_since(c), runq;

	entry->waits++;
	entry->off_ns += off;
	if (off > entry->longest_off_ns)
		entry->longest_off_ns = off;
	entry->off[slot_of(off) & (SUMMARY_SLOTS - 1)]++;
	if (!runnable)
		return;
	runq = c->run_start - runnable;
	entry->split_waits++;
	entry->split_off_ns += off;
	entry->runq_ns += runq;
	if (runq > entry->longest_runq_ns)
		entry->longest_runq_ns = runq;
	entry->runq[slot_of(runq) & (SUMMARY_SLOTS - 1)]++;
}

#include "summary_stacks.h"

static __always_inline __u8 judged_arguments(const struct switch_record *r, __s32 number)
{
	__u8 found = 0;

	if (!is_listed(syscalls_with_arguments, number))
		return 0;
	if (!r->args[0])
		found |= ARGUMENT_0_IS_ZERO;
	if (!r->args[1])
		found |= ARGUMENT_1_IS_ZERO;
	if (r->args[0] & CLONE_VFORK)
		found |= ARGUMENT_IS_VFORK;
	if (r->args[1] == F_SETLKW || r->args[1] == F_OFD_SETLKW)
		found |= ARGUMENT_IS_LOCK;
	return found;
}

static __always_inline __u64 futex_of(const struct switch_record *r, __s32 number)
{
	bool is_told = tell_futexes && !(r->evidence & EVIDENCE_COMPAT) &&
		       is_listed(syscalls_on_futexes, number);

	return is_told ? r->args[0] : 0;
}

/* The call that the task is in: a call that the kernel restarts is the one that was interrupted. */
static __always_inline __s32 resolved_call(struct task_state *st, __s32 number)
{
	if (number >= 0 && number == syscall_restart && st->last_call >= 0)
		return st->last_call;
	if (number >= 0)
		st->last_call = number;
	return number;
}

static __always_inline void keep_pending(struct cpu_state *c, __u64 now, struct task_struct *prev,
					 struct task_state *st, struct task_struct *next,
					 __u32 next_key, __u32 state, bool preempt)
{
	struct summary_key *key = &st->pending.key;
	bool blocks = state && !preempt;
	struct switch_record r;

	note_evidence(&key->evidence, c, prev, next, next_key, state, blocks, preempt);
	r.evidence = key->evidence;
	describe_call(c, &r, prev, state, blocks);
	key->task = st->key;
	key->syscall = resolved_call(st, r.syscall);
	key->wait_object = r.wait_object;
	key->futex = blocks ? futex_of(&r, key->syscall) : 0;
	if (blocks) {
		key->next_task = KEY_IDLE;
		key->state = state;
		key->evidence = r.evidence & READ_OF_BLOCKED;
		key->arguments = judged_arguments(&r, key->syscall);
		key->cause = CAUSE_NONE;
		key->class = key->next_class = CLASS_IDLE;
	} else {
		key->next_task = next_key;
		key->state = 0;
		key->evidence = r.evidence & READ_OF_RUNNABLE;
		if (!has_need_resched)
			key->evidence |= r.evidence & READ_TO_INFER;
		key->arguments = 0;
		key->cause = has_need_resched ? c->cause : CAUSE_NO_HOOK;
		key->class = class_of(prev);
		key->next_class = class_of(next);
	}
	st->pending_ts = now;
	st->pending_ran = c->run_start ? now - c->run_start : 0;
	st->pending_irq = c->irq_ns;
	st->has_pending = 1;
}

/* TASK_DEAD, EXIT_ZOMBIE and EXIT_DEAD: the task does not come back, so none of its entries is written
 * after the one with such a state. User space makes room by that. */
#define LAST_STATES (0x80 | 0x20 | 0x10)

static __always_inline void summarise(struct cpu_state *c, __u64 now, struct task_struct *prev,
				      struct task_state *st, struct task_struct *next,
				      __u32 next_key, __u32 state, bool preempt)
{
	struct summary_value *entry;

	if (!st) {
		c->lost++;
		c->summary_unnamed++;
		return;
	}
	if (st->has_pending) {
		entry = add_pending(c, st);
		/* Another moment: a switch-out between was not reported, and its wait not seen. */
		if (entry && c->out_ts == st->pending_ts && c->run_start >= c->out_ts) {
			add_wait(c, entry);
			if (is_watched(c, st))
				add_to_stacks(c, st);
		}
	}
	keep_pending(c, now, prev, st, next, next_key, state, preempt);
	if ((state & LAST_STATES) && !preempt)
		add_pending(c, st);
	c->stored++;
}

/* Read to its end once, when nothing is recorded any more. */
SEC("iter/task")
int flush_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct cpu_state *c = this_cpu();
	struct summary_value *entry;
	struct task_state *st;
	__u64 now;

	if (!p || !c)
		return 0;
	st = find_task(p);
	if (!st || !st->has_pending)
		return 0;
	entry = add_pending(c, st);
	now = bpf_ktime_get_ns();
	if (!entry || p->on_cpu || now < st->pending_ts)
		return 0;
	entry->open_waits++;
	entry->open_ns += now - st->pending_ts;
	return 0;
}

#endif
