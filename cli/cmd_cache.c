/* cache: what a cache directory holds, whether it is whole; making it smaller; filling it
 * with a source. */
#include "cli.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *age_text(int64_t since_ns, char out[24]) {
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    if (since_ns == 0)
        return "-";
    int64_t age = (int64_t)time(NULL) - since_ns / 1000000000;
    age = age < 0 ? 0 : age;
    size_t i = 0;
    while (i < 3 && age < 2 * units[i].seconds)
        i++;
    snprintf(out, 24, "%lld %s", (long long)(age / units[i].seconds), units[i].name);
    return out;
}

/* --- ls --- */

struct found {
    struct sqrl_cache_object *objects; /* url and version are owned */
    size_t count, capacity;
    uint64_t disk_bytes;
};

static int add_object(void *arg, const struct sqrl_cache_object *object) {
    struct found *found = arg;
    if (cli_interrupted())
        return SQRL_E_CANCELLED;
    if (found->count == found->capacity) {
        size_t capacity = found->capacity ? 2 * found->capacity : 64;
        void *objects = realloc(found->objects, capacity * sizeof *found->objects);
        if (!objects)
            return SQRL_E_NO_MEMORY;
        found->objects = objects;
        found->capacity = capacity;
    }
    struct sqrl_cache_object *kept = &found->objects[found->count];
    *kept = *object;
    kept->url = strdup(object->url);
    kept->version = strdup(object->version);
    found->count++;
    found->disk_bytes += object->disk_bytes;
    return kept->url && kept->version ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int by_url(const void *a, const void *b) {
    const struct sqrl_cache_object *x = a, *y = b;
    int order = strcmp(x->url, y->url);
    return order                           ? order
           : x->fetched_ns < y->fetched_ns ? -1
                                           : x->fetched_ns > y->fetched_ns;
}

static void put_time(struct sqrl_bytes *out, const char *key, int64_t ns) {
    cli_put_number(out, key, ns ? (uint64_t)(ns / 1000000000) : SQRL_UNKNOWN);
}

static void print_objects_json(const struct found *found) {
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 2);
    cli_put_number(&report, "disk_bytes", found->disk_bytes);
    cli_put_key(&report, "objects");
    cli_put_array(&report, found->count);
    for (size_t i = 0; i < found->count; i++) {
        const struct sqrl_cache_object *o = &found->objects[i];
        cli_put_map(&report, 9);
        cli_put_text(&report, "url", o->url);
        cli_put_text(&report, "version", o->version);
        cli_put_number(&report, "object_bytes", o->object_bytes);
        cli_put_number(&report, "cached_bytes", o->cached_bytes);
        cli_put_number(&report, "disk_bytes", o->disk_bytes);
        cli_put_number(&report, "pieces", o->pieces);
        put_time(&report, "fetched", o->fetched_ns);
        put_time(&report, "used", o->used_ns);
        put_time(&report, "checked", o->checked_ns);
    }
    cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static void print_objects(const struct found *found) {
    char size[2][32], age[3][24], count[48];
    for (size_t i = 0; i < found->count; i++) {
        const struct sqrl_cache_object *o = &found->objects[i];
        printf("%10s of %10s  fetched %s ago, used %s ago, current %s ago  %s\n",
               cli_size_text(o->cached_bytes, size[0]),
               cli_size_text(o->object_bytes, size[1]), age_text(o->fetched_ns, age[0]),
               age_text(o->used_ns, age[1]), age_text(o->checked_ns, age[2]), o->url);
    }
    printf("%s, %s on the disk\n", cli_count_text(found->count, "object", count),
           cli_size_text(found->disk_bytes, size[0]));
}

static int run_ls(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct found found = {0};
    int code = sqrl_cache_list(args->word[1], add_object, &found, &err);
    if (code == SQRL_E_CANCELLED || (code == SQRL_E_NO_MEMORY && !err.code))
        sqrl_error_set(&err, code, "out of memory");
    if (code == SQRL_OK) {
        if (found.count)
            qsort(found.objects, found.count, sizeof *found.objects, by_url);
        if (args->json)
            print_objects_json(&found);
        else
            print_objects(&found);
    }
    for (size_t i = 0; i < found.count; i++) {
        free((void *)(uintptr_t)found.objects[i].url);
        free((void *)(uintptr_t)found.objects[i].version);
    }
    free(found.objects);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

/* --- verify, prune --- */

static void print_report(const struct cli_args *args,
                         const struct sqrl_cache_report *report, const char *what) {
    char size[2][32], count[2][48];
    if (args->json) {
        struct sqrl_bytes line = {0};
        cli_put_map(&line, 4);
        cli_put_number(&line, "files", report->files);
        cli_put_number(&line, "bytes", report->bytes);
        cli_put_number(&line, "removed_files", report->removed_files);
        cli_put_number(&line, "removed_bytes", report->removed_bytes);
        cli_print_json(&line, stdout);
        sqrl_bytes_reset(&line);
        return;
    }
    printf("%s, %s; %s%s (%s) removed\n", cli_count_text(report->files, "file", count[0]),
           cli_size_text(report->bytes, size[0]), what,
           cli_count_text(report->removed_files, "file", count[1]),
           cli_size_text(report->removed_bytes, size[1]));
}

struct verifying {
    struct cli_progress progress;
};

static int show_verified(void *arg, const struct sqrl_cache_report *so_far) {
    struct verifying *v = arg;
    cli_progress_show(&v->progress, so_far->bytes, so_far->bytes);
    return cli_interrupted() ? SQRL_E_CANCELLED : 0;
}

static int run_verify(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_cache_report report;
    struct verifying v;
    cli_progress_start(&v.progress, args, "verify", SQRL_UNKNOWN);
    v.progress.of_bytes = true;
    int code = sqrl_cache_verify(args->word[1], show_verified, &v, &report, &err);
    cli_progress_end(&v.progress);
    if (code)
        return cli_fail(args, &err);
    print_report(args, &report, "damaged: ");
    return report.removed_files ? EXIT_FAILED : EXIT_DONE;
}

/* "7d", "12h", "30min", "90s" or seconds. */
static int read_age(const struct cli_args *args, const char *name, uint64_t *out,
                    struct sqrl_error *err) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}, {"", 1}};
    const char *text = cli_value(args, name);
    char *end;
    *out = UINT64_MAX;
    if (!text)
        return SQRL_OK;
    double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0 && number >= 0 &&
            number * units[i].seconds < 1e10) {
            *out = (uint64_t)(number * units[i].seconds * 1e9);
            return SQRL_OK;
        }
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "--%s wants a time such as 7d, 12h, 30min or 90s, not '%s'",
                          name, text);
}

