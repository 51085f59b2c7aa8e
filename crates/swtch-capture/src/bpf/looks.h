/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Looks: the user registers and the user stack of each thread in scope that has no CPU, copied while it waits.
 *
 *     switch-out ─────────── the thread waits ───────────▶ switch-in
 *                     ▲ a look: its stack stays as it is, so it can be read at any time of the wait
 *
 * A helper of the recorder reads the iterator to its end, as often as its budget allows, and unwinds the copies. Nothing
 * is added to a switch. Each wait is copied once; one whose stack was larger than the copy is copied once more, larger,
 * and so are the thread's waits from then on. A wait is told from the next by the time of its switch-out.
 *
 * Copied are only stacks of processes that may be looked into: those that are dumpable, and that belong to the user
 * whom the recorder works for, unless that is root.
 */
#ifndef SWTCH_LOOKS_H
#define SWTCH_LOOKS_H

/* Set before loading. */
const volatile bool look_at_all_users = false;
const volatile __u32 look_at_user = 0;

#define PAGE 4096
#define ENOENT 2
#define LOOK_PAGES 4 /* of a first copy: an event loop of libuv has 12 KiB of events in one frame */
#define LOOK_MOST_PAGES                                                                            \
	6 /* with its row, it must fit into what one read of an iterator returns: 32 KiB */

#if defined(__TARGET_ARCH_x86)
#define LOOK_REGISTERS 17
#else
#define LOOK_REGISTERS 32
#endif

/* Bits of task_state.look. */
enum {
	LOOK_WAS_CUT = 1, /* the last copy was smaller than the stack */
	LOOK_WAS_LARGE = 2,
};

enum look_refusal {
	LOOK_ALLOWED = 0,
	LOOK_OF_OTHER_USER = 1,
	LOOK_NOT_DUMPABLE = 2,
	LOOK_OF_32_BIT = 3,
	LOOK_NO_STACK = 4, /* the stack pointer points at no memory, or at such that is not read */
};

/* A thread that waits. So many bytes of its stack follow. */
struct look_row {
	__u64 ts;
	__u64 out_ts; /* the switch-out that its wait began with */
	__u64 pc;
	__u64 registers[LOOK_REGISTERS]; /* by their numbers in DWARF */
	__u64 memory; /* which address space: another one after the process has executed a program */
	__u32 task; /* its key */
	__u32 pid;
	__u32 refusal; /* enum look_refusal; then nothing was copied */
	__u32 bytes;
};

struct look_copy {
	struct look_row row;
	__u8 stack[(LOOK_MOST_PAGES + 1) * PAGE];
};

const volatile struct look_row unused_look_row;

/* One helper reads, and the iterator calls the program for one task after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_copy);
} look_buffer SEC(".maps");

static __always_inline bool is_dumpable(struct task_struct *p)
{
	struct mm_struct___bitmap *mm = (void *)p->mm;
	__u64 flags;

	if (bpf_core_field_exists(p->exec_state))
		return BPF_CORE_READ(p, exec_state, dumpable) == TASK_DUMPABLE_OWNER;
	if (bpf_core_field_exists(mm->flags.__mm_flags))
		flags = BPF_CORE_READ(mm, flags.__mm_flags[0]);
	else
		flags = BPF_CORE_READ((struct mm_struct___word *)mm, flags);
	return (flags & MMF_DUMPABLE_MASK) == SUID_DUMP_USER;
}

static __always_inline __u32 refusal_of(struct task_struct *p)
{
	if (!is_dumpable(p))
		return LOOK_NOT_DUMPABLE;
	if (!look_at_all_users && (BPF_CORE_READ(p, cred, uid.val) != look_at_user ||
				   BPF_CORE_READ(p, cred, euid.val) != look_at_user ||
				   BPF_CORE_READ(p, cred, suid.val) != look_at_user))
		return LOOK_OF_OTHER_USER;
	return LOOK_ALLOWED;
}

/* False for 32-bit code, which has other tables. */
static __always_inline bool copy_registers(struct look_row *row, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	row->registers[0] = BPF_CORE_READ(regs, ax);
	row->registers[1] = BPF_CORE_READ(regs, dx);
	row->registers[2] = BPF_CORE_READ(regs, cx);
	row->registers[3] = BPF_CORE_READ(regs, bx);
	row->registers[4] = BPF_CORE_READ(regs, si);
	row->registers[5] = BPF_CORE_READ(regs, di);
	row->registers[6] = BPF_CORE_READ(regs, bp);
	row->registers[7] = BPF_CORE_READ(regs, sp);
	row->registers[8] = BPF_CORE_READ(regs, r8);
	row->registers[9] = BPF_CORE_READ(regs, r9);
	row->registers[10] = BPF_CORE_READ(regs, r10);
	row->registers[11] = BPF_CORE_READ(regs, r11);
	row->registers[12] = BPF_CORE_READ(regs, r12);
	row->registers[13] = BPF_CORE_READ(regs, r13);
	row->registers[14] = BPF_CORE_READ(regs, r14);
	row->registers[15] = BPF_CORE_READ(regs, r15);
	row->pc = BPF_CORE_READ(regs, ip);
	row->registers[16] = row->pc;
	return (BPF_CORE_READ(regs, cs) & 0xffff) != USER32_CS;
#else
	bpf_probe_read_kernel(row->registers, sizeof(regs->regs), regs->regs);
	row->registers[31] = BPF_CORE_READ(regs, sp);
	row->pc = BPF_CORE_READ(regs, pc);
	return !(BPF_CORE_READ(regs, pstate) & PSR_MODE32_BIT);
#endif
}

