/* ext.h - what the files of the extension share.
 *
 * squirrel._native is one module with per-module state, heap types and no static Python
 * objects; it uses the limited API of Python 3.11 and only include/sqrl below it.
 * Wherever a call of the library may block, the GIL is released around it. Library
 * threads ask for the GIL in remote.c alone, where a Python object does the reading.
 */
#ifndef SQRL_EXT_H
#define SQRL_EXT_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <sqrl/sqrl.h>

#define EXT_LIKELY(x) __builtin_expect(!!(x), 1)
#define EXT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define EXT_HIDDEN __attribute__((visibility("hidden")))

#pragma GCC visibility push(hidden)

/* --- module state --- */

/* NumPy's C table and what is made from it once; see numpy.c. */
struct ext_numpy {
    void **api; /* NULL until NumPy was needed for the first time */
    PyTypeObject *array_type, *bool_type, *number_type, *generic_type;
    PyObject *descr[2][SQRL_DTYPE_COUNT]; /* [swapped][dtype], owned */
};

struct ext_log;

enum ext_class {
    EXT_SOURCE,
    EXT_PLAN,
    EXT_SAMPLES,
    EXT_BATCHES,
    EXT_SLOT,
    EXT_PIN,
    EXT_MEMORY,
    EXT_PACKER,
    EXT_GUARD,
    EXT_CATALOG,
    EXT_TWISTER,
    EXT_CHOICES,
    EXT_BATCHED,
    EXT_SHUFFLED,
    EXT_MONITORED,
    EXT_WINDOW,
    EXT_ORDERED,
    EXT_MIXED,
    EXT_FILE_SYSTEM,
    EXT_FILE,
    EXT_FILE_WRITER,
    EXT_COUNTED,
    EXT_CLASSES
};

struct ext_state {
    PyObject *module;  /* borrowed: the module owns this state */
    PyObject *errors;  /* tuple of exception classes, by code */
    PyObject *support; /* squirrel._support, imported when first needed */
    PyTypeObject *type[EXT_CLASSES];
    struct sqrl_context
        *context; /* the process's default context, made when first needed */
    struct ext_log *log;
    struct ext_gate *gate;
    unsigned
        forks; /* raised in the child of each fork: iterators of the parent end there */
    struct ext_numpy numpy;
};

