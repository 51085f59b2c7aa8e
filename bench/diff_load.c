/* load preempt RATE SECONDS | load lock HOLD_US SECONDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int begin[2];

static long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void *spin(void *none)
{
	pthread_setname_np(pthread_self(), "hog");
	while (!done)
		;
	return none;
}

/* Both on the last CPU, so that each tick takes it from the hog. */
static int preempt(double rate, long seconds)
{
	struct sched_param highest = { .sched_priority = 1 };
	long last = sysconf(_SC_NPROCESSORS_ONLN) - 1, ticks = rate * seconds, next;
	cpu_set_t cpu;
	pthread_t hog;

	CPU_ZERO(&cpu);
	CPU_SET(last, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu))
		return perror("sched_setaffinity"), 1;
	if (pthread_create(&hog, 0, spin, 0))
		return fputs("no thread\n", stderr), 1;
	pthread_setname_np(pthread_self(), "ticker");
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &highest))
		return fputs("no real-time class\n", stderr), 1;
	next = now_ns();
	for (long tick = 0; tick < ticks; tick++) {
		next += 1e9 / rate;
		struct timespec until = { next / 1000000000L, next % 1000000000L };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
	}
	done = 1;
	return pthread_join(hog, 0);
}

static void *wait_for_lock(void *none)
{
	char turn;
	pthread_setname_np(pthread_self(), "waiter");
	while (read(begin[0], &turn, 1) == 1) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	return none;
}

static int hold(long hold_ns, long seconds)
{
	struct timespec pause = { 0, 500000 };
	pthread_t waiter;

	if (pipe(begin) || pthread_create(&waiter, 0, wait_for_lock, 0))
		return perror("lock"), 1;
	pthread_setname_np(pthread_self(), "holder");
	for (long turn = 0; turn < 900 * seconds; turn++) {
		pthread_mutex_lock(&lock);
		if (write(begin[1], "x", 1) != 1)
			return perror("write"), 1;
		for (long until = now_ns() + hold_ns; now_ns() < until;)
			;
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, 0);
	}
	close(begin[1]);
	return pthread_join(waiter, 0);
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	if (!strcmp(words[1], "preempt"))
		return preempt(atof(words[2]), atol(words[3]));
	return hold(atol(words[2]) * 1000, atol(words[3]));
}
