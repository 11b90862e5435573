/* A program that exits without a close, with transfers in flight and a running thread. Arguments: IMAGE. */
#include "check.h"
#include <pthread.h>

static diorite_file *file;

static void *work(void *argument)
{
    (void)argument;
    static char memory[4096];
    for (uint64_t round = 0;; round++)
        diorite_pwrite(file, memory, sizeof memory, round % 1024 * 4096);
    return NULL;
}

int main(int argc, char **argv)
{
    diorite_filesystem *fs;
    diorite_file *direct;
    diorite_queue *queue;
    pthread_t thread;
    void *memory;

    CHECK(argc == 2);
    OK(diorite_filesystem_create(argv[1], 64 << 20, NULL, NULL, &fs));
    OK(diorite_file_open(fs, "/buffered", O_RDWR | O_CREAT, 0644, &file));
    OK(diorite_file_open(fs, "/direct", O_RDWR | O_CREAT | O_DIRECT, 0644, &direct));
    OK(diorite_sync(fs));
    OK(pthread_create(&thread, NULL, work, NULL));
    OK(diorite_queue_open(8, 0, &queue));
    OK(diorite_buffer_allocate(direct, 8 * 4096, &memory));
    for (uint64_t tag = 0; tag < 8; tag++)
        OK(diorite_queue_write(queue, direct, (char *)memory + tag * 4096, 4096, tag * 4096, tag));
    OK(diorite_queue_issue(queue));
    return 0;
}
