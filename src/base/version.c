#include "sqrl/context.h"

const char *sqrl_version(void) {
    return SQRL_VERSION;
}
