/* Batches: every kind of column, missing values, padding, buckets and budgets, clashes.
 * Samples are written as JSON here and come as MessagePack through a synthetic source. */
#include <math.h>

#include "support/synthetic.h"

/* --- samples from a table of JSON texts --- */
static const char *const *texts;

static int write_text(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    struct sqrl_tape tape = {0};
    char *json = strdup(texts[shard * 1000 + sample]);
    size_t offset = 0;
    int rc = json ? sqrl_json_decode(&tape, (uint8_t *)json, strlen(json), &offset, 0,
                                     NULL, &err)
                  : SQRL_E_NO_MEMORY;
    if (!rc)
        rc = sqrl_msgpack_encode(out, tape.nodes, 0, (uint8_t *)json, &err);
    sqrl_tape_reset(&tape);
    free(json);
    return rc;
}

struct fixture {
    struct sqrl_context *context;
    struct sqrl_source *source;
    struct sqrl_plan *plan;
};
static struct syn_shard shard_table[2];

/* One sequential shard with these samples, `per_block` a block. */
static struct fixture begin(const char *const *samples, uint32_t per_block) {
    struct fixture f;
    uint32_t count = 0;
    syn_writer = write_text;
    texts = samples;
    memset(shard_table, 0, sizeof shard_table);
    while (samples[count])
        count++;
    for (uint32_t at = 0; at < count; at += per_block)
        shard_table[0].samples[shard_table[0].blocks++] = SQRL_MIN(per_block, count - at);
    f.context = syn_context(2, 0);
    f.source = syn_source(f.context, shard_table, 1);
    f.plan = syn_plan(f.source);
    return f;
}

static void end(struct fixture *f) {
    sqrl_plan_unref(f->plan);
    sqrl_source_unref(f->source);
    sqrl_context_unref(f->context);
}

/* Adds batch(options) and collects all batches; the code that ended them. */
static int run(struct fixture *f, struct sqrl_batch_options options,
               struct sqrl_batch **out, unsigned *count, struct sqrl_error *err) {
    struct sqrl_iterator *it;
    options.size = sizeof options;
    SYN_STAGE(f->plan, sqrl_plan_batch(f->plan, &options, SYN_OUT));
    *count = 0;
    int rc = sqrl_iterator_open(f->plan, &it, err);
    if (rc)
        return rc;
    while (!(rc = sqrl_iterator_next_batch(it, &out[*count], err)) && out[*count])
        ++*count;
    sqrl_iterator_close(it);
    return rc;
}

static void drop(struct sqrl_batch **batch, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        sqrl_batch_unref(batch[i]);
}

static const struct sqrl_column *column(const struct sqrl_batch *batch,
                                        const char *name) {
    const struct sqrl_column *c = sqrl_batch_column(batch, name);
    if (!c)
        print_error("no column %s\n", name);
    assert_non_null(c);
    if (c->data)
        assert_int_equal((uintptr_t)c->data % 64, 0);
    return c;
}

static void scalars_strings_nested(void **state) {
    (void)state;
    static const char *const S[] = {"{\"i\": 1, \"f\": 1.5, \"t\": true, \"s\": \"ab\", "
                                    "\"m\": {\"x\": 7, \"y\": {\"z\": \"q\"}}}",
                                    "{\"i\": -2, \"f\": 3, \"t\": false, \"s\": \"\", "
                                    "\"m\": {\"x\": 8, \"y\": {\"z\": \"rs\"}}}",
                                    "{\"f\": 0.25, \"i\": 3, \"s\": \"c\", \"t\": true, "
                                    "\"m\": {\"y\": {\"z\": \"\"}, \"x\": 9}}",
                                    NULL};
    struct fixture f = begin(S, 2);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 3}, b, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_int_equal(b[0]->rows, 3);
    assert_int_equal(b[0]->columns, 6);
    const struct sqrl_column *i = column(b[0], "i"), *x = column(b[0], "f");
    assert_int_equal(i->kind, SQRL_KIND_DENSE);
    assert_int_equal(i->dtype, SQRL_DTYPE_INT64);
    assert_int_equal(i->dims, 0);
    assert_int_equal(((int64_t *)i->data)[1], -2);
    assert_int_equal(((int64_t *)i->data)[2], 3);
    assert_int_equal(x->dtype, SQRL_DTYPE_FLOAT64);
    assert_true(((double *)x->data)[1] == 3.0 && ((double *)x->data)[2] == 0.25);
    assert_memory_equal(column(b[0], "t")->data, "\1\0\1", 3);
    const struct sqrl_column *s = column(b[0], "s"), *z = column(b[0], "m.y.z");
    static const int64_t S_AT[] = {0, 2, 2, 3}, Z_AT[] = {0, 1, 3, 3};
    assert_int_equal(s->kind, SQRL_KIND_STRING);
    assert_memory_equal(s->offsets, S_AT, sizeof S_AT);
    assert_memory_equal(s->data, "abc", 3);
    assert_memory_equal(z->offsets, Z_AT, sizeof Z_AT);
    assert_memory_equal(z->data, "qrs", 3);
    assert_int_equal(((int64_t *)column(b[0], "m.x")->data)[2], 9);
    assert_null(i->valid);
    assert_int_equal(b[0]->place[2].sample, 2);
    drop(b, n);
    end(&f);
}

