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

static __attribute__((noinline)) int tell(struct task_struct *p, struct task_state *st, __u32 event)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = state_of(cpu);
	struct task_record *r;

	if (!c || !st || !recording)
		return 0;
	r = reserve(c, cpu, sizeof(*r));
	if (!r) {
		c->lost_task_records++;
		return 0;
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
	r->class = r->prio < 0 ? CLASS_DEADLINE : r->prio < MAX_RT_PRIO ? CLASS_RT : CLASS_FAIR;
	r->is_kthread = !!(BPF_CORE_READ(p, flags) & PF_KTHREAD);
	r->in_scope = st->in_scope;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	BPF_CORE_READ_STR_INTO(&r->comm, p, comm);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void announce(struct task_struct *p, struct task_state *st)
{
	if (st->announced != ANNOUNCED)
		tell(p, st, TASK_SEEN);
}

#endif
