/* pack_add.c - fields that are computed later, beside the shards there are.
 *
 * The new group's shards are cut where the data set's are: each gets exactly as many
 * samples as its base. Nothing counts before one commit at the end. With a key, samples
 * may come in any order: they wait in memory, each at its place. */
#include <stdlib.h>

#include "driver/family.h"
#include "driver/pack_inner.h"
#include "driver/source.h"
#include "driver/source_inner.h"
#include "format/commit.h"
#include "format/native.h"
#include "value/value.h"

#define LLU(x) ((unsigned long long)(x))

/* A shard that gets the group. */
struct target_shard {
    uint64_t number; /* in the source */
    uint64_t first, samples;
    const char *name; /* in the directory; the commits' */
};

struct waiting { /* a sample that came by its key */
    uint64_t at;
    size_t size; /* 0: not there yet */
};

struct sqrl_pack_addition {
    struct sqrl_source *source;
    struct sqrl_commits commits;
    struct target_shard *shard;
    size_t shards, current;
    uint64_t expected, given;
    char **of; /* [names]: of each shard that was begun, its base */
    size_t of_count;
    char *key, *key_top;
    struct sqrl_field_path key_path;
    struct sqrl_bytes kept;
    struct waiting *waiting; /* [expected], with a key */
};

void sqrl_pack_addition_free(struct sqrl_pack_addition *add) {
    if (!add)
        return;
    sqrl_commits_reset(&add->commits);
    sqrl_source_unref(add->source);
    sqrl_field_path_reset(&add->key_path);
    sqrl_bytes_reset(&add->kept);
    free(add->waiting);
    free(add->shard);
    free(add->of);
    free(add->key);
    free(add->key_top);
    free(add);
}

/* --- opening --- */

static bool has_group(const struct sqrl_source *source, uint64_t shard,
                      const char *name) {
    const struct sqrl_families *f = source->families;
    if (f && f->base_of[shard] && strcmp(f->base[f->base_of[shard] - 1].name, name) == 0)
        return true;
    for (uint32_t g = 1; f && g < f->groups; g++)
        if (f->group[g].shard[shard].path && strcmp(f->group[g].group.name, name) == 0)
            return true;
    return false;
}

/* Names of the commits' shards in the order of the source's. */
static const char *shard_name(const struct sqrl_commits *commits, uint64_t number) {
    for (size_t i = 0; i < commits->count; i++) {
        if (number < commits->items[i].shard_count)
            return commits->items[i].shards[number].name;
        number -= commits->items[i].shard_count;
    }
    return NULL;
}

static int there_already(const struct sqrl_source *source, const char *group,
                         uint64_t have, struct sqrl_error *err) {
    if (have == source->count)
        return sqrl_error_set(err, SQRL_E_EXISTS,
                              "the data set has a group \"%s\" already; choose another "
                              "name, or pack the data anew without it",
                              group);
    return sqrl_error_set(err, SQRL_E_EXISTS,
                          "%llu of %llu shards have the group \"%s\" already; choose "
                          "`missing` to add it to the others, with their samples alone",
                          LLU(have), LLU(source->count), group);
}

static int choose_shards(struct sqrl_pack_addition *add,
                         const struct sqrl_add_options *options, struct sqrl_error *err) {
    struct sqrl_source *source = add->source;
    uint64_t first = 0, have = 0;
    add->shard = sqrl_calloc(source->count + 1, sizeof *add->shard, "shards", err);
    if (!add->shard)
        return SQRL_E_NO_MEMORY;
    for (uint64_t i = 0; i < source->count; i++) {
        uint64_t samples = source->shards[i].samples;
        if (has_group(source, i, options->group)) {
            have++;
        } else if (samples) { /* an empty shard needs none */
            add->shard[add->shards++] =
                (struct target_shard){i, first, samples, shard_name(&add->commits, i)};
            add->expected += samples;
        }
        first += samples;
    }
    if ((have && !options->missing) || (have == source->count && have))
        return there_already(source, options->group, have, err);
    if (add->shards)
        return SQRL_OK;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "the data set has no samples to which fields could be added");
}

static int open_data(struct sqrl_packer *p, const char *destination,
                     const struct sqrl_add_options *options, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    int rc =
        sqrl_commits_read(p->context, p->target.fs, p->target.path, &add->commits, err);
    if (rc == SQRL_OK && !add->commits.count)
        rc = sqrl_error_set(err, SQRL_E_NOT_FOUND,
                            "no data set of native shards with a commit is here: run "
                            "`squirrel index` if there are shards");
    if (rc == SQRL_OK)
        rc = sqrl_open_in(p->context, p->target.fs, destination, p->target.path, NULL,
                          &add->source, err);
    uint64_t shards = 0;
    for (size_t i = 0; i < add->commits.count; i++)
        shards += add->commits.items[i].shard_count;
    if (rc == SQRL_OK && shards != add->source->count)
        rc = sqrl_error_set(err, SQRL_E_STATE,
                            "the data set changed while it was opened: try again");
    return rc ? rc : choose_shards(add, options, err);
}

