/* packing.c - what pack, convert and add-fields share: samples from inputs into a packer,
 * with a progress bar. */
#include "cli.h"

#include <string.h>

struct job {
    struct sqrl_packer *packer;
    struct cli_progress progress;
    uint64_t done, skip; /* samples that an earlier run has packed */
};

/* A sample as the projection shows it, encoded into the packer's own bytes. */
static int put_projected(struct sqrl_packer *packer,
                         const struct sqrl_projection *projection,
                         const struct sqrl_block *block, uint32_t index,
                         struct sqrl_error *err) {
    enum { MAX_FIELDS = 1024 };
    static struct sqrl_field_ref field[MAX_FIELDS];
    struct sqrl_bytes *out = sqrl_packer_bytes(packer);
    size_t count = sqrl_projection_apply(projection, block, index, field, MAX_FIELDS);
    if (count > MAX_FIELDS)
        return sqrl_error_set(err, SQRL_E_LIMIT, "a sample has more than %d fields",
                              MAX_FIELDS);
    int code = sqrl_msgpack_put_map(out, count, err);
    for (size_t i = 0; i < count && code == SQRL_OK; i++) {
        code = sqrl_msgpack_put_string(out, field[i].name, field[i].name_size, err);
        if (code == SQRL_OK)
            code = sqrl_msgpack_encode(out, block->tape.nodes, field[i].node,
                                       block->bytes->data, err);
    }
    return code ? code : sqrl_packer_accept(packer, err);
}

static int put_sample(void *arg, const struct sqrl_projection *projection,
                      const struct sqrl_block *block, uint32_t index,
                      struct sqrl_error *err) {
    struct job *job = arg;
    if (!block)
        return SQRL_OK;
    int code = SQRL_OK;
    if (job->done >= job->skip)
        code = projection ? put_projected(job->packer, projection, block, index, err)
                          : sqrl_packer_append_sample(job->packer, block, index, err);
    if ((++job->done & 1023) == 0) {
        struct sqrl_pack_report report;
        sqrl_packer_progress(job->packer, &report);
        cli_progress_show(&job->progress, job->done, report.raw_bytes);
        if (cli_interrupted())
            return cli_cancelled(err);
    }
    return code;
}

int cli_pack_inputs(const struct cli_args *args, struct cli_input *inputs, size_t count,
                    struct sqrl_packer *packer, uint64_t expected,
                    struct sqrl_pack_report *report, struct sqrl_error *err) {
    struct job job = {.packer = packer, .skip = sqrl_packer_resumed(packer)};
    int code = SQRL_OK;
    cli_progress_start(&job.progress, args, args->command->name, expected);
    for (size_t i = 0; i < count && code == SQRL_OK; i++)
        code = cli_input_each(args, &inputs[i], put_sample, &job, err);
    if (code == SQRL_OK && cli_interrupted())
        code = cli_cancelled(err);
    if (code == SQRL_OK && job.done < job.skip)
        code = sqrl_error_set(err, SQRL_E_STATE,
                              "the sources have %llu samples now, but %llu were packed "
                              "already: they have changed; pack them anew with "
                              "--overwrite",
                              (unsigned long long)job.done, (unsigned long long)job.skip);
    if (code)
        sqrl_packer_abandon(packer);
    else
        code = sqrl_packer_finish(packer, report, err);
    if (code == SQRL_OK)
        cli_committed();
    cli_progress_end(&job.progress);
    return code;
}

static bool declares(const struct sqrl_option *options, const char *name) {
    for (; options && options->name; options++)
        if (strcmp(options->name, name) == 0)
            return true;
    return false;
}

bool cli_is_of_files(const struct cli_args *args, const char *setting) {
    for (size_t i = 0; i < args->words; i++) {
        const struct sqrl_fs_ops *fs = sqrl_fs_ops_for_url(args->context, args->word[i]);
        if (fs && declares(fs->options, setting))
            return true;
    }
    return false;
}

void cli_split_settings(struct cli_args *args, const char *destination,
                        struct sqrl_setting writing[MAX_OPTIONS], size_t *count) {
    const struct sqrl_fs_ops *fs = sqrl_fs_ops_for_url(args->context, destination);
    size_t kept = 0;
    *count = 0;
    for (size_t i = 0; i < args->setting_count; i++) {
        bool writes = false;
        for (size_t k = 0; sqrl_format_at(k); k++)
            writes = writes ||
                     declares(sqrl_format_at(k)->write_options, args->settings[i].name);
        bool files = fs && declares(fs->options, args->settings[i].name);
        if (writes || files)
            writing[(*count)++] = args->settings[i];
        if (!writes)
            args->settings[kept++] = args->settings[i];
    }
    args->setting_count = kept;
}
