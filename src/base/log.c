/* log.c - one clean line at a time to one sink.
 *
 * The sink runs under the sink's lock, so that a replaced sink is never called again once
 * sqrl_context_set_log has returned. A sink must therefore not log to the same context.
 */
#include <stdarg.h>
#include <stdio.h>

#include "inner.h"

#define LINE_BYTES 2048

static void print_line(void *arg, enum sqrl_log_level level, const char *line) {
    (void)arg;
    fprintf(stderr, "squirrel: %s%s\n", level == SQRL_LOG_WARNING ? "warning: " : "",
            line);
}

void sqrl_sink_set(struct sqrl_log_sink *sink, sqrl_log_fn log, void *arg, int level) {
    sink->log = log != NULL ? log : print_line;
    sink->arg = arg;
    if (log == NULL)
        level = SQRL_MAX(level, (int)SQRL_LOG_WARNING);
    __atomic_store_n(&sink->level, level, __ATOMIC_RELAXED);
}

void sqrl_context_set_log(struct sqrl_context *context, sqrl_log_fn log, void *arg,
                          enum sqrl_log_level level) {
    struct sqrl_log_sink *sink = &context->sink;
    sqrl_lock_take(&sink->lock);
    sqrl_sink_set(sink, log, arg, (int)level);
    sqrl_lock_drop(&sink->lock);
}

void sqrl_log(struct sqrl_context *context, enum sqrl_log_level level, const char *format,
              ...) {
    struct sqrl_log_sink *sink = &context->sink;
    if ((int)level < __atomic_load_n(&sink->level, __ATOMIC_RELAXED))
        return;
    char text[LINE_BYTES], line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0)
        return;
    sqrl_text_clean(line, sizeof line, text, NULL);
    sqrl_lock_take(&sink->lock);
    sink->log(sink->arg, level, line);
    sqrl_lock_drop(&sink->lock);
}
