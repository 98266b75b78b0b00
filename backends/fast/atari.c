/* Atari games with the results of AtariEnv, AtariPreprocessing and FrameStackObservation. C calls methods of ALE's C++
 * class, whose addresses come from ale-py's module: see atari.py. Several threads may step different games.
 *
 * First come pictures of screens. They have the bytes of cv2.resize with INTER_AREA on the larger of two grey screens.
 * A pixel of a picture is a weighted sum of the pixels that it covers: first along each row of the screen, then down these
 * rows. Like OpenCV, this code adds in float, in this order, and rounds half to even. The compiler must therefore not
 * fuse a multiplication with an addition (-ffp-contract=off). `atari.py` compares pictures before it uses this code.
 *
 * Most of a screen does not change in a step. So the two screens of the last picture are kept, and only the pixels that
 * cover a changed block are drawn again. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	WIDTH = 160,            /* of every screen */
	HEIGHT = 256,           /* of a screen, at most */
	BLOCK = 16,             /* neighbouring pixels of a row, whose changes are noted together */
	BLOCKS = WIDTH / BLOCK,
	TAPS_ACROSS = 4 * WIDTH, /* enough for any number of columns up to WIDTH: see weigh() */
	TAPS_DOWN = 4 * HEIGHT
};

/* The common part of pictures of screens of one size. It does not change after its preparation. */
struct maker {
	int32_t height;                /* rows of a screen */
	int32_t rows, columns;         /* of a picture */
	int32_t across, down;          /* pixels that a pixel of a picture covers, at most */
	int32_t source[TAPS_ACROSS];   /* [across][columns]: the pixel of a row */
	float weight[TAPS_ACROSS];     /* [across][columns]: 0 where a column covers fewer pixels */
	int32_t row_source[TAPS_DOWN]; /* [down][rows] */
	float row_weight[TAPS_DOWN];
	int32_t from[BLOCKS], to[BLOCKS]; /* the columns that cover a block */
	float grey[256];                  /* the grey of each raw value */
};

struct picture {
	const struct maker *maker;
	uint8_t *into;            /* [rows][columns] */
	uint16_t changed[HEIGHT]; /* the blocks of a row that must be drawn again, a bit for each */
	uint8_t screens[];        /* [3][height][WIDTH]: the two screens of this picture, and the first of the next */
};

int64_t vebench_picture_maker_size(void)
{
	return sizeof(struct maker);
}

int64_t vebench_picture_size(int32_t height)
{
	const int64_t size = sizeof(struct picture) + 3 * (int64_t)height * WIDTH;
	return (size + 63) / 64 * 64;
}

/* Fills in which of `size` pixels each of `count` pixels covers, by [tap][count], and their weights. Returns the number
 * of taps. A pixel covers size / count pixels, with a part at either end, so count * taps <= size + 2 * count. */
static int32_t weigh(int32_t size, int32_t count, int32_t *source, float *weight)
{
	const double scale = 1.0 / ((double)count / size);
	int32_t taps = 0;
	memset(weight, 0, (size_t)(size + 3 * count) * sizeof *weight);
	for (int32_t i = 0; i < count; i++) {
		const double start = i * scale, end = start + scale;
		const double covered = scale < size - start ? scale : size - start;
		int32_t last = (int32_t)end, first = (int32_t)start, tap = 0;
		first += first < start;
		last = last < size - 1 ? last : size - 1;
		first = first < last ? first : last;
		if (first - start > 1e-3) {
			source[tap * count + i] = first - 1;
			weight[tap++ * count + i] = (float)((first - start) / covered);
		}
		for (int32_t at = first; at < last; at++) {
			source[tap * count + i] = at;
			weight[tap++ * count + i] = (float)(1.0 / covered);
		}
		if (end - last > 1e-3) {
			double part = end - last < 1.0 ? end - last : 1.0;
			source[tap * count + i] = last;
			weight[tap++ * count + i] = (float)((part < covered ? part : covered) / covered);
		}
		taps = tap > taps ? tap : taps;
	}
	return taps;
}

/* Prepares pictures of `rows` x `columns` of screens of `height` x `width`, whose raw values have these greys. Returns
 * 0, or -1 for unsupported sizes. Returns -2 if a pixel of a picture covers only whole pixels, because OpenCV then adds
 * them in integers, and divides their sum. */
