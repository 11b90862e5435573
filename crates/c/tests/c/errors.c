/* Errors of the program, and of a full volume. Arguments: IMAGE, and a directory for other files. */
#include "check.h"

static void null_pointers(diorite_filesystem *fs, diorite_file *file)
{
    diorite_filesystem *none;
    diorite_file *no_file;
    diorite_dir *no_dir;
    diorite_attributes is;
    diorite_space space;
    diorite_counters counters;
    char text[8];
    uint64_t at;

    FAILS(EINVAL, "target", diorite_filesystem_open(NULL, NULL, &none));
    CHECK(none == NULL);
    FAILS(EINVAL, "filesystem", diorite_filesystem_open("x", NULL, NULL));
    FAILS(EINVAL, "path", diorite_filesystem_create(NULL, 1 << 20, NULL, NULL, &none));
    FAILS(EINVAL, "target", diorite_mkfs(NULL, NULL));
    FAILS(EINVAL, "filesystem", diorite_filesystem_close(NULL));
    FAILS(EINVAL, "filesystem", diorite_sync(NULL));
    FAILS(EINVAL, "space", diorite_statfs(fs, NULL));
    FAILS(EINVAL, "filesystem", diorite_statfs(NULL, &space));
    FAILS(EFAULT, "NULL", diorite_read_only_reason(fs, NULL, 5));
    FAILS(EINVAL, "filesystem", diorite_read_only_reason(NULL, text, sizeof text));
    FAILS(EINVAL, "counters", diorite_filesystem_counters(fs, NULL));
    FAILS(EINVAL, "file", diorite_file_counters(NULL, &counters));
    FAILS(EINVAL, "path", diorite_stat(fs, NULL, 0, &is));
    FAILS(EINVAL, "attributes", diorite_stat(fs, "/", 0, NULL));
    FAILS(EINVAL, "filesystem", diorite_stat(NULL, "/", 0, &is));
    FAILS(EINVAL, "path", diorite_mkdir(fs, NULL, 0755));
    FAILS(EINVAL, "to", diorite_rename(fs, "/a", NULL, 0));
    FAILS(EINVAL, "link", diorite_symlink(fs, "/a", NULL));
    FAILS(EFAULT, "NULL", diorite_readlink(fs, "/a", NULL, 8));
    FAILS(EINVAL, "0", diorite_readlink(fs, "/a", text, 0));
    FAILS(EINVAL, "name", diorite_getxattr(fs, "/", NULL, text, sizeof text, 0));
    FAILS(EFAULT, "NULL", diorite_setxattr(fs, "/", "user.a", NULL, 5, 0));
    FAILS(EINVAL, "dir", diorite_opendir(fs, "/", NULL));
    FAILS(EINVAL, "path", diorite_opendir(fs, NULL, &no_dir));
    FAILS(EINVAL, "entry", diorite_readdir(NULL, NULL));
    FAILS(EINVAL, "file", diorite_file_open(fs, "/a", O_RDONLY, 0, NULL));
    FAILS(EINVAL, "filesystem", diorite_file_open(NULL, "/a", O_RDONLY, 0, &no_file));
    FAILS(EINVAL, "file", diorite_file_close(NULL));
    FAILS(EINVAL, "file", diorite_pread(NULL, text, sizeof text, 0));
    FAILS(EFAULT, "NULL", diorite_pread(file, NULL, 1, 0));
    FAILS(EFAULT, "NULL", diorite_pwrite(file, NULL, 1, 0));
    FAILS(EINVAL, "memory", diorite_pwrite(file, text, SIZE_MAX, 0));
    IS(0, diorite_pread(file, NULL, 0, 0));
    FAILS(EINVAL, "file", diorite_append(NULL, text, 1, &at));
    FAILS(EINVAL, "file", diorite_fsync(NULL));
    FAILS(EINVAL, "alignment", diorite_get_alignment(file, NULL));
    FAILS(EINVAL, "memory", diorite_buffer_allocate(file, 4096, NULL));
    diorite_closedir(NULL);
}

