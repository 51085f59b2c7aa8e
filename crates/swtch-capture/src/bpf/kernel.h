/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel's types, as far as swtch reads them. Kept by hand: only the fields that are used, in
 * any order. CO-RE moves each access to the field's real place on the running kernel, so this file
 * names no offsets. A name after three underscores is a flavour: the same type on other versions.
 */
#ifndef SWTCH_KERNEL_H
#define SWTCH_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
};
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP (1ULL << 0)

/* include/linux/sched.h: task->flags, unchanged from v5.15 to v6.18 */
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_WQ_WORKER 0x00000020
#define PF_MEMALLOC 0x00000800
#define PF_KTHREAD 0x00200000

/* include/linux/sched.h: states of tasks */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_NOLOAD 0x0400

/* include/linux/sched/prio.h, include/uapi/linux/sched.h */
#define MAX_RT_PRIO 100
#define SCHED_RR 2
#define SCHED_EXT 7

/* kernel/sched/sched.h: task->on_rq */
#define TASK_ON_RQ_QUEUED 1

/* arch/x86/include/asm/thread_info.h: a 32-bit system call is being executed */
#define TS_COMPAT 0x0002

/* arch/x86/include/asm/segment.h: the code segment of 32-bit programs */
#define USER32_CS 0x23

/* include/linux/mm_types.h, include/linux/sched/coredump.h: who may look into a process; before 7.3 */
#define MMF_DUMPABLE_MASK 3
#define SUID_DUMP_USER 1

/* include/linux/mm.h, unchanged from v5.18 to v6.18: memory of devices, and memory whose pages another process hands out */
#define VM_PFNMAP 0x00000400
#define VM_IO 0x00004000
#define VM_UFFD 0x00001200 /* VM_UFFD_MISSING, VM_UFFD_WP */

/* DWARF's number of the stack pointer */
#if defined(__TARGET_ARCH_x86)
#define STACK_POINTER 7
#else
#define STACK_POINTER 31
#endif

/* arch/arm64/include/uapi/asm/ptrace.h: the state that user mode has is that of 32-bit code */
#define PSR_MODE32_BIT 0x10

#define NICE_0_LOAD (1024ULL << 10) /* 64-bit: SCHED_FIXEDPOINT_SHIFT twice */

/* include/uapi/linux/stat.h, include/uapi/linux/magic.h */
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#define ANON_INODE_FS_MAGIC 0x09041934

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info {
	unsigned long pcount; /* how often it was given a CPU */
	__u64 last_arrival; /* on the scheduler's clock: when it was last given a CPU */
};

struct load_weight {
	unsigned long weight;
};

struct sched_entity;

struct cfs_rq {
	int throttle_count;
	struct sched_entity *curr; /* before 7.3 */
	struct sched_entity *h_curr; /* 7.3 and later */
	unsigned int nr_queued; /* 6.14 and later; counts the running one, too */
};

struct cfs_rq___before_6_14 {
	unsigned int nr_running;
};

struct sched_entity {
	struct load_weight load;
	struct load_weight h_load; /* 7.3 and later: the share of the whole CPU, groups included */
	__u64 deadline; /* 6.6 and later */
	__u64 vruntime;
	__u64 vprot; /* 6.17 and later */
	__u64 slice; /* 6.6 and later */
	__u64 sum_exec_runtime;
	__u64 exec_start; /* the clock when it was last charged */
	unsigned char on_rq; /* unsigned int before 6.12 */
	int depth; /* 0: queued at the root */
	struct sched_entity *parent;
	struct cfs_rq *cfs_rq;
	struct cfs_rq *my_q; /* of a group */
};

struct sched_dl_entity {
	unsigned int dl_throttled : 1;
};

struct thread_info {
	unsigned long flags;
	__u32 status; /* x86 */
	__u32 cpu;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

/* A task in the queue of a read-write semaphore; it lies on that task's stack. */
struct rwsem_waiter {
	struct list_head list;
	struct task_struct *task;
};

struct rw_semaphore {
	struct list_head wait_list; /* before 7.1; PREEMPT_RT has other queues */
	struct rwsem_waiter *first_waiter; /* 7.1 and later */
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
};

struct mm_struct___word {
	unsigned long flags; /* before 6.18 */
};

struct mm_flags {
	unsigned long __mm_flags[1];
};

struct mm_struct___bitmap {
	struct mm_flags flags; /* 6.18 and later */
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
};

enum task_dumpable {
	TASK_DUMPABLE_OWNER = 1,
};

struct task_exec_state {
	enum task_dumpable dumpable;
};

struct kuid {
	__u32 val;
};

struct cred {
	struct kuid uid;
	struct kuid euid;
	struct kuid suid;
};

struct super_block {
	unsigned long s_magic;
};

struct inode {
	struct rw_semaphore i_rwsem;
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

/* A pointer, nothing more: used to read a pointer out of an array of pointers. */
struct hlist_node {
	struct hlist_node *next;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#else
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#endif

struct task_struct {
	struct thread_struct thread;
	struct thread_info thread_info;
	void *stack;
	unsigned int __state; /* 5.14 and later */
	unsigned int flags;
	__u64 start_time;
	/*
	 * Both are int up to 7.2 and u8 from 7.3 on. CO-RE makes a load narrower only where both
	 * sides are unsigned (bpf_core_calc_field_relo, tools/lib/bpf/relo_core.c, v6.18), and the
	 * verifier refuses what CO-RE could not resolve.
	 */
	unsigned int on_cpu;
	unsigned int on_rq;
	int prio;
	unsigned int policy;
	struct sched_entity se;
	struct sched_dl_entity dl;
	struct sched_info sched_info;
	bool throttled; /* 6.18 and later */
	void *migration_pending;
	void *blocked_on; /* the mutex that it waits for, 6.17 and later */
	/*
	 * The lock that it waits for (include/linux/hung_task.h, 6.16 and later, with
	 * CONFIG_DETECT_HUNG_TASK_BLOCKER): the two lowest bits of the address say of which kind it is.
	 * Mutexes and semaphores, and from 6.17 on read-write semaphores that are waited for without
	 * regard to signals.
	 */
	unsigned long blocker;
	unsigned int in_iowait : 1;
	unsigned int frozen : 1;
	unsigned int in_memstall : 1;
	int exit_state;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct list_head children;
	struct list_head sibling;
	struct task_struct *group_leader;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_boottime;
	char comm[16];
	struct files_struct *files;
	struct css_set *cgroups;
	struct mm_struct *mm;
	const struct cred *cred;
	struct task_exec_state *exec_state; /* 7.3 and later */
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq; /* what the program writes into, and user space reads */
};

/* The context of an iterator over all tasks; `task` is NULL at the end. */
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* Before 5.16 on x86 and arm64 the CPU stood in the task itself. */
struct task_struct___cpu {
	unsigned int cpu;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "swtch knows the system call registers of x86 and arm64 only"
#endif

#pragma clang attribute pop

#endif