int32_t vebench_picture_maker_prepare(struct maker *maker, int32_t height, int32_t width, int32_t rows, int32_t columns,
				      const uint8_t *greys)
{
	if (width != WIDTH || height < 1 || height > HEIGHT || rows < 1 || rows > height || columns < 1 || columns > WIDTH)
		return -1;
	if (width % columns == 0 && height % rows == 0)
		return -2;
	memset(maker, 0, sizeof *maker);
	maker->height = height;
	maker->rows = rows;
	maker->columns = columns;
	for (int raw = 0; raw < 256; raw++)
		maker->grey[raw] = greys[raw];
	maker->across = weigh(WIDTH, columns, maker->source, maker->weight);
	maker->down = weigh(height, rows, maker->row_source, maker->row_weight);
	for (int32_t column = 0; column < columns; column++)
		for (int32_t tap = 0; tap < maker->across; tap++) {
			const int32_t at = tap * columns + column;
			if (maker->weight[at] == 0) {
				maker->source[at] = maker->source[column]; /* any pixel: it adds 0 */
				continue;
			}
			const int32_t block = maker->source[at] / BLOCK;
			if (maker->to[block] == 0)
				maker->from[block] = column;
			maker->to[block] = column + 1;
		}
	return 0;
}

static void draw_all(struct picture *picture)
{
	for (int32_t y = 0; y < picture->maker->height; y++)
		picture->changed[y] = (1 << BLOCKS) - 1;
}

/* Prepares a picture in zeroed memory. Its first drawing is complete. */
void vebench_picture_prepare(struct picture *picture, const struct maker *maker, uint8_t *into)
{
	picture->maker = maker;
	picture->into = into;
	draw_all(picture);
}

static uint8_t *kept_screen(struct picture *picture, int which)
{
	return picture->screens + which * picture->maker->height * WIDTH;
}

static bool same_row(const uint8_t *one, const uint8_t *other)
{
	return memcmp(one, other, WIDTH) == 0;
}

/* Notes which blocks of a screen differ from a kept one. */
static void note_changes(struct picture *picture, int which, const uint8_t *screen)
{
	const uint8_t *before = kept_screen(picture, which);
	for (int32_t y = 0; y < picture->maker->height; y++, screen += WIDTH, before += WIDTH) {
		if (same_row(screen, before))
			continue;
		for (int block = 0; block < BLOCKS; block++)
			if (memcmp(screen + block * BLOCK, before + block * BLOCK, BLOCK) != 0)
				picture->changed[y] |= (uint16_t)(1 << block);
	}
}

/* Neighbouring columns of a picture, and the pixels of a screen's row that they cover. */
struct run {
	int32_t from, to, from_pixel, to_pixel;
};

/* Finds the columns that cover the given blocks. Returns the number of runs. */
static int find_runs(const struct maker *maker, uint16_t blocks, struct run *runs)
{
	int count = 0;
	for (int block = 0; block < BLOCKS; block++) {
		if (!(blocks >> block & 1))
			continue;
		if (count == 0 || maker->from[block] > runs[count - 1].to)
			runs[count++].from = maker->from[block];
		runs[count - 1].to = maker->to[block];
	}
	for (struct run *run = runs; run < runs + count; run++) {
		run->from_pixel = maker->source[run->from];
		run->to_pixel = run->to < maker->columns ? maker->source[run->to] + 1 : WIDTH;
	}
	return count;
}

/* Adds up the pixels of the larger of two rows that each column of a run covers. */
static void add_across(const struct maker *maker, struct run run, const uint8_t *one, const uint8_t *other, float *sums)
{
	const int32_t columns = maker->columns;
	float grey[WIDTH];
	for (int32_t x = run.from_pixel; x < run.to_pixel; x++) {
		const float a = maker->grey[one[x]], b = maker->grey[other[x]];
		grey[x] = a > b ? a : b;
	}
	for (int32_t column = run.from; column < run.to; column++)
		sums[column] = grey[maker->source[column]] * maker->weight[column];
	for (int32_t tap = 1; tap < maker->across; tap++) {
		const int32_t *source = maker->source + tap * columns;
		const float *weight = maker->weight + tap * columns;
		for (int32_t column = run.from; column < run.to; column++)
			sums[column] += grey[source[column]] * weight[column];
	}
}

static uint8_t round_half_to_even(float value)
{
	/* A float of this size has no fraction, so the addition rounds. The lowest bits are the rounded number. */
	const float large = value + 12582912.0f;
	uint32_t bits;
	memcpy(&bits, &large, sizeof bits);
	return (uint8_t)bits;
}

