/* Use an NBD export whose connection is lost while the program waits for a line. SIGPIPE has its default action. Arguments: TARGET. */
#include "check.h"

#include <signal.h>

int main(int argc, char **argv)
{
    static unsigned char memory[4096];
    diorite_file *file;

    CHECK(argc == 2);
    CHECK(signal(SIGPIPE, SIG_DFL) == SIG_DFL);
    OK(diorite_raw_open(argv[1], O_RDWR, &file));
    IS(sizeof memory, diorite_pread(file, memory, sizeof memory, 0));
    puts("read");
    fflush(stdout);
    CHECK(getchar() == '\n');
    IS(sizeof memory, diorite_pread(file, memory, sizeof memory, 1 << 20));
    IS(sizeof memory, diorite_pwrite(file, memory, sizeof memory, 1 << 20));
    OK(diorite_file_close(file));
    return 0;
}
