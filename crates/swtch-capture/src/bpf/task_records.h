/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What user space is told of tasks: who they are, once, before the first switch that names them.
 */
#ifndef SWTCH_TASK_RECORDS_H
#define SWTCH_TASK_RECORDS_H

static __always_inline void *reserve(struct cpu_state *c, __u32 cpu, __u64 size)
{
	void *ring = bpf_map_lookup_elem(&rings, &cpu);

	return ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;
}

/*
 * Begins the record of an event of this task: all of it but the name and the class, which finish_task_record adds.
 * NULL if there is no room. Fields are read by a helper, as the type of the pointer differs from caller to caller.
 */
static __always_inline struct task_record *begin_task_record(struct task_struct *p,
							     struct task_state *st, __u32 event)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = state_of(cpu);
	struct task_record *r;

	if (!c || !st || !recording)
		return NULL;
	r = reserve(c, cpu, sizeof(*r));
	if (!r) {
		c->lost_task_records++;
		return NULL;
	}
	st->announced = ANNOUNCED; /* before its cgroup is read: another CPU may change both */
	r->kind = RECORD_TASK;
	r->event = event;
	r->ts = bpf_ktime_get_ns();
	r->start_boottime_ns = BPF_CORE_READ(p, start_boottime);
	r->cgroup = st->cgroup;
	r->nvcsw = BPF_CORE_READ(p, nvcsw);
	r->nivcsw = BPF_CORE_READ(p, nivcsw);
	r->task = st->key;
	r->tid = BPF_CORE_READ(p, pid);
	r->pid = BPF_CORE_READ(p, tgid);
	r->parent_pid = BPF_CORE_READ(p, real_parent, tgid);
	r->prio = BPF_CORE_READ(p, prio);
	r->is_kthread = !!(BPF_CORE_READ(p, flags) & PF_KTHREAD);
	r->in_scope = st->in_scope;
	__builtin_memset(r->pad, 0, sizeof(r->pad)); /* the room was another record's before */
	__builtin_memset(r->comm, 0, sizeof(r->comm));
	return r;
}

/* As class_of, by the fields of a record. */
static __always_inline __u8 class_of_record(const struct task_record *r, __u32 policy)
{
	bool is_stopper = r->prio == 0 && r->is_kthread && r->comm[0] == 'm' && r->comm[1] == 'i' &&
			  r->comm[2] == 'g';

	if (r->tid == 0)
		return CLASS_IDLE;
	if (r->prio < 0)
		return CLASS_DEADLINE;
	if (r->prio < MAX_RT_PRIO)
		return is_stopper ? CLASS_STOP : CLASS_RT;
	return policy == SCHED_EXT ? CLASS_EXT : CLASS_FAIR;
}

/* Adds the class to a record that has its name, and hands it over. */
static __always_inline void finish_task_record(struct task_record *r, struct task_struct *p)
{
	r->class = class_of_record(r, BPF_CORE_READ(p, policy));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

static __attribute__((noinline)) int tell(struct task_struct *p, struct task_state *st, __u32 event)
{
	struct task_record *r = begin_task_record(p, st, event);

	if (!r)
		return 0;
	BPF_CORE_READ_STR_INTO(&r->comm, p, comm);
	finish_task_record(r, p);
	return 0;
}

static __always_inline void announce(struct task_struct *p, struct task_state *st)
{
	if (st->announced != ANNOUNCED)
		tell(p, st, TASK_SEEN);
}

#endif
