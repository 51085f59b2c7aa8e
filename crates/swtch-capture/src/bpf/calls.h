/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * System calls: the call that a task blocks in, its arguments, and what kind of file it waits on.
 */
#ifndef SWTCH_CALLS_H
#define SWTCH_CALLS_H

static __always_inline __u8 kind_of_anonymous(struct file *file)
{
	const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	char start[8] = {};

	bpf_probe_read_kernel_str(start, sizeof(start), name);
	if (start[1] == 'e' && start[2] == 'v' && start[3] == 'e' && start[6] == 'f')
		return OBJECT_EVENTFD; /* [eventfd] */
	if (start[1] == 't' && start[2] == 'i' && start[3] == 'm')
		return OBJECT_TIMERFD; /* [timerfd] */
	return OBJECT_OTHER_FD;
}

/* What a mode alone tells; OBJECT_REGULAR where the file system must be asked, too. */
static __always_inline __u8 kind_of_mode(unsigned short mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return OBJECT_FIFO;
	case S_IFSOCK:
		return OBJECT_SOCKET;
	case S_IFCHR:
		return OBJECT_CHAR;
	case S_IFBLK:
		return OBJECT_BLOCK;
	default: /* anonymous inodes say regular since 6.16, nothing before */
		return OBJECT_REGULAR;
	}
}

static __always_inline void describe_file(struct switch_record *r, struct task_struct *p,
					  __u32 state, __u64 fd)
{
	struct files_struct *files = p->files;
	struct inode *inode;
	struct fdtable *fdt;
	struct file *file;
	__u64 magic = 0;

	if (!files)
		return;
	fdt = files->fdt;
	if (fd >= fdt->max_fds)
		return;
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		file = typed(typed(fdt->fd + fd, struct hlist_node)->next, struct file);
		if (!file)
			return;
		inode = file->f_inode;
		r->wait_key = inode->i_ino;
		r->wait_object = kind_of_mode(inode->i_mode);
		if (r->wait_object == OBJECT_REGULAR)
			magic = inode->i_sb->s_magic;
	} else {
		if (bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd) || !file)
			return;
		inode = BPF_CORE_READ(file, f_inode);
		r->wait_key = BPF_CORE_READ(inode, i_ino);
		r->wait_object = kind_of_mode(BPF_CORE_READ(inode, i_mode));
		if (r->wait_object == OBJECT_REGULAR)
			magic = BPF_CORE_READ(inode, i_sb, s_magic);
	}
	if (magic == ANON_INODE_FS_MAGIC)
		r->wait_object = kind_of_anonymous(file);
	else if (may_wait_for_rwsem(state, r->evidence)) {
		inode = BPF_CORE_READ(file, f_inode);
		r->evidence |= is_queued_at((__u64)&inode->i_rwsem) * EVIDENCE_INODE_LOCK;
	}
}

/*
 * Where user mode left its registers: at the same distance from the stack of every task, so the helper
 * is asked once on each CPU. It took 20 ns, because two functions return on the way.
 */
static __always_inline struct pt_regs *registers_of(struct cpu_state *c, struct task_struct *p)
{
	__u64 stack;

	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return (struct pt_regs *)bpf_task_pt_regs(p);
	/* Read back from a map, an address is a number that the verifier lets us reckon with. */
	*(volatile __u64 *)&c->stack_of_prev = (__u64)p->stack;
	stack = *(volatile __u64 *)&c->stack_of_prev;
	if (!c->registers_above_stack) {
		*(volatile __u64 *)&c->registers_above_stack = (__u64)bpf_task_pt_regs(p);
		*(volatile __u64 *)&c->registers_above_stack -= stack;
	}
	return typed((void *)(stack + c->registers_above_stack), struct pt_regs);
}

/* Whether the bit of this system call is set in a list of calls. The mask is for verifiers (6.1) that do
 * not remember a bound which the compiler has found twice; the barrier keeps the compiler from
 * dropping it. */
static __always_inline bool is_listed(const volatile __u8 calls[128], __s32 number)
{
	__u32 bit = number;

	if (bit >= 1024)
		return false;
	asm volatile("" : "+r"(bit));
	return calls[(bit & 1023) >> 3] >> (bit & 7) & 1;
}

static __always_inline void describe_call(struct cpu_state *c, struct switch_record *r,
					  struct task_struct *p, __u32 state, bool blocks)
{
	struct pt_regs *regs;
	__s32 number;

	r->syscall = NO_SYSCALL;
	r->wait_object = OBJECT_NONE;
	r->wait_key = 0;
	r->args[0] = r->args[1] = r->args[2] = 0;
	if (r->evidence & EVIDENCE_KTHREAD)
		return;
	regs = registers_of(c, p);
#if defined(__TARGET_ARCH_x86)
	number = regs->orig_ax;
	if (p->thread_info.status & TS_COMPAT)
		r->evidence |= EVIDENCE_COMPAT;
#else
	number = regs->syscallno;
	if (regs->pstate & PSR_MODE32_BIT)
		r->evidence |= EVIDENCE_COMPAT;
#endif
	r->syscall = number;
	if (!blocks || number < 0)
		return;
#if defined(__TARGET_ARCH_x86)
	r->args[0] = regs->di;
	r->args[1] = regs->si;
	r->args[2] = regs->dx;
#else
	r->args[0] = regs->orig_x0;
	r->args[1] = regs->regs[1];
	r->args[2] = regs->regs[2];
#endif
	/* clone3's flags are the first word of what its argument points to. */
	if (number == syscall_clone3)
		bpf_probe_read_user(&r->args[0], sizeof(r->args[0]), (void *)r->args[0]);
	if (is_listed(syscalls_on_files, number))
		describe_file(r, p, state, (__u32)r->args[0]);
}

#endif
