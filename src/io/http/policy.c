/* policy.c - how a file system's requests are made, from its options. */
#include "io/http/http.h"

#include <stdlib.h>

static int read_seconds(const struct sqrl_settings *settings,
                        const struct sqrl_option *options, const char *name, uint64_t *ns,
                        struct sqrl_error *err) {
    double seconds;
    int rc = sqrl_settings_float(settings, options, name, &seconds, err);
    if (rc != SQRL_OK)
        return rc;
    if (!(seconds > 0 && seconds <= 86400))
        return sqrl_error_set(err, SQRL_E_INVALID,
                              "%s=%g: give seconds above 0, at most 86400", name,
                              seconds);
    *ns = (uint64_t)(seconds * 1e9);
    return SQRL_OK;
}

static int read_count(const struct sqrl_settings *settings,
                      const struct sqrl_option *options, const char *name, unsigned most,
                      unsigned *out, struct sqrl_error *err) {
    int64_t n;
    int rc = sqrl_settings_int(settings, options, name, &n, err);
    if (rc != SQRL_OK)
        return rc;
    if (n < 1 || n > most)
        return sqrl_error_set(err, SQRL_E_INVALID, "%s=%lld: give 1 to %u", name,
                              (long long)n, most);
    *out = (unsigned)n;
    return SQRL_OK;
}

static int read_text(const struct sqrl_settings *settings,
                     const struct sqrl_option *options, const char *name,
                     const char **out, struct sqrl_error *err) {
    const char *text = sqrl_settings_text(settings, options, name);
    *out = text ? sqrl_strdup(text, err) : NULL;
    return text && !*out ? SQRL_E_NO_MEMORY : SQRL_OK;
}

/* SQRL_ALLOW_PRIVATE=1: whoever runs the program trusts what catalogs point to. */
static bool private_allowed(void) {
    const char *value = getenv("SQRL_ALLOW_PRIVATE");
    return value && strcmp(value, "1") == 0;
}

int sqrl_http_policy_read(struct sqrl_http_policy *policy,
                          const struct sqrl_settings *settings,
                          const struct sqrl_option *options, struct sqrl_error *err) {
    *policy = (struct sqrl_http_policy){0};
    const char *version = sqrl_settings_text(settings, options, "http_version");
    policy->http2 = version && strcmp(version, "2") == 0;
    int rc = read_seconds(settings, options, "timeout", &policy->deadline_ns, err);
    if (rc == SQRL_OK)
        rc = read_seconds(settings, options, "stall_timeout", &policy->stall_ns, err);
    if (rc == SQRL_OK)
        rc = read_count(settings, options, "attempts", 100, &policy->attempts, err);
    if (rc == SQRL_OK)
        rc = read_count(settings, options, "parallel", 64, &policy->parallel, err);
    if (rc == SQRL_OK)
        rc = sqrl_settings_bool(settings, options, "public_only", &policy->public_only,
                                err);
    if (rc == SQRL_OK)
        rc = read_text(settings, options, "proxy", &policy->proxy, err);
    if (rc == SQRL_OK)
        rc = read_text(settings, options, "ca_file", &policy->ca_file, err);
    if (rc != SQRL_OK)
        sqrl_http_policy_free(policy);
    else if (policy->public_only && private_allowed())
        policy->public_only = false;
    return rc;
}

void sqrl_http_policy_free(struct sqrl_http_policy *policy) {
    free((char *)policy->proxy);
    free((char *)policy->ca_file);
    *policy = (struct sqrl_http_policy){0};
}