static void missing_values(void **state) {
    (void)state;
    static const char *const S[] = {"{\"a\": 1, \"s\": \"x\", \"l\": [1], \"n\": null}",
                                    "{\"a\": null, \"s\": null, \"l\": [], \"n\": null}",
                                    "{\"l\": null}",
                                    "{\"a\": 4, \"s\": \"yz\", \"l\": [2, 3]}",
                                    "{\"a\": 5, \"s\": \"\", \"l\": [4]}",
                                    NULL};
    struct fixture f = begin(S, 3);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 4}, b, &n, &err), &err);
    assert_int_equal(n, 2);
    const struct sqrl_column *a = column(b[0], "a"), *s = column(b[0], "s"),
                             *l = column(b[0], "l"), *none = column(b[0], "n");
    static const int64_t A[] = {1, 0, 0, 4}, S_AT[] = {0, 1, 1, 1, 3},
                         L_AT[] = {0, 1, 1, 1, 3}, L[] = {1, 2, 3};
    assert_memory_equal(a->data, A, sizeof A);
    assert_memory_equal(a->valid, "\1\0\0\1", 4);
    assert_memory_equal(s->offsets, S_AT, sizeof S_AT);
    assert_memory_equal(s->valid, "\1\0\0\1", 4);
    assert_int_equal(l->kind, SQRL_KIND_RAGGED);
    assert_memory_equal(l->offsets, L_AT, sizeof L_AT);
    assert_memory_equal(l->data, L, sizeof L);
    assert_memory_equal(l->valid, "\1\1\0\1", 4);
    assert_int_equal(none->kind, SQRL_KIND_NULL);
    assert_null(none->data);
    assert_memory_equal(none->valid, "\0\0\0\0", 4);
    assert_null(column(b[1], "a")->valid); /* all there */
    assert_memory_equal(column(b[1], "n")->valid, "\0", 1);
    drop(b, n);
    end(&f);
}

/* --- arrays, written by hand --- */
static int write_array(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    float data[12];
    uint64_t shape[2] = {1 + sample % 3, 2 + sample % 2};
    for (unsigned i = 0; i < 12; i++)
        data[i] = (float)(sample * 100 + i);
    int rc = sqrl_msgpack_put_map(out, 2, &err);
    rc |= sqrl_msgpack_put_string(out, "m", 1, &err);
    rc |= sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_FLOAT32, shape, 2, data, &err);
    rc |= sqrl_msgpack_put_string(out, "b", 1, &err);
    return rc | sqrl_msgpack_put_binary(out, "bytes", (size_t)(sample % 6), &err);
}

static struct fixture begin_with(syn_write writer, uint32_t samples, uint32_t per_block) {
    struct fixture f;
    syn_writer = writer;
    memset(shard_table, 0, sizeof shard_table);
    for (uint32_t at = 0; at < samples; at += per_block)
        shard_table[0].samples[shard_table[0].blocks++] =
            SQRL_MIN(per_block, samples - at);
    f.context = syn_context(2, 0);
    f.source = syn_source(f.context, shard_table, 1);
    f.plan = syn_plan(f.source);
    return f;
}

