/* sqrl/sqrl.h - everything of libsqrl in one include.
 *
 * Where to look: error.h first, context.h, then source.h (open), stream.h (plans,
 * iterators), batch.h (columns), pack.h (write), value.h (what is in a sample), catalog.h
 * (names).
 */
#ifndef SQRL_H
#define SQRL_H

#include "arrow.h"
#include "batch.h"
#include "block.h"
#include "buffer.h"
#include "catalog.h"
#include "codec.h"
#include "context.h"
#include "dlpack.h"
#include "error.h"
#include "format.h"
#include "cache.h"
#include "fs.h"
#include "mix.h"
#include "mixture.h"
#include "option.h"
#include "pack.h"
#include "quality.h"
#include "schema.h"
#include "source.h"
#include "stream.h"
#include "value.h"

#endif
