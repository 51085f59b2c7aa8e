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
 *
 * What one read of an iterator returns is 32 KiB at most. Larger copies are left in slots, which the helper empties after
 * each look; if none is free, the next look has its turn.
 */
#ifndef SWTCH_LOOKS_H
#define SWTCH_LOOKS_H

#define ENOENT 2
#define LOOK_PAGES 4 /* of a first copy: an event loop of libuv has 12 KiB of events in one frame */
#define DEEP_PAGES 16
#define DEEP_SLOTS 32

/* Of task_state.look. */
enum {
	LOOK_WAS_CUT = 1, /* the last copy was smaller than the stack */
	LOOK_WAS_LARGE = 2,
};

struct look_copy {
	struct look_row row; /* so many bytes of the stack follow it */
	__u8 stack[(LOOK_PAGES + 1) * PAGE];
};

struct deep_copy {
	__u64 is_full;
	__u8 stack[(DEEP_PAGES + 1) * PAGE];
};

const volatile struct deep_copy unused_deep_copy;

/* One helper reads, and the iterator calls the program for one task after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_copy);
} look_buffer SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, DEEP_SLOTS);
	__type(key, __u32);
	__type(value, struct deep_copy);
} deep_copies SEC(".maps");

static __u32 next_deep_slot;

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
 * not there is paged in. There is room for one page more. Returns the bytes that were copied.
 */
static __always_inline __u32 copy_stack(__u8 *to, const __u32 pages, struct task_struct *p,
					__u64 start, __u64 end)
{
	__u32 first = PAGE - (start & (PAGE - 1)), have = first, page;

	if (bpf_copy_from_user_task(to, first, (void *)start, p, 0))
		return 0;
	for (page = 1; page < pages; page++) {
		if (start + have >= end || have > (pages - 1) * PAGE)
			break;
		if (bpf_copy_from_user_task(to + have, PAGE, (void *)(start + have), p, 0))
			break;
		have += PAGE;
	}
	return have;
}

/* A slot for a large copy, or NULL if none is free. `number` counts from 1. */
static __always_inline struct deep_copy *free_deep_slot(__u32 *number)
{
	struct deep_copy *deep;
	__u32 slot = next_deep_slot % DEEP_SLOTS;

	deep = bpf_map_lookup_elem(&deep_copies, &slot);
	if (!deep || deep->is_full)
		return NULL;
	next_deep_slot++;
	*number = slot + 1;
	return deep;
}

/* False if the stack cannot be asked for now. */
static __always_inline bool find_stack(struct look_row *row, struct task_struct *p,
				       struct look_range *range)
{
	__u64 sp = row->registers[STACK_POINTER];
	long found = bpf_find_vma(p, sp, find_range, range, 0);

	/* The lock of the mappings is not waited for: then the next look asks again. */
	if (found && found != -ENOENT)
		return false;
	if (!range->end)
		row->refusal = LOOK_NO_STACK;
	row->start = sp >= range->start + RED_ZONE ? sp - RED_ZONE : sp;
	return true;
}

SEC("iter.s/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct look_range range = {};
	struct deep_copy *deep = NULL;
	struct look_copy *copy;
	struct task_state *st;
	__u32 zero = 0, bytes = 0;
	__u64 out_ts, count;
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
	copy->row.deep_slot = 0;
	describe(&copy->row, p);
	found = bpf_get_task_stack(p, copy->row.kernel, sizeof(copy->row.kernel), 0);
	copy->row.kernel_frames = found > 0 ? found / sizeof(__u64) : 0;
	if (!copy->row.refusal) {
		if (!find_stack(&copy->row, p, &range))
			return 0;
		if (st->look && !copy->row.refusal)
			deep = free_deep_slot(&copy->row.deep_slot);
		/* It was copied in part; another of its waits is better copied in part than not at all. */
		if (st->looked_ts == out_ts && !deep)
			return 0;
	}
	if (!copy->row.refusal && deep) {
		deep->is_full = 1;
		bytes = copy_stack(deep->stack, DEEP_PAGES, p, copy->row.start, range.end);
	} else if (!copy->row.refusal) {
		bytes = copy_stack(copy->stack, LOOK_PAGES, p, copy->row.start, range.end);
	}
	copy->row.bytes = bytes;
	/* It ran meanwhile, so the copy may be of two moments. */
	if (p->on_cpu || p->nvcsw + p->nivcsw != count || st->out_ts != out_ts)
		return 0;
	if (deep)
		found = bpf_seq_write(ctx->meta->seq, copy, sizeof(copy->row));
	else if (bytes <= LOOK_PAGES * PAGE)
		found = bpf_seq_write(ctx->meta->seq, copy, sizeof(copy->row) + bytes);
	else
		return 0;
	if (found)
		return 0; /* asked again for when there is room */
	st->looked_ts = out_ts;
	if (deep)
		st->look = LOOK_WAS_LARGE;
	else if (bytes > (LOOK_PAGES - 1) * PAGE && copy->row.start + bytes < range.end)
		st->look = LOOK_WAS_CUT;
	else
		st->look = 0;
	return 0;
}

#endif
