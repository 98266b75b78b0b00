/* Threads that step the environments of one process. The caller puts environments in, whoever is awake takes what is
 * next, the caller among them, and the caller takes out those that are done with, in the order in which they were.
 *
 * A thread that finds nothing to do polls for as long as that has paid lately, and then sleeps in the kernel: the CPU
 * may be wanted by others, such as a learner. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

enum { LINE = 128, LEAST_POLL_NS = 2000, NAP_NS = 50000, AGAIN_NS = 20000000, CROWDED_NS = 50000000 };

/* Does what is due for the environments from `first` up to `last`. */
typedef void (*work)(void *all, int64_t first, int64_t last);

/* Environments from one number up to another: the first in the lower half, the end in the upper. An end is never 0. */
typedef uint64_t range;

/* For how long a thread polls, by its last waits. */
struct patience {
	int64_t poll_ns;
	int64_t switches, switched_ns; /* how often it had lost its CPU to others when it last looked, and when it saw that */
	int64_t crowded_ns;            /* until when it does not poll */
};

struct pool {
	work work;
	void *all;
	int64_t environments, chunk, helps, most_poll_ns;
	int64_t threads;
	uint64_t places; /* in each ring: a power of two */
	_Atomic range *asked, *done;
	int64_t asked_for, received; /* environments; the caller's own account */
	uint64_t read;               /* places of `done` */
	struct patience caller;
	pid_t owner;
	pthread_t *handles;
	/* In lines of their own, since several threads write them. */
	_Alignas(LINE) _Atomic uint64_t taken; /* places of `asked` */
	_Alignas(LINE) _Atomic uint64_t put;
	_Alignas(LINE) _Atomic uint64_t written; /* places of `done` that are somebody's */
	_Alignas(LINE) _Atomic uint32_t finished; /* such that were written: what the caller sleeps on */
	_Atomic uint32_t wanted;                  /* at which it is to be woken */
	_Atomic bool waits;
	_Alignas(LINE) _Atomic uint32_t bell; /* what the others sleep on */
	_Atomic uint32_t asleep;
	_Atomic bool stop;
};

/* Sleeps while the word has this value, until woken, for so long if that is not negative; or less, for no reason. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t most_ns)
{
#ifdef __linux__
	struct timespec most = {most_ns / 1000000000, most_ns % 1000000000};
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most_ns < 0 ? NULL : &most, NULL, 0);
#else
	struct timespec nap = {0, NAP_NS};
	if (atomic_load(word) == value)
		nanosleep(&nap, NULL);
#endif
}

static void wake(_Atomic uint32_t *word, int64_t sleepers)
{
#ifdef __linux__
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, (int)sleepers, NULL, NULL, 0);
#endif
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void pause_a_moment(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A thread that others take the CPU from, again and again, does not poll: it would only lose it in the middle of work. */
static int64_t poll_ns(struct patience *patience, int64_t time)
{
#ifdef __linux__
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	if (usage.ru_nivcsw != patience->switches) {
		patience->switches = usage.ru_nivcsw;
		if (time - patience->switched_ns < AGAIN_NS)
			patience->crowded_ns = time + CROWDED_NS;
		patience->switched_ns = time;
	}
#endif
	return time < patience->crowded_ns ? 0 : patience->poll_ns;
}

/* After a wait of so long: one that was in reach pays, any other is for nothing. */
static void adapt(struct patience *patience, int64_t most_ns, int64_t waited_ns)
{
	int64_t longer = waited_ns < most_ns ? 2 * patience->poll_ns : LEAST_POLL_NS;
	patience->poll_ns = longer < most_ns ? longer : most_ns;
}

static bool take(struct pool *pool, range *taken)
{
	uint64_t place = atomic_load(&pool->taken);
	while (place < atomic_load(&pool->put)) {
		*taken = atomic_load_explicit(&pool->asked[place & (pool->places - 1)], memory_order_relaxed);
		if (atomic_compare_exchange_weak(&pool->taken, &place, place + 1))
			return true;
	}
	return false;
}