/* Extreme numbers are errors, not crashes. */
static void extremes(diorite_filesystem *fs, diorite_file *file)
{
    char text[8] = "12345678";
    void *memory;

    IS(0, diorite_pread(file, text, 8, UINT64_MAX));
    IS(0, diorite_pread(file, text, 8, UINT64_MAX - 4));
    FAILS(EFBIG, "", diorite_pwrite(file, text, 8, UINT64_MAX));
    FAILS(EFBIG, "", diorite_pwrite(file, text, 8, UINT64_MAX - 8));
    FAILS(EFBIG, "", diorite_pwrite(file, text, 8, INT64_MAX));
    FAILS(EFBIG, "", diorite_ftruncate(file, UINT64_MAX));
    FAILS(EFBIG, "", diorite_fallocate(file, 0, 0, INT64_MAX));
    OK(diorite_fallocate(file, DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE, UINT64_MAX - 1, 1));
    OK(diorite_drop_cached(file, UINT64_MAX, UINT64_MAX));
    FAILS(ENXIO, "", diorite_seek_data(file, UINT64_MAX));
    FAILS(ENXIO, "", diorite_seek_hole(file, UINT64_MAX));
    FAILS(EINVAL, "before", diorite_seek(file, -1, SEEK_SET));
    FAILS(EINVAL, "", diorite_seek(file, INT64_MIN, SEEK_CUR));
    FAILS(EINVAL, "SEEK_SET", diorite_seek(file, 0, 77));
    CHECK(diorite_buffer_allocate(file, SIZE_MAX, &memory) < 0 && memory == NULL);
    CHECK(diorite_buffer_allocate(file, (size_t)1 << 60, &memory) < 0 && memory == NULL);
    CHECK(diorite_buffer_allocate(NULL, SIZE_MAX / 2, &memory) < 0 && memory == NULL);
    FAILS(EINVAL, "byte", diorite_buffer_allocate(file, 0, &memory));
    OK(diorite_chmod(fs, "/file", S_IFREG | 0640)); /* a mode from st_mode */
    FAILS(ENOENT, "empty", diorite_symlink(fs, "", "/link"));
    CHECK(diorite_trim(fs, UINT64_MAX) < 0);
}

