/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The request that a thread works on, as its program publishes it for others to read: OpenTelemetry's
 * thread context (OTEP 4947). It is read when the thread leaves its CPU: nobody writes it then.
 *
 *   variable of the thread, otel_thread_ctx_v1 --> record: trace id 16, span id 8, valid 1, ...
 *
 *   switch-outs   |  A  |  A  |  B  |  B  |  -  |
 *   told          [---- A ----[---- B ----[
 *
 * What is told is a stretch of the thread's time: from the first switch-out at which a context was
 * seen to the first at which it was another, or none. A context that comes and goes between two
 * switch-outs is not seen, and a program that is interrupted while it writes one has none for so
 * long. This program is attached before the one that records switches, so its moments are a little
 * earlier than those of the rows, and the rows of a stretch lie in it.
 *
 * Processes that publish nothing cost one look into a map for each switch.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "contexts.h"
#include "may_look.h"
#include "thread_pointer.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Only for the descriptions of their types, from which Rust's are made. */
const volatile struct context_record unused_context_record;

/* The head of a record as it is published; OTEP 4947, "Thread-Local Context Record". */
struct published {
	struct context_ids ids;
	__u8 valid;
	__u8 flags;
	__u16 attributes;
};

#define PUBLISHED_BYTES 28

/* Where the list of blocks is, seen from the thread pointer (glibc: tcbhead_t, dtv_t). */
#if defined(__TARGET_ARCH_x86)
#define LIST_OF_BLOCKS 8
#else
#define LIST_OF_BLOCKS 0
#endif
#define BYTES_OF_BLOCK 16
#define NO_BLOCK (~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32); /* id of the process */
	__type(value, struct context_place);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u32); /* id of the thread */
	__type(value, struct open_context);
} open_contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CONTEXT_RING_BYTES);
} contexts SEC(".maps");

__u64 lost_contexts; /* stretches for which there was no room */
__u64 unread_contexts; /* switch-outs at which the memory was not there */

/* Reads a word of the thread's memory; false if that is not there. */
static __always_inline bool word_at(__u64 address, __u64 *word)
{
	return !bpf_probe_read_user(word, sizeof(*word), (void *)address);
}

/* Where the thread's variable is; false if the thread has none yet. */
static __always_inline bool find_variable(struct task_struct *task, struct context_place *place,
					  __u64 *address)
{
	__u64 pointer = thread_pointer_of(task), list, length, block;

	if (!place->module) {
		*address = pointer + place->offset;
		return true;
	}
	if (!word_at(pointer + LIST_OF_BLOCKS, &list))
		return false;
	/* A thread from before the library was loaded has a shorter list, whose length stands before it. */
	if (!word_at(list - BYTES_OF_BLOCK, &length) || place->module > length)
		return false;
	if (!word_at(list + place->module * BYTES_OF_BLOCK, &block) || block == NO_BLOCK || !block)
		return false;
	*address = block + place->offset;
	return true;
}

static __always_inline bool is_none(const struct context_ids *ids)
{
	return !(ids->trace[0] | ids->trace[1]);
}

static __always_inline bool are_equal(const struct context_ids *one,
				      const struct context_ids *other)
{
	return one->trace[0] == other->trace[0] && one->trace[1] == other->trace[1] &&
	       one->span == other->span;
}

/*
 * The context of the current thread, in ids, which are zero if there is none. False if it cannot be
 * told: nothing is brought into memory for it.
 */
static __always_inline bool read_context(struct task_struct *task, struct context_place *place,
					 struct context_ids *ids)
{
	struct published published;
	__u64 variable, record;

	if (!find_variable(task, place, &variable))
		return true;
	if (!word_at(variable, &record))
		return false;
	if (!record)
		return true;
	if (bpf_probe_read_user(&published, PUBLISHED_BYTES, (void *)record))
		return false;
	if (published.valid == 1)
		*ids = published.ids;
	return true;
}

/* True if what is known of the process still holds: it may have executed another program. */
static __always_inline bool holds(struct context_place *place, struct task_struct *task)
{
	__u64 memory = (__u64)task->mm;

	if (!place->memory)
		place->memory = memory;
	return place->memory == memory && is_dumpable(task) && is_of_looked_user(task);
}

static __always_inline void tell(const struct open_context *open, __u64 now)
{
	struct context_record *record = bpf_ringbuf_reserve(&contexts, sizeof(*record), 0);

	if (!record) {
		__sync_fetch_and_add(&lost_contexts, 1);
		return;
	}
	record->begin_ns = open->begin_ns;
	record->end_ns = now;
	record->pid = open->pid;
	record->tid = open->tid;
	record->ids = open->ids;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(context_at_switch, bool preempt, struct task_struct *prev)
{
	__u32 pid = prev->tgid, tid = prev->pid;
	struct context_place *place = bpf_map_lookup_elem(&places, &pid);
	struct open_context *open;
	struct open_context next;
	__u64 now;

	if (!place || (prev->flags & (PF_KTHREAD | PF_IO_WORKER)))
		return 0;
	__builtin_memset(&next, 0, sizeof(next));
	/* A thread that ends has no memory any more. */
	if (prev->mm && holds(place, prev) && !read_context(prev, place, &next.ids)) {
		__sync_fetch_and_add(&unread_contexts, 1);
		return 0;
	}
	open = bpf_map_lookup_elem(&open_contexts, &tid);
	if (open && open->thread_started != prev->start_time) {
		/* The end of the thread that had the id before was not seen. */
		if (!is_none(&open->ids))
			__sync_fetch_and_add(&lost_contexts, 1);
		open = NULL;
	}
	if (open ? are_equal(&open->ids, &next.ids) : is_none(&next.ids))
		return 0;
	now = bpf_ktime_get_ns();
	if (open && !is_none(&open->ids))
		tell(open, now);
	next.thread_started = prev->start_time;
	next.begin_ns = now;
	next.pid = pid;
	next.tid = tid;
	bpf_map_update_elem(&open_contexts, &tid, &next, BPF_ANY);
	return 0;
}