static void finish(struct pool *pool, range one)
{
	pool->work(pool->all, (uint32_t)one, one >> 32);
	uint64_t place = atomic_fetch_add(&pool->written, 1) & (pool->places - 1);
	atomic_store_explicit(&pool->done[place], one, memory_order_release);
	uint32_t finished = atomic_fetch_add(&pool->finished, 1) + 1;
	if (atomic_load(&pool->waits) && (int32_t)(finished - atomic_load(&pool->wanted)) >= 0)
		wake(&pool->finished, 1);
}

static bool is_called(struct pool *pool)
{
	return atomic_load(&pool->taken) < atomic_load(&pool->put) || atomic_load(&pool->stop);
}

static void *run(void *argument)
{
	struct pool *pool = argument;
	struct patience patience = {.poll_ns = pool->most_poll_ns};
	while (!atomic_load(&pool->stop)) {
		range one;
		while (take(pool, &one))
			finish(pool, one);
		int64_t start = now(), time = start, polls_ns = poll_ns(&patience, start);
		while (!is_called(pool) && (time = now()) - start < polls_ns)
			pause_a_moment();
		while (!is_called(pool)) {
			uint32_t rung = atomic_load(&pool->bell);
			atomic_fetch_add(&pool->asleep, 1);
			if (!is_called(pool))
				sleep_on(&pool->bell, rung, -1);
			atomic_fetch_sub(&pool->asleep, 1);
			time = now();
		}
		adapt(&patience, pool->most_poll_ns, time - start);
	}
	return NULL;
}

static void ask(struct pool *pool, uint64_t place, int64_t first, int64_t last)
{
	range one = (range)last << 32 | (range)first;
	atomic_store_explicit(&pool->asked[place & (pool->places - 1)], one, memory_order_relaxed);
}

static void show(struct pool *pool, uint64_t put, int64_t environments, int64_t sleepers)
{
	pool->asked_for += environments;
	atomic_store(&pool->put, put);
	atomic_fetch_add(&pool->bell, 1);
	int64_t asleep = atomic_load(&pool->asleep);
	if (asleep > 0 && sleepers > 0)
		wake(&pool->bell, asleep < sleepers ? asleep : sleepers);
}

/* Puts in all environments, none of which may be in already, in ranges of `chunk`. The caller takes one of these. */
void vebench_pool_put_all(struct pool *pool)
{
	uint64_t place = atomic_load(&pool->put), before = place;
	for (int64_t first = 0; first < pool->environments; first += pool->chunk) {
		int64_t last = first + pool->chunk;
		ask(pool, place++, first, last < pool->environments ? last : pool->environments);
	}
	show(pool, place, pool->environments, (int64_t)(place - before) - pool->helps);
}

/* Puts in `count` environments, none of which may be in already. */
void vebench_pool_put(struct pool *pool, const int64_t *environments, int64_t count)
{
	uint64_t place = atomic_load(&pool->put);
	for (int64_t i = 0; i < count; i++)
		ask(pool, place++, environments[i], environments[i] + 1);
	show(pool, place, count, count);
}

/* Takes out what is done with, in that order: into `environments`, unless that is NULL. Returns how many that are. */
static int64_t receive(struct pool *pool, int64_t *environments)
{
	int64_t count = 0;
	range one;
	while ((one = atomic_load_explicit(&pool->done[pool->read & (pool->places - 1)], memory_order_acquire)) != 0) {
		atomic_store_explicit(&pool->done[pool->read++ & (pool->places - 1)], 0, memory_order_relaxed);
		for (int64_t index = (uint32_t)one; index < (int64_t)(one >> 32); index++, count++)
			if (environments)
				environments[count] = index;
	}
	pool->received += count;
	return count;
}

/* Sleeps until `wanted` ranges are finished, or for so long. */
static void await(struct pool *pool, uint32_t wanted, int64_t most_ns)
{
	atomic_store(&pool->wanted, wanted);
	atomic_store(&pool->waits, true);
	uint32_t finished = atomic_load(&pool->finished);
	if ((int32_t)(finished - wanted) < 0)
		sleep_on(&pool->finished, finished, most_ns);
	atomic_store(&pool->waits, false);
}

/* Takes out `least` environments or more, for which the caller steps others unless it is not to, or as many as there are
 * after `most_ns`, if that is not negative. Returns how many were taken out, into `environments` unless that is NULL. */