static void ragged_arrays(void **state) {
    (void)state;
    struct fixture f = begin_with(write_array, 7, 4);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 5}, b, &n, &err), &err);
    assert_int_equal(n, 2);
    const struct sqrl_column *m = column(b[0], "m");
    assert_int_equal(m->kind, SQRL_KIND_RAGGED);
    assert_int_equal(m->dtype, SQRL_DTYPE_FLOAT32);
    assert_int_equal(m->dims, 2);
    int64_t at = 0;
    for (int64_t r = 0; r < 5; r++) {
        int64_t rows = 1 + r % 3, cols = 2 + r % 2;
        assert_int_equal(m->offsets[r], at);
        assert_int_equal(m->shapes[2 * r], rows);
        assert_int_equal(m->shapes[2 * r + 1], cols);
        for (int64_t i = 0; i < rows * cols; i++)
            assert_true(((float *)m->data)[at + i] == (float)(r * 100 + i));
        at += rows * cols;
    }
    assert_int_equal(m->offsets[5], at);
    assert_int_equal(m->data_bytes, at * 4);
    const struct sqrl_column *bin = column(b[0], "b");
    assert_int_equal(bin->kind, SQRL_KIND_BINARY);
    assert_int_equal(bin->offsets[5], 0 + 1 + 2 + 3 + 4);
    assert_memory_equal(bin->data, "bbybytbyte", 10);
    drop(b, n);
    end(&f);
}

static void padded_arrays(void **state) {
    (void)state;
    struct fixture f = begin_with(write_array, 7, 4);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f,
                 (struct sqrl_batch_options){
                     .batch_size = 5, .ragged = SQRL_RAGGED_PAD, .pad_value = -1},
                 b, &n, &err),
             &err);
    const struct sqrl_column *m = column(b[0], "m");
    assert_int_equal(m->kind, SQRL_KIND_DENSE);
    assert_true(m->padded);
    assert_int_equal(m->shape[0], 3);
    assert_int_equal(m->shape[1], 3);
    assert_int_equal(m->data_bytes, 5 * 9 * 4);
    for (int64_t r = 0; r < 5; r++) {
        int64_t rows = 1 + r % 3, cols = 2 + r % 2;
        assert_int_equal(m->shapes[2 * r], rows);
        assert_int_equal(m->shapes[2 * r + 1], cols);
        for (int64_t y = 0; y < 3; y++)
            for (int64_t x = 0; x < 3; x++) {
                float expect =
                    y < rows && x < cols ? (float)(r * 100 + y * cols + x) : -1.0f;
                assert_true(((float *)m->data)[r * 9 + y * 3 + x] == expect);
            }
    }
    /* the last batch has samples 5 and 6: shapes [3, 3] and [1, 2] */
    m = column(b[1], "m");
    assert_int_equal(m->shape[0], 3);
    assert_int_equal(m->shape[1], 3);
    assert_true(((float *)m->data)[9] == 600.0f && ((float *)m->data)[11] == -1.0f);
    drop(b, n);
    end(&f);
}

static void padded_lists(void **state) {
    (void)state;
    static const char *const S[] = {"{\"l\": [1, 2, 3]}", "{\"l\": []}", "{\"l\": null}",
                                    "{\"l\": [4]}", NULL};
    struct fixture f = begin(S, 4);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f,
                 (struct sqrl_batch_options){
                     .batch_size = 4, .ragged = SQRL_RAGGED_PAD, .pad_value = 9},
                 b, &n, &err),
             &err);
    const struct sqrl_column *l = column(b[0], "l");
    static const int64_t L[] = {1, 2, 3, 9, 9, 9, 9, 9, 9, 4, 9, 9},
                         SHAPES[] = {3, 0, 0, 1};
    assert_memory_equal(l->data, L, sizeof L);
    assert_memory_equal(l->shapes, SHAPES, sizeof SHAPES);
    assert_memory_equal(l->valid, "\1\1\0\1", 4);
    drop(b, n);
    end(&f);
    f = begin(S, 4);
    struct sqrl_batch_options bad = {
        .batch_size = 4, .ragged = SQRL_RAGGED_PAD, .pad_value = 0.5};
    assert_int_equal(run(&f, bad, b, &n, &err), SQRL_E_INVALID);
    end(&f);
    f = begin(S, 4);
    struct sqrl_batch_options refuse = {.batch_size = 4, .ragged = SQRL_RAGGED_ERROR};
    assert_int_equal(run(&f, refuse, b, &n, &err), SQRL_E_TYPE);
    end(&f);
}

/* {nd: true, type: ">i2" / ">c8", kind: "", shape: [2], data} as msgpack-numpy writes it.
 */
