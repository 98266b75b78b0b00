/* Steps of MuJoCo's physics. It gets everything by pointers, those of MuJoCo's own functions included, so that it is
 * built without MuJoCo and knows nothing of how its structures are laid out. `physics.py` fills the structures in: the two
 * files must agree on them. */

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR = 1024 }; /* the bytes of an error, the last of which is 0 */

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
	simulate step, finish; /* mj_step, mj_rnePostConstraint */
	const void *model;
	_Atomic on_error *user_error; /* where MuJoCo looks up what to do at an error */
	int64_t substeps, controls, parts_before, parts_after, bounds;
	int64_t limit;               /* of the steps of an episode */
	int64_t single;              /* whether actions are of float32, not of float64 */
	int64_t ends;                /* whether an episode ends that is not healthy */
	const void *actions;         /* [environments][controls] */
	void *const *data;           /* [environments] */
	double *const *control;      /* [environments] */
	const struct part *before;   /* [environments][parts_before] */
	const struct part *after;    /* [environments][parts_after] */
	const struct bound *healthy; /* [environments][bounds] */
	double *is_healthy;          /* [environments]: 1 or 0 */
	bool *terminated, *truncated;
	int64_t *ages; /* [environments]: steps of the episode; -1 if it begins with what is in the row already */
	char (*errors)[ERROR];  /* [environments]: MuJoCo's words, until `physics.py` has raised them */
	_Atomic int64_t failed; /* whether there ever was an error */
};

/* Numbers are rounded as the language has it, whatever is set for this thread, such as that tiny numbers count as zero:
 * which thread steps an environment must not be seen. Returns what was set before. */
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
static _Thread_local char *words; /* where those of an error are wanted, while this thread steps */
static _Atomic on_error before_ours;

/* MuJoCo expects its handler not to return. Errors of other threads are for whom they were for before. */
static void fail(const char *message)
{
	on_error theirs = before_ours;
	if (words) {
		strncpy(words, message, ERROR - 1);
		longjmp(at_error, 1);
	}
	if (theirs) {
		theirs(message);
	} else {
		fprintf(stderr, "ERROR: %s\n", message); /* as MuJoCo does without a handler */
		exit(EXIT_FAILURE);
	}
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

static bool advance(const struct physics *all, int64_t index)
{
	void *data = all->data[index];
	double *control = all->control[index];
	copy(all->before + index * all->parts_before, all->parts_before);
	for (int64_t i = 0, at = index * all->controls; i < all->controls; i++, at++)
		control[i] = all->single ? ((const float *)all->actions)[at] : ((const double *)all->actions)[at];
	for (int64_t i = 0; i < all->substeps; i++)
		all->step(all->model, data);
	all->finish(all->model, data);
	copy(all->after + index * all->parts_after, all->parts_after);
	return kept(all->healthy + index * all->bounds, all->bounds);
}

/* Steps an environment, or lets its episode begin. Rewards are written by `physics.py`, for many at a time. */
static void step(struct physics *all, int64_t index)
{
	bool over = false, late = false;
	if (all->ages[index] < 0) {
		all->is_healthy[index] = 1;
		all->ages[index] = 0;
	} else {
		bool healthy = advance(all, index);
		all->is_healthy[index] = healthy;
		over = all->ends && !healthy;
		late = ++all->ages[index] >= all->limit;
	}
	all->terminated[index] = over;
	all->truncated[index] = late;
}

void vebench_physics(void *given, int64_t first, int64_t last)
{
	struct physics *all = given;
	uint64_t arithmetic = plain_arithmetic();
	on_error theirs = *all->user_error;
	if (theirs != fail) {
		before_ours = theirs;
		*all->user_error = fail;
	}
	for (volatile int64_t index = first; index < last; index++) {
		words = all->errors[index];
		if (setjmp(at_error) == 0)
			step(all, index);
		else
			all->failed = true;
	}
	words = NULL;
	arithmetic_as(arithmetic);
}
