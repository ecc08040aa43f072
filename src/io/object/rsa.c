/* rsa.c - RSA signatures, for Google's service accounts, by OpenSSL's libcrypto.
 *
 * Own RSA would be unwise, and a library to link would be loaded by everybody for the
 * few who sign in this way: so it is opened by name when a service account's key is
 * first used. Only functions that OpenSSL 1.1 and 3 share are called; all types are
 * opaque. */
#include <dlfcn.h>
#include <stdlib.h>

#include "io/object/credentials.h"

struct crypto {
    void *handle;
    void *(*mem_new)(const void *data, int size);
    int (*mem_free)(void *bio);
    void *(*read_key)(void *bio, void **out, int (*password)(char *, int, int, void *),
                      void *arg);
    void (*key_free)(void *key);
    void *(*md_new)(void);
    void (*md_free)(void *md);
    const void *(*sha256)(void);
    int (*begin)(void *md, void **context, const void *type, void *engine, void *key);
    int (*sign)(void *md, unsigned char *out, size_t *out_size, const unsigned char *text,
                size_t size);
};

static int find(struct crypto *c, struct sqrl_error *err) {
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1",
                                        "libcrypto.so"};
    for (size_t i = 0; i < SQRL_COUNT_OF(names) && !c->handle; i++)
        c->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!c->handle)
        return sqrl_error_set(
            err, SQRL_E_UNSUPPORTED,
            "signing with a service account's key needs OpenSSL's "
            "libcrypto: install libssl3 (Debian, Ubuntu) or openssl-libs");
    const struct {
        const char *name;
        void *where;
    } symbols[] = {{"BIO_new_mem_buf", &c->mem_new},
                   {"BIO_free", &c->mem_free},
                   {"PEM_read_bio_PrivateKey", &c->read_key},
                   {"EVP_PKEY_free", &c->key_free},
                   {"EVP_MD_CTX_new", &c->md_new},
                   {"EVP_MD_CTX_free", &c->md_free},
                   {"EVP_sha256", &c->sha256},
                   {"EVP_DigestSignInit", &c->begin},
                   {"EVP_DigestSign", &c->sign}};
    for (size_t i = 0; i < SQRL_COUNT_OF(symbols); i++) {
        void *symbol = dlsym(c->handle, symbols[i].name);
        if (!symbol)
            return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                                  "this libcrypto is too old: it lacks %s",
                                  symbols[i].name);
        memcpy(symbols[i].where, &symbol, sizeof symbol);
    }
    return SQRL_OK;
}

/* A key that is locked by a password is refused, not asked for. */
static int no_password(char *out, int size, int writing, void *arg) {
    return 0;
}

int object_rsa_sign(const char *pem, const char *text, size_t size, uint8_t **out,
                    size_t *out_size, struct sqrl_error *err) {
    struct crypto c = {0};
    void *bio = NULL, *key = NULL, *md = NULL;
    *out = NULL;
    *out_size = 0;
    int rc = find(&c, err);
    if (rc)
        return rc;
    bio = c.mem_new(pem, -1);
    key = bio ? c.read_key(bio, NULL, no_password, NULL) : NULL;
    md = key ? c.md_new() : NULL;
    bool good = md && c.begin(md, NULL, c.sha256(), NULL, key) == 1 &&
                c.sign(md, NULL, out_size, (const unsigned char *)text, size) == 1;
    if (good) {
        *out = sqrl_malloc(*out_size + 1, "a signature", err);
        good = *out && c.sign(md, *out, out_size, (const unsigned char *)text, size) == 1;
    }
    if (!good) {
        free(*out);
        *out = NULL;
        rc =
            sqrl_error_set(err, SQRL_E_PERMISSION,
                           "the service account's private_key is no RSA key in PEM form");
    }
    if (md)
        c.md_free(md);
    if (key)
        c.key_free(key);
    if (bio)
        c.mem_free(bio);
    return rc; /* the library stays open: closing OpenSSL is not safe */
}
