/* curl.c - the only user of libcurl, which is loaded when the first remote URL is used.
 *
 * It is not linked: a program that never goes remote neither needs nor loads it (with it
 * come some twenty libraries). All calls after loading are made on the engine's thread,
 * but for those that only parse texts. Options that an old libcurl does not know are left
 * out, except those that guard something: then the transfer fails. */
#include "io/http/poller.h"
#include "io/http/transfer.h"

#include <stdlib.h>

#ifdef SQRL_HAVE_CURL

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_IDLE_HANDLES 64
#define MAX_SOCKETS 1024
#define MAX_HEADERS 256
#define KEEP_CONNECTIONS 128L
#define BUFFER_BYTES (64L * 1024L) /* one a transfer: they stay in the caches */
#define IDLE_SECONDS 25L
#define CONNECT_MS 30000L

/* --- the library --- */

/* clang-format off */
#define CURL_FUNCTIONS(X)                                                                \
    X(global_init) X(easy_init) X(easy_cleanup) X(easy_reset) X(easy_setopt)             \
    X(easy_getinfo) X(easy_strerror) X(multi_init) X(multi_cleanup) X(multi_setopt)      \
    X(multi_add_handle) X(multi_remove_handle) X(multi_socket_action) X(multi_info_read) \
    X(slist_append) X(slist_free_all) X(getdate) X(url) X(url_cleanup) X(url_get)        \
    X(url_set) X(free) X(version_info)
/* clang-format on */

