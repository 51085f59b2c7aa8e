/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Looks: the registers and the stacks of each thread in scope that has no CPU, copied while it waits.
 *
 *     switch-out ─────────── the thread waits ───────────▶ wakeup ───────▶ switch-in
 *                     ▲ a look: its stack stays as it is,  ▲ now and then, who ends the wait copies its own
 *                       so it can be read at any time        (wakers.h)
 *
 * A helper of the recorder reads the iterator to its end, as often as its budget allows, and unwinds the copies. Nothing
 * is added to a switch. Each wait is copied once; one whose stack was larger than the copy is copied once more, larger,
 * and so are the thread's waits from then on. A wait is told from the next by the time of its switch-out.
 */
#ifndef SWTCH_LOOKS_H
#define SWTCH_LOOKS_H

#define ENOENT 2
#define LOOK_PAGES 4 /* of a first copy: an event loop of libuv has 12 KiB of events in one frame */
#define LOOK_MOST_PAGES                                                                            \
	6 /* with its row, it must fit into what one read of an iterator returns: 32 KiB */

/* Bits of task_state.look. */
enum {
	LOOK_WAS_CUT = 1, /* the last copy was smaller than the stack */
	LOOK_WAS_LARGE = 2,
};

struct look_copy {
	struct look_row row; /* so many bytes of the stack follow it */
	__u8 stack[(LOOK_MOST_PAGES + 1) * PAGE];
};

/* One helper reads, and the iterator calls the program for one task after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_copy);
} look_buffer SEC(".maps");

/* The mapping of a stack. */
struct look_range {
	__u64 start;
	__u64 end; /* 0: none that may be read */
};

/*
 * A program decides where its stack pointer points. Memory of a file or a device, or whose pages another process
 * hands out, could keep a look waiting: only anonymous memory is read.
 */
static long find_range(struct task_struct *p, struct vm_area_struct *vma, struct look_range *range)
{
	if (!vma->vm_file && !(vma->vm_flags & (VM_PFNMAP | VM_IO | VM_UFFD))) {
		range->start = vma->vm_start;
		range->end = vma->vm_end;
	}
	return 0;
}

/*
 * Copies up to the end of the stack's mapping, by pages: one that is gone meanwhile ends the copy. Memory that is
 * not there is paged in. Returns the bytes that were copied.
 */
static __always_inline __u32 copy_stack(struct look_copy *copy, struct task_struct *p,
					const struct look_range *range, __u32 pages)
{
	__u64 sp = copy->row.registers[STACK_POINTER];
	__u64 start = sp >= range->start + RED_ZONE ? sp - RED_ZONE : sp, end = range->end;
	__u32 first = PAGE - (start & (PAGE - 1)), have = first;
	int page;

	copy->row.start = start;
	if (sp >= end || bpf_copy_from_user_task(copy->stack, first, (void *)start, p, 0))
		return 0;
	for (page = 0; page < LOOK_MOST_PAGES - 1; page++) {
		if (page + 1 >= pages || start + have >= end || have > (LOOK_MOST_PAGES - 1) * PAGE)
			break;
		if (bpf_copy_from_user_task(copy->stack + have, PAGE, (void *)(start + have), p, 0))
			break;
		have += PAGE;
	}
	return have;
}

SEC("iter.s/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct look_range range = {};
	struct look_copy *copy;
	struct task_state *st;
	__u32 zero = 0, pages, bytes;
	__u64 out_ts, count, sp;
	long found;

	copy = bpf_map_lookup_elem(&look_buffer, &zero);
	if (!copy)
		return 0;
	if (!p) {
		/* The end. What cannot be read is read as zeros: nothing of the last stack stays here. */
		bpf_probe_read_kernel(copy->stack, sizeof(copy->stack), NULL);
		return 0;
	}
	if (p->on_cpu || p->exit_state)
		return 0;
	st = find_task(p);
	if (!st || !st->in_scope || !st->out_ts)
		return 0;
	out_ts = st->out_ts;
	count = p->nvcsw + p->nivcsw;
	/* The kernel's count was another when it left last: the record of that was missed. */
	if (st->out_count != count)
		return 0;
	if (st->looked_ts == out_ts && st->look != LOOK_WAS_CUT)
		return 0;
	copy->row.ts = bpf_ktime_get_ns();
	copy->row.out_ts = out_ts;
	copy->row.task = st->key;
	describe(&copy->row, p);
	found = bpf_get_task_stack(p, copy->row.kernel, sizeof(copy->row.kernel), 0);
	copy->row.kernel_frames = found > 0 ? found / sizeof(__u64) : 0;
	bytes = 0;
	pages = st->look & (LOOK_WAS_CUT | LOOK_WAS_LARGE) ? LOOK_MOST_PAGES : LOOK_PAGES;
	sp = copy->row.registers[STACK_POINTER];
	if (!copy->row.refusal) {
		found = bpf_find_vma(p, sp, find_range, &range, 0);
		/* The lock of the mappings is not waited for: then the next look asks again. */
		if (found && found != -ENOENT)
			return 0;
		if (!range.end)
			copy->row.refusal = LOOK_NO_STACK;
		else
			bytes = copy_stack(copy, p, &range, pages);
	}
	if (bytes > LOOK_MOST_PAGES * PAGE)
		return 0;
	copy->row.bytes = bytes;
	/* It ran meanwhile, so the copy may be of two moments. */
	if (p->on_cpu || p->nvcsw + p->nivcsw != count || st->out_ts != out_ts)
		return 0;
	if (bpf_seq_write(ctx->meta->seq, copy, sizeof(copy->row) + bytes))
		return 0; /* asked again for when there is room */
	st->looked_ts = out_ts;
	if (pages == LOOK_MOST_PAGES)
		st->look = LOOK_WAS_LARGE;
	else
		st->look = bytes > (LOOK_PAGES - 1) * PAGE && copy->row.start + bytes < range.end ?
				   LOOK_WAS_CUT :
				   0;
	return 0;
}

#endif
