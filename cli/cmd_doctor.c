/* doctor: what was built in, what the machine has, what to change. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* --- doctor --- */

/* The first line of a small file, without its newline; "unknown" when it can't be read.
 */
static const char *first_line(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "r");
    if (!file || !fgets(out, (int)size, file))
        snprintf(out, size, "unknown");
    if (file)
        fclose(file);
    out[strcspn(out, "\n")] = '\0';
    return out;
}

/* One fact: printed as a line, or added to the report. */
static void tell(struct sqrl_bytes *report, uint64_t *facts, const char *name,
                 const char *value) {
    if (report)
        cli_put_text(report, name, value);
    else
        printf("%-18s %s\n", name, value);
    ++*facts;
}

static void tell_built_in(struct cli_args *args, struct sqrl_bytes *report,
                          uint64_t *facts) {
    char text[512];
    size_t used = 0;
    tell(report, facts, "version", sqrl_version());
    for (size_t i = 0; sqrl_codec_at(i); i++) {
        const struct sqrl_codec_ops *codec = sqrl_codec_at(i);
        snprintf(text, sizeof text, "codec %s", codec->name);
        tell(report, facts, text, sqrl_codec_library(codec));
    }
    text[0] = '\0';
    for (size_t i = 0; sqrl_driver_at(args->context, i) && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "",
                                 sqrl_driver_at(args->context, i)->name);
    tell(report, facts, "drivers", text);
    for (size_t i = used = 0; sqrl_format_at(i) && used < sizeof text; i++)
        if (sqrl_format_at(i)->flags & SQRL_FORMAT_WRITES)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     used ? ", " : "", sqrl_format_at(i)->name);
    tell(report, facts, "formats written", text);
}

static void tell_limit(struct sqrl_bytes *report, uint64_t *facts, const char *name,
                       int resource) {
    struct rlimit limit;
    char text[64];
    if (getrlimit(resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(text, sizeof text, "unlimited");
    else
        snprintf(text, sizeof text, "%llu", (unsigned long long)limit.rlim_cur);
    tell(report, facts, name, text);
}

static void tell_machine(struct cli_args *args, struct sqrl_bytes *report,
                         uint64_t *facts) {
    char text[256], size[32];
    tell(report, facts, "instructions", sqrl_cpu_name());
    snprintf(text, sizeof text, "%u (of %ld online)",
             sqrl_context_cpu_threads(args->context), sysconf(_SC_NPROCESSORS_ONLN));
    tell(report, facts, "threads", text);
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    tell(report, facts, "memory", cli_size_text(memory, size));
    tell(report, facts, "huge pages",
         first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text));
    tell(report, facts, "cgroup cpu.max",
         first_line("/sys/fs/cgroup/cpu.max", text, sizeof text));
    tell_limit(report, facts, "open files", RLIMIT_NOFILE);
    tell_limit(report, facts, "address space", RLIMIT_AS);
    tell_limit(report, facts, "file size", RLIMIT_FSIZE);
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(text, sizeof text, "%s, %s", folder,
             access(folder, W_OK) == 0 ? "writable" : "NOT writable");
    tell(report, facts, "temporary files", text);
    char clash[1024];
    if (cli_python_names_clash(clash, sizeof clash))
        tell(report, facts, "python name clash", clash);
}

/* What is wrong and what to do about it, if anything is. */
static int advise(const struct cli_args *args) {
    char text[256];
    int advice = 0;
    struct rlimit files;
    first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    if (strstr(text, "[never]")) {
        advice++;
        if (!args->json)
            printf("advice: huge pages are off; `echo madvise > "
                   "/sys/kernel/mm/transparent_hugepage/enabled` makes large buffers "
                   "cheaper\n");
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 1024) {
        advice++;
        if (!args->json)
            printf(
                "advice: only %llu open files are allowed; `ulimit -n 4096` raises it\n",
                (unsigned long long)files.rlim_cur);
    }
    char folder[1024];
    if (cli_python_names_clash(folder, sizeof folder)) {
        advice++;
        if (!args->json)
            printf("advice: squirrel-c and squirrel-core both own the Python name "
                   "\"squirrel\" in %s; uninstall both, then install squirrel-c (and "
                   "squirrel-datasets-core with --no-deps)\n",
                   folder);
    }
    return advice;
}

static int run_doctor(struct cli_args *args) {
    struct sqrl_bytes facts = {0}, report = {0};
    struct sqrl_bytes *into = args->json ? &facts : NULL;
    uint64_t count = 0;
    tell_built_in(args, into, &count);
    tell_machine(args, into, &count);
    if (args->json) {
        cli_put_map(&report, count);
        if (sqrl_bytes_append(&report, facts.data, facts.size, NULL) == SQRL_OK)
            cli_print_json(&report, stdout);
    }
    if (!advise(args) && !args->json)
        printf("all is well\n");
    sqrl_bytes_reset(&facts);
    sqrl_bytes_reset(&report);
    return EXIT_DONE;
}

static const struct cli_option no_options[] = {{0}};

const struct cli_command cli_doctor = {
    "doctor",   "",        "what was built in, what this machine has, and what to change",
    no_options, 0,         0,
    0,          run_doctor};
