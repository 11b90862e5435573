/*
 * libdiorite: files on ext2, ext3 and ext4 images and disks without a mount, and direct I/O that
 * moves data straight between a disk and the application's memory. Linux only.
 *
 * - Functions return 0 or a count, and a negative error number if they fail: -ENOENT.
 *   diorite_error_message() says more.
 * - Handles come from a function that opens something and go with the one that closes it. A NULL
 *   handle is -EINVAL where nothing else is said. A handle that was closed must not be used again.
 * - Memory and strings belong to the caller, and are used during the call only, but for transfers
 *   of a queue. NULL memory is -EFAULT.
 * - Sizes and offsets are bytes.
 * - After a fork the child must not use what the parent opened. Do not unload the library.
 *
 * - Define _GNU_SOURCE before the first include for O_DIRECT (fcntl.h). Nothing else here needs a
 *   feature macro: C99 or C++11 do.
 *
 * This file is made of the sources in crates/c/src; change those.
 */
#ifndef DIORITE_H
#define DIORITE_H

/* The version of this header: DIORITE_VERSION >= DIORITE_MAKE_VERSION(0, 1, 0). diorite_version() says that of the library. */
#define DIORITE_VERSION_MAJOR 0
#define DIORITE_VERSION_MINOR 1
#define DIORITE_VERSION_PATCH 0
#define DIORITE_MAKE_VERSION(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define DIORITE_VERSION DIORITE_MAKE_VERSION(DIORITE_VERSION_MAJOR, DIORITE_VERSION_MINOR, DIORITE_VERSION_PATCH)

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif


/*
 * Errors
 * ------
 *
 * Functions return 0 or a count, and a negative error number (-ENOENT) if they fail. The last
 * failure of each thread has also a message and a kind. As with errno, a call that succeeds leaves
 * them as they are.
 */

/* What class of failure an error is, whatever its number. */
typedef enum {
    /* Nothing failed so far in this thread. */
    DIORITE_KIND_NONE = 0,
    /* No such file or directory (ENOENT). */
    DIORITE_KIND_NOT_FOUND = 1,
    /* No extended attribute of that name (ENODATA). */
    DIORITE_KIND_NO_ATTRIBUTE = 2,
    /* The name or attribute exists (EEXIST). */
    DIORITE_KIND_ALREADY_EXISTS = 3,
    /* A directory was needed (ENOTDIR). */
    DIORITE_KIND_NOT_A_DIRECTORY = 4,
    /* Anything but a directory was needed (EISDIR). */
    DIORITE_KIND_IS_A_DIRECTORY = 5,
    /* The directory has entries (ENOTEMPTY). */
    DIORITE_KIND_DIRECTORY_NOT_EMPTY = 6,
    /* No free block or inode (ENOSPC). */
    DIORITE_KIND_STORAGE_FULL = 7,
    /* A quota limit is reached (EDQUOT). */
    DIORITE_KIND_QUOTA_EXCEEDED = 8,
    /* The file cannot be that large (EFBIG). */
    DIORITE_KIND_FILE_TOO_LARGE = 9,
    /* The volume, the device or the file is read-only, or a write failed before (EROFS). */
    DIORITE_KIND_READ_ONLY = 10,
    /* Not permitted (EPERM, EACCES). */
    DIORITE_KIND_PERMISSION_DENIED = 11,
    /* The argument makes no sense for this object (EINVAL). */
    DIORITE_KIND_INVALID_INPUT = 12,
    /* A direct transfer is not aligned (EINVAL). */
    DIORITE_KIND_INVALID_ALIGNMENT = 13,
    /* Not available on this file, volume or device (EOPNOTSUPP). */
    DIORITE_KIND_UNSUPPORTED = 14,
    /* The volume contradicts itself, or is no volume (EUCLEAN). */
    DIORITE_KIND_CORRUPT = 15,
    /* In use, here or by another program or host (EBUSY). */
    DIORITE_KIND_BUSY = 16,
    /* The file ended early (EIO). */
    DIORITE_KIND_UNEXPECTED_END = 17,
    /* The content is not of the form that was asked for (EILSEQ). */
    DIORITE_KIND_INVALID_DATA = 18,
    /* A queue is full, or a call that must not wait would have to (EAGAIN). */
    DIORITE_KIND_WOULD_BLOCK = 19,
    /* Too many symbolic links (ELOOP). */
    DIORITE_KIND_FILESYSTEM_LOOP = 20,
    /* The file is not open for that (EBADF). */
    DIORITE_KIND_NOT_OPEN = 21,
    /* No hole or no data at or after the offset (ENXIO). */
    DIORITE_KIND_BEYOND_END = 22,
    /* The device failed, or the volume is shut down after such a failure (EIO). */
    DIORITE_KIND_IO = 23,
    /* None of these; the error number says which. */
    DIORITE_KIND_OTHER = 24,
    /* A bug of this library (ENOTRECOVERABLE). Do not use the handle any more but to close it. */
    DIORITE_KIND_BUG = 25,
} diorite_kind;

