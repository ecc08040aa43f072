/* memory.c - mem://: files in memory, one store a context; for tests and examples.
 *
 * Behaves as an object store: a directory is there when something lies below it, or when
 * it was made. Content is immutable once committed, so readers hold a reference and need
 * no lock. Contents are plain memory (not slabs): a slab's buffer would hold the context,
 * which owns the store. */
#include "io/io.h"

#include <stdlib.h>

#define MAX_BYTES ((uint64_t)4 << 30)
#define MAX_ENTRIES ((size_t)1 << 20)

struct entry {
    char *path;
    struct sqrl_buffer *content; /* NULL: a directory that was made */
    int64_t modified_ns;
};

struct sqrl_memory_store {
    struct sqrl_lock lock;
    struct entry *entries; /* in byte order of paths */
    size_t count, capacity;
    uint64_t bytes;
};

struct memory {
    struct sqrl_memory_store *store;
    struct sqrl_context *context;
};

struct memory_writer {
    char *path;
    uint8_t *data;
    size_t size, capacity;
    bool replace;
};

struct sqrl_memory_store *sqrl_memory_store_new(struct sqrl_error *err) {
    struct sqrl_memory_store *store = sqrl_calloc(1, sizeof(*store), "mem://", err);
    if (store)
        sqrl_lock_init(&store->lock);
    return store;
}

void sqrl_memory_store_free(struct sqrl_memory_store *store) {
    if (!store)
        return;
    for (size_t i = 0; i < store->count; i++) {
        free(store->entries[i].path);
        sqrl_buffer_unref(store->entries[i].content);
    }
    free(store->entries);
    sqrl_lock_reset(&store->lock);
    free(store);
}

