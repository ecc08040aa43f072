/* pack.h - where a pack writes to: what pack.c and pack_pipe.c ask of pack_target.c. */
#ifndef SQRL_DRIVER_PACK_PRIVATE_H
#define SQRL_DRIVER_PACK_PRIVATE_H

#include "driver/driver.h"
#include "format/format.h"
#include "sqrl/pack.h"

/* What a destination and its options come to. */
struct sqrl_pack_target {
    struct sqrl_fs *fs;
    char *path;     /* within fs */
    char *url_head; /* what stands before a path of fs in messages: "s3://", "" */
    bool directory;
    bool native; /* shards become a data set by a commit */
    const struct sqrl_format_ops *format;
    char suffix[32]; /* of shards in a directory */
    char *prefix;    /* of shards in a directory */
    /* The format's write options, copied, and the codec that the suffix asks for. */
    struct sqrl_settings settings;
    char *made;      /* the deepest directory that was made for this; NULL: none */
    size_t made_top; /* bytes of the first of its parts that was missing */
    struct sqrl_listing old; /* files that finish() replaces (not native) */
};

/* Finds out what to write, checks options, makes the directory and sweeps dead
 * temporaries. Reset also on failure. */
SQRL_CHECK int sqrl_pack_target_open(struct sqrl_context *context,
                                     const char *destination,
                                     const struct sqrl_pack_options *options,
                                     struct sqrl_pack_target *out,
                                     struct sqrl_error *err);
/* Makes the directory, and `_sqrl` in it, unless they are there: another pack that gave
 * up may have taken them away. */
SQRL_CHECK int sqrl_pack_target_make(const struct sqrl_pack_target *target,
                                     struct sqrl_error *err);
/* Gives up: removes the directories that open() made, as long as they are empty. */
void sqrl_pack_target_undo(const struct sqrl_pack_target *target);
void sqrl_pack_target_reset(struct sqrl_pack_target *target);
/* Puts a path of fs first in the error's place, once, as a URL. Returns the code. */
int sqrl_pack_target_error(const struct sqrl_pack_target *target, int code,
                           const char *path, struct sqrl_error *err);
/* Whether a file of the directory has a name that its shards have. */
bool sqrl_pack_target_owns(const struct sqrl_pack_target *target, const char *name);
/* The name of shard `number` within the directory; allocated: free with free(). */
char *sqrl_pack_target_name(const struct sqrl_pack_target *target, uint64_t number,
                            struct sqrl_error *err);
/* Removes the files that were there before, but for those of the given names. */
SQRL_CHECK int sqrl_pack_target_replace(const struct sqrl_pack_target *target,
                                        const char *const *keep, size_t count,
                                        struct sqrl_error *err);

#endif
