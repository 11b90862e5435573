/*
 * libdiorite: files on ext2, ext3 and ext4 images and disks without a mount, and direct I/O between
 * a disk and the application's memory. Linux only.
 *
 * - Functions return 0 or a count, and a negative error number if they fail: -ENOENT.
 *   diorite_error_message() describes the failure.
 * - An open function creates a handle, and the matching close function frees it. A closed handle
 *   must not be used. A NULL handle is -EINVAL unless the function says otherwise.
 * - Memory and strings belong to the caller. The library uses them only during the call, except for
 *   transfers of a queue. NULL memory is -EFAULT.
 * - Sizes and offsets are in bytes.
 * - A forked child must not use handles of its parent. The library must not be unloaded.
 * - O_DIRECT (fcntl.h) needs _GNU_SOURCE before the first include. The rest of this header needs
 *   only C99 or C++11.
 *
 * This file is generated from the sources in crates/c/src.
 */
#ifndef DIORITE_H
#define DIORITE_H

/* The version of this header: DIORITE_VERSION >= DIORITE_MAKE_VERSION(0, 1, 0). diorite_version() returns the version of the library. */
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
 * failure of each thread also has a message and a kind. As with errno, a successful call does not
 * change them.
 */

/* Kinds of errors. */
typedef enum {
    /* No call of this thread has failed. */
    DIORITE_KIND_NONE = 0,
    /* No such file or directory (ENOENT). */
    DIORITE_KIND_NOT_FOUND = 1,
    /* No extended attribute of that name (ENODATA). */
    DIORITE_KIND_NO_ATTRIBUTE = 2,
    /* The name or attribute exists (EEXIST). */
    DIORITE_KIND_ALREADY_EXISTS = 3,
    /* The file is not a directory (ENOTDIR). */
    DIORITE_KIND_NOT_A_DIRECTORY = 4,
    /* The file is a directory (EISDIR). */
    DIORITE_KIND_IS_A_DIRECTORY = 5,
    /* The directory has entries (ENOTEMPTY). */
    DIORITE_KIND_DIRECTORY_NOT_EMPTY = 6,
    /* No free block or inode (ENOSPC). */
    DIORITE_KIND_STORAGE_FULL = 7,
    /* A quota limit is reached (EDQUOT). */
    DIORITE_KIND_QUOTA_EXCEEDED = 8,
    /* The file would be too large (EFBIG). */
    DIORITE_KIND_FILE_TOO_LARGE = 9,
    /* The volume, the device or the file is read-only, possibly after a failed write (EROFS). */
    DIORITE_KIND_READ_ONLY = 10,
    /* Not permitted (EPERM, EACCES). */
    DIORITE_KIND_PERMISSION_DENIED = 11,
    /* The argument is invalid for this object (EINVAL). */
    DIORITE_KIND_INVALID_INPUT = 12,
    /* A direct transfer is not aligned (EINVAL). */
    DIORITE_KIND_INVALID_ALIGNMENT = 13,
    /* Not available on this file, volume or device (EOPNOTSUPP). */
    DIORITE_KIND_UNSUPPORTED = 14,
    /* The volume is damaged, or the target is not a volume (EUCLEAN). */
    DIORITE_KIND_CORRUPT = 15,
    /* In use, here or by another program or host (EBUSY). */
    DIORITE_KIND_BUSY = 16,
    /* The file ended early (EIO). */
    DIORITE_KIND_UNEXPECTED_END = 17,
    /* The content does not have the requested encoding (EILSEQ). */
    DIORITE_KIND_INVALID_DATA = 18,
    /* A queue is full, or a call with NOWAIT would wait (EAGAIN). */
    DIORITE_KIND_WOULD_BLOCK = 19,
    /* Too many symbolic links (ELOOP). */
    DIORITE_KIND_FILESYSTEM_LOOP = 20,
    /* The file is not open for this access (EBADF). */
    DIORITE_KIND_NOT_OPEN = 21,
    /* No hole or no data at or after the offset (ENXIO). */
    DIORITE_KIND_BEYOND_END = 22,
    /* The device failed, or the volume is shut down after such a failure (EIO). */
    DIORITE_KIND_IO = 23,
    /* None of these; the error number says which. */
    DIORITE_KIND_OTHER = 24,
    /* A bug of this library (ENOTRECOVERABLE). The handle can only be closed. */
    DIORITE_KIND_BUG = 25,
} diorite_kind;

