/* kept.c - credentials that run out, kept for all file systems of a context that are the
 * same to who gives them: a thousand opened sources ask the metadata server once. */
#include <stdlib.h>

#include "io/object/credentials.h"
#include "io/object/digest.h"

enum { MAX_KEPT = 64 }; /* identities; more than these are not shared */

struct object_kept {
    struct object_kept *next;
    uint8_t identity[OBJECT_SHA256_BYTES];
    struct sqrl_lock lock;
    struct aws_keys keys; /* key NULL: none so far */
    int64_t fetched;
};

void object_identity_add(struct object_identity *identity, const char *text) {
    /* With its end, and nothing told from the empty text. */
    object_sha256_add(&identity->sum, text ? "+" : "-", 1);
    if (text)
        object_sha256_add(&identity->sum, text, strlen(text) + 1);
}

void object_identity_begin(struct object_identity *identity, const char *kind) {
    object_sha256_init(&identity->sum);
    object_identity_add(identity, kind);
}

struct object_kept *object_kept_of(struct object_store *store,
                                   struct object_identity *identity) {
    struct sqrl_kept_place *place = sqrl_io_kept(store->context, NULL);
    uint8_t sum[OBJECT_SHA256_BYTES];
    unsigned count = 0;
    object_sha256_end(&identity->sum, sum);
    if (!place)
        return NULL;
    sqrl_lock_take(&place->lock);
    struct object_kept *k = place->first;
    for (; k && memcmp(k->identity, sum, sizeof sum) != 0; k = k->next)
        count++;
    if (!k && count < MAX_KEPT && (k = sqrl_calloc(1, sizeof *k, "credentials", NULL))) {
        memcpy(k->identity, sum, sizeof sum);
        sqrl_lock_init(&k->lock);
        k->next = place->first;
        __atomic_store_n(&place->first, k, __ATOMIC_RELEASE);
    }
    sqrl_lock_drop(&place->lock);
    return k;
}

void object_kept_lock(struct object_kept *kept) {
    if (!kept)
        return;
    if (sqrl_lock_take(&kept->lock)) { /* the parent's may be half written */
        memset(&kept->keys, 0, sizeof kept->keys);
        kept->fetched = 0;
    }
}

void object_kept_unlock(struct object_kept *kept) {
    if (kept)
        sqrl_lock_drop(&kept->lock);
}

bool object_kept_take(const struct object_kept *kept, int64_t after, int64_t now,
                      struct aws_keys *out, int64_t *fetched) {
    if (!kept || !kept->keys.key || kept->fetched <= after || now >= kept->keys.expires)
        return false;
    *fetched = kept->fetched;
    return aws_keys_copy(&kept->keys, out, NULL) == SQRL_OK;
}

void object_kept_put(struct object_kept *kept, const struct aws_keys *keys,
                     int64_t fetched) {
    struct aws_keys copy;
    if (!kept || !keys->expires || aws_keys_copy(keys, &copy, NULL) != SQRL_OK)
        return;
    aws_keys_free(&kept->keys);
    kept->keys = copy;
    kept->fetched = fetched;
}

void sqrl_kept_release(struct object_kept *first) {
    while (first) {
        struct object_kept *next = first->next;
        aws_keys_free(&first->keys);
        sqrl_lock_reset(&first->lock);
        free(first);
        first = next;
    }
}