static int write_big_endian(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    static const uint8_t INTS[] = {0x01, 0x02, 0xff, 0xfe};
    static const uint8_t COMPLEX[] = {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}; /* 1 - 2j */
    struct sqrl_error err;
    int rc = sqrl_msgpack_put_map(out, 2, &err);
    for (int which = 0; which < 2; which++) {
        rc |= sqrl_msgpack_put_string(out, which ? "c" : "i", 1, &err);
        rc |= sqrl_msgpack_put_map(out, 5, &err);
        rc |= sqrl_msgpack_put_binary(out, "nd", 2, &err);
        rc |= sqrl_msgpack_put_bool(out, true, &err);
        rc |= sqrl_msgpack_put_binary(out, "type", 4, &err);
        rc |= sqrl_msgpack_put_string(out, which ? ">c8" : ">i2", 3, &err);
        rc |= sqrl_msgpack_put_binary(out, "kind", 4, &err);
        rc |= sqrl_msgpack_put_binary(out, "", 0, &err);
        rc |= sqrl_msgpack_put_binary(out, "shape", 5, &err);
        rc |= sqrl_msgpack_put_array(out, 1, &err);
        rc |= sqrl_msgpack_put_int(out, which ? 1 : 2, &err);
        rc |= sqrl_msgpack_put_binary(out, "data", 4, &err);
        rc |= sqrl_msgpack_put_binary(out, which ? COMPLEX : INTS, which ? 8 : 4, &err);
    }
    return rc;
}

static void big_endian(void **state) {
    (void)state;
    struct fixture f = begin_with(write_big_endian, 2, 2);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 2}, b, &n, &err), &err);
    static const int16_t INTS[] = {0x0102, -2, 0x0102, -2};
    static const float COMPLEX[] = {1, -2, 1, -2};
    assert_memory_equal(column(b[0], "i")->data, INTS, sizeof INTS);
    assert_int_equal(column(b[0], "c")->dtype, SQRL_DTYPE_COMPLEX64);
    assert_memory_equal(column(b[0], "c")->data, COMPLEX, sizeof COMPLEX);
    drop(b, n);
    end(&f);
}

/* --- declared columns --- */
static int declared(const char *const *samples, const char *name, const char *type,
                    struct sqrl_batch **b, unsigned *n, struct sqrl_error *err) {
    struct fixture f = begin(samples, 1);
    struct sqrl_setting field = {name, type};
    struct sqrl_batch_options o = {.batch_size = 100, .fields = &field, .field_count = 1};
    int rc = run(&f, o, b, n, err);
    end(&f);
    return rc;
}

static void declared_numbers(void **state) {
    (void)state;
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    static const char *const S[] = {"{\"x\": 1}", "{\"x\": -3}", "{\"x\": 0}", NULL};
    syn_must(declared(S, "x", "int8", b, &n, &err), &err);
    assert_memory_equal(column(b[0], "x")->data, "\x01\xfd\x00", 3);
    drop(b, n);
    syn_must(declared(S, "x", "float32", b, &n, &err), &err);
    static const float F[] = {1, -3, 0};
    assert_memory_equal(column(b[0], "x")->data, F, sizeof F);
    drop(b, n);
    assert_int_equal(declared(S, "x", "uint8", b, &n, &err), SQRL_E_TYPE); /* -3 */
    assert_non_null(strstr(err.where, "sample 1"));
    assert_int_equal(n, 1); /* what was good before it */
    drop(b, n);
    static const char *const HALF[] = {
        "{\"x\": 1.0}",          "{\"x\": 0.333251953125}",
        "{\"x\": 65504.0}",      "{\"x\": 5.960464477539063e-08}",
        "{\"x\": 1.0009765625}", "{\"x\": 1.00048828125}",
        "{\"x\": -0.0}",         NULL};
    /* IEEE 754 binary16: 0x3555 is 0.333251953125, the smallest subnormal 2^-24; a tie
     * rounds to even: 1 + 2^-11 to 1 */
    static const uint16_t BITS[] = {0x3c00, 0x3555, 0x7bff, 0x0001,
                                    0x3c01, 0x3c00, 0x8000};
    syn_must(declared(HALF, "x", "float16", b, &n, &err), &err);
    assert_memory_equal(column(b[0], "x")->data, BITS, sizeof BITS);
    drop(b, n);
    static const char *const EXACT[] = {"{\"x\": 9007199254740992}",
                                        "{\"x\": 9007199254740993}", NULL};
    assert_int_equal(declared(EXACT, "x", "float64", b, &n, &err), SQRL_E_TYPE);
    assert_non_null(strstr(err.where, "sample 1"));
    drop(b, n);
    static const char *const LATE[] = {"{\"y\": 1}", "{\"y\": 2, \"x\": \"late\"}", NULL};
    syn_must(declared(LATE, "x", "string?", b, &n, &err), &err);
    assert_memory_equal(column(b[0], "x")->valid, "\0\1", 2);
    assert_memory_equal(column(b[0], "x")->data, "late", 4);
    drop(b, n);
    assert_int_equal(declared(LATE, "x", "string", b, &n, &err),
                     SQRL_E_TYPE); /* missing */
    drop(b, n);
    static const char *const LISTS[] = {"{\"x\": [1, 2]}", "{\"x\": [3, 4]}", NULL};
    syn_must(declared(LISTS, "x", "int32[2]", b, &n, &err), &err);
    static const int32_t L[] = {1, 2, 3, 4};
    assert_int_equal(column(b[0], "x")->kind, SQRL_KIND_DENSE);
    assert_memory_equal(column(b[0], "x")->data, L, sizeof L);
    drop(b, n);
    assert_int_equal(declared(LISTS, "x", "int32[3]", b, &n, &err), SQRL_E_TYPE);
}

