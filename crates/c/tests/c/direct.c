/* ARCHITECTURE invariant 1, from C: the direct path copies no byte, with any aligned memory. Arguments: IMAGE. */
#include "check.h"
#include <sys/mman.h>

enum { LEN = 1 << 20 };

static uint64_t copied(diorite_filesystem *fs)
{
    diorite_counters counters;
    OK(diorite_filesystem_counters(fs, &counters));
    return counters.bytes_copied;
}

/* Write, read back, and compare, with one buffer for each. */
static void round_trip(diorite_file *file, unsigned char *out, unsigned char *in, uint64_t offset, int seed)
{
    for (int at = 0; at < LEN; at++)
        out[at] = (unsigned char)(at * 31 + at / 4096 + seed);
    memset(in, 0, LEN);
    IS(LEN, diorite_pwrite(file, out, LEN, offset));
    IS(LEN, diorite_pread(file, in, LEN, offset));
    CHECK(memcmp(in, out, LEN) == 0);
}

static void vectors(diorite_file *file, unsigned char *out, unsigned char *in)
{
    struct iovec to[3] = {{out, 4096}, {out + 8192, 8192}, {out + 32768, 4096}};
    struct iovec from[2] = {{in, 8192}, {in + 8192, 8192}};

    IS(16384, diorite_pwritev(file, to, 3, 65536, DIORITE_RWF_DSYNC));
    IS(16384, diorite_preadv(file, from, 2, 65536, 0));
    CHECK(memcmp(in, out, 4096) == 0 && memcmp(in + 4096, out + 8192, 8192) == 0);
    CHECK(memcmp(in + 12288, out + 32768, 4096) == 0);
    IS(0, diorite_preadv(file, NULL, 0, 0, 0));
    FAILS(EFAULT, "NULL", diorite_preadv(file, NULL, 1, 0, 0));
    FAILS(EINVAL, "1024", diorite_preadv(file, from, 1025, 0, 0));
    FAILS(EINVAL, "1024", diorite_preadv(file, from, -1, 0, 0));
    FAILS(EOPNOTSUPP, "flag", diorite_preadv(file, from, 2, 0, 0x4000));
}

static void alignment(diorite_filesystem *fs, diorite_file *file, unsigned char *memory)
{
    diorite_alignment needs;
    diorite_counters counters;
    diorite_file *bounced;

    OK(diorite_get_alignment(file, &needs));
    CHECK(needs.offset >= 512 && needs.memory >= 1 && needs.max_transfer >= 4096);
    FAILS(EINVAL, "offset", diorite_pread(file, memory, needs.offset, 1));
    CHECK(diorite_error_kind() == DIORITE_KIND_INVALID_ALIGNMENT);
    FAILS(EINVAL, "diorite_set_bounce", diorite_pread(file, memory, needs.offset - 1, 0));
    if (needs.memory > 1)
        FAILS(EINVAL, "memory", diorite_pread(file, memory + 1, needs.offset, 0));
    CHECK(copied(fs) == 0);
    OK(diorite_file_open(fs, "/data", O_RDONLY | O_DIRECT, 0, &bounced));
    FAILS(EINVAL, "0 or 1", diorite_set_bounce(bounced, 2));
    OK(diorite_set_bounce(bounced, 1));
    IS(777, diorite_pread(bounced, memory + 1, 777, 3));
    OK(diorite_filesystem_counters(fs, &counters));
    CHECK(counters.bounces == 1 && counters.bytes_copied >= 777);
    OK(diorite_file_close(bounced));
}

static void space(diorite_file *file, unsigned char *memory)
{
    diorite_extent extents[8];
    diorite_attributes is;

    OK(diorite_ftruncate(file, 16 * LEN));
    OK(diorite_fallocate(file, DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE, 0, 65536));
    IS(65536, diorite_seek_data(file, 0));
    IS(0, diorite_seek_hole(file, 0));
    FAILS(ENXIO, "end", diorite_seek_data(file, 16 * LEN));
    int64_t number = diorite_extents(file, extents, 8);
    CHECK(number >= 1 && extents[0].offset == 65536 && extents[0].kind == DIORITE_EXTENT_KIND_DATA);
    CHECK(extents[0].device_offset % 1024 == 0 && extents[0].device_offset != UINT64_MAX);
    IS(number, diorite_extents(file, NULL, 0));
    OK(diorite_fallocate(file, DIORITE_FALLOC_KEEP_SIZE, 16 * LEN, LEN));
    IS(16 * LEN, diorite_size(file));
    OK(diorite_fallocate(file, 0, 16 * LEN, LEN));
    IS(17 * LEN, diorite_size(file));
    OK(diorite_fallocate(file, DIORITE_FALLOC_COLLAPSE_RANGE, 0, 65536));
    OK(diorite_fallocate(file, DIORITE_FALLOC_INSERT_RANGE, 0, 65536));
    OK(diorite_fallocate(file, DIORITE_FALLOC_ZERO_RANGE, 17 * LEN - 4096, 8192));
    IS(17 * LEN + 4096, diorite_size(file));
    OK(diorite_fallocate(file, DIORITE_FALLOC_ZERO_RANGE | DIORITE_FALLOC_KEEP_SIZE, 65536, 4096));
    IS(4096, diorite_pread(file, memory, 4096, 65536));
    CHECK(memory[0] == 0 && memcmp(memory, memory + 1, 4095) == 0);
    FAILS(EOPNOTSUPP, "mode", diorite_fallocate(file, 0x40, 0, 4096));
    FAILS(EINVAL, "range", diorite_fallocate(file, 0, UINT64_MAX, 4096));
    OK(diorite_fstat(file, &is));
    CHECK(is.size == 17 * LEN + 4096 && is.sectors > 0);
}

