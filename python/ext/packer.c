/* packer.c - squirrel._native.Packer: Python objects, or a plan, into shards.
 *
 * Objects are encoded straight into the packer's block under the GIL. Handing a full
 * block over may wait for the encoders, so the GIL is released there (and only there: a
 * release for every sample would cost as much as a small sample). A packer serves one
 * thread at a time; `busy` says so to a second one.
 */
#include "ext.h"

#include <stdlib.h>
#include <time.h>

#define PROGRESS_NS 100000000u

struct packer {
    PyObject_HEAD struct sqrl_packer *packer; /* NULL when finished */
    size_t block_bytes;
    uint64_t samples_per_shard, in_shard;
    uint64_t accepted;
    uint64_t told_ns;
    bool busy;
    bool waits; /* any sample may wait for the encoders: fields go to several blocks */
};

static PyObject *packer_closed(PyObject *op) {
    struct packer *self = (struct packer *)op;
    return ext_raise_code(ext_state_of(op), SQRL_E_STATE,
                          self->busy ? "another thread uses this packer"
                                     : "this packer is finished: open a new one");
}

static bool packer_ready(struct packer *self) {
    return self->packer != NULL && !self->busy;
}

/* --- making and ending --- */

PyObject *ext_report(const struct sqrl_pack_report *report) {
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K}", "samples", (unsigned long long)report->samples, "shards",
        (unsigned long long)report->shards, "blocks", (unsigned long long)report->blocks,
        "raw_bytes", (unsigned long long)report->raw_bytes, "file_bytes",
        (unsigned long long)report->file_bytes);
}

static int packer_open(struct ext_state *state, struct packer *self,
                       const char *destination, struct sqrl_pack_options *options) {
    struct sqrl_context *context = ext_context(state);
    struct sqrl_error err;
    int rc;
    if (context == NULL)
        return -1;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_packer_open(context, destination, options, &self->packer, &err);
    Py_END_ALLOW_THREADS
    if (rc == SQRL_OK)
        return 0;
    self->packer = NULL;
    ext_raise(state, &err);
    return -1;
}

/* Packer(..., add=(group, fields, key, missing)): fields for the samples that are there.
 */
static int packer_open_add(struct ext_state *state, struct packer *self,
                           const char *destination, PyObject *add,
                           const struct sqrl_pack_options *as) {
    struct sqrl_add_options options = {
        .size = sizeof options, .block_bytes = as->block_bytes, .settings = as->settings};
    struct sqrl_context *context = ext_context(state);
    struct ext_names names;
    struct sqrl_error err;
    PyObject *fields;
    int missing, rc;
    if (context == NULL ||
        !PyArg_ParseTuple(add, "sOzp", &options.group, &fields, &options.key, &missing))
        return -1;
    if (ext_names_init(&names, fields) < 0)
        return -1;
    options.fields = names.item;
    options.field_count = names.count;
    options.missing = missing != 0;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_packer_add_fields(context, destination, &options, &self->packer, &err);
    Py_END_ALLOW_THREADS
    ext_names_reset(&names);
    self->waits = true;
    if (rc == SQRL_OK)
        return 0;
    self->packer = NULL;
    ext_raise(state, &err);
    return -1;
}

static PyObject *packer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"destination", "options",     "format",    "samples_per_shard",
                           "shard_bytes", "block_bytes", "overwrite", "append",
                           "hold_commit", "prefix",      "groups",    "add",
                           NULL};
    struct sqrl_pack_options options = {.size = sizeof options};
    unsigned long long samples_per_shard = 0, shard_bytes = 0, block_bytes = 0;
    int overwrite = 0, append = 0, hold_commit = 0;
    PyObject *destination = NULL, *settings_dict = Py_None, *groups_dict = Py_None;
    PyObject *add = Py_None;
    struct ext_settings settings;
    struct ext_groups groups;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|OzKKKpppzOO:Packer", keys,
                                     PyUnicode_FSConverter, &destination, &settings_dict,
                                     &options.format, &samples_per_shard, &shard_bytes,
                                     &block_bytes, &overwrite, &append, &hold_commit,
                                     &options.prefix, &groups_dict, &add))
        return NULL;
    struct packer *self = NULL;
    const char *path = PyBytes_AsString(destination);
    if (path != NULL && ext_groups_init(&groups, groups_dict) < 0)
        path = NULL;
    if (path != NULL && ext_settings_init(&settings, settings_dict) == 0) {
        self = (struct packer *)ext_alloc(type);
        options.samples_per_shard = samples_per_shard;
        options.shard_bytes = shard_bytes;
        options.block_bytes = block_bytes;
        options.overwrite = overwrite != 0;
        options.append = append != 0;
        options.hold_commit = hold_commit != 0;
        options.settings = &settings.settings;
        options.groups = groups.item;
        options.group_count = groups.count;
        struct ext_state *state = PyType_GetModuleState(type);
        if (self != NULL &&
            (add != Py_None ? packer_open_add(state, self, path, add, &options)
                            : packer_open(state, self, path, &options)) < 0)
            Py_CLEAR(self);
        ext_settings_reset(&settings);
    }
    if (path != NULL)
        ext_groups_reset(&groups);
    Py_DECREF(destination);
    if (self != NULL) {
        self->block_bytes = block_bytes != 0 ? block_bytes : SQRL_BLOCK_BYTES;
        self->samples_per_shard = samples_per_shard;
        self->waits = self->waits || groups_dict != Py_None;
    }
    return (PyObject *)self;
}

