/* Open an image for writing, which replays its journal, and close it. Arguments: IMAGE. */
#include "check.h"

int main(int argc, char **argv)
{
    diorite_filesystem *fs;
    diorite_attributes is;

    CHECK(argc == 2);
    OK(diorite_filesystem_open(argv[1], NULL, &fs));
    OK(diorite_stat(fs, "/buffered", 0, &is));
    OK(diorite_filesystem_close(fs));
    return 0;
}
