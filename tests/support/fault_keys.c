/* fault_keys.c - listings (version 2) of the directories that are buckets of S3. */
#include "fault_server.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct keys {
    char **name;
    struct stat *stat;
    size_t count, room;
};

/* %XX and + of a query's value. */
static void unescape(const char *from, size_t size, char *to, size_t room) {
    size_t n = 0;
    for (size_t i = 0; i < size && n + 1 < room; i++) {
        char digits[3] = {0};
        if (from[i] == '%' && i + 2 < size) {
            memcpy(digits, from + i + 1, 2);
            to[n++] = (char)strtol(digits, NULL, 16);
            i += 2;
        } else {
            to[n++] = from[i] == '+' ? ' ' : from[i];
        }
    }
    to[n] = 0;
}

static void query_value(const char *path, const char *name, char *out, size_t room) {
    const char *at = strchr(path, '?');
    size_t size = strlen(name);
    *out = 0;
    while (at) {
        at++;
        size_t n = strcspn(at, "&");
        if (n > size && strncmp(at, name, size) == 0 && at[size] == '=') {
            unescape(at + size + 1, n - size - 1, out, room);
            return;
        }
        at = strchr(at, '&');
    }
}

static void add_key(struct keys *keys, const char *name, const struct stat *st) {
    if (keys->count == keys->room) {
        keys->room = keys->room ? 2 * keys->room : 256;
        keys->name = realloc(keys->name, keys->room * sizeof *keys->name);
        keys->stat = realloc(keys->stat, keys->room * sizeof *keys->stat);
    }
    keys->stat[keys->count] = *st;
    keys->name[keys->count++] = strdup(name);
}

/* Keys below `key` (which ends in a slash, or is empty) that begin with the prefix. */
static void find_keys(const char *bucket, const char *key, const char *prefix,
                      bool delimited, struct keys *keys) {
    char path[4096], name[2048];
    snprintf(path, sizeof path, "%s/%s", bucket, key);
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory)) != NULL;) {
        struct stat st;
        int n = snprintf(name, sizeof name - 1, "%s%s", key, e->d_name);
        snprintf(path, sizeof path, "%s/%s", bucket, name);
        if (e->d_name[0] == '.' || n < 0 || stat(path, &st) != 0)
            continue;
        bool inner = S_ISDIR(st.st_mode);
        if (inner)
            strcat(name, "/");
        size_t size = strlen(name), want = strlen(prefix);
        bool fits = strncmp(name, prefix, size < want ? size : want) == 0;
        if (inner && fits && (!delimited || size <= want))
            find_keys(bucket, name, prefix, delimited, keys);
        else if (fits && size >= want)
            add_key(keys, name, &st);
    }
    if (directory)
        closedir(directory);
}

static int by_name(const void *a, const void *b) {
    return strcmp(**(char ***)a, **(char ***)b);
}

static void put_xml(FILE *to, const char *text) {
    for (; *text; text++) {
        if (*text == '&' || *text == '<' || *text == '>')
            fprintf(to, "&#%d;", *text);
        else
            fputc(*text, to);
    }
}

static void put_key(FILE *to, const char *name, const struct stat *st) {
    char date[64];
    struct tm tm;
    size_t size = strlen(name);
    if (name[size - 1] == '/') {
        fputs("<CommonPrefixes><Prefix>", to);
        put_xml(to, name);
        fputs("</Prefix></CommonPrefixes>", to);
        return;
    }
    gmtime_r(&st->st_mtime, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
    fputs("<Contents><Key>", to);
    put_xml(to, name);
    fprintf(to,
            "</Key><LastModified>%s</LastModified><ETag>\"%llx-%llx\"</ETag>"
            "<Size>%lld</Size><StorageClass>STANDARD</StorageClass></Contents>",
            date, (unsigned long long)st->st_mtime, (unsigned long long)st->st_size,
            (long long)st->st_size);
}

/* ?list-type=2 with prefix, delimiter, start-after, max-keys and continuation-token (the
 * last key of the page before). */
void serve_keys(struct link *l, struct request *r, const char *bucket) {
    char prefix[1024], delimiter[8], after[1024], token[1024], most[16];
    struct keys keys = {0};
    char *page = NULL;
    size_t size = 0, given = 0, last = 0;
    query_value(r->path, "prefix", prefix, sizeof prefix);
    query_value(r->path, "delimiter", delimiter, sizeof delimiter);
    query_value(r->path, "start-after", after, sizeof after);
    query_value(r->path, "continuation-token", token, sizeof token);
    query_value(r->path, "max-keys", most, sizeof most);
    size_t limit = *most ? strtoul(most, NULL, 10) : 1000;
    limit = limit < 1000 ? limit : 1000;
    if (*token)
        memcpy(after, token, sizeof after);
    find_keys(bucket, "", prefix, *delimiter != 0, &keys);
    char ***order = calloc(keys.count + 1, sizeof *order);
    for (size_t i = 0; i < keys.count; i++)
        order[i] = &keys.name[i];
    qsort(order, keys.count, sizeof *order, by_name);
    FILE *to = open_memstream(&page, &size);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
          "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Prefix>",
          to);
    put_xml(to, prefix);
    fprintf(to, "</Prefix><MaxKeys>%zu</MaxKeys>", limit);
    for (size_t i = 0; i < keys.count && given < limit; i++) {
        if (strcmp(*order[i], after) <= 0)
            continue;
        put_key(to, *order[i], &keys.stat[order[i] - keys.name]);
        given++;
        last = i;
    }
    bool more = given && last + 1 < keys.count;
    if (more) {
        fputs("<NextContinuationToken>", to);
        put_xml(to, *order[last]);
        fputs("</NextContinuationToken>", to);
    }
    fprintf(to,
            "<KeyCount>%zu</KeyCount><IsTruncated>%s</IsTruncated></ListBucketResult>",
            given, more ? "true" : "false");
    fclose(to);
    answer(l, r, 200, "Content-Type: application/xml\r\n", page, size);
    for (size_t i = 0; i < keys.count; i++)
        free(keys.name[i]);
    free(keys.name);
    free(keys.stat);
    free(order);
    free(page);
}
