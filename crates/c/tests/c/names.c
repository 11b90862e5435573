/* Names, attributes, extended attributes and listings, on a new volume. Arguments: IMAGE. */
#include "check.h"
#include <dirent.h>

static void links_and_attributes(diorite_filesystem *fs)
{
    diorite_attributes is;
    char text[64];
    diorite_file *file;

    OK(diorite_mkdir(fs, "/d", 0750));
    OK(diorite_file_open(fs, "/d/a", O_WRONLY | O_CREAT | O_EXCL, 0640, &file));
    IS(5, diorite_pwrite(file, "hello", 5, 0));
    OK(diorite_file_close(file));
    OK(diorite_stat(fs, "/d/a", 0, &is));
    CHECK(S_ISREG(is.mode) && (is.mode & 07777) == 0640 && is.size == 5 && is.links == 1 && is.uid == 0);
    CHECK(is.created.seconds > 1600000000 && is.created.nanoseconds < 1000000000);
    OK(diorite_link(fs, "/d/a", "/b"));
    OK(diorite_symlink(fs, "d/a", "/s"));
    OK(diorite_stat(fs, "/s", 0, &is));
    CHECK(S_ISREG(is.mode) && is.links == 2);
    OK(diorite_stat(fs, "/s", DIORITE_NOFOLLOW, &is));
    CHECK(S_ISLNK(is.mode));
    IS(3, diorite_readlink(fs, "/s", text, sizeof text));
    CHECK(memcmp(text, "d/a", 3) == 0);
    IS(2, diorite_readlink(fs, "/s", text, 2));
    FAILS(EINVAL, "not a symbolic link", diorite_readlink(fs, "/b", text, 2));

    OK(diorite_chmod(fs, "/b", 04711));
    OK(diorite_chown(fs, "/s", 1000, UINT32_MAX, 0));
    OK(diorite_chown(fs, "/s", 7, 8, DIORITE_NOFOLLOW));
    OK(diorite_stat(fs, "/d/a", 0, &is));
    CHECK((is.mode & 07777) == 0711 && is.uid == 1000 && is.gid == 0);
    OK(diorite_stat(fs, "/s", DIORITE_NOFOLLOW, &is));
    CHECK(is.uid == 7 && is.gid == 8);

    diorite_time times[2] = {{.seconds = -5, .nanoseconds = 999999999}, {.seconds = 0, .nanoseconds = DIORITE_TIME_OMIT}};
    OK(diorite_stat(fs, "/b", 0, &is));
    diorite_time before = is.modified;
    OK(diorite_utimens(fs, "/b", times, 0));
    OK(diorite_stat(fs, "/b", 0, &is));
    CHECK(is.accessed.seconds == -5 && is.accessed.nanoseconds == 999999999);
    CHECK(is.modified.seconds == before.seconds && is.modified.nanoseconds == before.nanoseconds);
    times[0].nanoseconds = 1000000000;
    FAILS(EINVAL, "nanoseconds", diorite_utimens(fs, "/b", times, 0));
    OK(diorite_utimens(fs, "/b", NULL, 0));
    OK(diorite_utimens(fs, "/s", NULL, DIORITE_NOFOLLOW));
    OK(diorite_truncate(fs, "/b", 3));
    OK(diorite_fsync_path(fs, "/b"));
    OK(diorite_fsync_path(fs, "/d"));
    FAILS(ENOENT, "/none", diorite_fsync_path(fs, "/none"));
    OK(diorite_stat(fs, "/b", 0, &is));
    CHECK(is.size == 3);
    FAILS(EINVAL, "DIORITE_NOFOLLOW", diorite_stat(fs, "/b", 1, &is));
}

static void renames(diorite_filesystem *fs)
{
    diorite_attributes is;

    FAILS(EEXIST, "/d", diorite_rename(fs, "/b", "/d", DIORITE_RENAME_NOREPLACE));
    OK(diorite_rename(fs, "/b", "/d/b", 0));
    OK(diorite_rename(fs, "/s", "/d", DIORITE_RENAME_EXCHANGE));
    OK(diorite_stat(fs, "/d", DIORITE_NOFOLLOW, &is));
    CHECK(S_ISLNK(is.mode));
    OK(diorite_rename(fs, "/d", "/s", DIORITE_RENAME_EXCHANGE));
    FAILS(EINVAL, "DIORITE_RENAME", diorite_rename(fs, "/d", "/s", 3));
    FAILS(ENOTEMPTY, "/d", diorite_rmdir(fs, "/d"));
    FAILS(EISDIR, "/d", diorite_unlink(fs, "/d"));
    FAILS(ENOTDIR, "/d/b", diorite_rmdir(fs, "/d/b"));
    OK(diorite_unlink(fs, "/d/b"));
    FAILS(ENOENT, "/d/b", diorite_unlink(fs, "/d/b"));
    CHECK(diorite_error_kind() == DIORITE_KIND_NOT_FOUND);
    FAILS(EBUSY, "root", diorite_rmdir(fs, "/"));
    FAILS(EINVAL, "", diorite_rename(fs, "/d", "/d/below", 0));
}

