/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Markers: what this CPU is doing, between two hooks. Whoever asks for a reschedule is read off them.
 */
#ifndef SWTCH_MARKERS_H
#define SWTCH_MARKERS_H

/*
 * Waking, starting and moving a task happen one at a time and with interrupts off. So there is one
 * window, the last that was opened; an interrupt and a switch close it.
 */
static __always_inline void open_window(struct cpu_state *c, enum window window,
					struct task_struct *p, __u32 key, __u64 now)
{
	c->window = window;
	c->window_task = (__u64)p;
	c->window_key = key;
	c->window_ts = now;
}

static __always_inline void close_window(struct cpu_state *c)
{
	c->window = WINDOW_NONE;
}

static __always_inline bool is_window(struct cpu_state *c, enum window window,
				      struct task_struct *p)
{
	return c->window == window && c->window_task == (__u64)p;
}

/*
 * What may be going on around an interrupt: hard interrupts do not nest, and soft ones are only
 * ever interrupted by hard ones (__do_softirq runs when the last hard one is left, or in a task).
 * So each entry and each exit says the whole state, and one that was missed is made good by the
 * next, or by the next switch: see sched_switch.
 */
static __always_inline __u32 around_interrupt(struct cpu_state *c, __u32 interrupt)
{
	return interrupt == IN_SOFTIRQ ? 0 : c->interrupts & IN_SOFTIRQ;
}

/* The interrupt is marked before its start is written, and unmarked after its length was added: a
 * hard one that comes in between then leaves the start alone. */
static __always_inline void enter_interrupt(struct cpu_state *c, __u32 interrupt)
{
	__u32 around = around_interrupt(c, interrupt);

	c->interrupts = around | interrupt;
	barrier();
	if (!around)
		c->irq_start = bpf_ktime_get_ns();
	close_window(c);
}

static __always_inline void leave_interrupt(struct cpu_state *c, __u32 interrupt)
{
	__u32 around = around_interrupt(c, interrupt);

	/* Without its entry, whether missed or before the recording, its length is not known. */
	if ((c->interrupts & interrupt) && !around)
		c->irq_ns += bpf_ktime_get_ns() - c->irq_start;
	barrier();
	c->interrupts = around;
	close_window(c);
}

#endif