static void switched(diorite_filesystem *fs, diorite_file *file, unsigned char *memory)
{
    uint64_t before = copied(fs);

    OK(diorite_set_direct(file, DIORITE_DIRECT_OFF));
    IS(5, diorite_pwrite(file, "small", 5, 100001));
    OK(diorite_set_direct(file, DIORITE_DIRECT_REQUIRED));
    CHECK(copied(fs) > before);
    /* The direct read sees the buffered write. */
    IS(8192, diorite_pread(file, memory, 8192, 98304));
    CHECK(memcmp(memory + 1697, "small", 5) == 0);
    FAILS(EINVAL, "DIORITE_DIRECT", diorite_set_direct(file, 17));
    FAILS(EINVAL, "DIORITE_DIRECT", diorite_set_direct(file, 0));
}

/* The flags of single calls, through the cache. */
static void flags(diorite_file *file)
{
    char memory[4096];
    struct iovec part = {memory, sizeof memory};

    OK(diorite_set_direct(file, DIORITE_DIRECT_OFF));
    OK(diorite_drop_cached(file, 0, UINT64_MAX));
    FAILS(EAGAIN, "/data", diorite_preadv(file, &part, 1, 8192, DIORITE_RWF_NOWAIT));
    CHECK(diorite_error_kind() == DIORITE_KIND_WOULD_BLOCK);
    IS(4096, diorite_preadv(file, &part, 1, 8192, DIORITE_RWF_DONTCACHE));
    IS(4096, diorite_pread(file, memory, 4096, 8192));
    IS(4096, diorite_preadv(file, &part, 1, 8192, DIORITE_RWF_NOWAIT));
    IS(4096, diorite_pwritev(file, &part, 1, 8192, DIORITE_RWF_DONTCACHE | DIORITE_RWF_SYNC));
    FAILS(EOPNOTSUPP, "atomic", diorite_pwritev(file, &part, 1, 8192, DIORITE_RWF_ATOMIC));
    FAILS(EINVAL, "atomic", diorite_preadv(file, &part, 1, 8192, DIORITE_RWF_ATOMIC));
}

int main(int argc, char **argv)
{
    diorite_filesystem *fs;
    diorite_file *file;
    void *registered, *for_any;

    CHECK(argc == 2);
    OK(diorite_filesystem_create(argv[1], 64 << 20, NULL, NULL, &fs));
    OK(diorite_file_open(fs, "/data", O_RDWR | O_CREAT | O_DIRECT, 0644, &file));
    OK(diorite_buffer_allocate(file, LEN, &registered));
    OK(diorite_buffer_allocate(NULL, LEN, &for_any));
    CHECK((uintptr_t)for_any % 4096 == 0);
    unsigned char *mapped = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *heap = aligned_alloc(4096, LEN);
    CHECK(mapped != MAP_FAILED && heap != NULL);

    round_trip(file, registered, for_any, 0, 1);
    round_trip(file, for_any, registered, LEN, 2);
    round_trip(file, mapped, heap, 0, 3);
    round_trip(file, heap, mapped + 4096, 3 * LEN, 4); /* past a hole */
    vectors(file, heap, mapped);
    CHECK(copied(fs) == 0);
    space(file, heap);
    CHECK(copied(fs) == 0);
    alignment(fs, file, heap);
    switched(fs, file, heap);
    flags(file);

    OK(diorite_buffer_free(registered));
    OK(diorite_buffer_free(for_any));
    FAILS(EINVAL, "no buffer", diorite_buffer_free(for_any));
    FAILS(EINVAL, "no buffer", diorite_buffer_free(heap));
    OK(diorite_file_close(file));
    OK(diorite_filesystem_close(fs));
    return 0;
}
