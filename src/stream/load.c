/* load.c - the LOAD job: open a shard, read and parse a block, test filters, locate
 * columns.
 *
 * Everything that can be wrong with a row is found here, on many threads, and kept as one
 * byte a row; the error itself is made anew (sqrl_load_explain) when the row's turn
 * comes, if it comes: a take() before it, or a filter, may leave it out.
 */
#include "io/ahead.h"
#include "stream/executor.h"
#include "value/schema.h"

#include <stdlib.h>

/* --- one row --- */

/* What a row is tested with: nodes and bytes of its block. */
struct view {
    const struct sqrl_iterator *it;
    const struct sqrl_node *nodes;
    const uint8_t *bytes;
    const uint32_t *found;
};

/* The filters that the row passes; SQRL_ROW_FAILS when one of them fails. */
static uint8_t run_filters(const struct view *v, struct sqrl_error *err) {
    for (uint32_t f = 0; f < v->it->filters; f++) {
        bool pass;
        if (sqrl_expression_test(v->it->filter[f].expression, v->nodes, v->bytes,
                                 v->found, v->it->filter[f].map, &pass, err))
            return (uint8_t)(f | SQRL_ROW_FAILS);
        if (!pass)
            return (uint8_t)f;
    }
    return (uint8_t)v->it->filters;
}

/* The length field's value; false when it has none. */
static bool measure_row(const struct view *v, uint64_t *out) {
    uint32_t node = v->found[v->it->measure_want];
    *out = 0;
    if (node == SQRL_NO_NODE)
        return false;
    const struct sqrl_node *value = &v->nodes[node];
    switch (value->type) {
    case SQRL_STRING:
    case SQRL_BINARY:
    case SQRL_ARRAY:
        *out = value->size;
        return true;
    case SQRL_INT:
        *out = value->v.u;
        return value->v.i >= 0;
    case SQRL_NDARRAY:
        *out = value->size ? value[2].v.u : 0;
        return value->size > 0;
    default:
        return false;
    }
}

/* --- one block --- */

#define FOUND_ROOM 1024u /* nodes of fields that are found at once */

/* Rows from `row` on that have the keys of the one before, where nothing is asked of them
 * but their cells; how many. */
static uint32_t locate_run(struct sqrl_iterator *it, struct sqrl_locator *locator,
                           uint32_t *found, struct sqrl_loaded *loaded, uint32_t row,
                           bool *plain) {
    uint8_t *stage = (uint8_t *)(uintptr_t)loaded->stage;
    uint32_t wants = sqrl_wants_count(it->wants), left = loaded->count - row;
    uint32_t most = SQRL_MIN(FOUND_ROOM / SQRL_MAX(wants, 1u), SQRL_CELL_ROWS);
    uint32_t n = sqrl_locate_run(locator, loaded->nodes, loaded->block->begin + row,
                                 SQRL_MIN(most, left), loaded->bytes, found);
    uint64_t bad =
        n ? sqrl_cells_write(it->columns, loaded, loaded->nodes, found, wants, row, n)
          : 0;
    for (uint32_t i = 0; i < n; i++)
        stage[row + i] = bad >> i & 1 ? SQRL_ROW_FAILS : 0;
    *plain &= !bad;
    return n;
}