static int run_prune(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_cache_report report;
    uint64_t keep = UINT64_MAX, unused;
    if (!cli_value(args, "keep") && !cli_value(args, "unused"))
        return cli_usage(args, "prune wants --keep SIZE, --unused TIME, or both");
    int code = read_age(args, "unused", &unused, &err);
    if (code == SQRL_OK && cli_value(args, "keep"))
        code = cli_size(args, "keep", &keep, &err);
    if (code == SQRL_OK)
        code = sqrl_cache_prune(args->word[1], keep, unused, &report, &err);
    if (code)
        return cli_fail(args, &err);
    print_report(args, &report, "");
    return EXIT_DONE;
}

/* --- warm --- */

/* Several shards at a time: one waits for its server, or for its index. */
enum { WARMERS = 8, LOOK_NS = 50000000, PATIENCE = 10 };

struct warming {
    struct cli_progress progress;
    struct sqrl_source *source;
    struct sqrl_cancel cancel;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t ended;
    uint64_t shards, next, done; /* done: bytes */
    unsigned running;
    int code; /* of the first that failed */
    struct sqrl_error err;
};

static int count_fetched(void *arg, uint64_t bytes) {
    struct warming *w = arg;
    pthread_mutex_lock(&w->lock);
    w->done += bytes;
    pthread_mutex_unlock(&w->lock);
    return sqrl_cancel_requested(&w->cancel) ? SQRL_E_CANCELLED : SQRL_OK;
}

static void *warm_shards(void *arg) {
    struct warming *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->next < w->shards && w->code == SQRL_OK) {
        uint64_t shard = w->next++;
        struct sqrl_error err = {0};
        pthread_mutex_unlock(&w->lock);
        int code =
            sqrl_source_fetch(w->source, shard, count_fetched, w, &w->cancel, &err);
        pthread_mutex_lock(&w->lock);
        if (code && w->code == SQRL_OK) {
            w->code = code;
            w->err = err;
            sqrl_cancel_request(&w->cancel);
        }
    }
    w->running--;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Shows how far they are, until all have ended. Opening a file can't be cancelled: who is
 * interrupted leaves it behind, as a cache takes no harm from that. */
