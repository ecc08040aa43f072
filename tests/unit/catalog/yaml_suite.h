/* yaml_suite.h - the valid cases of the yaml-test-suite that the strict reader refuses,
 * each for one of these reasons. All others give the suite's value; what the suite calls
 * invalid is refused without exception. */
#ifndef YAML_SUITE_H
#define YAML_SUITE_H

enum reason {
    NOT_LISTED,
    TAG,           /* refused: tags */
    DOCUMENTS,     /* refused: more than one document */
    EMPTY,         /* refused: no document */
    CONTAINER_KEY, /* refused: a map or sequence as a key */
    DUPLICATE,     /* refused: the same key twice */
    LIBYAML,       /* refused by libyaml, though it is YAML 1.2 */
    MISREAD,       /* refused since libyaml would read another value */
    TREE           /* read; the suite has no JSON, the value is that of its event tree */
};

static const struct {
    const char *id; /* with the number of the case where a file has several */
    enum reason reason;
    const char *json; /* TREE: the value; a null key is "" */
} yaml_suite[] = {
    {"2AUY", TAG},
    {"2G84/03", TREE, "\"\""},
    {"2JQS", LIBYAML},
    {"2LFX", LIBYAML},
    {"33X3", TAG},
    {"4ABK", LIBYAML},
    {"4FJ6", CONTAINER_KEY},
    {"4MUZ/00", LIBYAML},
    {"4MUZ/01", LIBYAML},
    {"4MUZ/02", LIBYAML},
    {"52DL", TAG},
    {"565N", TAG},
    {"57H4", TAG},
    {"58MP", LIBYAML},
    {"5MUD", LIBYAML},
    {"5T43", LIBYAML},
    {"5TYM", TAG},
    {"652Z", MISREAD},
    {"6CA3", LIBYAML},
    {"6CK3", TAG},
    {"6JWB", TAG},
    {"6M2F", LIBYAML},
    {"6PBE", CONTAINER_KEY},
    {"6WLZ", TAG},
    {"6XDY", DOCUMENTS},
    {"6ZKB", DOCUMENTS},
    {"735Y", TAG},
    {"74H7", TAG},
    {"7FWL", TAG},
    {"7Z25", LIBYAML},
    {"98YD", EMPTY},
    {"9DXL", DOCUMENTS},
    {"9KAX", TAG},
    {"9MMW", CONTAINER_KEY},
    {"A2M4", LIBYAML},
    {"BEC7", LIBYAML},
    {"BU8L", TAG},
    {"C4HZ", TAG},
    {"CC74", TAG},
    {"CFD4", LIBYAML},
    {"DFF7", TREE, "{\"explicit\": \"entry\", \"implicit\": \"entry\", \"\": null}"},
    {"DK3J", LIBYAML},
    {"DK95/00", LIBYAML},
    {"DK95/03", LIBYAML},
    {"DK95/04", LIBYAML},
    {"EHF6", TAG},
    {"F2C7", TAG},
    {"FH7J", TAG},
    {"FP8R", LIBYAML},
    {"FRK4", LIBYAML},
    {"HM87/00", LIBYAML},
    {"HM87/01", MISREAD},
    {"HMQ5", TAG},
    {"HWV9", LIBYAML},
    {"J7PZ", TAG},
    {"JHB9", DOCUMENTS},
    {"K3WX", LIBYAML},
    {"KK5P", CONTAINER_KEY},
    {"KSS4", DOCUMENTS},
    {"L383", DOCUMENTS},
    {"L94M", TAG},
    {"LE5A", TAG},
    {"LX3P", CONTAINER_KEY},
    {"M2N8/00", CONTAINER_KEY},
    {"M2N8/01", CONTAINER_KEY},
    {"M5C3", TAG},
    {"M5DY", CONTAINER_KEY},
    {"M7A3", LIBYAML},
    {"MUS6/05", LIBYAML},
    {"MUS6/06", LIBYAML},
    {"NHX8", LIBYAML},
    {"NJ66", LIBYAML},
    {"NKF9", LIBYAML},
    {"PUW8", DOCUMENTS},
    {"PW8X", TREE,
     "[null, \"a\", {\"\": \"a\", \"b\": null}, {\"\": null}, {\"\": null}, {\"\": "
     "null}]"},
    {"Q5MG", LIBYAML},
    {"Q9WF", CONTAINER_KEY},
    {"QT73", LIBYAML},
    {"R4YG", LIBYAML},
    {"RZP5", CONTAINER_KEY},
    {"S3PD", LIBYAML},
    {"S4JQ", TAG},
    {"SM9W/01", LIBYAML},
    {"U3C3", TAG},
    {"U9NS", DOCUMENTS},
    {"UKK6/00", LIBYAML},
    {"UKK6/02", TAG},
    {"UT92", LIBYAML},
    {"V9D5", CONTAINER_KEY},
    {"VJP3/01", LIBYAML},
    {"W5VH", LIBYAML},
    {"WZ62", TAG},
    {"XW4D", CONTAINER_KEY},
    {"Y2GN", MISREAD},
    {"Z67P", TAG},
    {"Z9M4", TAG},
    {"ZYU8/00", LIBYAML},
    {"ZYU8/01", LIBYAML},
    {"ZYU8/02", LIBYAML},
    {"ZYU8/03", LIBYAML},
};

#endif
