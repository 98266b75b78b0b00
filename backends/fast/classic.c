/* Classic control as Gymnasium's classes step it, many environments in one call. Every formula has the order and the
 * precision of Gymnasium's source, which mixes scalars of numpy and of Python. sin, cos and pow are the C library's.
 * `classic.py` compares them with numpy's and Python's before it uses this file. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define PI 3.14159265358979323846

/* Ages that count no steps. BEGINS: the next work begins an episode. HAS_BEGUN: the first row is already written. */
enum { BEGINS = -1, HAS_BEGUN = -2 };

/* The random numbers of one environment: `bitgen_t` of numpy/random/bitgen.h. */
struct bits {
	void *state;
	uint64_t (*next_uint64)(void *);
	uint32_t (*next_uint32)(void *);
	double (*next_double)(void *);
};

struct classic {
	int64_t game;
	int64_t limit;  /* the most steps of an episode */
	int64_t single; /* whether real-valued actions are float32, not float64 */
	double setting; /* the game's setting */
	const void *actions;
	float *observations;
	double *rewards;
	bool *terminated, *truncated;
	double *state; /* [environments][4] */
	int64_t *ages; /* [environments]: steps of the episode, BEGINS or HAS_BEGUN */
	struct bits *const *random;
};

/* Rounds a number to float32 if `single`, as numpy does. The sum or product of two float32 numbers is the same in
 * float32 as in float64 rounded to float32. Without `volatile`, GCC 12 omits the rounding of two numbers that are
 * stored side by side. */
static double rounded(double number, bool single)
{
	volatile float narrow = (float)number;
	return single ? narrow : number;
}

static double clipped(double number, double low, double high)
{
	return number < low ? low : number > high ? high : number;
}

/* numpy and Python square a scalar by pow, whose result is not always the product. `volatile` hides the exponent from the
 * compiler, which would multiply instead. */
static const volatile double two = 2.0;

static double square(double number)
{
	return pow(number, two);
}

static int64_t choice(const struct classic *all, int64_t index)
{
	return ((const int64_t *)all->actions)[index];
}

static double action(const struct classic *all, int64_t index)
{
	return all->single ? ((const float *)all->actions)[index] : ((const double *)all->actions)[index];
}

/* One step of a game: each returns whether the episode is terminated. */

static bool cart_pole(const struct classic *all, int64_t index, double *state, double *reward)
{
	const double pole_moment = 0.1 * 0.5, total = 0.1 + 1.0, furthest = 12 * 2 * PI / 360, step = 0.02;
	double x = state[0], speed = state[1], angle = state[2], spin = state[3];
	double force = choice(all, index) == 1 ? 10.0 : -10.0, sine = sin(angle), cosine = cos(angle);
	double push = (force + pole_moment * (spin * spin) * sine) / total;
	double turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / total));
	state[0] = x = x + step * speed;
	state[1] = speed + step * (push - pole_moment * turn * cosine / total);
	state[2] = angle = angle + step * spin;
	state[3] = spin + step * turn;
	bool over = x < -2.4 || x > 2.4 || angle < -furthest || angle > furthest;
	*reward = all->setting ? (over ? -1.0 : 0.0) : 1.0;
	return over;
}

static bool mountain_car(const struct classic *all, int64_t index, double *state, double *reward)
{
	double push = (double)(choice(all, index) - 1) * 0.001 + cos(3 * state[0]) * -0.0025;
	double speed = clipped(state[1] + push, -0.07, 0.07), x = clipped(state[0] + speed, -1.2, 0.6);
	state[0] = x;
	state[1] = speed = x == -1.2 && speed < 0 ? 0 : speed;
	*reward = -1.0;
	return x >= 0.5 && speed >= all->setting;
}

/* The state is float64 when an episode begins, and float32 after a step. In an operation with a numpy number, a Python
 * number, such as a limit, takes the numpy number's type. */
static bool continuous_mountain_car(const struct classic *all, int64_t index, double *state, double *reward)
{
	bool single = all->ages[index] > 0;
	double given = action(all, index), force = clipped(given, -1.0, 1.0);
	bool limited = force != given, single_push = all->single && !limited;
	double slope = 0.0025 * cos(rounded(3 * state[0], single));
	double push = rounded(rounded(force * rounded(0.0015, single_push), single_push) - rounded(slope, single_push), single_push);
	bool single_speed = single && (single_push || limited), fastest = false;
	double speed = rounded(state[1] + rounded(push, single_speed), single_speed);
	if (speed > rounded(0.07, single_speed) || speed < rounded(-0.07, single_speed)) {
		speed = speed > 0 ? 0.07 : -0.07;
		fastest = true;
	}
	bool single_x = single && (single_speed || fastest);
	double x = rounded(state[0] + rounded(speed, single_x), single_x);
	x = clipped(x, rounded(-1.2, single_x), rounded(0.6, single_x));
	if (x == rounded(-1.2, single_x) && speed < 0)
		speed = 0;
	bool over = x >= rounded(0.45, single_x) && speed >= rounded(all->setting, single_speed && !fastest);
	*reward = (over ? 100.0 : 0.0) - square(given) * 0.1;
	state[0] = rounded(x, true);
	state[1] = rounded(speed, true);
	return over;
}

