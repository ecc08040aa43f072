/* Feeds bytes to every codec's readers, as a stream in uneven steps and as a frame;
 * output is capped, so that a bomb costs nothing. What a stream gives must be what a
 * frame gives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 1 << 20, CALLS = 1 << 16 };

static void check(bool right) {
    if (!right)
        abort();
}

/* Returns the code; *got bytes came out. */
static int as_stream(const struct sqrl_codec_ops *codec, const uint8_t *data, size_t size,
                     size_t step, uint8_t *out, size_t *got) {
    struct sqrl_codec_io io = {0};
    struct sqrl_error err;
    size_t fed = 0;
    void *state = aligned_alloc(64, (codec->decoder_size + 63) / 64 * 64);
    check(state);
    memset(state, 0, codec->decoder_size);
    int rc = codec->decoder_open(state, &err);
    *got = 0;
    for (unsigned i = 0; rc == SQRL_OK && !io.out_end && i < CALLS; i++) {
        size_t give = SQRL_MIN(step, size - fed), room = SQRL_MIN(3 * step, CAP - *got);
        io.in = data + fed;
        io.in_size = give;
        io.in_end = fed + give == size;
        io.out = out + *got;
        io.out_size = room;
        rc = codec->decode(state, &io, &err);
        check(io.in_size <= give && io.out_size <= room);
        fed += give - io.in_size;
        *got += room - io.out_size;
        if (rc == SQRL_OK && !io.out_end && io.in_size == give && io.out_size == room)
            rc = SQRL_E_LIMIT; /* the cap is reached */
    }
    if (rc == SQRL_OK && !io.out_end)
        rc = SQRL_E_LIMIT;
    check(rc == SQRL_OK || rc == SQRL_E_LIMIT || strlen(err.message) > 0);
    codec->decoder_close(state);
    free(state);
    return rc;
}

static void try_codec(const struct sqrl_codec_ops *codec, const uint8_t *data,
                      size_t size, uint8_t *out, uint8_t *again) {
    struct sqrl_error err;
    size_t got, got_slow;
    int rc = as_stream(codec, data, size, (size_t)1 << 16, out, &got);
    int slow = as_stream(codec, data, size, 1 + size % 7, again, &got_slow);
    if (rc == SQRL_OK && slow == SQRL_OK)
        check(got == got_slow && memcmp(out, again, got) == 0);
    if (rc != SQRL_OK)
        got = size % 5000;
    /* Padding is accepted in files only, so a frame may be refused where a stream is not.
     */
    uint8_t *exact = again + CAP - got;
    if (codec->decompress(data, size, exact, got, &err) == SQRL_OK && rc == SQRL_OK)
        check(memcmp(out, exact, got) == 0);
}

/* Memory that ends at a page nobody may touch: the codecs' libraries are not
 * instrumented. */
struct guarded {
    uint8_t *data, *map;
    size_t map_size;
};

static struct guarded guarded_new(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
    struct guarded g = {.map_size = body + page};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    check(g.map != MAP_FAILED && mprotect(g.map + body, page, PROT_NONE) == 0);
    g.data = g.map + body - size;
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct guarded in = guarded_new(size), out = guarded_new(CAP),
                   again = guarded_new(CAP);
    if (size > 0)
        memcpy(in.data, data, size);
    for (size_t i = 0; sqrl_codec_at(i); i++)
        try_codec(sqrl_codec_at(i), in.data, size, out.data, again.data);
#if SQRL_HAVE_ISAL
    try_codec(&sqrl_codec_gzip_zlib, in.data, size, out.data, again.data);
#endif
    (void)sqrl_codec_by_magic(in.data, size);
    munmap(in.map, in.map_size);
    munmap(out.map, out.map_size);
    munmap(again.map, again.map_size);
    return 0;
}
