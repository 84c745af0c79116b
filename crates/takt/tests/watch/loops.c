/* Loops that behave in one way each, for `takt watch` to find out from outside.
 *
 *   loops pairs A_US B_US...     releases A, B, ... microseconds apart in turn, until a time
 *   loops spin udp|pipe|file US  never sleeps, and sends or writes every US microseconds
 *   loops nap [NAP] US           polls with sleeps of NAP (50) us, and writes every US microseconds
 *   loops seldom MS              a loop of 2 ms; every MS another thread takes its CPU for 7 ms
 *   loops lock MS                a loop of 2 ms; every MS another thread holds its lock for 11 ms
 *   loops work MS                a loop of 2 ms that takes 5 ms itself every MS
 *   loops names                  three loops in threads of one name, of 2, 5 and 10 ms
 *
 * With real-time priority and a CPU for it where that is permitted. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const int64_t US = 1000, MS = 1000000;
static pthread_mutex_t lock;

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 * MS + at.tv_nsec;
}

static void until(int64_t ns) {
    struct timespec at = {ns / (1000 * MS), ns % (1000 * MS)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

static void compute(int64_t ns) {
    for (int64_t end = now() + ns; now() < end;) {
    }
}

/* Real time of this priority, on the last CPU. */
static void favoured(int priority) {
    struct sched_param param = {.sched_priority = priority};
    sched_setscheduler(0, SCHED_FIFO, &param);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
}

static int sink(const char *what, int *second) {
    *second = -1;
    if (!strcmp(what, "udp")) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        connect(fd, (struct sockaddr *)&to, sizeof to);
        return fd;
    }
    if (!strcmp(what, "pipe")) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK)) exit(3);
        *second = ends[0];
        return ends[1];
    }
    return open("/dev/null", O_WRONLY);
}

static void spin(const char *what, int64_t period, int64_t nap) {
    int second, fd = sink(what, &second);
    char byte = 0, many[64];
    favoured(5);
    for (int64_t next = now();; next += period) {
        while (now() < next) {
            struct timespec some = {0, nap};
            if (nap) clock_nanosleep(CLOCK_MONOTONIC, 0, &some, NULL);
        }
        if (!strcmp(what, "udp")) {
            send(fd, &byte, 1, 0);
        } else if (write(fd, &byte, 1) < 0 && errno != EAGAIN) {
            exit(3);
        }
        while (second >= 0 && read(second, many, sizeof many) > 0) {
        }
    }
}

/* Every so often: takes the CPU for 7 ms, or holds the lock for 11 ms. */
static int64_t often;
static void *hog(void *locks) {
    prctl(PR_SET_NAME, "hog");
    favoured(locks ? 20 : 60);
    for (int64_t next = now() + often;; next += often) {
        until(next);
        if (locks) {
            pthread_mutex_lock(&lock);
            until(now() + 11 * MS);
            pthread_mutex_unlock(&lock);
        } else {
            compute(7 * MS);
        }
    }
    return NULL;
}

static void beside(void *locks) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lock, &attr);
    pthread_t thread;
    pthread_create(&thread, NULL, hog, locks);
}

static void *worker(void *period) {
    prctl(PR_SET_NAME, "worker");
    favoured(40);
    for (int64_t next = now();; next += (int64_t)(intptr_t)period) {
        until(next);
        compute(20 * US);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    int64_t number = argc > 2 ? atoll(argv[argc - 1]) : 0;
    if (!strcmp(way, "pairs")) {
        favoured(50);
        int64_t next = now();
        for (int at = 0;; at = (at + 1) % (argc - 2)) {
            next += atoll(argv[2 + at]) * US;
            until(next);
            compute(10 * US);
        }
    } else if (!strcmp(way, "spin")) {
        spin(argv[2], number * US, 0);
    } else if (!strcmp(way, "nap")) {
        spin("file", number * US, (argc > 3 ? atoll(argv[2]) : 50) * US);
    } else if (!strcmp(way, "seldom") || !strcmp(way, "lock") || !strcmp(way, "work")) {
        often = number * MS;
        int locks = !strcmp(way, "lock"), works = !strcmp(way, "work");
        if (!works) beside(locks ? &lock : NULL);
        favoured(50);
        int64_t begin = now(), busy = begin + often;
        for (int64_t next = begin;; next += 2 * MS) {
            until(next);
            if (locks) pthread_mutex_lock(&lock);
            compute(100 * US);
            if (locks) pthread_mutex_unlock(&lock);
            if (works && now() > busy) {
                compute(5 * MS);
                busy += often;
            }
        }
    } else if (!strcmp(way, "names")) {
        for (int64_t period = 2; period <= 10; period += period == 2 ? 3 : 5) {
            pthread_t thread;
            pthread_create(&thread, NULL, worker, (void *)(intptr_t)(period * MS));
            /* One after the other, also where numbers of threads begin anew. */
            usleep(30000);
        }
        pause();
    }
    return 2;
}
