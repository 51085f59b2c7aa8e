/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Wakers: now and then, a thread that ends a wait copies its own stacks. It is on its way through a system call, so they
 * show where in its program it lets go; no look (looks.h) meets it there.
 *
 * Which wakeup is copied must not hang on what was before it: of two that follow each other closely, the first one after
 * a given time would always be the same. So once the time has come, some more wakeups are let pass, by chance.
 *
 * The helper that looks takes the copies out of their slots, and frees these. Where none is free, no copy is made.
 */
#ifndef SWTCH_WAKERS_H
#define SWTCH_WAKERS_H

/* Set before loading: the time between two copies on a CPU, on average; 0: none are made. */
const volatile __u64 wakers_every_ns = 0;

#define WAKER_PAGES 3
#define WAKER_SLOTS 4 /* of each CPU */
#define WAKERS_PASSED 8

enum waker_slot_state {
	SLOT_FREE = 0,
	SLOT_IS_FILLED = 1,
	SLOT_IS_FULL = 2,
};

struct waker_copy {
	__u64 state; /* enum waker_slot_state */
	struct look_row row;
	__u8 stack[WAKER_PAGES * PAGE];
};

const volatile struct waker_copy unused_waker_copy;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct waker_copy);
} waker_copies SEC(".maps");

/* The bytes from here to the end of the page, if they are there: the stack that is in use is. */
static __always_inline __u32 copy_first_page(struct waker_copy *copy, __u64 start)
{
	__u32 first = PAGE - (start & (PAGE - 1));

	copy->row.start = start;
	return bpf_probe_read_user(copy->stack, first, (void *)start) ? 0 : first;
}

static __always_inline __u32 copy_own_stack(struct waker_copy *copy)
{
	__u64 sp = copy->row.registers[STACK_POINTER];
	__u32 have = copy_first_page(copy, sp - RED_ZONE);
	int page;

	if (!have)
		have = copy_first_page(copy, sp);
	if (!have)
		return 0;
	for (page = 0; page < WAKER_PAGES - 1; page++) {
		if (have > (WAKER_PAGES - 1) * PAGE ||
		    bpf_probe_read_user(copy->stack + have, PAGE, (void *)(copy->row.start + have)))
			break;
		have += PAGE;
	}
	return have;
}

static __attribute__((noinline)) int copy_waker(void *ctx, struct cpu_state *c,
						struct task_state *st)
{
	__u32 slot = bpf_get_smp_processor_id() * WAKER_SLOTS + c->waker_slot % WAKER_SLOTS;
	struct waker_copy *copy = bpf_map_lookup_elem(&waker_copies, &slot);
	long found;

	if (!copy || __sync_val_compare_and_swap(&copy->state, SLOT_FREE, SLOT_IS_FILLED))
		return 0;
	c->waker_slot++;
	copy->row.ts = st->wake_ts;
	copy->row.out_ts = st->out_ts;
	copy->row.task = st->key;
	describe(&copy->row, bpf_get_current_task_btf());
	found = bpf_get_stack(ctx, copy->row.kernel, sizeof(copy->row.kernel), OWN_FRAMES);
	copy->row.kernel_frames = found > 0 ? found / sizeof(__u64) : 0;
	copy->row.bytes = 0;
	if (!copy->row.refusal)
		copy->row.bytes = copy_own_stack(copy);
	if (!copy->row.refusal && !copy->row.bytes)
		copy->row.refusal = LOOK_NO_STACK;
	__sync_val_compare_and_swap(&copy->state, SLOT_IS_FILLED, SLOT_IS_FULL);
	return 0;
}

/* `st` is of the task that is woken. */
static __always_inline void maybe_copy_waker(void *ctx, struct cpu_state *c, struct task_struct *p,
					     struct task_state *st)
{
	/*
	 * An interrupt says who was interrupted, not why; a task on its CPU does not wait yet; and a waker that is
	 * not recorded may be anybody's.
	 */
	if (!wakers_every_ns || !c->in_scope || c->window_ts < c->next_waker_ts || !recording ||
	    (st->waker_kind != WAKER_TASK && st->waker_kind != WAKER_SENDER) || p->on_cpu ||
	    st->left_runnable || !st->out_ts)
		return;
	if (c->wakers_to_pass) {
		c->wakers_to_pass--;
		return;
	}
	copy_waker(ctx, c, st);
	c->next_waker_ts =
		c->window_ts + wakers_every_ns / 2 + bpf_get_prandom_u32() % wakers_every_ns;
	c->wakers_to_pass = bpf_get_prandom_u32() % WAKERS_PASSED;
}

#endif
