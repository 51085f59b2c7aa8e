/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What contexts.bpf.c and contexts.rs have in common: where a process keeps the context of each
 * thread, and a record for each stretch of a thread's time with one context.
 */
#ifndef SWTCH_CONTEXTS_H
#define SWTCH_CONTEXTS_H

#define CONTEXT_RING_BYTES (4 << 20)

/* Where a thread's variable is: at thread pointer + offset, or in the block of a library. */
struct context_place {
	__u64 module; /* the library's place in the list of blocks; 0: at the thread pointer */
	__u64 offset;
	__u64 memory; /* the address space that this holds for; 0 until a thread has been seen */
};

struct context_ids {
	__u64 trace[2]; /* bytes, as they lie in memory */
	__u64 span;
};

struct context_record {
	__u64 begin_ns; /* CLOCK_MONOTONIC: the first switch-out with this context */
	__u64 end_ns; /* the first switch-out without it */
	__u32 pid;
	__u32 tid;
	struct context_ids ids;
};

/* What is open of a thread. */
struct open_context {
	__u64 thread_started; /* another thread may get its id */
	__u64 begin_ns;
	__u32 pid;
	__u32 tid;
	struct context_ids ids;
};

#endif
