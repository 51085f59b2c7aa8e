/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Publishes which request a thread works on, for whoever looks at the process from outside: `swtch
 * record --span otel`, OpenTelemetry's profiler and others (OTEP 4947, thread context).
 *
 *	struct swtch_context context;
 *
 *	swtch_context_set(&context, trace_id, span_id);
 *	struct swtch_context *outer = swtch_context_attach(&context);
 *	serve(request);
 *	swtch_context_attach(outer);
 *
 * A request within another one needs a context of its own. Whatever leaves the block, an exception
 * of C++ too, has to attach the outer one: readers look at this memory until then.
 *
 * This file is all that is needed: nothing is linked or started, no system call is made, and to
 * attach takes two stores. A reader stops the thread, or reads when it leaves its CPU, so it is
 * enough that the compiler keeps the order of the stores.
 *
 * Readers find the variable by its name among the dynamic symbols. A program has it there if it is
 * linked with -Wl,--export-dynamic-symbol=otel_thread_ctx_v1 (or -rdynamic); a library has it. On
 * x86-64, compile a library with -mtls-dialect=gnu2 (GCC, Clang 19), as OTEP 4947 asks; swtch reads
 * either way.
 */
#ifndef SWTCH_CONTEXT_H
#define SWTCH_CONTEXT_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* OTEP 4947, "Thread-Local Context Record". It must stay where it is while it is attached. */
struct swtch_context {
	uint8_t trace_id[16]; /* as W3C's Trace Context writes it; all zero: none */
	uint8_t span_id[8];
	uint8_t valid; /* 1: readers may take it */
	uint8_t reserved;
	uint16_t attributes_size; /* of what would follow; here there is nothing */
};

/* Weak, so that each file that includes this may define it, and the process has it once. */
__attribute__((weak, visibility("default"))) __thread struct swtch_context *otel_thread_ctx_v1;

/* Publishes this context, or none (0), and returns the one before. */
static inline struct swtch_context *swtch_context_attach(struct swtch_context *context)
{
	struct swtch_context *before = otel_thread_ctx_v1;

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(struct swtch_context *volatile *)&otel_thread_ctx_v1 = context;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return before;
}

/* Gives a context its ids. It may be attached meanwhile: readers take it before or after, never halfway. */
static inline void swtch_context_set(struct swtch_context *context, const uint8_t trace_id[16],
				     const uint8_t span_id[8])
{
	*(volatile uint8_t *)&context->valid = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(context->trace_id, trace_id, sizeof(context->trace_id));
	memcpy(context->span_id, span_id, sizeof(context->span_id));
	context->reserved = 0;
	context->attributes_size = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile uint8_t *)&context->valid = 1;
}

#ifdef __cplusplus
}
#endif

#endif
