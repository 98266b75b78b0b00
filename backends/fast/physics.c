/* Steps of MuJoCo's physics for many environments in one call. It gets everything by pointers, those of MuJoCo's
 * own functions included, so that it is built without MuJoCo and knows nothing of how its structures are laid out.
 * `physics.py` fills the structures in: the two files must agree on them.
 *
 * Environments may lie in memory that several processes have (`commons.c`). Then a process that has stepped its own
 * goes on with those that others have not begun, instead of waiting for the slowest. */

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef void (*simulate)(const void *model, void *data);
typedef void (*on_error)(const char *message);

/* Neighbouring numbers, copied to where they are wanted, between two limits. */
struct part {
	const double *from;
	double *to;
	int64_t count;
	double low, high;
	int64_t limited;
};

/* Neighbouring numbers that must all lie between two limits, which count as between if it is closed; or none of them,
 * if they must be outside. */
struct bound {
	const double *at;
	int64_t count;
	double low, high;
	int64_t closed, outside;
};

struct physics {
	simulate step, finish; /* mj_step; mj_rnePostConstraint or NULL */
	const void *model;
	on_error *user_error; /* where MuJoCo looks up what to do at an error */
	int64_t environments, substeps, controls, parts_before, parts_after, bounds;
	const double *actions;       /* [environments][controls] */
	void *const *data;           /* [environments] */
	double *const *control;      /* [environments] */
	const struct part *before;   /* [environments][parts_before] */
	const struct part *after;    /* [environments][parts_after] */
	const struct bound *healthy; /* [environments][bounds] */
	double *is_healthy;          /* [environments]: 1 or 0 */
	const double *resting;       /* [environments]: not 0 for those that are not stepped */
	int64_t current;             /* the environment that its own process has in use now, or had last */
	_Atomic int64_t failed;      /* the environment with an error of MuJoCo's, or -1 */
	char error[1024];
	/* In lines of their own, since several processes may write them. */
	char apart[128];
	_Atomic uint64_t untaken; /* the first of the environments not taken yet, and, above it, their end */
	char apart_too[120];
	_Atomic int64_t finished; /* how many environments were taken and are done with */
};

/* Numbers are rounded as the language has it, whatever the caller has set for its process, such as that tiny numbers
 * count as zero: which process steps an environment must not be seen. Returns what was set before. */
static uint64_t plain_arithmetic(void)
{
#if defined(__x86_64__)
	uint64_t before = __builtin_ia32_stmxcsr();
	__builtin_ia32_ldmxcsr(0x1f80);
	return before;
#elif defined(__aarch64__)
	uint64_t before;
	__asm__ volatile("mrs %0, fpcr" : "=r"(before));
	__asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
	return before;
#else
	return 0;
#endif
}

static void arithmetic_as(uint64_t before)
{
#if defined(__x86_64__)
	__builtin_ia32_ldmxcsr((unsigned)before);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
	(void)before;
#endif
}

static _Thread_local jmp_buf at_error;
static _Thread_local char words[sizeof((struct physics *)0)->error];

/* MuJoCo expects its handler not to return; without one it ends the process. */
static void fail(const char *message)
{
	strncpy(words, message, sizeof words - 1);
	longjmp(at_error, 1);
}

/* As numpy.clip: a number that is none stays what it is, and of two equal numbers the limit is taken. */
static double limited(double number, double low, double high)
{
	if (number != number)
		return number;
	number = number > low ? number : low;
	return number < high ? number : high;
}

static void copy(const struct part *parts, int64_t count)
{
	for (const struct part *part = parts; part < parts + count; part++) {
		if (part->limited)
			for (int64_t i = 0; i < part->count; i++)
				part->to[i] = limited(part->from[i], part->low, part->high);
		else
			for (int64_t i = 0; i < part->count; i++)
				part->to[i] = part->from[i];
	}
}

static bool kept(const struct bound *bounds, int64_t count)
{
	for (const struct bound *bound = bounds; bound < bounds + count; bound++)
		for (int64_t i = 0; i < bound->count; i++) {
			double x = bound->at[i];
			bool between = bound->closed ? bound->low <= x && x <= bound->high : bound->low < x && x < bound->high;
			if (between == (bound->outside != 0))
				return false;
		}
	return true;
}

