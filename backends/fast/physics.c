/* Steps of MuJoCo's physics for many environments in one call. It is told everything by pointers, those of MuJoCo's
 * own functions included, so that it is built without MuJoCo and knows nothing of how its structures are laid out.
 * `physics.py` fills the structures in: the two files must agree on them. */

#include <setjmp.h>
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
	int64_t current;             /* the environment in use now, or last */
	char error[1024];
};

static _Thread_local jmp_buf failed;
static _Thread_local struct physics *in_use;

/* MuJoCo expects its handler not to return; without one it ends the process. */
static void fail(const char *message)
{
	strncpy(in_use->error, message, sizeof in_use->error - 1);
	longjmp(failed, 1);
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
	copy(all->before + index * all->parts_before, all->parts_before);
	for (int64_t i = 0; i < all->controls; i++)
		all->control[index][i] = all->actions[index * all->controls + i];
	for (int64_t i = 0; i < all->substeps; i++)
		all->step(all->model, data);
	if (all->finish)
		all->finish(all->model, data);
	copy(all->after + index * all->parts_after, all->parts_after);
	return kept(all->healthy + index * all->bounds, all->bounds);
}

/* Steps all environments but those that are marked as resting, if any are (else NULL). Returns how many of them are
 * not healthy then, or -1 after an error of MuJoCo's, with its words in `error`. What to do at an error is set for the
 * whole process meanwhile: whoever calls this sees to it that nobody else does. */
int64_t vebench_physics(struct physics *all, const uint8_t *resting)
{
	on_error theirs = *all->user_error;
	volatile int64_t unhealthy = 0;
	in_use = all;
	*all->user_error = fail;
	if (setjmp(failed)) {
		*all->user_error = theirs;
		in_use = NULL;
		return -1;
	}
	for (int64_t index = 0; index < all->environments; index++) {
		if (resting && resting[index])
			continue;
		all->current = index;
		bool healthy = advance(all, index);
		all->is_healthy[index] = healthy;
		unhealthy += !healthy;
	}
	*all->user_error = theirs;
	in_use = NULL;
	return unhealthy;
}
