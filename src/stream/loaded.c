/* loaded.c - the life of a loaded block. */
#include "stream/columns/columns.h"

#include <stdlib.h>

struct sqrl_loaded *sqrl_loaded_new(struct sqrl_error *err) {
    struct sqrl_loaded *loaded = sqrl_calloc(1, sizeof *loaded, "block", err);
    if (loaded)
        loaded->refs = 1;
    return loaded;
}

struct sqrl_account *sqrl_account_new(struct sqrl_context *context,
                                      struct sqrl_error *err) {
    struct sqrl_account *account = sqrl_calloc(1, sizeof *account, "budget", err);
    if (account) {
        account->refs = 1;
        account->context = sqrl_context_ref(context);
    }
    return account;
}

void sqrl_account_unref(struct sqrl_account *account) {
    if (!account || __atomic_sub_fetch(&account->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    sqrl_context_unref(account->context);
    free(account);
}

bool sqrl_account_charge(struct sqrl_account *account, uint64_t bytes, bool force) {
    if (!sqrl_budget_take(account->context, bytes, force))
        return false;
    __atomic_add_fetch(&account->ahead, bytes, __ATOMIC_RELAXED);
    return true;
}

void sqrl_account_uncharge(struct sqrl_account *account, uint64_t bytes) {
    __atomic_sub_fetch(&account->ahead, bytes, __ATOMIC_RELAXED);
    sqrl_budget_give(account->context, bytes);
}

void sqrl_loaded_charge(struct sqrl_loaded *loaded, struct sqrl_account *account,
                        uint64_t bytes) {
    if (!bytes)
        return;
    __atomic_add_fetch(&account->refs, 1, __ATOMIC_RELAXED);
    loaded->account = account;
    loaded->charged = loaded->ahead = bytes;
}

void sqrl_loaded_taken(struct sqrl_loaded *loaded) {
    uint64_t ahead = __atomic_exchange_n(&loaded->ahead, 0, __ATOMIC_RELAXED);
    if (ahead)
        __atomic_sub_fetch(&loaded->account->ahead, ahead, __ATOMIC_RELAXED);
}

void sqrl_loaded_uncharge(struct sqrl_loaded *loaded) {
    uint64_t charged = __atomic_exchange_n(&loaded->charged, 0, __ATOMIC_RELAXED);
    if (!charged)
        return;
    sqrl_loaded_taken(loaded);
    sqrl_budget_give(loaded->account->context, charged);
    sqrl_account_unref(loaded->account);
}

void sqrl_loaded_unref(struct sqrl_loaded *loaded) {
    if (!loaded || __atomic_sub_fetch(&loaded->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    sqrl_loaded_uncharge(loaded);
    sqrl_block_unref(loaded->block);
    sqrl_buffer_unref(loaded->memory);
    free(loaded->error);
    free(loaded);
}

int sqrl_loaded_reserve(struct sqrl_loaded *loaded, const struct sqrl_columns *columns,
                        bool stages, bool measure, struct sqrl_context *context,
                        struct sqrl_error *err) {
    size_t count = loaded->count, number_of_columns = columns ? columns->count : 0;
    size_t lengths = columns ? columns->with_lengths : 0;
    size_t words = (number_of_columns + lengths) * count * sizeof(uint32_t);
    size_t measures = measure ? count * sizeof(uint64_t) : 0;
    size_t direct = number_of_columns * count * sizeof(uint64_t);
    size_t bytes = measures + direct + words + number_of_columns + (stages ? count : 0);
    if (!bytes)
        return SQRL_OK;
    int code = sqrl_slot_new(context, bytes, &loaded->memory, err);
    if (code)
        return code;
    uint8_t *at = loaded->memory->data;
    if (measure)
        loaded->measure = (uint64_t *)(void *)at;
    at += measures;
    loaded->direct = (uint64_t *)(void *)at;
    loaded->plain = number_of_columns ? UINT64_MAX : 0;
    at += direct;
    loaded->cells = (uint32_t *)(void *)at;
    loaded->lengths = loaded->cells + number_of_columns * count;
    at += words;
    loaded->missing = at;
    memset(at, 0, number_of_columns);
    at += number_of_columns;
    if (stages)
        loaded->stage = at;
    return SQRL_OK;
}