/* Tests and locates all rows. `cells` is false while the columns are not fixed yet. */
static void locate_rows(struct sqrl_iterator *it, struct sqrl_locator *locator,
                        uint32_t *found, struct sqrl_loaded *loaded, bool cells) {
    const uint32_t *begin = loaded->block->begin;
    struct view v = {it, loaded->nodes, loaded->bytes, found};
    uint8_t *stage = (uint8_t *)(uintptr_t)loaded->stage;
    uint8_t all = (uint8_t)it->filters;
    bool measure = cells && it->measure_want != SQRL_NO_NODE, plain = true;
    bool lack = sqrl_filters_lack(it), cells_only = cells && !it->filters && !measure;
    for (uint32_t row = 0; row < loaded->count; row++) {
        const char *stranger = NULL;
        if (cells_only)
            row += locate_run(it, locator, found, loaded, row, &plain);
        if (row == loaded->count)
            break;
        if (cells || it->filters)
            sqrl_locate(locator, v.nodes, begin[row], v.bytes, found, &stranger);
        if (SQRL_UNLIKELY(lack))
            lack = sqrl_filters_see(it, found);
        uint8_t passed = it->filters ? run_filters(&v, NULL) : 0;
        if (cells && passed == all) {
            bool good =
                !stranger && v.nodes[begin[row]].type == SQRL_MAP &&
                !sqrl_cells_write(it->columns, loaded, v.nodes, found, 0, row, 1) &&
                (!measure || measure_row(&v, &loaded->measure[row]));
            passed |= good ? 0 : SQRL_ROW_FAILS;
        } else if (it->check_names && passed == all &&
                   sqrl_projection_check(it->plan->names, loaded->block, row, NULL)) {
            passed |= SQRL_ROW_FAILS;
        }
        plain &= passed == all;
        stage[row] = passed;
    }
    if (plain)
        loaded->stage = NULL;
    if (lack)
        sqrl_filters_look(it, loaded->block);
}

static int worker_locator(struct sqrl_iterator *it, struct sqrl_worker *worker,
                          struct sqrl_error *err) {
    if (worker->locator)
        return SQRL_OK;
    size_t room = SQRL_MAX(sqrl_wants_count(it->wants), FOUND_ROOM);
    worker->found = sqrl_malloc(room * sizeof(uint32_t), "fields", err);
    if (worker->found)
        worker->locator = sqrl_locator_new(it->wants, err);
    if (worker->locator)
        return SQRL_OK;
    free(worker->found);
    worker->found = NULL;
    return SQRL_E_NO_MEMORY;
}

/* True for fields that would come out of the stream but are no column. */
static bool is_stranger(void *arg, const char *name) {
    const struct sqrl_iterator *it = arg;
    struct sqrl_name_map map = {0};
    bool comes_out = false;
    if (sqrl_name_map_add(&map, name, 0, NULL) == SQRL_OK &&
        sqrl_projection_map(it->batch->names, &map, NULL) == SQRL_OK)
        comes_out = map.count > 0;
    sqrl_name_map_reset(&map);
    return comes_out;
}

/* The schema of a block; where there are too many fields, of those that come out. */
static int observe(struct sqrl_iterator *it, struct sqrl_schema *schema,
                   const struct sqrl_block *block, struct sqrl_error *err) {
    int code = sqrl_schema_observe(schema, block, err);
    if (code == SQRL_E_LIMIT && it->batch->names) {
        sqrl_schema_reset(schema);
        code = sqrl_schema_observe_only(schema, block, is_stranger, it, err);
    }
    const struct sqrl_shard *shard = sqrl_source_shard(it->source, block->shard);
    if (code == SQRL_E_LIMIT && shard)
        sqrl_error_at(err, code, "%s", shard->path);
    return code;
}

/* A filter may let only a row or two of the block through. What the others have in the
 * same fields is a better guess at the rows to come, as long as the types agree. */
static int widen(struct sqrl_iterator *it, struct sqrl_schema *schema,
                 const struct sqrl_block *block, struct sqrl_error *err) {
    struct sqrl_schema all = {0};
    int code = observe(it, &all, block, err);
    for (uint32_t i = 0; i < schema->count && !code; i++) {
        struct sqrl_field *field = &schema->fields[i];
        int k = sqrl_schema_find(&all, field->name, strlen(field->name));
        if (k < 0 || all.fields[k].kind == SQRL_KIND_OTHER)
            continue;
        char *name = field->name;
        *field = all.fields[k];
        field->name = name;
    }
    sqrl_schema_reset(&all);
    return code;
}