int64_t vebench_pool_get(struct pool *pool, int64_t least, int64_t *environments, int64_t most_ns)
{
	int64_t start = most_ns < 0 ? 0 : now(), count = 0;
	range one;
	for (;;) {
		count += receive(pool, environments ? environments + count : NULL);
		int64_t left = most_ns < 0 ? -1 : most_ns - (now() - start);
		if (count >= least || (most_ns >= 0 && left <= 0))
			return count;
		if (pool->helps && take(pool, &one)) {
			finish(pool, one);
			continue;
		}
		/* Where environments are asked for singly, so many ranges are missing; else all that were asked for. */
		uint32_t missing = pool->chunk == 1 ? (uint32_t)(least - count) : 1;
		uint32_t wanted = (uint32_t)pool->read + missing;
		int64_t begin = now(), time = begin, polls_ns = poll_ns(&pool->caller, begin);
		bool here = false;
		while (!(here = (int32_t)(atomic_load(&pool->finished) - wanted) >= 0) && time - begin < polls_ns) {
			pause_a_moment();
			time = now();
		}
		if (!here)
			await(pool, wanted, left);
		else if (time == begin)
			sched_yield(); /* a thread lost its CPU between its place in the ring and what it writes there */
		adapt(&pool->caller, pool->most_poll_ns, now() - begin);
	}
}

/* How many environments are in. */
int64_t vebench_pool_in(const struct pool *pool)
{
	return pool->asked_for - pool->received;
}

/* Ends the threads and frees the pool. In a process that was forked it has no threads, and nothing is done. */
void vebench_pool_stop(struct pool *pool)
{
	if (pool->owner != getpid())
		return;
	atomic_store(&pool->stop, true);
	atomic_fetch_add(&pool->bell, 1);
	wake(&pool->bell, INT32_MAX);
	for (int64_t i = 0; i < pool->threads; i++)
		pthread_join(pool->handles[i], NULL);
	free((void *)pool->asked);
	free((void *)pool->done);
	free(pool->handles);
	free(pool);
}

static bool start_thread(struct pool *pool, const int32_t *cpu)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
#ifdef __linux__
	if (cpu) {
		cpu_set_t only;
		CPU_ZERO(&only);
		CPU_SET(*cpu, &only);
		pthread_attr_setaffinity_np(&attributes, sizeof only, &only);
	}
#endif
	bool started = pthread_create(pool->handles + pool->threads, &attributes, run, pool) == 0;
	pthread_attr_destroy(&attributes);
	pool->threads += started;
	return started;
}

/* Returns a pool with so many threads beside the caller, who steps environments itself if it `helps`. Threads keep to
 * the `cpus`, one for each, unless that is NULL. A range of so many environments is stepped in one call, a `chunk`,
 * unless they are asked for singly. Returns NULL if there is no memory for it or no thread. */
struct pool *vebench_pool_start(work work, void *all, int64_t environments, int64_t chunk, int64_t threads,
				int64_t helps, int64_t most_poll_ns, const int32_t *cpus)
{
	struct pool *pool = aligned_alloc(LINE, (sizeof *pool + LINE - 1) / LINE * LINE);
	if (!pool)
		return NULL;
	*pool = (struct pool){.work = work, .all = all, .environments = environments, .chunk = chunk, .helps = helps,
			      .most_poll_ns = most_poll_ns, .caller = {.poll_ns = most_poll_ns}, .owner = getpid(), .places = 1};
	while (pool->places < (uint64_t)environments)
		pool->places *= 2;
	pool->asked = calloc(pool->places, sizeof *pool->asked);
	pool->done = calloc(pool->places, sizeof *pool->done);
	pool->handles = calloc((size_t)threads + 1, sizeof *pool->handles);
	/* Signals are for the threads that run Python. */
	sigset_t all_signals, before;
	sigfillset(&all_signals);
	pthread_sigmask(SIG_SETMASK, &all_signals, &before);
	bool fine = pool->asked && pool->done && pool->handles;
	for (int64_t i = 0; fine && i < threads; i++)
		fine = start_thread(pool, cpus ? cpus + i : NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (fine)
		return pool;
	vebench_pool_stop(pool);
	return NULL;
}
