// SPDX-License-Identifier: Apache-2.0
/*
 * Small programs of which it is known, by their construction, where their threads lose time. Each mode is one:
 *
 *     causes MODE [SECONDS [advised]]
 *
 * With a third word it follows the advice that its row gets, where it can (`advice.py`).
 *
 * At its end a program prints what it knows of itself from its own counters and from the kernel's
 * (/proc/self/task/TID/schedstat: time on a CPU, and time in a run queue), so that the truth of a row of the corpus
 * does not come from swtch. With RENAMED=1 its threads call themselves by names that say nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds = 1.0, begun;
static int is_advised;
static atomic_long rounds, timeouts;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int is_over(void)
{
	return now() - begun > seconds;
}

static void work_us(double us)
{
	for (double end = now() + us / 1e6; now() < end;)
		;
}

static void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void must(int is_well, const char *what)
{
	if (is_well)
		return;
	fprintf(stderr, "causes: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static void set_fifo(int prio)
{
	struct sched_param param = { .sched_priority = prio };

	must(!sched_setscheduler(0, SCHED_FIFO, &param), "SCHED_FIFO");
}

static atomic_long ran_ns, queued_ns;

/* Adds what the kernel says of the calling thread: its time on a CPU and in run queues. */
static void add_schedstat(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	long ran, queued;

	must(file && fscanf(file, "%ld %ld", &ran, &queued) == 2, "/proc/thread-self/schedstat");
	fclose(file);
	ran_ns += ran;
	queued_ns += queued;
}

struct thread {
	pthread_t id;
	void (*body)(int);
	int number;
	const char *name;
};

static void *run_thread(void *argument)
{
	struct thread *self = argument;
	char name[16];

	snprintf(name, sizeof(name), "%s-%d", getenv("RENAMED") ? "x" : self->name, self->number);
	prctl(PR_SET_NAME, name);
	self->body(self->number);
	add_schedstat();
	return NULL;
}

/* Runs so many threads to their end. */
static void with_threads(int count, const char *name, void (*body)(int))
{
	struct thread threads[64];

	for (int i = 0; i < count; i++) {
		threads[i] = (struct thread){ .body = body, .number = i, .name = name };
		must(!pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), "pthread_create");
	}
	for (int i = 0; i < count; i++)
		pthread_join(threads[i].id, NULL);
}

/* Nobody but the program itself has work, and it has a CPU. */
static void compute(int number)
{
	(void)number;
	while (!is_over())
		work_us(1000), rounds++;
}

/* Asleep nearly always. */
static void ticks(int number)
{
	(void)number;
	while (!is_over())
		sleep_us(2000), work_us(150), rounds++;
}

