/* find.c - samples by key.
 *
 * All keys are asked for at once: each shard is given the hashes of those that no shard
 * before it has, and answers with the samples that may be meant; those are read and their
 * keys compared, since other keys may have the same hash. Far shards are asked many at a
 * time, local ones one after another, which ends with the last key found. */
#include <stdlib.h>

#include "driver/source_inner.h"
#include "sqrl/codec.h"
#include "value/value.h"

enum { FAR_ROUND = 64 }; /* shards that are asked for a single key at a time */

struct wanted {
    uint64_t hash;
    size_t slot; /* in the caller's arrays */
};

struct search {
    const struct sqrl_key *keys;
    const struct sqrl_cancel *cancel;
    struct wanted *want; /* [left], by rising hash */
    uint64_t *hash;      /* [left]: theirs */
    size_t left;
    pthread_mutex_t mutex; /* all below */
    uint64_t *indices;     /* [keys]: the lowest position so far, or SQRL_UNKNOWN */
    uint64_t failed;       /* the first shard that failed; SQRL_UNKNOWN: none */
    int code;
    struct sqrl_error error;
};

static bool is_key(const struct sqrl_sample *sample, const struct sqrl_field_path *path,
                   const struct sqrl_key *key, uint64_t hash) {
    const struct sqrl_node *nodes = sample->block->tape.nodes;
    const uint8_t *bytes = sample->block->bytes->data;
    uint32_t at =
        sqrl_field_path_find(path, nodes, sample->block->begin[sample->index], bytes);
    uint64_t found;
    bool text = at != SQRL_NO_NODE &&
                (nodes[at].type == SQRL_STRING || nodes[at].type == SQRL_BINARY);
    if (text != (key->bytes != NULL) || !sqrl_key_hash(nodes, at, bytes, &found) ||
        found != hash)
        return false;
    return !text || (nodes[at].size == key->size &&
                     memcmp(bytes + nodes[at].v.offset, key->bytes, key->size) == 0);
}

static void keep(struct search *s, size_t which, uint64_t position) {
    uint64_t *index = &s->indices[s->want[which].slot];
    pthread_mutex_lock(&s->mutex);
    *index = SQRL_MIN(*index, position);
    pthread_mutex_unlock(&s->mutex);
}

/* Numbers within the shard become positions; those that a subset lacks are left out. */
static int place(struct sqrl_source *source, uint64_t shard, struct sqrl_key_match *match,
                 size_t *count, struct sqrl_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        uint64_t row, number = match[i].number;
        if (!sqrl_source_row_find(source, shard, number, &row))
            continue;
        match[kept].which = match[i].which;
        int rc = sqrl_source_position(source, shard, number, &match[kept++].number, err);
        if (rc)
            return rc;
    }
    *count = kept;
    return SQRL_OK;
}

/* Reads the first of each key's samples and, of those that are others, the next ones.
 * `position` has room for all. */
static int compare(struct sqrl_source *source, struct search *s,
                   const struct sqrl_field_path *path, struct sqrl_key_match *match,
                   size_t count, uint64_t *position, struct sqrl_error *err) {
    while (count) {
        struct sqrl_samples *samples = NULL;
        size_t asked = 0, kept = 0;
        for (size_t i = 0; i < count; i++)
            if (!i || match[i].which != match[i - 1].which)
                position[asked++] = match[i].number;
        int rc = sqrl_source_get_many(source, position, asked, s->cancel, &samples, err);
        if (rc)
            return rc;
        asked = 0;
        for (size_t i = 0, end; i < count; i = end) {
            uint64_t which = match[i].which;
            for (end = i + 1; end < count && match[end].which == which; end++)
                continue;
            if (is_key(&samples->samples[asked++], path, &s->keys[s->want[which].slot],
                       s->hash[which])) {
                keep(s, (size_t)which, match[i].number);
                continue;
            }
            for (size_t k = i + 1; k < end; k++)
                match[kept++] = match[k];
        }
        sqrl_samples_release(samples);
        count = kept;
    }
    return SQRL_OK;
}

static int settle(struct sqrl_source *source, struct search *s, uint64_t shard,
                  const char *field, struct sqrl_key_match *match, size_t count,
                  struct sqrl_error *err) {
    struct sqrl_field_path path = {0};
    int rc = place(source, shard, match, &count, err);
    if (rc || !count)
        return rc;
    if (!*field) { /* the samples don't hold it: the hash has to do */
        for (size_t i = 0; i < count; i++)
            keep(s, (size_t)match[i].which, match[i].number);
        return SQRL_OK;
    }
    uint64_t *position = sqrl_malloc(count * sizeof *position, "positions", err);
    rc = position ? sqrl_field_path_parse(field, &path, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = compare(source, s, &path, match, count, position, err);
    sqrl_field_path_reset(&path);
    free(position);
    return rc;
}

static int no_keys(const struct sqrl_source *source, uint64_t shard,
                   struct sqrl_error *err) {
    sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                   "its samples have no keys: pack them with key=, the name of the field "
                   "that finds a sample");
    return sqrl_error_at(err, SQRL_E_UNSUPPORTED, "%s", source->shards[shard].path);
}