static void packer_drop(struct packer *self) {
    struct sqrl_packer *packer = self->packer;
    self->packer = NULL;
    if (packer == NULL)
        return;
    Py_BEGIN_ALLOW_THREADS
    sqrl_packer_abandon(packer);
    Py_END_ALLOW_THREADS
}

static void packer_dealloc(PyObject *op) {
    packer_drop((struct packer *)op);
    ext_free(op);
}

static PyObject *packer_abandon(PyObject *op, PyObject *unused) {
    struct packer *self = (struct packer *)op;
    if (self->busy)
        return packer_closed(op);
    packer_drop(self);
    Py_RETURN_NONE;
}

static PyObject *packer_finish(PyObject *op, PyObject *unused) {
    struct packer *self = (struct packer *)op;
    struct ext_state *state = ext_state_of(op);
    struct sqrl_pack_report report;
    struct sqrl_error err;
    if (!packer_ready(self))
        return packer_closed(op);
    struct sqrl_packer *packer = self->packer;
    int rc;
    self->packer = NULL; /* finish frees it, also on failure */
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_packer_finish(packer, &report, &err);
    Py_END_ALLOW_THREADS
    ext_log_drain(state);
    return rc != SQRL_OK ? ext_raise(state, &err) : ext_report(&report);
}

/* --- adding --- */

/* Ends the sample that was just encoded. */
static int packer_accept(struct ext_state *state, struct packer *self) {
    struct sqrl_error err;
    int rc;
    bool full =
        self->waits || sqrl_packer_bytes(self->packer)->size >= self->block_bytes ||
        (self->samples_per_shard != 0 && self->in_shard + 1 >= self->samples_per_shard);
    if (full) {
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        rc = sqrl_packer_accept(self->packer, &err);
        Py_END_ALLOW_THREADS
        self->busy = false;
        self->in_shard = self->samples_per_shard != 0
                             ? (self->in_shard + 1) % self->samples_per_shard
                             : 0;
    } else {
        rc = sqrl_packer_accept(self->packer, &err);
        self->in_shard++;
    }
    if (EXT_UNLIKELY(rc != SQRL_OK)) {
        ext_raise(state, &err);
        return -1;
    }
    self->accepted++;
    return full && PyErr_CheckSignals() < 0 ? -1 : 0;
}

/* 0, or -1 with an exception: the sample was taken back then. */
static int packer_encode(struct ext_state *state, struct packer *self, PyObject *sample) {
    self->busy = true; /* NumPy may run Python code, which must not come in here */
    int rc = ext_encode(state, sqrl_packer_bytes(self->packer), sample);
    self->busy = false;
    if (EXT_UNLIKELY(rc < 0))
        sqrl_packer_reject(self->packer);
    return rc;
}