/* Looks again and again whether something has happened. */
static void polls(int number)
{
	(void)number;
	while (!is_over())
		sleep_us(200), rounds++;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER, reply = PTHREAD_COND_INITIALIZER;

/* One lock, which its holder keeps while it sleeps; as advised, it lets go of it before. */
static void holds_lock_asleep(int number)
{
	(void)number;
	while (!is_over()) {
		pthread_mutex_lock(&lock);
		if (is_advised)
			pthread_mutex_unlock(&lock);
		sleep_us(1000);
		if (!is_advised)
			pthread_mutex_unlock(&lock);
		rounds++;
		sleep_us(10);
	}
}

/* The same with a file that has to be on the disk. */
static void holds_lock_in_fsync(int number)
{
	int file = open("causes.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	(void)number;
	must(file >= 0, "causes.tmp");
	while (!is_over()) {
		pthread_mutex_lock(&lock);
		must(pwrite(file, "x", 1, rounds % 4096) == 1 && !fsync(file), "fsync");
		pthread_mutex_unlock(&lock);
		rounds++;
		sleep_us(10);
	}
	close(file);
}

static pthread_barrier_t barrier;

/* Each time another one comes last, because it has most to do; as advised, all have the same. */
static void meets(int number)
{
	for (int i = 0; i < (int)(seconds * 400); i++) {
		if (is_advised || number == i % 4)
			sleep_us(is_advised ? 500 : 2000);
		pthread_barrier_wait(&barrier);
		rounds++;
	}
}

static int jobs;

/* A pool: the first thread hands out a job now and then, the others wait for one. */
static void pool(int number)
{
	pthread_mutex_lock(&lock);
	while (number == 0 && !is_over()) {
		pthread_mutex_unlock(&lock);
		sleep_us(2000);
		pthread_mutex_lock(&lock);
		jobs++;
		pthread_cond_signal(&condition);
	}
	while (number > 0 && !is_over()) {
		while (jobs == 0 && !is_over())
			pthread_cond_wait(&condition, &lock);
		jobs -= jobs > 0;
		rounds++;
	}
	jobs = 1 << 20;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&lock);
}

/* Waits with a limit that nobody ends earlier. */
static void timed_waits(int number)
{
	struct timespec end;

	(void)number;
	pthread_mutex_lock(&other_lock);
	while (!is_over()) {
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_nsec += 2000000;
		end.tv_sec += end.tv_nsec / 1000000000;
		end.tv_nsec %= 1000000000;
		timeouts += pthread_cond_timedwait(&reply, &other_lock, &end) == ETIMEDOUT;
	}
	pthread_mutex_unlock(&other_lock);
}

static int tokens[2], answers[2];

/* Whoever has the one token of the pipe may work; as advised, there are three. */
static void takes_token(int number)
{
	char token;

	(void)number;
	while (!is_over()) {
		must(read(tokens[0], &token, 1) == 1, "read");
		sleep_us(1000);
		must(write(tokens[1], &token, 1) == 1, "write");
		rounds++;
		sleep_us(10);
	}
}

/* Two threads hand one byte to and fro. */
static void pingpong(int number)
{
	int *from = number ? tokens : answers, *to = number ? answers : tokens;
	char byte = 1;

	if (number == 0)
		must(write(to[1], &byte, 1) == 1, "write");
	while (read(from[0], &byte, 1) == 1 && byte) {
		byte = !is_over();
		rounds++;
		must(write(to[1], &byte, 1) == 1, "write");
	}
	byte = 0;
	must(write(to[1], &byte, 1) == 1, "write");
}

static atomic_int turn;

/* Two threads on one CPU wait for their turn by giving the CPU away. */
static void yields(int number)
{
	pin(0);
	while (!is_over()) {
		while (turn != number && !is_over())
			sched_yield();
		work_us(20);
		turn = !number;
		rounds++;
	}
}

/* Two threads wait by sched_yield until a third has done much; as advised, they block. */
static void waits_by_yield(int number)
{
	while (!is_over()) {
		if (number == 0) {
			for (volatile int i = 0; i < 100000; i++)
				;
			rounds++;
		} else if (is_advised) {
			sleep_us(10000);
		} else {
			sched_yield();
		}
	}
}

static char *file_to_read = "causes.data";
#define FILE_BYTES (64L << 20)

static void make_file(void)
{
	char *block = calloc(1, 1 << 20);
	int file = open(file_to_read, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	must(file >= 0 && block, file_to_read);
	for (long at = 0; at < FILE_BYTES; at += 1 << 20) {
		memset(block, (int)(at >> 20), 1 << 20);
		must(write(file, block, 1 << 20) == 1 << 20, "write");
	}
	must(!fsync(file), "fsync");
	close(file);
	free(block);
}

/* Reads from the disk, past the cache. */
static void reads(int number)
{
	int file = open(file_to_read, O_RDONLY | O_DIRECT | O_CLOEXEC);
	void *block = aligned_alloc(4096, 4096);
	unsigned int seed = number;

	must(file >= 0 && block, "O_DIRECT");
	while (!is_over()) {
		must(pread(file, block, 4096, rand_r(&seed) % (FILE_BYTES >> 12) << 12) == 4096, "pread");
		rounds++;
	}
	close(file);
}

/* Writes until it is on the disk; as advised, ten times before that. */
static void commits(int number)
{
	int file = open("causes.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	(void)number;
	must(file >= 0, "causes.tmp");
	while (!is_over()) {
		must(pwrite(file, "x", 1, rounds % 4096) == 1, "pwrite");
		rounds++;
		must((is_advised && rounds % 10) || !fsync(file), "fsync");
	}
	close(file);
}

/* Large writes into one file of memory, which lets one thread in at a time; as advised, each has a file. */
static void writes_one_file(int number)
{
	static char block[4 << 20];
	char name[64];
	int file;

	snprintf(name, sizeof(name), "/dev/shm/causes-%d.tmp", is_advised ? number : 0);
	file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	must(file >= 0, "/dev/shm");
	while (!is_over()) {
		must(pwrite(file, block, sizeof(block), 0) == sizeof(block), "pwrite");
		rounds++;
	}
	close(file);
	unlink(name);
}

/* Threads take memory and give it back, all the time; as advised, they keep it. */
static void maps(int number)
{
	char *block = MAP_FAILED;

	(void)number;
	while (!is_over()) {
		if (block == MAP_FAILED)
			block = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(block != MAP_FAILED, "mmap");
		for (long at = 0; at < 8 << 20; at += 4096)
			block[at] = 1;
		if (!is_advised && !munmap(block, 8 << 20))
			block = MAP_FAILED;
		rounds++;
	}
}

/* A server to which nobody speaks. */
static void serves_nobody(int number)
{
	struct epoll_event event;
	int queue = epoll_create1(EPOLL_CLOEXEC);

	(void)number;
	must(queue >= 0, "epoll_create1");
	while (!is_over())
		timeouts += epoll_wait(queue, &event, 1, 100) == 0;
	close(queue);
}

/*
 * The one with the highest priority waits for a lock whose holder gets no CPU, because of the one between; as advised,
 * the holder is lent its priority.
 */
static void inverts(int number)
{
	pin(0);
	set_fifo(number == 0 ? 50 : number == 1 ? 10 : 1);
	while (!is_over()) {
		double before = now();

		if (number == 2) { /* the lowest holds the lock for 1 ms of its own time */
			pthread_mutex_lock(&lock);
			work_us(1000);
			pthread_mutex_unlock(&lock);
			sleep_us(200); /* so that it has the lock when the next one wakes up */
		} else if (number == 1) {
			sleep_us(3000);
			work_us(15000);
		} else {
			sleep_us(3500);
			before = now();
			pthread_mutex_lock(&lock);
			timeouts += now() - before > 0.002; /* twice as long as the holder needs */
			pthread_mutex_unlock(&lock);
			rounds++;
		}
	}
}

static void forks(int number)
{
	(void)number;
	while (!is_over()) {
		pid_t child = fork();

		if (child == 0) {
			work_us(50000);
			_exit(0);
		}
		must(child > 0 && waitpid(child, NULL, 0) == child, "fork");
		rounds++;
	}
}

static int semaphores;

static void add_to_semaphore(int number)
{
	struct sembuf add = { .sem_op = number };

	must(!semop(semaphores, &add, 1), "semop");
}

/* A semaphore of System V, which its holder keeps while it sleeps. */
static void holds_semaphore(int number)
{
	(void)number;
	while (!is_over()) {
		add_to_semaphore(-1);
		sleep_us(1000);
		add_to_semaphore(1);
		rounds++;
		sleep_us(10);
	}
}

/* The lock of a file, which its holder keeps while it computes. */
static void holds_flock(int number)
{
	int file = open("causes.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	(void)number;
	must(file >= 0, "causes.tmp");
	while (!is_over()) {
		must(!flock(file, LOCK_EX), "flock");
		work_us(500);
		must(!flock(file, LOCK_UN), "flock");
		rounds++;
		sleep_us(10);
	}
	close(file);
}

/* A worker takes jobs from a queue, and sleeps in the middle of each, while more of them come. */
static void sleeps_at_work(int number)
{
	pthread_mutex_lock(&lock);
	while (number == 0 && !is_over()) {
		jobs += 4;
		pthread_cond_broadcast(&condition);
		pthread_mutex_unlock(&lock);
		sleep_us(50000);
		pthread_mutex_lock(&lock);
	}
	while (number > 0 && !is_over()) {
		while (jobs == 0 && !is_over())
			pthread_cond_wait(&condition, &lock);
		jobs--;
		pthread_mutex_unlock(&lock);
		sleep_us(20000);
		work_us(100);
		rounds++;
		pthread_mutex_lock(&lock);
	}
	jobs = 1 << 20;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&lock);
}

/* Two threads work in turns: each waits at a word of its own until the other is done. */
static void takes_turns(int number)
{
	static sem_t turns[2];

	if (number == 0)
		sem_init(&turns[0], 0, 1), sem_init(&turns[1], 0, 0), turn = 1;
	while (!turn)
		sleep_us(10);
	do {
		must(!sem_wait(&turns[number]), "sem_wait");
		work_us(2000);
		rounds++;
		must(!sem_post(&turns[!number]), "sem_post");
	} while (!is_over());
}

/* A real-time thread and an ordinary one on one CPU. */
static void crowded_by_own_real_time(int number)
{
	pin(0);
	if (number == 0)
		set_fifo(10);
	while (!is_over()) {
		work_us(8000), rounds++;
		if (number == 0)
			sleep_us(2000);
	}
}

static const struct mode {
	const char *name;
	int threads;
	void (*body)(int);
} modes[] = {
	{ "compute", 1, compute },	{ "crowd", 8, compute },
	{ "ticks", 1, ticks },		{ "polls", 1, polls },
	{ "lock", 6, holds_lock_asleep }, { "lock-fsync", 6, holds_lock_in_fsync },
	{ "barrier", 4, meets },	{ "pool", 5, pool },
	{ "timed", 3, timed_waits },	{ "tokens", 5, takes_token },
	{ "pingpong", 2, pingpong },	{ "yields", 2, yields },
	{ "reads", 2, reads },		{ "commits", 1, commits },
	{ "one-file", 6, writes_one_file }, { "maps", 6, maps },
	{ "idle", 1, serves_nobody },	{ "inversion", 3, inverts },
	{ "forks", 1, forks },		{ "semaphore", 5, holds_semaphore },
	{ "flock", 5, holds_flock },	{ "sleeps-at-work", 3, sleeps_at_work },
	{ "waits-by-yield", 3, waits_by_yield }, { "turns", 2, takes_turns },	{ "own-fifo", 2, crowded_by_own_real_time },
};

int main(int count, char **words)
{
	const struct mode *mode = NULL;

	for (size_t i = 0; count > 1 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(words[1], modes[i].name))
			mode = &modes[i];
	if (!mode) {
		fprintf(stderr, "usage: causes MODE [SECONDS [advised]]\n");
		return 2;
	}
	if (count > 2)
		seconds = atof(words[2]);
	is_advised = count > 3;
	if (is_advised) {
		pthread_mutexattr_t kind;

		pthread_mutexattr_init(&kind);
		pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
		pthread_mutex_init(&lock, &kind);
	}
	if (mode->body == holds_semaphore) {
		semaphores = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
		must(semaphores >= 0, "semget");
		add_to_semaphore(1);
	}
	must(!pipe2(tokens, O_CLOEXEC) && !pipe2(answers, O_CLOEXEC), "pipe2");
	if (mode->body == takes_token)
		must(write(tokens[1], "xxx", is_advised ? 3 : 1) > 0, "write");
	if (mode->body == reads)
		make_file();
	pthread_barrier_init(&barrier, NULL, mode->threads);
	begun = now();
	if (mode->threads == 1)
		mode->body(0);
	else
		with_threads(mode->threads, mode->name, mode->body);
	if (mode->body == holds_semaphore)
		semctl(semaphores, 0, IPC_RMID);
	add_schedstat();
	printf("truth ran %.4f queued %.4f rounds %ld timeouts %ld\n", ran_ns / 1e9, queued_ns / 1e9, (long)rounds,
	       (long)timeouts);
	return 0;
}
