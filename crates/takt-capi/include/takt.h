/* SPDX-License-Identifier: Apache-2.0
 *
 * takt.h: the library of your own loop. C11; C++ programs may prefer takt.hpp.
 *
 * A loop declares itself (name, period, deadline), waits for its releases on an absolute grid, and records each job: when it was
 * released, when it began, when it ended. `takt run` and `takt watch` find these records by themselves in shared memory.
 * Without such a session a record costs a load and a branch.
 *
 *     #include <takt.h>
 *
 *     int error;
 *     takt_loop *loop = takt_loop_open("control", 2000000, 0, &error);      // 500 Hz, deadline = period
 *     if (!loop) { fprintf(stderr, "%s\n", takt_strerror(error)); return 1; }
 *     while (running) {
 *         takt_loop_wait(loop);                                           // sleeps until the release, begins the job
 *         read_sensors(); control(); write_motors();
 *         takt_loop_end(loop);                                            // the next wait would end it, too
 *     }
 *     takt_loop_close(loop);
 *
 * Link with `pkg-config --cflags --libs takt`, or in CMake with find_package(takt) and takt::takt.
 *
 * Conventions:
 *   - Times are nanoseconds. Points in time are of CLOCK_MONOTONIC.
 *   - Functions that return int or int64_t return 0 or a positive value when they succeed, and a negative takt_error when not.
 *     takt_strerror says it in one sentence.
 *   - Functions marked [real-time] allocate nothing, take no lock and make no system call but to read the clock (usually without
 *     entering the kernel) and to sleep. All others belong before the loop or after it.
 *   - A handle is used by one thread at a time. Different handles are independent.
 *   - fork: a child inherits no loop. What it calls on its parent's handles records nothing; it may open loops of its own.
 */
#ifndef TAKT_H
#define TAKT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A library with the same number serves this header; functions are only ever added. */
#define TAKT_ABI_VERSION 1

/* TAKT_ABI_VERSION of the library that runs. */
uint32_t takt_abi_version(void);

/* ---------------------------------------------------------------------------------------------------------------- errors */

/* Functions return these negated: -TAKT_EJOB. */
typedef enum takt_error {
    TAKT_EARGUMENT = 1,  /* an argument is missing or out of its range */
    TAKT_ENAME = 2,      /* a name is empty, too long, no UTF-8, or has control characters */
    TAKT_EPERIOD = 3,    /* a period of zero, or beyond an hour */
    TAKT_ETWICE = 4,     /* a loop of that name is open already in this process */
    TAKT_ELOOPS = 5,     /* this process has declared 64 different loops already */
    TAKT_EJOB = 6,       /* no job is under way */
    TAKT_ESTAGES = 7,    /* the loop has 8 stages already */
    TAKT_EKIND = 8,      /* a periodic loop waits; a driven loop is released */
    TAKT_EMEMORY = 9,    /* the system gives no memory */
    TAKT_ESYSTEM = 10,   /* the system refuses the call; errno says why */
    TAKT_EBUSY = 11,     /* another thread holds the lock */
    TAKT_EDEADLOCK = 12, /* this thread holds the lock already */
    TAKT_EINTERNAL = 13  /* a fault of the library */
} takt_error;

/* One sentence for an error code, negative or positive, with the way out. The text is constant. */
const char *takt_strerror(int error);

/* ---------------------------------------------------------------------------------------------------------------- loops */

#define TAKT_MAX_NAME 47       /* bytes of a loop's name */
#define TAKT_MAX_STAGES 8      /* stages of a loop */
#define TAKT_MAX_STAGE_NAME 15 /* bytes of a stage's name */
#define TAKT_MAX_LOOPS 64      /* different names of loops in one process */

/* A loop: opaque, used by one thread. */
typedef struct takt_loop takt_loop;

/* Declares a loop that is released by time, every period_ns. A deadline of 0 is the period. Returns NULL and sets *error (where
 * error is not NULL) to a negative takt_error when it fails. After takt_loop_close the name may be declared again. */
takt_loop *takt_loop_open(const char *name, uint64_t period_ns, uint64_t deadline_ns, int *error);

/* Declares a loop that an input releases: a message, an interrupt, a callback. A deadline of 0 says that there is none. */
takt_loop *takt_loop_open_driven(const char *name, uint64_t deadline_ns, int *error);

/* Ends an open job, and closes the loop. NULL is ignored. */
void takt_loop_close(takt_loop *loop);

/* How long before its release the loop stops sleeping and spins, 0 at first: lateness falls, for a CPU that is busy for so long in
 * every period. At most the period. */
int takt_loop_spin_margin(takt_loop *loop, uint64_t ns);

