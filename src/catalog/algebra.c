/* algebra.c - catalogs made from catalogs. Every result shares its values with the
 * catalogs it comes from. */
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog.h"
#include "sqrl/codec.h"

/* The item of `in` with the name and version of an item of `from`. */
static uint32_t twin(const struct sqrl_catalog *in, const struct sqrl_catalog *from,
                     uint32_t item) {
    const struct sqrl_catalog_name *name = &from->name[from->item[item].name];
    uint32_t found = sqrl_catalog_name_index(in, name->text, name->hash);
    return found == SQRL_TABLE_NONE
               ? SQRL_TABLE_NONE
               : sqrl_catalog_item_index(in, found, from->item[item].version);
}

/* enum sqrl_catalog_difference; 0: in nothing. */
static unsigned differs(const struct sqrl_catalog *a, uint32_t i,
                        const struct sqrl_catalog *b, uint32_t k) {
    return sqrl_catalog_value_differs(a->item[i].value, b->item[k].value);
}

/* What tells whether an item goes into the result: 0, 1, or an error's code. */
typedef int (*keep_fn)(void *arg, const struct sqrl_catalog *from, uint32_t item,
                       struct sqrl_error *err);

enum { KEEP = 1, LEAVE = 0, STOP = -1 };

static int add_kept(struct sqrl_catalog *to, const struct sqrl_catalog *from,
                    keep_fn keep, void *arg, struct sqrl_error *err) {
    uint64_t cursor = 0;
    uint32_t item;
    int code = SQRL_OK;
    while (!code && (item = sqrl_catalog_next_item(from, &cursor)) != SQRL_TABLE_NONE) {
        int kept = keep ? keep(arg, from, item, err) : KEEP;
        if (kept == STOP)
            return err ? (int)err->code : SQRL_E_USER;
        if (kept == KEEP)
            code = sqrl_catalog_take(to, from, item, err);
    }
    return code;
}

/* A new catalog with what is kept of two (the second may be NULL). */
static int make(const struct sqrl_catalog *first, keep_fn keep_first,
                const struct sqrl_catalog *second, keep_fn keep_second, void *arg,
                struct sqrl_catalog **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_catalog *made = NULL;
    struct sqrl_error own = {0};
    int code = sqrl_catalog_new(&made, err);
    if (code)
        return code;
    err = err ? err : &own;
    code =
        sqrl_catalog_reserve(made, first->live_names + (second ? second->live_names : 0),
                             first->live_items + (second ? second->live_items : 0), err);
    if (!code)
        code = add_kept(made, first, keep_first, arg, err);
    if (!code && second)
        code = add_kept(made, second, keep_second, arg, err);
    if (code)
        sqrl_catalog_free(made);
    else
        *out = made;
    return code;
}

int sqrl_catalog_copy(const struct sqrl_catalog *catalog, struct sqrl_catalog **out,
                      struct sqrl_error *err) {
    return make(catalog, NULL, NULL, NULL, NULL, out, err);
}

/* --- two catalogs --- */
struct pair {
    const struct sqrl_catalog *a, *b;
    enum sqrl_catalog_conflict conflict;
};

static int conflict_error(const struct sqrl_catalog *c, uint32_t item, const char *what,
                          struct sqrl_error *err) {
    sqrl_error_set(err, SQRL_E_EXISTS, "version %llu of source \"%.80s\" %s",
                   (unsigned long long)c->item[item].version,
                   c->name[c->item[item].name].text, what);
    return STOP;
}

static int difference_error(const struct sqrl_catalog *c, uint32_t item,
                            unsigned difference, const char *remedy,
                            struct sqrl_error *err) {
    char what[200];
    static const char *const fields[] = {"driver_name", "driver_kwargs", "metadata"};
    int at = snprintf(what, sizeof what, "differs between the catalogs (in");
    for (unsigned i = 0, count = 0; i < SQRL_COUNT_OF(fields); i++)
        if (difference & 1u << i)
            at += snprintf(what + at, sizeof what - (size_t)at, "%s %s",
                           count++ ? "," : "", fields[i]);
    snprintf(what + at, sizeof what - (size_t)at, ")%s", remedy);
    return conflict_error(c, item, what, err);
}

static int keep_theirs(void *arg, const struct sqrl_catalog *from, uint32_t item,
                       struct sqrl_error *err) {
    const struct pair *pair = arg;
    uint32_t ours = twin(pair->a, from, item);
    if (ours == SQRL_TABLE_NONE)
        return KEEP;
    unsigned difference =
        pair->conflict == SQRL_CONFLICT_ERROR ? differs(pair->a, ours, from, item) : 0;
    if (difference)
        return difference_error(from, item, difference,
                                "; say which one counts (ours or theirs), or give one of "
                                "them another version",
                                err);
    return pair->conflict == SQRL_CONFLICT_THEIRS ? KEEP : LEAVE;
}

int sqrl_catalog_union(const struct sqrl_catalog *ours, const struct sqrl_catalog *theirs,
                       enum sqrl_catalog_conflict conflict, struct sqrl_catalog **out,
                       struct sqrl_error *err) {
    struct pair pair = {ours, theirs, conflict};
    return make(ours, NULL, theirs, keep_theirs, &pair, out, err);
}