/*
 * One line about the last failure of this thread: the object, what happened, why, and what to do.
 * Empty if nothing failed. The string is valid until the next call of this thread into the library.
 */
const char *diorite_error_message(void);

/* The kind of the last failure of this thread. */
diorite_kind diorite_error_kind(void);

/* The version of the library that the program runs with: "0.1.0". */
const char *diorite_version(void);


/*
 * Filesystems
 * -----------
 *
 * A filesystem is an ext2, ext3 or ext4 volume: in an image, on a disk, on a part of one, or on the
 * export of an NBD server. It is used by this process alone: no mount, no root.
 *
 * A structure of options begins with its size, and zeros are defaults:
 *
 *     diorite_options options = {.size = sizeof options, .flags = DIORITE_READ_ONLY};
 *
 * Threads: all calls on a filesystem may run in many threads at once, but for
 * diorite_filesystem_close, which must be the last.
 */

/* Direct I/O: what is the default there. */
#define DIORITE_DIRECT_DEFAULT 0

/* Direct I/O: off, through the page cache. */
#define DIORITE_DIRECT_OFF 1

/* Direct I/O: where a transfer is aligned, else through the page cache. */
#define DIORITE_DIRECT_PREFERRED 2

/* Direct I/O: always, or an error that says why not. */
#define DIORITE_DIRECT_REQUIRED 3

/* Nothing is changed: the volume is open for reading. */
#define DIORITE_READ_ONLY 1

/* No read-ahead. */
#define DIORITE_NO_READ_AHEAD 2

/* Calls may use the blocks that are kept for the superuser (mke2fs -m). */
#define DIORITE_RESERVED_BLOCKS 4

/* The hard limits of the volume's quota files hold. */
#define DIORITE_QUOTA_LIMITS 8

/* The mode that the volume's superblock says. */
#define DIORITE_DATA_DEFAULT 0

/* data=ordered */
#define DIORITE_DATA_ORDERED 1

/* data=writeback */
#define DIORITE_DATA_WRITEBACK 2

/* data=journal: files are not open for direct I/O. */
#define DIORITE_DATA_JOURNAL 3

/* Whatever the device has on it is overwritten. */
#define DIORITE_MKFS_OVERWRITE 1

/* An open filesystem. */
typedef struct diorite_filesystem diorite_filesystem;

/* How to open a filesystem. All zeros but the size are the defaults. */
typedef struct {
    /* sizeof(diorite_options) */
    size_t size;
    /*
     * DIORITE_READ_ONLY, DIORITE_NO_READ_AHEAD, DIORITE_RESERVED_BLOCKS, DIORITE_QUOTA_LIMITS,
     * joined by |.
     */
    uint32_t flags;
    /* Whether files are open for direct I/O whose own flags do not say; DIORITE_DIRECT_OFF. */
    uint32_t direct;
    /*
     * Whether the image or device itself is opened past the host's page cache;
     * DIORITE_DIRECT_PREFERRED.
     */
    uint32_t device_direct;
    /* DIORITE_DATA_... */
    uint32_t data_mode;
    /*
     * Memory for cached file data in bytes; 64 MiB. An application with a cache of its own gives
     * little: 256 KiB at least.
     */
    uint64_t cache_bytes;
    /* Memory for cached metadata in bytes; 64 MiB. */
    uint64_t metadata_cache_bytes;
    /* Largest read-ahead in bytes; 8 MiB. */
    uint64_t read_ahead_bytes;
    /* Age in milliseconds at which changes of metadata become durable without a sync; 5000. */
    uint32_t commit_interval_ms;
    /* Age in milliseconds at which cached data is written back; 5000. */
    uint32_t dirty_age_ms;
    /*
     * I/O scheduler: "none", "deadline", "cfq", "inject". NULL: "inject" on a rotating disk, else
     * "none".
     */
    const char *scheduler;
} diorite_options;

/*
 * What a new filesystem is to be. All zeros but the size are the defaults, which are those of
 * mke2fs.
 */