/*
 * One line about the last failure of this thread: the object, what happened, why, and what to do.
 * Empty if nothing failed. The string is valid until the next call of this thread into the library.
 */
const char *diorite_error_message(void);

/* The kind of the last failure of this thread. */
diorite_kind diorite_error_kind(void);

/* The version of the library at run time: "0.1.0". */
const char *diorite_version(void);


/*
 * Filesystems
 * -----------
 *
 * A filesystem is an ext2, ext3 or ext4 volume in an image, on a disk or partition, or on an export
 * of an NBD server. Only this process uses it; it needs no mount and no root.
 *
 * A structure of options begins with its size. Zero selects the default of a field:
 *
 *     diorite_options options = {.size = sizeof options, .flags = DIORITE_READ_ONLY};
 *
 * Threads: many threads may call on one filesystem at once. diorite_filesystem_close must be the
 * last call.
 */

/* Direct I/O: the default of the option. */
#define DIORITE_DIRECT_DEFAULT 0

/* Direct I/O: off, through the page cache. */
#define DIORITE_DIRECT_OFF 1

/* Direct I/O: if a transfer is aligned, else through the page cache. */
#define DIORITE_DIRECT_PREFERRED 2

/* Direct I/O: always, or an error with the reason. */
#define DIORITE_DIRECT_REQUIRED 3

/* Open the volume read-only. */
#define DIORITE_READ_ONLY 1

/* No read-ahead. */
#define DIORITE_NO_READ_AHEAD 2

/* Calls may use the blocks reserved for root (mke2fs -m). */
#define DIORITE_RESERVED_BLOCKS 4

/* Enforce the hard limits of the volume's quota files. */
#define DIORITE_QUOTA_LIMITS 8

/* The mode in the volume's superblock. */
#define DIORITE_DATA_DEFAULT 0

/* data=ordered */
#define DIORITE_DATA_ORDERED 1

/* data=writeback */
#define DIORITE_DATA_WRITEBACK 2

/* data=journal: files cannot be opened for direct I/O. */
#define DIORITE_DATA_JOURNAL 3

/* Overwrite any content of the device. */
#define DIORITE_MKFS_OVERWRITE 1

/* An open filesystem. */
typedef struct diorite_filesystem diorite_filesystem;

/*
 * Options of opening a filesystem. All fields except the size may be 0, which selects the defaults
 * below.
 */
