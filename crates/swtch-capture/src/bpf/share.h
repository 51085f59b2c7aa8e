/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What share.bpf.c counts and share.rs reads: lengths of __schedule() on one CPU.
 */
#ifndef SWTCH_SHARE_H
#define SWTCH_SHARE_H

/*
 * Lengths by size: below 64 ns a slot is 1 ns wide, above it each doubling has 32 slots, so a slot
 * is known within 3 %. The last one takes all from 2^20 ns (1 ms) on.
 */
#define SHARE_STEPS_BITS 5
#define SHARE_STEPS (1 << SHARE_STEPS_BITS)
#define SHARE_SLOTS ((20 - SHARE_STEPS_BITS + 1) * SHARE_STEPS + 1)

struct share_counts {
	__u64 switches;
	__u64 total_ns; /* of all switches, with the probes' own part */
	__u64 echoes;
	__u64 echo_ns; /* of all echoes: the probes' own part alone */
	__u64 slots[SHARE_SLOTS];
};

enum {
	SHARE_WITHIN = 0, /* between threads of one process */
	SHARE_ACROSS = 1, /* between two processes */
	SHARE_KINDS,
};

struct share_state {
	__u64 is_open; /* set by user space: count */
	__u64 start_ns; /* the call in progress began; 0 when it does not count */
	__u64 echo_ns; /* the echo in progress began; 0 when there is none */
	__u32 prev_tgid; /* of the task that is leaving */
	__u32 echo_of; /* the kind that waits for its echo, + 1; 0 none */
	struct share_counts counts[SHARE_KINDS];
};

#endif
