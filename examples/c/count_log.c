/* No machine learning: filters a web server's log (JSON lines, plain or compressed) and
 * counts.
 *
 *     ./count_log access.jsonl.gz 'status >= 500 and path startswith "/api/"' path
 *
 * prints how often each value of the field occurs among the lines that pass, most often
 * first.
 */
#include <sqrl/sqrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sqrl_error err;

static void check(int code) {
    char text[1024];
    if (code == SQRL_OK)
        return;
    sqrl_error_text(&err, text, sizeof text);
    fprintf(stderr, "count_log: %s\n", text);
    exit(1);
}

/* Counts of distinct strings, in a table of open addresses that doubles. */
struct entry {
    char *text;
    size_t size;
    unsigned long count;
};
struct table {
    struct entry *entries;
    size_t capacity, used;
};

static struct entry *slot_of(struct table *table, const char *text, size_t size) {
    size_t i = (size_t)sqrl_xxh3(text, size) & (table->capacity - 1);
    for (;; i = (i + 1) & (table->capacity - 1)) {
        struct entry *entry = &table->entries[i];
        if (!entry->text || (entry->size == size && memcmp(entry->text, text, size) == 0))
            return entry;
    }
}

static void grow(struct table *table) {
    struct table larger = {.capacity = table->capacity ? 2 * table->capacity : 1024,
                           .used = table->used};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (!larger.entries)
        abort();
    for (size_t i = 0; i < table->capacity; i++)
        if (table->entries[i].text)
            *slot_of(&larger, table->entries[i].text, table->entries[i].size) =
                table->entries[i];
    free(table->entries);
    *table = larger;
}

static void count(struct table *table, const char *text, size_t size) {
    if (2 * (table->used + 1) > table->capacity)
        grow(table);
    struct entry *entry = slot_of(table, text, size);
    if (!entry->text) {
        entry->text = malloc(size + 1);
        if (!entry->text)
            abort();
        memcpy(entry->text, text, size);
        entry->text[size] = '\0';
        entry->size = size;
        table->used++;
    }
    entry->count++;
}

static int most_first(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->text && y->text ? strcmp(x->text, y->text) : 0;
}

/* Counts the value of `field` in a sample: text or a whole number. */
static void count_sample(struct table *table, const struct sqrl_sample *sample,
                         const char *field) {
    const struct sqrl_block *block = sample->block;
    const struct sqrl_node *nodes = block->tape.nodes;
    const uint8_t *bytes = block->bytes->data;
    uint32_t root = block->begin[sample->index];
    if (nodes[root].type != SQRL_MAP)
        return;
    uint32_t at = sqrl_map_find(nodes, root, bytes, field, strlen(field));
    if (at == SQRL_NO_NODE)
        return;
    const struct sqrl_node *node = &nodes[at];
    char scratch[32];
    if (node->type == SQRL_STRING) {
        count(table, (const char *)bytes + node->v.offset, node->size);
    } else if (node->type == SQRL_INT) {
        int size = snprintf(scratch, sizeof scratch, "%lld", (long long)node->v.i);
        count(table, scratch, (size_t)size);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: count_log LOG EXPRESSION FIELD\n");
        return 2;
    }
    struct sqrl_context *context;
    struct sqrl_source *source;
    struct sqrl_plan *all, *passing;
    struct sqrl_iterator *iterator;
    struct sqrl_run *run;
    struct table table = {0};
    check(sqrl_context_new(NULL, &context, &err));
    check(sqrl_open(context, argv[1], NULL, &source, &err));
    check(sqrl_plan_source(source, &all, &err));
    check(sqrl_plan_filter(all, argv[2], &passing, &err));
    check(sqrl_iterator_open(passing, &iterator, &err));
    for (;;) {
        check(sqrl_iterator_next_run(iterator, &run, &err));
        if (!run)
            break;
        for (uint32_t i = 0; i < run->count; i++)
            count_sample(&table, &run->samples[i], argv[3]);
        sqrl_run_release(run);
    }
    sqrl_iterator_close(iterator);
    sqrl_plan_unref(passing);
    sqrl_plan_unref(all);
    sqrl_source_unref(source);
    sqrl_context_unref(context);
    if (table.capacity)
        qsort(table.entries, table.capacity, sizeof *table.entries, most_first);
    for (size_t i = 0; i < table.used; i++) {
        printf("%8lu  %s\n", table.entries[i].count, table.entries[i].text);
        free(table.entries[i].text);
    }
    free(table.entries);
    return 0;
}
