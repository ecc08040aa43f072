/* sqrl/arrow.h - batches as Arrow arrays, without a copy.
 *
 * The structs are those of the Arrow C data interface and C stream interface
 * (https://arrow.apache.org/docs/format/CDataInterface.html), declared here under the
 * guard that the specification asks for. Offsets are 64-bit (large_utf8, large_binary,
 * large_list); DENSE columns are fixed_size_list; the validity bytes become a bitmap (the
 * only copy).
 */
#ifndef SQRL_ARROW_H
#define SQRL_ARROW_H

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* Exports a batch as a struct array; the array holds a reference to the batch until its
 * release. Either out may be NULL. bool columns become uint8 (Arrow's bits would be a
 * copy); complex numbers become fixed_size_list<float>[2] with the metadata key
 * "sqrl.dtype". */
SQRL_CHECK int sqrl_arrow_export_batch(struct sqrl_batch *batch,
                                       struct ArrowSchema *schema,
                                       struct ArrowArray *array, struct sqrl_error *err);
/* Runs a batched plan as an Arrow stream. The stream owns an iterator; its release closes
 * it. */
SQRL_CHECK int sqrl_arrow_export_plan(struct sqrl_plan *plan,
                                      struct ArrowArrayStream *out,
                                      struct sqrl_error *err);

#ifdef __cplusplus
}
#endif
#endif