static PyObject *packer_append(PyObject *op, PyObject *sample) {
    struct packer *self = (struct packer *)op;
    struct ext_state *state = ext_state_of(op);
    if (!packer_ready(self))
        return packer_closed(op);
    if (packer_encode(state, self, sample) < 0 || packer_accept(state, self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int packer_tell(struct packer *self, PyObject *progress) {
    struct timespec now;
    if (progress == Py_None)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (ns - self->told_ns < PROGRESS_NS)
        return 0;
    self->told_ns = ns;
    struct sqrl_pack_report report;
    sqrl_packer_progress(self->packer, &report);
    PyObject *done =
        PyObject_CallFunction(progress, "KK", (unsigned long long)self->accepted,
                              (unsigned long long)report.file_bytes);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* A sample that can't be encoded: skipped when `skip` says so. */
static int packer_skip(PyObject *skip, uint64_t index) {
    if (skip == Py_None || !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *done = PyObject_CallFunction(skip, "KO", (unsigned long long)index, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static void note_index(uint64_t index) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethod(
        value, "add_note", "N",
        PyUnicode_FromFormat("while sample %llu was packed", (unsigned long long)index));
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

static int extend_with(struct ext_state *state, struct packer *self, PyObject *iterator,
                       PyObject *progress, PyObject *skip) {
    PyObject *sample;
    for (uint64_t index = 0; (sample = PyIter_Next(iterator)) != NULL; index++) {
        if (EXT_UNLIKELY(!packer_ready(self))) { /* the iterable finished it */
            Py_DECREF(sample);
            packer_closed((PyObject *)self);
            return -1;
        }
        int rc = packer_encode(state, self, sample);
        Py_DECREF(sample);
        if (EXT_UNLIKELY(rc < 0)) {
            if (packer_skip(skip, index) == 0)
                continue;
            note_index(index);
            return -1;
        }
        if (packer_accept(state, self) < 0)
            return -1;
        if ((index & 255) == 0 && packer_tell(self, progress) < 0)
            return -1;
    }
    return PyErr_Occurred() != NULL ? -1 : 0;
}

static PyObject *packer_extend(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *keys[] = {"samples", "progress", "skip", NULL};
    struct packer *self = (struct packer *)op;
    PyObject *samples, *progress = Py_None, *skip = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:extend", keys, &samples,
                                     &progress, &skip))
        return NULL;
    if (!packer_ready(self))
        return packer_closed(op);
    PyObject *iterator = PyObject_GetIter(samples);
    if (iterator == NULL)
        return NULL;
    uint64_t before = self->accepted;
    int rc = extend_with(ext_state_of(op), self, iterator, progress, skip);
    Py_DECREF(iterator);
    return rc < 0 ? NULL : PyLong_FromUnsignedLongLong(self->accepted - before);
}

/* --- a plan: samples never become Python objects --- */

static int append_projected(struct sqrl_packer *packer,
                            const struct sqrl_projection *projection,
                            const struct sqrl_sample *sample, struct sqrl_error *err) {
    struct sqrl_field_ref fields[64], *list = fields;
    const struct sqrl_block *block = sample->block;
    size_t count = sqrl_projection_apply(projection, block, sample->index, fields, 64);
    if (count > 64) {
        list = malloc(count * sizeof *list);
        if (list == NULL)
            return sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory for %zu fields",
                                  count);
        sqrl_projection_apply(projection, block, sample->index, list, count);
    }
    struct sqrl_bytes *out = sqrl_packer_bytes(packer);
    int rc = sqrl_msgpack_put_map(out, count, err);
    for (size_t i = 0; rc == SQRL_OK && i < count; i++) {
        rc = sqrl_msgpack_put_string(out, list[i].name, list[i].name_size, err);
        if (rc == SQRL_OK)
            rc = sqrl_msgpack_encode(out, block->tape.nodes, list[i].node,
                                     block->bytes->data, err);
    }
    if (rc == SQRL_OK)
        rc = sqrl_packer_accept(packer, err);
    else
        sqrl_packer_reject(packer);
    if (list != fields)
        free(list);
    return rc;
}

static void error_at_sample(struct sqrl_error *err, int rc,
                            const struct sqrl_sample *sample) {
    const struct sqrl_block *block = sample->block;
    struct sqrl_place place = sqrl_block_place(block, sample->index);
    if (place.sample == SQRL_UNKNOWN) /* plain lines are not counted before a block */
        sqrl_error_at(err, rc, "block %llu: sample %u of the block",
                      (unsigned long long)block->number, (unsigned)sample->index);
    else
        sqrl_error_at(err, rc, "sample %llu", (unsigned long long)place.sample);
}

static int append_run(struct sqrl_packer *packer,
                      const struct sqrl_projection *projection,
                      const struct sqrl_run *run, struct sqrl_error *err) {
    int rc = SQRL_OK;
    for (uint32_t i = 0; rc == SQRL_OK && i < run->count; i++) {
        const struct sqrl_sample *sample = &run->samples[i];
        bool map = sample->block->tape.nodes[sample->block->begin[sample->index]].type ==
                   SQRL_MAP;
        rc = projection != NULL && map
                 ? append_projected(packer, projection, sample, err)
                 : sqrl_packer_append_sample(packer, sample->block, sample->index, err);
        if (rc != SQRL_OK)
            error_at_sample(err, rc, sample);
    }
    return rc;
}

/* One run: 1, 0 at the end, -1 with an exception. */
static int plan_step(struct ext_state *state, struct packer *self, struct sqrl_plan *plan,
                     struct sqrl_iterator *iterator) {
    struct sqrl_run *run = NULL;
    struct sqrl_error err;
    int rc;
    uint32_t count = 0;
    if (ext_wait(state, iterator) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_iterator_next_run(iterator, &run, &err);
    if (rc == SQRL_OK && run != NULL) {
        count = run->count;
        rc = append_run(self->packer, sqrl_plan_projection(plan), run, &err);
        sqrl_run_release(run);
    }
    Py_END_ALLOW_THREADS
    if (rc != SQRL_OK) {
        ext_raise(state, &err);
        return -1;
    }
    self->accepted += count;
    return count > 0;
}

static PyObject *packer_extend_plan(PyObject *op, PyObject *args) {
    struct packer *self = (struct packer *)op;
    struct ext_state *state = ext_state_of(op);
    struct sqrl_iterator *iterator = NULL;
    struct sqrl_error err;
    PyObject *plan_object, *progress = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O:extend_plan", state->type[EXT_PLAN], &plan_object,
                          &progress))
        return NULL;
    if (!packer_ready(self))
        return packer_closed(op);
    struct sqrl_plan *plan = ext_plan_get(plan_object);
    if (sqrl_iterator_open(plan, &iterator, &err) != SQRL_OK)
        return ext_raise(state, &err);
    uint64_t before = self->accepted;
    int rc = 1;
    self->busy = true;
    while (rc > 0) {
        rc = plan_step(state, self, plan, iterator);
        if (rc > 0 && packer_tell(self, progress) < 0)
            rc = -1;
    }
    self->busy = false;
    Py_BEGIN_ALLOW_THREADS
    sqrl_iterator_close(iterator);
    Py_END_ALLOW_THREADS
    return rc < 0 ? NULL : PyLong_FromUnsignedLongLong(self->accepted - before);
}

static PyObject *packer_cut(PyObject *op, PyObject *unused) {
    struct packer *self = (struct packer *)op;
    struct sqrl_error err;
    int rc;
    if (!packer_ready(self))
        return packer_closed(op);
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    rc = sqrl_packer_cut(self->packer, &err);
    Py_END_ALLOW_THREADS
    self->busy = false;
    self->in_shard = 0;
    if (rc != SQRL_OK)
        return ext_raise(ext_state_of(op), &err);
    Py_RETURN_NONE;
}

static PyObject *packer_progress(PyObject *op, PyObject *unused) {
    struct packer *self = (struct packer *)op;
    struct sqrl_pack_report report;
    if (self->packer == NULL)
        return packer_closed(op);
    sqrl_packer_progress(self->packer, &report);
    return ext_report(&report);
}

static PyObject *packer_runs(PyObject *op, PyObject *unused) {
    struct packer *self = (struct packer *)op;
    if (self->packer == NULL)
        return packer_closed(op);
    PyObject *list = PyList_New(0);
    uint64_t first, count;
    for (size_t i = 0; list != NULL && sqrl_packer_run(self->packer, i, &first, &count);
         i++) {
        PyObject *run =
            Py_BuildValue("KK", (unsigned long long)first, (unsigned long long)count);
        if (run == NULL || PyList_Append(list, run) < 0)
            Py_CLEAR(list);
        Py_XDECREF(run);
    }
    return list;
}

static PyMethodDef packer_methods[] = {
    {"runs", packer_runs, METH_NOARGS,
     "runs($self, /)\n--\n\nThe samples that add= asks for: (first position, count)."},
    {"append", packer_append, METH_O, "append($self, sample, /)\n--\n\nAdds one sample."},
    {"extend", (PyCFunction)(void (*)(void))packer_extend, METH_VARARGS | METH_KEYWORDS,
     "extend($self, samples, progress=None, skip=None)\n--\n\n"
     "Adds all samples of an iterable; returns how many.\n\n"
     "progress(samples, file_bytes) is called now and then; skip(index, exception) is "
     "told of\n"
     "samples that can't be stored (without it the exception is raised)."},
    {"extend_plan", packer_extend_plan, METH_VARARGS,
     "extend_plan($self, plan, progress=None, /)\n--\n\n"
     "Adds all samples of a plan without making Python objects of them."},
    {"cut", packer_cut, METH_NOARGS,
     "cut($self, /)\n--\n\nThe next sample begins a new shard."},
    {"progress", packer_progress, METH_NOARGS,
     "progress($self, /)\n--\n\nWhat was written so far, as a dict."},
    {"finish", packer_finish, METH_NOARGS,
     "finish($self, /)\n--\n\nWrites the rest, syncs, commits; returns a report."},
    {"abandon", packer_abandon, METH_NOARGS,
     "abandon($self, /)\n--\n\nRemoves what was written."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot packer_slots[] = {
    {Py_tp_new, packer_new},
    {Py_tp_dealloc, packer_dealloc},
    {Py_tp_doc, "Packer(destination, options=None, format=None, samples_per_shard=0, "
                "shard_bytes=0,\n"
                "       block_bytes=0, overwrite=False, append=False, hold_commit=False, "
                "prefix=None,\n"
                "       groups=None, add=None)\n"
                "--\n\nWrites samples into shards at a destination."},
    {Py_tp_methods, packer_methods},
    {0, NULL}};
PyType_Spec ext_packer_spec = {.name = "squirrel._native.Packer",
                               .basicsize = sizeof(struct packer),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = packer_slots};