static inline struct ext_state *ext_state_of(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* The default context (borrowed), or NULL with an exception. */
struct sqrl_context *ext_context(struct ext_state *state);
/* Tells the context how many DataLoader workers share the machine; never fails. */
void ext_share_cores(struct ext_state *state);
/* squirrel._support (borrowed), or NULL with an exception. */
PyObject *ext_support(struct ext_state *state);
/* Calls a function of squirrel._support: arguments as PyObject_CallFunctionObjArgs. */
PyObject *ext_support_call(struct ext_state *state, const char *name, PyObject *a,
                           PyObject *b);

/* --- errors (error.c) --- */

/* Raises the exception of err->code; always returns NULL. */
PyObject *ext_raise(struct ext_state *state, const struct sqrl_error *err);
PyObject *ext_raise_code(struct ext_state *state, int code, const char *text);
int ext_errors_import(struct ext_state *state);

/* --- calls that may take long (call.c) --- */

/* The first member of what describes a call: its arguments and results, in memory that
 * `drop` frees. `run` is called without the GIL, on a thread of its own. */
struct ext_call {
    void (*run)(struct ext_call *call);
    void (*drop)(struct ext_call *call);
    struct sqrl_cancel cancel;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t finished;
    unsigned shares;
    bool done;
};
/* Runs it; looks at signals meanwhile. 0: it is done, and the caller reads its results
 * and calls ext_call_end. -1: a signal handler raised; the call is not the caller's any
 * more. `quick`: it can't take long, and runs right here. */
int ext_call(struct ext_state *state, struct ext_call *call, bool quick);
void ext_call_end(struct ext_call *call);

/* --- log (log.c) --- */

/* Lines are queued by library threads without the GIL and handed to
 * logging.getLogger("squirrel") on the main thread, or by ext_log_drain on the caller's.
 */
struct ext_log *ext_log_new(void);
void ext_log_sink(void *arg, enum sqrl_log_level level, const char *line);
void ext_log_drain(struct ext_state *state);
/* What a wait does between its slices: delivers log lines and runs signal handlers.
 * -1: one raised. */
int ext_signals(struct ext_state *state);
void ext_log_stop(struct ext_log *log);

/* --- Python's file systems (remote.c) --- */

/* Keeps library threads from asking for the GIL once the interpreter ends. */
struct ext_gate;
struct ext_gate *ext_gate_new(void);
void ext_gate_close(struct ext_gate *gate); /* waits for the calls under way */
void ext_gate_forked(struct ext_gate *gate);
/* A thread of the library takes the GIL; false when the interpreter is ending. */
bool ext_gate_enter(struct ext_gate *gate, PyGILState_STATE *gil);
void ext_gate_leave(struct ext_gate *gate, PyGILState_STATE gil);
/* Turns the exception that is set into an error; returns its code. */
int ext_fail(struct sqrl_error *err);
/* A file system whose calls go to `files`, a squirrel._remote.Files; -1 with an
 * exception. */
int ext_remote_fs(struct ext_state *state, PyObject *files, struct sqrl_fs **out);

/* --- settings: a dict of options as sqrl_settings --- */

struct ext_settings {
    struct sqrl_settings settings;
    struct sqrl_setting *items;
    PyObject *texts; /* list that keeps the strings alive */
};
/* `options` is None or a dict of str to str, bool, int, float or path. */
int ext_settings_init(struct ext_settings *out, PyObject *options);
void ext_settings_reset(struct ext_settings *settings);

/* --- groups.c: names of fields, and groups of them. NULL and None are none. --- */
struct ext_names {
    PyObject *kept; /* list that holds the texts */
    const char **item;
    size_t count;
};
int ext_names_init(struct ext_names *out, PyObject *names);
void ext_names_reset(struct ext_names *names);
struct ext_groups {
    struct sqrl_pack_group *item;
    struct ext_names *names;
    size_t count;
};
/* The dict is borrowed: it lives as long as the groups. */
int ext_groups_init(struct ext_groups *out, PyObject *groups);
void ext_groups_reset(struct ext_groups *groups);
PyObject *ext_source_groups(const struct sqrl_source *source);

/* --- NumPy (numpy.c) --- */

/* Imports NumPy unless done; -1 with an exception. */
int ext_numpy_need(struct ext_state *state);
/* True when NumPy was imported by anyone; loads its table then. -1 with an exception. */
int ext_numpy_present(struct ext_state *state);
/* A new array: data NULL means fresh memory that the array owns (content undefined).
 * Otherwise it points to `data` and keeps `base` (a new reference is taken) alive. */
PyObject *ext_array_new(struct ext_state *state, enum sqrl_dtype dtype, bool swapped,
                        int dims, const uint64_t *shape, void *data, bool writable,
                        PyObject *base);
/* The same for any dtype object (borrowed). */
PyObject *ext_array_new_descr(struct ext_state *state, PyObject *descr, int dims,
                              const uint64_t *shape, void *data, bool writable,
                              PyObject *base);
void *ext_array_data(PyObject *array);
/* A NumPy scalar from raw bytes of `descr`. */
PyObject *ext_scalar_new(struct ext_state *state, PyObject *descr, const void *data);
PyObject *ext_descr(struct ext_state *state, enum sqrl_dtype dtype,
                    bool swapped); /* borrowed */
void ext_numpy_clear(struct ext_state *state);

/* What an encoder needs to know of an array. */
struct ext_array_info {
    enum sqrl_dtype dtype; /* SQRL_DTYPE_OTHER: ask the dtype object */
    bool swapped, contiguous;
    char kind; /* NumPy's dtype.kind */
    int dims;
    const intptr_t *shape;
    const void *data;
};
void ext_array_look(PyObject *array, struct ext_array_info *out);
/* A copy in C order. */
PyObject *ext_array_contiguous(struct ext_state *state, PyObject *array);
/* The dtype of a NumPy scalar and its value in native byte order (at most 16 bytes into
 * `out`); SQRL_DTYPE_OTHER without a value for the others. */
enum sqrl_dtype ext_scalar_look(struct ext_state *state, PyObject *scalar, void *out);

/* --- building Python objects from tapes (build.c) --- */

#define EXT_KEYS 256

struct ext_key {
    PyObject *object; /* owned, interned */
    const char *text; /* UTF-8, owned by object */
    uint32_t size;
};

struct ext_frame {
    PyObject *container, *key; /* owned */
    uint32_t at, left;
    bool map;
};

struct ext_stack {
    struct ext_frame *frames;
    uint32_t used, capacity;
};

struct ext_builder {
    struct ext_state *state;
    bool copy;         /* false: arrays are read-only views of the block */
    bool tuples;       /* lists become tuples; set it behind ext_builder_init */
    bool catalog_keys; /* extensions of type SQRL_CATALOG_KEY_EXT are CatalogKeys */
    const struct sqrl_projection *projection;
    struct ext_key keys[EXT_KEYS]; /* direct-mapped cache of key objects */
    struct ext_stack spare;        /* for the next value */
    struct sqrl_field_ref *fields;
    size_t field_capacity;
    struct sqrl_block *pinned; /* block that `pin` holds */
    PyObject *pin;
};

void ext_builder_init(struct ext_builder *builder, struct ext_state *state, bool copy,
                      const struct sqrl_projection *projection);
void ext_builder_reset(struct ext_builder *builder);
/* Sample `index` of a block as a Python object, or NULL with an exception. */
PyObject *ext_build_sample(struct ext_builder *builder, struct sqrl_block *block,
                           uint32_t index);
/* Any node of a tape; `block` (for views) may be NULL when builder->copy is set. */
PyObject *ext_build_node(struct ext_builder *builder, const struct sqrl_node *nodes,
                         uint32_t node, const uint8_t *bytes, struct sqrl_block *block);

/* --- encoding Python objects (encode.c) --- */

/* Appends `object` as MessagePack; -1 with an exception that names the path to the value.
 */
int ext_encode(struct ext_state *state, struct sqrl_bytes *out, PyObject *object);
/* The same for a catalog's values: a CatalogKey becomes an extension. */
int ext_encode_catalog(struct ext_state *state, struct sqrl_bytes *out, PyObject *object);

/* --- objects --- */

/* Both steal. `tuples`: lists in samples become tuples. */
PyObject *ext_source_new(struct ext_state *state, struct sqrl_source *source,
                         bool tuples);
PyObject *ext_plan_new(struct ext_state *state, struct sqrl_plan *plan, bool tuples);
struct sqrl_plan *ext_plan_get(PyObject *self);
bool ext_plan_tuples(PyObject *self);
/* Set once the samples of its source were counted. */
bool *ext_plan_counted(PyObject *self);
/* A new Plan of the same kind, or the error as an exception. */
PyObject *ext_plan_result(PyObject *self, int rc, struct sqrl_plan **out,
                          const struct sqrl_error *err);
PyObject *ext_plan_on_error(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *ext_samples_open(struct ext_state *state, struct sqrl_plan *plan,
                           const struct sqrl_iterator_options *options, bool copy,
                           bool tuples);
/* How many samples there are, or SQRL_UNKNOWN; may read. -1 with an exception. */
int ext_source_count(struct ext_state *state, struct sqrl_source *source,
                     uint64_t *samples);
/* Methods of Plan that read by position (access.c). */
PyObject *ext_plan_get_one(PyObject *self, PyObject *index);
PyObject *ext_plan_find(PyObject *self, PyObject *key);
PyObject *ext_plan_locate(PyObject *self, PyObject *index);
PyObject *ext_plan_get_many(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *ext_batches_open(struct ext_state *state, struct sqrl_plan *plan,
                           const struct sqrl_iterator_options *options);
/* Where a Samples, Batches, Mixed or Counted counts what it gave; NULL: another object.
 */
const uint64_t *ext_delivered(struct ext_state *state, PyObject *iterator);
const uint64_t *samples_count(PyObject *samples);
const uint64_t *batches_count(PyObject *batches);
const uint64_t *mixed_count(PyObject *mixed);
const uint64_t *counted_count(PyObject *counted);
/* A sequence of str, texts of states, into options; free() the array, whose texts live as
 * long as the sequence. -1 with an exception. */
int ext_states_of(PyObject *sequence, const char ***states,
                  struct sqrl_iterator_options *options);
/* Owners of memory that arrays point into. */
PyObject *ext_pin_new(struct ext_state *state, struct sqrl_block *block);
PyObject *ext_memory_new(struct ext_state *state,
                         struct sqrl_buffer *buffer); /* steals */
/* A squirrel.Batch from a native batch; steals the reference. */
PyObject *ext_batch_new(struct ext_state *state, struct sqrl_batch *batch);

/* What on_error let pass, as a dict. */
PyObject *ext_bad(struct sqrl_source *source, const struct sqrl_bad *bad);

/* {"samples": ..., "shards": ...} */
PyObject *ext_report(const struct sqrl_pack_report *report);
/* Waits until a next() of the iterator will not block; looks at signals in between.
 * Returns -1 with an exception when a signal handler raised. */
int ext_wait(struct ext_state *state, struct sqrl_iterator *iterator);

/* Capsules of the Arrow C data interface and of DLPack (export.c). column -1: the whole
 * batch. */
PyObject *ext_arrow_batch(struct ext_state *state, struct sqrl_batch *batch, int column);
PyObject *ext_arrow_plan(struct ext_state *state, struct sqrl_plan *plan);
PyObject *ext_dlpack(struct ext_state *state, struct sqrl_batch *batch, uint32_t column,
                     enum sqrl_part part, bool versioned);

/* open.c */
PyObject *ext_open(PyObject *module, PyObject *args);
PyObject *ext_open_in(PyObject *module, PyObject *args);
PyObject *ext_open_catalog(PyObject *module, PyObject *arg);
/* quality.c */
PyObject *ext_kendall_tau(PyObject *module, PyObject *args);
PyObject *ext_order_quality(PyObject *module, PyObject *args);

extern PyType_Spec ext_source_spec, ext_plan_spec, ext_samples_spec, ext_batches_spec,
    ext_slot_spec, ext_pin_spec, ext_memory_spec, ext_packer_spec, ext_guard_spec,
    ext_catalog_spec, ext_twister_spec, ext_choices_spec, ext_batched_spec,
    ext_shuffled_spec, ext_monitored_spec, ext_window_spec, ext_ordered_spec,
    ext_mixed_spec, ext_file_system_spec, ext_file_spec, ext_file_writer_spec,
    ext_counted_spec;

/* Allocation and release of instances in the limited API. */
static inline PyObject *ext_alloc(PyTypeObject *type) {
    return PyType_GenericAlloc(type, 0);
}
static inline void ext_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* --- catalogs (catalog.c) --- */

/* Functions of the module: [(url, origin, line)], and whether something changed. */
PyObject *ext_catalog_places(PyObject *module, PyObject *unused);
PyObject *ext_catalog_subscribe(PyObject *module, PyObject *args);

#pragma GCC visibility pop
#endif
