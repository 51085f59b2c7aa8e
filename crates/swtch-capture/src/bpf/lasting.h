/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waits that last: threads in scope that are blocked when the recording begins and have not run when it
 * ends. They make no switch, so no hook sees them. And threads that could run and have no CPU when it ends:
 * their wait is told by the switch that ends their next run, which comes too late.
 *
 * User space reads the iterator to its end twice. Each time it gets a row for each thread that is blocked;
 * one whose kernel count of switches is the same in both was off its CPU all the time. Nothing is kept
 * in between, and no task is given a slot. Cost per task that is blocked: a row, and in the second walk
 * three or four frames of its kernel stack.
 */
#ifndef SWTCH_LASTING_H
#define SWTCH_LASTING_H

/* Set for the second walk, which also asks where threads wait. */
volatile bool lasting_asks_where = false;

enum lasting_kind {
	LASTING_THREAD = 1,
	LASTING_NAME = 2,
	LASTING_RUNNABLE = 3,
};

#define NAME_OF_FUNCTION 64

/* A thread that is blocked. */
struct lasting_thread {
	__u32 kind; /* LASTING_THREAD */
	__u32 tid;
	__u32 pid;
	__u32 state; /* as in struct switch_record */
	__s32 syscall;
	__u32 is_kthread;
	__u64 start_boottime_ns;
	__u64 count; /* nvcsw + nivcsw */
	__u64 ran_ts; /* when it was last given a CPU; 0 not known */
	__u64 function; /* an address in the kernel's function that waits; 0 not known */
	char program[16]; /* name of its process's first thread */
};

/* The name of the kernel's function at an address, before the first thread that waits there. */
struct lasting_name {
	__u32 kind; /* LASTING_NAME */
	__u32 pad;
	__u64 function;
	char name[NAME_OF_FUNCTION];
};

/* A thread that could run and has no CPU. */
struct lasting_runnable {
	__u32 kind; /* LASTING_RUNNABLE */
	__u32 task; /* its key */
	__u32 cpu; /* for which it waits */
	__u32 pad;
	__u64 out_ts; /* its last switch-out */
	__u64 wake_ts; /* 0 if it left runnable */
};

const volatile struct lasting_runnable unused_lasting_runnable;
const volatile struct lasting_thread unused_lasting_thread;
const volatile struct lasting_name unused_lasting_name;

/* Addresses whose name was told. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u8);
} told_functions SEC(".maps");

static const char function_format[] = "%ps";

static __always_inline bool is_recorded(struct task_struct *p)
{
	struct task_state *st;

	if (p->tgid == recorder_pid)
		return false;
	if (scope_all)
		return true;
	if (has_cgroups)
		return is_in_scope_cgroup(cgroup_of(p->cgroups));
	st = find_task(p);
	return st ? st->in_scope : is_target(p);
}

/*
 * The time of the scheduler's clock and that of the trace differ by a constant. The task that reads the
 * iterator was switched in at a time that both know.
 */
static __always_inline __u64 ran_ts_of(struct task_struct *p, struct cpu_state *c)
{
	struct task_struct *reader = bpf_get_current_task_btf();

	if (!bpf_core_field_exists(p->sched_info.last_arrival) || !c->run_start ||
	    c->pid != reader->pid || !p->sched_info.last_arrival)
		return 0;
	return p->sched_info.last_arrival - reader->sched_info.last_arrival + c->run_start;
}

static __always_inline long tell_function(struct seq_file *seq, __u64 function)
{
	struct lasting_name row = {.kind = LASTING_NAME, .function = function};
	__u8 told = 1;

	if (bpf_map_update_elem(&told_functions, &function, &told, BPF_NOEXIST))
		return 0;
	bpf_snprintf(row.name, sizeof(row.name), function_format, &function, sizeof(function));
	return bpf_seq_write(seq, &row, sizeof(row));
}

static __always_inline void tell_runnable(struct seq_file *seq, struct task_struct *p)
{
	struct lasting_runnable row = {.kind = LASTING_RUNNABLE, .cpu = cpu_of(p)};
	struct task_state *st = find_task(p);

	if (!st || !st->in_scope || !st->out_ts)
		return;
	row.task = st->key;
	row.out_ts = st->out_ts;
	if (!st->left_runnable && st->wake_ts > st->out_ts)
		row.wake_ts = st->wake_ts;
	bpf_seq_write(seq, &row, sizeof(row)); /* asked again for when there is no room */
}

SEC("iter/task")
int list_blocked(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *p = ctx->task;
	struct cpu_state *c = this_cpu();
	struct lasting_thread row = {.kind = LASTING_THREAD};
	long refused = 0;

	if (!p || !c || p->on_cpu || p->exit_state || !is_recorded(p))
		return 0;
	if (!p->__state) {
		if (lasting_asks_where && p->on_rq)
			tell_runnable(seq, p);
		return 0;
	}
	row.tid = p->pid;
	row.pid = p->tgid;
	row.state = p->__state;
	row.start_boottime_ns = p->start_boottime;
	row.count = p->nvcsw + p->nivcsw;
	if (lasting_asks_where) {
		if (p->on_rq) /* preempted on its way to sleep: it could run */
			return 0;
		row.is_kthread = !!(p->flags & (PF_KTHREAD | PF_IO_WORKER));
		row.syscall = call_of(p);
		row.ran_ts = ran_ts_of(p, c);
		BPF_CORE_READ_STR_INTO(&row.program, p, group_leader, comm);
		if (bpf_get_task_stack(p, &row.function, sizeof(row.function), 0) > 0 &&
		    row.function)
			refused = tell_function(seq, row.function);
	}
	/*
	 * When there is no room the kernel takes back all that was written for this task, and asks again for it
	 * at the next read: its function is to be told then, for the second time at worst.
	 */
	if (bpf_seq_write(seq, &row, sizeof(row)) || refused)
		bpf_map_delete_elem(&told_functions, &row.function);
	return 0;
}

#endif
