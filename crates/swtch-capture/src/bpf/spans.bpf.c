/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Spans of threads between two places of a program: a thread comes to the one, and later to the
 * other. Uprobes at functions and markers of the program (USDT) call what is here; nothing here is on
 * the way of a switch.
 *
 *   begin place  span_begin  keeps the moment and the stack pointer, by thread and kind
 *   end place    span_end    takes the newest begin, and writes both moments to the ring
 *
 * Spans of a kind may lie within each other: an end belongs to the newest begin. An error may jump over
 * an end (longjmp). That is noticed at the thread's next begin, whose stack is no deeper than that of the
 * begin that was left open, and counted in `without_end`. Until then, the end of a span around it is taken
 * for its own: that span then begins too late, and its own begin stays open in its place. Ends compare no
 * stacks, as an end may be a marker, which may lie anywhere in the function.
 *
 * Of more than MOST_OPEN within each other, the innermost are left out and counted in `too_deep`. An end
 * without a begin, such as the first after the recording began, is counted in `without_begin`.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "spans.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Only for the description of its type, from which Rust's is made. */
const volatile struct span_record unused_span_record;

struct open_key {
	__u64 thread; /* id of the thread */
	__u64 kind;
};

#define MOST_OPEN 8 /* a power of 2 */

struct open_span {
	__u64 begin_ns;
	__u64 stack; /* the stack pointer; stacks grow towards lower addresses */
};

struct open_spans {
	__u64 thread_started; /* start_time of the thread; another thread may get the same id later */
	__u64 count;
	__u64 deeper; /* begins within the newest, for which there was no room */
	__u64 deeper_stack; /* the stack pointer at the first of these */
	struct open_span spans[MOST_OPEN]; /* the newest last */
};

/*
 * The open spans of each thread and kind. Those of threads that have ended stay until there is no room: then those
 * that were used least recently are dropped. An open span that is dropped so is counted at its end, as one
 * without a begin.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct open_key);
	__type(value, struct open_spans);
} open_by_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SPAN_RING_BYTES);
} spans SEC(".maps");

/*
 * True while spans are taken: all probes are there, and switches are recorded. Probes come and go one
 * after the other, a tenth of a second each: those of one kind are there while others are not.
 */
__u32 are_taken;

__u64 lost; /* ends for which the ring had no room */
__u64 without_begin; /* ends of which no begin was seen */
__u64 without_end; /* begins that were left open, as a later begin has shown */
__u64 too_deep; /* begins within MOST_OPEN open ones */

static __always_inline struct open_key key_of(void *ctx)
{
	struct open_key key = {
		.thread = (__u32)bpf_get_current_pid_tgid(),
		.kind = bpf_get_attach_cookie(ctx),
	};

	return key;
}

/* What is open of this thread; NULL if nothing is. */
static __always_inline struct open_spans *open_of(struct open_key *key)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct open_spans *open = bpf_map_lookup_elem(&open_by_thread, key);

	return open && open->thread_started == task->start_time ? open : NULL;
}

SEC("uprobe")
int span_begin(struct pt_regs *ctx)
{
	struct open_key key = key_of(ctx);
	struct open_spans *open = open_of(&key);
	__u64 now = bpf_ktime_get_ns(), stack = ctx->sp, count;

	if (!are_taken)
		return 0;
	if (!open) {
		struct open_spans first = {
			.thread_started = bpf_get_current_task_btf()->start_time,
			.count = 1,
		};

		first.spans[0].begin_ns = now;
		first.spans[0].stack = stack;
		bpf_map_update_elem(&open_by_thread, &key, &first, BPF_ANY);
		return 0;
	}
	/* Drop the spans whose end was jumped over: this begin is no deeper. */
	count = open->count;
	if (open->deeper && open->deeper_stack <= stack)
		open->deeper = 0;
	for (int i = 0; i < MOST_OPEN; i++) {
		if (!count || count > MOST_OPEN)
			break;
		if (open->spans[(count - 1) & (MOST_OPEN - 1)].stack > stack)
			break;
		count--;
		__sync_fetch_and_add(&without_end, 1);
	}
	if (count >= MOST_OPEN) {
		if (!open->deeper)
			open->deeper_stack = stack;
		open->deeper++;
		__sync_fetch_and_add(&too_deep, 1);
		return 0;
	}
	open->spans[count & (MOST_OPEN - 1)].begin_ns = now;
	open->spans[count & (MOST_OPEN - 1)].stack = stack;
	open->count = count + 1;
	return 0;
}

SEC("uprobe")
int span_end(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct open_key key = key_of(ctx);
	struct open_spans *open = open_of(&key);
	struct span_record *record;
	__u64 count, begin;

	if (!are_taken)
		return 0;
	if (open && open->deeper) {
		open->deeper--;
		return 0;
	}
	count = open ? open->count : 0;
	if (!count || count > MOST_OPEN) {
		__sync_fetch_and_add(&without_begin, 1);
		return 0;
	}
	begin = open->spans[(count - 1) & (MOST_OPEN - 1)].begin_ns;
	open->count = count - 1;
	record = bpf_ringbuf_reserve(&spans, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	record->begin_ns = begin;
	record->end_ns = now;
	record->pid = bpf_get_current_pid_tgid() >> 32;
	record->tid = key.thread;
	record->kind = key.kind;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}
