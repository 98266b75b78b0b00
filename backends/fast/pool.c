/* Threads that step the environments of one process. The caller puts ranges of environments into a ring. Any thread
 * that is awake takes the next range, the caller included. The caller receives ranges in the order of their finish.
 *
 * An idle thread polls for a time that has paid in its last waits. Then it sleeps in the kernel, since other programs,
 * such as a learner, may need the CPU. */

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

enum {
	LINE = 128,            /* bytes that processors fetch together */
	LEAST_POLL_NS = 2000,
	NAP_NS = 50000,        /* the longest sleep on systems without futexes */
	AGAIN_NS = 20000000,   /* a thread that loses its CPU twice within this time is crowded */
	CROWDED_NS = 50000000, /* a crowded thread does not poll for this time */
};

/* Does the due work for the environments from `first` up to `last`. */
typedef void (*work)(void *context, int64_t first, int64_t last);

/* Environments from `first` up to `last`. In empty places only, `last` is 0. It is read and written as one word. */
typedef struct {
	uint32_t first, last;
} range;

/* The polling time of a thread, which depends on its last waits. */
struct patience {
	int64_t poll_ns;
	int64_t switches, switched_ns; /* the last known count of lost CPUs, and the time when it last grew */
	int64_t crowded_until_ns;
};

struct pool {
	work work;
	void *context;
	int64_t environments;
	int64_t chunk;        /* environments in a range */
	int64_t caller_steps; /* whether the caller steps while it waits */
	int64_t most_poll_ns;
	int64_t threads;
	uint64_t places; /* in each ring: a power of two */
	_Atomic range *asked, *done;
	int64_t asked_for, received; /* environments, counted by the caller */
	uint64_t read;               /* places of `done` that the caller has read */
	struct patience caller;
	pid_t owner;
	pthread_t *handles;
	/* Several threads write these words, so each has a line of its own. */
	_Alignas(LINE) _Atomic uint64_t taken;    /* places of `asked` */
	_Alignas(LINE) _Atomic uint64_t put;      /* places of `asked` */
	_Alignas(LINE) _Atomic uint64_t claimed;  /* places of `done` */
	_Alignas(LINE) _Atomic uint32_t finished; /* places of `done` that are written: the caller sleeps on this word */
	_Atomic uint32_t wanted;                  /* wake the caller at this count */
	_Atomic bool caller_sleeps;
	_Alignas(LINE) _Atomic uint32_t bell; /* threads sleep on this word */
	_Atomic uint32_t asleep;              /* the number of sleeping threads */
	_Atomic bool stop;
};

/* Count this up, and _INTERFACE in classes.py, when a function of this library changes. */
int vebench_interface(void)
{
	return 14;
}

/* Sleeps while the word has this value, at most for `most_ns` unless that is negative. Wake-ups may be spurious. */
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

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Returns how long this thread may poll. A thread that loses its CPU again and again must not poll, because it would
 * use up its time and then lose the CPU in the middle of work. */
static int64_t poll_ns(struct patience *patience, int64_t time)
{
#ifdef __linux__
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	if (usage.ru_nivcsw != patience->switches) {
		patience->switches = usage.ru_nivcsw;
		if (time - patience->switched_ns < AGAIN_NS)
			patience->crowded_until_ns = time + CROWDED_NS;
		patience->switched_ns = time;
	}
#endif
	return time < patience->crowded_until_ns ? 0 : patience->poll_ns;
}

