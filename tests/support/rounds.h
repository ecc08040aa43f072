/* rounds.h - how often a random test is tried. ThreadSanitizer looks at interleavings,
 * which come in every round, and makes each round some twenty times dearer: there a fifth
 * of the rounds are enough. */
#ifndef SQRL_TEST_ROUNDS_H
#define SQRL_TEST_ROUNDS_H

#if defined(__SANITIZE_THREAD__)
#define ROUNDS(count) ((count) / 5)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROUNDS(count) ((count) / 5)
#endif
#endif
#ifndef ROUNDS
#define ROUNDS(count) (count)
#endif
#define EVERY (5 / ROUNDS(5)) /* of cases that are gone through in order */

#endif