typedef struct {
    /* sizeof(diorite_options) */
    size_t size;
    /*
     * DIORITE_READ_ONLY, DIORITE_NO_READ_AHEAD, DIORITE_RESERVED_BLOCKS, DIORITE_QUOTA_LIMITS,
     * joined by |.
     */
    uint32_t flags;
    /* Direct I/O of files opened without O_DIRECT; DIORITE_DIRECT_OFF. */
    uint32_t direct;
    /*
     * Direct I/O of the image or device itself, past the host's page cache;
     * DIORITE_DIRECT_PREFERRED.
     */
    uint32_t device_direct;
    /* DIORITE_DATA_... */
    uint32_t data_mode;
    /*
     * Memory for cached file data in bytes; 64 MiB. An application with its own cache can use as
     * little as 256 KiB.
     */
    uint64_t cache_bytes;
    /* Memory for cached metadata in bytes; 64 MiB. */
    uint64_t metadata_cache_bytes;
    /* Largest read-ahead in bytes; 8 MiB. */
    uint64_t read_ahead_bytes;
    /* Age in milliseconds at which metadata changes become durable without a sync; 5000. */
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
 * Options of a new filesystem. All fields except the size may be 0, which selects the defaults of
 * mke2fs.
 */
typedef struct {
    /* sizeof(diorite_mkfs_options) */
    size_t size;
    /* DIORITE_MKFS_OVERWRITE */
    uint32_t flags;
    /* 2, 3 or 4, for ext2, ext3 and ext4; 4. */
    uint32_t ext;
    /* Block size in bytes: 1024 to 65536; the default depends on the size of the volume. */
    uint32_t block_size;
    /* Size of an inode in bytes; 256. */
    uint32_t inode_size;
    /* Bytes of the volume for each inode; the default depends on the size of the volume. */
    uint32_t bytes_per_inode;
    /* Number of inodes, instead of bytes_per_inode. */
    uint32_t inodes;
    /* Size of the journal in blocks; the default depends on the size of the volume. */
    uint32_t journal_blocks;
    /* Owner of the root directory. */
    uint32_t root_uid;
    /* Group of the root directory. */
    uint32_t root_gid;
    /* Blocks reserved for root, in thousandths of all; 50. UINT32_MAX: none. */
    uint32_t reserved_permille;
    /* Label of at most 16 bytes, or NULL. */
    const char *label;
    /*
     * Features to add, or with ^ to remove, in the syntax of mke2fs -O, or NULL:
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
    /* Blocks for files, without the filesystem's own metadata. */
    uint64_t blocks;
    /* Free blocks. */
    uint64_t blocks_free;
    /* Free blocks that any user may allocate. */
    uint64_t blocks_available;
    /* Inodes. */
    uint64_t inodes;
    /* Free inodes. */
    uint64_t inodes_free;
    /* Zeros. */
    uint64_t spare[4];
} diorite_space;

/* Counters since the open of the filesystem, host file or device. */
typedef struct {
    /* Bytes of file data that the CPU copied. Direct I/O with aligned memory copies none. */
    uint64_t bytes_copied;
    /* Bytes read directly. */
    uint64_t direct_read_bytes;
    /* Bytes written directly. */
    uint64_t direct_write_bytes;
    /* Unaligned transfers copied through aligned memory (diorite_set_bounce). */
    uint64_t bounces;
    /* Pages that cached reads and writes found in the cache. */
    uint64_t cache_hits;
    /* Pages that cached reads and writes did not find in the cache. */
    uint64_t cache_misses;
    /* Pages written back. */
    uint64_t writeback_pages;
    /* Reads of the device. */
    uint64_t device_reads;
    /* Bytes read from the device. */
    uint64_t device_read_bytes;
    /* Writes to the device. */
    uint64_t device_writes;
    /* Bytes written to the device. */
    uint64_t device_write_bytes;
    /* Flushes of the device. */
    uint64_t device_flushes;
    /* Zeros. */
    uint64_t spare[8];
} diorite_counters;

/*
 * Open the filesystem on target: the path of an image or a disk (disk.img, /dev/sdb), with
 * ?partition=2 or ?offset=1M a part of it; also nbd://HOST/EXPORT and the other names of the
 * program diorite. If only one partition of a disk holds a volume, that partition is opened.
 * options may be NULL.
 *
 * -ENOENT, -EACCES, -EBUSY (another program or host uses it), -EUCLEAN (no volume, or a damaged
 * one), ...
 */
int diorite_filesystem_open(const char *target,
                            const diorite_options *options,
                            diorite_filesystem **filesystem);

/*
 * Make a filesystem in a new sparse image of size bytes, and open it. Both options may be NULL.
 *
 * -EEXIST if the file exists; the file is not changed. After -EINVAL (a volume with these options
 * is impossible) there is no image.
 */
int diorite_filesystem_create(const char *path,
                              uint64_t size,
                              const diorite_mkfs_options *mkfs_options,
                              const diorite_options *options,
                              diorite_filesystem **filesystem);

/*
 * Make a filesystem on a disk, a partition or an existing image. All of its content is lost.
 * options may be NULL.
 *
 * -EEXIST if the target or a member device holds a filesystem, partitions or other known content,
 * unless DIORITE_MKFS_OVERWRITE is set. A mounted device is always rejected (-EBUSY).
 */
int diorite_mkfs(const char *target,
                 const diorite_mkfs_options *options);

/*
 * Make everything durable, and close the filesystem.
 *
 * -EBUSY if files or directories are open or transfers of a queue are in flight; the filesystem
 * stays open. Any other result closes the handle. An error then means that earlier data or the last
 * metadata is not on the device.
 */
int diorite_filesystem_close(diorite_filesystem *filesystem);

/* Make everything durable: data of all files, names and attributes. */
int diorite_sync(diorite_filesystem *filesystem);

/* Space and inodes. */
int diorite_statfs(diorite_filesystem *filesystem, diorite_space *space);

/*
 * Get the reason why the filesystem is read-only: an open option, unknown features, or a failed
 * metadata write. Copies at most size bytes including a NUL, as snprintf does. Returns the length
 * of the whole text, 0 if the filesystem is writable.
 */
int64_t diorite_read_only_reason(diorite_filesystem *filesystem,
                                 char *text,
                                 size_t size);

/*
 * Get the damage that the open found. Data read from such a volume may be old or incomplete. Text
 * and result are as for diorite_read_only_reason; 0 if there is no damage.
 */
int64_t diorite_defects(diorite_filesystem *filesystem,
                        char *text,
                        size_t size);

/*
 * Discard free extents of at least shortest bytes (fstrim). Returns the number of discarded bytes.
 */
int64_t diorite_trim(diorite_filesystem *filesystem, uint64_t shortest);

/* Get the counters since the open. */
int diorite_filesystem_counters(diorite_filesystem *filesystem, diorite_counters *counters);


/*
 * Names
 * -----
 *
 * Calls by path. Paths are bytes without an encoding; they begin at the root, with or without a
 * slash. The functions are those of POSIX with the filesystem as first argument. There are no
 * permission checks, no umask and no working directory. New files belong to user 0 and group 0
 * until diorite_chown.
 */

/* Set the current time (UTIME_NOW). */
#define DIORITE_TIME_NOW 1073741823

/* Do not change the time (UTIME_OMIT). */
#define DIORITE_TIME_OMIT 1073741822

/*
 * Flag of calls by path: act on a symbolic link itself instead of its target (AT_SYMLINK_NOFOLLOW).
 */
#define DIORITE_NOFOLLOW 256

/* Rename: fail if the new name exists (RENAME_NOREPLACE). */
#define DIORITE_RENAME_NOREPLACE 1

/* Rename: exchange the two (RENAME_EXCHANGE). */
#define DIORITE_RENAME_EXCHANGE 2

/* Extended attributes: fail if the attribute exists (XATTR_CREATE). */
#define DIORITE_XATTR_CREATE 1

/* Extended attributes: fail if the attribute does not exist (XATTR_REPLACE). */
#define DIORITE_XATTR_REPLACE 2

/* A time: seconds since 1970-01-01 00:00 UTC. */
typedef struct {
    /* Seconds, which may be negative. */
    int64_t seconds;
    /* 0 to 999999999; when setting a time also DIORITE_TIME_NOW or DIORITE_TIME_OMIT. */
    int64_t nanoseconds;
} diorite_time;

/* The result of diorite_stat. */
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
    /* Last recorded access; reads do not record it. */
    diorite_time accessed;
    /* Last change of the content. */
    diorite_time modified;
    /* Last change of the content or the attributes. */
    diorite_time changed;
    /* Creation; 0 and 0 if the volume does not record it. */
    diorite_time created;
    /* Major number of a device node. */
    uint32_t device_major;
    /* Minor number of a device node. */
    uint32_t device_minor;
    /* Flags as lsattr shows them (FS_..._FL of linux/fs.h). */
    uint32_t flags;
    /* Project. */
    uint32_t project;
    /* Zeros. */
    uint64_t spare[4];
} diorite_attributes;

