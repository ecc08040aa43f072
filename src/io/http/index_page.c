/* index_page.c - links of an index page. Only href attributes are looked at: whatever
 * else a page holds, a link that does not lead below its own directory is none of ours.
 */
#include "io/http/index_page.h"

#include <stdlib.h>
#include <strings.h>

#define MAX_NAMES ((size_t)1 << 20)

void sqrl_index_page_reset(struct sqrl_index_page *page) {
    for (size_t i = 0; i < page->count; i++)
        free(page->names[i]);
    free(page->names);
    *page = (struct sqrl_index_page){0};
}

/* Undoes the entities that may stand in an attribute, in place. */
static void unescape_entities(char *text) {
    static const struct {
        const char *entity;
        char c;
    } table[] = {{"&amp;", '&'},  {"&lt;", '<'},   {"&gt;", '>'},
                 {"&quot;", '"'}, {"&#39;", '\''}, {"&#x27;", '\''}};
    char *out = text;
    while (*text) {
        size_t i = 0;
        while (i < SQRL_COUNT_OF(table) &&
               strncmp(text, table[i].entity, strlen(table[i].entity)) != 0)
            i++;
        if (i < SQRL_COUNT_OF(table)) {
            *out++ = table[i].c;
            text += strlen(table[i].entity);
        } else {
            *out++ = *text++;
        }
    }
    *out = 0;
}

/* The next href's text behind *at, which moves on; NULL: there is none. free() it. */
static char *next_link(const char **at) {
    for (const char *p = *at; (p = strcasestr(p, "href")) != NULL;) {
        p += 4;
        p += strspn(p, " \t\r\n");
        if (*p != '=')
            continue;
        p++;
        p += strspn(p, " \t\r\n");
        char quote = *p == '"' || *p == '\'' ? *p++ : 0;
        const char stops[] = {quote ? quote : ' ', quote ? '\0' : '>', '\0'};
        size_t size = strcspn(p, stops);
        *at = p + size;
        char *link = sqrl_format(NULL, "%.*s", (int)SQRL_MIN(size, (size_t)8192), p);
        if (link)
            unescape_entities(link);
        return link;
    }
    return NULL;
}

/* What of `link` lies directly below the directory; 0: nothing. */
static size_t entry_size(const char *name) {
    size_t size = strcspn(name, "/?#");
    if (size == 0 || *name == '.' || (name[size] != '\0' && name[size] != '/'))
        return 0;
    if (name[size] == '/' && name[size + 1] != '\0')
        return 0;
    return size + (name[size] == '/');
}

static int add(struct sqrl_index_page *page, const char *name, size_t size,
               struct sqrl_error *err) {
    if (page->count == MAX_NAMES)
        return sqrl_error_set(err, SQRL_E_LIMIT, "the index page has more than %zu links",
                              MAX_NAMES);
    if (page->count == page->capacity) {
        size_t capacity = page->capacity ? 2 * page->capacity : 64;
        char **names =
            sqrl_realloc(page->names, capacity * sizeof *names, "an index page", err);
        if (!names)
            return SQRL_E_NO_MEMORY;
        page->names = names;
        page->capacity = capacity;
    }
    char *copy = sqrl_format(err, "%.*s", (int)size, name);
    if (!copy)
        return SQRL_E_NO_MEMORY;
    page->names[page->count++] = copy;
    return SQRL_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct sqrl_index_page *page) {
    size_t kept = 0;
    if (page->count > 0)
        qsort(page->names, page->count, sizeof *page->names, by_text);
    for (size_t i = 0; i < page->count; i++) {
        if (kept > 0 && strcmp(page->names[kept - 1], page->names[i]) == 0)
            free(page->names[i]);
        else
            page->names[kept++] = page->names[i];
    }
    page->count = kept;
}

int sqrl_index_page_read(const char *html, const char *url, struct sqrl_index_page *out,
                         struct sqrl_error *err) {
    *out = (struct sqrl_index_page){0};
    size_t base = strcspn(url, "?#");
    int rc = SQRL_OK;
    char *link;
    while (rc == SQRL_OK && (link = next_link(&html)) != NULL) {
        char *full = sqrl_curl_resolve(url, link);
        if (full && strncmp(full, url, base) == 0) {
            size_t size = entry_size(full + base);
            if (size > 0)
                rc = add(out, full + base, size, err);
        }
        free(full);
        free(link);
    }
    sort(out);
    return rc;
}
