/* azure.h - Azure's signature, apart from the store for its tests. */
#ifndef SQRL_IO_OBJECT_AZURE_H
#define SQRL_IO_OBJECT_AZURE_H

#include "io/http/http.h"

/* The value of Authorization, "SharedKey account:...", for a request with all its
 * headers (x-ms-date, Range ... among them). free() it by obj_secret_free. */
char *azure_shared_key(const char *account, const uint8_t *key, size_t key_size,
                       const char *method, const char *url,
                       const struct sqrl_http_header *headers, size_t count,
                       uint64_t body_size, struct sqrl_error *err);

#endif
