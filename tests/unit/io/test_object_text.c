/* What requests to object stores are made of: digests by NIST's, RFC 4231's and RFC
 * 4648's vectors, signatures by those that AWS publishes, answers as the stores' manuals
 * show them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/object/azure.h"
#include "io/object/credentials.h"
#include "io/object/digest.h"
#include "io/object/sigv4.h"

#define H(name, value)                                                                   \
    { (char *)(name), (char *)(value) }

/* --- digests --- */

static void assert_sha(const char *text, size_t size, const char *expected) {
    char hex[OBJECT_HEX_BYTES];
    object_sha256_hex(text, size, hex);
    assert_string_equal(hex, expected);
}

/* FIPS 180-4's examples, and the million "a" of NIST's page on it. */
static void test_sha256(void **unused) {
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    struct object_sha256 s;
    uint8_t digest[32];
    char hex[OBJECT_HEX_BYTES], piece[997];
    assert_sha("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha("abc", 3,
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha(two, strlen(two),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(piece, 'a', sizeof piece);
    object_sha256_init(&s);
    for (size_t left = 1000000, n; left > 0; left -= n) {
        n = left < sizeof piece ? left : sizeof piece;
        object_sha256_add(&s, piece, n);
    }
    object_sha256_end(&s, digest);
    object_hex(digest, sizeof digest, hex);
    assert_string_equal(
        hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* The digest does not depend on how the bytes come. */
static void test_sha256_pieces(void **unused) {
    char text[300], whole[OBJECT_HEX_BYTES], hex[OBJECT_HEX_BYTES];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t size = 0; size <= sizeof text; size++) {
        object_sha256_hex(text, size, whole);
        struct object_sha256 s;
        uint8_t digest[32];
        object_sha256_init(&s);
        object_sha256_add(&s, text, size / 3);
        object_sha256_add(&s, text + size / 3, size - size / 3);
        object_sha256_end(&s, digest);
        object_hex(digest, sizeof digest, hex);
        assert_string_equal(hex, whole);
    }
}

/* RFC 4231, test cases 1, 2 and 6. */
static void test_hmac(void **unused) {
    uint8_t key[131], mac[32];
    char hex[OBJECT_HEX_BYTES];
    memset(key, 0x0b, 20);
    object_hmac(key, 20, "Hi There", 8, mac);
    object_hex(mac, 32, hex);
    assert_string_equal(
        hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    object_hmac("Jefe", 4, "what do ya want for nothing?", 28, mac);
    object_hex(mac, 32, hex);
    assert_string_equal(
        hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    object_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First",
                54, mac);
    object_hex(mac, 32, hex);
    assert_string_equal(
        hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* RFC 4648, section 10. */
static void test_base64(void **unused) {
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    char out[32];
    uint8_t back[32];
    size_t size;
    for (size_t i = 0; i < SQRL_COUNT_OF(pairs); i++) {
        object_base64(pairs[i][0], strlen(pairs[i][0]), false, out);
        assert_string_equal(out, pairs[i][1]);
        assert_true(object_base64_decode(out, strlen(out), back, &size));
        assert_int_equal(size, strlen(pairs[i][0]));
        assert_memory_equal(back, pairs[i][0], size);
    }
    assert_int_equal(object_base64("\xfb\xff", 2, true, out), 3);
    assert_string_equal(out, "-_8");
    assert_false(object_base64_decode("Zm9*", 4, back, &size));
    assert_false(object_base64_decode("Z", 1, back, &size));
    assert_false(object_base64_decode("Zg==x", 5, back, &size));
    assert_true(object_base64_decode("Zm9v\r\nYg==\n", 11, back, &size));
    assert_int_equal(size, 4);
}

/* --- AWS signatures --- */

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MAY_24 INT64_C(1369353600) /* 20130524T000000Z */
#define AUG_30 INT64_C(1440938160) /* 20150830T123600Z */

static void assert_signed(const struct sigv4 *s, const char *method, const char *url,
                          const struct sqrl_http_header *headers, size_t count,
                          const char *names, const char *signature) {
    struct sqrl_error err = {0};
    char *text = object_sigv4(s, method, url, headers, count, &err);
    assert_non_null(text);
    const char *found = strstr(text, "SignedHeaders=");
    assert_non_null(found);
    found += strlen("SignedHeaders=");
    assert_int_equal(strcspn(found, ","), strlen(names));
    assert_memory_equal(found, names, strlen(names));
    found = strstr(text, "Signature=");
    assert_non_null(found);
    assert_string_equal(found + strlen("Signature="), signature);
    obj_secret_free(text);
}

/* "Examples: Signature Calculations" of the S3 API reference. */
static void test_s3_examples(void **unused) {
    static const char put_hash[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    struct sigv4 s = {.key = "AKIAIOSFODNN7EXAMPLE",
                      .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                      .region = "us-east-1",
                      .service = "s3",
                      .payload = EMPTY,
                      .time = MAY_24};
    const struct sqrl_http_header get[] = {H("Range", "bytes=0-9"),
                                           H("x-amz-content-sha256", EMPTY),
                                           H("x-amz-date", "20130524T000000Z")};
    assert_signed(&s, "GET", "https://examplebucket.s3.amazonaws.com/test.txt", get, 3,
                  "host;range;x-amz-content-sha256;x-amz-date",
                  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    assert_signed(&s, "GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", get + 1,
                  2, "host;x-amz-content-sha256;x-amz-date",
                  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    assert_signed(&s, "GET",
                  "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", get + 1,
                  2, "host;x-amz-content-sha256;x-amz-date",
                  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    const struct sqrl_http_header put[] = {
        H("Date", "Fri, 24 May 2013 00:00:00 GMT"), H("x-amz-content-sha256", put_hash),
        H("x-amz-date", "20130524T000000Z"),
        H("x-amz-storage-class", "REDUCED_REDUNDANCY")};
    char hex[OBJECT_HEX_BYTES];
    object_sha256_hex("Welcome to Amazon S3.", 21, hex);
    assert_string_equal(hex, put_hash);
    s.payload = put_hash;
    assert_signed(&s, "PUT", "https://examplebucket.s3.amazonaws.com/test%24file.text",
                  put, 4, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                  "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

/* ListUsers of the general reference, and two of its test suite. */
static void test_general_examples(void **unused) {
    struct sigv4 s = {.key = "AKIDEXAMPLE",
                      .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                      .region = "us-east-1",
                      .service = "iam",
                      .payload = EMPTY,
                      .time = AUG_30};
    const struct sqrl_http_header users[] = {
        H("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
        H("X-Amz-Date", "20150830T123600Z")};
    assert_signed(&s, "GET",
                  "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", users,
                  2, "content-type;host;x-amz-date",
                  "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
    s.service = "service";
    assert_signed(&s, "GET", "https://example.amazonaws.com/", users + 1, 1,
                  "host;x-amz-date",
                  "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    assert_signed(&s, "GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1",
                  users + 1, 1, "host;x-amz-date",
                  "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

static void test_no_url(void **unused) {
    struct sigv4 s = {
        .key = "k", .secret = "s", .region = "r", .service = "s3", .payload = EMPTY};
    struct sqrl_error err = {0};
    assert_null(object_sigv4(&s, "GET", "ftp://host/x", NULL, 0, &err));
    assert_int_equal(err.code, SQRL_E_INVALID);
}

/* --- Azure --- */

/* The string that "Authorize with Shared Key" shows for a listing, signed by Python's
 * hmac with the emulators' key. */
static void test_shared_key(void **unused) {
    static const char emulator_key[] =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
        "KBHBeksoGMGw==";
    uint8_t key[96];
    size_t size;
    assert_true(object_base64_decode(emulator_key, strlen(emulator_key), key, &size));
    const struct sqrl_http_header headers[] = {
        H("x-ms-version", "2015-02-21"), H("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT")};
    struct sqrl_error err = {0};
    char *text =
        azure_shared_key("myaccount", key, size, "GET",
                         "https://myaccount.blob.core.windows.net/"
                         "mycontainer?comp=metadata&restype=container&timeout=20",
                         headers, 2, 0, &err);
    assert_string_equal(
        text, "SharedKey myaccount:1u9lui2jDxj0+fpbHjQ5m5NnastJRSYM+PSmfi8TXx4=");
    obj_secret_free(text);
}

/* --- texts --- */

static void test_building(void **unused) {
    struct sqrl_error err = {0};
    struct obj_text t = {.err = &err};
    obj_add(&t, "https://h/");
    obj_escape(&t, "a b/\xc3\xa4~", 7, true);
    obj_query(&t, "prefix", "x/y&z=1");
    obj_query(&t, "uploads", "");
    char *text = obj_take(&t);
    assert_string_equal(text, "https://h/a%20b/%C3%A4~?prefix=x%2Fy%26z%3D1&uploads=");
    free(text);
}

static void test_urls(void **unused) {
    struct obj_url url;
    assert_true(obj_url_split("https://host:90/a/b?c=d#e", &url));
    assert_true(url.tls && url.host_size == 7 && url.path_size == 4 &&
                url.query_size == 3);
    assert_true(obj_url_split("http://host", &url));
    assert_true(!url.tls && url.path_size == 0 && url.query_size == 0);
    assert_false(obj_url_split("https://user:password@host/", &url));
    assert_false(obj_url_split("https:///x", &url));
    assert_false(obj_url_split("host/x", &url));
}

static void test_times(void **unused) {
    char text[32];
    obj_time_basic(MAY_24, text);
    assert_string_equal(text, "20130524T000000Z");
    obj_time_http(MAY_24, text);
    assert_string_equal(text, "Fri, 24 May 2013 00:00:00 GMT");
    assert_int_equal(obj_time_of_http("Fri, 24 May 2013 00:00:00 GMT"), MAY_24);
    assert_int_equal(obj_time_of_http("Sunday"), -1);
    assert_int_equal(obj_time_of_http("Fri, 24 Mai 2013 00:00:00 GMT"), -1);
    assert_int_equal(obj_time_of_http(NULL), -1);
    static const char iso[] = "2015-08-30T12:36:00.250Z",
                      east[] = "2015-08-30T14:36:00+02:00";
    assert_int_equal(obj_time_of_iso(iso, strlen(iso)), AUG_30 * 1000000000 + 250000000);
    assert_int_equal(obj_time_of_iso(east, strlen(east)), AUG_30 * 1000000000);
    assert_int_equal(obj_time_of_iso("2015-13-30T12:36:00Z", 20), -1);
    assert_int_equal(obj_time_of_iso("soon", 4), -1);
}

static void test_xml(void **unused) {
    static const char text[] =
        "<?xml version=\"1.0\"?><R xmlns=\"x\"><KeyCount>2</KeyCount>"
        "<C><Key>a &amp;&lt;&#228;&#x1F43F;</Key><Size>7</Size></C>"
        "<C><Key/><Size>x</Size></C><Clean>no</Clean><C ><Key>b</Key></C><C>cut";
    struct obj_xml in = {text, text + strlen(text)}, all = in, item;
    assert_int_equal(obj_xml_number(&all, "KeyCount"), 2);
    assert_true(obj_xml_next(&in, "C", &item));
    char *key = obj_xml_text(&item, "Key", NULL);
    assert_string_equal(key, "a &<\xc3\xa4\xf0\x9f\x90\xbf");
    free(key);
    assert_int_equal(obj_xml_number(&item, "Size"), 7);
    assert_true(obj_xml_next(&in, "C", &item));
    key = obj_xml_text(&item, "Key", NULL);
    assert_string_equal(key, "");
    free(key);
    assert_int_equal(obj_xml_number(&item, "Size"), -1);
    assert_true(obj_xml_next(&in, "C", &item));
    assert_null(obj_xml_text(&item, "Size", NULL));
    assert_false(obj_xml_next(&in, "C", &item)); /* it has no end */
    struct obj_text t = {0};
    obj_add_xml(&t, "<a & \"b\">");
    key = obj_take(&t);
    assert_string_equal(key, "&lt;a &amp; &quot;b&quot;&gt;");
    free(key);
}

static void test_json(void **unused) {
    static const char text[] =
        "{\"skip\": {\"name\": \"no\"}, \"name\": \"y\\u00e4s\", \"n\": 42, \"l\": []}";
    struct sqrl_error err = {0};
    struct obj_json j;
    assert_int_equal(obj_json_read(&j, text, strlen(text), &err), SQRL_OK);
    char *name = obj_json_text(&j, 0, "name", &err), *n = obj_json_text(&j, 0, "n", &err);
    assert_string_equal(name, "y\xc3\xa4s");
    assert_string_equal(n, "42");
    assert_null(obj_json_text(&j, 0, "l", &err));
    assert_null(obj_json_text(&j, 0, "none", &err));
    free(name);
    free(n);
    obj_json_reset(&j);
    assert_int_not_equal(obj_json_read(&j, "[1]", 3, &err), SQRL_OK);
    assert_int_not_equal(obj_json_read(&j, "{} x", 4, &err), SQRL_OK);
    assert_int_not_equal(obj_json_read(&j, "", 0, &err), SQRL_OK);
}

static void test_profiles(void **unused) {
    static const char text[] = "# a comment\n[default]\naws_access_key_id = one\n"
                               "s3 =\n  aws_secret_access_key = nested\n"
                               "[profile two]\r\nregion=eu-west-1\r\n"
                               "[ profile two ]\naws_access_key_id=later\n";
    char *value = aws_ini_value(text, "default", "aws_access_key_id", NULL);
    assert_string_equal(value, "one");
    free(value);
    assert_null(aws_ini_value(text, "default", "aws_secret_access_key", NULL));
    assert_null(aws_ini_value(text, "default", "region", NULL));
    value = aws_ini_value(text, "profile two", "region", NULL);
    assert_string_equal(value, "eu-west-1");
    free(value);
    value = aws_ini_value(text, "profile two", "aws_access_key_id", NULL);
    assert_string_equal(value, "later");
    free(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),      cmocka_unit_test(test_sha256_pieces),
        cmocka_unit_test(test_hmac),        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_s3_examples), cmocka_unit_test(test_general_examples),
        cmocka_unit_test(test_no_url),      cmocka_unit_test(test_shared_key),
        cmocka_unit_test(test_building),    cmocka_unit_test(test_urls),
        cmocka_unit_test(test_times),       cmocka_unit_test(test_xml),
        cmocka_unit_test(test_json),        cmocka_unit_test(test_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