/* As stat(2), or with DIORITE_NOFOLLOW in flags as lstat(2). */
int diorite_stat(diorite_filesystem *filesystem,
                 const char *path,
                 uint32_t flags,
                 diorite_attributes *attributes);

/* As mkdir(2). */
int diorite_mkdir(diorite_filesystem *filesystem, const char *path, uint32_t mode);

/* As rmdir(2). */
int diorite_rmdir(diorite_filesystem *filesystem, const char *path);

/* As unlink(2). An open file keeps its content until it is closed. */
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

/* As readlink(2): copies at most size bytes, without a NUL. Returns the number of copied bytes. */
int64_t diorite_readlink(diorite_filesystem *filesystem,
                         const char *path,
                         char *target,
                         size_t size);

/* As chmod(2). */
int diorite_chmod(diorite_filesystem *filesystem, const char *path, uint32_t mode);

/*
 * As chown(2), or with DIORITE_NOFOLLOW in flags as lchown(2). UINT32_MAX, which is (uint32_t)-1,
 * keeps the user or the group. A regular file loses its set-user-ID bit, set-group-ID bit and
 * capabilities.
 */
int diorite_chown(diorite_filesystem *filesystem,
                  const char *path,
                  uint32_t uid,
                  uint32_t gid,
                  uint32_t flags);

/*
 * As utimensat(2): times are the last access and the last change of the content. NULL sets both to
 * now. flags is 0 or DIORITE_NOFOLLOW.
 */
int diorite_utimens(diorite_filesystem *filesystem,
                    const char *path,
                    const diorite_time *times,
                    uint32_t flags);

/* As truncate(2). */
int diorite_truncate(diorite_filesystem *filesystem, const char *path, uint64_t size);

/*
 * As fsync(2) of the file or directory at a path. After a rename, a sync of the directory makes the
 * names durable.
 */
int diorite_fsync_path(diorite_filesystem *filesystem,
                       const char *path);

