/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waiters: tasks in scope that are runnable and do not run, counted by CPU. While there is one, whoever
 * has that CPU is announced, in scope or not.
 */
#ifndef SWTCH_WAITERS_H
#define SWTCH_WAITERS_H

/* Where every task is recorded, nobody need be found out; a summary does not say who ran while
 * another waited. */
static __always_inline bool names_waiters(void)
{
	return !scope_all && !summary;
}

/* Another CPU's count may be written here at any time; its own part needs no lock. */
static __always_inline void add_to_waiters(__u32 cpu, int number)
{
	struct cpu_state *c = state_of(cpu);

	if (!c)
		return;
	if (cpu == bpf_get_smp_processor_id())
		c->waiters += number;
	else
		__sync_fetch_and_add(&c->waiters_from_afar, number);
}

/* Takes the task off the count of the CPU that it is counted on, if any. */
static __always_inline void discount_waiter(struct task_state *st)
{
	if (!st->waits_on)
		return;
	add_to_waiters(st->waits_on - 1, -1);
	st->waits_on = 0;
}

/* Counts the task as a waiter of this CPU, and of no other. */
static __always_inline void count_waiter(struct task_state *st, __u32 cpu)
{
	if (st->waits_on == cpu + 1 || !recording)
		return;
	discount_waiter(st);
	add_to_waiters(cpu, 1);
	st->waits_on = cpu + 1;
}

static __always_inline bool has_waiters(struct cpu_state *c)
{
	return c->waiters + c->waiters_from_afar > 0;
}

#endif
