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
	__u64 now = around ? 0 : bpf_ktime_get_ns();

	/* Without its entry, whether missed or before the recording, its length is not known. What a task does
	 * in its own call is its own work. */
	if ((c->interrupts & interrupt) && !around && !(interrupt == IN_SOFTIRQ && c->sends))
		c->irq_ns += now - c->irq_start;
	if (interrupt != IN_SOFTIRQ && !around)
		c->hard_left = now;
	barrier();
	c->interrupts = around;
	close_window(c);
}

/* The system call that a task is in, by its registers; NO_SYSCALL where it is in none. */
static __always_inline __s32 call_of(struct task_struct *p)
{
	struct pt_regs *regs;

	if (p->flags & (PF_KTHREAD | PF_IO_WORKER))
		return NO_SYSCALL;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_x86)
	return p->thread_info.status & TS_COMPAT ? NO_SYSCALL : (__s32)regs->orig_ax;
#else
	return regs->pstate & PSR_MODE32_BIT ? NO_SYSCALL : regs->syscallno;
#endif
}

/* What a hard interrupt leaves to do is done within this time after it. */
#define AFTER_INTERRUPT_NS 2000

#define NET_RX_SOFTIRQ 3 /* include/linux/interrupt.h */

/*
 * A task that sends over the loopback device, or over another one of this machine alone, receives it itself
 * where its call lets soft interrupts in (local_bh_enable): whoever waits for that is woken by it, and not
 * by an interrupt. Inferred, because a packet that a card has brought may be received there, too.
 */
static __always_inline void note_sender(struct cpu_state *c, __u64 *arguments)
{
	struct task_struct *current;

	c->sends = 0;
	if ((__u32)arguments[0] != NET_RX_SOFTIRQ ||
	    c->irq_start - c->hard_left < AFTER_INTERRUPT_NS)
		return;
	current = bpf_get_current_task_btf();
	c->sends = current->pid && call_of(current) >= 0;
}

#endif