static int want_columns(struct sqrl_iterator *it, struct sqrl_columns *columns,
                        struct sqrl_wants *wants, struct sqrl_error *err) {
    int code = SQRL_OK;
    uint32_t want;
    for (uint32_t f = 0; f < it->filters; f++)
        for (uint32_t i = 0; i < sqrl_expression_fields(it->filter[f].expression); i++) {
            char *origin; /* in the order of filter_wants: the numbers are the same */
            if (it->filter[f].map[i] == SQRL_NO_NODE)
                continue;
            const struct sqrl_plan *p = it->batch;
            for (; p && !(p->kind == SQRL_STAGE_FILTER &&
                          p->expression == it->filter[f].expression);)
                p = p->before;
            code = sqrl_projection_origin(
                p->names, sqrl_expression_field(p->expression, i), &origin, err);
            if (!code)
                code = sqrl_wants_add(wants, origin, &want, err);
            free(origin);
            if (code)
                return code;
        }
    for (uint32_t c = 0; c < columns->count && !code; c++)
        code = sqrl_wants_add(wants, columns->column[c].origin, &columns->column[c].want,
                              err);
    return code;
}

static int want_measure(struct sqrl_iterator *it, struct sqrl_wants *wants, uint32_t *out,
                        struct sqrl_error *err) {
    const char *field = it->batch->batching.length_field;
    char *origin;
    *out = SQRL_NO_NODE;
    if (!field)
        return SQRL_OK;
    int code = sqrl_projection_origin(it->batch->names, field, &origin, err);
    if (!code && !origin)
        code = sqrl_error_set(
            err, SQRL_E_INVALID,
            "length_field \"%.120s\" is removed by select, drop or rename", field);
    if (!code)
        code = sqrl_wants_add(wants, origin, out, err);
    free(origin);
    return code;
}

int sqrl_load_fix_columns(struct sqrl_iterator *it, const struct sqrl_schema *schema,
                          const struct sqrl_seen_block *seen, struct sqrl_error *err) {
    struct sqrl_columns *columns;
    struct sqrl_wants *wants = NULL;
    uint32_t measure = SQRL_NO_NODE;
    int code = sqrl_columns_new(schema, seen, it->batch, &columns, err);
    if (!code && !(wants = sqrl_wants_new(err)))
        code = SQRL_E_NO_MEMORY;
    if (!code)
        code = want_columns(it, columns, wants, err);
    if (!code)
        code = want_measure(it, wants, &measure, err);
    if (code) {
        sqrl_columns_free(columns);
        sqrl_wants_free(wants);
        return code;
    }
    sqrl_wants_set_stranger(wants, is_stranger, it);
    pthread_mutex_lock(&it->lock);
    it->wants = wants;
    it->measure_want = measure;
    it->columns = columns;
    pthread_mutex_unlock(&it->lock);
    return SQRL_OK;
}

static int explain_stranger(struct sqrl_iterator *it, const char *stranger, bool nameless,
                            const struct sqrl_place *place, struct sqrl_error *err) {
    if (nameless)
        sqrl_error_set(err, SQRL_E_TYPE,
                       "the key %s, so it can't name a column; give it a name of text "
                       "with map(), or select() other fields",
                       stranger);
    else
        sqrl_error_set(
            err, SQRL_E_TYPE,
            "field \"%.120s\" was not there when the columns were fixed%s; declare "
            "its type, or drop() it",
            stranger, it->columns->from_schema ? "" : " by the first block");
    return sqrl_error_at_sample(err, SQRL_E_TYPE, it->source, place);
}

/* Samples without a single name: no column, but perhaps a key that can't be one. */
static int check_keys(struct sqrl_iterator *it, const struct sqrl_loaded *loaded,
                      uint32_t row, struct sqrl_error *err) {
    struct sqrl_wants *wants = sqrl_wants_new(err);
    struct sqrl_locator *locator = NULL;
    int code = SQRL_E_NO_MEMORY;
    if (wants) {
        sqrl_wants_set_stranger(wants, is_stranger, it);
        locator = sqrl_locator_new(wants, err);
    }
    if (locator) {
        struct sqrl_place place = sqrl_row_place(loaded, row);
        uint32_t found;
        const char *stranger;
        sqrl_locate(locator, loaded->nodes, loaded->block->begin[row], loaded->bytes,
                    &found, &stranger);
        code = stranger ? explain_stranger(it, stranger, true, &place, err) : SQRL_OK;
    }
    sqrl_locator_free(locator);
    sqrl_wants_free(wants);
    return code;
}

