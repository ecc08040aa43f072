/* IDX: all element types by hand from the format's description, and the real
 * Fashion-MNIST, whose sums were computed with NumPy. */
#include "../driver/opening.h"

#define FASHION "/usr/share/datasets/fashion-mnist"

static void test_types(void **state) {
    static const struct {
        uint8_t bytes[64];
        size_t size;
        const char *json;
    } files[] = {
        {{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 255, 4, 5, 6},
         18,
         "{\"image\": {\"data\": [1, 2, 255], \"type\": \"|u1\", \"shape\": [3]}}\n"
         "{\"image\": {\"data\": [4, 5, 6], \"type\": \"|u1\", \"shape\": [3]}}\n"},
        {{0, 0, 9, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, 0x7f},
         14,
         "{\"image\": {\"data\": [-128, 127], \"type\": \"|i1\", \"shape\": [2]}}\n"},
        {{0, 0, 0xb, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x01, 0x02, 0xff, 0xfe},
         16,
         "{\"image\": {\"data\": [258, -2], \"type\": \"<i2\", \"shape\": [2]}}\n"},
        {{0, 0, 0xc, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0, 0, 0},
         16,
         "{\"image\": {\"data\": [-2147483648], \"type\": \"<i4\", \"shape\": [1]}}\n"},
        {{0, 0, 0xd, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0},
         20,
         "{\"image\": {\"data\": [[1.5]], \"type\": \"<f4\", \"shape\": [1, 1]}}\n"},
        {{0, 0, 0xe, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0xc0, 4, 0, 0, 0, 0, 0, 0},
         20,
         "{\"image\": {\"data\": [-2.5], \"type\": \"<f8\", \"shape\": [1]}}\n"},
        {{0, 0, 8, 1, 0, 0, 0, 2, 7, 200}, 10, "{\"label\": 7}\n{\"label\": 200}\n"},
        {{0, 0, 0xc, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfb}, 12, "{\"label\": -5}\n"},
        {{0, 0, 0xe, 1, 0, 0, 0, 1, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0},
         16,
         "{\"label\": 0.5}\n"},
        {{0, 0, 8, 1, 0, 0, 0, 0}, 8, ""},
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(files); i++) {
        check_lines(put("a.idx", files[i].bytes, files[i].size), files[i].json,
                    strlen(files[i].json));
        check_lines(put_coded("a.idx.gz", "gzip", files[i].bytes, files[i].size),
                    files[i].json, strlen(files[i].json));
    }
}

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0,
                                 0, 1, 0, 0, 0, 2, 1, 2, 3, 4};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 8};

static void test_labels(void **state) {
    static const char both[] = "{\"image\": {\"data\": [[1, 2]], \"type\": \"|u1\", "
                               "\"shape\": [1, 2]}, \"label\": 9}\n"
                               "{\"image\": {\"data\": [[3, 4]], \"type\": \"|u1\", "
                               "\"shape\": [1, 2]}, \"label\": "
                               "8}\n";
    mkdir(at("set"), 0777);
    put("set/t-images-idx3-ubyte", images, sizeof images);
    put_coded("set/t-labels-idx1-ubyte.gz", "gzip", labels, sizeof labels);
    put_text("set/README", "not a shard");
    check_lines(at("set/t-images-idx3-ubyte"), both, sizeof both - 1);
    check_lines(at("set"), both, sizeof both - 1);
    struct reading r;
    assert_int_equal(read_all(at("set"), "label", "class", &r), SQRL_OK);
    assert_non_null(strstr((char *)r.lines.data, "\"class\": 9}"));
    assert_int_equal(r.known, 2);
    reading_reset(&r);
    assert_int_equal(read_all(at("set"), "labels", "none", &r), SQRL_OK);
    assert_null(strstr((char *)r.lines.data, "label"));
    reading_reset(&r);
    check_error(at("set"), "label", "image", SQRL_E_INVALID, "two different names", NULL);
    /* Another set beside it is not mixed in. */
    put("set/u-images-idx3-ubyte", images, sizeof images);
    check_error(at("set"), NULL, NULL, SQRL_E_FORMAT, "\"t\", \"u\"", "stem=");
    assert_int_equal(read_all(at("set"), "stem", "t-", &r), SQRL_OK);
    assert_int_equal(r.samples, 2);
    reading_reset(&r);
    check_error(at("set"), "stem", "v", SQRL_E_NOT_FOUND, "stem=", NULL);
    put_coded("set/t-images-idx3-ubyte.gz", "gzip", images, sizeof images);
    check_error(at("set"), "stem", "t", SQRL_E_FORMAT, "twice", NULL);
}