/* --- clashes name both samples and the way out --- */
static void clash(const char *const *samples, const char *where, const char *says) {
    struct fixture f = begin(samples, 1);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    assert_int_equal(run(&f, (struct sqrl_batch_options){.batch_size = 1}, b, &n, &err),
                     SQRL_E_TYPE);
    char text[1100];
    sqrl_error_text(&err, text, sizeof text);
    if (!strstr(text, where) || !strstr(text, says))
        print_error("%s\n", text);
    assert_non_null(strstr(text, where));
    assert_non_null(strstr(text, says));
    drop(b, n);
    end(&f);
}

static void clashes(void **state) {
    (void)state;
    clash((const char *const[]){"{\"x\": 1}", "{\"x\": 2}", "{\"x\": 1.5}", NULL},
          "000000.syn: sample 2: field \"x\"",
          "sample 0 of mem://syn/000000.syn; declare \"float64\"");
    clash((const char *const[]){"{\"x\": 1}", "{\"x\": \"a\"}", NULL}, "sample 1",
          "string");
    clash((const char *const[]){"{\"x\": \"a\"}", "{\"x\": 5}", NULL}, "sample 1",
          "the integer 5");
    clash((const char *const[]){"{\"x\": 1}", "{\"x\": 2, \"new\": 5}", NULL}, "sample 1",
          "\"new\"");
    clash((const char *const[]){"{\"x\": 1, \"m\": {}}", "{\"x\": 2, \"m\": {\"k\": 1}}",
                                NULL},
          "sample 1", "\"m.k\"");
    clash((const char *const[]){"{\"x\": 1, \"m\": null}",
                                "{\"x\": 2, \"m\": {\"k\": 1}}", NULL},
          "sample 1", "m");
    clash((const char *const[]){"{\"x\": [1]}", "{\"x\": [1, [2]]}", NULL}, "sample 1",
          "list");
    clash((const char *const[]){"{\"x\": null}", "{\"x\": 3}", NULL}, "sample 1",
          "declare");
    clash((const char *const[]){"{\"x\": 1}", "5", NULL}, "sample 1", "no map");
    clash((const char *const[]){"5", NULL}, "sample 0", "no map");
    clash((const char *const[]){"{\"x\": [\"a\", 1]}", NULL}, "sample 0",
          "can't be a column");
}

static int write_shape(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    uint64_t shape[1] = {sample < 5 ? 3 : 4};
    int rc = sqrl_msgpack_put_map(out, 1, &err);
    rc |= sqrl_msgpack_put_string(out, "v", 1, &err);
    return rc | sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, shape, 1, "abcd", &err);
}

static void shapes_clash(void **state) {
    (void)state;
    struct fixture f = begin_with(write_shape, 7, 3);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    assert_int_equal(run(&f, (struct sqrl_batch_options){.batch_size = 2}, b, &n, &err),
                     SQRL_E_TYPE);
    assert_int_equal(n, 3); /* 2 + 2 + the one before the clash */
    assert_int_equal(b[2]->rows, 1);
    assert_non_null(strstr(err.where, "sample 5: field \"v\""));
    assert_non_null(strstr(err.message, "uint8[4]"));
    assert_non_null(strstr(err.message, "declare \"uint8[~]\""));
    drop(b, n);
    end(&f);
    f = begin_with(write_shape, 7, 3);
    struct sqrl_setting field = {"v", "uint8[~]"};
    struct sqrl_batch_options o = {.batch_size = 7, .fields = &field, .field_count = 1};
    syn_must(run(&f, o, b, &n, &err), &err);
    assert_int_equal(column(b[0], "v")->offsets[7], 5 * 3 + 2 * 4);
    drop(b, n);
    end(&f);
}

