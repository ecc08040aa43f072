/* family.h - the groups of fields of a source's shards, and how they are joined.
 *
 * A source with groups has one base for each shard, which gives the numbering, and parts:
 * shards that hold more fields of the same samples. A reader loads a block of the shard
 * that leads and joins to it the rows of the other parts (family_join.c). A source that
 * needs only some fields is made from another by sqrl_source_narrow: its shards are those
 * of the first group that is needed.
 */
#ifndef SQRL_DRIVER_FAMILY_H
#define SQRL_DRIVER_FAMILY_H

#include "driver/block_cache.h"
#include "driver/driver.h"
#include "format/group.h"
#include "value/schema.h"

/* Group 0 is the base of every shard. */
struct sqrl_family_group {
    struct sqrl_group group; /* of group 0 nothing: see base_of */
    bool has_schema;
    struct sqrl_schema schema; /* of the shards that have it */
    struct sqrl_shard_chunk *chunk;
    uint64_t chunks;          /* by shard */
    struct sqrl_shard *shard; /* [shards]; path NULL: that one lacks the group */
};

enum { SQRL_PART_LOCKS = 16 };

struct sqrl_families {
    int refs;
    struct sqrl_block_cache blocks;            /* of parts that are joined */
    struct sqrl_lock loading[SQRL_PART_LOCKS]; /* one block is loaded once */
    uint64_t shards;
    uint32_t groups; /* with group 0 */
    struct sqrl_family_group *group;
    struct sqrl_group *base; /* [bases]: what footers say of bases */
    uint32_t bases;
    uint32_t *base_of; /* [shards]: 1 + which one; 0: written without groups */
};

struct sqrl_families *sqrl_families_new(struct sqrl_context *context, uint64_t shards,
                                        struct sqrl_error *err);
struct sqrl_families *sqrl_families_ref(struct sqrl_families *families);
void sqrl_families_unref(struct sqrl_families *families);

/* How a source uses the parts of a shard. */
enum sqrl_part_use { SQRL_PART_NOT, SQRL_PART_JOINED, SQRL_PART_LEADS };
static inline enum sqrl_part_use sqrl_part_use(const struct sqrl_families *families,
                                               const uint8_t *use, uint64_t shard,
                                               uint32_t group) {
    if (!families->group[group].shard[shard].path)
        return SQRL_PART_NOT;
    if (!use) /* whole samples */
        return group ? SQRL_PART_JOINED : SQRL_PART_LEADS;
    return (enum sqrl_part_use)use[shard * families->groups + group];
}

/* Adds fields of samples that `to` counts already; when all are there, set `samples` and
 * call sqrl_schema_settle. */
SQRL_CHECK int sqrl_schema_unite(struct sqrl_schema *to, const struct sqrl_schema *more,
                                 struct sqrl_error *err);
/* What samples of the groups in question occupy, without fields that were added later:
 * the bytes that decide where windows end. */
uint64_t sqrl_families_raw_bytes(const struct sqrl_families *families, const uint8_t *use,
                                 uint64_t shard);

/* How many times the bytes of the part that leads those of all parts in use are. */
double sqrl_family_ratio(const struct sqrl_source *source, uint64_t shard);

/* --- family_join.c --- */
struct sqrl_core;
/* Adds to a block of the leading part, freshly loaded, whose first sample is `first` of
 * the shard, the fields of the other parts. On failure the block is of no use. */
SQRL_CHECK int sqrl_family_join(struct sqrl_source *source, struct sqrl_core *core,
                                uint64_t first, const struct sqrl_cancel *cancel,
                                struct sqrl_block *block, struct sqrl_error *err);
/* The same for many blocks of one shard, by rising numbers: what they need of a part is
 * read in one go. */
SQRL_CHECK int sqrl_family_join_many(struct sqrl_source *source, struct sqrl_core *core,
                                     const uint64_t *first,
                                     struct sqrl_block *const *block, size_t count,
                                     const struct sqrl_cancel *cancel,
                                     struct sqrl_error *err);
/* Another part of the shard, opened now or before; it lives as long as the core. */
SQRL_CHECK int sqrl_family_part(struct sqrl_source *source, struct sqrl_core *core,
                                uint32_t group, struct sqrl_core **out,
                                struct sqrl_error *err);
/* Opens the other parts of the shard and checks what loading does not read of them. */
SQRL_CHECK int sqrl_family_check(struct sqrl_source *source, struct sqrl_core *core,
                                 const struct sqrl_cancel *cancel,
                                 struct sqrl_error *err);

/* --- driver_groups.c --- */
struct sqrl_commits;
/* Fills list->families from the commits, whose shards are in the list already (and
 * list->schema with the fields of all groups). Nothing without groups. */
SQRL_CHECK int sqrl_families_read(const struct sqrl_driver_args *args,
                                  const struct sqrl_listing *listing,
                                  const struct sqrl_commits *commits,
                                  struct sqrl_shard_list *list, struct sqrl_error *err);

#endif