/*
 * As getxattr(2): copies the value of an extended attribute and returns its length; with size 0 it
 * only returns the length. -ERANGE if the value is longer than size, -ENODATA if the attribute does
 * not exist. flags is 0 or DIORITE_NOFOLLOW.
 */
int64_t diorite_getxattr(diorite_filesystem *filesystem,
                         const char *path,
                         const char *name,
                         void *value,
                         size_t size,
                         uint32_t flags);

/*
 * As setxattr(2): flags is 0, DIORITE_XATTR_CREATE or DIORITE_XATTR_REPLACE, joined by | with
 * DIORITE_NOFOLLOW.
 */
int diorite_setxattr(diorite_filesystem *filesystem,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t size,
                     uint32_t flags);

/*
 * As listxattr(2): copies the names, each terminated by a NUL, and returns their total length; with
 * size 0 it only returns the length. flags is 0 or DIORITE_NOFOLLOW.
 */
int64_t diorite_listxattr(diorite_filesystem *filesystem,
                          const char *path,
                          char *names,
                          size_t size,
                          uint32_t flags);

/* As removexattr(2). flags is 0 or DIORITE_NOFOLLOW. */
int diorite_removexattr(diorite_filesystem *filesystem,
                        const char *path,
                        const char *name,
                        uint32_t flags);


/*
 * Directories
 * -----------
 *
 * A directory is listed entry by entry, so memory does not depend on its size.
 *
 * Threads: only one thread at a time may use a diorite_dir. A concurrent call fails with -EBUSY.
 */

/* An open directory. */
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
     * The type, as d_type (DT_REG, DT_DIR, ...); DT_UNKNOWN (0) if the directory does not store it.
     */
    uint32_t kind;
    /* Zeros. */
    uint32_t spare;
} diorite_entry;

/* Open a directory for listing. */
int diorite_opendir(diorite_filesystem *filesystem, const char *path, diorite_dir **dir);

/*
 * Get the next entry, without . and .., in no particular order. Returns 1 with an entry, 0 at the
 * end. A name that exists during the whole listing is returned once.
 */
int diorite_readdir(diorite_dir *dir,
                    diorite_entry *entry);

/* Close a directory. NULL is ignored. */
void diorite_closedir(diorite_dir *dir);


/*
 * Files
 * -----
 *
 * A file is in a filesystem, on the host, or a whole device. All have the same calls.
 *
 * Data moves through the page cache of this library, or directly between the device and the
 * caller's memory (O_DIRECT). Direct I/O makes no copy; it needs offset, length and address aligned
 * as diorite_get_alignment says. Buffered and direct calls on one file see each other's writes.
 * Calls on overlapping ranges are atomic and take effect one after the other.
 *
 * Threads: many threads may call on one file at once. diorite_file_close must be the last call.
 */

/* preadv, pwritev: the write is durable as with O_DSYNC (RWF_DSYNC). */
#define DIORITE_RWF_DSYNC (1 << 1)

/* preadv, pwritev: the write is durable as with O_SYNC (RWF_SYNC). */
#define DIORITE_RWF_SYNC (1 << 2)

/*
 * preadv, pwritev: fail with -EAGAIN, without a transfer, if the call would wait for another call,
 * for space or for uncached data (RWF_NOWAIT). The call still waits for a direct transfer itself.
 */
#define DIORITE_RWF_NOWAIT (1 << 3)

/*
 * preadv, pwritev: a direct write that is all or nothing after a power failure (RWF_ATOMIC). The
 * length is a power of two, at most atomic_write of the alignment; the offset is a multiple of the
 * length, and the range is within the file.
 */
#define DIORITE_RWF_ATOMIC (1 << 6)

/* preadv, pwritev: use the page cache, and drop the pages that the call added (RWF_DONTCACHE). */
#define DIORITE_RWF_DONTCACHE (1 << 7)

/* fallocate: the size stays (FALLOC_FL_KEEP_SIZE). */
#define DIORITE_FALLOC_KEEP_SIZE (1 << 0)

/*
 * fallocate: free the blocks of the range, which reads as zeros; with DIORITE_FALLOC_KEEP_SIZE
 * (FALLOC_FL_PUNCH_HOLE).
 */
#define DIORITE_FALLOC_PUNCH_HOLE (1 << 1)

/* fallocate: remove the range from the file (FALLOC_FL_COLLAPSE_RANGE). */
#define DIORITE_FALLOC_COLLAPSE_RANGE (1 << 3)