typedef struct {
    /* sizeof(diorite_mkfs_options) */
    size_t size;
    /* DIORITE_MKFS_OVERWRITE */
    uint32_t flags;
    /* 2, 3 or 4, for ext2, ext3 and ext4; 4. */
    uint32_t ext;
    /* Block size in bytes: 1024 to 65536; by the size of the volume. */
    uint32_t block_size;
    /* Size of an inode in bytes; 256. */
    uint32_t inode_size;
    /* Bytes of the volume for each inode; by the size of the volume. */
    uint32_t bytes_per_inode;
    /* Number of inodes, instead. */
    uint32_t inodes;
    /* Size of the journal in blocks; by the size of the volume. */
    uint32_t journal_blocks;
    /* Owner of the root directory. */
    uint32_t root_uid;
    /* Group of the root directory. */
    uint32_t root_gid;
    /* Blocks kept for the superuser, in thousandths of all; 50. UINT32_MAX: none. */
    uint32_t reserved_permille;
    /* Label of at most 16 bytes, or NULL. */
    const char *label;
    /*
     * Features to add and, with ^, to leave out, as mke2fs -O takes them, or NULL:
     * "^has_journal,inline_data"
     */
    const char *features;
    /* 16 bytes, or NULL: random. */
    const uint8_t *uuid;
} diorite_mkfs_options;

/* Space and inodes. */
typedef struct {
    /* Block size in bytes. */
    uint64_t block_size;
    /* Blocks for files, without the filesystem's own. */
    uint64_t blocks;
    /* Blocks that are free. */
    uint64_t blocks_free;
    /* Of those, blocks that any user may have. */
    uint64_t blocks_available;
    /* Inodes. */
    uint64_t inodes;
    /* Free inodes. */
    uint64_t inodes_free;
    /* Zeros. */
    uint64_t spare[4];
} diorite_space;

/* What was done since the filesystem, or a file of the host, was opened. */
typedef struct {
    /* Bytes of file data that the CPU copied. Direct I/O on aligned memory copies none. */
    uint64_t bytes_copied;
    /* Bytes read directly. */
    uint64_t direct_read_bytes;
    /* Bytes written directly. */
    uint64_t direct_write_bytes;
    /* Transfers that were not aligned and went through aligned memory (diorite_set_bounce). */
    uint64_t bounces;
    /* Pages that a cached read or write found. */
    uint64_t cache_hits;
    /* Pages that it had to read or make. */
    uint64_t cache_misses;
    /* Pages written back. */
    uint64_t writeback_pages;
    /* Reads of the device. */
    uint64_t device_reads;
    /* Bytes of those. */
    uint64_t device_read_bytes;
    /* Writes of the device. */
    uint64_t device_writes;
    /* Bytes of those. */
    uint64_t device_write_bytes;
    /* Flushes of the device. */
    uint64_t device_flushes;
    /* Zeros. */
    uint64_t spare[8];
} diorite_counters;

/*
 * Open the filesystem on target: the path of an image or a disk (disk.img, /dev/sdb), with
 * ?partition=2 or ?offset=1M a part of it; nbd://HOST/EXPORT and the other names that the program
 * diorite takes. Of a disk with partitions of which one holds a volume, that one is opened. options
 * may be NULL.
 *
 * -ENOENT, -EACCES, -EBUSY (another program or host uses it), -EUCLEAN (no volume, or a damaged
 * one), ...
 */
int diorite_filesystem_open(const char *target,
                            const diorite_options *options,
                            diorite_filesystem **filesystem);

/*
 * Make a filesystem in a new image of size bytes, and open it. The image is sparse: it takes space
 * as it is filled. Both options may be NULL.
 *
 * -EEXIST if there is a file, which stays as it is. If there cannot be such a volume (-EINVAL),
 * there is no image either.
 */
int diorite_filesystem_create(const char *path,
                              uint64_t size,
                              const diorite_mkfs_options *mkfs_options,
                              const diorite_options *options,
                              diorite_filesystem **filesystem);

/*
 * Make a filesystem on a disk, a part of it, or an image that exists, all of whose content is lost.
 * options may be NULL.
 *
 * -EEXIST if the target, or a device that it consists of, holds a filesystem, partitions or other
 * known content, unless DIORITE_MKFS_OVERWRITE is set. A mounted device is rejected in any case
 * (-EBUSY).
 */
int diorite_mkfs(const char *target,
                 const diorite_mkfs_options *options);

/*
 * Make everything durable, and close the filesystem.
 *
 * -EBUSY if files or directories are open or transfers of a queue in flight: nothing was done, and
 * the handle can be used. With any other result the handle is gone; an error says that something
 * written earlier, or the last metadata, is not on the device.
 */
int diorite_filesystem_close(diorite_filesystem *filesystem);

/* Make everything durable: data of all files, names and attributes. */
int diorite_sync(diorite_filesystem *filesystem);

/* Space and inodes. */
int diorite_statfs(diorite_filesystem *filesystem, diorite_space *space);

/*
 * Why the filesystem is read-only: it was opened so, it has features that are not known, or a write
 * of metadata failed. Copies at most size bytes with a NUL, as snprintf does; returns the length of
 * the whole text, 0 if the filesystem can be changed.
 */
int64_t diorite_read_only_reason(diorite_filesystem *filesystem,
                                 char *text,
                                 size_t size);