/* --- names --- */
static void names_in_batches(void **state) {
    (void)state;
    static const char *const S[] = {
        "{\"a\": 1, \"m\": {\"x\": 2, \"y\": 3}, \"c\": [\"no\", 1]}",
        "{\"a\": 4, \"m\": {\"y\": 6, \"x\": 5}, \"c\": 0}", NULL};
    struct fixture f = begin(S, 1);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    const char *from[] = {"m", "a"}, *to[] = {"meta", "b"}, *select[] = {"meta.x", "b"};
    SYN_STAGE(f.plan, sqrl_plan_rename(f.plan, from, to, 2, SYN_OUT));
    SYN_STAGE(f.plan,
              sqrl_plan_filter(f.plan, "meta.x == 2 or b == 4 and c == 0", SYN_OUT));
    SYN_STAGE(f.plan, sqrl_plan_filter(f.plan, "a is null and m is null", SYN_OUT));
    SYN_STAGE(f.plan, sqrl_plan_select(f.plan, select, 2, SYN_OUT));
    SYN_STAGE(f.plan, sqrl_plan_filter(f.plan, "c is null", SYN_OUT));
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 2}, b, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_int_equal(b[0]->columns, 2);
    assert_string_equal(b[0]->column[0].name, "meta.x");
    assert_string_equal(b[0]->column[1].name, "b");
    static const int64_t X[] = {2, 5}, B[] = {1, 4};
    assert_memory_equal(b[0]->column[0].data, X, sizeof X);
    assert_memory_equal(b[0]->column[1].data, B, sizeof B);
    drop(b, n);
    end(&f);
    f = begin(S, 1);
    const char *dropped[] = {"m.x", "c"};
    SYN_STAGE(f.plan, sqrl_plan_drop(f.plan, dropped, 2, SYN_OUT));
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 2}, b, &n, &err), &err);
    assert_int_equal(b[0]->columns, 2);
    assert_string_equal(b[0]->column[1].name, "m.y");
    drop(b, n);
    end(&f);
    f = begin(S, 1);
    const char *misspelt[] = {"aa"};
    SYN_STAGE(f.plan, sqrl_plan_select(f.plan, misspelt, 1, SYN_OUT));
    assert_int_not_equal(
        run(&f, (struct sqrl_batch_options){.batch_size = 2}, b, &n, &err), 0);
    end(&f);
}

/* --- buckets and budgets against a plain model --- */
static int write_length(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    uint64_t length = sqrl_mix64(sample) % 37;
    int rc = sqrl_msgpack_put_map(out, 2, &err);
    rc |= sqrl_msgpack_put_string(out, "id", 2, &err);
    rc |= sqrl_msgpack_put_int(out, (int64_t)sample, &err);
    rc |= sqrl_msgpack_put_string(out, "tok", 3, &err);
    rc |= sqrl_msgpack_put_array(out, length, &err);
    for (uint64_t i = 0; i < length; i++)
        rc |= sqrl_msgpack_put_int(out, (int64_t)i, &err);
    return rc;
}

struct model_batch {
    uint64_t id[200];
    unsigned rows;
    uint64_t longest, bytes;
};

static void check_model(struct sqrl_batch_options o, uint32_t samples) {
    static struct model_batch open[8], closed[400];
    unsigned number = 0, buckets = (unsigned)o.boundaries + 1;
    memset(open, 0, sizeof open);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t length = sqrl_mix64(i) % 37, bytes = 8 + 8 * length;
        unsigned k = 0;
        while (k < o.boundaries && length >= o.boundary[k])
            k++;
        struct model_batch *m = &open[k];
        uint64_t longest = SQRL_MAX(m->longest, length);
        if (m->rows && ((o.max_tokens && longest * (m->rows + 1) > o.max_tokens) ||
                        (o.max_bytes && m->bytes + bytes > o.max_bytes))) {
            closed[number++] = *m;
            memset(m, 0, sizeof *m);
        }
        m->id[m->rows++] = i;
        m->longest = SQRL_MAX(m->longest, length);
        m->bytes += bytes;
        if (o.batch_size && m->rows == o.batch_size) {
            closed[number++] = *m;
            memset(m, 0, sizeof *m);
        }
    }
    for (unsigned k = 0; k < buckets && !o.drop_remainder; k++)
        if (open[k].rows)
            closed[number++] = open[k];
    struct fixture f = begin_with(write_length, samples, 13);
    static struct sqrl_batch *b[400];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, o, b, &n, &err), &err);
    assert_int_equal(n, number);
    for (unsigned i = 0; i < n; i++) {
        const struct sqrl_column *tok = column(b[i], "tok");
        assert_int_equal(b[i]->rows, closed[i].rows);
        assert_int_equal(b[i]->number, i);
        assert_memory_equal(column(b[i], "id")->data, closed[i].id, closed[i].rows * 8);
        for (uint64_t r = 0; r < b[i]->rows; r++) {
            uint64_t length = sqrl_mix64(closed[i].id[r]) % 37;
            assert_int_equal(tok->offsets[r + 1] - tok->offsets[r], length);
            for (uint64_t k = 0; k < length; k++)
                assert_int_equal(((int64_t *)tok->data)[tok->offsets[r] + (int64_t)k], k);
        }
    }
    drop(b, n);
    end(&f);
}

