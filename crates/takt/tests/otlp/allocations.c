/* Preloaded: counts the calls of malloc and its like by thread, in a file in which whoever looks from outside finds the count of
 * thread TID at TID * 8. The file is as long as the greatest thread id asks, and sparse. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4194304

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static uint64_t *counts;
static __thread long tid;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("COUNT_ALLOCATIONS");
  int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file < 0 || ftruncate(file, THREADS * 8L) != 0) return;
  void *found = mmap(NULL, THREADS * 8L, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (found != MAP_FAILED) counts = found;
}

static void count(void) {
  if (!counts) return;
  if (!tid) tid = syscall(SYS_gettid);
  if (tid < THREADS) counts[tid]++;
}

void *malloc(size_t size) { count(); return __libc_malloc(size); }
void *calloc(size_t of, size_t size) { count(); return __libc_calloc(of, size); }
void *realloc(void *old, size_t size) { count(); return __libc_realloc(old, size); }
void *memalign(size_t at, size_t size) { count(); return __libc_memalign(at, size); }
void *aligned_alloc(size_t at, size_t size) { count(); return __libc_memalign(at, size); }
int posix_memalign(void **out, size_t at, size_t size) { count(); *out = __libc_memalign(at, size); return *out ? 0 : 12; }
void free(void *old) { count(); __libc_free(old); }