/*
 * What was found damaged or missing at the open, so that what is read may be old or incomplete. As
 * diorite_read_only_reason; 0 if nothing was.
 */
int64_t diorite_defects(diorite_filesystem *filesystem,
                        char *text,
                        size_t size);

/*
 * Discard the free space of the volume (fstrim), in runs of at least shortest bytes; returns the
 * bytes.
 */
int64_t diorite_trim(diorite_filesystem *filesystem,
                     uint64_t shortest);

/* What was done since the open. */
int diorite_filesystem_counters(diorite_filesystem *filesystem, diorite_counters *counters);


/*
 * Names
 * -----
 *
 * Names: what there is in a filesystem, by path. Paths are bytes, not text of some encoding; they
 * begin at the root, with or without a slash. The functions are those of POSIX with the filesystem
 * in front, but for what a process has and a volume has not: there are no permission checks, no
 * umask and no working directory, and new names belong to user 0 and group 0 until diorite_chown.
 */

/* Set the time of the call (UTIME_NOW). */
#define DIORITE_TIME_NOW 1073741823

/* Leave the time as it is (UTIME_OMIT). */
#define DIORITE_TIME_OMIT 1073741822

/* Rename: fail if the new name exists (RENAME_NOREPLACE). */
#define DIORITE_RENAME_NOREPLACE 1

/* Rename: exchange the two (RENAME_EXCHANGE). */
#define DIORITE_RENAME_EXCHANGE 2

/* Extended attributes: fail if it exists (XATTR_CREATE). */
#define DIORITE_XATTR_CREATE 1

/* Extended attributes: fail if it does not exist (XATTR_REPLACE). */
#define DIORITE_XATTR_REPLACE 2

/* A time: seconds since 1970-01-01 00:00 UTC. */
typedef struct {
    /* Seconds, which may be negative. */
    int64_t seconds;
    /* 0 to 999999999; to set a time also DIORITE_TIME_NOW or DIORITE_TIME_OMIT. */
    int64_t nanoseconds;
} diorite_time;

/* What diorite_stat tells. */
typedef struct {
    /* Inode number. */
    uint64_t inode;
    /* Kind and permissions, as st_mode: S_ISDIR(mode) and so on. */
    uint32_t mode;
    /* Hard links. */
    uint32_t links;
    /* Owner. */
    uint32_t uid;
    /* Group. */
    uint32_t gid;
    /* Size in bytes. */
    uint64_t size;
    /* Space in sectors of 512 bytes. */
    uint64_t sectors;
    /* Last access, as far as it was recorded: reading does not record it. */
    diorite_time accessed;
    /* Last change of the content. */
    diorite_time modified;
    /* Last change of the content or the attributes. */
    diorite_time changed;
    /* Creation; 0 and 0 where the volume does not record it. */
    diorite_time created;
    /* Major number of a device node. */
    uint32_t device_major;
    /* Minor number of it. */
    uint32_t device_minor;
    /* Flags as lsattr shows them (FS_..._FL of linux/fs.h). */
    uint32_t flags;
    /* Project. */
    uint32_t project;
    /* Zeros. */
    uint64_t spare[4];
} diorite_attributes;

/* As stat(2). */
int diorite_stat(diorite_filesystem *filesystem, const char *path, diorite_attributes *attributes);

/* As lstat(2): of a symbolic link itself. */
int diorite_lstat(diorite_filesystem *filesystem, const char *path, diorite_attributes *attributes);

/* As mkdir(2). */
int diorite_mkdir(diorite_filesystem *filesystem, const char *path, uint32_t mode);

/* As rmdir(2). */
int diorite_rmdir(diorite_filesystem *filesystem, const char *path);

/* As unlink(2). A file that is open keeps its content until it is closed. */
int diorite_unlink(diorite_filesystem *filesystem, const char *path);

/* As renameat2(2): flags is 0, DIORITE_RENAME_NOREPLACE or DIORITE_RENAME_EXCHANGE. */
int diorite_rename(diorite_filesystem *filesystem,
                   const char *from,
                   const char *to,
                   uint32_t flags);

/* As link(2). */
int diorite_link(diorite_filesystem *filesystem, const char *original, const char *link);

/* As symlink(2). */
int diorite_symlink(diorite_filesystem *filesystem, const char *target, const char *link);

/* As readlink(2): copies at most size bytes, without a NUL; returns how many. */
int64_t diorite_readlink(diorite_filesystem *filesystem,
                         const char *path,
                         char *target,
                         size_t size);

/* As chmod(2). */
int diorite_chmod(diorite_filesystem *filesystem, const char *path, uint32_t mode);

/*
 * As chown(2): UINT32_MAX, which is (uint32_t)-1, leaves the user or the group as it is.
 * Set-user-ID, set-group-ID and capabilities of a regular file go.
 */
