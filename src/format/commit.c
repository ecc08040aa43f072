/* Commit files as bytes. As with the footer of a shard, a checksum proves only that the
 * bytes are as they were written: every number is checked against the others besides, so
 * that who uses a commit need not. */
#include "format/commit_inner.h"

#include <stdlib.h>

#define LLU(x) ((unsigned long long)(x))

void sqrl_commit_reset(struct sqrl_commit *commit) {
    for (uint64_t i = 0; commit->shards && i < commit->shard_count; i++)
        free(commit->shards[i].name);
    free(commit->shards);
    free(commit->chunks);
    free(commit->supersedes);
    commit_groups_reset(commit);
    sqrl_schema_reset(&commit->schema);
    *commit = (struct sqrl_commit){0};
}

bool commit_id_valid(const char *id, size_t size) {
    if (size != 33 || id[16] != '-')
        return false;
    for (size_t i = 0; i < size; i++)
        if (i != 16 &&
            !((id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f')))
            return false;
    return true;
}

bool commit_name_valid(const char *name, size_t size) {
    if (size == 0 || memchr(name, '\0', size))
        return false;
    for (size_t from = 0; from <= size;) {
        const char *slash = memchr(name + from, '/', size - from);
        size_t part = slash ? (size_t)(slash - name) - from : size - from;
        if (part == 0 || (part == 1 && name[from] == '.') ||
            (part == 2 && name[from] == '.' && name[from + 1] == '.'))
            return false;
        from += part + 1;
    }
    return true;
}

/* --- writing --- */

static int put_key(struct sqrl_bytes *out, const char *key, struct sqrl_error *err) {
    return sqrl_msgpack_put_string(out, key, strlen(key), err);
}

static int put_pair(struct sqrl_bytes *out, const char *key, uint64_t value,
                    struct sqrl_error *err) {
    int rc = put_key(out, key, err);
    return rc ? rc : sqrl_msgpack_put_uint(out, value, err);
}

static int put_texts(struct sqrl_bytes *out, const char *key, size_t count,
                     const void *items, const char *(*text)(const void *items, size_t i),
                     struct sqrl_error *err) {
    int rc = put_key(out, key, err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_array(out, count, err);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++)
        rc = put_key(out, text(items, i), err);
    return rc;
}

static const char *shard_name(const void *items, size_t i) {
    return ((const struct sqrl_commit_shard *)items)[i].name;
}

static const char *id_text(const void *items, size_t i) {
    return (const char *)items + i * SQRL_COMMIT_ID_BYTES;
}

static int put_shard_table(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                           struct sqrl_error *err) {
    size_t size = commit->shard_count * COMMIT_SHARD_BYTES;
    uint8_t *table = sqrl_malloc(size + 1, "table of shards", err);
    if (!table)
        return SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; i < commit->shard_count; i++) {
        const struct sqrl_commit_shard *shard = &commit->shards[i];
        uint8_t *p = table + i * COMMIT_SHARD_BYTES;
        sqrl_store_le64(p, shard->file_bytes);
        sqrl_store_le64(p + 8, shard->samples);
        sqrl_store_le64(p + 16, shard->blocks);
        sqrl_store_le64(p + 24, shard->raw_bytes);
        sqrl_store_le64(p + 32, shard->footer_checksum);
    }
    int rc = put_key(out, "shards", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_binary(out, table, size, err);
    free(table);
    return rc;
}

static int put_chunk_table(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                           struct sqrl_error *err) {
    _Static_assert(sizeof(struct sqrl_commit_chunk) == COMMIT_CHUNK_BYTES,
                   "chunks are written as they are in memory: four u32, little-endian");
    int rc = put_key(out, "chunks", err);
    return rc ? rc
              : sqrl_msgpack_put_binary(out, commit->chunks,
                                        commit->chunk_count * COMMIT_CHUNK_BYTES, err);
}

static int put_schema(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    int rc = put_key(out, "schema", err);
    if (rc)
        return rc;
    return commit->has_schema ? sqrl_schema_encode(&commit->schema, out, err)
                              : sqrl_msgpack_put_null(out, err);
}

/* The shards: five entries of a map. */
static int put_set(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                   struct sqrl_error *err) {
    int rc = put_pair(out, "samples", commit->samples, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "raw_bytes", commit->raw_bytes, err);
    if (rc == SQRL_OK)
        rc = put_schema(commit, out, err);
    if (rc == SQRL_OK)
        rc =
            put_texts(out, "names", commit->shard_count, commit->shards, shard_name, err);
    if (rc == SQRL_OK)
        rc = put_shard_table(commit, out, err);
    return rc ? rc : put_chunk_table(commit, out, err);
}

static const char *of_text(const void *items, size_t i) {
    return ((char *const *)items)[i];
}

static int put_group(const struct sqrl_commit_group *g, struct sqrl_bytes *out,
                     struct sqrl_error *err) {
    int rc = sqrl_msgpack_put_map(out, g->group.base ? 2 : 8, err);
    if (rc == SQRL_OK)
        rc = put_key(out, "group", err);
    if (rc == SQRL_OK)
        rc = sqrl_group_encode(&g->group, out, err);
    if (rc == SQRL_OK)
        rc = put_texts(out, "of", g->of_count, g->of, of_text, err);
    return rc || g->group.base ? rc : put_set(&g->set, out, err);
}

static int put_groups(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                      struct sqrl_error *err) {
    int rc = put_key(out, "requires", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_array(out, 1, err);
    if (rc == SQRL_OK)
        rc = put_key(out, COMMIT_NEEDS_GROUPS, err);
    if (rc == SQRL_OK)
        rc = put_key(out, "groups", err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_array(out, commit->group_count, err);
    for (uint64_t i = 0; rc == SQRL_OK && i < commit->group_count; i++)
        rc = put_group(&commit->groups[i], out, err);
    return rc;
}

int commit_encode(const struct sqrl_commit *commit, struct sqrl_bytes *out,
                  struct sqrl_error *err) {
    int rc = sqrl_bytes_append(out, COMMIT_MAGIC, COMMIT_MAGIC_BYTES, err);
    if (rc == SQRL_OK)
        rc = sqrl_msgpack_put_map(out, commit->group_count ? 11 : 9, err);
    if (rc == SQRL_OK)
        rc = put_pair(out, "version", COMMIT_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_key(out, "writer", err);
    if (rc == SQRL_OK)
        rc = put_key(out, "libsqrl " SQRL_VERSION, err);
    if (rc == SQRL_OK)
        rc = put_texts(out, "supersedes", commit->supersedes_count, commit->supersedes,
                       id_text, err);
    if (rc == SQRL_OK)
        rc = put_set(commit, out, err);
    if (rc == SQRL_OK && commit->group_count)
        rc = put_groups(commit, out, err);
    if (rc)
        return rc;
    uint64_t hash = sqrl_xxh3(out->data, out->size);
    return sqrl_bytes_append(out, &hash, sizeof hash, err);
}

/* --- reading --- */

struct parse {
    struct sqrl_tape tape;
    const uint8_t *bytes;
    uint32_t root; /* the map that is read: the commit's, or a group's */
    struct sqrl_error *err;
};

static int bad(const struct parse *p, const char *what) {
    return sqrl_error_set(
        p->err, SQRL_E_CORRUPT,
        "the commit's %s is not valid: it was damaged or written by a "
        "faulty program; `squirrel index` makes it anew from the shards",
        what);
}

static const struct sqrl_node *get(const struct parse *p, const char *key) {
    uint32_t at = sqrl_map_find(p->tape.nodes, p->root, p->bytes, key, strlen(key));
    return at == SQRL_NO_NODE ? NULL : &p->tape.nodes[at];
}

static bool get_count(const struct parse *p, const char *key, uint64_t *out) {
    const struct sqrl_node *node = get(p, key);
    *out = node ? node->v.u : 0;
    return node &&
           (node->type == SQRL_UINT || (node->type == SQRL_INT && node->v.i >= 0));
}

/* Text item `i` of a list of texts (each is one node). */
static const char *text_of(const struct parse *p, const struct sqrl_node *list,
                           uint64_t i, size_t *size) {
    const struct sqrl_node *node = list + 1 + i;
    *size = 0;
    if (node->type != SQRL_STRING)
        return NULL;
    *size = node->size;
    return (const char *)p->bytes + node->v.offset;
}

/* Items of any type but text may be more than one node: text_of must stop at the first.
 */
static int read_supersedes(const struct parse *p, struct sqrl_commit *out) {
    const struct sqrl_node *list = get(p, "supersedes");
    if (!list || list->type != SQRL_ARRAY)
        return bad(p, "list of superseded commits");
    out->supersedes = sqrl_calloc((size_t)list->size + 1, SQRL_COMMIT_ID_BYTES,
                                  "superseded commits", p->err);
    if (!out->supersedes)
        return SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < list->size; i++) {
        size_t size;
        const char *id = text_of(p, list, i, &size);
        if (!id || !commit_id_valid(id, size))
            return bad(p, "list of superseded commits");
        memcpy(out->supersedes[i], id, size);
    }
    out->supersedes_count = list->size;
    return SQRL_OK;
}

static int read_shards(const struct parse *p, struct sqrl_commit *out) {
    const struct sqrl_node *names = get(p, "names"), *table = get(p, "shards");
    if (!names || names->type != SQRL_ARRAY || !table || table->type != SQRL_BINARY ||
        table->size != (uint64_t)names->size * COMMIT_SHARD_BYTES)
        return bad(p, "list of shards");
    out->shards =
        sqrl_calloc((size_t)names->size + 1, sizeof *out->shards, "shards", p->err);
    if (!out->shards)
        return SQRL_E_NO_MEMORY;
    out->shard_count = names->size;
    for (uint32_t i = 0; i < names->size; i++) {
        size_t size;
        const char *name = text_of(p, names, i, &size);
        if (!name || !commit_name_valid(name, size))
            return bad(p, "list of shards");
        struct sqrl_commit_shard *shard = &out->shards[i];
        shard->name = sqrl_format(p->err, "%.*s", (int)size, name);
        if (!shard->name)
            return SQRL_E_NO_MEMORY;
        const uint8_t *record =
            p->bytes + table->v.offset + (uint64_t)i * COMMIT_SHARD_BYTES;
        shard->file_bytes = sqrl_load_le64(record);
        shard->samples = sqrl_load_le64(record + 8);
        shard->blocks = sqrl_load_le64(record + 16);
        shard->raw_bytes = sqrl_load_le64(record + 24);
        shard->footer_checksum = sqrl_load_le64(record + 32);
    }
    return SQRL_OK;
}

/* Chunks cover every block of every shard once, in order, and their counts are the
 * shards'. */
static bool chunks_fit(const struct sqrl_commit *commit) {
    uint64_t c = 0;
    for (uint64_t s = 0; s < commit->shard_count; s++) {
        uint64_t block = 0, samples = 0;
        for (; c < commit->chunk_count && commit->chunks[c].shard == s; c++) {
            const struct sqrl_commit_chunk *chunk = &commit->chunks[c];
            if (chunk->first_block != block || chunk->blocks == 0 ||
                chunk->samples < chunk->blocks)
                return false;
            block += chunk->blocks;
            samples += chunk->samples;
        }
        if (block != commit->shards[s].blocks || samples != commit->shards[s].samples)
            return false;
    }
    return c == commit->chunk_count;
}

static int read_chunks(const struct parse *p, struct sqrl_commit *out) {
    const struct sqrl_node *table = get(p, "chunks");
    if (!table || table->type != SQRL_BINARY || table->size % COMMIT_CHUNK_BYTES)
        return bad(p, "table of chunks");
    out->chunk_count = table->size / COMMIT_CHUNK_BYTES;
    out->chunks = sqrl_malloc((size_t)table->size + 1, "table of chunks", p->err);
    if (!out->chunks)
        return SQRL_E_NO_MEMORY;
    memcpy(out->chunks, p->bytes + table->v.offset, table->size);
    return chunks_fit(out) ? SQRL_OK : bad(p, "table of chunks");
}

static int check_totals(const struct parse *p, struct sqrl_commit *out) {
    uint64_t samples = 0, raw = 0;
    bool over = false;
    for (uint64_t i = 0; i < out->shard_count; i++) {
        const struct sqrl_commit_shard *shard = &out->shards[i];
        over |= __builtin_add_overflow(samples, shard->samples, &samples);
        over |= __builtin_add_overflow(raw, shard->raw_bytes, &raw);
        over |=
            __builtin_add_overflow(out->file_bytes, shard->file_bytes, &out->file_bytes);
    }
    return over || samples != out->samples || raw != out->raw_bytes ? bad(p, "total")
                                                                    : SQRL_OK;
}

static int read_schema(const struct parse *p, struct sqrl_commit *out) {
    const struct sqrl_node *node = get(p, "schema");
    if (!node || node->type == SQRL_NULL)
        return SQRL_OK;
    int rc = sqrl_schema_decode(&out->schema, p->tape.nodes,
                                (uint32_t)(node - p->tape.nodes), p->bytes, p->err);
    out->has_schema = rc == SQRL_OK;
    out->schema.samples = out->samples;
    return rc;
}

static bool requires_known(const struct sqrl_node *list, const uint8_t *bytes) {
    size_t size = strlen(COMMIT_NEEDS_GROUPS);
    if (list && list->type != SQRL_ARRAY)
        return false;
    for (uint32_t i = 0; list && i < list->size; i++) /* each is one node */
        if (list[1 + i].type != SQRL_STRING || list[1 + i].size != size ||
            memcmp(bytes + list[1 + i].v.offset, COMMIT_NEEDS_GROUPS, size) != 0)
            return false;
    return true;
}

static int check_version(const struct parse *p) {
    uint64_t version;
    if (!get_count(p, "version", &version))
        return bad(p, "version");
    if (version == COMMIT_VERSION && requires_known(get(p, "requires"), p->bytes))
        return SQRL_OK;
    return sqrl_error_set(p->err, SQRL_E_UNSUPPORTED,
                          "the commit was written by a later version of the library "
                          "(version %llu): update it",
                          LLU(version));
}

static int read_set(const struct parse *p, struct sqrl_commit *out) {
    if (!get_count(p, "samples", &out->samples) ||
        !get_count(p, "raw_bytes", &out->raw_bytes))
        return bad(p, "total");
    int rc = read_shards(p, out);
    if (rc == SQRL_OK)
        rc = check_totals(p, out);
    if (rc == SQRL_OK)
        rc = read_chunks(p, out);
    return rc ? rc : read_schema(p, out);
}

/* --- groups of fields --- */

void commit_groups_reset(struct sqrl_commit *commit) {
    for (uint64_t i = 0; commit->groups && i < commit->group_count; i++) {
        struct sqrl_commit_group *g = &commit->groups[i];
        for (uint64_t k = 0; g->of && k < g->of_count; k++)
            free(g->of[k]);
        free(g->of);
        sqrl_group_reset(&g->group);
        sqrl_commit_reset(&g->set);
    }
    free(commit->groups);
    commit->groups = NULL;
    commit->group_count = 0;
}

static int read_of(const struct parse *p, struct sqrl_commit_group *out) {
    const struct sqrl_node *list = get(p, "of");
    if (!list || list->type != SQRL_ARRAY)
        return bad(p, "list of shards of a group");
    out->of = sqrl_calloc((size_t)list->size + 1, sizeof *out->of, "shards", p->err);
    if (!out->of)
        return SQRL_E_NO_MEMORY;
    for (uint32_t i = 0; i < list->size; i++) {
        size_t size;
        const char *name = text_of(p, list, i, &size);
        if (!name || !commit_name_valid(name, size))
            return bad(p, "list of shards of a group");
        out->of[i] = sqrl_format(p->err, "%.*s", (int)size, name);
        if (!out->of[i])
            return SQRL_E_NO_MEMORY;
        out->of_count = i + 1;
    }
    return SQRL_OK;
}

static int read_group(const struct parse *p, struct sqrl_commit_group *out) {
    const struct sqrl_node *group = get(p, "group");
    if (p->tape.nodes[p->root].type != SQRL_MAP || !group)
        return bad(p, "list of groups");
    int rc = sqrl_group_decode(&out->group, p->tape.nodes,
                               (uint32_t)(group - p->tape.nodes), p->bytes, p->err);
    if (rc == SQRL_OK)
        rc = read_of(p, out);
    if (rc == SQRL_OK && !out->group.base) {
        rc = read_set(p, &out->set);
        if (rc == SQRL_OK && out->set.shard_count != out->of_count)
            rc = bad(p, "list of shards of a group");
    }
    return rc;
}

static int read_groups(const struct parse *p, struct sqrl_commit *out) {
    const struct sqrl_node *list = get(p, "groups");
    if (!list)
        return SQRL_OK;
    if (list->type != SQRL_ARRAY)
        return bad(p, "list of groups");
    out->groups =
        sqrl_calloc((size_t)list->size + 1, sizeof *out->groups, "groups", p->err);
    if (!out->groups)
        return SQRL_E_NO_MEMORY;
    struct parse inner = *p;
    inner.root = (uint32_t)(list - p->tape.nodes) + 1;
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && i < list->size; i++) {
        out->group_count = i + 1;
        if (inner.tape.nodes[inner.root].type != SQRL_MAP)
            return bad(p, "list of groups");
        rc = read_group(&inner, &out->groups[i]);
        inner.root = sqrl_node_next(p->tape.nodes, inner.root);
    }
    return rc;
}

static int read_map(const struct parse *p, struct sqrl_commit *out) {
    int rc = check_version(p);
    if (rc == SQRL_OK)
        rc = read_supersedes(p, out);
    if (rc == SQRL_OK)
        rc = read_set(p, out);
    return rc ? rc : read_groups(p, out);
}

int sqrl_commit_parse(const char *id, const uint8_t *bytes, size_t size,
                      struct sqrl_commit *out, struct sqrl_error *err) {
    *out = (struct sqrl_commit){0};
    struct parse p = {.bytes = bytes, .err = err};
    if (!commit_id_valid(id, strlen(id)))
        return sqrl_error_set(err, SQRL_E_INVALID, "\"%s\" is not the id of a commit",
                              id);
    memcpy(out->id, id, strlen(id) + 1);
    if (size < COMMIT_MAGIC_BYTES + COMMIT_HASH_BYTES + 1 ||
        memcmp(bytes, COMMIT_MAGIC, COMMIT_MAGIC_BYTES) != 0)
        return bad(&p, "beginning");
    size_t end = size - COMMIT_HASH_BYTES, at = COMMIT_MAGIC_BYTES;
    out->hash = sqrl_load_le64(bytes + end);
    if (sqrl_xxh3(bytes, end) != out->hash)
        return bad(&p, "checksum");
    /* Names are one node each; the rest is a schema's worth. */
    struct sqrl_limits limits = {.max_depth = 16, .max_nodes = 1u << 26};
    int rc = sqrl_msgpack_decode(&p.tape, bytes, end, &at, &limits, err);
    if (rc == SQRL_OK && (at != end || p.tape.nodes[0].type != SQRL_MAP))
        rc = bad(&p, "content");
    if (rc == SQRL_OK)
        rc = read_map(&p, out);
    sqrl_tape_reset(&p.tape);
    return rc;
}