/* [real-time] Ends an open job, sleeps until the next release of the grid, and begins the job of that release. The first release is
 * one period after the first call. Returns how many releases were passed over because the job before overran them (0: none). An
 * overrun keeps the phase: the newest release that has passed is returned at once, late. Signals do not end the sleep. */
int64_t takt_loop_wait(takt_loop *loop);

/* [real-time] The first half of takt_loop_wait, for those who sleep in their own way (epoll, timerfd, asyncio): ends an open job,
 * decides on the next release and stores its time. Returns how many releases were passed over. Then sleep until that time, and call
 * takt_loop_begin. */
int64_t takt_loop_next(takt_loop *loop, uint64_t *release_ns);

/* [real-time] The second half: begins the job of the release that takt_loop_next decided on. */
int takt_loop_begin(takt_loop *loop);

/* [real-time] Of a driven loop: ends an open job, and begins one that was released at at_ns, such as the time stamp of the input. 0
 * is now. */
int takt_loop_release(takt_loop *loop, uint64_t at_ns);

/* [real-time] Sequence number of the input that this job consumes; 0 is none. */
int takt_loop_input(takt_loop *loop, uint64_t sequence);

/* [real-time] A named stage of the job begins; it ends with the next stage, or with the job. */
int takt_loop_stage(takt_loop *loop, const char *name);

/* [real-time] A value of interest of this job, such as the control error. */
int takt_loop_value(takt_loop *loop, double value);

/* [real-time] The job is done. What follows until the next release is none of it. */
int takt_loop_end(takt_loop *loop);

/* [real-time] When the job under way was released and when it began; 0 where there is none, or where a driven job began without a
 * session. */
uint64_t takt_loop_release_ns(const takt_loop *loop);
uint64_t takt_loop_begin_ns(const takt_loop *loop);

/* [real-time] Releases passed over since the loop was opened. */
uint64_t takt_loop_skipped(const takt_loop *loop);

/* [real-time] 1 while a session of Takt takes the loop's records, else 0. */
int takt_loop_attached(const takt_loop *loop);

/* [real-time] CLOCK_MONOTONIC, nanoseconds. */
uint64_t takt_now_ns(void);

/* ---------------------------------------------------------------------------------------------------- settings of a thread */

typedef enum takt_policy {
    TAKT_POLICY_KEEP = 0,  /* leave it as it is */
    TAKT_POLICY_OTHER = 1, /* SCHED_OTHER; priority is the nice value */
    TAKT_POLICY_FIFO = 2,  /* SCHED_FIFO; priority 1 to 99 */
    TAKT_POLICY_RR = 3,    /* SCHED_RR; priority 1 to 99 */
    TAKT_POLICY_DEADLINE = 4 /* SCHED_DEADLINE; runtime_ns, deadline_ns, period_ns */
} takt_policy;

typedef enum takt_memory {
    TAKT_MEMORY_KEEP = 0,    /* leave it as it is */
    TAKT_MEMORY_CURRENT = 1, /* lock what is mapped now */
    TAKT_MEMORY_ALL = 2      /* lock what is mapped now and later */
} takt_memory;

/* What is asked for the calling thread. Begin with `takt_thread_settings settings = TAKT_THREAD_SETTINGS;`. */
typedef struct takt_thread_settings {
    uint32_t size;                 /* sizeof(takt_thread_settings) */
    int32_t policy;                /* a takt_policy */
    int32_t priority;              /* a priority, or the nice value of TAKT_POLICY_OTHER */
    int32_t lock_memory;           /* a takt_memory; of the whole process */
    const char *cpus;              /* "1", "2-3,5"; NULL leaves them as they are */
    uint64_t runtime_ns;           /* of TAKT_POLICY_DEADLINE */
    uint64_t deadline_ns;
    uint64_t period_ns;
    uint64_t prefault_stack_bytes; /* so much of the stack is touched now, so that it does not fault later */
    uint64_t prefault_heap_bytes;  /* so much heap is touched and kept by the allocator (glibc) */
} takt_thread_settings;

#define TAKT_THREAD_SETTINGS {(uint32_t)sizeof(takt_thread_settings), 0, 0, 0, NULL, 0, 0, 0, 0, 0}

/* Bits of takt_thread_granted.differences. */
#define TAKT_DIFFERS_MEMORY 1u
#define TAKT_DIFFERS_CPUS 2u
#define TAKT_DIFFERS_POLICY 4u
#define TAKT_DIFFERS_STACK 8u