/* Draws the changes in the larger of two screens, and keeps both screens. */
static void draw(struct picture *picture, const uint8_t *first, const uint8_t *second)
{
	const struct maker *maker = picture->maker;
	const int32_t columns = maker->columns, rows = maker->rows;
	float across[WIDTH], sum[WIDTH];
	int32_t at = -1;   /* the row of the screen in `across` */
	uint16_t held = 0; /* the blocks of that row in `across` */
	for (int32_t row = 0; row < rows; row++) {
		const int32_t *source = maker->row_source + row;
		const float *weight = maker->row_weight + row;
		uint16_t blocks = 0;
		for (int32_t tap = 0; tap < maker->down && weight[tap * rows] != 0; tap++)
			blocks |= picture->changed[source[tap * rows]];
		if (blocks == 0)
			continue;
		struct run runs[BLOCKS];
		const int count = find_runs(maker, blocks, runs);
		for (int32_t tap = 0; tap < maker->down && weight[tap * rows] != 0; tap++) {
			const int32_t y = source[tap * rows];
			const float down = weight[tap * rows];
			const uint8_t *one = first + y * WIDTH, *other = second + y * WIDTH;
			const bool is_held =
				at >= 0 && !(blocks & ~held) &&
				(y == at || (y == at + 1 && same_row(one, one - WIDTH) && same_row(other, other - WIDTH)));
			for (const struct run *run = runs; run < runs + count; run++) {
				if (!is_held)
					add_across(maker, *run, one, other, across);
				if (tap == 0)
					for (int32_t column = run->from; column < run->to; column++)
						sum[column] = down * across[column];
				else
					for (int32_t column = run->from; column < run->to; column++)
						sum[column] += down * across[column];
			}
			if (!is_held)
				held = blocks;
			at = y;
		}
		for (const struct run *run = runs; run < runs + count; run++)
			for (int32_t column = run->from; column < run->to; column++)
				picture->into[row * columns + column] = round_half_to_even(sum[column]);
	}
	for (int32_t y = 0; y < maker->height; y++) {
		if (picture->changed[y] == 0)
			continue;
		memmove(kept_screen(picture, 0) + y * WIDTH, first + y * WIDTH, WIDTH);
		memmove(kept_screen(picture, 1) + y * WIDTH, second + y * WIDTH, WIDTH);
		picture->changed[y] = 0;
	}
}

/* Keeps the first of two screens. */
void vebench_picture_first(struct picture *picture, const uint8_t *screen)
{
	memcpy(kept_screen(picture, 2), screen, (size_t)picture->maker->height * WIDTH);
	note_changes(picture, 0, screen);
}

/* Draws the picture of the first screen and of this one. */
void vebench_picture_second(struct picture *picture, const uint8_t *screen)
{
	note_changes(picture, 1, screen);
	draw(picture, kept_screen(picture, 2), screen);
}

/* Draws the picture of this screen alone. */
void vebench_picture_alone(struct picture *picture, const uint8_t *screen)
{
	note_changes(picture, 0, screen);
	note_changes(picture, 1, screen);
	draw(picture, screen, screen);
}

/* Draws the picture of the first screen and of both screens of the last picture. */
void vebench_picture_stale(struct picture *picture)
{
	const float *grey = picture->maker->grey;
	const uint8_t *one = kept_screen(picture, 0);
	uint8_t *larger = kept_screen(picture, 1);
	for (int32_t i = 0; i < picture->maker->height * WIDTH; i++)
		if (grey[one[i]] > grey[larger[i]])
			larger[i] = one[i];
	draw_all(picture);
	draw(picture, kept_screen(picture, 2), larger);
}

enum { NOOP = 0 };

/* The beginning of ale::ALEScreen: a vector begins with the address of its first element. */
struct screen {
	int32_t rows, columns;
	const uint8_t *pixels;
};

/* One game: the fields in atari.py. */
struct game {
	void *ale;
	struct picture *picture;
	int64_t begins;    /* whether the next work begins an episode */
	int64_t loads;     /* whether it first loads the game, because the emulator has a new seed */
	int64_t seeded;    /* whether it loads the game again if the no-ops end it */
	int64_t restarted; /* whether the last reset loaded the game again */
	int64_t noops;
	int64_t lives, life_lost;
};