/* fallocate: the range reads as zeros and has blocks allocated (FALLOC_FL_ZERO_RANGE). */
#define DIORITE_FALLOC_ZERO_RANGE (1 << 4)

/* fallocate: insert a hole, and move the content after it (FALLOC_FL_INSERT_RANGE). */
#define DIORITE_FALLOC_INSERT_RANGE (1 << 5)

/* Kinds of extents. */
typedef enum {
    /* Data. */
    DIORITE_EXTENT_KIND_DATA = 0,
    /* Allocated, never written: reads as zeros. */
    DIORITE_EXTENT_KIND_UNWRITTEN = 1,
    /* In the cache; blocks are allocated at writeback. */
    DIORITE_EXTENT_KIND_DELAYED = 2,
    /* In the inode. */
    DIORITE_EXTENT_KIND_INLINE = 3,
    /* A kind that this version does not know. */
    DIORITE_EXTENT_KIND_OTHER = 4,
} diorite_extent_kind;

/* An open file. */
typedef struct diorite_file diorite_file;

/* A range of a file and its offset on the device. */
typedef struct {
    /* First byte in the file. */
    uint64_t offset;
    /* Length in bytes. */
    uint64_t len;
    /* First byte on the volume's device; UINT64_MAX if there is none. */
    uint64_t device_offset;
    /* The kind. */
    diorite_extent_kind kind;
    /* Zeros. */
    uint32_t spare;
} diorite_extent;

/* The requirements of direct I/O on a file, in bytes. */
typedef struct {
    /* Offset and length must be multiples of this. */
    uint32_t offset;
    /* The address of the memory must be a multiple of this. */
    uint32_t memory;
    /* The largest single transfer of the device; larger ones are split. */
    uint32_t max_transfer;
    /* The largest atomic write (DIORITE_RWF_ATOMIC); 0 if the device has none. */
    uint32_t atomic_write;
} diorite_alignment;

/*
 * As open(2), for a file in a filesystem. flags: one of O_RDONLY, O_WRONLY, O_RDWR; O_CREAT,
 * O_EXCL, O_TRUNC (these need O_WRONLY or O_RDWR), O_APPEND (for diorite_write; diorite_pwrite
 * writes at its offset), O_DSYNC, O_SYNC, O_DIRECT. With O_DIRECT an unaligned transfer fails with
 * -EINVAL; see diorite_set_direct and diorite_set_bounce. A new file gets the permissions of mode.
 */
int diorite_file_open(diorite_filesystem *filesystem,
                      const char *path,
                      int flags,
                      uint32_t mode,
                      diorite_file **file);

/*
 * As diorite_file_open, for a file of the host's filesystem. It uses this library's page cache
 * instead of the host's, or with O_DIRECT none. A new file has the permissions 0666 without the
 * umask. All opens of a process on one file, by any name, share one content. A write of another
 * program is seen by direct reads, and by cached reads after the next open.
 */
int diorite_host_open(const char *path,
                      int flags,
                      diorite_file **file);

/*
 * As diorite_host_open, without a cache. Data goes to the disk by direct I/O, if the host's
 * filesystem has it, and transfers of any alignment are accepted. Calls of diorite_read and
 * diorite_write that follow each other have readahead and write-behind. diorite_file_close reports
 * data that could not be written.
 */
int diorite_host_open_uncached(const char *path,
                               int flags,
                               diorite_file **file);

/*
 * Get the reason why direct transfers of a host file go through the host's page cache: its
 * filesystem refuses direct I/O. Text and result are as for diorite_read_only_reason; 0 if
 * transfers bypass the host's page cache, and for other files.
 */
int64_t diorite_direct_refusal(diorite_file *file,
                               char *text,
                               size_t size);

/*
 * Open a whole device, an image or a part of one as a file of fixed size. target is a name as for
 * diorite_filesystem_open: /dev/sdb, disk.img?partition=2, nbd://HOST/EXPORT.
 */
int diorite_raw_open(const char *target,
                     int flags,
                     diorite_file **file);

/*
 * Close a file. Cached data of a host file or device is written back. The result is the error of
 * that, or of an earlier writeback that no diorite_fsync has reported. A close makes nothing
 * durable: call diorite_fsync before, or diorite_filesystem_close later.
 *
 * -EBUSY if transfers of a queue on the file are in flight; the file stays open. Any other result
 * closes the handle.
 */
int diorite_file_close(diorite_file *file);

