/* wants.h - the tree of wanted names, as the locator walks it. */
#ifndef SQRL_STREAM_WANTS_H
#define SQRL_STREAM_WANTS_H

#include "stream/columns/locate.h"

#define NO_WANT UINT32_MAX

/* A key on the way to wanted fields. */
struct want_node {
    char *key;
    uint32_t key_size;
    uint32_t want; /* the field that ends here, or NO_WANT */
    uint32_t parent;
    uint32_t first; /* child, 0: none (the root is nobody's child) */
    uint32_t next;  /* sibling, 0: last; in the order in which they were added */
};

struct sqrl_wants {
    struct want_node *node; /* [0] is the root */
    uint32_t nodes, capacity;
    uint32_t count; /* of wanted fields */
    sqrl_stranger_fn stranger;
    void *stranger_arg;
};

/* The child with this key, or 0. */
uint32_t sqrl_wants_child(const struct sqrl_wants *wants, uint32_t parent,
                          const void *key, uint32_t size);

#endif