int diorite_chown(diorite_filesystem *filesystem,
                  const char *path,
                  uint32_t uid,
                  uint32_t gid);

/* As lchown(2): of a symbolic link itself. */
int diorite_lchown(diorite_filesystem *filesystem, const char *path, uint32_t uid, uint32_t gid);

/*
 * As utimensat(2): times are those of the last access and the last change of the content, or NULL:
 * both now.
 */
int diorite_utimens(diorite_filesystem *filesystem,
                    const char *path,
                    const diorite_time *times);

/* The same of a symbolic link itself. */
int diorite_lutimens(diorite_filesystem *filesystem, const char *path, const diorite_time *times);

/* As truncate(2). */
int diorite_truncate(diorite_filesystem *filesystem, const char *path, uint64_t size);

/*
 * As fsync(2) of what is at a path: of a directory, whose names are durable then (after a rename),
 * or of a file.
 */
int diorite_fsync_path(diorite_filesystem *filesystem,
                       const char *path);

/*
 * As getxattr(2): copies the value of an extended attribute and returns its length; with size 0
 * only the latter. -ERANGE if it is longer than size, -ENODATA if there is none.
 */
int64_t diorite_getxattr(diorite_filesystem *filesystem,
                         const char *path,
                         const char *name,
                         void *value,
                         size_t size);

/* As lgetxattr(2): of a symbolic link itself. */
int64_t diorite_lgetxattr(diorite_filesystem *filesystem,
                          const char *path,
                          const char *name,
                          void *value,
                          size_t size);

/* As setxattr(2). */
int diorite_setxattr(diorite_filesystem *filesystem,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t size,
                     uint32_t flags);

/* As lsetxattr(2): of a symbolic link itself. */
int diorite_lsetxattr(diorite_filesystem *filesystem,
                      const char *path,
                      const char *name,
                      const void *value,
                      size_t size,
                      uint32_t flags);

/*
 * As listxattr(2): copies the names, each with a NUL after it, and returns the length of all; with
 * size 0 only the latter.
 */
int64_t diorite_listxattr(diorite_filesystem *filesystem,
                          const char *path,
                          char *names,
                          size_t size);

/* As llistxattr(2): of a symbolic link itself. */
int64_t diorite_llistxattr(diorite_filesystem *filesystem,
                           const char *path,
                           char *names,
                           size_t size);

/* As removexattr(2). */
int diorite_removexattr(diorite_filesystem *filesystem, const char *path, const char *name);

/* As lremovexattr(2): of a symbolic link itself. */
int diorite_lremovexattr(diorite_filesystem *filesystem, const char *path, const char *name);


/*
 * Directories
 * -----------
 *
 * A directory is listed entry by entry; memory does not depend on how many there are.
 *
 * Threads: a diorite_dir is for one thread at a time; a call beside another one fails with -EBUSY.
 */

/* A directory that is being listed. */
typedef struct diorite_dir diorite_dir;

/* An entry of a directory. */
typedef struct {
    /* The name. Valid until the next call with this directory. */
    const char *name;
    /* Its length in bytes. */
    size_t name_len;
    /* Inode number. */
    uint64_t inode;
    /*
     * What it is, as d_type (DT_REG, DT_DIR, ...); DT_UNKNOWN (0) where the directory does not say.
     */
    uint32_t kind;
    /* Zeros. */
    uint32_t spare;
} diorite_entry;

/* Begin to list a directory. */
int diorite_opendir(diorite_filesystem *filesystem, const char *path, diorite_dir **dir);

/*
 * The next entry, without . and .., in no particular order: 1 with an entry, 0 at the end. Names
 * that exist all the time are returned once, whatever is made and removed meanwhile.
 */
int diorite_readdir(diorite_dir *dir,
                    diorite_entry *entry);

/* End a listing. NULL is ignored. */
void diorite_closedir(diorite_dir *dir);


/*
 * Files
 * -----
 *
 * A file is one of a filesystem, one of the host, or a whole device. All have the same calls.
 *
 * Data moves through a page cache of this library, or directly between the device and the caller's
 * memory (O_DIRECT): no copy, if offset, length and address are aligned as diorite_get_alignment
 * says. Buffered and direct calls on one file see each other's writes, and two calls on overlapping
 * ranges take effect one after the other, each whole.
 *
 * Threads: all calls on a file may run in many threads at once, but for diorite_file_close, which
 * must be the last.
 */

/* preadv, pwritev: the write is durable as with O_DSYNC (RWF_DSYNC). */
#define DIORITE_RWF_DSYNC (1 << 1)

/* preadv, pwritev: the write is durable as with O_SYNC (RWF_SYNC). */
#define DIORITE_RWF_SYNC (1 << 2)