static int memory_open(void *fs, struct sqrl_context *context,
                       const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct memory *m = fs;
    if (!context)
        return sqrl_error_set(err, SQRL_E_INVALID, "mem:// needs a context");
    m->context = context;
    m->store = sqrl_io_memory(context, err);
    return m->store ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* --- paths --- */

/* A copy without leading, trailing and doubled slashes. */
static char *clean_path(const char *path, struct sqrl_error *err) {
    char *copy = sqrl_strdup(path, err), *out = copy;
    if (!copy)
        return NULL;
    for (const char *p = path; *p; p++) {
        if (*p != '/' || (out > copy && p[1] != '/' && p[1] != '\0'))
            *out++ = *p;
    }
    *out = '\0';
    return copy;
}

/* Takes the lock for a call about `path`: returns it cleaned, to give to leave(). */
static char *enter(struct sqrl_memory_store *store, const char *path,
                   struct sqrl_error *err) {
    char *clean = clean_path(path, err);
    if (clean)
        sqrl_lock_take(&store->lock);
    return clean;
}

static void leave(struct sqrl_memory_store *store, char *clean) {
    sqrl_lock_drop(&store->lock);
    free(clean);
}

/* The first entry whose path is not below `path` in byte order. */
static size_t lower_bound(const struct sqrl_memory_store *store, const char *path) {
    size_t low = 0, high = store->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(store->entries[mid].path, path) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct entry *find(const struct sqrl_memory_store *store, const char *path) {
    size_t i = lower_bound(store, path);
    bool same = i < store->count && strcmp(store->entries[i].path, path) == 0;
    return same ? &store->entries[i] : NULL;
}

/* The first entry below directory `path`, if any. Others may stand between "a" and "a/":
 * "a-b". */
static size_t first_below(const struct sqrl_memory_store *store, const char *path) {
    size_t n = strlen(path), low = 0, high = store->count;
    if (n == 0)
        return 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strncmp(store->entries[mid].path, path, n);
        if (c < 0 || (c == 0 && (unsigned char)store->entries[mid].path[n] < '/'))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_below(const struct entry *entry, const char *path) {
    size_t n = strlen(path);
    return n == 0 || (strncmp(entry->path, path, n) == 0 && entry->path[n] == '/');
}

static bool is_directory(const struct sqrl_memory_store *store, const char *path) {
    size_t i = first_below(store, path);
    return *path == '\0' || (i < store->count && is_below(&store->entries[i], path));
}

static void fill_stat(const struct entry *entry, struct sqrl_stat *out) {
    memset(out, 0, sizeof(*out));
    out->directory = !entry->content;
    out->size = entry->content ? entry->content->size : 0;
    out->modified_ns = entry->modified_ns;
}

static int not_found(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_NOT_FOUND, "nothing of that name is there");
}

static int memory_stat(void *fs, const char *path, struct sqrl_stat *out,
                       struct sqrl_error *err) {
    struct memory *m = fs;
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(m->store, clean);
    bool found = true;
    if (entry)
        fill_stat(entry, out);
    else
        found = out->directory = is_directory(m->store, clean);
    leave(m->store, clean);
    return found ? SQRL_OK : not_found(err);
}

/* --- listing --- */

/* A copy of what is listed, so that the visitor may use the store. */
struct snapshot {
    struct listed {
        char *name;
        struct sqrl_stat stat;
    } * items;
    size_t count, capacity;
};

static int add_listed(struct snapshot *s, const char *name, size_t length,
                      const struct sqrl_stat *stat, struct sqrl_error *err) {
    if (s->count > 0 && stat->directory) { /* many files below it, one line */
        const char *last = s->items[s->count - 1].name;
        if (s->items[s->count - 1].stat.directory && strlen(last) == length &&
            memcmp(last, name, length) == 0)
            return SQRL_OK;
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? s->capacity * 2 : 64;
        struct listed *grown =
            sqrl_realloc(s->items, capacity * sizeof(*grown), "a listing", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        s->items = grown;
        s->capacity = capacity;
    }
    char *copy = sqrl_format(err, "%.*s", (int)length, name);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    s->items[s->count].name = copy;
    s->items[s->count++].stat = *stat;
    return SQRL_OK;
}

/* The entries below `path`; needs the lock. */
static int take_snapshot(const struct sqrl_memory_store *store, const char *path,
                         bool recursive, struct snapshot *s, struct sqrl_error *err) {
    size_t skip = *path ? strlen(path) + 1 : 0;
    for (size_t i = first_below(store, path); i < store->count; i++) {
        const struct entry *entry = &store->entries[i];
        if (!is_below(entry, path))
            break;
        const char *name = entry->path + skip, *slash = strchr(name, '/');
        struct sqrl_stat stat;
        fill_stat(entry, &stat);
        if (name[0] == '.' || strstr(name, "/.") || (recursive && stat.directory))
            continue;
        size_t length = strlen(name);
        if (slash && !recursive) {
            memset(&stat, 0, sizeof(stat));
            stat.directory = true;
            length = (size_t)(slash - name);
        }
        int rc = add_listed(s, name, length, &stat, err);
        if (rc != SQRL_OK)
            return rc;
    }
    return SQRL_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* One level cut off at slashes: "a/x" stood behind "a-b", "a" belongs before it; and a
 * made directory stands apart from the files below it. */
static void sort_level(struct snapshot *s) {
    if (s->count == 0)
        return;
    qsort(s->items, s->count, sizeof(*s->items), by_name);
    size_t kept = 1;
    for (size_t i = 1; i < s->count; i++) {
        struct listed *last = &s->items[kept - 1], *item = &s->items[i];
        if (last->stat.directory && item->stat.directory &&
            strcmp(last->name, item->name) == 0)
            free(item->name);
        else
            s->items[kept++] = *item;
    }
    s->count = kept;
}

static int memory_list(void *fs, const char *path, bool recursive, sqrl_list_fn visit,
                       void *arg, const struct sqrl_cancel *cancel,
                       struct sqrl_error *err) {
    struct memory *m = fs;
    struct snapshot s = {NULL, 0, 0};
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(m->store, clean);
    int rc = SQRL_OK;
    if (entry && entry->content)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "is a file; a directory is expected here");
    else if (!entry && !is_directory(m->store, clean))
        rc = not_found(err);
    else
        rc = take_snapshot(m->store, clean, recursive, &s, err);
    leave(m->store, clean);
    if (!recursive)
        sort_level(&s);
    for (size_t i = 0; rc == SQRL_OK && i < s.count; i++) {
        if (sqrl_cancel_requested(cancel))
            rc = sqrl_error_set(err, SQRL_E_CANCELLED, "listing was cancelled");
        else
            rc = visit(arg, s.items[i].name, &s.items[i].stat);
    }
    for (size_t i = 0; i < s.count; i++)
        free(s.items[i].name);
    free(s.items);
    return rc;
}

/* --- reading --- */

struct memory_file {
    struct sqrl_buffer *content;
};

static int memory_file_open(void *fs, const char *path, void *file,
                            struct sqrl_stat *stat, struct sqrl_error *err) {
    struct memory *m = fs;
    struct memory_file *f = file;
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(m->store, clean);
    bool directory = is_directory(m->store, clean) || (entry && !entry->content);
    if (entry && entry->content) {
        f->content = sqrl_buffer_ref(entry->content);
        fill_stat(entry, stat);
    }
    leave(m->store, clean);
    if (f->content)
        return SQRL_OK;
    if (directory)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a directory; a file is expected here");
    return not_found(err);
}

static int memory_file_read(void *fs, void *file, struct sqrl_range *ranges, size_t count,
                            const struct sqrl_cancel *cancel, struct sqrl_error *err) {
    struct memory *m = fs;
    const struct sqrl_buffer *content = ((struct memory_file *)file)->content;
    for (size_t i = 0; i < count; i++) {
        struct sqrl_range *r = &ranges[i];
        if (sqrl_cancel_requested(cancel))
            return sqrl_error_set(err, SQRL_E_CANCELLED, "reading was cancelled");
        if (r->offset < content->size) {
            r->got = SQRL_MIN(r->size, content->size - (size_t)r->offset);
            memcpy(r->data, content->data + r->offset, r->got);
        }
        sqrl_count(m->context, SQRL_COUNT_READS, 1);
        sqrl_count(m->context, SQRL_COUNT_BYTES_READ, r->got);
    }
    return SQRL_OK;
}

static void memory_file_close(void *fs, void *file) {
    sqrl_buffer_unref(((struct memory_file *)file)->content);
}

/* --- writing --- */

static void memory_writer_abort(void *fs, void *writer) {
    struct memory_writer *w = writer;
    free(w->path);
    free(w->data);
    memset(w, 0, sizeof(*w));
}

static int taken(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_EXISTS,
                          "is there already; choose another name or ask to replace it");
}

/* May a file be put here? Needs the lock. */
static int check_target(const struct sqrl_memory_store *store, const char *path,
                        bool replace, struct sqrl_error *err) {
    struct entry *entry = find(store, path);
    if ((entry && !entry->content) || is_directory(store, path))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "is a directory; choose another name for the file");
    return entry && !replace ? taken(err) : SQRL_OK;
}

static int memory_writer_open(void *fs, const char *path, bool replace, void *writer,
                              struct sqrl_error *err) {
    struct memory *m = fs;
    struct memory_writer *w = writer;
    w->replace = replace;
    w->path = clean_path(path, err);
    if (!w->path)
        return SQRL_E_NO_MEMORY;
    sqrl_lock_take(&m->store->lock);
    int rc = check_target(m->store, w->path, replace, err);
    sqrl_lock_drop(&m->store->lock);
    if (rc != SQRL_OK)
        memory_writer_abort(fs, w);
    return rc;
}

static int memory_writer_write(void *fs, void *writer, const uint8_t *data, size_t size,
                               struct sqrl_error *err) {
    struct memory_writer *w = writer;
    if (size > MAX_BYTES - w->size)
        return sqrl_error_set(err, SQRL_E_NO_SPACE, "mem:// holds at most %llu bytes",
                              (unsigned long long)MAX_BYTES);
    if (w->size + size > w->capacity) {
        size_t capacity =
            SQRL_MAX(w->size + size, SQRL_MAX((size_t)4096, w->capacity * 2));
        uint8_t *grown = sqrl_realloc(w->data, capacity, "a mem:// file", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        w->data = grown;
        w->capacity = capacity;
    }
    memcpy(w->data + w->size, data, size);
    w->size += size;
    return SQRL_OK;
}

/* Puts an entry in its place, owning path and content if it succeeds; needs the lock. */
static int put(struct sqrl_memory_store *store, char *path, struct sqrl_buffer *content,
               struct sqrl_error *err) {
    size_t i = lower_bound(store, path), size = content ? content->size : 0;
    if (size > MAX_BYTES - store->bytes || store->count == MAX_ENTRIES)
        return sqrl_error_set(err, SQRL_E_NO_SPACE, "mem:// is full: remove something");
    if (store->count == store->capacity) {
        size_t capacity = store->capacity ? store->capacity * 2 : 16;
        struct entry *grown = sqrl_realloc(store->entries, capacity * sizeof(*grown),
                                           "the entries of mem://", err);
        if (!grown)
            return SQRL_E_NO_MEMORY;
        store->entries = grown;
        store->capacity = capacity;
    }
    memmove(store->entries + i + 1, store->entries + i,
            (store->count - i) * sizeof(*store->entries));
    store->entries[i] = (struct entry){path, content, sqrl_wall_ns()};
    store->count++;
    store->bytes += size;
    return SQRL_OK;
}

static void drop(struct sqrl_memory_store *store, struct entry *entry) {
    store->bytes -= entry->content ? entry->content->size : 0;
    sqrl_buffer_unref(entry->content);
    free(entry->path);
    size_t i = (size_t)(entry - store->entries);
    memmove(entry, entry + 1, (store->count - i - 1) * sizeof(*entry));
    store->count--;
}

static int memory_writer_commit(void *fs, void *writer, struct sqrl_error *err) {
    struct memory *m = fs;
    struct memory_writer *w = writer;
    struct sqrl_buffer *content = NULL;
    if (!w->data)
        w->data = sqrl_malloc(1, "a mem:// file", err);
    int rc = w->data ? sqrl_buffer_wrap(w->data, w->size, free, w->data, &content, err)
                     : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK) {
        w->data = NULL;
        sqrl_lock_take(&m->store->lock);
        rc = check_target(m->store, w->path, w->replace, err);
        if (rc == SQRL_OK) {
            struct entry *old = find(m->store, w->path);
            if (old) {
                m->store->bytes += content->size;
                m->store->bytes -= old->content->size;
                struct sqrl_buffer *before = old->content;
                old->content = content;
                old->modified_ns = sqrl_wall_ns();
                content = before; /* to be dropped below */
            } else if ((rc = put(m->store, w->path, content, err)) == SQRL_OK) {
                w->path = NULL;
                content = NULL;
            }
        }
        sqrl_lock_drop(&m->store->lock);
    }
    sqrl_buffer_unref(content);
    memory_writer_abort(fs, w);
    return rc;
}

static int memory_remove(void *fs, const char *path, struct sqrl_error *err) {
    struct memory *m = fs;
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(m->store, clean);
    int rc = SQRL_OK;
    if (entry && entry->content)
        drop(m->store, entry);
    else if (entry || is_directory(m->store, clean))
        rc =
            sqrl_error_set(err, SQRL_E_INVALID, "is a directory; only files are removed");
    else
        rc = not_found(err);
    leave(m->store, clean);
    return rc;
}

static int memory_remove_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct memory *m = fs;
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(m->store, clean);
    int rc = SQRL_OK;
    if (is_directory(m->store, clean))
        rc = sqrl_error_set(err, SQRL_E_STATE, "the directory is not empty");
    else if (!entry)
        rc = not_found(err);
    else if (entry->content)
        rc = sqrl_error_set(err, SQRL_E_INVALID,
                            "is a file; a directory is expected here");
    else
        drop(m->store, entry);
    leave(m->store, clean);
    return rc;
}