#define POINTER(name) __typeof__(curl_##name) *name;
static struct {
    CURL_FUNCTIONS(POINTER)
    unsigned version; /* 0x074b00 */
} api;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static void *open_library(void) {
    static const char *const names[] = {
#ifdef __APPLE__
        "libcurl.4.dylib",
        "/usr/lib/libcurl.4.dylib",
#else
        "libcurl.so.4",
        "libcurl-gnutls.so.4",
        "libcurl-nss.so.4",
#endif
    };
    const char *own = getenv("SQRL_LIBCURL");
    if (own && *own)
        return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    void *library = NULL;
    for (size_t i = 0; i < SQRL_COUNT_OF(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static int load(struct sqrl_error *err) {
    void *library = open_library();
    if (!library)
        return sqrl_error_set(
            err, SQRL_E_UNSUPPORTED,
            "remote URLs need libcurl, which can't be loaded (%s): install it (Debian: "
            "libcurl4, Fedora: libcurl, conda: libcurl), or set SQRL_LIBCURL to its file",
            dlerror());
#define FIND(name)                                                                       \
    *(void **)&api.name = dlsym(library, "curl_" #name);                                 \
    if (!api.name)                                                                       \
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED,                                   \
                              "libcurl is too old: it has no curl_" #name                \
                              "; 7.68 or later is needed");
    CURL_FUNCTIONS(FIND)
    api.version = api.version_info(CURLVERSION_NOW)->version_num;
    if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return sqrl_error_set(err, SQRL_E_UNSUPPORTED, "libcurl can't be initialised");
    return SQRL_OK;
}

int sqrl_curl_load(struct sqrl_error *err) {
    pthread_mutex_lock(&loading);
    int rc = loaded ? SQRL_OK : load(err);
    loaded = rc == SQRL_OK;
    pthread_mutex_unlock(&loading);
    return rc;
}

/* --- one loop --- */

/* A socket by its number and by what it is: libcurl may close one without a word, and its
 * number is somebody else's then. */
struct kept {
    int fd; /* atomic: fd + 1, 0 where there is none */
    dev_t device;
    ino_t inode;
};

struct sqrl_curl {
    CURLM *multi;
    struct sqrl_poller poller; /* sockets that libcurl waits for */
    uint64_t due_ns;           /* when it wants to be called in any case; 0: never */
    void (*finished)(void *arg, struct sqrl_transfer *);
    void *arg;
    CURL *idle[MAX_IDLE_HANDLES];
    size_t idle_count;
    char *ca_file, *ca_folder; /* what is trusted unless told otherwise; NULL: built in */
    struct kept sockets[MAX_SOCKETS];
    unsigned open;
};

/* Where systems keep the certificates that they trust, for a libcurl that was built for
 * another one. */
static void find_trust(struct sqrl_curl *curl) {
    static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE",
                                            "REQUESTS_CA_BUNDLE"};
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
        "/etc/pki/tls/cacert.pem",
    };
    const char *folder = getenv("SSL_CERT_DIR"), *own = NULL;
    for (size_t i = 0; i < SQRL_COUNT_OF(variables) && !curl->ca_file; i++) {
        const char *file = getenv(variables[i]);
        if (file && *file)
            curl->ca_file = sqrl_strdup(file, NULL);
    }
    if (folder && *folder)
        curl->ca_folder = sqrl_strdup(folder, NULL);
    if (curl->ca_file || curl->ca_folder)
        return;
    CURL *easy = api.easy_init();
#if LIBCURL_VERSION_NUM >= 0x075400
    if (easy && api.version >= 0x075400)
        api.easy_getinfo(easy, CURLINFO_CAINFO, &own);
#endif
    if (!own || access(own, R_OK) != 0)
        for (size_t i = 0; i < SQRL_COUNT_OF(places) && !curl->ca_file; i++)
            if (access(places[i], R_OK) == 0)
                curl->ca_file = sqrl_strdup(places[i], NULL);
    api.easy_cleanup(easy);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused) {
    struct sqrl_curl *curl = arg;
    short events = what == CURL_POLL_IN      ? POLLIN
                   : what == CURL_POLL_OUT   ? POLLOUT
                   : what == CURL_POLL_INOUT ? POLLIN | POLLOUT
                                             : 0;
    (void)easy, (void)unused;
    return sqrl_poller_want(&curl->poller, fd, events) ? 0 : -1;
}

static int want_time(CURLM *multi, long milliseconds, void *arg) {
    struct sqrl_curl *curl = arg;
    (void)multi;
    curl->due_ns =
        milliseconds < 0 ? 0 : sqrl_now_ns() + (uint64_t)milliseconds * 1000000;
    return 0;
}

static bool open_multi(struct sqrl_curl *curl) {
    curl->due_ns = 0;
    curl->multi = api.multi_init();
    if (!curl->multi)
        return false;
    api.multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS, KEEP_CONNECTIONS);
    api.multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    api.multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
    api.multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, want_time);
    api.multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
    return true;
}

struct sqrl_curl *sqrl_curl_new(void (*finished)(void *arg, struct sqrl_transfer *),
                                void *arg, struct sqrl_error *err) {
    struct sqrl_curl *curl = sqrl_calloc(1, sizeof *curl, "the HTTP engine", err);
    if (!curl)
        return NULL;
    curl->finished = finished;
    curl->arg = arg;
    find_trust(curl);
    if (sqrl_poller_init(&curl->poller, err) == SQRL_OK && open_multi(curl))
        return curl;
    if (curl->poller.count > 0)
        sqrl_error_set(err, SQRL_E_NO_MEMORY, "libcurl can't make a loop");
    sqrl_curl_free(curl);
    return NULL;
}

void sqrl_curl_free(struct sqrl_curl *curl) {
    while (curl->idle_count > 0)
        api.easy_cleanup(curl->idle[--curl->idle_count]);
    if (curl->multi)
        api.multi_cleanup(curl->multi);
    sqrl_poller_reset(&curl->poller);
    free(curl->ca_file);
    free(curl->ca_folder);
    free(curl);
}

void sqrl_curl_wake(struct sqrl_curl *curl) {
    sqrl_poller_wake(&curl->poller);
}

/* --- sockets --- */

