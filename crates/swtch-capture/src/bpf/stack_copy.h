/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is copied of a thread that waits (looks.h), and of one that ends a wait (wakers.h).
 *
 * Copied are only stacks of processes that may be looked into: those that are dumpable, and that belong to the user
 * whom the recorder works for, unless that is root.
 */
#ifndef SWTCH_STACK_COPY_H
#define SWTCH_STACK_COPY_H

#define PAGE 4096
#define LOOK_KERNEL_FRAMES 32

#if defined(__TARGET_ARCH_x86)
#define LOOK_REGISTERS 17
#define RED_ZONE                                                                                   \
	128 /* bytes below the stack pointer that are a function's own (x86-64 psABI, 3.2.2) */
#else
#define LOOK_REGISTERS 32
#define RED_ZONE 0
#endif

enum look_refusal {
	LOOK_ALLOWED = 0,
	LOOK_OF_OTHER_USER = 1,
	LOOK_NOT_DUMPABLE = 2,
	LOOK_OF_32_BIT = 3,
	LOOK_NO_STACK = 4, /* the stack pointer points at no memory, or at such that is not read */
	LOOK_OF_KERNEL_THREAD = 5,
};

/* A wait, and a thread: the one that waits, or the one that ends the wait. */
struct look_row {
	__u64 ts;
	__u64 out_ts; /* the switch-out that the wait began with */
	__u64 pc; /* of the thread, as what follows */
	__u64 start; /* of the bytes of its user stack */
	__u64 registers[LOOK_REGISTERS]; /* by their numbers in DWARF */
	__u64 kernel[LOOK_KERNEL_FRAMES]; /* return addresses */
	__u64 memory; /* which address space: another one after the process has executed a program */
	__u64 thread_pointer; /* where the thread's own variables are, by which its runtime knows it */
	__u64 runs; /* how often it has got a CPU; 0 where the kernel does not count that */
	__u32 task; /* key of the task that waits */
	__u32 pid;
	__u32 tid;
	__u32 unused;
	__u32 refusal; /* enum look_refusal; then nothing was copied of its user stack */
	__u32 bytes; /* of its user stack */
	__u32 kernel_frames;
	__u32 deep_slot; /* 0: the bytes follow; else the place in deep_copies, counted from 1 */
};

const volatile struct look_row unused_look_row;

static __always_inline __u32 refusal_of(struct task_struct *p)
{
	if (!is_dumpable(p))
		return LOOK_NOT_DUMPABLE;
	return is_of_looked_user(p) ? LOOK_ALLOWED : LOOK_OF_OTHER_USER;
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

/* Fills in what is the same of every copy. */
static __always_inline void describe(struct look_row *row, struct task_struct *p)
{
	struct pt_regs *regs;

	row->memory = (__u64)p->mm;
	row->pid = p->tgid;
	row->tid = p->pid;
	row->thread_pointer = thread_pointer_of(p);
	row->runs = 0;
	if (bpf_core_field_exists(p->sched_info.pcount))
		row->runs = BPF_CORE_READ(p, sched_info.pcount);
	row->refusal = LOOK_OF_KERNEL_THREAD;
	if (!p->mm || (p->flags & (PF_KTHREAD | PF_IO_WORKER)))
		return;
	row->refusal = refusal_of(p);
	regs = (void *)bpf_task_pt_regs(p);
	if (!copy_registers(row, regs) && !row->refusal)
		row->refusal = LOOK_OF_32_BIT;
}

#endif