/* The columns come from the rows of the first block that pass the filters. */
static int fix_from_block(struct sqrl_iterator *it, struct sqrl_loaded *loaded,
                          struct sqrl_error *err) {
    struct sqrl_schema schema = {0};
    struct sqrl_block kept = *loaded->block;
    uint32_t *found = NULL, *row = NULL;
    struct sqrl_locator *locator = NULL;
    int code = SQRL_E_NO_MEMORY;
    kept.begin = sqrl_malloc((size_t)loaded->count * sizeof *kept.begin, "columns", err);
    row = sqrl_malloc((size_t)loaded->count * sizeof *row, "columns", err);
    found = sqrl_malloc((sqrl_wants_count(it->filter_wants) + 1) * sizeof *found,
                        "columns", err);
    if (kept.begin && row && found)
        locator = sqrl_locator_new(it->filter_wants, err);
    if (!locator)
        goto done;
    kept.count = 0;
    struct view v = {it, loaded->nodes, loaded->bytes, found};
    for (uint32_t r = 0; r < loaded->count; r++) {
        sqrl_locate(locator, v.nodes, loaded->block->begin[r], v.bytes, found, NULL);
        if (run_filters(&v, NULL) != it->filters)
            continue;
        row[kept.count] = r;
        kept.begin[kept.count++] = loaded->block->begin[r];
    }
    code = observe(it, &schema, &kept, err);
    if (code == SQRL_E_LIMIT && kept.count < loaded->count) { /* its number is wrong */
        sqrl_schema_reset(&schema);
        kept.first = SQRL_UNKNOWN;
        code = observe(it, &schema, &kept, err);
    }
    bool counted = loaded->first != SQRL_UNKNOWN;
    for (uint32_t i = 0; i < schema.count && !code && counted; i++) { /* of those kept */
        struct sqrl_place *first = &schema.fields[i].first;
        uint64_t k = first->sample - loaded->first;
        if (first->sample >= loaded->first && k < kept.count)
            first->sample = loaded->first + row[k];
    }
    if (!code && kept.count && kept.count < loaded->count)
        code = widen(it, &schema, loaded->block, err);
    if (!code && kept.count && !schema.count)
        code = check_keys(it, loaded, row[0], err);
    const struct sqrl_seen_block seen = {loaded->block, kept.begin, kept.count};
    if (!code && schema.samples)
        code = sqrl_load_fix_columns(it, &schema, &seen, err);
done:
    sqrl_schema_reset(&schema);
    sqrl_locator_free(locator);
    free(found);
    free(row);
    free(kept.begin);
    return code;
}

static int filters_only(struct sqrl_iterator *it, struct sqrl_loaded *loaded,
                        struct sqrl_error *err) {
    uint32_t *found = sqrl_malloc(
        (sqrl_wants_count(it->filter_wants) + 1) * sizeof *found, "fields", err);
    struct sqrl_locator *locator = found ? sqrl_locator_new(it->filter_wants, err) : NULL;
    if (locator)
        locate_rows(it, locator, found, loaded, false);
    sqrl_locator_free(locator);
    free(found);
    return locator ? SQRL_OK : SQRL_E_NO_MEMORY;
}

/* Everything between parsing and ASSIGN. */
static int prepare(struct sqrl_iterator *it, struct sqrl_worker *worker,
                   struct sqrl_loaded *loaded, struct sqrl_error *err) {
    if ((!it->batch && !it->filters && !it->check_names) || !loaded->count)
        return SQRL_OK;
    int code = SQRL_OK;
    if (it->batch && !it->columns)
        code = fix_from_block(it, loaded, err);
    bool cells = it->columns != NULL;
    if (code)
        return code;
    bool measure = cells && it->measure_want != SQRL_NO_NODE;
    code = sqrl_loaded_reserve(loaded, it->columns, true, measure, it->context, err);
    if (code)
        return code;
    if (it->batch && !cells) /* no row of this block passes the filters */
        return filters_only(it, loaded, err);
    code = worker_locator(it, worker, err);
    if (!code)
        locate_rows(it, worker->locator, worker->found, loaded, cells);
    return code;
}

/* --- telling why a row fails --- */