static int open_key(struct sqrl_pack_addition *add, const char *key,
                    struct sqrl_error *err) {
    if (!key)
        return SQRL_OK;
    int rc = sqrl_source_key_field(add->source, &add->key, err);
    if (rc == SQRL_OK && !add->key)
        rc = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                            "the data set's samples have no keys: give the new fields in "
                            "its order, or pack it with a key");
    free(add->key);
    add->key = NULL;
    if (rc == SQRL_OK)
        rc = sqrl_field_path_parse(key, &add->key_path, err);
    if (rc)
        return rc;
    add->key = sqrl_strdup(key, err);
    add->key_top = sqrl_top_field(key, err);
    add->waiting = sqrl_calloc(add->expected, sizeof *add->waiting, "samples", err);
    return add->key && add->key_top && add->waiting ? SQRL_OK : SQRL_E_NO_MEMORY;
}

static int open_lane(struct sqrl_packer *p, const struct sqrl_add_options *options,
                     struct sqrl_error *err) {
    struct sqrl_pack_lane *lane = &p->lane[0];
    lane->group.name = sqrl_strdup(options->group, err);
    int rc = lane->group.name ? SQRL_OK : SQRL_E_NO_MEMORY;
    lane->grows = options->field_count == 0;
    for (size_t i = 0; rc == SQRL_OK && i < options->field_count; i++) {
        const char *name = options->fields[i];
        rc = sqrl_pack_add_field(p, name, strlen(name), err);
        if (rc == SQRL_OK)
            rc = sqrl_names_add(&lane->group.fields, name, strlen(name), err);
    }
    return rc;
}

static int check_options(const struct sqrl_add_options *options, struct sqrl_error *err) {
    if (options->size != sizeof *options)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "sqrl_add_options.size is %zu, not %zu: set it to sizeof, "
                              "and build against this library's headers",
                              options->size, sizeof *options);
    if (options->group && sqrl_group_name_valid(options->group, strlen(options->group)) &&
        strcmp(options->group, SQRL_GROUP_REST) != 0)
        return SQRL_OK;
    return sqrl_error_set(
        err, SQRL_E_INVALID,
        "group: a name of 1 to %u letters, digits, '_' and '-', and not "
        "\"" SQRL_GROUP_REST "\": \"%.80s\"",
        SQRL_MAX_GROUP_NAME, options->group ? options->group : "");
}

/* A packer must not make a directory where none is. */
static int check_there(struct sqrl_context *context, const char *destination,
                       const struct sqrl_settings *settings, struct sqrl_error *err) {
    struct sqrl_fs *fs = NULL;
    char *path = NULL;
    struct sqrl_stat stat;
    int rc = sqrl_fs_for_settings(context, destination, settings, &fs, &path, err);
    if (rc == SQRL_OK)
        rc = sqrl_fs_stat(fs, path, &stat, err);
    if (rc == SQRL_OK && !stat.directory)
        rc = sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                            "fields are added to a directory of native shards; this is a "
                            "file");
    free(path);
    sqrl_fs_unref(fs);
    return rc;
}

int sqrl_packer_add_fields(struct sqrl_context *context, const char *destination,
                           const struct sqrl_add_options *options,
                           struct sqrl_packer **out, struct sqrl_error *err) {
    struct sqrl_packer *p = NULL;
    *out = NULL;
    int rc = check_options(options, err);
    if (rc == SQRL_OK)
        rc = check_there(context, destination, options->settings, err);
    const struct sqrl_pack_options as = {.size = sizeof as,
                                         .format = "sqrl",
                                         .append = true,
                                         .block_bytes = options->block_bytes,
                                         .shard_bytes = UINT64_MAX,
                                         .settings = options->settings};
    if (rc)
        return sqrl_error_at_path(err, rc, destination, NULL);
    rc = sqrl_pack_open(context, destination, &as, &p, err);
    if (rc)
        return rc;
    p->add = sqrl_calloc(1, sizeof *p->add, "packer", err);
    rc = p->add ? open_data(p, destination, options, err) : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK)
        rc = open_key(p->add, options->key, err);
    if (rc == SQRL_OK)
        rc = open_lane(p, options, err);
    if (rc) {
        sqrl_error_at_path(err, rc, destination, p->target.path);
        sqrl_packer_abandon(p);
        return rc;
    }
    p->samples_per_shard = p->add->shard[0].samples;
    *out = p;
    return SQRL_OK;
}