/* As pread(2): returns the number of bytes, fewer only at the end of the file. */
int64_t diorite_pread(diorite_file *file, void *memory, size_t len, uint64_t offset);

/*
 * As pwrite(2): returns the number of bytes, fewer only if the volume becomes full. Buffered data
 * is durable after a sync.
 */
int64_t diorite_pwrite(diorite_file *file,
                       const void *memory,
                       size_t len,
                       uint64_t offset);

/*
 * As preadv2(2), with the flags DIORITE_RWF_NOWAIT and DIORITE_RWF_DONTCACHE. At most 1024
 * segments; direct I/O needs each of them aligned.
 */
int64_t diorite_preadv(diorite_file *file,
                       const struct iovec *segments,
                       int number,
                       uint64_t offset,
                       int flags);

/* As pwritev2(2), with the flags DIORITE_RWF_.... */
int64_t diorite_pwritev(diorite_file *file,
                        const struct iovec *segments,
                        int number,
                        uint64_t offset,
                        int flags);

/*
 * As read(2): reads at the position of the file and advances it. Threads that share a file take
 * turns.
 */
int64_t diorite_read(diorite_file *file,
                     void *memory,
                     size_t len);

/*
 * As write(2): writes at the position of the file and advances it; with O_APPEND writes at the end
 * of the file.
 */
int64_t diorite_write(diorite_file *file,
                      const void *memory,
                      size_t len);

/* As lseek(2) with SEEK_SET, SEEK_CUR and SEEK_END. */
int64_t diorite_seek(diorite_file *file, int64_t offset, int whence);

/*
 * Append all bytes at the current end of the file, or fail. offset, if not NULL, receives the
 * offset of the data.
 */
int diorite_append(diorite_file *file,
                   const void *memory,
                   size_t len,
                   uint64_t *offset);

/* As fsync(2). It also reports failures of earlier writeback. */
int diorite_fsync(diorite_file *file);

/* As fdatasync(2): makes the data durable, and the metadata needed to read it. */
int diorite_fdatasync(diorite_file *file);

/* As fstat(2). */
int diorite_fstat(diorite_file *file, diorite_attributes *attributes);

/* The size in bytes. */
int64_t diorite_size(diorite_file *file);

/* As ftruncate(2). */
int diorite_ftruncate(diorite_file *file, uint64_t size);

/*
 * As fallocate(2). Mode 0 allocates the blocks of the range, so later writes in it do not fail for
 * lack of space, and extends the file to the end of the range.
 */
int diorite_fallocate(diorite_file *file,
                      int mode,
                      uint64_t offset,
                      uint64_t len);

/*
 * The offset of the first data at or after offset, as lseek with SEEK_DATA; -ENXIO if there is
 * none. The position does not change.
 */
int64_t diorite_seek_data(diorite_file *file,
                          uint64_t offset);

/*
 * The offset of the first hole at or after offset, as lseek with SEEK_HOLE. The end of the file
 * counts as a hole; -ENXIO at or after it. The position does not change.
 */
int64_t diorite_seek_hole(diorite_file *file,
                          uint64_t offset);

/*
 * The extents of the file in file order, without holes. Stores at most number extents; returns the
 * number of all extents.
 */
int64_t diorite_extents(diorite_file *file,
                        diorite_extent *extents,
                        size_t number);

/* Get the requirements of direct I/O on a file. They do not change while the file is open. */
int diorite_get_alignment(diorite_file *file, diorite_alignment *alignment);

/*
 * Set direct I/O for later calls: DIORITE_DIRECT_OFF, DIORITE_DIRECT_PREFERRED or
 * DIORITE_DIRECT_REQUIRED.
 */
int diorite_set_direct(diorite_file *file,
                       uint32_t direct);

/*
 * Set whether later unaligned direct transfers are copied through aligned memory: 1, or 0 (the
 * default), which makes them errors.
 */
int diorite_set_bounce(diorite_file *file,
                       int bounce);

/* Write back the cached pages of a range, and drop them from the cache. */
int diorite_drop_cached(diorite_file *file, uint64_t offset, uint64_t len);

/* Get the counters of the file's filesystem or device since its open. */
int diorite_file_counters(diorite_file *file, diorite_counters *counters);


/*
 * Memory for direct I/O
 * ---------------------
 *
 * Direct I/O needs memory with the alignment that diorite_get_alignment returns. Any such memory is
 * possible: from posix_memalign, mmap or an arena of the application. Memory of
 * diorite_buffer_allocate has the alignment of the file, uses huge pages if the system has them,
 * and is registered with io_uring, which saves CPU time. Calls also accept addresses inside a
 * buffer, so a large buffer can be divided into pages.
 *
 * Threads: all calls may run in many threads at once.
 */