/* Steps an environment, with the functions and the model of the process that does it. */
static bool advance(const struct physics *own, const struct physics *all, int64_t index)
{
	void *data = all->data[index];
	copy(all->before + index * all->parts_before, all->parts_before);
	for (int64_t i = 0; i < all->controls; i++)
		all->control[index][i] = all->actions[index * all->controls + i];
	for (int64_t i = 0; i < all->substeps; i++)
		own->step(own->model, data);
	if (own->finish)
		own->finish(own->model, data);
	copy(all->after + index * all->parts_after, all->parts_after);
	return kept(all->healthy + index * all->bounds, all->bounds);
}

/* Steps an environment that was taken, and says that it is done with. Returns false after an error of MuJoCo's. */
static bool finish(const struct physics *own, struct physics *all, int64_t index)
{
	volatile bool fine = true;
	if (all->resting[index] == 0) {
		if (setjmp(at_error) == 0) {
			all->is_healthy[index] = advance(own, all, index);
		} else {
			int64_t none = -1;
			if (atomic_compare_exchange_strong(&all->failed, &none, index))
				memcpy(all->error, words, sizeof words);
			fine = false;
		}
	}
	atomic_fetch_add_explicit(&all->finished, 1, memory_order_release);
	return fine;
}

static int64_t first_of(uint64_t untaken)
{
	return (uint32_t)untaken;
}

static int64_t end_of(uint64_t untaken)
{
	return untaken >> 32;
}

/* Both return -1 if there is none. Who owns them takes the first, others the last, so that they meet but once. */
static int64_t take_first(struct physics *all)
{
	uint64_t seen = atomic_load(&all->untaken);
	while (first_of(seen) < end_of(seen))
		if (atomic_compare_exchange_weak(&all->untaken, &seen, seen + 1))
			return first_of(seen);
	return -1;
}

static int64_t take_last(struct physics *all)
{
	uint64_t seen = atomic_load(&all->untaken);
	while (first_of(seen) < end_of(seen))
		if (atomic_compare_exchange_weak(&all->untaken, &seen, seen - (UINT64_C(1) << 32)))
			return end_of(seen) - 1;
	return -1;
}

/* No more of them can be taken; those not taken count as done. */
static void withdraw(struct physics *own)
{
	uint64_t left = atomic_exchange(&own->untaken, 0);
	if (first_of(left) < end_of(left))
		atomic_fetch_add(&own->finished, end_of(left) - first_of(left));
}

/* Waits a while, some 10 ms, until all that others have taken is done with; returns whether it is. */
static bool is_done(struct physics *own)
{
	for (int look = 0; look < 20000; look++) {
		if (atomic_load_explicit(&own->finished, memory_order_acquire) == own->environments)
			return true;
		if (look > 200)
			sched_yield();
	}
	return false;
}

/* Lets all that have this memory take its environments, for one step. */
void vebench_physics_offer(struct physics *own)
{
	atomic_store(&own->failed, -1);
	atomic_store(&own->finished, 0);
	atomic_store(&own->untaken, (uint64_t)own->environments << 32);
}

/* Steps what was offered, and what others have offered and not begun. Returns how many of its own environments are not
 * healthy then; -1 after an error of MuJoCo's with one of them; -2 if others still have some of them: then it is to be
 * called again. What to do at an error is set for the whole process meanwhile: the caller ensures that
 * nothing else sets it. */
int64_t vebench_physics(struct physics *own, struct physics *const *others, int64_t count)
{
	on_error theirs = *own->user_error;
	uint64_t arithmetic = plain_arithmetic();
	int64_t index;
	*own->user_error = fail;
	while ((index = take_first(own)) >= 0) {
		own->current = index;
		if (!finish(own, own, index))
			withdraw(own);
	}
	for (int64_t other = 0; other < count; other++)
		while ((index = take_last(others[other])) >= 0)
			finish(own, others[other], index);
	*own->user_error = theirs;
	arithmetic_as(arithmetic);
	if (!is_done(own))
		return -2;
	if (atomic_load(&own->failed) >= 0)
		return -1;
	int64_t unhealthy = 0;
	for (index = 0; index < own->environments; index++)
		unhealthy += own->resting[index] == 0 && own->is_healthy[index] == 0;
	return unhealthy;
}

/* Takes back what was offered. Returns whether no process has any of it any more; if not, call it again. */
int vebench_physics_withdraw(struct physics *own)
{
	withdraw(own);
	return is_done(own);
}