static int explain_columns(struct sqrl_iterator *it, const struct view *v, uint32_t node,
                           const struct sqrl_place *place, struct sqrl_error *err) {
    if (v->nodes[node].type != SQRL_MAP) {
        sqrl_error_set(
            err, SQRL_E_TYPE,
            "the sample is no map of named fields, so it can't be a row of a batch");
        return sqrl_error_at_sample(err, SQRL_E_TYPE, it->source, place);
    }
    for (uint32_t c = 0; c < it->columns->count; c++) {
        const struct sqrl_column_plan *column = &it->columns->column[c];
        uint32_t length;
        if (!sqrl_column_fits(column, v->nodes, v->found[column->want], &length))
            return sqrl_column_clash(column, it->source, v->nodes, v->found[column->want],
                                     place, err);
    }
    sqrl_error_set(
        err, SQRL_E_TYPE,
        "length_field \"%.120s\" has no length in this sample: it must be an array, "
        "a list, a string or an integer of at least 0",
        it->batch->batching.length_field);
    return sqrl_error_at_sample(err, SQRL_E_TYPE, it->source, place);
}

int sqrl_load_explain(struct sqrl_iterator *it, const struct sqrl_loaded *loaded,
                      uint32_t row, struct sqrl_error *err) {
    struct sqrl_place place = sqrl_row_place(loaded, row);
    pthread_mutex_lock(&it->lock);
    const struct sqrl_wants *wants = it->wants ? it->wants : it->filter_wants;
    pthread_mutex_unlock(&it->lock);
    uint32_t *found =
        sqrl_malloc((sqrl_wants_count(wants) + 1) * sizeof *found, "error", err);
    struct sqrl_locator *locator = found ? sqrl_locator_new(wants, err) : NULL;
    int code = SQRL_E_NO_MEMORY;
    if (locator) {
        struct view v = {it, loaded->nodes, loaded->bytes, found};
        uint32_t node = loaded->block->begin[row];
        const char *stranger;
        sqrl_locate(locator, v.nodes, node, v.bytes, found, &stranger);
        uint8_t passed = run_filters(&v, err);
        if (passed & SQRL_ROW_FAILS)
            code = sqrl_error_at_sample(err, SQRL_E_TYPE, it->source, &place);
        else if (it->check_names &&
                 (code = sqrl_projection_check(it->plan->names, loaded->block, row, err)))
            code = sqrl_error_at_sample(err, code, it->source, &place);
        else if (it->check_names) /* there was no memory to check it with */
            code = sqrl_error_set(err, SQRL_E_NO_MEMORY, "no memory to check names");
        else if (stranger)
            code = explain_stranger(it, stranger, sqrl_locator_nameless(locator), &place,
                                    err);
        else
            code = explain_columns(it, &v, node, &place, err);
    }
    sqrl_locator_free(locator);
    free(found);
    return code;
}

/* --- the jobs --- */

/* The error behind the samples of a block that could be loaded in part. */
static void add_fault(struct sqrl_loaded *loaded, int code,
                      const struct sqrl_error *error) {
    loaded->code = code;
    loaded->error = malloc(sizeof *loaded->error);
    if (loaded->error)
        *loaded->error = *error;
}

static struct sqrl_loaded *failed_block(int code, const struct sqrl_error *error) {
    struct sqrl_loaded *loaded = sqrl_loaded_new(NULL);
    if (loaded)
        add_fault(loaded, code, error);
    return loaded;
}

/* Puts an error where a strand's next block would be. Lock held. */
static void fail_strand(struct sqrl_iterator *it, struct sqrl_strand *s, uint64_t block,
                        int code, const struct sqrl_error *error) {
    struct sqrl_loaded *loaded = failed_block(code, error);
    s->done[block % STRAND_ROOM] = loaded;
    if (!loaded) { /* not even that: the whole stream ends here */
        it->final_code = SQRL_E_NO_MEMORY;
        sqrl_error_set(&it->final, SQRL_E_NO_MEMORY, "no memory to run the stream");
        sqrl_executor_stop(it);
    }
}