static void options(const char *directory)
{
    diorite_filesystem *fs;
    void *memory;
    diorite_mkfs_options how = {.size = sizeof how};
    char path[500], long_label[] = "more than sixteen bytes";
    struct {
        diorite_options known;
        uint64_t unknown;
    } newer = {.known = {.size = sizeof newer}};

    snprintf(path, sizeof path, "%s/options.img", directory);
    diorite_options bad = {.size = 3};
    FAILS(EINVAL, "size", diorite_filesystem_create(path, 8 << 20, NULL, &bad, &fs));
    bad = (diorite_options){.size = SIZE_MAX};
    FAILS(E2BIG, "size", diorite_filesystem_create(path, 8 << 20, NULL, &bad, &fs));
    bad = (diorite_options){.size = sizeof bad, .flags = 1u << 31};
    FAILS(EINVAL, "flag", diorite_filesystem_create(path, 8 << 20, NULL, &bad, &fs));
    bad = (diorite_options){.size = sizeof bad, .scheduler = "elevator"};
    FAILS(EINVAL, "deadline", diorite_filesystem_create(path, 8 << 20, NULL, &bad, &fs));
    bad = (diorite_options){.size = sizeof bad, .direct = 9};
    FAILS(EINVAL, "DIORITE_DIRECT", diorite_filesystem_create(path, 8 << 20, NULL, &bad, &fs));
    how.label = long_label;
    FAILS(EINVAL, "label", diorite_filesystem_create(path, 8 << 20, &how, NULL, &fs));
    how = (diorite_mkfs_options){.size = sizeof how, .ext = 5};
    FAILS(EINVAL, "ext", diorite_filesystem_create(path, 8 << 20, &how, NULL, &fs));
    how = (diorite_mkfs_options){.size = sizeof how, .features = "no_such_feature"};
    FAILS(EINVAL, "no_such_feature", diorite_filesystem_create(path, 8 << 20, &how, NULL, &fs));
    how = (diorite_mkfs_options){.size = sizeof how, .block_size = 1000};
    FAILS(EINVAL, "1000", diorite_filesystem_create(path, 8 << 20, &how, NULL, &fs));
    CHECK(access(path, F_OK) != 0);

    /* A program of a later version: new fields must be zero. */
    newer.unknown = 1;
    FAILS(E2BIG, "version", diorite_filesystem_create(path, 8 << 20, NULL, &newer.known, &fs));
    newer.unknown = 0;
    newer.known.scheduler = "cfq";
    newer.known.cache_bytes = 1 << 20;
    newer.known.flags = DIORITE_NO_READ_AHEAD;
    OK(diorite_filesystem_create(path, 8 << 20, NULL, &newer.known, &fs));
    OK(diorite_mkdir(fs, "/d", 0700));
    OK(diorite_filesystem_close(fs));
    /* A program of an earlier version has only the first fields. */
    diorite_options older = {.size = offsetof(diorite_options, direct), .flags = DIORITE_READ_ONLY, .direct = 99};
    OK(diorite_filesystem_open(path, &older, &fs));
    FAILS(EROFS, "/e", diorite_mkdir(fs, "/e", 0700));
    OK(diorite_filesystem_close(fs));

    FAILS(EEXIST, path, diorite_filesystem_create(path, 8 << 20, NULL, NULL, &fs));
    FAILS(EEXIST, "DIORITE_MKFS_OVERWRITE", diorite_mkfs(path, NULL));
    how = (diorite_mkfs_options){.size = sizeof how, .flags = DIORITE_MKFS_OVERWRITE, .ext = 2, .reserved_permille = UINT32_MAX};
    OK(diorite_mkfs(path, &how));
    OK(diorite_filesystem_open(path, NULL, &fs));
    FAILS(EBUSY, path, diorite_mkfs(path, &how)); /* open */
    FAILS(ENOMEM, "memory", diorite_buffer_allocate(NULL, SIZE_MAX, &memory));
    FAILS(ENOMEM, "memory", diorite_buffer_allocate(NULL, SIZE_MAX / 2, &memory));
    OK(diorite_filesystem_close(fs));
    FAILS(ENOENT, "none.img", diorite_filesystem_open("none.img", NULL, &fs));
    FAILS(EUCLEAN, "", diorite_filesystem_open("/etc/services", &older, &fs));
}

static void flags_of_open(diorite_filesystem *fs)
{
    diorite_file *file;
    char text[8];

    FAILS(EINVAL, "O_RDONLY", diorite_file_open(fs, "/file", O_ACCMODE, 0, &file));
    FAILS(EINVAL, "flag", diorite_file_open(fs, "/file", O_RDONLY | O_DIRECTORY, 0, &file));
    FAILS(EINVAL, "O_CREAT", diorite_file_open(fs, "/file", O_RDWR | O_EXCL, 0, &file));
    FAILS(EINVAL, "", diorite_file_open(fs, "/file", O_RDONLY | O_TRUNC, 0, &file));
    FAILS(EINVAL, "flag", diorite_file_open(fs, "/file", O_RDWR | 1 << 30, 0, &file));
    FAILS(EEXIST, "/file", diorite_file_open(fs, "/file", O_RDWR | O_CREAT | O_EXCL, 0644, &file));
    FAILS(EISDIR, "/", diorite_file_open(fs, "/", O_RDONLY, 0, &file));
    FAILS(ENOENT, "/no/file", diorite_file_open(fs, "/no/file", O_RDWR | O_CREAT, 0644, &file));
    FAILS(ENOTDIR, "/file/x", diorite_file_open(fs, "/file/x", O_RDWR | O_CREAT, 0644, &file));
    FAILS(ENOENT, "", diorite_file_open(fs, "", O_RDONLY, 0, &file));
    OK(diorite_symlink(fs, "loop", "/loop"));
    FAILS(ELOOP, "/loop", diorite_file_open(fs, "/loop", O_RDONLY, 0, &file));
    CHECK(file == NULL);

    OK(diorite_file_open(fs, "/log", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600, &file));
    IS(3, diorite_write(file, "one", 3));
    IS(0, diorite_seek(file, 0, SEEK_SET));
    IS(3, diorite_write(file, "two", 3));
    uint64_t at = 0;
    OK(diorite_append(file, "X", 1, &at));
    IS(6, (int64_t)at);
    IS(1, diorite_pwrite(file, "O", 1, 0));
    IS(0, diorite_seek(file, 0, SEEK_SET));
    IS(7, diorite_read(file, text, sizeof text));
    CHECK(memcmp(text, "OnetwoX", 7) == 0);
    IS(0, diorite_read(file, text, sizeof text));
    IS(5, diorite_seek(file, -2, SEEK_END));
    OK(diorite_file_close(file));
    OK(diorite_file_open(fs, "/log", O_WRONLY | O_TRUNC | O_APPEND, 0, &file));
    IS(0, diorite_size(file));
    FAILS(EBADF, "reading", diorite_pread(file, text, 1, 0));
    FAILS(EBADF, "reading", diorite_read(file, text, 1));
    CHECK(diorite_error_kind() == DIORITE_KIND_NOT_OPEN);
    OK(diorite_file_close(file));
}