/*
 * preadv, pwritev: fail with -EAGAIN, having done nothing, where the call would have to wait for
 * another call, for space or for data that is not cached (RWF_NOWAIT). A direct transfer itself is
 * waited for.
 */
#define DIORITE_RWF_NOWAIT (1 << 3)

/*
 * preadv, pwritev: a direct write of which, after a power failure, all or nothing is there
 * (RWF_ATOMIC): a power of two of bytes, at most atomic_write of the alignment, at a multiple of
 * that, within the file.
 */
#define DIORITE_RWF_ATOMIC (1 << 6)

/* preadv, pwritev: through the page cache, and leave no more there than before (RWF_DONTCACHE). */
#define DIORITE_RWF_DONTCACHE (1 << 7)

/* fallocate: the size stays (FALLOC_FL_KEEP_SIZE). */
#define DIORITE_FALLOC_KEEP_SIZE (1 << 0)

/*
 * fallocate: free the blocks of the range, which reads as zeros; with DIORITE_FALLOC_KEEP_SIZE
 * (FALLOC_FL_PUNCH_HOLE).
 */
#define DIORITE_FALLOC_PUNCH_HOLE (1 << 1)

/* fallocate: take the range out of the file (FALLOC_FL_COLLAPSE_RANGE). */
#define DIORITE_FALLOC_COLLAPSE_RANGE (1 << 3)

/* fallocate: the range reads as zeros, and keeps or gets blocks (FALLOC_FL_ZERO_RANGE). */
#define DIORITE_FALLOC_ZERO_RANGE (1 << 4)

/* fallocate: make a hole there, and move what follows (FALLOC_FL_INSERT_RANGE). */
#define DIORITE_FALLOC_INSERT_RANGE (1 << 5)

/* What a range of a file is on the device. */
typedef enum {
    /* Data. */
    DIORITE_EXTENT_KIND_DATA = 0,
    /* Allocated, never written: reads as zeros. */
    DIORITE_EXTENT_KIND_UNWRITTEN = 1,
    /* In the cache; its place is chosen when it is written back. */
    DIORITE_EXTENT_KIND_DELAYED = 2,
    /* In the inode. */
    DIORITE_EXTENT_KIND_INLINE = 3,
    /* Something that this version does not name. */
    DIORITE_EXTENT_KIND_OTHER = 4,
} diorite_extent_kind;

/* An open file. */
typedef struct diorite_file diorite_file;

/* A range of a file, and its place. */
typedef struct {
    /* First byte in the file. */
    uint64_t offset;
    /* Length in bytes. */
    uint64_t len;
    /* First byte on the volume's device; UINT64_MAX where it has no place. */
    uint64_t device_offset;
    /* What it is. */
    diorite_extent_kind kind;
    /* Zeros. */
    uint32_t spare;
} diorite_extent;

/* What direct I/O on a file needs, in bytes. */
typedef struct {
    /* Offset and length are multiples of this. */
    uint32_t offset;
    /* The address of the memory is a multiple of this. */
    uint32_t memory;
    /* The largest transfer that the device takes as one; larger ones are several. */
    uint32_t max_transfer;
    /* The largest write that can be atomic (DIORITE_RWF_ATOMIC); 0 where none can. */
    uint32_t atomic_write;
} diorite_alignment;

/*
 * As open(2), of a file in a filesystem. flags: one of O_RDONLY, O_WRONLY, O_RDWR; O_CREAT, O_EXCL,
 * O_TRUNC (these need O_WRONLY or O_RDWR), O_APPEND (for diorite_write; diorite_pwrite writes at
 * its offset), O_DSYNC, O_SYNC, O_DIRECT. With O_DIRECT a transfer that is not aligned fails with
 * -EINVAL: see diorite_set_direct and diorite_set_bounce. mode is for a file that is made.
 */
int diorite_file_open(diorite_filesystem *filesystem,
                      const char *path,
                      int flags,
                      uint32_t mode,
                      diorite_file **file);

/*
 * A file of the host's filesystem, with this library's page cache in place of the host's, or past
 * both. As diorite_file_open; a new file has the permissions 0666 less the umask. What other
 * programs, or another open of the file, write meanwhile is not seen.
 */
int diorite_host_open(const char *path,
                      int flags,
                      diorite_file **file);

/*
 * A whole device, image or part of one (as for diorite_filesystem_open) as a file of fixed size:
 * /dev/sdb, disk.img?partition=2, nbd://HOST/EXPORT.
 */
int diorite_raw_open(const char *target,
                     int flags,
                     diorite_file **file);

/*
 * Close a file. Of the host or a device, cached data is written back. If that fails, or an earlier
 * write-back failed and no diorite_fsync reported it, the error is the result's. Nothing is durable
 * by a close: diorite_fsync before, or diorite_filesystem_close later.
 *
 * -EBUSY if transfers of a queue on it are in flight: nothing was done. With any other result the
 * handle is gone.
 */
