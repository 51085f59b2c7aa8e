/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Question: how long is __schedule() itself, from its first lines in the task that leaves to its
 * last in the task that comes, on one CPU?
 *
 *   sched_entry_tp  share_entry  all checks, then the clock: its tail is inside the length
 *     ... the kernel chooses, switches memory, registers and stacks, lets go of the run queue ...
 *   sched_exit_tp   share_exit   the clock, then all else: its head is inside the length
 *   sched_exit_tp   echo_entry   ends as share_entry does ...
 *   sched_exit_tp   echo_exit    ... and begins as share_exit does, with nothing between the two
 *
 * A tracepoint calls its programs in the order in which they were attached (kernel/tracepoint.c,
 * func_add), so the echo is what the two probes put into the length, measured on the same switch in
 * the same state of the caches, and outside the length. If the order were another there would be no
 * echo, and user space sees that.
 *
 * Preemption is off between the two tracepoints, so calls on a CPU do not nest. A new task comes
 * out elsewhere (schedule_tail): its first switch has no exit, and the next entry starts anew.
 *
 * Cost: four programs and four clock readings a switch, two of each for CPUs that are not asked.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "share.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 only_cpu = 0;
const volatile __s32 only_policy = -1; /* both tasks must have this policy; -1 any */

/* 0 -> the state; mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct share_state);
} share SEC(".maps");

/* The state, on the CPU that is asked. */
static __always_inline struct share_state *state(void)
{
	__u32 zero = 0;

	if (bpf_get_smp_processor_id() != only_cpu)
		return 0;
	return bpf_map_lookup_elem(&share, &zero);
}

/* Idle is no task. */
static __always_inline bool counts(const struct task_struct *task)
{
	return task->pid && (only_policy < 0 || task->policy == (__u32)only_policy);
}

static __always_inline __u32 log2_of(__u32 value)
{
	__u32 log = (value > 0xffff) << 4;
	__u32 shift;

	value >>= log;
	shift = (value > 0xff) << 3;
	value >>= shift;
	log |= shift;
	shift = (value > 0xf) << 2;
	value >>= shift;
	log |= shift;
	shift = (value > 0x3) << 1;
	value >>= shift;
	log |= shift;
	return log | (value >> 1);
}

static __always_inline __u32 slot_of(__u64 ns)
{
	__u32 shift;

	if (ns < 2 * SHARE_STEPS)
		return ns;
	if (ns >> 20)
		return SHARE_SLOTS - 1;
	shift = log2_of(ns) - SHARE_STEPS_BITS;
	return shift * SHARE_STEPS + (ns >> shift);
}

SEC("tp_btf/sched_entry_tp")
int BPF_PROG(share_entry)
{
	struct share_state *s = state();
	struct task_struct *prev;

	if (!s)
		return 0;
	s->start_ns = 0;
	if (!s->is_open)
		return 0;
	prev = bpf_get_current_task_btf();
	if (!counts(prev))
		return 0;
	s->prev_tgid = prev->tgid;
	s->start_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int BPF_PROG(share_exit, bool is_switch)
{
	__u64 now = bpf_ktime_get_ns();
	struct share_state *s = state();
	struct share_counts *c;
	struct task_struct *next;
	__u64 start;
	__u32 slot;
	__u32 kind;

	if (!s)
		return 0;
	start = s->start_ns;
	s->start_ns = 0;
	s->echo_of = 0;
	if (!is_switch || !start)
		return 0;
	next = bpf_get_current_task_btf();
	if (!counts(next))
		return 0;
	kind = next->tgid == s->prev_tgid ? SHARE_WITHIN : SHARE_ACROSS;
	c = &s->counts[kind];
	c->switches++;
	c->total_ns += now - start;
	slot = slot_of(now - start);
	if (slot < SHARE_SLOTS)
		c->slots[slot]++;
	s->echo_of = kind + 1;
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int BPF_PROG(echo_entry)
{
	struct share_state *s = state();

	if (!s)
		return 0;
	s->echo_ns = 0;
	if (!s->echo_of)
		return 0;
	s->echo_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int BPF_PROG(echo_exit)
{
	__u64 now = bpf_ktime_get_ns();
	struct share_state *s = state();
	struct share_counts *c;
	__u64 start;
	__u32 kind;

	if (!s)
		return 0;
	start = s->echo_ns;
	kind = s->echo_of - 1;
	s->echo_ns = 0;
	s->echo_of = 0;
	if (!start || kind >= SHARE_KINDS)
		return 0;
	c = &s->counts[kind];
	c->echoes++;
	c->echo_ns += now - start;
	return 0;
}