bool sqrl_packer_run(const struct sqrl_packer *p, size_t i, uint64_t *first,
                     uint64_t *count) {
    *first = *count = 0;
    if (!p->add || i >= p->add->shards)
        return false;
    *first = p->add->shard[i].first;
    *count = p->add->shard[i].samples;
    return true;
}

/* --- fields --- */

static bool schema_has(const struct sqrl_schema *schema, const char *name, size_t size) {
    for (uint32_t i = 0; schema && i < schema->count; i++) {
        char *top = sqrl_top_field(schema->fields[i].name, NULL);
        bool same = top && strncmp(top, name, size) == 0 && !top[size];
        free(top);
        if (same)
            return true;
    }
    return false;
}

int sqrl_pack_add_field(struct sqrl_packer *p, const char *name, size_t size,
                        struct sqrl_error *err) {
    const struct sqrl_source *source = p->add->source;
    const struct sqrl_families *f = source->families;
    const char *own = p->lane[0].group.name;
    bool there = false;
    if (!f && source->schema_state == SCHEMA_READ)
        there = schema_has(&source->schema, name, size);
    if (f && f->group[0].has_schema)
        there = schema_has(&f->group[0].schema, name, size);
    for (uint32_t g = 1; f && g < f->groups && !there; g++)
        there = strcmp(f->group[g].group.name, own) != 0 &&
                sqrl_names_find(&f->group[g].group.fields, name, size) >= 0;
    if (!size || !there)
        return size ? SQRL_OK
                    : sqrl_error_set(err, SQRL_E_INVALID, "a field's name is empty");
    return sqrl_error_set(
        err, SQRL_E_EXISTS,
        "the data set's samples have a field \"%.*s\" already: give the "
        "new one another name",
        (int)SQRL_MIN(size, 120u), name);
}

bool sqrl_pack_add_skips(const struct sqrl_packer *p, const char *name, size_t size) {
    const char *top = p->add->key_top;
    return top && strncmp(top, name, size) == 0 && !top[size];
}

/* --- samples --- */

static int too_many(const struct sqrl_pack_addition *add, struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "more samples were given than the %llu that the data set has: "
                          "give one for each, in its order",
                          LLU(add->expected));
}

/* The number among those that are asked for. */
static uint64_t ordinal(const struct sqrl_pack_addition *add, uint64_t position) {
    uint64_t before = 0;
    for (size_t i = 0; i < add->shards; i++) {
        const struct target_shard *shard = &add->shard[i];
        if (position >= shard->first && position - shard->first < shard->samples)
            return before + (position - shard->first);
        before += shard->samples;
    }
    return SQRL_UNKNOWN;
}

/* The sample's key, borrowed from its bytes. */
static int read_key(struct sqrl_packer *p, struct sqrl_tape *tape, struct sqrl_key *key,
                    struct sqrl_error *err) {
    size_t at = 0;
    uint64_t hash;
    int rc = sqrl_msgpack_decode(tape, p->spare.data, p->spare.size, &at, NULL, err);
    if (rc)
        return rc;
    uint32_t node =
        sqrl_field_path_find(&p->add->key_path, tape->nodes, 0, p->spare.data);
    if (node == SQRL_NO_NODE || !sqrl_key_hash(tape->nodes, node, p->spare.data, &hash))
        return sqrl_error_set(err, SQRL_E_TYPE,
                              "sample %llu of those given has no key \"%.120s\" (a text, "
                              "bytes or an integer)",
                              LLU(p->add->given), p->add->key);
    const struct sqrl_node *n = &tape->nodes[node];
    *key = (struct sqrl_key){.number = n->v.i};
    if (n->type == SQRL_STRING || n->type == SQRL_BINARY)
        *key = (struct sqrl_key){.bytes = p->spare.data + n->v.offset, .size = n->size};
    return SQRL_OK;
}

static int keep_sample(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    struct sqrl_tape tape = {0};
    struct sqrl_key key;
    uint64_t position = 0, number;
    int rc = read_key(p, &tape, &key, err);
    if (rc == SQRL_OK)
        rc = sqrl_source_find(add->source, &key, &position, err);
    sqrl_tape_reset(&tape);
    if (rc)
        return rc;
    number = ordinal(add, position);
    if (number == SQRL_UNKNOWN)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "sample %llu of those given is of a shard that has the "
                              "group already",
                              LLU(add->given));
    struct waiting *place = &add->waiting[number];
    if (place->size)
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "two samples were given for the one at position %llu: keys "
                              "must be given once",
                              LLU(position));
    *place = (struct waiting){add->kept.size, p->spare.size};
    return sqrl_bytes_append(&add->kept, p->spare.data, p->spare.size, err);
}

