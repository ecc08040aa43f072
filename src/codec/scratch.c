/* scratch.c - working memory that a thread keeps for its next one-shot call.
 *
 * One pthread key holds a small table per thread; the key's destructor frees it when the
 * thread ends. The key is thread-local storage, not shared state: a forked child inherits
 * only its own thread's table. If no key or no table can be had, things are made and
 * freed at each call. */
#include "codec/codec.h"

#include <stdlib.h>

/* A detached thread that the process's end overtakes keeps its table: no leak. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define NOT_A_LEAK(table) __lsan_ignore_object(table)
#else
#define NOT_A_LEAK(table) ((void)(table))
#endif

struct slot {
    void *thing;
    void (*release)(void *thing);
};
struct table {
    struct slot slots[SQRL_SCRATCHES];
};

static pthread_key_t key;
static bool key_made;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void free_table(void *arg) {
    struct table *table = arg;
    for (size_t i = 0; i < SQRL_SCRATCHES; i++) {
        if (table->slots[i].thing)
            table->slots[i].release(table->slots[i].thing);
    }
    free(table);
}

static void make_key(void) {
    key_made = pthread_key_create(&key, free_table) == 0;
}

/* Runs at exit and when the library is unloaded: no destructor may be left pointing into
 * it. */
__attribute__((destructor)) static void drop_key(void) {
    if (!key_made)
        return;
    struct table *table = pthread_getspecific(key);
    pthread_key_delete(key);
    key_made = false;
    if (table)
        free_table(table);
}

void *sqrl_scratch_take(enum sqrl_scratch kind) {
    pthread_once(&key_once, make_key);
    struct table *table = key_made ? pthread_getspecific(key) : NULL;
    if (!table)
        return NULL;
    void *thing = table->slots[kind].thing;
    table->slots[kind].thing = NULL;
    return thing;
}

void sqrl_scratch_give(enum sqrl_scratch kind, void *thing,
                       void (*release)(void *thing)) {
    if (!thing)
        return;
    struct table *table = key_made ? pthread_getspecific(key) : NULL;
    if (!table && key_made) {
        table = sqrl_calloc(1, sizeof(*table), "codec scratch", NULL);
        if (table && pthread_setspecific(key, table) != 0) {
            free(table);
            table = NULL;
        }
        NOT_A_LEAK(table);
    }
    if (!table || table->slots[kind].thing) {
        release(thing);
        return;
    }
    table->slots[kind] = (struct slot){thing, release};
}
