/* text.h - texts that requests are made of: a builder, escapes, dates, URLs taken apart,
 * and the little XML and JSON that stores answer with. */
#ifndef SQRL_IO_OBJECT_TEXT_H
#define SQRL_IO_OBJECT_TEXT_H

#include "base/base.h"
#include "sqrl/value.h"

/* --- building --- */
/* A growing text whose first failure sticks: add on, then look at `rc` once.
 * Zero-initialise, set err. */
struct obj_text {
    struct sqrl_bytes bytes;
    int rc;
    struct sqrl_error *err;
};
void obj_add(struct obj_text *t, const char *text);
void obj_add_n(struct obj_text *t, const char *text, size_t size);
void obj_format(struct obj_text *t, const char *format, ...) SQRL_PRINTF(2, 3);
/* RFC 3986: all but unreserved characters become %XX; with `slashes`, those stay. */
void obj_escape(struct obj_text *t, const char *text, size_t size, bool slashes);
/* "?name=value" or "&name=value", both escaped; no "=" for NULL. */
void obj_query(struct obj_text *t, const char *name, const char *value);
/* The finished text, to be freed; NULL (and the text emptied) after a failure. */
char *obj_take(struct obj_text *t);
void obj_reset(struct obj_text *t);

/* --- URLs --- */
/* Pieces of a URL, borrowed from it. `path` begins with '/' or is empty; `query` is what
 * stands behind '?'. */
struct obj_url {
    const char *host, *path, *query; /* host with its port */
    size_t scheme_size, host_size, path_size, query_size;
    bool tls;
};
bool obj_url_split(const char *url, struct obj_url *out);

/* --- dates: seconds since 1970, UTC --- */
/* "20130524T000000Z" */
void obj_time_basic(int64_t seconds, char out[17]);
/* "Fri, 24 May 2013 00:00:00 GMT" */
void obj_time_http(int64_t seconds, char out[30]);
/* Reads HTTP's date. -1: it is none. */
int64_t obj_time_of_http(const char *text);
/* Reads "2013-05-24T00:00:00.123Z", with an offset too. Nanoseconds; -1: it is none. */
int64_t obj_time_of_iso(const char *text, size_t size);

/* --- XML --- */
/* Finds elements by name in what a store answered: no namespaces, no DTD. */
struct obj_xml {
    const char *at, *end;
};
/* The next element of that name in `in`, at any depth: its content goes to `content`, and
 * `in` moves behind it. False when there is none (or it has no end). */
bool obj_xml_next(struct obj_xml *in, const char *name, struct obj_xml *content);
/* The text of the first element of that name, unescaped; free() it. NULL when there is
 * none, or (err set, if given) without memory. */
char *obj_xml_text(const struct obj_xml *in, const char *name, struct sqrl_error *err);
/* For numbers: -1 when there is none. */
int64_t obj_xml_number(const struct obj_xml *in, const char *name);
void obj_add_xml(struct obj_text *t, const char *text); /* escapes & < > " */

/* --- JSON: objects of texts, small --- */
struct obj_json {
    struct sqrl_tape tape;
    uint8_t *bytes; /* owned, changed while it is decoded */
    size_t size;
};
/* Copies `text`. */
SQRL_CHECK int obj_json_read(struct obj_json *j, const char *text, size_t size,
                             struct sqrl_error *err);
void obj_json_reset(struct obj_json *j);
/* The node of a member of the map at node `map`; 0 when it is not there. */
uint32_t obj_json_member(const struct obj_json *j, uint32_t map, const char *name);
/* Its text or number as text; free() it. NULL: not there, or no text; or no memory. */
char *obj_json_text(const struct obj_json *j, uint32_t map, const char *name,
                    struct sqrl_error *err);
/* Adds it with its quotes, escaped. */
void obj_add_json(struct obj_text *t, const char *text);
/* The node behind this one and all below it. */
uint32_t obj_json_behind(const struct obj_json *j, uint32_t node);

/* --- secrets --- */
/* free() of a text that nobody shall find in memory; NULL is allowed. */
void obj_secret_free(char *text);

#endif