/* Where the number is kept, for -1 a free place; NULL: nowhere. */
static struct kept *kept_at(struct sqrl_curl *curl, int fd) {
    for (size_t i = 0; i < MAX_SOCKETS; i++)
        if (__atomic_load_n(&curl->sockets[i].fd, __ATOMIC_RELAXED) == fd + 1)
            return &curl->sockets[i];
    return NULL;
}

static void forget(struct sqrl_curl *curl, int fd) {
    struct kept *kept = kept_at(curl, fd);
    if (!kept)
        return;
    __atomic_store_n(&kept->fd, 0, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&curl->open, 1, __ATOMIC_RELAXED);
}

static void keep(struct sqrl_curl *curl, int fd) {
    struct stat stat;
    forget(curl, fd); /* one that was closed without a word */
    struct kept *kept = kept_at(curl, -1);
    if (!kept || fstat(fd, &stat) != 0)
        return;
    kept->device = stat.st_dev;
    kept->inode = stat.st_ino;
    __atomic_store_n(&kept->fd, fd + 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&curl->open, 1, __ATOMIC_RELAXED);
}

static int close_socket(void *arg, curl_socket_t fd) {
    forget(arg, fd);
    return close(fd);
}

struct setup { /* of a transfer that runs: what its callbacks need */
    struct sqrl_curl *curl;
    struct sqrl_transfer *transfer;
    bool guarded; /* addresses are checked: public_only, without a proxy */
    bool forbidden;
    char error[CURL_ERROR_SIZE];
};

static curl_socket_t open_socket(void *arg, curlsocktype purpose,
                                 struct curl_sockaddr *address) {
    struct setup *setup = arg;
    (void)purpose;
    if (setup->guarded && !sqrl_address_public(&address->addr)) {
        setup->forbidden = true;
        return CURL_SOCKET_BAD;
    }
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0)
        keep(setup->curl, fd);
    return fd;
}

#if LIBCURL_VERSION_NUM >= 0x075000
/* A connection that a less careful request opened is not used either. */
static int before_request(void *arg, char *remote, char *local, int remote_port,
                          int local_port) {
    struct setup *setup = arg;
    (void)local, (void)remote_port, (void)local_port;
    if (!setup->guarded || sqrl_host_public(remote))
        return CURL_PREREQFUNC_OK;
    setup->forbidden = true;
    return CURL_PREREQFUNC_ABORT;
}
#endif

unsigned sqrl_curl_sockets(const struct sqrl_curl *curl) {
    return __atomic_load_n(&curl->open, __ATOMIC_RELAXED);
}

void sqrl_curl_forked(struct sqrl_curl *curl) {
    sqrl_poller_forked(&curl->poller);
    for (size_t i = 0; i < MAX_SOCKETS; i++) {
        struct kept *kept = &curl->sockets[i];
        int fd = __atomic_exchange_n(&kept->fd, 0, __ATOMIC_ACQUIRE) - 1;
        struct stat stat;
        if (fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == kept->device &&
            stat.st_ino == kept->inode)
            close(fd);
    }
}

void sqrl_curl_hang_up(struct sqrl_curl *curl) {
    while (curl->idle_count > 0)
        api.easy_cleanup(curl->idle[--curl->idle_count]);
    /* There is no other way to close kept connections. */
    api.multi_cleanup(curl->multi);
    while (!open_multi(curl))
        usleep(1000);
}

/* --- callbacks of a transfer --- */