/* What the thread has afterwards, read back from the kernel. Begin with `takt_thread_granted granted = TAKT_THREAD_GRANTED;`. */
typedef struct takt_thread_granted {
    uint32_t size;                 /* sizeof(takt_thread_granted) */
    uint32_t differences;          /* TAKT_DIFFERS_ bits: what is not as asked */
    int32_t tid;                   /* the thread */
    int32_t policy;                /* a takt_policy; -1 for another one */
    int32_t priority;              /* its priority, or its nice value */
    int32_t reserved;
    uint64_t runtime_ns;           /* of TAKT_POLICY_DEADLINE */
    uint64_t deadline_ns;
    uint64_t period_ns;
    uint64_t locked_bytes;         /* locked memory of the process */
    char cpus[256];                /* where it may run: "0-3" */
    char why[768];                 /* a sentence for each difference, with its fix; empty when there is none */
} takt_thread_granted;

#define TAKT_THREAD_GRANTED {(uint32_t)sizeof(takt_thread_granted), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}}

/* Gives the calling thread these settings, and reads back what the kernel granted. It goes on after a refusal. Returns the number of
 * settings that are not as asked (0: all are granted), or a negative takt_error for what cannot be meant, such as
 * a priority of 120. granted may be NULL. */
int takt_thread_apply(const takt_thread_settings *asked, takt_thread_granted *granted);

/* ------------------------------------------------------------------------------------------------------------- exchanges */

/* The newest value, from one writing thread to one reading thread. Wait-free on both sides: neither waits for the other, and a value
 * is never torn. For several readers, make several. */
typedef struct takt_exchange takt_exchange;

/* Values of so many bytes, 1 to 16 MiB. */
takt_exchange *takt_exchange_create(size_t bytes, int *error);

/* After both sides have ended. NULL is ignored. */
void takt_exchange_destroy(takt_exchange *exchange);

/* [real-time] Bytes of its values. */
size_t takt_exchange_bytes(const takt_exchange *exchange);

/* [real-time] Of the writing thread: where to put the next value. Its bytes are those of an older value. */
void *takt_exchange_buffer(takt_exchange *exchange);

/* [real-time] Of the writing thread: publishes what the buffer holds. */
int takt_exchange_publish(takt_exchange *exchange);

/* [real-time] Of the writing thread: copies a value and publishes it. */
int takt_exchange_write(takt_exchange *exchange, const void *value);

/* [real-time] Of the reading thread: the newest value, which stays as it is until the next read. *sequence, where given, counts the
 * published values; 0 is none, and the bytes are zeros then. */
const void *takt_exchange_read(takt_exchange *exchange, uint64_t *sequence);

/* ----------------------------------------------------------------------------------------------------------------- locks */

/* A lock with priority inheritance: the thread that holds it runs at the priority of the highest thread that waits. */
typedef struct takt_mutex takt_mutex;

takt_mutex *takt_mutex_create(int *error);

/* Nobody holds it. NULL is ignored. */
void takt_mutex_destroy(takt_mutex *mutex);

/* Waits while another thread holds it. -TAKT_EDEADLOCK where this thread holds it already. */
int takt_mutex_lock(takt_mutex *mutex);

/* -TAKT_EBUSY where another thread holds it, -TAKT_EDEADLOCK where this one does. */
int takt_mutex_try_lock(takt_mutex *mutex);

/* Of the thread that holds it. */
int takt_mutex_unlock(takt_mutex *mutex);

#ifdef __cplusplus
}
#endif

/* ThreadSanitizer does not see into the library: this tells it how an exchange orders its two threads. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TAKT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TAKT_TSAN 1
#endif
#ifdef TAKT_TSAN
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static inline int takt_tsan_publish(takt_exchange *exchange) {
    /* Both ways: a buffer that the reader has left is the writer's again. */
    __tsan_release(exchange);
    int result = takt_exchange_publish(exchange);
    __tsan_acquire(exchange);
    return result;
}
static inline int takt_tsan_write(takt_exchange *exchange, const void *value) {
    void *buffer = takt_exchange_buffer(exchange);
    if (buffer == NULL || value == NULL) {
        return -TAKT_EARGUMENT;
    }
    memcpy(buffer, value, takt_exchange_bytes(exchange));
    return takt_tsan_publish(exchange);
}
static inline const void *takt_tsan_read(takt_exchange *exchange, uint64_t *sequence) {
    __tsan_release(exchange);
    const void *value = takt_exchange_read(exchange, sequence);
    __tsan_acquire(exchange);
    return value;
}
#ifdef __cplusplus
}
#endif
#define takt_exchange_publish(exchange) takt_tsan_publish(exchange)
#define takt_exchange_write(exchange, value) takt_tsan_write(exchange, value)
#define takt_exchange_read(exchange, sequence) takt_tsan_read(exchange, sequence)
#endif

#endif /* TAKT_H */