static int ask(struct sqrl_source *source, struct search *s, uint64_t shard,
               struct sqrl_error *err) {
    struct sqrl_core *core = NULL;
    struct sqrl_bytes matches = {0};
    const char *field = NULL;
    if (sqrl_cancel_requested(s->cancel))
        return sqrl_error_set(err, SQRL_E_CANCELLED, "the search was cancelled");
    int rc = sqrl_core_get(source, shard, &core, err);
    if (rc)
        return rc;
    if (sqrl_format_finds(core->format)) {
        rc = core->format->find(core->state, s->hash, s->left, s->cancel, &matches,
                                &field, err);
        if (rc)
            sqrl_error_at_path(err, rc, source->shards[shard].path,
                               source->shards[shard].path + source->prefix_size);
    }
    if (rc == SQRL_OK && !field)
        rc = no_keys(source, shard, err);
    if (rc == SQRL_OK)
        rc =
            settle(source, s, shard, field, (struct sqrl_key_match *)(void *)matches.data,
                   matches.size / sizeof(struct sqrl_key_match), err);
    sqrl_bytes_reset(&matches);
    sqrl_core_unref(core);
    return rc;
}

static void ask_one(struct sqrl_source *source, uint64_t shard, void *arg) {
    struct search *s = arg;
    struct sqrl_error error;
    sqrl_error_clear(&error);
    int rc = ask(source, s, shard, &error);
    if (!rc)
        return;
    pthread_mutex_lock(&s->mutex);
    if (shard < s->failed) {
        s->failed = shard;
        s->code = rc;
        s->error = error;
    }
    pthread_mutex_unlock(&s->mutex);
}

static int by_hash(const void *a, const void *b) {
    const struct wanted *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Forgets those that were found. */
static void leave_out(struct search *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->left; i++) {
        if (s->indices[s->want[i].slot] != SQRL_UNKNOWN)
            continue;
        s->want[kept] = s->want[i];
        s->hash[kept++] = s->want[i].hash;
    }
    s->left = kept;
}

/* What failed may have had a key: one that no shard in front of it has. */
static bool concerns(struct sqrl_source *source, const struct search *s) {
    for (size_t i = 0; i < s->left; i++) {
        uint64_t shard, row, index = s->indices[s->want[i].slot];
        if (index == SQRL_UNKNOWN ||
            sqrl_source_locate(source, index, &shard, &row, NULL) || shard > s->failed)
            return true;
    }
    return false;
}

static int search(struct sqrl_source *source, struct search *s, struct sqrl_error *err) {
    bool local = sqrl_source_local(source);
    for (uint64_t i = 0, end; i < source->count && s->left; i = end) {
        uint64_t most = local ? 1 : SQRL_MAX((uint64_t)s->left, (uint64_t)FAR_ROUND);
        end = SQRL_MIN(i + most, source->count);
        sqrl_source_each(source, i, end, ask_one, s);
        if (s->code && concerns(source, s)) {
            if (err)
                *err = s->error;
            return s->code;
        }
        leave_out(s);
    }
    return SQRL_OK;
}

static int not_there(const struct sqrl_source *source, const struct sqrl_key *key,
                     struct sqrl_error *err) {
    if (key->bytes)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "%s has no sample with the key \"%.*s\"", source->url,
                              (int)SQRL_MIN(key->size, 120u), (const char *)key->bytes);
    return sqrl_error_set(err, SQRL_E_NOT_FOUND, "%s has no sample with the key %lld",
                          source->url, (long long)key->number);
}

int sqrl_source_find_many(struct sqrl_source *source, const struct sqrl_key *keys,
                          size_t count, const struct sqrl_cancel *cancel,
                          uint64_t *indices, struct sqrl_error *err) {
    struct sqrl_source *keyed = NULL;
    struct search s = {.keys = keys,
                       .cancel = cancel,
                       .indices = indices,
                       .failed = SQRL_UNKNOWN,
                       .left = count};
    s.want = sqrl_calloc(count + 1, sizeof *s.want, "keys", err);
    s.hash = sqrl_calloc(count + 1, sizeof *s.hash, "keys", err);
    int rc = s.want && s.hash ? SQRL_OK : SQRL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        indices[i] = SQRL_UNKNOWN;
        if (rc == SQRL_OK)
            s.want[i] =
                (struct wanted){keys[i].bytes ? sqrl_xxh3(keys[i].bytes, keys[i].size)
                                              : sqrl_xxh3(&keys[i].number, 8),
                                i};
    }
    if (rc == SQRL_OK)
        rc = sqrl_source_keyed(source, &keyed, err);
    if (rc == SQRL_OK) {
        qsort(s.want, count, sizeof *s.want, by_hash);
        leave_out(&s);
        if (!sqrl_source_local(keyed)) /* opens those whose counts no commit tells */
            (void)sqrl_source_samples(keyed);
        pthread_mutex_init(&s.mutex, NULL);
        rc = search(keyed, &s, err);
        pthread_mutex_destroy(&s.mutex);
    }
    sqrl_source_unref(keyed);
    free(s.want);
    free(s.hash);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++)
        if (indices[i] == SQRL_UNKNOWN)
            rc = not_there(source, &keys[i], err);
    return rc;
}

int sqrl_source_find(struct sqrl_source *source, const struct sqrl_key *key,
                     uint64_t *index, struct sqrl_error *err) {
    return sqrl_source_find_many(source, key, 1, NULL, index, err);
}