static bool pendulum(const struct classic *all, int64_t index, double *state, double *reward)
{
	double torque = clipped(action(all, index), -2.0, 2.0), angle = fmod(state[0] + PI, 2 * PI);
	double effort = all->single ? 0.001f * powf((float)torque, (float)two) : 0.001 * square(torque);
	angle = (angle < 0 ? angle + 2 * PI : angle) - PI;
	*reward = -(square(angle) + 0.1 * square(state[1]) + effort);
	double push = all->setting * sin(state[0]) + rounded(3.0 * torque, all->single);
	state[1] = clipped(state[1] + push * 0.05, -8.0, 8.0);
	state[0] += state[1] * 0.05;
	return false;
}

/* Computes how fast the angles of the links and their speeds change. */
static void acrobot_slope(const double *at, double torque, double *slope)
{
	double sine = sin(at[1]), cosine = cos(at[1]), speed = at[2], speed2 = at[3];
	double d1 = 0.25 + (1.25 + cosine) + 1.0 + 1.0, d2 = 0.25 + 0.5 * cosine + 1.0;
	double phi2 = 4.9 * cos(at[0] + at[1] - PI / 2);
	double phi1 = -0.5 * square(speed2) * sine - speed2 * speed * sine + 1.5 * 9.8 * cos(at[0] - PI / 2) + phi2;
	double up = torque + d2 / d1 * phi1 - 0.5 * square(speed) * sine - phi2;
	slope[0] = speed;
	slope[1] = speed2;
	slope[3] = up / (0.25 + 1.0 - square(d2) / d1);
	slope[2] = -(d2 * slope[3] + phi1) / d1;
}

static double turned(double angle)
{
	while (angle > PI)
		angle -= 2 * PI;
	while (angle < -PI)
		angle += 2 * PI;
	return angle;
}

static bool acrobot(const struct classic *all, int64_t index, double *state, double *reward)
{
	static const double ahead[4] = {0.0, 0.1, 0.1, 0.2};
	double torque = (double)(choice(all, index) - 1), at[4] = {state[0], state[1], state[2], state[3]}, k[4][4];
	for (int stage = 0; stage < 4; stage++) {
		for (int i = 0; stage && i < 4; i++)
			at[i] = state[i] + ahead[stage] * k[stage - 1][i];
		acrobot_slope(at, torque, k[stage]);
	}
	for (int i = 0; i < 4; i++)
		state[i] += 0.2 / 6.0 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
	state[0] = turned(state[0]);
	state[1] = turned(state[1]);
	state[2] = clipped(state[2], -(4 * PI), 4 * PI);
	state[3] = clipped(state[3], -(9 * PI), 9 * PI);
	bool over = -cos(state[0]) - cos(state[1] + state[0]) > 1.0;
	*reward = over ? 0.0 : -1.0;
	return over;
}

/* In the order of `GAMES` in `classic.py`. An observation has the cosine and sine of each angle, then the other numbers
 * of the state unchanged. */
static const struct game {
	bool (*step)(const struct classic *all, int64_t index, double *state, double *reward);
	int numbers; /* numbers in the state */
	int angles;  /* how many of them are angles, which come first */
	int drawn;   /* how many, from the first on, begin at random. The others begin as 0. */
	double low[4], high[4];
} games[] = {
	{cart_pole, 4, 0, 4, {-0.05, -0.05, -0.05, -0.05}, {0.05, 0.05, 0.05, 0.05}},
	{mountain_car, 2, 0, 1, {-0.6}, {-0.4}},
	{continuous_mountain_car, 2, 0, 1, {-0.6}, {-0.4}},
	{pendulum, 2, 1, 2, {-PI, -1.0}, {PI, 1.0}},
	{acrobot, 4, 2, 4, {-0.1, -0.1, -0.1, -0.1}, {0.1, 0.1, 0.1, 0.1}},
};

static void show(const struct classic *all, int64_t index)
{
	const struct game *game = games + all->game;
	const double *state = all->state + 4 * index;
	float *row = all->observations + (game->numbers + game->angles) * index;
	for (int i = 0; i < game->angles; i++) {
		*row++ = (float)cos(state[i]);
		*row++ = (float)sin(state[i]);
	}
	for (int i = game->angles; i < game->numbers; i++)
		*row++ = (float)state[i];
}

/* Begins an episode, with the random numbers of numpy's `uniform`. */
void vebench_classic_begin(struct classic *all, int64_t index)
{
	const struct game *game = games + all->game;
	struct bits *random = all->random[index];
	double *state = all->state + 4 * index;
	for (int i = 0; i < game->numbers; i++) {
		double drawn = i < game->drawn ? random->next_double(random->state) : 0.0;
		state[i] = game->low[i] + (game->high[i] - game->low[i]) * drawn;
	}
	show(all, index);
}

/* Steps the environments from `first` up to `last`. Begins a new episode where the previous one has ended. */
void vebench_classic(void *context, int64_t first, int64_t last)
{
	struct classic *all = context;
	for (int64_t index = first; index < last; index++) {
		bool over = false, late = false;
		if (all->ages[index] < 0) {
			if (all->ages[index] == BEGINS)
				vebench_classic_begin(all, index);
			all->ages[index] = 0;
			all->rewards[index] = 0.0;
		} else {
			over = games[all->game].step(all, index, all->state + 4 * index, all->rewards + index);
			show(all, index);
			late = ++all->ages[index] >= all->limit;
		}
		all->terminated[index] = over;
		all->truncated[index] = late;
		if (over || late)
			all->ages[index] = BEGINS;
	}
}

/* Computes the functions used above. `classic.py` compares them with numpy's and Python's. */
void vebench_classic_functions(double number, double *computed)
{
	computed[0] = sin(number);
	computed[1] = cos(number);
	computed[2] = square(number);
	computed[3] = powf((float)number, (float)two);
}
