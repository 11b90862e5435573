/*
 * Random direct reads of 4 KiB at queue depth 32.
 *
 *     cc -O2 random_reads.c $(pkg-config --cflags --libs diorite) && ./a.out disk.img /data 100000
 */
#define _GNU_SOURCE
#include <diorite.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 4096, DEPTH = 32 };

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, diorite_error_message());
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t random_block(uint64_t blocks)
{
    static uint64_t state = 88172645463325252u; /* xorshift64 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % blocks;
}

int main(int argc, char **argv)
{
    diorite_options options = {.size = sizeof options, .flags = DIORITE_READ_ONLY};
    diorite_filesystem *filesystem;
    diorite_file *file;
    diorite_queue *queue;
    diorite_completion done[DEPTH];
    void *memory;

    if (argc != 4) {
        fprintf(stderr, "usage: %s IMAGE FILE READS\n", argv[0]);
        return 2;
    }
    uint64_t reads = strtoull(argv[3], NULL, 10), submitted = 0, ended = 0;
    check(diorite_filesystem_open(argv[1], &options, &filesystem), "image");
    check(diorite_file_open(filesystem, argv[2], O_RDONLY | O_DIRECT, 0, &file), "file");
    uint64_t blocks = (uint64_t)diorite_size(file) / BLOCK;
    if (blocks == 0) {
        fprintf(stderr, "%s is shorter than a block\n", argv[2]);
        return 1;
    }
    check(diorite_queue_open(DEPTH, 0, &queue), "queue");
    check(diorite_buffer_allocate(file, DEPTH * BLOCK, &memory), "memory");

    double start = now();
    for (uint64_t slot = 0; slot < DEPTH && submitted < reads; slot++, submitted++)
        check(diorite_queue_read(queue, file, (char *)memory + slot * BLOCK, BLOCK, random_block(blocks) * BLOCK, slot),
              "submit");
    while (ended < submitted) {
        int count = diorite_queue_reap(queue, 1, done, DEPTH);
        check(count, "reap");
        for (int at = 0; at < count; at++, ended++) {
            uint64_t slot = done[at].user_data;
            check(done[at].result, "read");
            /* The page is in memory + slot * BLOCK. Its memory goes into the next read. */
            if (submitted < reads) {
                check(diorite_queue_read(queue, file, (char *)memory + slot * BLOCK, BLOCK,
                                         random_block(blocks) * BLOCK, slot),
                      "submit");
                submitted++;
            }
        }
    }
    double seconds = now() - start;
    printf("%" PRIu64 " reads in %.3f s: %.0f a second\n", ended, seconds, (double)ended / seconds);

    diorite_queue_close(queue);
    check(diorite_buffer_free(memory), "free");
    check(diorite_file_close(file), "close");
    check(diorite_filesystem_close(filesystem), "close");
    return 0;
}
