/* locate.h - finds the wanted fields of every sample of a block.
 *
 * Samples of a data set mostly have the same keys in the same order. So a locator learns
 * the key layout of one sample and then only checks, key by key, that the next has the
 * same; a sample that differs is looked up field by field and, if its keys are regular,
 * learned too.
 *
 * Threads: the wanted fields are shared and read-only; a locator (the learned layouts)
 * belongs to one thread at a time.
 */
#ifndef SQRL_STREAM_LOCATE_H
#define SQRL_STREAM_LOCATE_H

#include "stream/projection.h"

/* What is wanted: a tree over the keys of dotted names. */
struct sqrl_wants;
struct sqrl_wants *sqrl_wants_new(struct sqrl_error *err);
void sqrl_wants_free(struct sqrl_wants *wants);
/* Adds a field of the source (a dotted name); *out is its number. The same name again
 * gives the same number. */
SQRL_CHECK int sqrl_wants_add(struct sqrl_wants *wants, const char *name, uint32_t *out,
                              struct sqrl_error *err);
uint32_t sqrl_wants_count(const struct sqrl_wants *wants);
/* Asked about fields that are not wanted: true says that it would come out of the stream,
 * so that it must not be lost silently. The answer for a name never changes. */
typedef bool (*sqrl_stranger_fn)(void *arg, const char *name);
void sqrl_wants_set_stranger(struct sqrl_wants *wants, sqrl_stranger_fn stranger,
                             void *arg);

struct sqrl_locator;
/* Holds no reference: `wants` must outlive it. */
struct sqrl_locator *sqrl_locator_new(const struct sqrl_wants *wants,
                                      struct sqrl_error *err);
void sqrl_locator_free(struct sqrl_locator *locator);
/* Writes the node of each wanted field of the sample at `node` to found[], SQRL_NO_NODE
 * where it lacks one. Of equal keys the last counts. *stranger (may be NULL) receives the
 * dotted name of a field that must not be there, valid until the next call, or NULL.
 * Never fails: without memory it looks fields up one by one. */
void sqrl_locate(struct sqrl_locator *locator, const struct sqrl_node *nodes,
                 uint32_t node, const uint8_t *bytes, uint32_t *found,
                 const char **stranger);
/* The same for the samples at begin[0 .. count), as far as they have the keys of the one
 * before and all that is wanted: found[] has a row of sqrl_wants_count entries each.
 * Returns how many; no stranger is in them. */
uint32_t sqrl_locate_run(struct sqrl_locator *locator, const struct sqrl_node *nodes,
                         const uint32_t *begin, uint32_t count, const uint8_t *bytes,
                         uint32_t *found);
/* True when the stranger of the last sqrl_locate is a key that can't name a field (no
 * text, empty, or with a NUL): *stranger then says which, where and why. */
bool sqrl_locator_nameless(const struct sqrl_locator *locator);

#endif
