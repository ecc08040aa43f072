#include <stdlib.h>

#include "inner.h"

enum { CPU_UNKNOWN, CPU_SCALAR, CPU_AVX2 };

static int chosen; /* atomic: every thread that comes first finds the same answer */

#if defined(__x86_64__)
#include <cpuid.h>

static bool machine_has_avx2(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2"))
        return false;
    unsigned a, b, c, d; /* LZCNT has no name in older compilers' list */
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & (1u << 5)) != 0;
}
#else
static bool machine_has_avx2(void) {
    return false;
}
#endif

bool sqrl_cpu_choose(const char *wish, bool have_avx2) {
    if (wish == NULL || wish[0] == 0)
        return have_avx2;
    return have_avx2 && strcmp(wish, "avx2") == 0;
}

bool sqrl_cpu_avx2(void) {
    int now = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (SQRL_UNLIKELY(now == CPU_UNKNOWN)) {
        now = sqrl_cpu_choose(getenv("SQRL_CPU"), machine_has_avx2()) ? CPU_AVX2
                                                                      : CPU_SCALAR;
        __atomic_store_n(&chosen, now, __ATOMIC_RELAXED);
    }
    return now == CPU_AVX2;
}

const char *sqrl_cpu_name(void) {
    return sqrl_cpu_avx2() ? "avx2" : "scalar";
}
