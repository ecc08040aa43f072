/* Vectors: xxHash's own sanity check (xxhsum.c, its generated buffer), RFC 3720 appendix
 * B.4, and the check values of the CRC catalogue ("123456789"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"

static const struct {
    size_t size;
    uint64_t hash;
} xxh3_vectors[] = {
    {0, 0x2D06800538D394C2u},    {1, 0xC44BDFF4074EECDBu},    {6, 0x27B56A84CD2D7325u},
    {12, 0xA713DAF0DFBB77E7u},   {24, 0xA3FE70BF9D3510EBu},   {48, 0x397DA259ECBA1F11u},
    {80, 0xBCDEFBBB2C47C90Au},   {195, 0xCD94217EE362EC3Au},  {403, 0xCDEB804D65C6DEA4u},
    {512, 0x617E49599013CB6Bu},  {2048, 0xDD59E2C3A5F038E0u}, {2240, 0x6E73A90539CF2948u},
    {2367, 0xCB37AEB9E5D361EDu},
};

static void fill_sanity(uint8_t *out, size_t size) {
    uint64_t state = 2654435761u;
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(state >> 56);
        state *= 11400714785074694797u;
    }
}

static void test_xxh3(void **unused) {
    uint8_t data[2400];
    fill_sanity(data, sizeof(data));
    for (size_t i = 0; i < SQRL_COUNT_OF(xxh3_vectors); i++)
        assert_true(sqrl_xxh3(data, xxh3_vectors[i].size) == xxh3_vectors[i].hash);
}

static void test_xxh3_pieces(void **unused) {
    uint8_t data[2400];
    fill_sanity(data, sizeof(data));
    for (size_t i = 0; i < SQRL_COUNT_OF(xxh3_vectors); i++) {
        for (size_t piece = 1; piece < 700; piece += 61) {
            struct sqrl_xxh3_state state;
            sqrl_xxh3_init(&state);
            for (size_t at = 0; at < xxh3_vectors[i].size; at += piece)
                sqrl_xxh3_update(&state, data + at,
                                 SQRL_MIN(piece, xxh3_vectors[i].size - at));
            sqrl_xxh3_update(&state, NULL, 0);
            assert_true(sqrl_xxh3_digest(&state) == xxh3_vectors[i].hash);
        }
    }
}

static void test_xxh32(void **unused) {
    assert_int_equal(sqrl_xxh32("", 0), 0x02CC5D05);
}

static void test_crc32(void **unused) {
    assert_int_equal(sqrl_crc32(0, "123456789", 9), 0xCBF43926);
    assert_int_equal(sqrl_crc32(0, NULL, 0), 0);
    assert_int_equal(sqrl_crc32(sqrl_crc32(0, "1234", 4), "56789", 5), 0xCBF43926);
    assert_int_equal(sqrl_zlib_crc32(0, "123456789", 9), 0xCBF43926);
#if SQRL_HAVE_ISAL
    assert_int_equal(sqrl_isal_crc32(0, "123456789", 9), 0xCBF43926);
#endif
}

static void check_crc32c(uint32_t (*crc32c)(uint32_t, const void *, size_t)) {
    uint8_t data[32];
    memset(data, 0, 32);
    assert_int_equal(crc32c(0, data, 32), 0x8A9136AA);
    memset(data, 0xFF, 32);
    assert_int_equal(crc32c(0, data, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, data, 32), 0x46DD794E);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, data, 32), 0x113FDB5C);
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c(crc32c(0, "12", 2), "3456789", 7), 0xE3069283);
}

static void test_crc32c(void **unused) {
    check_crc32c(sqrl_crc32c);
    check_crc32c(sqrl_crc32c_table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xxh3),   cmocka_unit_test(test_xxh3_pieces),
        cmocka_unit_test(test_xxh32),  cmocka_unit_test(test_crc32),
        cmocka_unit_test(test_crc32c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