/* Makes one directory unless it is there; needs the lock. */
static int make_one(struct sqrl_memory_store *store, const char *path, size_t length,
                    struct sqrl_error *err) {
    char *name = sqrl_format(err, "%.*s", (int)length, path);
    if (!name)
        return SQRL_E_NO_MEMORY;
    struct entry *entry = find(store, name);
    int rc = SQRL_OK;
    if (entry && entry->content)
        rc = sqrl_error_set(
            err, SQRL_E_EXISTS,
            "can't make the directory %.200s: a file of that name is in the way", name);
    else if (!entry && (rc = put(store, name, NULL, err)) == SQRL_OK)
        return SQRL_OK;
    free(name);
    return rc;
}

static int memory_make_directory(void *fs, const char *path, struct sqrl_error *err) {
    struct memory *m = fs;
    char *clean = enter(m->store, path, err);
    if (!clean)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    for (size_t n = 0; rc == SQRL_OK && clean[n];) {
        n += clean[n] == '/';
        n += strcspn(clean + n, "/");
        rc = make_one(m->store, clean, n, err);
    }
    leave(m->store, clean);
    return rc;
}

const struct sqrl_fs_ops sqrl_fs_memory = {
    .size = sizeof(struct sqrl_fs_ops),
    .api = SQRL_FS_API,
    .name = "memory",
    .schemes = "mem",
    .doc = "files in this process's memory, for tests and examples",
    .flags = SQRL_FS_WRITABLE | SQRL_FS_LISTABLE | SQRL_FS_VERSIONED,
    .fs_size = sizeof(struct memory),
    .file_size = sizeof(struct memory_file),
    .writer_size = sizeof(struct memory_writer),
    .open = memory_open,
    .stat = memory_stat,
    .list = memory_list,
    .file_open = memory_file_open,
    .file_read = memory_file_read,
    .file_close = memory_file_close,
    .writer_open = memory_writer_open,
    .writer_write = memory_writer_write,
    .writer_commit = memory_writer_commit,
    .writer_abort = memory_writer_abort,
    .remove = memory_remove,
    .make_directory = memory_make_directory,
    .remove_directory = memory_remove_directory,
};