struct look_range {
	__u64 end; /* of the mapping of a stack; 0: none that may be read */
};

/*
 * A program decides where its stack pointer points. Memory of a file or a device, or whose pages another process
 * hands out, could keep a look waiting: only anonymous memory is read.
 */
static long find_end(struct task_struct *p, struct vm_area_struct *vma, struct look_range *range)
{
	if (!vma->vm_file && !(vma->vm_flags & (VM_PFNMAP | VM_IO | VM_UFFD)))
		range->end = vma->vm_end;
	return 0;
}

/*
 * Copies up to the end of the stack's mapping, by pages: one that is gone meanwhile ends the copy. Memory that is
 * not there is paged in. Returns the bytes that were copied.
 */
static __always_inline __u32 copy_stack(struct look_copy *copy, struct task_struct *p, __u64 sp,
					__u64 end, __u32 pages)
{
	__u32 first = PAGE - (sp & (PAGE - 1)), have = first;
	int page;

	if (sp >= end || bpf_copy_from_user_task(copy->stack, first, (void *)sp, p, 0))
		return 0;
	for (page = 0; page < LOOK_MOST_PAGES - 1; page++) {
		if (page + 1 >= pages || sp + have >= end || have > (LOOK_MOST_PAGES - 1) * PAGE)
			break;
		if (bpf_copy_from_user_task(copy->stack + have, PAGE, (void *)(sp + have), p, 0))
			break;
		have += PAGE;
	}
	return have;
}

SEC("iter.s/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct pt_regs *regs;
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
	if (!p->mm || p->on_cpu || p->exit_state || (p->flags & PF_KTHREAD))
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
	regs = (void *)bpf_task_pt_regs(p);
	if (!regs)
		return 0;
	copy->row.ts = bpf_ktime_get_ns();
	copy->row.out_ts = out_ts;
	copy->row.memory = (__u64)p->mm;
	copy->row.task = st->key;
	copy->row.pid = p->tgid;
	copy->row.refusal = refusal_of(p);
	if (!copy_registers(&copy->row, regs) && !copy->row.refusal)
		copy->row.refusal = LOOK_OF_32_BIT;
	bytes = 0;
	pages = st->look & (LOOK_WAS_CUT | LOOK_WAS_LARGE) ? LOOK_MOST_PAGES : LOOK_PAGES;
	sp = copy->row.registers[STACK_POINTER];
	if (!copy->row.refusal) {
		found = bpf_find_vma(p, sp, find_end, &range, 0);
		/* The lock of the mappings is not waited for: then the next look asks again. */
		if (found && found != -ENOENT)
			return 0;
		if (!range.end)
			copy->row.refusal = LOOK_NO_STACK;
		else
			bytes = copy_stack(copy, p, sp, range.end, pages);
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
		st->look = bytes > (LOOK_PAGES - 1) * PAGE && sp + bytes < range.end ?
				   LOOK_WAS_CUT :
				   0;
	return 0;
}

#endif
