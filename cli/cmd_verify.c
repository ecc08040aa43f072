/* verify: reads every block of every shard and names the damaged ones. */
#include "cli.h"

#include <string.h>

struct verdict {
    uint64_t samples, bytes, blocks, bad_shards;
    struct sqrl_bytes faults; /* MessagePack values, one after another */
    uint64_t fault_count;
};

static void note_fault(const struct cli_args *args, struct verdict *verdict,
                       const struct sqrl_error *err) {
    char text[1200];
    sqrl_error_text(err, text, sizeof text);
    verdict->fault_count++;
    if (args->json)
        cli_put_text(&verdict->faults, NULL, text);
    else
        fprintf(stderr, "damaged: %s\n", text);
}

static void take_block(struct verdict *verdict, struct sqrl_block *block,
                       uint64_t payload) {
    verdict->samples += block->count;
    verdict->bytes += payload;
    verdict->blocks++;
    sqrl_block_unref(block);
}

/* An indexed shard's blocks are checked each for itself, so that one bad block hides
 * none; then its indexes. */
static uint64_t verify_blocks(const struct cli_args *args, struct verdict *verdict,
                              struct sqrl_shard_reader *reader) {
    uint64_t bad = 0, blocks = sqrl_shard_reader_info(reader)->blocks;
    for (uint64_t i = 0; i < blocks && !cli_interrupted(); i++) {
        struct sqrl_error err = {0};
        struct sqrl_block *block = NULL;
        if (sqrl_shard_reader_load(reader, i, NULL, &block, &err) == SQRL_OK) {
            struct sqrl_block_info info;
            sqrl_shard_reader_block_info(reader, i, &info);
            take_block(verdict, block, info.raw_bytes);
        } else {
            note_fault(args, verdict, &err);
            bad++;
        }
    }
    struct sqrl_error err = {0};
    if (!cli_interrupted() && sqrl_shard_reader_check(reader, NULL, &err) != SQRL_OK) {
        note_fault(args, verdict, &err);
        bad++;
    }
    return bad;
}

static uint64_t verify_stream(const struct cli_args *args, struct verdict *verdict,
                              struct sqrl_shard_reader *reader) {
    for (;;) {
        struct sqrl_error err = {0};
        struct sqrl_block *block = NULL;
        if (cli_interrupted())
            return 0;
        if (sqrl_shard_reader_next(reader, NULL, &block, &err) != SQRL_OK) {
            note_fault(args, verdict, &err);
            return 1;
        }
        if (!block)
            return 0;
        take_block(verdict, block, block->bytes->size - block->front);
    }
}

static void verify_shard(const struct cli_args *args, struct verdict *verdict,
                         struct sqrl_source *source, uint64_t shard) {
    struct sqrl_error err = {0};
    struct sqrl_shard_reader *reader = NULL;
    uint64_t bad = 1;
    if (sqrl_shard_open(source, shard, &reader, &err) != SQRL_OK)
        note_fault(args, verdict, &err);
    else if (sqrl_shard_reader_indexed(reader))
        bad = verify_blocks(args, verdict, reader);
    else
        bad = verify_stream(args, verdict, reader);
    verdict->bad_shards += bad != 0;
    sqrl_shard_reader_unref(reader);
}

static void print_verdict(const struct cli_args *args, struct verdict *verdict,
                          uint64_t shards) {
    char size[32], text[4][48];
    if (!args->json) {
        printf("%s: %s, %s, %s, %s; %s\n", verdict->bad_shards ? "damaged" : "good",
               cli_count_text(shards, "shard", text[0]),
               cli_count_text(verdict->blocks, "block", text[1]),
               cli_count_text(verdict->samples, "sample", text[2]),
               cli_size_text(verdict->bytes, size),
               cli_count_text(verdict->bad_shards, "damaged shard", text[3]));
        return;
    }
    struct sqrl_bytes report = {0};
    cli_put_map(&report, 6);
    cli_put_number(&report, "shards", shards);
    cli_put_number(&report, "blocks", verdict->blocks);
    cli_put_number(&report, "samples", verdict->samples);
    cli_put_number(&report, "bytes", verdict->bytes);
    cli_put_number(&report, "damaged_shards", verdict->bad_shards);
    cli_put_key(&report, "faults");
    cli_put_array(&report, verdict->fault_count);
    if (sqrl_bytes_append(&report, verdict->faults.data, verdict->faults.size, NULL) ==
        SQRL_OK)
        cli_print_json(&report, stdout);
    sqrl_bytes_reset(&report);
}

static int run_verify(struct cli_args *args) {
    struct sqrl_error err = {0};
    struct sqrl_source *source = NULL;
    struct verdict verdict = {0};
    struct cli_progress progress;
    int code = cli_open(args, args->word[0], &source, &err);
    if (code)
        return cli_fail(args, &err);
    uint64_t shards = sqrl_source_shards(source);
    cli_progress_start(&progress, args, "verify", sqrl_source_samples(source));
    for (uint64_t i = 0; i < shards && !cli_interrupted(); i++) {
        verify_shard(args, &verdict, source, i);
        cli_progress_show(&progress, verdict.samples, verdict.bytes);
    }
    cli_progress_end(&progress);
    if (!cli_interrupted())
        print_verdict(args, &verdict, shards);
    sqrl_bytes_reset(&verdict.faults);
    sqrl_source_unref(source);
    return verdict.bad_shards ? EXIT_FAILED : EXIT_DONE;
}

static const struct cli_option no_options[] = {{0}};

const struct cli_command cli_verify = {
    "verify",  "URL",     "read everything and name what is damaged", no_options, 1, 1,
    CLI_READS, run_verify};
