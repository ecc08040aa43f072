/* address.c - which addresses are public (IANA's registries of special-purpose addresses,
 * RFC 6890 and its successors). Addresses that hold another one are judged by it. */
#include "io/http/transfer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

static bool public_v4(uint32_t a) {
    static const struct {
        uint32_t net;
        unsigned bits;
    } special[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* carriers' own */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local, metadata services */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0000200, 24}, /* documentation, as the next two of its kind */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* measurements */
        {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 3}, /* multicast and reserved */
    };
    for (size_t i = 0; i < SQRL_COUNT_OF(special); i++)
        if ((a ^ special[i].net) >> (32 - special[i].bits) == 0)
            return false;
    return true;
}

static uint32_t big(const uint8_t *p) {
    return sqrl_load_be32(p);
}

static bool public_v6(const uint8_t *a) {
    static const uint8_t zero[12] = {0}, mapped[12] = {[10] = 0xff, 0xff},
                         translated[12] = {0, 0x64, 0xff, 0x9b};
    if (memcmp(a, mapped, 12) == 0 || memcmp(a, translated, 12) == 0)
        return public_v4(big(a + 12));
    if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
        return public_v4(big(a + 2));
    if (memcmp(a, zero, 12) == 0) /* unspecified, loopback, old compatible ones */
        return false;
    return (a[0] & 0xe0) == 0x20 &&          /* global unicast is 2000::/3 ... */
           big(a) >> 9 != 0x20010000 >> 9 && /* ... without 2001::/23 (Teredo etc.) */
           big(a) != 0x20010db8;             /* and the documentation's */
}

bool sqrl_address_public(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return public_v4(ntohl(v4.sin_addr.s_addr));
    }
    if (address->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return public_v6(v6.sin6_addr.s6_addr);
}

bool sqrl_host_public(const char *host) {
    struct in_addr v4;
    uint8_t v6[16];
    char plain[64];
    size_t size = strlen(host);
    if (size > 0 && host[size - 1] == '.')
        size--;
    if ((size == 9 || (size > 9 && host[size - 10] == '.')) &&
        strncasecmp(host + size - 9, "localhost", 9) == 0)
        return false;
    if (size > 0 && host[0] == '[') {
        size_t inner = strcspn(host + 1, "]%");
        if (inner >= sizeof plain)
            return false;
        memcpy(plain, host + 1, inner);
        plain[inner] = 0;
        host = plain;
    }
    if (inet_pton(AF_INET6, host, v6) == 1)
        return public_v6(v6);
    if (inet_aton(host, &v4)) /* the short and octal forms, too */
        return public_v4(ntohl(v4.s_addr));
    return true;
}
