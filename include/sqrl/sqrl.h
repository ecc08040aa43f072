/* sqrl/sqrl.h - everything of libsqrl in one include. */
#ifndef SQRL_H
#define SQRL_H

#include "buffer.h"
#include "codec.h"
#include "context.h"
#include "error.h"
#include "fs.h"
#include "option.h"
#include "value.h"

#endif
