/* The loop that a plain program would have: sleeps to absolute releases with clock_nanosleep, keeps the phase, and takes the
 * newest release when it is late. It shares nothing with Takt and sets nothing: scheduling, slack and placement are inherited.
 *
 * plain PERIOD_NS SECONDS prints "jobs skipped sum_of_lateness_ns greatest_lateness_ns". */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	const uint64_t period = strtoull(arguments[1], NULL, 10);
	const uint64_t length = strtoull(arguments[2], NULL, 10) * 1000000000u;
	if (period == 0)
		return 2;
	const uint64_t first = now();
	uint64_t planned = first, jobs = 0, skipped = 0, sum = 0, greatest = 0;
	for (;;) {
		const uint64_t before = now();
		if (before > planned) {
			const uint64_t passed = (before - planned) / period;
			skipped += passed;
			planned += passed * period;
		}
		const struct timespec release = { (time_t)(planned / 1000000000u), (long)(planned % 1000000000u) };
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &release, NULL) == EINTR)
			;
		const uint64_t awake = now();
		if (awake - first >= length)
			break;
		jobs++;
		sum += awake - planned;
		if (awake - planned > greatest)
			greatest = awake - planned;
		planned += period;
	}
	printf("%llu %llu %llu %llu\n", (unsigned long long)jobs, (unsigned long long)skipped, (unsigned long long)sum,
	       (unsigned long long)greatest);
	return 0;
}
