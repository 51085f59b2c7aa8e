/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locks of the kernel: whether the task that blocks waits for one.
 */
#ifndef SWTCH_KERNEL_LOCKS_H
#define SWTCH_KERNEL_LOCKS_H

/*
 * How many of a lock's queue are looked at, from its end. A task that has just begun to wait is the last;
 * behind it are those who came since, or while it was woken in vain.
 */
#define MOST_QUEUED_BEHIND 8

/*
 * Whether the task that leaves the CPU stands in the queue of the read-write semaphore at this address. The
 * queue changes while it is read, and its nodes lie on the stacks of tasks: each read may fail, and then the
 * task is not found.
 *
 * It is global, so that the verifier looks at it once and not for each way that leads here, which took as long
 * as all of the program besides. Such a function takes numbers only: the address must have been read by a
 * helper.
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
	for (i = 0; i < MOST_QUEUED_BEHIND && waiter; i++) {
		if (BPF_CORE_READ(waiter, task) == p)
			return true;
		waiter = (void *)BPF_CORE_READ(waiter, list.prev);
	}
	return false;
}

/*
 * A wait for a read-write semaphore counts as load, killable or not, and is no I/O. Nearly all that blocks
 * often sleeps otherwise, and costs no look at any queue.
 */
static __always_inline bool may_wait_for_rwsem(__u32 state, __u32 evidence)
{
	return (state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE &&
	       !(evidence & EVIDENCE_IN_IOWAIT);
}

/*
 * What the kernel says of the lock that a task blocks on. It does not tell of those that a signal may end
 * the wait for, as mmap and most page faults wait for the address space's lock: the queue does.
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