static void buckets_and_budgets(void **state) {
    (void)state;
    static const uint64_t BOUNDARY[] = {5, 12, 30};
    for (int remainder = 0; remainder < 2; remainder++) {
        check_model((struct sqrl_batch_options){.batch_size = 7,
                                                .drop_remainder = remainder,
                                                .length_field = "tok",
                                                .boundary = BOUNDARY,
                                                .boundaries = 3},
                    500);
        check_model((struct sqrl_batch_options){.max_tokens = 120,
                                                .drop_remainder = remainder,
                                                .length_field = "tok"},
                    500);
        check_model((struct sqrl_batch_options){.max_tokens = 30, .length_field = "tok"},
                    100);
        check_model((struct sqrl_batch_options){.max_tokens = 200,
                                                .length_field = "tok",
                                                .drop_remainder = remainder,
                                                .boundary = BOUNDARY,
                                                .boundaries = 3},
                    500);
        check_model(
            (struct sqrl_batch_options){.max_bytes = 1000, .drop_remainder = remainder},
            500);
        check_model((struct sqrl_batch_options){.max_bytes = 50}, 100);
    }
}

static void length_must_be_there(void **state) {
    (void)state;
    static const char *const S[] = {"{\"x\": 1, \"n\": 3}", "{\"x\": 2, \"n\": -1}",
                                    NULL};
    struct fixture f = begin(S, 2);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    struct sqrl_batch_options o = {.max_tokens = 10, .length_field = "n"};
    assert_int_equal(run(&f, o, b, &n, &err), SQRL_E_TYPE);
    assert_non_null(strstr(err.where, "sample 1"));
    assert_non_null(strstr(err.message, "length_field"));
    assert_int_equal(n, 1);
    drop(b, n);
    end(&f);
}

/* --- rows of many blocks in one batch: few rows must not pin them all --- */
static int write_rare(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    char text[32];
    int n = snprintf(text, sizeof text, "text %llu", (unsigned long long)sample);
    int rc = sqrl_msgpack_put_map(out, 3, &err);
    rc |= sqrl_msgpack_put_string(out, "id", 2, &err);
    rc |= sqrl_msgpack_put_int(out, (int64_t)sample, &err);
    rc |= sqrl_msgpack_put_string(out, "s", 1, &err);
    rc |= sqrl_msgpack_put_string(out, text, (size_t)n, &err);
    rc |= sqrl_msgpack_put_string(out, "v", 1, &err);
    uint64_t shape[2] = {1, sample % 4};
    return rc | sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, shape, 2, "abcd", &err);
}

static void rare_rows_are_copied_out(void **state) {
    (void)state;
    struct fixture f = begin_with(write_rare, 2000, 32);
    shard_table[0].pad_bytes = 4 << 20; /* 63 blocks of 4 MiB */
    sqrl_plan_unref(f.plan);
    sqrl_source_unref(f.source);
    f.source = syn_source(f.context, shard_table, 1);
    f.plan = syn_plan(f.source);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    SYN_STAGE(f.plan,
              sqrl_plan_filter(f.plan, "id in [1, 100, 333, 500, 777, 1000, 1500, 1999]",
                               SYN_OUT));
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 8}, b, &n, &err), &err);
    assert_int_equal(n, 1);
    static const int64_t IDS[] = {1, 100, 333, 500, 777, 1000, 1500, 1999};
    const struct sqrl_column *s = column(b[0], "s"), *v = column(b[0], "v");
    assert_memory_equal(column(b[0], "id")->data, IDS, sizeof IDS);
    for (unsigned r = 0; r < 8; r++) {
        char text[32];
        int size = snprintf(text, sizeof text, "text %lld", (long long)IDS[r]);
        assert_int_equal(s->offsets[r + 1] - s->offsets[r], size);
        assert_memory_equal((char *)s->data + s->offsets[r], text, (size_t)size);
        assert_int_equal(v->shapes[2 * r + 1], IDS[r] % 4);
        assert_memory_equal((char *)v->data + v->offsets[r], "abcd",
                            (size_t)(IDS[r] % 4));
        assert_int_equal(b[0]->place[r].sample, IDS[r]);
    }
    drop(b, n);
    end(&f);
}