/* All games of a batch: atari.py fills it in, with 8 bytes for each field. */
struct games {
	int32_t (*act)(void *ale, int32_t action, float strength);
	bool (*game_over)(const void *ale, bool with_truncation);
	bool (*game_truncated)(const void *ale);
	int32_t (*lives)(void *ale);
	const struct screen *(*screen)(const void *ale);
	void (*reset_game)(void *ale);
	void (*load_rom)(void *ale, void *path);
	void (*set_mode)(void *ale, uint32_t mode);
	void (*set_difficulty)(void *ale, uint32_t difficulty);
	void *path;
	int64_t mode, difficulty; /* -1: the game's own */
	int64_t frame_skip, stack, picture_size;
	int64_t noop_waits;    /* whether action 0 is NOOP: only then do no-ops that end a game restart it */
	int64_t life_ends;     /* whether losing a life ends an episode */
	int64_t clips;         /* whether a reward is replaced by its sign */
	int64_t last_frames;   /* whether the picture of an end shows the last frames */
	const int32_t *legal;  /* the emulator's number of each action */
	const int64_t *actions;
	uint8_t *observations; /* [count][stack][picture_size] */
	double *rewards;
	bool *terminated, *truncated;
	struct game *games;
};

static void restart(const struct games *all, struct game *game, bool loads)
{
	if (loads) {
		all->load_rom(game->ale, all->path);
		if (all->mode >= 0)
			all->set_mode(game->ale, (uint32_t)all->mode);
		if (all->difficulty >= 0)
			all->set_difficulty(game->ale, (uint32_t)all->difficulty);
	}
	all->reset_game(game->ale);
}

/* Begins an episode, and fills the stack with its first screen. */
static void begin(const struct games *all, struct game *game, uint8_t *row)
{
	const int64_t size = all->picture_size;
	const uint8_t *newest = row + (all->stack - 1) * size;
	restart(all, game, game->loads);
	game->restarted = 0;
	for (int64_t i = 0; i < game->noops; i++) {
		all->act(game->ale, NOOP, 1.0f);
		if (all->noop_waits && all->game_over(game->ale, true)) {
			restart(all, game, game->seeded);
			game->restarted = game->seeded;
		}
	}
	game->begins = game->loads = game->seeded = 0;
	game->lives = all->lives(game->ale);
	game->life_lost = 0;
	vebench_picture_alone(game->picture, all->screen(game->ale)->pixels);
	for (; row < newest; row += size)
		memcpy(row, newest, (size_t)size);
}

/* Returns whether the episode has ended with the last frame. */
static bool ends(const struct games *all, struct game *game)
{
	if (all->life_ends) {
		const int64_t before = game->lives;
		game->lives = all->lives(game->ale);
		game->life_lost = game->lives < before;
		if (game->life_lost)
			return true;
	}
	return all->game_over(game->ale, true);
}

/* Draws the picture of a step whose last frame was `frame`, counted from 0. `ended`: the episode ended with it. */
static void show(const struct games *all, struct game *game, int64_t frame, bool ended)
{
	const int64_t last = all->frame_skip - 1;
	const uint8_t *screen = all->screen(game->ale)->pixels;
	if (!ended || all->last_frames) {
		/* Gymnasium takes the larger of two screens only if a step has two frames or more. */
		if (frame == last && last > 0)
			vebench_picture_second(game->picture, screen);
		else if (frame >= last - 1)
			vebench_picture_alone(game->picture, screen);
	} else if (frame == last && last > 0) {
		vebench_picture_stale(game->picture);
	}
}

static void step(const struct games *all, struct game *game, int64_t index, uint8_t *row)
{
	const int32_t action = all->legal[all->actions[index]];
	const int64_t last = all->frame_skip - 1, size = all->picture_size;
	int64_t frame = 0, reward = 0;
	bool ended;
	for (;; frame++) {
		reward += all->act(game->ale, action, 1.0f);
		ended = ends(all, game);
		if (ended || frame == last)
			break;
		if (frame == last - 1)
			vebench_picture_first(game->picture, all->screen(game->ale)->pixels);
	}
	memmove(row, row + size, (size_t)((all->stack - 1) * size));
	show(all, game, frame, ended);
	all->rewards[index] = (double)(all->clips ? (reward > 0) - (reward < 0) : reward);
	all->terminated[index] = ended && (game->life_lost || all->game_over(game->ale, false));
	all->truncated[index] = ended && all->game_truncated(game->ale);
}

/* Steps the games from `first` up to `last`, or begins their episodes. */
void vebench_atari_work(void *context, int64_t first, int64_t last)
{
	const struct games *all = context;
	for (int64_t i = first; i < last; i++) {
		struct game *game = all->games + i;
		uint8_t *row = all->observations + i * all->stack * all->picture_size;
		if (game->begins) {
			begin(all, game, row);
			all->rewards[i] = 0;
			all->terminated[i] = all->truncated[i] = false;
		} else {
			step(all, game, i, row);
		}
	}
}
