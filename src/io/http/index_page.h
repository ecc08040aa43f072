/* index_page.h - the entries of a directory as a web server's index page names them. */
#ifndef SQRL_IO_HTTP_INDEX_PAGE_H
#define SQRL_IO_HTTP_INDEX_PAGE_H

#include "io/http/transfer.h"

struct sqrl_index_page {
    char *
        *names; /* escaped as in URLs; directories end with a slash; sorted, once each */
    size_t count, capacity;
};

/* Reads an HTML page of nginx, Apache, Python's http.server, Caddy and the like: the
 * links that lead to an entry directly below `url`, the page's own address (ends with a
 * slash). Entries that begin with a dot are left out. Reset also on failure. */
SQRL_CHECK int sqrl_index_page_read(const char *html, const char *url,
                                    struct sqrl_index_page *out, struct sqrl_error *err);
void sqrl_index_page_reset(struct sqrl_index_page *page);

#endif
