/* Many threads on one filesystem, one file and one queue each; files of the host and raw devices. Arguments: IMAGE HOST_FILE. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, BLOCK = 4096, ROUNDS = 200 };

static diorite_filesystem *fs;
static diorite_file *file;
static diorite_queue *shared_queue;
static int refused;

static void *work(void *argument)
{
    uint64_t me = (uint64_t)(uintptr_t)argument;
    diorite_queue *queue;
    diorite_completion done[4];
    void *memory;
    char path[32], other[32];
    diorite_attributes is;

    OK(diorite_queue_open(4, 0, &queue));
    OK(diorite_buffer_allocate(file, 4 * BLOCK, &memory));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t offset = (me * 4 + round % 4) * BLOCK;
        unsigned char *at = (unsigned char *)memory + (round % 4) * BLOCK;
        memset(at, (int)(me + round), BLOCK);
        OK(diorite_queue_write(queue, file, at, BLOCK, offset, round));
        IS(1, diorite_queue_reap(queue, 1, done, 4));
        IS(BLOCK, done[0].result);
        memset(at, 0, BLOCK);
        IS(BLOCK, diorite_pread(file, at, BLOCK, offset));
        CHECK(at[0] == (unsigned char)(me + round) && at[BLOCK - 1] == at[0]);
        snprintf(path, sizeof path, "/t%d-%d", (int)me, (int)round);
        snprintf(other, sizeof other, "/u%d-%d", (int)me, (int)round);
        OK(diorite_mkdir(fs, path, 0755));
        OK(diorite_rename(fs, path, other, 0));
        IS(-ENOENT, diorite_stat(fs, path, 0, &is));
        CHECK(strstr(diorite_error_message(), path) != NULL);
        OK(diorite_rmdir(fs, other));
        /* A call on a queue that another thread uses fails, and the queue stays usable. */
        int result = diorite_queue_read(shared_queue, file, at, BLOCK, offset, 0);
        CHECK(result == 0 || result == -EBUSY || result == -EAGAIN);
        if (result != 0)
            __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        /* The reaped transfer may be another thread's. If none is in flight, this thread's is complete. */
        while (result == 0 && diorite_queue_in_flight(shared_queue) != 0)
            diorite_queue_reap(shared_queue, 0, done, 1);
    }
    OK(diorite_buffer_free(memory));
    diorite_queue_close(queue);
    return NULL;
}

/* A plain loop without a cache, beside another handle on the same file. */
static void uncached(const char *path)
{
    enum { STEP = 10007, STEPS = 300 };
    static unsigned char piece[STEP], found[STEP];
    char why[100];
    diorite_file *writer, *reader;

    OK(diorite_host_open_uncached(path, O_WRONLY | O_CREAT | O_TRUNC, &writer));
    OK(diorite_host_open(path, O_RDONLY, &reader));
    for (int step = 0; step < STEPS; step++) {
        memset(piece, step, STEP);
        IS(STEP, diorite_write(writer, piece, STEP));
        IS(STEP, diorite_read(reader, found, STEP));
        CHECK(memcmp(piece, found, STEP) == 0);
    }
    OK(diorite_file_close(reader));
    OK(diorite_file_close(writer));
    OK(diorite_host_open_uncached(path, O_RDONLY, &reader));
    for (int step = 0; step < STEPS; step++) {
        memset(piece, step, STEP);
        IS(STEP, diorite_read(reader, found, STEP));
        CHECK(memcmp(piece, found, STEP) == 0);
    }
    IS(0, diorite_read(reader, found, STEP));
    FAILS(EBADF, "writing", diorite_write(reader, found, STEP));
    CHECK(diorite_direct_refusal(reader, why, sizeof why) == (int64_t)strlen(why));
    OK(diorite_file_close(reader));
    OK(diorite_host_open_uncached("/proc/version", O_RDONLY, &reader));
    CHECK(diorite_direct_refusal(reader, why, sizeof why) > 0 && strlen(why) > 0);
    OK(diorite_file_close(reader));
    FAILS(EINVAL, "direct I/O", diorite_host_open("/proc/version", O_RDONLY | O_DIRECT, &reader));
}

static void host_and_raw(const char *image, const char *path)
{
    diorite_file *host, *raw;
    diorite_attributes is;
    unsigned char block[2048], magic[2];

    OK(diorite_host_open(path, O_RDWR | O_CREAT | O_EXCL, &host));
    IS(6, diorite_pwrite(host, "cached", 6, 5000));
    OK(diorite_fstat(host, &is));
    IS(5006, diorite_size(host));
    OK(diorite_file_close(host)); /* writes back */
    FAILS(EEXIST, path, diorite_host_open(path, O_RDWR | O_CREAT | O_EXCL, &host));
    FAILS(EISDIR, "/tmp", diorite_host_open("/tmp", O_RDONLY, &host));
    FAILS(EISDIR, "/tmp", diorite_host_open("/tmp", O_RDWR | O_CREAT, &host));
    int descriptor = open(path, O_RDONLY);
    IS(6, pread(descriptor, block, 20, 5000));
    CHECK(memcmp(block, "cached", 6) == 0);
    close(descriptor);

    OK(diorite_raw_open(image, O_RDONLY, &raw));
    IS(2, diorite_pread(raw, magic, 2, 1024 + 56));
    CHECK(magic[0] == 0x53 && magic[1] == 0xef);
    FAILS(EBADF, "writing", diorite_pwrite(raw, magic, 2, 0));
    OK(diorite_file_close(raw));
    FAILS(EINVAL, "created", diorite_raw_open(image, O_RDWR | O_CREAT, &raw));
    FAILS(ENOENT, "/nowhere", diorite_raw_open("/nowhere", O_RDONLY, &raw));
    FAILS(EINVAL, "UTF-8", diorite_raw_open("\xff", O_RDONLY, &raw));
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    CHECK(argc == 3);
    OK(diorite_filesystem_create(argv[1], 64 << 20, NULL, NULL, &fs));
    OK(diorite_file_open(fs, "/data", O_RDWR | O_CREAT | O_DIRECT, 0644, &file));
    OK(diorite_queue_open(2, 0, &shared_queue));
    for (uintptr_t number = 0; number < THREADS; number++)
        OK(pthread_create(&threads[number], NULL, work, (void *)number));
    for (int number = 0; number < THREADS; number++)
        OK(pthread_join(threads[number], NULL));
    diorite_queue_close(shared_queue);
    OK(diorite_file_close(file));
    OK(diorite_filesystem_close(fs));
    host_and_raw(argv[1], argv[2]);
    uncached(argv[2]);
    return 0;
}