/* A batch of many MiB is filled in parts by several threads. */
static int write_wide(struct sqrl_bytes *out, uint64_t shard, uint64_t sample) {
    struct sqrl_error err;
    static const uint64_t SHAPE[1] = {20000};
    uint8_t *data = malloc(20000);
    if (!data)
        return 1;
    memset(data, (int)(sample & 0xff), 20000);
    int rc = sqrl_msgpack_put_map(out, 2, &err);
    rc |= sqrl_msgpack_put_string(out, "w", 1, &err);
    rc |= sqrl_msgpack_put_ndarray(out, SQRL_DTYPE_UINT8, SHAPE, 1, data, &err);
    rc |= sqrl_msgpack_put_string(out, "b", 1, &err);
    rc |= sqrl_msgpack_put_binary(out, data, (size_t)(sample % 50), &err);
    free(data);
    return rc;
}

static void large_batches(void **state) {
    (void)state;
    struct fixture f = begin_with(write_wide, 1200, 50);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 500}, b, &n, &err), &err);
    assert_int_equal(n, 3);
    for (unsigned i = 0; i < n; i++) {
        const struct sqrl_column *w = column(b[i], "w"), *bin = column(b[i], "b");
        for (uint64_t r = 0; r < b[i]->rows; r++) {
            uint8_t value = (uint8_t)(i * 500 + r), *row = (uint8_t *)w->data + r * 20000;
            assert_true(row[0] == value && row[19999] == value &&
                        !memcmp(row, row + 1, 19999));
            assert_int_equal(bin->offsets[r + 1] - bin->offsets[r], (i * 500 + r) % 50);
        }
    }
    drop(b, n);
    end(&f);
}

/* Samples whose keys come in other orders, twice, or not at all. */
static void irregular_keys(void **state) {
    (void)state;
    static const char *const S[] = {"{\"a\": 1, \"b\": 2, \"c\": 3}",
                                    "{\"c\": 6, \"a\": 4, \"b\": 5}",
                                    "{\"b\": 8, \"c\": 9, \"a\": 7}",
                                    "{\"a\": 0, \"b\": 11, \"a\": 10, \"c\": 12}",
                                    "{\"b\": 14, \"a\": 13, \"c\": 15}",
                                    "{\"c\": 18, \"b\": 17, \"a\": 16}",
                                    "{\"a\": 19, \"c\": 21, \"b\": 20}",
                                    "{\"b\": 23, \"a\": 22}",
                                    "{}",
                                    "{\"a\": 1, \"b\": 2, \"c\": 3}",
                                    NULL};
    struct fixture f = begin(S, 10);
    struct sqrl_batch *b[8];
    struct sqrl_error err;
    unsigned n;
    syn_must(run(&f, (struct sqrl_batch_options){.batch_size = 10}, b, &n, &err), &err);
    static const int64_t A[] = {1, 4, 7, 10, 13, 16, 19, 22, 0, 1},
                         B[] = {2, 5, 8, 11, 14, 17, 20, 23, 0, 2},
                         C[] = {3, 6, 9, 12, 15, 18, 21, 0, 0, 3};
    assert_memory_equal(column(b[0], "a")->data, A, sizeof A);
    assert_memory_equal(column(b[0], "b")->data, B, sizeof B);
    assert_memory_equal(column(b[0], "c")->data, C, sizeof C);
    assert_memory_equal(column(b[0], "c")->valid, "\1\1\1\1\1\1\1\0\0\1", 10);
    drop(b, n);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_strings_nested),
        cmocka_unit_test(missing_values),
        cmocka_unit_test(ragged_arrays),
        cmocka_unit_test(padded_arrays),
        cmocka_unit_test(padded_lists),
        cmocka_unit_test(big_endian),
        cmocka_unit_test(declared_numbers),
        cmocka_unit_test(clashes),
        cmocka_unit_test(shapes_clash),
        cmocka_unit_test(names_in_batches),
        cmocka_unit_test(buckets_and_budgets),
        cmocka_unit_test(length_must_be_there),
        cmocka_unit_test(rare_rows_are_copied_out),
        cmocka_unit_test(large_batches),
        cmocka_unit_test(irregular_keys),
    };
    syn_writer = write_text;
    return cmocka_run_group_tests(tests, NULL, syn_settle);
}
