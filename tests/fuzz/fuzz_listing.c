/* What object stores answer: listings, names of uploads, of all three kinds, out of any
 * bytes. Keys are whole texts, tokens not empty, nothing is read beyond the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/object/credentials.h"
#include "io/object/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one_kind(const struct object_kind *kind, enum object_verb verb,
                     struct sqrl_http_response *response) {
    const struct object_call call = {
        .verb = verb, .bucket = "b", .key = "", .upload = ""};
    struct object_page page = {0};
    struct sqrl_stat stat;
    struct sqrl_error err = {0};
    int rc = kind->read_page(&call, response, &page, &err);
    if (rc != (int)err.code)
        abort();
    for (size_t i = 0; i < page.count; i++)
        if (strlen(page.items[i].key) > response->body_size * 4 + 8)
            abort();
    if (page.token && !*page.token && kind == &object_azure)
        abort();
    object_page_free(&page);
    if (kind->read_stat(response, &stat, NULL) == SQRL_OK && stat.size > INT64_MAX)
        abort();
    if (kind->read_upload)
        free(kind->read_upload(response, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536)
        return 0;
    /* Exactly as large as the body and its NUL, so that reading on is noticed. */
    char *body = malloc(size + 1);
    if (!body)
        abort();
    if (size)
        memcpy(body, data, size);
    body[size] = '\0';
    struct sqrl_http_response response = {
        .status = 200, .body = (uint8_t *)body, .body_size = size};
    one_kind(&object_s3, OBJECT_LIST, &response);
    one_kind(&object_s3, OBJECT_UPLOADS, &response);
    one_kind(&object_google_json, OBJECT_LIST, &response);
    one_kind(&object_azure, OBJECT_LIST, &response);
    obj_secret_free(aws_ini_value(body, "default", "aws_access_key_id", NULL));
    (void)obj_time_of_http(body);
    (void)obj_time_of_iso(body, size);
    free(body);
    return 0;
}
