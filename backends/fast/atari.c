/* Atari games as AtariEnv, AtariPreprocessing and FrameStackObservation step and show them, by the methods of ALE's C++
 * class, whose addresses come from ale-py's module: see atari.py. Several threads may step different games. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NOOP = 0 };

struct picture;
void vebench_picture_first(struct picture *picture, const uint8_t *screen);
void vebench_picture_second(struct picture *picture, const uint8_t *screen);
void vebench_picture_alone(struct picture *picture, const uint8_t *screen);
void vebench_picture_stale(struct picture *picture);

/* The beginning of ale::ALEScreen: a vector begins with the address of its first element. */
struct screen {
	int32_t rows, columns;
	const uint8_t *pixels;
};

/* One game: _GAME in atari.py. */
struct game {
	void *ale;
	struct picture *picture;
	int64_t begins;    /* whether the next work begins an episode, */
	int64_t loads;     /* and loads the game first, because its emulator has a new seed or none yet, */
	int64_t seeded;    /* and loads it again if the no-ops end the game, */
	int64_t restarted; /* as they did last time */
	int64_t noops;
	int64_t lives, life_lost;
};

/* All games of a batch: atari.py fills it in, with 8 bytes for each field. */
struct games {
	int32_t (*act)(void *ale, int32_t action, float strength);
	bool (*game_over)(const void *ale, bool with_truncation);
	bool (*game_truncated)(const void *ale);
	int32_t (*lives)(void *ale);
	int32_t (*episode_frame_number)(const void *ale);
	int32_t (*frame_number)(const void *ale);
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
	int64_t tells;         /* whether infos are asked for */
	int64_t count;         /* of games */
	const int32_t *legal;  /* the emulator's number of each action */
	const int64_t *actions;
	uint8_t *observations; /* [count][stack][picture_size] */
	double *rewards;
	bool *terminated, *truncated;
	int64_t *infos; /* [3][count]: lives, episode_frame_number, frame_number */
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

/* Begins an episode, and shows its first screen in all of the stack. */
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

/* Draws the picture of a step whose last frame was this one, counted from 0; `ended` if the episode ended with it. */
static void show(const struct games *all, struct game *game, int64_t frame, bool ended)
{
	const int64_t last = all->frame_skip - 1;
	const uint8_t *screen = all->screen(game->ale)->pixels;
	if (!ended || all->last_frames) {
		/* Gymnasium takes the larger of two screens only where there are two. */
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
		if (all->tells) {
			all->infos[i] = all->lives(game->ale);
			all->infos[all->count + i] = all->episode_frame_number(game->ale);
			all->infos[2 * all->count + i] = all->frame_number(game->ale);
		}
	}
}
