#!/usr/bin/env python3
"""Writes src/value/json_powers.c: the powers of ten as 128-bit significands.

Entry q holds 10^q = T * 2^e with 2^127 <= T < 2^128. T is cut off where it does not fit
(q < -27 and q > 55), exact for 0 <= q <= 55, and rounded up for -27 <= q < 0, as Lemire's
"Number Parsing at a Gigabyte per Second" (2021), section 5, needs it. The range covers
reading (-342 .. 308) and shortest printing (-292 .. 324) of doubles.

    tools/gen_json_powers.py > src/value/json_powers.c
"""

FIRST, LAST = -342, 324


def significand(q: int) -> int:
    if q >= 0:
        power = 5**q
        shift = power.bit_length() - 128
        return power >> shift if shift > 0 else power << -shift
    power = 5**-q
    # 2^(127 + bits) / power lies in [2^127, 2^128).
    t = (1 << (127 + power.bit_length())) // power
    assert 1 << 127 <= t < 1 << 128
    return t + 1 if q >= -27 else t


print("/* json_powers.c - powers of ten for reading and printing doubles.")
print(" * Written by tools/gen_json_powers.py: change that, not this. */")
print('#include "value/json.h"')
print()
print("const uint64_t SQRL_JSON_POWERS[SQRL_JSON_POWER_MAX - SQRL_JSON_POWER_MIN + 1][2] = {")
for q in range(FIRST, LAST + 1):
    t = significand(q)
    print(f"    {{0x{t >> 64:016x}, 0x{t & (1 << 64) - 1:016x}}}, /* {q} */")
print("};")
