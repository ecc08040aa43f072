/* table.c - open addressing, linear probing, at most three quarters full. */
#include <stdlib.h>

#include "catalog/table.h"

enum { FIRST_CAPACITY = 16 };

void sqrl_table_reset(struct sqrl_table *table) {
    free(table->slots);
    *table = (struct sqrl_table){0};
}

static uint32_t fold(uint64_t hash) {
    return (uint32_t)(hash ^ hash >> 32);
}

static void put(struct sqrl_table_slot *slots, uint32_t capacity,
                struct sqrl_table_slot entry) {
    uint32_t at = entry.hash & (capacity - 1);
    while (slots[at].index != SQRL_TABLE_NONE)
        at = (at + 1) & (capacity - 1);
    slots[at] = entry;
}

int sqrl_table_reserve(struct sqrl_table *table, uint32_t more, struct sqrl_error *err) {
    uint64_t capacity = table->capacity ? table->capacity : FIRST_CAPACITY;
    while ((uint64_t)table->count + more > capacity / 4 * 3)
        capacity *= 2;
    if (capacity == table->capacity)
        return SQRL_OK;
    if (capacity > UINT32_MAX / 2)
        return sqrl_error_set(err, SQRL_E_LIMIT, "more than %u entries in a table",
                              table->count);
    struct sqrl_table_slot *slots = sqrl_malloc(capacity * sizeof *slots, "a table", err);
    if (!slots)
        return SQRL_E_NO_MEMORY;
    memset(slots, 0xff, capacity * sizeof *slots);
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->slots[i].index != SQRL_TABLE_NONE)
            put(slots, (uint32_t)capacity, table->slots[i]);
    free(table->slots);
    table->slots = slots;
    table->capacity = (uint32_t)capacity;
    return SQRL_OK;
}

void sqrl_table_add(struct sqrl_table *table, uint64_t hash, uint32_t index) {
    put(table->slots, table->capacity, (struct sqrl_table_slot){fold(hash), index});
    table->count++;
}

uint32_t sqrl_table_find(const struct sqrl_table *table, uint64_t hash,
                         sqrl_table_same same, const void *arg) {
    uint32_t folded = fold(hash), mask = table->capacity - 1;
    if (!table->capacity)
        return SQRL_TABLE_NONE;
    for (uint32_t at = folded & mask;; at = (at + 1) & mask) {
        const struct sqrl_table_slot *slot = &table->slots[at];
        if (slot->index == SQRL_TABLE_NONE ||
            (slot->hash == folded && same(arg, slot->index)))
            return slot->index;
    }
}

void sqrl_table_replace(struct sqrl_table *table, uint64_t hash, uint32_t from,
                        uint32_t to) {
    uint32_t at = fold(hash) & (table->capacity - 1);
    while (table->slots[at].index != from)
        at = (at + 1) & (table->capacity - 1);
    table->slots[at].index = to;
}

/* What stands behind the gap moves into it, unless it stands nearer to its own place:
 * Knuth, TAOCP 3, 6.4, algorithm R. */
void sqrl_table_remove(struct sqrl_table *table, uint64_t hash, uint32_t index) {
    uint32_t mask = table->capacity - 1, gap = fold(hash) & mask;
    while (table->slots[gap].index != index)
        gap = (gap + 1) & mask;
    for (uint32_t at = (gap + 1) & mask; table->slots[at].index != SQRL_TABLE_NONE;
         at = (at + 1) & mask) {
        uint32_t home = table->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            table->slots[gap] = table->slots[at];
            gap = at;
        }
    }
    table->slots[gap].index = SQRL_TABLE_NONE;
    table->count--;
}