static void attributes(diorite_filesystem *fs)
{
    char value[16], names[64];

    FAILS(ENODATA, "/d/a", diorite_getxattr(fs, "/d/a", "user.k", value, sizeof value, 0));
    CHECK(diorite_error_kind() == DIORITE_KIND_NO_ATTRIBUTE);
    OK(diorite_setxattr(fs, "/d/a", "user.k", "va\0ue", 5, DIORITE_XATTR_CREATE));
    FAILS(EEXIST, "/d/a", diorite_setxattr(fs, "/d/a", "user.k", "x", 1, DIORITE_XATTR_CREATE));
    FAILS(ENODATA, "", diorite_setxattr(fs, "/d/a", "user.none", "x", 1, DIORITE_XATTR_REPLACE));
    OK(diorite_setxattr(fs, "/d/a", "user.empty", NULL, 0, 0));
    IS(5, diorite_getxattr(fs, "/d/a", "user.k", NULL, 0, 0));
    IS(5, diorite_getxattr(fs, "/s", "user.k", value, 5, 0)); /* through the link */
    CHECK(memcmp(value, "va\0ue", 5) == 0);
    FAILS(ERANGE, "too small", diorite_getxattr(fs, "/d/a", "user.k", value, 4, 0));
    IS(0, diorite_getxattr(fs, "/d/a", "user.empty", value, 4, 0));
    IS(7 + 11, diorite_listxattr(fs, "/d/a", NULL, 0, 0));
    IS(7 + 11, diorite_listxattr(fs, "/d/a", names, sizeof names, 0));
    CHECK(names[6] == 0 || names[10] == 0);
    IS(0, diorite_listxattr(fs, "/s", names, sizeof names, DIORITE_NOFOLLOW));
    OK(diorite_removexattr(fs, "/d/a", "user.empty", 0));
    FAILS(ENODATA, "/d/a", diorite_removexattr(fs, "/d/a", "user.empty", 0));
    FAILS(ENODATA, "/s", diorite_getxattr(fs, "/s", "user.k", value, 5, DIORITE_NOFOLLOW));
}

/* Names are bytes: not UTF-8, and of the largest length. */
static void bytes(diorite_filesystem *fs)
{
    char path[300];
    diorite_dir *dir;
    diorite_entry entry;
    diorite_file *file;
    int seen = 0, many = 0;

    OK(diorite_mkdir(fs, "/\xff\xfe\x80", 0755));
    OK(diorite_file_open(fs, "/\xff\xfe\x80/\xe9t\xe9\n", O_RDWR | O_CREAT, 0600, &file));
    OK(diorite_file_close(file));
    FAILS(EEXIST, "\\n", diorite_file_open(fs, "/\xff\xfe\x80/\xe9t\xe9\n", O_RDWR | O_CREAT | O_EXCL, 0600, &file));
    CHECK(file == NULL);
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[257] = 0; /* a name of 256 bytes */
    FAILS(ENAMETOOLONG, "", diorite_mkdir(fs, path, 0755));
    path[256] = 0;
    OK(diorite_mkdir(fs, path, 0755));
    OK(diorite_opendir(fs, "/\xff\xfe\x80", &dir));
    IS(1, diorite_readdir(dir, &entry));
    CHECK(entry.name_len == 4 && strcmp(entry.name, "\xe9t\xe9\n") == 0 && entry.kind == DT_REG && entry.inode > 10);
    IS(0, diorite_readdir(dir, &entry));
    IS(0, diorite_readdir(dir, &entry));
    diorite_closedir(dir);

    OK(diorite_mkdir(fs, "/many", 0755));
    for (int number = 0; number < 1000; number++) {
        snprintf(path, sizeof path, "/many/name %d", number);
        OK(diorite_mkdir(fs, path, 0755));
    }
    OK(diorite_opendir(fs, "/many", &dir));
    while ((seen = diorite_readdir(dir, &entry)) == 1) {
        CHECK(entry.kind == DT_DIR && strncmp(entry.name, "name ", 5) == 0 && entry.name[entry.name_len] == 0);
        many++;
    }
    IS(0, seen);
    IS(1000, many);
    /* An open listing keeps the filesystem open. */
    FAILS(EBUSY, "in use", diorite_filesystem_close(fs));
    diorite_closedir(dir);
    FAILS(ENOTDIR, "/d/a", diorite_opendir(fs, "/d/a", &dir));
    FAILS(ENOENT, "/none", diorite_opendir(fs, "/none", &dir));
    CHECK(dir == NULL);
}

int main(int argc, char **argv)
{
    diorite_mkfs_options how = {.size = sizeof how, .ext = 4, .label = "c names", .block_size = 1024};
    diorite_filesystem *fs;
    diorite_space space;
    char reason[100];

    CHECK(argc == 2);
    OK(diorite_filesystem_create(argv[1], 64 << 20, &how, NULL, &fs));
    OK(diorite_statfs(fs, &space));
    CHECK(space.block_size == 1024 && space.blocks_free > 40000 && space.blocks_available < space.blocks_free);
    IS(0, diorite_read_only_reason(fs, reason, sizeof reason));
    CHECK(reason[0] == 0);
    IS(0, diorite_defects(fs, NULL, 0));
    links_and_attributes(fs);
    renames(fs);
    attributes(fs);
    bytes(fs);
    OK(diorite_sync(fs));
    OK(diorite_filesystem_close(fs));

    diorite_options read_only = {.size = sizeof read_only, .flags = DIORITE_READ_ONLY};
    OK(diorite_filesystem_open(argv[1], &read_only, &fs));
    CHECK(diorite_read_only_reason(fs, reason, sizeof reason) > 0 && reason[0] != 0);
    FAILS(EROFS, "/new", diorite_mkdir(fs, "/new", 0755));
    CHECK(diorite_error_kind() == DIORITE_KIND_READ_ONLY);
    OK(diorite_filesystem_close(fs));
    return 0;
}
