/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which processes may be looked into: those that are dumpable, and that belong to the user whom the recorder works for,
 * unless that is root.
 */
#ifndef SWTCH_MAY_LOOK_H
#define SWTCH_MAY_LOOK_H

/* Set before loading. */
const volatile bool look_at_all_users = false;
const volatile __u32 look_at_user = 0;

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

static __always_inline bool is_of_looked_user(struct task_struct *p)
{
	return look_at_all_users || (BPF_CORE_READ(p, cred, uid.val) == look_at_user &&
				     BPF_CORE_READ(p, cred, euid.val) == look_at_user &&
				     BPF_CORE_READ(p, cred, suid.val) == look_at_user);
}

#endif
