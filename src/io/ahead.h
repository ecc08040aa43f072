/* ahead.h - a stretch of a file, read in pieces before it is asked for.
 *
 * While it exists, reads of the file are answered from its pieces: one that is held is
 * copied, one that is under way is waited for, one that nobody has begun is read as a
 * whole by whoever needs it, one that failed gives its error. What lies outside, or was
 * dropped, is read as ever. So parsers know nothing of it, and are right without it.
 *
 * Threads: all calls from any thread; a piece is read once, by one of them. After a fork
 * the child's reads go past what its parent had begun.
 */
#ifndef SQRL_IO_AHEAD_H
#define SQRL_IO_AHEAD_H

#include "io/io.h"

/* Pieces are of equal size, at most this much. */
#define SQRL_PIECE_BYTES ((size_t)4 << 20)

struct sqrl_ahead;

/* Of [begin, end) of the file; holds the file until sqrl_ahead_free. Reads nothing. */
SQRL_CHECK int sqrl_ahead_new(struct sqrl_file *file, uint64_t begin, uint64_t end,
                              struct sqrl_ahead **out, struct sqrl_error *err);
/* From now on the file is read as ever. NULL is allowed. */
void sqrl_ahead_free(struct sqrl_ahead *ahead);

/* How many pieces [begin, end) has; they lie one behind the other. */
uint64_t sqrl_piece_count(uint64_t begin, uint64_t end);
/* Where piece i of them begins; of the count: the end. */
uint64_t sqrl_piece_begin(uint64_t begin, uint64_t end, uint64_t i);

uint64_t sqrl_ahead_pieces(const struct sqrl_ahead *ahead);
uint64_t sqrl_ahead_begin(const struct sqrl_ahead *ahead, uint64_t piece);
/* The piece that holds the offset: the first or last where it lies outside. */
uint64_t sqrl_ahead_find(const struct sqrl_ahead *ahead, uint64_t offset);
/* Reads a piece unless that was done or begun, and waits. An error stays in its place:
 * those who read there get it. */
void sqrl_ahead_read(struct sqrl_ahead *ahead, uint64_t piece,
                     const struct sqrl_cancel *cancel);
/* True when reads of this range will not wait for the network: it is there, or failed. */
bool sqrl_ahead_settled(struct sqrl_ahead *ahead, uint64_t offset, uint64_t size);
/* Lets go of a piece's bytes, or of its error: it is read as ever from now on. */
void sqrl_ahead_drop(struct sqrl_ahead *ahead, uint64_t piece);
/* The end of the last range that was answered from it; its begin when none was. */
uint64_t sqrl_ahead_reached(struct sqrl_ahead *ahead);

/* For fs.c: answers what it can; the numbers of the ranges that it can't are in
 * rest[0, *left), which has room for `count`. */
SQRL_CHECK int sqrl_ahead_serve(struct sqrl_file *file, struct sqrl_range *ranges,
                                size_t count, size_t *rest, size_t *left,
                                const struct sqrl_cancel *cancel, struct sqrl_error *err);

#endif