int sqrl_pack_add_accept(struct sqrl_packer *p, bool *kept, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    *kept = add->waiting != NULL;
    int rc = SQRL_OK;
    if (*kept)
        rc = keep_sample(p, err);
    else if (add->current == add->shards)
        rc = too_many(add, err);
    add->given += rc == SQRL_OK;
    return rc;
}

/* --- shards --- */

int sqrl_pack_add_begin(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    const struct target_shard *shard = &add->shard[add->current];
    struct sqrl_native_summary summary = {0};
    char **grown =
        sqrl_realloc(add->of, (add->of_count + 1) * sizeof *grown, "shards", err);
    if (!grown)
        return SQRL_E_NO_MEMORY;
    add->of = grown;
    char *path = sqrl_path_join(p->target.path, shard->name, err);
    int rc = path
                 ? sqrl_native_summary_read(p->context, p->target.fs, path, &summary, err)
                 : SQRL_E_NO_MEMORY;
    if (rc == SQRL_OK && summary.samples != shard->samples)
        rc = sqrl_error_at(err,
                           sqrl_error_set(err, SQRL_E_STATE,
                                          "the shard has %llu samples now, not %llu: it "
                                          "was replaced meanwhile",
                                          LLU(summary.samples), LLU(shard->samples)),
                           "%s", path);
    if (rc == SQRL_OK) {
        if (summary.group.family[0])
            memcpy(p->family, summary.group.family, sizeof p->family);
        else
            sqrl_family_of(summary.footer_checksum, shard->name, p->family);
        add->of[add->of_count++] = (char *)(uintptr_t)shard->name;
        p->lane[0].covers_each = SQRL_MAX(summary.raw_bytes / summary.samples, 1u);
    }
    sqrl_native_summary_reset(&summary);
    free(path);
    return rc;
}

void sqrl_pack_add_end(struct sqrl_packer *p) {
    struct sqrl_pack_addition *add = p->add;
    add->current++;
    p->samples_per_shard =
        add->current < add->shards ? add->shard[add->current].samples : UINT64_MAX;
}

/* --- the end --- */

/* Names the first sample that was not given. */
static int too_few(const struct sqrl_packer *p, uint64_t number, uint64_t given,
                   struct sqrl_error *err) {
    const struct sqrl_pack_addition *add = p->add;
    uint64_t left = number;
    size_t i = 0;
    for (; i + 1 < add->shards && left >= add->shard[i].samples; i++)
        left -= add->shard[i].samples;
    return sqrl_error_set(err, SQRL_E_INVALID,
                          "%llu samples were given, but the data set has %llu: the first "
                          "that is missing is sample %llu of shard \"%s\" (position %llu)"
                          "; nothing was changed",
                          LLU(given), LLU(add->expected), LLU(left), add->shard[i].name,
                          LLU(add->shard[i].first + left));
}

static int write_kept(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    for (uint64_t i = 0; i < add->expected; i++)
        if (!add->waiting[i].size)
            return too_few(p, i, add->given, err);
    for (uint64_t i = 0; i < add->expected; i++) {
        const struct waiting *w = &add->waiting[i];
        p->spare.size = 0;
        int rc = sqrl_pack_check_state(p, err);
        if (rc == SQRL_OK)
            rc = sqrl_bytes_append(&p->spare, add->kept.data + w->at, w->size, err);
        if (rc == SQRL_OK)
            rc = sqrl_pack_split(p, err);
        p->spare.size = 0;
        if (rc == SQRL_OK)
            rc = sqrl_pack_take_sample(p, w->size, err);
        if (rc)
            return rc;
    }
    return SQRL_OK;
}

int sqrl_pack_add_finish(struct sqrl_packer *p, struct sqrl_error *err) {
    struct sqrl_pack_addition *add = p->add;
    int rc = SQRL_OK;
    if (add->waiting)
        rc = write_kept(p, err);
    else if (add->given < add->expected)
        rc = too_few(p, add->given, add->given, err);
    return rc ? sqrl_error_at_path(err, rc, p->target.path, NULL) : SQRL_OK;
}

int sqrl_pack_add_commit(struct sqrl_packer *p, struct sqrl_error *err) {
    return sqrl_commit_add_group(
        p->context, p->target.fs, p->target.path, (const char *const *)p->names,
        (const char *const *)p->add->of, p->name_count, NULL, err);
}
