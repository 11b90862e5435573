/*
 * Copy a file out of an image to standard output.
 *
 *     cc copy_out.c $(pkg-config --cflags --libs diorite) && ./a.out disk.img /photos/a.raw > a.raw
 */
#include <diorite.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, diorite_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static char memory[1 << 20];
    diorite_options options = {.size = sizeof options, .flags = DIORITE_READ_ONLY};
    diorite_filesystem *filesystem;
    diorite_file *file;
    int64_t len;

    if (argc != 3) {
        fprintf(stderr, "usage: %s IMAGE FILE\n", argv[0]);
        return 2;
    }
    check(diorite_filesystem_open(argv[1], &options, &filesystem), "image");
    check(diorite_file_open(filesystem, argv[2], O_RDONLY, 0, &file), "file");
    while ((len = diorite_read(file, memory, sizeof memory)) > 0) {
        if (fwrite(memory, 1, (size_t)len, stdout) != (size_t)len) {
            perror("standard output");
            return 1;
        }
    }
    check(len, "read");
    check(diorite_file_close(file), "close");
    check(diorite_filesystem_close(filesystem), "close");
    if (fflush(stdout) != 0) {
        perror("standard output");
        return 1;
    }
    return 0;
}
