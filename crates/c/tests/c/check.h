/* Checks of the test programs. A failure prints its line and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <diorite.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(condition)                                                                                         \
    do {                                                                                                         \
        if (!(condition)) {                                                                                      \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,              \
                    diorite_error_message());                                                                    \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

/* The call must return this value. */
#define IS(expected, call)                                                                                       \
    do {                                                                                                         \
        int64_t result_ = (call), expected_ = (expected);                                                        \
        if (result_ != expected_) {                                                                              \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 " (last error: %s)\n", __FILE__, __LINE__,  \
                    #call, result_, expected_, diorite_error_message());                                         \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

#define OK(call) IS(0, call)

/* The call must fail with this error number, and the message must contain the word. */
#define FAILS(error, word, call)                                                                                 \
    do {                                                                                                         \
        IS(-(error), call);                                                                                      \
        if (strstr(diorite_error_message(), (word)) == NULL || strchr(diorite_error_message(), '\n') != NULL) {  \
            fprintf(stderr, "%s:%d: %s: the message is \"%s\", without \"%s\"\n", __FILE__, __LINE__, #call,     \
                    diorite_error_message(), (word));                                                            \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

#endif
