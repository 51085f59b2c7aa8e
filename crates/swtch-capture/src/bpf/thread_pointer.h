/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a thread's own variables are: its runtime knows it by this. */
#ifndef SWTCH_THREAD_POINTER_H
#define SWTCH_THREAD_POINTER_H

static __always_inline __u64 thread_pointer_of(struct task_struct *p)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(p, thread.fsbase);
#else
	return BPF_CORE_READ(p, thread.uw.tp_value);
#endif
}

#endif
