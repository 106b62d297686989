/* Preloaded, lets a process's wall clock be off by the seconds in the file CLOCK_OFFSET_FILE (int64, as the machine
   has it), which may change at any time. Other clocks are left as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile int64_t *offset_seconds;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY);
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    offset_seconds = mmap(NULL, sizeof *offset_seconds, PROT_READ, MAP_SHARED, file, 0);
    if (offset_seconds == MAP_FAILED)
        abort();
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += *offset_seconds;
    return result;
}