static size_t take_header(char *line, size_t one, size_t size, void *arg) {
    struct setup *setup = arg;
    struct sqrl_transfer *t = setup->transfer;
    size *= one;
    size_t whole = size;
    while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r'))
        size--;
    if (t->announced) /* trailers say nothing that we need */
        return whole;
    if (size > 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* the last one counts */
        const char *space = memchr(line, ' ', size);
        sqrl_http_headers_free(&t->answer);
        t->status = space ? atoi(space + 1) : 0;
        return whole;
    }
    if (size == 0) {
        if (t->status < 200)
            return whole;
        t->announced = true;
        t->first_byte_ns = sqrl_now_ns();
        if (!t->on_headers || t->on_headers(t))
            return whole;
        t->end = SQRL_NET_UNWANTED;
        return 0;
    }
    char *colon = memchr(line, ':', size);
    if (!colon || t->answer.count >= MAX_HEADERS)
        return whole;
    char *value = colon + 1, *end = line + size;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    char *name = sqrl_format(NULL, "%.*s", (int)(colon - line), line);
    char *text = sqrl_format(NULL, "%.*s", (int)(end - value), value);
    if (name && text) /* one that can't be kept is as if it had not been sent */
        (void)!sqrl_http_headers_add(&t->answer, name, text, NULL);
    free(name);
    free(text);
    return whole;
}

static size_t take_data(char *data, size_t one, size_t size, void *arg) {
    struct sqrl_transfer *t = ((struct setup *)arg)->transfer;
    size *= one;
    if (t->on_data && !t->on_data(t, (const uint8_t *)data, size)) {
        t->end = SQRL_NET_UNWANTED;
        return 0;
    }
    __atomic_store_n(&t->got, t->got + size, __ATOMIC_RELAXED);
    return size;
}

static size_t give_data(char *out, size_t one, size_t size, void *arg) {
    struct sqrl_transfer *t = ((struct setup *)arg)->transfer;
    size_t n = SQRL_MIN(size * one, t->body_size - t->sent);
    if (n > 0)
        memcpy(out, t->body + t->sent, n);
    t->sent += n;
    return n;
}

static int rewind_data(void *arg, curl_off_t offset, int origin) {
    struct sqrl_transfer *t = ((struct setup *)arg)->transfer;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > t->body_size)
        return CURL_SEEKFUNC_FAIL;
    t->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* --- starting --- */

static bool make_lines(struct sqrl_transfer *t) {
    struct curl_slist *lines = NULL, *more;
    bool good = true;
    for (size_t i = 0; t->headers && i < t->headers->count && good; i++) {
        const struct sqrl_http_header *h = &t->headers->items[i];
        /* "Name;" is curl's way to send an empty one. */
        char *line = sqrl_format(NULL, *h->value ? "%s: %s" : "%s;", h->name, h->value);
        more = line ? api.slist_append(lines, line) : NULL;
        free(line);
        good = more != NULL;
        lines = good ? more : lines;
    }
    if (good && (more = api.slist_append(lines, "Expect:")))
        lines = more;
    if (good)
        t->lines = lines;
    else
        api.slist_free_all(lines);
    return good;
}

/* The proxy from the environment by curl's rules, for requests whose addresses are
 * guarded: they must know whether one is used. NULL: none. */
static const char *environment_proxy(const char *url) {
    bool tls = strncasecmp(url, "https:", 6) == 0;
    const char *const names[2][4] = {
        {"http_proxy", "all_proxy", "ALL_PROXY", NULL},
        {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}};
    for (size_t i = 0; i < 4; i++) {
        const char *value = names[tls][i] ? getenv(names[tls][i]) : NULL;
        if (value && *value)
            return value;
    }
    return NULL;
}

