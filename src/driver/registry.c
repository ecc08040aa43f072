/* registry.c - the drivers of a context.
 *
 * Built-in drivers that do more than open files stand in `special`; every other format
 * gets a plain driver of its own name, so that a new format needs no line here. Entries
 * are only added: a reader without the lock sees a prefix of the table. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/driver_idx.h"
#include "driver/driver_sqrl.h"
#include "format/format.h"

enum { MAX_DRIVERS = 128 };

static const struct sqrl_driver_ops *const special[] = {&sqrl_driver_idx,
                                                        &sqrl_driver_native};

struct registry {
    struct sqrl_lock lock;
    size_t count;
    const struct sqrl_driver_ops *items[MAX_DRIVERS];
    struct sqrl_driver_ops plain[MAX_DRIVERS];
};

static const struct sqrl_driver_ops *special_of(const struct sqrl_format_ops *format) {
    for (size_t i = 0; i < SQRL_COUNT_OF(special); i++)
        if (special[i]->format == format)
            return special[i];
    return NULL;
}

static void *registry_new(struct sqrl_context *context, struct sqrl_error *err) {
    struct registry *registry = sqrl_calloc(1, sizeof *registry, "drivers", err);
    if (!registry)
        return NULL;
    sqrl_lock_init(&registry->lock);
    const struct sqrl_format_ops *format;
    for (size_t i = 0; (format = sqrl_format_at(i)) && i < MAX_DRIVERS; i++) {
        registry->plain[i] = (struct sqrl_driver_ops){.size = sizeof registry->plain[i],
                                                      .api = SQRL_DRIVER_API,
                                                      .name = format->name,
                                                      .doc = format->doc,
                                                      .format = format};
        const struct sqrl_driver_ops *own = special_of(format);
        registry->items[registry->count++] = own ? own : &registry->plain[i];
    }
    return registry;
}

static void registry_free(void *state) {
    struct registry *registry = state;
    sqrl_lock_reset(&registry->lock);
    free(registry);
}

static struct registry *registry_of(struct sqrl_context *context,
                                    struct sqrl_error *err) {
    return sqrl_context_slot(context, SQRL_SLOT_DRIVER, registry_new, registry_free, err);
}

const struct sqrl_driver_ops *sqrl_driver_at(struct sqrl_context *context, size_t i) {
    struct registry *registry = registry_of(context, NULL);
    if (!registry || i >= __atomic_load_n(&registry->count, __ATOMIC_ACQUIRE))
        return NULL;
    return registry->items[i];
}

const struct sqrl_driver_ops *sqrl_driver_by_name(struct sqrl_context *context,
                                                  const char *name) {
    const struct sqrl_driver_ops *driver;
    for (size_t i = 0; name && (driver = sqrl_driver_at(context, i)); i++)
        if (strcmp(driver->name, name) == 0)
            return driver;
    return NULL;
}

const struct sqrl_driver_ops *
sqrl_driver_of_format(struct sqrl_context *context,
                      const struct sqrl_format_ops *format) {
    const struct sqrl_driver_ops *driver;
    for (size_t i = 0; (driver = sqrl_driver_at(context, i)); i++)
        if (driver->format == format)
            return driver;
    return NULL;
}

int sqrl_driver_register(struct sqrl_context *context, const struct sqrl_driver_ops *ops,
                         struct sqrl_error *err) {
    if (ops->api != SQRL_DRIVER_API ||
        ops->size < offsetof(struct sqrl_driver_ops, open) || !ops->name || !*ops->name ||
        !ops->format)
        return sqrl_error_set(
            err, SQRL_E_INVALID,
            "this driver's table is not of version %u, or has no name or "
            "format",
            SQRL_DRIVER_API);
    struct registry *registry = registry_of(context, err);
    if (!registry)
        return SQRL_E_NO_MEMORY;
    int rc = SQRL_OK;
    sqrl_lock_take(&registry->lock);
    for (size_t i = 0; !rc && i < registry->count; i++)
        if (strcmp(registry->items[i]->name, ops->name) == 0)
            rc = sqrl_error_set(err, SQRL_E_EXISTS, "there is a driver \"%s\" already",
                                ops->name);
    if (!rc && registry->count == MAX_DRIVERS)
        rc = sqrl_error_set(err, SQRL_E_LIMIT, "a context holds at most %d drivers",
                            MAX_DRIVERS);
    if (!rc) {
        registry->items[registry->count] = ops;
        __atomic_store_n(&registry->count, registry->count + 1, __ATOMIC_RELEASE);
    }
    sqrl_lock_drop(&registry->lock);
    return rc;
}

int sqrl_driver_unknown(struct sqrl_context *context, const char *name,
                        struct sqrl_error *err) {
    const char *names[MAX_DRIVERS];
    const struct sqrl_driver_ops *driver;
    size_t count = 0, at = 0;
    char text[200] = "";
    for (; count < SQRL_COUNT_OF(names) && (driver = sqrl_driver_at(context, count));
         count++)
        names[count] = driver->name;
    for (size_t i = 0; i < count && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "",
                               names[i]);
    const char *nearest = sqrl_nearest(name, names, count);
    if (nearest)
        return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                              "there is no driver \"%.60s\"; did you mean \"%s\"?", name,
                              nearest);
    return sqrl_error_set(err, SQRL_E_NOT_FOUND,
                          "there is no driver \"%.60s\"; there are %s", name, text);
}