/*
 * Allocate len zeroed bytes for direct I/O on file. If file is NULL, the alignment is 4096, which
 * is enough for any file.
 */
int diorite_buffer_allocate(diorite_file *file,
                            size_t len,
                            void **memory);

/*
 * Free the memory of diorite_buffer_allocate. NULL is ignored.
 *
 * -EBUSY if a transfer of a queue uses the memory, -EINVAL if no buffer begins there. The buffer is
 * not freed then.
 */
int diorite_buffer_free(void *memory);


/*
 * Queues
 * ------
 *
 * Many direct transfers in flight from one thread, on any files: submit, then reap.
 *
 * Memory: from the submission until diorite_queue_reap returns the transfer (or the submission
 * fails, or diorite_queue_close returns) the memory belongs to the library. A read may store to it
 * at any time, and the data of a write must not change. Memory of diorite_buffer_allocate cannot be
 * freed in this time (-EBUSY); other memory must stay valid.
 *
 * Files: a file cannot be closed while a transfer on it is in flight (-EBUSY).
 *
 * Completion: a transfer completes when diorite_queue_reap returns it. Only then do sizes and
 * mappings change, and with O_DSYNC the write is durable. Transfers complete in any order. Two
 * transfers of one queue on overlapping ranges take effect in the order of their submission if one
 * of them is a write.
 *
 * Deadlock: a transfer locks its range of the file until it is reaped. A thread that accesses the
 * range of its own write in flight by another call (pread, fsync, another queue) waits for itself.
 * It must reap first.
 *
 * Threads: only one thread at a time may use a queue. A concurrent call fails with -EBUSY.
 */

/*
 * Submit transfers in batches, by diorite_queue_reap. This takes the least CPU time per transfer,
 * but the device idles between two batches.
 */
#define DIORITE_QUEUE_BATCHED 1

/* A queue of direct transfers. */
typedef struct diorite_queue diorite_queue;

/* A completed transfer. */
typedef struct {
    /* The user_data of the submission. */
    uint64_t user_data;
    /*
     * The number of transferred bytes, or a negative error number. A read has fewer bytes than
     * requested only at the end of the file, a write only if the volume becomes full.
     */
    int64_t result;
} diorite_completion;

/*
 * Open a queue for at most depth (1 to 32768) transfers in flight. flags is 0 or
 * DIORITE_QUEUE_BATCHED.
 */
int diorite_queue_open(uint32_t depth,
                       uint32_t flags,
                       diorite_queue **queue);

/*
 * Submit a read of len bytes from offset of the file. The file need not be open with O_DIRECT; the
 * transfer is direct.
 *
 * -EAGAIN if depth transfers are in flight; reap one. -EINVAL if the transfer is not aligned. The
 * completion has later errors.
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
 * Issue the submitted transfers to the device, without waiting. diorite_queue_reap also does this.
 * Call it before a wait on the descriptor.
 */
int diorite_queue_issue(diorite_queue *queue);

/*
 * Issue the submitted transfers, wait for at least wait_for of them (all, if fewer are in flight),
 * and store at most number in completions. Returns the number of stored completions. wait_for 0
 * does not wait; a wait_for above number counts as number.
 *
 * The last failed transfer sets the message and the kind of the thread. A loop that reuses the
 * memory of each completed transfer keeps the device busiest with wait_for 1.
 */
int diorite_queue_reap(diorite_queue *queue,
                       uint32_t wait_for,
                       diorite_completion *completions,
                       uint32_t number);

/* The number of submitted transfers that diorite_queue_reap has not returned. */
int diorite_queue_in_flight(diorite_queue *queue);

/*
 * A descriptor for poll and epoll, readable when a transfer can be reaped. It belongs to the queue:
 * do not read or close it. Call this before the first transfer (-EINVAL later). Call
 * diorite_queue_issue before each wait, and diorite_queue_reap with wait_for 0 after it, until that
 * returns 0.
 */
int diorite_queue_descriptor(diorite_queue *queue);

/*
 * Wait for the transfers in flight, discard their results, and close the queue. The data of their
 * writes is complete. NULL is ignored.
 */
void diorite_queue_close(diorite_queue *queue);

#ifdef __cplusplus
}
#endif

#endif /* DIORITE_H */