static void set_proxy(CURL *easy, struct setup *setup) {
    const struct sqrl_transfer *t = setup->transfer;
    const struct sqrl_http_policy *p = t->policy;
    const char *proxy = p->proxy;
    if (p->public_only) {
        if (!proxy)
            proxy = environment_proxy(t->url);
        setup->guarded = !proxy || !*proxy;
        /* What goes past the proxy would not be looked at. */
        api.easy_setopt(easy, CURLOPT_NOPROXY, "");
        api.easy_setopt(easy, CURLOPT_PROXY, setup->guarded ? "" : proxy);
    } else if (proxy) {
        api.easy_setopt(easy, CURLOPT_PROXY, proxy);
    }
    api.easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

static void set_trust(CURL *easy, const struct setup *setup) {
    const char *file = setup->transfer->policy->ca_file;
    file = file ? file : setup->curl->ca_file;
    if (file)
        api.easy_setopt(easy, CURLOPT_CAINFO, file);
    if (setup->curl->ca_folder && !setup->transfer->policy->ca_file)
        api.easy_setopt(easy, CURLOPT_CAPATH, setup->curl->ca_folder);
}

static bool set_protocols(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075500
    if (api.version >= 0x075500)
        return api.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#endif
    /* CURLOPT_PROTOCOLS, which newer headers call deprecated. */
    return api.easy_setopt(easy, (CURLoption)181, 3L) == CURLE_OK;
}

static void set_method(CURL *easy, struct sqrl_transfer *t) {
    bool get = strcmp(t->method, "GET") == 0, head = strcmp(t->method, "HEAD") == 0;
    if (head)
        api.easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (!get)
        api.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, t->method);
    if (t->body || strcmp(t->method, "PUT") == 0 || strcmp(t->method, "POST") == 0) {
        api.easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        api.easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->body_size);
    }
}

static void set_callbacks(CURL *easy, struct setup *setup) {
    api.easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    api.easy_setopt(easy, CURLOPT_HEADERDATA, setup);
    api.easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_data);
    api.easy_setopt(easy, CURLOPT_WRITEDATA, setup);
    api.easy_setopt(easy, CURLOPT_READFUNCTION, give_data);
    api.easy_setopt(easy, CURLOPT_READDATA, setup);
    api.easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_data);
    api.easy_setopt(easy, CURLOPT_SEEKDATA, setup);
    api.easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    api.easy_setopt(easy, CURLOPT_OPENSOCKETDATA, setup);
    api.easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    api.easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, setup->curl);
    api.easy_setopt(easy, CURLOPT_ERRORBUFFER, setup->error);
    api.easy_setopt(easy, CURLOPT_PRIVATE, setup);
}

/* Old libraries can't check the address of a kept connection: then none is used. */
static void set_guard(CURL *easy, struct setup *setup) {
    bool checked = false;
#if LIBCURL_VERSION_NUM >= 0x075000
    checked = api.easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request) == CURLE_OK &&
              api.easy_setopt(easy, CURLOPT_PREREQDATA, setup) == CURLE_OK;
#endif
    if (!checked && setup->guarded)
        api.easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
}

static bool set_up(CURL *easy, struct setup *setup) {
    struct sqrl_transfer *t = setup->transfer;
    bool two = t->policy->http2;
    if (!set_protocols(easy) || !make_lines(t) ||
        api.easy_setopt(easy, CURLOPT_URL, t->url) != CURLE_OK)
        return false;
    set_proxy(easy, setup);
    set_trust(easy, setup);
    set_method(easy, t);
    set_callbacks(easy, setup);
    set_guard(easy, setup);
    api.easy_setopt(easy, CURLOPT_HTTPHEADER, t->lines);
    api.easy_setopt(easy, CURLOPT_HTTP_VERSION,
                    two ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
    api.easy_setopt(easy, CURLOPT_PIPEWAIT, two ? 1L : 0L);
    api.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    api.easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    api.easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    api.easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    api.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    api.easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_SECONDS);
    api.easy_setopt(easy, CURLOPT_USERAGENT, "squirrel/" SQRL_VERSION);
    return true;
}

static void put_back(struct sqrl_curl *curl, CURL *easy) {
    if (curl->idle_count == MAX_IDLE_HANDLES) {
        api.easy_cleanup(easy);
        return;
    }
    api.easy_reset(easy);
    curl->idle[curl->idle_count++] = easy;
}

static void dismiss(struct sqrl_curl *curl, struct sqrl_transfer *t) {
    struct setup *setup = NULL;
    api.easy_getinfo(t->easy, CURLINFO_PRIVATE, (char **)&setup);
    put_back(curl, t->easy);
    api.slist_free_all(t->lines);
    free(setup);
    t->easy = t->lines = NULL;
}

