/* Queues: random transfers against a model, memory in flight, descriptors, a full queue. Arguments: IMAGE. */
#include "check.h"
#include <poll.h>

enum { BLOCK = 4096, DEPTH = 16, BLOCKS = 256 };

static diorite_filesystem *fs;
static diorite_file *file;

static uint64_t copied(void)
{
    diorite_counters counters;
    OK(diorite_filesystem_counters(fs, &counters));
    return counters.bytes_copied;
}

/* Random reads and writes of one block, never two in flight on one block. The model is a number for each block. */
static void random_transfers(unsigned char *memory, uint32_t flags)
{
    unsigned char model[BLOCKS] = {0}, expected[DEPTH];
    int busy[BLOCKS] = {0}, is_write[DEPTH], block_of[DEPTH], free_slots[DEPTH], free_count = DEPTH;
    diorite_queue *queue;
    diorite_completion done[5];
    unsigned seed = 7;
    int ended = 0;

    OK(diorite_queue_open(DEPTH, flags, &queue));
    OK(diorite_ftruncate(file, 0));
    OK(diorite_ftruncate(file, BLOCKS * BLOCK));
    for (int slot = 0; slot < DEPTH; slot++)
        free_slots[slot] = slot;
    while (ended < 4000) {
        while (free_count > 0 && ended < 3900) {
            int block = rand_r(&seed) % BLOCKS, slot = free_slots[free_count - 1];
            if (busy[block])
                break;
            unsigned char *at = memory + slot * BLOCK;
            is_write[slot] = rand_r(&seed) % 3 == 0;
            if (is_write[slot]) {
                model[block] = (unsigned char)rand_r(&seed);
                memset(at, model[block], BLOCK);
                OK(diorite_queue_write(queue, file, at, BLOCK, (uint64_t)block * BLOCK, (uint64_t)slot));
            } else {
                expected[slot] = model[block];
                OK(diorite_queue_read(queue, file, at, BLOCK, (uint64_t)block * BLOCK, (uint64_t)slot));
            }
            busy[block] = 1;
            block_of[slot] = block;
            free_count--;
        }
        int count = diorite_queue_reap(queue, 1, done, 5);
        if (count == 0)
            break;
        CHECK(count > 0 && count <= 5);
        for (int at = 0; at < count; at++, ended++) {
            int slot = (int)done[at].user_data;
            IS(BLOCK, done[at].result);
            if (!is_write[slot])
                for (int byte = 0; byte < BLOCK; byte++)
                    CHECK(memory[slot * BLOCK + byte] == expected[slot]);
            busy[block_of[slot]] = 0;
            free_slots[free_count++] = slot;
        }
    }
    IS(0, diorite_queue_in_flight(queue));
    diorite_queue_close(queue);
    for (int block = 0; block < BLOCKS; block++) {
        IS(BLOCK, diorite_pread(file, memory, BLOCK, (uint64_t)block * BLOCK));
        CHECK(memory[0] == model[block] && memory[BLOCK - 1] == model[block]);
    }
}

/* Memory and files in flight cannot be freed or closed. */
static void in_flight(void)
{
    diorite_queue *queue;
    diorite_completion done[8];
    void *memory;

    OK(diorite_buffer_allocate(file, 8 * BLOCK, &memory));
    OK(diorite_queue_open(4, 0, &queue));
    for (uint64_t tag = 0; tag < 4; tag++)
        OK(diorite_queue_read(queue, file, (char *)memory + tag * BLOCK, BLOCK, tag * BLOCK, 100 + tag));
    FAILS(EAGAIN, "reap", diorite_queue_read(queue, file, (char *)memory + 4 * BLOCK, BLOCK, 0, 0));
    CHECK(diorite_error_kind() == DIORITE_KIND_WOULD_BLOCK);
    IS(4, diorite_queue_in_flight(queue));
    FAILS(EBUSY, "in flight", diorite_buffer_free(memory));
    FAILS(EBUSY, "in flight", diorite_file_close(file));
    FAILS(EBUSY, "in use", diorite_filesystem_close(fs));
    IS(0, diorite_queue_reap(queue, 4, done, 0));
    IS(4, diorite_queue_reap(queue, UINT32_MAX, done, 4) + diorite_queue_reap(queue, 0, done, 4));
    IS(0, diorite_queue_reap(queue, 1, done, 8));
    OK(diorite_buffer_free(memory));

    /* The close of a queue waits for its transfers. */
    OK(diorite_buffer_allocate(file, 8 * BLOCK, &memory));
    memset(memory, 77, 8 * BLOCK);
    for (uint64_t tag = 0; tag < 4; tag++)
        OK(diorite_queue_write(queue, file, (char *)memory + tag * 2 * BLOCK, 2 * BLOCK, tag * 2 * BLOCK, tag));
    FAILS(EBUSY, "in flight", diorite_buffer_free(memory));
    diorite_queue_close(queue);
    memset(memory, 0, 8 * BLOCK);
    IS(8 * BLOCK, diorite_pread(file, memory, 8 * BLOCK, 0));
    CHECK(((char *)memory)[0] == 77 && memcmp(memory, (char *)memory + 1, 8 * BLOCK - 1) == 0);
    OK(diorite_buffer_free(memory));
    diorite_queue_close(NULL);
}

