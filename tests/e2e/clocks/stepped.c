/* A wall clock that a test can step, for one process: nanoseconds from a file are added to it. Without such a library a
 * test would have to step the clock of the whole machine. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long result = syscall(SYS_clock_gettime, clock, now);
	if (result != 0 || clock != CLOCK_REALTIME)
		return result;
	FILE *file = fopen(STEP_FILE, "r");
	long long step = 0;
	if (file != NULL) {
		if (fscanf(file, "%lld", &step) != 1)
			step = 0;
		fclose(file);
	}
	long long time = now->tv_sec * SECOND + now->tv_nsec + step;
	now->tv_sec = time / SECOND;
	now->tv_nsec = time % SECOND;
	return 0;
}