void sqrl_curl_start(struct sqrl_curl *curl, struct sqrl_transfer *t) {
    struct setup *setup = sqrl_calloc(1, sizeof *setup, "a request", NULL);
    CURL *easy = curl->idle_count > 0 ? curl->idle[--curl->idle_count] : api.easy_init();
    t->end = SQRL_NET_NO_MEMORY;
    t->sent = 0;
    bool good = false;
    if (setup && easy) {
        *setup = (struct setup){.curl = curl, .transfer = t};
        good = set_up(easy, setup);
    }
    if (good && api.multi_add_handle(curl->multi, easy) == CURLM_OK) {
        t->easy = easy;
        t->end = SQRL_NET_OK;
        return;
    }
    api.slist_free_all(t->lines);
    t->lines = NULL;
    if (easy)
        put_back(curl, easy);
    free(setup);
    curl->finished(curl->arg, t);
}

void sqrl_curl_stop(struct sqrl_curl *curl, struct sqrl_transfer *t) {
    api.multi_remove_handle(curl->multi, t->easy);
    dismiss(curl, t);
}

/* --- ending --- */

static enum sqrl_net net_of(CURLcode code) {
    switch (code) {
    case CURLE_OK:
        return SQRL_NET_OK;
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: /* only connecting has a limit of curl's */
    case CURLE_INTERFACE_FAILED:
        return SQRL_NET_CONNECT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return SQRL_NET_NAME;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
        return SQRL_NET_TRUST;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_SHUTDOWN_FAILED:
        return SQRL_NET_TLS;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CACERT_BADFILE:
        return SQRL_NET_INVALID;
    case CURLE_OUT_OF_MEMORY:
        return SQRL_NET_NO_MEMORY;
    default:
        return SQRL_NET_BROKEN;
    }
}

static void finish(struct sqrl_curl *curl, CURL *easy, CURLcode code) {
    struct setup *setup = NULL;
    api.easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&setup);
    struct sqrl_transfer *t = setup->transfer;
    long connects = 0;
    api.easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
    t->new_connection = connects > 0;
    if (t->end != SQRL_NET_UNWANTED)
        t->end = setup->forbidden ? SQRL_NET_FORBIDDEN : net_of(code);
    if (t->end != SQRL_NET_OK) {
        const char *text = *setup->error ? setup->error : api.easy_strerror(code);
        size_t size = SQRL_MIN(strlen(text), sizeof t->message - 1);
        memcpy(t->message, text, size);
        t->message[size] = 0;
    }
    api.multi_remove_handle(curl->multi, easy);
    dismiss(curl, t);
    curl->finished(curl->arg, t);
}