int diorite_file_close(diorite_file *file);

/* As pread(2): returns how many bytes, fewer only at the end of the file. */
int64_t diorite_pread(diorite_file *file, void *memory, size_t len, uint64_t offset);

/*
 * As pwrite(2): returns how many bytes, fewer only where the volume filled up on the way. Buffered
 * data is durable after a sync.
 */
int64_t diorite_pwrite(diorite_file *file,
                       const void *memory,
                       size_t len,
                       uint64_t offset);

/*
 * As preadv2(2), with flags DIORITE_RWF_NOWAIT and DIORITE_RWF_DONTCACHE. At most 1024 segments,
 * each aligned for direct I/O.
 */
int64_t diorite_preadv(diorite_file *file,
                       const struct iovec *segments,
                       int number,
                       uint64_t offset,
                       int flags);

/* As pwritev2(2), with flags DIORITE_RWF_.... */
int64_t diorite_pwritev(diorite_file *file,
                        const struct iovec *segments,
                        int number,
                        uint64_t offset,
                        int flags);

/* As read(2): at the position of the file, which moves. Threads that share a file take turns. */
int64_t diorite_read(diorite_file *file, void *memory, size_t len);

/* As write(2): at the position of the file, which moves; at the end of the file with O_APPEND. */
int64_t diorite_write(diorite_file *file, const void *memory, size_t len);

/* As lseek(2) with SEEK_SET, SEEK_CUR and SEEK_END. */
int64_t diorite_seek(diorite_file *file, int64_t offset, int whence);

/*
 * Write all of it at the end of the file, wherever that is at this moment, or fail. offset gets the
 * place where it went, or is NULL.
 */
int diorite_append(diorite_file *file,
                   const void *memory,
                   size_t len,
                   uint64_t *offset);

/* As fsync(2). It reports also what was not written back earlier. */
int diorite_fsync(diorite_file *file);

/* As fdatasync(2): data, and what is needed to read it. */
int diorite_fdatasync(diorite_file *file);

/* As fstat(2). */
int diorite_fstat(diorite_file *file, diorite_attributes *attributes);

/* The size in bytes. */
int64_t diorite_size(diorite_file *file);

/* As ftruncate(2). */
int diorite_ftruncate(diorite_file *file, uint64_t size);

/*
 * As fallocate(2): with mode 0 the range gets blocks, so that no later write in it fails for lack
 * of space, and the file grows to its end.
 */
int diorite_fallocate(diorite_file *file,
                      int mode,
                      uint64_t offset,
                      uint64_t len);

/* Free the blocks of a range, which reads as zeros from then on. The size stays. */
int diorite_punch_hole(diorite_file *file, uint64_t offset, uint64_t len);

/*
 * The first data at or after offset, as lseek with SEEK_DATA; -ENXIO if there is none. The position
 * stays.
 */
int64_t diorite_seek_data(diorite_file *file,
                          uint64_t offset);

/*
 * The first hole at or after offset, as lseek with SEEK_HOLE: the end of the file is one; -ENXIO
 * from there on. The position stays.
 */
int64_t diorite_seek_hole(diorite_file *file,
                          uint64_t offset);

/*
 * Where the file is, in file order, without holes. Sets at most number extents; returns how many
 * the file has.
 */
int64_t diorite_extents(diorite_file *file,
                        diorite_extent *extents,
                        size_t number);

/* What direct I/O on a file needs. It does not change while the file is open. */
int diorite_get_alignment(diorite_file *file, diorite_alignment *alignment);

/*
 * Whether the file is direct from the next call on: DIORITE_DIRECT_OFF, DIORITE_DIRECT_PREFERRED or
 * DIORITE_DIRECT_REQUIRED.
 */
int diorite_set_direct(diorite_file *file,
                       uint32_t direct);

/*
 * Whether a direct transfer that is not aligned goes through aligned memory, by a copy, from the
 * next call on: 1, or 0 as after the open.
 */
int diorite_set_bounce(diorite_file *file,
                       int bounce);

/* Write back what is cached of a range, and drop it from the cache. */
int diorite_drop_cached(diorite_file *file, uint64_t offset, uint64_t len);

/* What was done on the filesystem or device of the file since that was opened. */
int diorite_file_counters(diorite_file *file, diorite_counters *counters);


/*
 * Memory for direct I/O
 * ---------------------
 *
 * Any memory will do that is aligned as diorite_get_alignment says (from posix_memalign, mmap, an
 * arena of the application's): data moves straight between it and the device. Memory of
 * diorite_buffer_allocate is aligned for the file, lies on huge pages where the system has them,
 * and is registered with io_uring, which saves CPU time. It is plain memory: one large buffer may
 * be cut into pages, and an address within it given to any call.
 *
 * Threads: all calls may run in many threads at once.
 */

