/* Memory that processes have in common, at the same addresses: what one of them builds there the others can use by its
 * pointers. Beside it lies memory that has the same addresses too, but of which each process has its own: scratch.
 *
 * MuJoCo allocates its data by two functions that can be replaced. Ours serve from here for as long as a thread has an
 * `area` here, and what is freed from here is only counted: the memory goes when nothing of it is in use. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

struct commons {
	char *base;
	size_t shared, size; /* bytes in common, which come first; and all, with the scratch */
	int64_t users;       /* blocks of MuJoCo's, and the creator */
	struct commons *next;
};

/* What a thread allocates from: up to `end`, or, without a commons, from anywhere, only to know how much. */
static _Thread_local struct {
	int active;
	struct commons *in;
	char *next, *end;
	size_t scratch, asked; /* a request of this size means the scratch; all others together */
	int scratches;         /* how often that was asked for */
} area;

static struct commons *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
	pthread_mutex_unlock(&lock);
}

/* A process that is forked while another thread has the lock would wait for it for ever. */
__attribute__((constructor)) static void keep_lock_over_forks(void)
{
	pthread_atfork(take_lock, release_lock, release_lock);
}

static size_t whole(size_t size, size_t unit)
{
	return (size + unit - 1) / unit * unit;
}

static struct commons *commons_of(const char *address)
{
	struct commons *found = all;
	while (found && !(found->base <= address && address < found->base + found->size))
		found = found->next;
	return found;
}

static void leave(struct commons *left)
{
	if (--left->users)
		return;
	struct commons **link = &all;
	while (*link != left)
		link = &(*link)->next;
	*link = left->next;
	munmap(left->base, left->size);
	free(left);
}

/* Returns NULL if there is no such memory. */
struct commons *vebench_commons(size_t shared, size_t scratch)
{
	struct commons *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	made->shared = whole(shared, page);
	made->size = made->shared + whole(scratch, page);
	made->users = 1;
	int common = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, own = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	void *base = mmap(NULL, made->size, PROT_READ | PROT_WRITE, own, -1, 0);
	if (base == MAP_FAILED) {
		free(made);
		return NULL;
	}
	if (mmap(base, made->shared, PROT_READ | PROT_WRITE, common | MAP_FIXED, -1, 0) == MAP_FAILED) {
		munmap(base, made->size);
		free(made);
		return NULL;
	}
	made->base = base;
	take_lock();
	made->next = all;
	all = made;
	release_lock();
	return made;
}

char *vebench_commons_base(const struct commons *in)
{
	return in->base;
}

char *vebench_commons_scratch(const struct commons *in)
{
	return in->base + in->shared;
}

/* Its creator needs it no longer. */
void vebench_commons_leave(struct commons *in)
{
	take_lock();
	leave(in);
	release_lock();
}

/* From now on this thread's requests are served from `next` on; or only added up if `in` is NULL. */
void vebench_area_begin(struct commons *in, char *next, char *end, size_t scratch)
{
	area.active = 1;
	area.in = in;
	area.next = next;
	area.end = end;
	area.scratch = scratch;
	area.asked = 0;
	area.scratches = 0;
}

/* Returns how many bytes were asked for since, without the scratch. */
size_t vebench_area_end(void)
{
	area.active = 0;
	return area.asked;
}

/* Returns how often this thread has asked for the scratch between the last `begin` and `end`. */
int vebench_area_scratches(void)
{
	return area.scratches;
}

/* For MuJoCo's mju_user_malloc. */
void *vebench_malloc(size_t size)
{
	if (!area.active)
		return aligned_alloc(ALIGNMENT, whole(size, ALIGNMENT));
	int is_scratch = size == area.scratch;
	size_t needed = whole(size, ALIGNMENT);
	if (is_scratch)
		area.scratches++;
	else
		area.asked += needed;
	if (!area.in)
		return aligned_alloc(ALIGNMENT, needed);
	char *block = vebench_commons_scratch(area.in);
	if (!is_scratch) {
		if ((size_t)(area.end - area.next) < needed)
			return NULL;
		block = area.next;
		area.next += needed;
	}
	take_lock();
	area.in->users++;
	release_lock();
	return block;
}

/* For MuJoCo's mju_user_free. */
void vebench_free(void *block)
{
	take_lock();
	struct commons *in = commons_of(block);
	if (in)
		leave(in);
	release_lock();
	if (!in)
		free(block);
}
