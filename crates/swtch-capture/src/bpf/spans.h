/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What spans.bpf.c writes and spans.rs reads: a record for each span that has ended.
 */
#ifndef SWTCH_SPANS_H
#define SWTCH_SPANS_H

#define SPAN_RING_BYTES (4 << 20)

struct span_record {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 end_ns;
	__u32 pid;
	__u32 tid;
	__u64 kind; /* the number that user space has given to the pair of places */
};

#endif
