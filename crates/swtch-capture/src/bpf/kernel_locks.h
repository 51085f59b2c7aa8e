/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locks of the kernel: whether the task that blocks waits for one.
 */
#ifndef SWTCH_KERNEL_LOCKS_H
#define SWTCH_KERNEL_LOCKS_H

/*
 * How many waiters of a lock's queue are read, from its end. A task that has just begun to wait stands last.
 * Others stand behind it if they came before it left the CPU, or while it was woken in vain.
 */
#define MOST_WAITERS_READ 8

/* A node of the queue is read as the waiter that it begins (kernel/locking/rwsem.c, v5.8 to v7.1). */
_Static_assert(__builtin_offsetof(struct rwsem_waiter, list) == 0, "a waiter begins with its node");

/*
 * Whether the task that leaves the CPU stands in the queue of the read-write semaphore at this address. The
 * queue changes while it is read, and its nodes lie on the stacks of tasks: each read may fail, and then the
 * task is not found. In a queue that is shorter than MOST_WAITERS_READ, its head is read as if it were a waiter,
 * and then waiters for the second time: the word behind the head is not the address of a task.
 *
 * The function is global, so that the verifier checks it once. Inlined, it was checked on every path that leads
 * here, which doubled the time to load the program. A global function takes numbers only, so the address comes
 * as one.
 */
__attribute__((noinline)) int is_queued_at(__u64 address)
{
	const struct task_struct *p = (void *)bpf_get_current_task();
	struct rw_semaphore *lock = (void *)address;
	struct rwsem_waiter *waiter = NULL;
	int i;

	if (bpf_core_field_exists(lock->wait_list))
		waiter = (void *)BPF_CORE_READ(lock, wait_list.prev);
	else if (bpf_core_field_exists(lock->first_waiter))
		waiter = (void *)BPF_CORE_READ(lock, first_waiter, list.prev);
	for (i = 0; i < MOST_WAITERS_READ && waiter; i++) {
		if (BPF_CORE_READ(waiter, task) == p)
			return true;
		waiter = (void *)BPF_CORE_READ(waiter, list.prev);
	}
	return false;
}

/*
 * A wait for a read-write semaphore is uninterruptible or killable, counts as load, and is not I/O. Most tasks
 * that block often sleep interruptibly, and for them no queue is read.
 */
static __always_inline bool may_wait_for_rwsem(__u32 state, __u32 evidence)
{
	return (state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE &&
	       !(evidence & EVIDENCE_IN_IOWAIT);
}

/*
 * What the kernel says of the lock that a task blocks on. `blocked_on` and `blocker` name the lock only of waits
 * that no signal ends. mmap and most page faults wait for mmap_lock killably, so its queue is searched: that of
 * the task's own address space. A wait for the mmap_lock of another process (/proc/PID/maps, ptrace) is not found.
 */
__attribute__((noinline)) int lock_evidence(__u32 state, __u32 evidence)
{
	const struct task_struct *p = (void *)bpf_get_current_task();
	struct mm_struct *mm;
	__u32 found = 0;

	if ((bpf_core_field_exists(p->blocked_on) && BPF_CORE_READ(p, blocked_on)) ||
	    (bpf_core_field_exists(p->blocker) && BPF_CORE_READ(p, blocker)))
		found = EVIDENCE_KERNEL_LOCK;
	if (!may_wait_for_rwsem(state, evidence))
		return found;
	mm = BPF_CORE_READ(p, mm);
	if (mm && is_queued_at((__u64)&mm->mmap_lock))
		found |= EVIDENCE_MMAP_LOCK;
	return found;
}

#endif