static void test_errors(void **state) {
    static const uint8_t other[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 8, 7};
    mkdir(at("bad"), 0777);
    put("bad/t-images-idx3-ubyte", images, sizeof images);
    put("bad/t-labels-idx1-ubyte", other, sizeof other);
    check_error(at("bad/t-images-idx3-ubyte"), NULL, NULL, SQRL_E_CORRUPT,
                "t-labels-idx1-ubyte", "3 labels for the 2 images");
    check_error(put("cut.idx", images, sizeof images - 1), NULL, NULL, SQRL_E_TRUNCATED,
                "20 bytes", "19 bytes");
    uint8_t more[sizeof images + 1] = {0};
    memcpy(more, images, sizeof images);
    check_error(put("more.idx", more, sizeof more), NULL, NULL, SQRL_E_CORRUPT,
                "21 bytes", NULL);
    check_error(put_coded("more.idx.gz", "gzip", more, sizeof more), NULL, NULL,
                SQRL_E_CORRUPT, "more bytes follow", NULL);
    struct reading r;
    put_coded("cut.idx.gz", "gzip", images, sizeof images - 1);
    assert_int_equal(read_all(at("cut.idx.gz"), NULL, NULL, &r), SQRL_E_TRUNCATED);
    assert_int_equal(r.samples, 1); /* the whole one before the fault */
    assert_non_null(strstr(r.text, "sample 1"));
    reading_reset(&r);
    static const uint8_t huge[] = {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff,
                                   0, 0, 1, 0, 0,    0,    1,    0};
    static const uint8_t wide[] = {0,    0,    14,   3,    0, 0,    0,    1,
                                   0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff};
    static const uint8_t zero[] = {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0};
    check_error(put("huge.idx", huge, sizeof huge), "driver", "idx", SQRL_E_TRUNCATED,
                "4294967295 samples", NULL);
    check_error(put_coded("huge.idx.gz", "gzip", huge, sizeof huge), "driver", "idx",
                SQRL_E_CORRUPT, "gzip can hold", NULL);
    check_error(put("wide.idx", wide, sizeof wide), "driver", "idx", SQRL_E_LIMIT,
                "2 GiB", NULL);
    check_error(put("zero.idx", zero, sizeof zero), "driver", "idx", SQRL_E_CORRUPT,
                "dimension 1 is 0", NULL);
    check_error(put("short.idx", images, 7), "driver", "idx", SQRL_E_TRUNCATED, "header",
                NULL);
    check_error(put("magic.idx", "PK\3\4 and so on", 12), "driver", "idx", SQRL_E_FORMAT,
                "50 4b 03 04", NULL);
}

/* Sums over a set: samples, pixels, labels, and pixels weighted by label + 1. */
struct sums {
    uint64_t samples, pixels, labels, weighted;
};

static void add_block(const struct sqrl_block *block, struct sums *sums) {
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    for (uint32_t i = 0; i < block->count; i++) {
        uint32_t image = sqrl_map_find(nodes, block->begin[i], bytes, "image", 5);
        uint32_t label = sqrl_map_find(nodes, block->begin[i], bytes, "label", 5);
        struct sqrl_ndarray view;
        sqrl_ndarray_view(nodes, image, bytes, &view);
        assert_int_equal(view.dims, 2);
        assert_int_equal(view.shape[0], 28);
        assert_int_equal(view.shape[1], 28);
        assert_int_equal(view.data_bytes, 784);
        uint64_t pixels = 0;
        for (size_t k = 0; k < view.data_bytes; k++)
            pixels += view.data[k];
        sums->samples++;
        sums->pixels += pixels;
        sums->labels += nodes[label].v.u;
        sums->weighted += pixels * (nodes[label].v.u + 1);
    }
}

static void check_fashion(const char *stem, struct sums want) {
    struct sqrl_setting setting = {"stem", stem};
    struct sqrl_settings settings = {&setting, 1};
    struct sqrl_source *source = NULL;
    struct sqrl_shard_reader *reader = NULL;
    struct sums sums = {0};
    assert_int_equal(sqrl_open(context, FASHION, &settings, &source, NULL), SQRL_OK);
    assert_int_equal(sqrl_source_samples(source), want.samples);
    const struct sqrl_schema *schema = NULL;
    assert_int_equal(sqrl_source_schema(source, &schema, NULL), SQRL_OK);
    assert_int_equal(schema->count, 2);
    char type[40];
    sqrl_field_type_text(&schema->fields[0], type, sizeof type);
    assert_string_equal(type, "uint8[28,28]");
    assert_int_equal(sqrl_shard_open(source, 0, &reader, NULL), SQRL_OK);
    for (;;) {
        struct sqrl_block *block = NULL;
        assert_int_equal(sqrl_shard_reader_next(reader, NULL, &block, NULL), SQRL_OK);
        if (!block)
            break;
        add_block(block, &sums);
        sqrl_block_unref(block);
    }
    assert_memory_equal(&sums, &want, sizeof sums);
    sqrl_shard_reader_unref(reader);
    sqrl_source_unref(source);
}

static void test_fashion(void **state) {
    if (access(FASHION, R_OK) != 0) {
        print_message("skipped: the package dataset-fashion-mnist is not installed\n");
        skip();
    }
    check_fashion("train", (struct sums){60000, 3431114169, 270000, 18643160444});
    check_fashion("t10k", (struct sums){10000, 573469082, 45000, 3113926560});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_fashion),
    };
    return cmocka_run_group_tests(tests, opening_setup, opening_teardown);
}