/*
 * Allocate len bytes of zeros for direct I/O on file, or, if that is NULL, on any file (aligned to
 * 4096).
 */
int diorite_buffer_allocate(diorite_file *file,
                            size_t len,
                            void **memory);

/*
 * Free the memory of diorite_buffer_allocate. NULL is ignored.
 *
 * -EBUSY while a transfer of a queue uses it, -EINVAL if no buffer begins there: nothing was done.
 */
int diorite_buffer_free(void *memory);


/*
 * Queues
 * ------
 *
 * Many direct transfers in flight from one thread, on any files: submit, then reap.
 *
 * Memory: from the submission until diorite_queue_reap returns the transfer (or the submission
 * fails, or diorite_queue_close returns) the memory belongs to the library. A read may write it at
 * any time, and what a write is to store must not change. Memory of diorite_buffer_allocate cannot
 * be freed meanwhile (-EBUSY); other memory must stay where it is.
 *
 * Files: a file cannot be closed while a transfer on it is in flight (-EBUSY).
 *
 * The end of a transfer is when diorite_queue_reap returns it, not before: sizes and mappings
 * change there, and with O_DSYNC the write is durable then. Transfers end in any order; those of
 * one queue on overlapping ranges, of which one writes, take effect in the order of their
 * submission.
 *
 * Deadlock: a transfer holds its range of the file until it is reaped. A thread with a write in
 * flight that touches the same range in another way (pread, fsync, another queue) waits for itself.
 * Reap first.
 *
 * Threads: a queue is for one thread at a time; a call beside another one fails with -EBUSY.
 */

/*
 * Transfers wait for diorite_queue_reap and run together then: the least CPU time for each, but the
 * device idles between two batches.
 */
#define DIORITE_QUEUE_BATCHED 1

/* A queue of direct transfers. */
typedef struct diorite_queue diorite_queue;

/* A transfer that has ended. */
typedef struct {
    /* What was given at the submission. */
    uint64_t user_data;
    /*
     * Bytes that were moved, fewer than asked for only at the end of the file, or of a write where
     * the volume filled up on the way; or a negative error number.
     */
    int64_t result;
} diorite_completion;

/*
 * Make a queue for at most depth transfers in flight, at most 32768. flags is 0 or
 * DIORITE_QUEUE_BATCHED.
 */
int diorite_queue_open(uint32_t depth,
                       uint32_t flags,
                       diorite_queue **queue);

/*
 * Submit a read of len bytes from offset of the file. The file need not be open with O_DIRECT; the
 * transfer is direct.
 *
 * -EAGAIN: as many transfers as the queue is deep are in flight; reap one. -EINVAL: not aligned.
 * What fails later is in the completion.
 */
int diorite_queue_read(diorite_queue *queue,
                       diorite_file *file,
                       void *memory,
                       size_t len,
                       uint64_t offset,
                       uint64_t user_data);

/*
 * Submit a write of len bytes at offset of the file. As diorite_queue_read; -ENOSPC if the volume
 * is full.
 */
int diorite_queue_write(diorite_queue *queue,
                        diorite_file *file,
                        const void *memory,
                        size_t len,
                        uint64_t offset,
                        uint64_t user_data);

/*
 * Hand what was submitted to the device, without waiting. diorite_queue_reap does so, too; it is
 * needed before the descriptor is waited on.
 */
int diorite_queue_issue(diorite_queue *queue);

/*
 * Hand what was submitted to the device, wait for at least wait_for transfers (all, if fewer are in
 * flight), and return at most number that have ended in completions; returns how many. wait_for 0
 * does not wait. A wait_for larger than number is number.
 *
 * If transfers failed, the message and kind of the last of them are those of the thread. A loop
 * that gives the memory of each transfer to the next one keeps the device busiest with wait_for 1.
 */
int diorite_queue_reap(diorite_queue *queue,
                       uint32_t wait_for,
                       diorite_completion *completions,
                       uint32_t number);

/* Transfers that were submitted and not returned by diorite_queue_reap yet. */
int diorite_queue_in_flight(diorite_queue *queue);

/*
 * A descriptor that is readable when a transfer can be reaped, for poll and epoll. It belongs to
 * the queue: do not read or close it. Ask for it before the first transfer (-EINVAL later). Before
 * it is waited on: diorite_queue_issue; afterwards: diorite_queue_reap with wait_for 0, until that
 * returns 0.
 */
int diorite_queue_descriptor(diorite_queue *queue);

/*
 * Wait for all that is in flight, and close the queue. Its results are lost; its writes are as good
 * as any. NULL is ignored.
 */
void diorite_queue_close(diorite_queue *queue);

#ifdef __cplusplus
}
#endif

#endif /* DIORITE_H */
