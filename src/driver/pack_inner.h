/* pack_inner.h - a packer: what pack.c, pack_groups.c and pack_add.c share.
 *
 * A lane takes the samples, or those of their fields that are of one group, to its own
 * shards. All lanes end their shards at the same sample; blocks end where each lane's are
 * full. */
#ifndef SQRL_DRIVER_PACK_INNER_H
#define SQRL_DRIVER_PACK_INNER_H

#include "driver/pack_pipe.h"
#include "format/group.h"

struct sqrl_pack_lane {
    struct sqrl_pack_job *current;
    struct sqrl_pack_shard *shard;
    size_t accepted;         /* bytes of current that are whole samples */
    uint64_t covered;        /* bytes of whole samples since its last block */
    uint64_t covers_each;    /* what is beside each sample that is added to */
    uint64_t total;          /* its own bytes, while the base is not chosen */
    struct sqrl_group group; /* name NULL: whole samples */
    bool grows;              /* takes any field; group.fields are those it met */
    bool *met;               /* of group.fields of one that does not grow; or NULL */
    struct sqrl_settings settings; /* of its writer */
    uint32_t pairs;                /* of the sample that is being split */
};

struct sqrl_pack_addition; /* pack_add.c: fields for shards that are there */

struct sqrl_packer {
    struct sqrl_context *context;
    uint32_t generation; /* of forks: a child can't go on */
    struct sqrl_pack_target target;
    uint64_t samples_per_shard, shard_bytes, block_bytes;
    bool overwrite, hold_commit, resume;
    uint64_t resumed;            /* samples of an earlier run */
    struct sqrl_pack_lane *lane; /* [lanes]: one, or one a group */
    uint32_t lanes;
    uint32_t base; /* the lane that gives the blocks of whole samples; SQRL_NO_BASE */
    char family[SQRL_FAMILY_BYTES]; /* of the shards that are open */
    struct sqrl_bytes spare;        /* the sample in the making, where no block is open */
    struct sqrl_bytes pieces;       /* of the sample that is being split */
    struct sqrl_pack_addition *add; /* or NULL */
    uint64_t shard_samples, shard_raw;
    uint64_t shards; /* numbers that were used up */
    bool open;       /* a shard of this number was begun */
    char **names;    /* of shards, in order */
    size_t name_count, name_capacity;
    struct sqrl_pack_pipe pipe;
};
#define SQRL_NO_BASE UINT32_MAX

/* pack.c */
SQRL_CHECK int sqrl_pack_check_state(struct sqrl_packer *p, struct sqrl_error *err);
/* Adds to the shards that are to be committed. */
SQRL_CHECK int sqrl_pack_add_name(struct sqrl_packer *p, const char *name,
                                  struct sqrl_error *err);
SQRL_CHECK int sqrl_pack_make_room(struct sqrl_packer *p, struct sqrl_pack_lane *lane,
                                   struct sqrl_error *err);
/* One more sample stands behind lane->accepted: counts it, and ends what is full. */
SQRL_CHECK int sqrl_pack_take_sample(struct sqrl_packer *p, size_t size,
                                     struct sqrl_error *err);
SQRL_CHECK int sqrl_pack_end_shard(struct sqrl_packer *p, struct sqrl_error *err);
/* A packer without lanes' groups; `options` are checked. Frees itself on failure. */
SQRL_CHECK int sqrl_pack_open(struct sqrl_context *context, const char *destination,
                              const struct sqrl_pack_options *options,
                              struct sqrl_packer **out, struct sqrl_error *err);
/* Removes a shard that is whole but not committed. */
void sqrl_pack_drop_name(struct sqrl_packer *p, size_t i);

/* pack_resume.c: takes over the shards that an earlier run left. */
SQRL_CHECK int sqrl_pack_resume(struct sqrl_packer *p, struct sqrl_error *err);

/* pack_groups.c */
SQRL_CHECK int sqrl_pack_groups_open(struct sqrl_packer *p,
                                     const struct sqrl_pack_options *options,
                                     struct sqrl_error *err);
/* A field that was named for a group and is in no sample, while one of a name like it is
 * in no group: SQRL_E_NOT_FOUND. Without such a one a warning in the log. */
SQRL_CHECK int sqrl_pack_check_names(const struct sqrl_packer *p, struct sqrl_error *err);
/* Splits the sample in p->spare among the lanes. */
SQRL_CHECK int sqrl_pack_split(struct sqrl_packer *p, struct sqrl_error *err);
/* The first blocks are about to end: which group has the most bytes. */
void sqrl_pack_choose_base(struct sqrl_packer *p);
/* Removes the shards of whatever was left over, where nothing was. */
void sqrl_pack_drop_rest(struct sqrl_packer *p);

/* pack_add.c */
void sqrl_pack_addition_free(struct sqrl_pack_addition *add);
/* A sample in p->spare: kept until finish() where it has a key, else checked. *kept
 * tells.
 */
SQRL_CHECK int sqrl_pack_add_accept(struct sqrl_packer *p, bool *kept,
                                    struct sqrl_error *err);
/* The field is new to the group: no other may have it. */
SQRL_CHECK int sqrl_pack_add_field(struct sqrl_packer *p, const char *name, size_t size,
                                   struct sqrl_error *err);
/* Not to be stored: the key by which the sample was found. */
bool sqrl_pack_add_skips(const struct sqrl_packer *p, const char *name, size_t size);
/* Samples of the shard that is being written, and its family. */
SQRL_CHECK int sqrl_pack_add_begin(struct sqrl_packer *p, struct sqrl_error *err);
/* The shard's last sample was taken. */
void sqrl_pack_add_end(struct sqrl_packer *p);
/* All samples were given? With keys: writes them. */
SQRL_CHECK int sqrl_pack_add_finish(struct sqrl_packer *p, struct sqrl_error *err);
SQRL_CHECK int sqrl_pack_add_commit(struct sqrl_packer *p, struct sqrl_error *err);

#endif