static void descriptor(unsigned char *memory)
{
    diorite_queue *queue;
    diorite_completion done[DEPTH];
    int reaped = 0;

    OK(diorite_queue_open(DEPTH, 0, &queue));
    struct pollfd ready = {.fd = diorite_queue_descriptor(queue), .events = POLLIN};
    CHECK(ready.fd >= 0);
    IS(0, poll(&ready, 1, 0));
    for (uint64_t tag = 0; tag < DEPTH; tag++)
        OK(diorite_queue_read(queue, file, memory + tag * BLOCK, BLOCK, tag * BLOCK, tag));
    OK(diorite_queue_issue(queue));
    while (reaped < DEPTH) {
        IS(1, poll(&ready, 1, 10000));
        for (int count; (count = diorite_queue_reap(queue, 0, done, 3)) != 0; reaped += count)
            CHECK(count > 0);
    }
    diorite_queue_close(queue);
    OK(diorite_queue_open(DEPTH, 0, &queue));
    OK(diorite_queue_read(queue, file, memory, BLOCK, 0, 0));
    FAILS(EINVAL, "first transfer", diorite_queue_descriptor(queue));
    diorite_queue_close(queue);
}

static void refused(unsigned char *memory)
{
    diorite_queue *queue;
    diorite_completion done[2];
    diorite_file *read_only;

    FAILS(EINVAL, "depth", diorite_queue_open(0, 0, &queue));
    FAILS(EINVAL, "depth", diorite_queue_open(UINT32_MAX, 0, &queue));
    FAILS(EINVAL, "flag", diorite_queue_open(1, 2, &queue));
    CHECK(queue == NULL);
    OK(diorite_file_open(fs, "/data", O_RDONLY, 0, &read_only));
    OK(diorite_queue_open(2, 0, &queue));
    FAILS(EBADF, "/data", diorite_queue_write(queue, read_only, memory, BLOCK, 0, 0));
    CHECK(diorite_error_kind() == DIORITE_KIND_NOT_OPEN);
    FAILS(EINVAL, "multiple", diorite_queue_read(queue, file, memory, BLOCK, 1, 0));
    FAILS(EINVAL, "multiple", diorite_queue_read(queue, file, memory, BLOCK - 1, 0, 0));
    FAILS(EFAULT, "NULL", diorite_queue_read(queue, file, NULL, BLOCK, 0, 0));
    FAILS(EINVAL, "file", diorite_queue_read(queue, NULL, memory, BLOCK, 0, 0));
    FAILS(EINVAL, "queue", diorite_queue_read(NULL, file, memory, BLOCK, 0, 0));
    FAILS(EFAULT, "NULL", diorite_queue_reap(queue, 1, NULL, 1));
    FAILS(EINVAL, "queue", diorite_queue_reap(NULL, 1, done, 2));
    IS(0, diorite_queue_in_flight(queue));
    /* An empty transfer, and a read at the end of the file, complete with 0 bytes. */
    OK(diorite_queue_read(queue, file, memory, BLOCK, (uint64_t)BLOCKS * BLOCK, 1));
    OK(diorite_queue_write(queue, file, memory, 0, 0, 2));
    IS(2, diorite_queue_reap(queue, 2, done, 2));
    CHECK(done[0].result == 0 && done[1].result == 0);
    OK(diorite_file_close(read_only));
    diorite_queue_close(queue);
}

int main(int argc, char **argv)
{
    void *registered;

    CHECK(argc == 2);
    OK(diorite_filesystem_create(argv[1], 64 << 20, NULL, NULL, &fs));
    OK(diorite_file_open(fs, "/data", O_RDWR | O_CREAT | O_DIRECT, 0644, &file));
    OK(diorite_buffer_allocate(file, DEPTH * BLOCK, &registered));
    unsigned char *own = aligned_alloc(BLOCK, DEPTH * BLOCK);
    random_transfers(registered, 0);
    random_transfers(own, 0);
    random_transfers(own, DIORITE_QUEUE_BATCHED);
    in_flight();
    descriptor(own);
    refused(own);
    CHECK(copied() == 0); /* ARCHITECTURE invariant 1 */
    OK(diorite_buffer_free(registered));
    OK(diorite_file_close(file));
    OK(diorite_filesystem_close(fs));
    free(own);
    return 0;
}