/* Takes back what is done; true when there was any. */
static bool finish_all(struct sqrl_curl *curl) {
    int left = 0;
    bool any = false;
    CURLMsg *message;
    while ((message = api.multi_info_read(curl->multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE) {
            any = true;
            finish(curl, message->easy_handle, message->data.result);
        }
    }
    return any;
}

/* Calls libcurl if its time has come. */
static void keep_time(struct sqrl_curl *curl) {
    int running = 0;
    if (curl->due_ns == 0 || curl->due_ns > sqrl_now_ns())
        return;
    curl->due_ns = 0;
    api.multi_socket_action(curl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static void move_bytes(struct sqrl_curl *curl) {
    int running = 0;
    for (size_t i = 0; i < curl->poller.ready_count; i++) {
        short events = curl->poller.ready[i].revents;
        bool broken = events & (POLLERR | POLLNVAL); /* reading and writing tell how */
        int mask = (broken || events & (POLLIN | POLLHUP) ? CURL_CSELECT_IN : 0) |
                   (broken || events & POLLOUT ? CURL_CSELECT_OUT : 0);
        api.multi_socket_action(curl->multi, curl->poller.ready[i].fd, mask, &running);
    }
}

void sqrl_curl_run(struct sqrl_curl *curl, unsigned milliseconds) {
    keep_time(curl);
    if (finish_all(curl))
        return;
    uint64_t now = sqrl_now_ns();
    if (curl->due_ns > 0 && curl->due_ns < now + (uint64_t)milliseconds * 1000000)
        milliseconds =
            curl->due_ns > now ? (unsigned)((curl->due_ns - now) / 1000000 + 1) : 0;
    sqrl_poller_wait(&curl->poller, milliseconds);
    move_bytes(curl);
    keep_time(curl);
    (void)finish_all(curl);
}

/* --- texts --- */

int64_t sqrl_curl_date(const char *text) {
    return (int64_t)api.getdate(text, NULL);
}

char *sqrl_curl_resolve(const char *base, const char *reference) {
    CURLU *url = api.url();
    char *found = NULL, *copy = NULL;
    if (url && api.url_set(url, CURLUPART_URL, base, CURLU_PATH_AS_IS) == CURLUE_OK &&
        api.url_set(url, CURLUPART_URL, reference,
                    CURLU_PATH_AS_IS | CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE) ==
            CURLUE_OK &&
        api.url_get(url, CURLUPART_URL, &found, 0) == CURLUE_OK)
        copy = sqrl_strdup(found, NULL);
    if (found)
        api.free(found);
    api.url_cleanup(url);
    return copy;
}

bool sqrl_curl_origin(const char *text, struct sqrl_origin *out) {
    CURLU *url = api.url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    *out = (struct sqrl_origin){0};
    if (url && api.url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) == CURLUE_OK &&
        api.url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        api.url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        api.url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        (strcasecmp(scheme, "http") == 0 || strcasecmp(scheme, "https") == 0)) {
        out->tls = strcasecmp(scheme, "https") == 0;
        out->host = sqrl_strdup(host, NULL);
        out->port = (unsigned)atoi(port);
        for (char *p = out->host; p && *p; p++)
            if (*p >= 'A' && *p <= 'Z')
                *p = (char)(*p + 'a' - 'A');
    }
    if (scheme)
        api.free(scheme);
    if (host)
        api.free(host);
    if (port)
        api.free(port);
    api.url_cleanup(url);
    return out->host != NULL;
}

#else /* built without libcurl's headers: nothing but loading is ever called */

int sqrl_curl_load(struct sqrl_error *err) {
    return sqrl_error_set(err, SQRL_E_UNSUPPORTED,
                          "this build has no remote file systems: libcurl's headers were "
                          "missing when it was made (Debian: libcurl4-openssl-dev)");
}
struct sqrl_curl *sqrl_curl_new(void (*finished)(void *arg, struct sqrl_transfer *),
                                void *arg, struct sqrl_error *err) {
    (void)!sqrl_curl_load(err);
    return NULL;
}
void sqrl_curl_free(struct sqrl_curl *curl) {}
void sqrl_curl_start(struct sqrl_curl *curl, struct sqrl_transfer *transfer) {}
void sqrl_curl_stop(struct sqrl_curl *curl, struct sqrl_transfer *transfer) {}
void sqrl_curl_run(struct sqrl_curl *curl, unsigned milliseconds) {}
void sqrl_curl_wake(struct sqrl_curl *curl) {}
void sqrl_curl_hang_up(struct sqrl_curl *curl) {}
unsigned sqrl_curl_sockets(const struct sqrl_curl *curl) {
    return 0;
}
void sqrl_curl_forked(struct sqrl_curl *curl) {}
int64_t sqrl_curl_date(const char *text) {
    return -1;
}
char *sqrl_curl_resolve(const char *base, const char *reference) {
    return NULL;
}
bool sqrl_curl_origin(const char *url, struct sqrl_origin *out) {
    return false;
}

#endif