/* Adapts to a wait. Poll longer next time if the longest polling would have covered the wait, otherwise the least. */
static void adapt(struct patience *patience, int64_t most_ns, int64_t waited_ns)
{
	int64_t next = waited_ns < most_ns ? 2 * patience->poll_ns : LEAST_POLL_NS;
	patience->poll_ns = next < most_ns ? next : most_ns;
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

/* Works on a range, and wakes the caller if it waits for this range. */
static void finish(struct pool *pool, range part)
{
	pool->work(pool->context, part.first, part.last);
	uint64_t place = atomic_fetch_add(&pool->claimed, 1) & (pool->places - 1);
	atomic_store_explicit(&pool->done[place], part, memory_order_release);
	uint32_t finished = atomic_fetch_add(&pool->finished, 1) + 1;
	if (atomic_load(&pool->caller_sleeps) && (int32_t)(finished - atomic_load(&pool->wanted)) >= 0)
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
		range part;
		while (take(pool, &part))
			finish(pool, part);
		int64_t start = now(), time = start, polls_ns = poll_ns(&patience, start);
		while (!is_called(pool) && (time = now()) - start < polls_ns)
			relax();
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

static void ask(struct pool *pool, uint64_t place, range part)
{
	atomic_store_explicit(&pool->asked[place & (pool->places - 1)], part, memory_order_relaxed);
}

/* Lets threads see the ranges before `put`, and wakes at most `helpers` threads. */
static void show(struct pool *pool, uint64_t put, int64_t environments, int64_t helpers)
{
	pool->asked_for += environments;
	atomic_store(&pool->put, put);
	atomic_fetch_add(&pool->bell, 1);
	int64_t asleep = atomic_load(&pool->asleep);
	if (asleep > 0 && helpers > 0)
		wake(&pool->bell, asleep < helpers ? asleep : helpers);
}

/* Puts all environments into the pool, in ranges of `chunk`. None may be in it already. */
void vebench_pool_put_all(struct pool *pool)
{
	uint64_t before = atomic_load(&pool->put), place = before;
	for (int64_t first = 0; first < pool->environments; first += pool->chunk) {
		int64_t last = first + pool->chunk < pool->environments ? first + pool->chunk : pool->environments;
		ask(pool, place++, (range){(uint32_t)first, (uint32_t)last});
	}
	show(pool, place, pool->environments, (int64_t)(place - before) - pool->caller_steps);
}

/* Puts `count` environments into the pool. None may be in it already. */
void vebench_pool_put(struct pool *pool, const int64_t *environments, int64_t count)
{
	uint64_t place = atomic_load(&pool->put);
	for (int64_t i = 0; i < count; i++)
		ask(pool, place++, (range){(uint32_t)environments[i], (uint32_t)environments[i] + 1});
	show(pool, place, count, count);
}

/* Receives environments in the order of their finish, into `environments` unless that is NULL. Returns how many. */
static int64_t receive(struct pool *pool, int64_t *environments)
{
	const range empty = {0, 0};
	int64_t count = 0;
	for (;; pool->read++) {
		_Atomic range *place = &pool->done[pool->read & (pool->places - 1)];
		range part = atomic_load_explicit(place, memory_order_acquire);
		if (part.last == 0)
			break;
		atomic_store_explicit(place, empty, memory_order_relaxed);
		for (int64_t index = part.first; index < part.last; index++, count++)
			if (environments)
				environments[count] = index;
	}
	pool->received += count;
	return count;
}

/* Polls, then sleeps, until `wanted` ranges are finished. Sleeps at most for `most_ns` unless that is negative. */
static void await(struct pool *pool, uint32_t wanted, int64_t most_ns)
{
	int64_t begin = now(), time = begin, polls_ns = poll_ns(&pool->caller, begin);
	bool here;
	while (!(here = (int32_t)(atomic_load(&pool->finished) - wanted) >= 0) && time - begin < polls_ns) {
		relax();
		time = now();
	}
	if (!here) {
		atomic_store(&pool->wanted, wanted);
		atomic_store(&pool->caller_sleeps, true);
		uint32_t finished = atomic_load(&pool->finished);
		if ((int32_t)(finished - wanted) < 0)
			sleep_on(&pool->finished, finished, most_ns);
		atomic_store(&pool->caller_sleeps, false);
	} else if (time == begin) {
		sched_yield(); /* a thread has lost its CPU between claiming its place of `done` and writing there */
	}
	adapt(&pool->caller, pool->most_poll_ns, now() - begin);
}

/* Receives `least` environments or more, into `environments` unless that is NULL. Returns how many, which may be fewer
 * after `most_ns` unless that is negative. */
int64_t vebench_pool_get(struct pool *pool, int64_t least, int64_t *environments, int64_t most_ns)
{
	int64_t start = most_ns < 0 ? 0 : now(), count = 0;
	range part;
	for (;;) {
		count += receive(pool, environments ? environments + count : NULL);
		int64_t left = most_ns < 0 ? -1 : most_ns - (now() - start);
		if (count >= least || (most_ns >= 0 && left <= 0))
			return count;
		if (pool->caller_steps && take(pool, &part)) {
			finish(pool, part);
			continue;
		}
		/* Ranges of single environments can be counted in advance. With larger ranges, wait for the next. */
		uint32_t missing = pool->chunk == 1 ? (uint32_t)(least - count) : 1;
		await(pool, (uint32_t)pool->read + missing, left);
	}
}

/* Returns how many environments are in the pool. */
int64_t vebench_pool_in(const struct pool *pool)
{
	return pool->asked_for - pool->received;
}

/* Ends the threads and frees the pool. Does nothing in a forked process, which does not have the threads. */
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

/* Returns a pool with `threads` threads and the caller, or NULL if memory or threads are lacking. Each thread runs
 * on one of the `cpus`, unless that is NULL. */
struct pool *vebench_pool_start(work work, void *context, int64_t environments, int64_t chunk, int64_t threads,
				int64_t caller_steps, int64_t most_poll_ns, const int32_t *cpus)
{
	struct pool *pool = aligned_alloc(LINE, (sizeof *pool + LINE - 1) / LINE * LINE);
	if (!pool)
		return NULL;
	*pool = (struct pool){
		.work = work,
		.context = context,
		.environments = environments,
		.chunk = chunk,
		.caller_steps = caller_steps,
		.most_poll_ns = most_poll_ns,
		.caller = {.poll_ns = most_poll_ns},
		.owner = getpid(),
		.places = 1,
	};
	while (pool->places < (uint64_t)environments)
		pool->places *= 2;
	pool->asked = calloc(pool->places, sizeof *pool->asked);
	pool->done = calloc(pool->places, sizeof *pool->done);
	pool->handles = calloc((size_t)threads + 1, sizeof *pool->handles);
	/* Block all signals in the new threads: only threads that run Python handle them. */
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
