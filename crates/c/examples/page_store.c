/*
 * A store of 4 KiB pages with its own cache, over direct I/O to one O_DSYNC file.
 *
 *     cc page_store.c $(pkg-config --cflags --libs diorite) && ./a.out disk.img
 */
#define _GNU_SOURCE
#include <diorite.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 4096, PAGES = 256 };

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, diorite_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    diorite_filesystem *filesystem;
    diorite_file *file;
    diorite_counters counters;
    void *memory;

    if (argc != 2) {
        fprintf(stderr, "usage: %s NEW_IMAGE\n", argv[0]);
        return 2;
    }
    check(diorite_filesystem_create(argv[1], 64 << 20, NULL, NULL, &filesystem), "create");
    /* Each write is durable when it returns: data and, if the file grows, size and mapping. */
    check(diorite_file_open(filesystem, "/pages", O_RDWR | O_CREAT | O_DIRECT | O_DSYNC, 0644, &file), "open");
    /* Allocate blocks for all pages now, so no later write can fail with ENOSPC. */
    check(diorite_fallocate(file, 0, 0, (uint64_t)PAGES * PAGE_BYTES), "allocate");

    check(diorite_buffer_allocate(file, PAGE_BYTES, &memory), "memory");
    unsigned char *page = memory;
    for (unsigned number = 0; number < PAGES; number++) {
        memset(page, (int)number, PAGE_BYTES);
        check(diorite_pwrite(file, page, PAGE_BYTES, (uint64_t)number * PAGE_BYTES), "write");
    }
    for (unsigned number = PAGES; number-- > 0;) {
        check(diorite_pread(file, page, PAGE_BYTES, (uint64_t)number * PAGE_BYTES), "read");
        if (page[0] != (unsigned char)number || page[PAGE_BYTES - 1] != (unsigned char)number) {
            fprintf(stderr, "page %u has the wrong content\n", number);
            return 1;
        }
    }
    check(diorite_filesystem_counters(filesystem, &counters), "counters");
    printf("%d pages written and read: %" PRIu64 " bytes written, %" PRIu64 " read, %" PRIu64 " copied by the CPU\n",
           PAGES, counters.direct_write_bytes, counters.direct_read_bytes, counters.bytes_copied);

    check(diorite_buffer_free(page), "free");
    check(diorite_file_close(file), "close");
    check(diorite_filesystem_close(filesystem), "close");
    return counters.bytes_copied == 0 ? 0 : 1;
}