static void full_volume(diorite_filesystem *fs)
{
    static char memory[1 << 20];
    diorite_file *file, *direct;
    diorite_queue *queue;
    diorite_completion done;
    void *aligned;
    int64_t len, total = 0;

    OK(diorite_file_open(fs, "/large", O_WRONLY | O_CREAT, 0644, &file));
    while ((len = diorite_pwrite(file, memory, sizeof memory, (uint64_t)total)) > 0)
        total += len;
    IS(-ENOSPC, len);
    CHECK(diorite_error_kind() == DIORITE_KIND_STORAGE_FULL && strstr(diorite_error_message(), "/large") != NULL);
    FAILS(ENOSPC, "/large", diorite_fallocate(file, 0, (uint64_t)total, 8 << 20));
    OK(diorite_fsync(file));
    OK(diorite_file_open(fs, "/direct", O_WRONLY | O_CREAT | O_DIRECT, 0644, &direct));
    OK(diorite_buffer_allocate(direct, 1 << 20, &aligned));
    len = diorite_pwrite(direct, aligned, 1 << 20, 1 << 20);
    CHECK(len == -ENOSPC);
    OK(diorite_queue_open(4, 0, &queue));
    len = diorite_queue_write(queue, direct, aligned, 1 << 20, 1 << 20, 5);
    CHECK(len == -ENOSPC || (len == 0 && diorite_queue_reap(queue, 1, &done, 1) == 1 && done.result == -ENOSPC));
    diorite_queue_close(queue);
    OK(diorite_buffer_free(aligned));
    OK(diorite_file_close(direct));
    OK(diorite_file_close(file));
    OK(diorite_unlink(fs, "/large"));
}

/* The last error belongs to the thread, and a success does not change it. */
static void messages(diorite_filesystem *fs)
{
    diorite_attributes is;

    FAILS(ENOENT, "/none", diorite_stat(fs, "/none", 0, &is));
    const char *message = diorite_error_message();
    CHECK(message == diorite_error_message());
    OK(diorite_stat(fs, "/", 0, &is));
    CHECK(strstr(diorite_error_message(), "/none") != NULL && diorite_error_kind() == DIORITE_KIND_NOT_FOUND);
    CHECK(strncmp(diorite_version(), "0.", 2) == 0);
}

int main(int argc, char **argv)
{
    diorite_filesystem *fs;
    diorite_file *file;

    CHECK(argc == 3);
    CHECK(diorite_error_kind() == DIORITE_KIND_NONE && strcmp(diorite_error_message(), "") == 0);
    OK(diorite_filesystem_create(argv[1], 16 << 20, NULL, NULL, &fs));
    OK(diorite_file_open(fs, "/file", O_RDWR | O_CREAT, 0644, &file));
    IS(16, diorite_pwrite(file, "0123456789abcdef", 16, 0));
    null_pointers(fs, file);
    extremes(fs, file);
    IS(16, diorite_size(file));
    FAILS(EBUSY, "in use", diorite_filesystem_close(fs));
    OK(diorite_file_close(file));
    flags_of_open(fs);
    messages(fs);
    full_volume(fs);
    OK(diorite_filesystem_close(fs));
    options(argv[2]);
    return 0;
}