static int keep_new(void *arg, const struct sqrl_catalog *from, uint32_t item,
                    struct sqrl_error *err) {
    const struct pair *pair = arg;
    if (twin(pair->a, from, item) == SQRL_TABLE_NONE)
        return KEEP;
    return conflict_error(from, item,
                          "is in both catalogs; a join is of catalogs that have none in "
                          "common, a union is not",
                          err);
}

int sqrl_catalog_join(const struct sqrl_catalog *a, const struct sqrl_catalog *b,
                      struct sqrl_catalog **out, struct sqrl_error *err) {
    struct pair pair = {.a = a, .b = b};
    return make(a, NULL, b, keep_new, &pair, out, err);
}

static int keep_common(void *arg, const struct sqrl_catalog *from, uint32_t item,
                       struct sqrl_error *err) {
    const struct pair *pair = arg;
    uint32_t other = twin(pair->b, from, item);
    if (other == SQRL_TABLE_NONE)
        return LEAVE;
    unsigned difference = differs(from, item, pair->b, other);
    return difference ? difference_error(from, item, difference, "", err) : KEEP;
}

int sqrl_catalog_intersection(const struct sqrl_catalog *a, const struct sqrl_catalog *b,
                              struct sqrl_catalog **out, struct sqrl_error *err) {
    struct pair pair = {.a = a, .b = b};
    return make(a, keep_common, NULL, NULL, &pair, out, err);
}

/* Not in the other one of the two. */
static int keep_alone(void *arg, const struct sqrl_catalog *from, uint32_t item,
                      struct sqrl_error *err) {
    const struct pair *pair = arg;
    const struct sqrl_catalog *other = from == pair->a ? pair->b : pair->a;
    return twin(other, from, item) == SQRL_TABLE_NONE ? KEEP : LEAVE;
}

int sqrl_catalog_symmetric_difference(const struct sqrl_catalog *a,
                                      const struct sqrl_catalog *b,
                                      struct sqrl_catalog **out, struct sqrl_error *err) {
    struct pair pair = {.a = a, .b = b};
    return make(a, keep_alone, a == b ? NULL : b, keep_alone, &pair, out, err);
}

int sqrl_catalog_subtract(const struct sqrl_catalog *a, const struct sqrl_catalog *b,
                          struct sqrl_catalog **out, struct sqrl_error *err) {
    struct pair pair = {.a = a, .b = b};
    return make(a, keep_alone, NULL, NULL, &pair, out, err);
}

bool sqrl_catalog_equal(const struct sqrl_catalog *a, const struct sqrl_catalog *b) {
    uint64_t cursor = 0;
    uint32_t item;
    if (a->live_items != b->live_items)
        return false;
    while ((item = sqrl_catalog_next_item(a, &cursor)) != SQRL_TABLE_NONE) {
        uint32_t other = twin(b, a, item);
        if (other == SQRL_TABLE_NONE || differs(a, item, b, other))
            return false;
    }
    return true;
}

/* --- one catalog --- */
int sqrl_catalog_slice(const struct sqrl_catalog *catalog, const char *const *names,
                       size_t count, struct sqrl_catalog **out, struct sqrl_error *err) {
    *out = NULL;
    struct sqrl_catalog *made = NULL;
    int code = sqrl_catalog_new(&made, err);
    for (size_t i = 0; i < count && !code; i++) {
        struct sqrl_catalog_source source;
        code = sqrl_catalog_find(catalog, names[i], 0, &source, err);
        uint32_t name =
            code ? 0
                 : sqrl_catalog_name_index(catalog, names[i],
                                           sqrl_xxh3(names[i], strlen(names[i])));
        uint32_t item = code ? SQRL_TABLE_NONE : catalog->name[name].first;
        for (; item != SQRL_TABLE_NONE && !code; item = catalog->item[item].next) {
            code = sqrl_catalog_reserve(made, 1, 1, err);
            if (!code)
                code = sqrl_catalog_take(made, catalog, item, err);
        }
    }
    if (code)
        sqrl_catalog_free(made);
    else
        *out = made;
    return code;
}

struct filter {
    sqrl_catalog_predicate predicate;
    void *arg;
};

static int keep_chosen(void *arg, const struct sqrl_catalog *from, uint32_t item,
                       struct sqrl_error *err) {
    const struct filter *filter = arg;
    struct sqrl_catalog_source source;
    sqrl_catalog_view(from, item, &source);
    int kept = filter->predicate(filter->arg, &source);
    if (kept >= 0)
        return kept ? KEEP : LEAVE;
    sqrl_error_set(err, SQRL_E_USER, "the predicate of a filter failed");
    return STOP;
}

int sqrl_catalog_filter(const struct sqrl_catalog *catalog,
                        sqrl_catalog_predicate predicate, void *arg,
                        struct sqrl_catalog **out, struct sqrl_error *err) {
    struct filter filter = {predicate, arg};
    return make(catalog, keep_chosen, NULL, NULL, &filter, out, err);
}