static void watch_warming(struct warming *w) {
    unsigned patience = PATIENCE;
    pthread_mutex_lock(&w->lock);
    while (w->running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->ended, &w->lock, &until);
        uint64_t done = w->done;
        pthread_mutex_unlock(&w->lock);
        cli_progress_show(&w->progress, done, done);
        if (cli_interrupted()) {
            sqrl_cancel_request(&w->cancel);
            if (patience-- == 0) {
                fprintf(stderr, "squirrel cache: interrupted\n");
                _exit(EXIT_SIGNAL + cli_interrupted());
            }
        }
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

static int warm_all(struct warming *w, struct sqrl_error *err) {
    pthread_t threads[WARMERS];
    unsigned count = 0;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ended, NULL);
    for (; count < WARMERS && count < w->shards; count++) {
        pthread_mutex_lock(&w->lock);
        w->running++;
        pthread_mutex_unlock(&w->lock);
        if (pthread_create(&threads[count], NULL, warm_shards, w) == 0)
            continue;
        pthread_mutex_lock(&w->lock);
        w->running--;
        if (count == 0)
            w->code = sqrl_error_set(&w->err, SQRL_E_NO_MEMORY, "no thread can be made");
        pthread_mutex_unlock(&w->lock);
        break;
    }
    watch_warming(w);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    *err = w->err;
    return w->code;
}

static void print_warmed(const struct cli_args *args, struct sqrl_source *source,
                         const struct warming *w) {
    struct sqrl_fs_metrics metrics;
    char size[2][32], count[48];
    sqrl_source_metrics(source, &metrics);
    uint64_t shards = sqrl_source_shards(source);
    if (args->json) {
        struct sqrl_bytes line = {0};
        cli_put_map(&line, 3);
        cli_put_number(&line, "shards", shards);
        cli_put_number(&line, "bytes", w->done);
        cli_put_number(&line, "fetched_bytes", metrics.bytes);
        cli_print_json(&line, stdout);
        sqrl_bytes_reset(&line);
        return;
    }
    printf("%s: %s, %s, of which %s were fetched now\n", args->word[1],
           cli_count_text(shards, "shard", count), cli_size_text(w->done, size[0]),
           cli_size_text(metrics.bytes, size[1]));
}

static bool has_cache(const struct cli_args *args) {
    for (size_t i = 0; i < args->setting_count; i++)
        if (strcmp(args->settings[i].name, "cache") == 0)
            return true;
    return false;
}

static int run_warm(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_source *source = NULL;
    struct warming w = {.code = SQRL_OK};
    if (!has_cache(args) && !cli_names_source(args->word[1]))
        return cli_usage(args, "warm wants --cache DIRECTORY?limit=SIZE");
    int code = cli_open(args, args->word[1], &source, &err);
    uint64_t total = 0;
    w.source = source;
    w.shards = code ? 0 : sqrl_source_shards(source);
    for (uint64_t i = 0; i < w.shards; i++)
        total += sqrl_source_shard(source, i)->file_bytes;
    cli_progress_start(&w.progress, args, "warm", total);
    w.progress.of_bytes = true;
    if (code == SQRL_OK)
        code = warm_all(&w, &err);
    cli_progress_end(&w.progress);
    if (code == SQRL_OK)
        print_warmed(args, source, &w);
    sqrl_source_unref(source);
    return code ? cli_fail(args, &err) : EXIT_DONE;
}

/* --- the command --- */

static int run_cache(struct cli_args *args) {
    static const struct {
        const char *name;
        int (*run)(struct cli_args *args);
    } actions[] = {
        {"ls", run_ls}, {"verify", run_verify}, {"prune", run_prune}, {"warm", run_warm}};
    struct cli_nearest nearest = {.name = args->word[0]};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(args->word[0], actions[i].name) == 0)
            return actions[i].run(args);
        cli_nearest_try(&nearest, actions[i].name);
    }
    return cli_usage(args, "there is no action '%s'; %s%s", args->word[0],
                     nearest.found ? "did you mean " : "they are ls, verify, prune, warm",
                     nearest.found ? nearest.found : "");
}

static const struct cli_option cache_options[] = {
    {"keep", 0, "SIZE", "prune: to at most so much, what was used last stays"},
    {"unused", 0, "TIME", "prune: what was not read for so long (7d, 12h, 30min)"},
    {0}};

const struct cli_command cli_cache = {
    "cache",
    "ls|verify|prune DIRECTORY | warm URL --cache DIRECTORY",
    "what a cache of remote files holds; check it, make it smaller, fill it",
    cache_options,
    2,
    2,
    CLI_READS,
    run_cache};
