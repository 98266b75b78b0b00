/* Steps of MuJoCo's physics. The caller gives all pointers, including those to MuJoCo's functions. So this file is
 * built without MuJoCo, and does not depend on the layout of its structures. `physics.py` fills in the structures
 * below: the two files must agree on them. Every field has 8 bytes. */

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 1024 }; /* bytes of an error's text, with a 0 at the end */

typedef void (*simulate)(const void *model, void *data);
typedef void (*on_error)(const char *message);

/* Neighbouring numbers to copy, clipped to two limits. */
struct part {
	const double *from;
	double *to;
	int64_t count;
	double low, high;
	int64_t limited;
};

/* Neighbouring numbers that must all lie between two limits. */
struct bound {
	const double *at;
	int64_t count;
	double low, high;
	int64_t closed;  /* whether the limits themselves count as between */
	int64_t outside; /* whether no number may lie between, instead */
};

struct physics {
	simulate step, finish; /* mj_step, mj_rnePostConstraint */
	const void *model;
	_Atomic on_error *user_error; /* where MuJoCo looks up its error handler */
	int64_t substeps, controls, parts, bounds;
	int64_t limit;               /* the most steps of an episode */
	int64_t single;              /* whether actions are of float32, not of float64 */
	int64_t ends;                /* whether an episode ends when its environment is not healthy */
	const void *actions;         /* [environments][controls] */
	void *const *data;           /* [environments] */
	double *const *control;      /* [environments] */
	const struct part *before;   /* [environments]: copied before the physics */
	const struct part *after;    /* [environments][parts]: copied after it */
	const struct bound *healthy; /* [environments][bounds] */
	double *is_healthy;          /* [environments]: 1 or 0 */
	bool *terminated, *truncated;
	int64_t *ages;                /* [environments]: steps of the episode; -1 if the next work begins it */
	char (*errors)[ERROR_BYTES];  /* [environments]: MuJoCo's text, until `physics.py` has raised it */
	_Atomic int64_t failed;       /* whether there ever was an error */
};

/* The default settings of arithmetic. */
#if defined(__x86_64__)
enum { PLAIN_ARITHMETIC = 0x1f80 };
#else
enum { PLAIN_ARITHMETIC = 0 };
#endif

/* Sets how C computes, and returns the settings before. Threads may have other settings than the default, such as tiny
 * numbers that count as zero. Rows must not depend on the thread that steps an environment. */
static uint64_t set_arithmetic(uint64_t settings)
{
	uint64_t before = 0;
#if defined(__x86_64__)
	before = __builtin_ia32_stmxcsr();
	__builtin_ia32_ldmxcsr((unsigned)settings);
#elif defined(__aarch64__)
	__asm__ volatile("mrs %0, fpcr" : "=r"(before));
	__asm__ volatile("msr fpcr, %0" : : "r"(settings));
#else
	(void)settings;
#endif
	return before;
}

static _Thread_local jmp_buf at_error;
static _Thread_local char *error_text; /* the target for the text of an error, while this thread steps */
static _Atomic on_error handler_before;

/* MuJoCo's error handler must not return. Errors of threads that are not stepping go to the earlier handler. */
static void handle_error(const char *message)
{
	on_error before = handler_before;
	if (error_text) {
		strncpy(error_text, message, ERROR_BYTES - 1);
		longjmp(at_error, 1);
	}
	if (before) {
		before(message);
	} else {
		fprintf(stderr, "ERROR: %s\n", message); /* as MuJoCo does without a handler */
		exit(EXIT_FAILURE);
	}
}

/* Clips like numpy.clip: NaN stays NaN. The limit replaces an equal number, such as -0.0 at the limit 0.0. */
static double clip(double number, double low, double high)
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
				part->to[i] = clip(part->from[i], part->low, part->high);
		else
			for (int64_t i = 0; i < part->count; i++)
				part->to[i] = part->from[i];
	}
}

static bool all_within(const struct bound *bounds, int64_t count)
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

/* Steps an environment, or lets its episode begin. `physics.py` writes the rewards, for many environments at a time. */
static void step(struct physics *all, int64_t index)
{
	bool over = false, late = false;
	void *data = all->data[index];
	double *control = all->control[index];
	if (all->ages[index] < 0) {
		all->is_healthy[index] = 1;
		all->ages[index] = 0;
	} else {
		copy(all->before + index, 1);
		for (int64_t i = 0, at = index * all->controls; i < all->controls; i++, at++)
			control[i] = all->single ? ((const float *)all->actions)[at] : ((const double *)all->actions)[at];
		for (int64_t i = 0; i < all->substeps; i++)
			all->step(all->model, data);
		all->finish(all->model, data);
		copy(all->after + index * all->parts, all->parts);
		bool healthy = all_within(all->healthy + index * all->bounds, all->bounds);
		all->is_healthy[index] = healthy;
		over = all->ends && !healthy;
		late = ++all->ages[index] >= all->limit;
	}
	all->terminated[index] = over;
	all->truncated[index] = late;
}

/* Steps the environments from `first` up to `last`. */
void vebench_physics(void *context, int64_t first, int64_t last)
{
	struct physics *all = context;
	uint64_t arithmetic = set_arithmetic(PLAIN_ARITHMETIC);
	on_error handler = *all->user_error;
	if (handler != handle_error) {
		handler_before = handler;
		*all->user_error = handle_error;
	}
	for (volatile int64_t index = first; index < last; index++) { /* volatile, to keep its value over a longjmp */
		error_text = all->errors[index];
		if (setjmp(at_error) == 0)
			step(all, index);
		else
			all->failed = true;
	}
	error_text = NULL;
	set_arithmetic(arithmetic);
}