/* Blocks at the front that take no part: their samples are skipped anyway. */
static uint64_t skip_blocks(struct sqrl_shard_reader *reader, uint64_t blocks,
                            uint64_t skip, uint64_t *samples) {
    uint64_t block = 0;
    *samples = 0;
    for (; block < blocks; block++) {
        struct sqrl_block_info info;
        sqrl_shard_reader_block_info(reader, block, &info);
        if (info.samples == SQRL_NO_NODE || info.samples > skip - *samples)
            break;
        *samples += info.samples;
    }
    return block;
}

/* The last of the strand's `blocks` that begins at or before this row of the chunk; 0
 * when they don't tell where they begin. */
static uint64_t block_of_row(struct sqrl_shard_reader *reader, uint64_t first_block,
                             uint64_t blocks, uint64_t row) {
    struct sqrl_block_info info;
    sqrl_shard_reader_block_info(reader, first_block, &info);
    uint64_t base = info.first, low = 0, high = blocks;
    while (base != SQRL_UNKNOWN && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        sqrl_shard_reader_block_info(reader, first_block + middle, &info);
        if (info.first == SQRL_UNKNOWN)
            return 0;
        if (info.first - base <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where a chunk counts in part only: *blocks are cut behind that part, and the result is
 * how many in front of it need not be read, with *rows samples. */
uint64_t sqrl_chunk_cut(struct sqrl_shard_reader *reader, const struct sqrl_chunk *chunk,
                        uint64_t *blocks, uint64_t *rows) {
    struct sqrl_block_info first, info;
    *rows = 0;
    if (!*blocks || (!chunk->first_row && chunk->rows == SQRL_UNKNOWN))
        return 0;
    sqrl_shard_reader_block_info(reader, chunk->first_block, &first);
    if (first.first == SQRL_UNKNOWN)
        return 0;
    if (chunk->rows != SQRL_UNKNOWN)
        *blocks = 1 + block_of_row(reader, chunk->first_block, *blocks,
                                   chunk->first_row + SQRL_MAX(chunk->rows, 1u) - 1);
    uint64_t block = block_of_row(reader, chunk->first_block, *blocks, chunk->first_row);
    sqrl_shard_reader_block_info(reader, chunk->first_block + block, &info);
    if (info.first == SQRL_UNKNOWN)
        return 0;
    *rows = info.first - first.first;
    return block;
}

static int open_shard(struct sqrl_iterator *it, const struct sqrl_job *job,
                      struct sqrl_shard_reader **out, struct sqrl_error *err) {
    return it->remote ? sqrl_fetch_open(it, job, out, err)
                      : sqrl_shard_open(it->source, job->strand->chunk.shard, out, err);
}

void sqrl_load_open(struct sqrl_iterator *it, const struct sqrl_job *job) {
    struct sqrl_strand *s = job->strand;
    struct sqrl_shard_reader *reader = NULL;
    struct sqrl_error error;
    sqrl_error_clear(&error);
    struct sqrl_loaded *bad = NULL;
    int code = open_shard(it, job, &reader, &error);
    for (uint64_t n = sqrl_on_error_retries(it); n && sqrl_on_error_covers(code); n--)
        code = open_shard(it, job, &reader, &error);
    if (code)
        bad = sqrl_on_error_chunk(it, &s->chunk, code, &error);
    uint64_t skipped_blocks = 0, skipped = 0, passed = 0, total = 0;
    bool indexed = !code && sqrl_shard_reader_indexed(reader);
    if (indexed) {
        total = s->chunk.blocks;
        if (total == SQRL_UNKNOWN)
            total = sqrl_shard_reader_info(reader)->blocks - s->chunk.first_block;
        if (s->skip)
            skipped_blocks = skip_blocks(reader, total, s->skip, &skipped);
        else
            skipped_blocks = sqrl_chunk_cut(reader, &s->chunk, &total, &passed);
    }
    if (!code && it->remote)
        code = sqrl_fetch_plan(it, s, reader, s->chunk.first_block + skipped_blocks,
                               s->chunk.first_block + total, &error);
    pthread_mutex_lock(&it->lock);
    s->fetching -= it->remote;
    if (code) {
        s->state = STRAND_ENDED;
        s->total = s->claimed = 1;
        s->rows = SQRL_UNKNOWN;
        s->passed = bad ? s->chunk.first_row : 0;
        if (bad)
            s->done[0] = bad;
        else
            fail_strand(it, s, 0, code, &error);
    } else {
        s->state = STRAND_OPEN;
        s->indexed = indexed;
        s->first_block = s->chunk.first_block;
        s->total = total;
        s->claimed = s->taken = skipped_blocks;
        s->rows = s->first_block || skipped_blocks ? SQRL_UNKNOWN : 0;
        s->passed = skipped + passed;
        s->reader = reader;
        it->skip_done += skipped;
        if (s->claimed == s->total && indexed) {
            s->reader = NULL; /* nothing to load */
        } else {
            reader = NULL;
        }
    }
    struct sqrl_ahead *ahead = sqrl_fetch_end(it, s);
    pthread_mutex_unlock(&it->lock);
    sqrl_ahead_free(ahead);
    sqrl_shard_reader_unref(reader);
}

/* What the data take up, whatever is done with them: samples and batches of one seed come
 * in the same order. */
static uint64_t memory_of(const struct sqrl_loaded *loaded) {
    const struct sqrl_block *block = loaded->block;
    return block->bytes->size + (uint64_t)block->tape.count * sizeof(struct sqrl_node) +
           (uint64_t)block->count * sizeof(uint32_t);
}

/* Wraps a block for what follows; NULL with an error. Takes the block over. */
static struct sqrl_loaded *wrap(struct sqrl_iterator *it, struct sqrl_worker *worker,
                                struct sqrl_block *block, int *code,
                                struct sqrl_error *err) {
    struct sqrl_loaded *loaded = sqrl_loaded_new(err);
    if (!loaded) {
        sqrl_block_unref(block);
        *code = SQRL_E_NO_MEMORY;
        return NULL;
    }
    loaded->block = block;
    loaded->nodes = block->tape.nodes;
    loaded->bytes = block->bytes ? block->bytes->data : NULL;
    loaded->count = block->count;
    loaded->shard = block->shard;
    loaded->first = block->first;
    *code = prepare(it, worker, loaded, err);
    if (!*code) {
        loaded->bytes_held = block->bytes ? memory_of(loaded) : 0;
        return loaded;
    }
    sqrl_loaded_unref(loaded);
    return NULL;
}

/* The estimate gives way to what it really is. */
static void settle(struct sqrl_iterator *it, struct sqrl_loaded *loaded,
                   uint64_t estimate) {
    uint64_t actual = 0;
    if (loaded)
        actual = loaded->bytes_held + (loaded->memory ? loaded->memory->size : 0);
    if (actual > estimate)
        (void)sqrl_account_charge(it->account, actual - estimate, true);
    else if (actual < estimate)
        sqrl_account_uncharge(it->account, estimate - actual);
    if (loaded)
        sqrl_loaded_charge(loaded, it->account, actual);
}

/* Cuts the next block off and lets other tasks cut the ones behind it while it is parsed
 * here: *passed_on. */
static int cut_and_parse(struct sqrl_iterator *it, const struct sqrl_job *job,
                         struct sqrl_block **block, bool *passed_on,
                         struct sqrl_error *err) {
    struct sqrl_strand *s = job->strand;
    int code = sqrl_shard_reader_cut(s->reader, &it->cancel, block, err);
    if (!*block)
        return code;
    pthread_mutex_lock(&it->lock);
    if (!code) { /* else nothing can be cut behind it */
        *passed_on = true;
        s->busy = false;
        sqrl_executor_kick(it);
    }
    if (s->taken == job->block) /* all before it are counted: errors can name samples */
        (*block)->first = s->rows;
    pthread_mutex_unlock(&it->lock);
    struct sqrl_error fault;
    sqrl_error_clear(&fault);
    int parsed = sqrl_shard_reader_parse(s->reader, *block, &fault);
    if (parsed)
        *err = fault;
    if ((parsed || code) && !(*block)->count) {
        sqrl_block_unref(*block);
        *block = NULL;
    }
    return parsed ? parsed : code;
}

static int read_block(struct sqrl_iterator *it, const struct sqrl_job *job,
                      struct sqrl_block **block, bool *passed_on,
                      struct sqrl_error *err) {
    struct sqrl_strand *s = job->strand;
    if (s->indexed)
        return sqrl_shard_reader_load(s->reader, s->first_block + job->block, &it->cancel,
                                      block, err);
    if (sqrl_shard_reader_cuts(s->reader))
        return cut_and_parse(it, job, block, passed_on, err);
    return sqrl_shard_reader_next(s->reader, &it->cancel, block, err);
}

/* Damage may have come with the transfer: what is remote is read once more. */
static uint64_t retries(const struct sqrl_iterator *it, const struct sqrl_strand *s,
                        int code) {
    bool damage = code == SQRL_E_CORRUPT || code == SQRL_E_TRUNCATED;
    return sqrl_on_error_retries(it) + (damage && s->ahead);
}

void sqrl_load_block(struct sqrl_iterator *it, struct sqrl_worker *worker,
                     const struct sqrl_job *job) {
    struct sqrl_strand *s = job->strand;
    struct sqrl_block *block = NULL;
    struct sqrl_loaded *loaded = NULL;
    struct sqrl_shard_reader *finished = NULL;
    struct sqrl_ahead *ahead = NULL;
    struct sqrl_error error;
    sqrl_error_clear(&error);
    bool passed_on = false;
    int code = read_block(it, job, &block, &passed_on, &error);
    for (uint64_t n = retries(it, s, code);
         n && code && !block && s->indexed && sqrl_on_error_covers(code); n--) {
        sqrl_fetch_forget(s, job->block);
        code = read_block(it, job, &block, &passed_on, &error);
    }
    bool end = !code && !block, unread = !block && s->indexed;
    if (block) {
        struct sqrl_error fault = error;
        int failed = code;
        loaded = wrap(it, worker, block, &code, &error);
        if (loaded && failed)
            add_fault(loaded, code = failed, &fault);
    }
    settle(it, loaded, job->estimate);
    if (code && unread) {
        struct sqrl_block_info info;
        uint64_t number = s->first_block + job->block;
        sqrl_shard_reader_block_info(s->reader, number, &info);
        loaded = sqrl_on_error_block(it, s->chunk.shard, number, &info, code, &error);
        code = loaded ? SQRL_OK : code;
    }
    if (loaded) {
        sqrl_count(it->context, SQRL_COUNT_BLOCKS, 1);
        sqrl_stat_add(&it->stat[STAT_LOAD].items, loaded->count);
        sqrl_stat_add(&it->stat[STAT_LOAD].bytes, loaded->bytes_held);
    }
    pthread_mutex_lock(&it->lock);
    it->loading--;
    s->loading--;
    sqrl_fetch_used(it, s, job->block);
    s->busy = s->busy && passed_on; /* another task's by now */
    if (loaded && loaded->bytes_held) {
        it->block_estimate = loaded->bytes_held;
        uint64_t raw = loaded->block->bytes->size;
        it->ratio_percent =
            (uint32_t)SQRL_MIN(100 * loaded->bytes_held / SQRL_MAX(raw, 1u) + 1, 3200u);
    }
    if (end) {
        s->claimed--;
        s->total = s->claimed;
        s->state = STRAND_ENDED;
    } else if (code) {
        if (!s->indexed) {
            s->total = s->claimed;
            s->state = STRAND_ENDED;
        }
        if (!loaded)
            fail_strand(it, s, job->block, code, &error);
    }
    if (loaded && !it->finished && !it->stopped) {
        s->done[job->block % STRAND_ROOM] = loaded;
        loaded = NULL;
    }
    if (!s->loading &&
        (s->state == STRAND_ENDED || (s->indexed && s->claimed == s->total))) {
        finished = s->reader;
        s->reader = NULL;
        ahead = sqrl_fetch_end(it, s);
    }
    pthread_mutex_unlock(&it->lock);
    sqrl_ahead_free(ahead);
    sqrl_loaded_unref(loaded); /* too late: nobody takes it any more */
    sqrl_shard_reader_unref(finished);
}
