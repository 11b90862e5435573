/* Makes every call on files in turn, and prints result, errno and a checksum of each. The output and the files must be the same with and
 * without a preloaded library. `every_call cached FILE` prints the number of cached pages of each half of a file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 700001, SPACE = 4 << 20 };
static unsigned char *from, *to;

static void line(const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (write(1, text, len) != len) _exit(9);
}

static unsigned long sum(const unsigned char *bytes, long len) {
    unsigned long hash = 14695981039346656037UL;
    for (long i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 1099511628211UL;
    return hash;
}

/* A write, or another call without content. */
#define DO(call) do { errno = 0; long r = (call); line("%d %s: %ld %d\n", __LINE__, #call, r, r < 0 ? errno : 0); } while (0)
/* A read into `to`. */
#define GET(call) do { memset(to, 7, SPACE); errno = 0; long r = (call); \
    line("%d %s: %ld %d %lx\n", __LINE__, #call, r, r < 0 ? errno : 0, sum(to, r < 0 ? 64 : r + 64)); } while (0)
#define AT(fd) line("%d position %ld\n", __LINE__, (long)lseek(fd, 0, SEEK_CUR))

static void positions(void) {
    int fd = open("a", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    long sizes[] = {1, 4095, 4096, 70000, 300000, LARGE, 1 << 20, 3};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        DO(write(fd, from + i, sizes[i]));
        AT(fd);
    }
    DO(read(fd, to, 10));
    DO(read(fd, to, LARGE));
    DO(close(fd));
    DO(close(fd));
    fd = open("a", O_RDONLY);
    for (int i = 0; i < 5; i++) {
        GET(read(fd, to + i, i * 131072 + 1000));
        AT(fd);
    }
    GET(read(fd, to, SPACE - 64));
    AT(fd);
    GET(read(fd, to, 1000));
    GET(read(fd, to, LARGE));
    DO(write(fd, from, 5));
    DO(write(fd, from, LARGE));
    DO(lseek(fd, 10 << 20, SEEK_SET));
    GET(read(fd, to, LARGE));
    AT(fd);
    DO(close(fd));
}

static void offsets(void) {
    int fd = open("b", O_CREAT | O_RDWR | O_TRUNC, 0600);
    long at[] = {0, 5, 4096, 1 << 20, (3 << 20) + 7, 8 << 20};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        DO(pwrite(fd, from + i, LARGE, at[i]));
        DO(pwrite(fd, from + i, 100, at[i] + 3));
        GET(pread(fd, to + i, LARGE, at[i] / 2));
        GET(pread(fd, to, 300, at[i] / 3));
    }
    DO(pwrite(fd, from, 100, -1));
    DO(pwrite(fd, from, LARGE, -5));
    GET(pread(fd, to, LARGE, -1));
    GET(pread(fd, to, LARGE, 100 << 20));
    GET(pread(fd, to, LARGE, (8 << 20) + LARGE - 10));
    DO(pwrite(fd, from, LARGE, 0x7fffffffffffffffL));
    DO(write(fd, from, LARGE));
    AT(fd);
    GET(read(fd, to, LARGE));
    AT(fd);
    DO(ftruncate(fd, 12345));
    GET(pread(fd, to, LARGE, 0));
    DO(ftruncate(fd, 2 << 20));
    GET(pread(fd, to, SPACE - 64, 0));
    DO(fsync(fd));
    DO(fdatasync(fd));
    DO(close(fd));
    DO(pwrite(-1, from, LARGE, 0));
    DO(pread(-1, to, LARGE, 0));
    DO(read(-1, to, 10));
}

static void memory(void) {
    int fd = open("c", O_CREAT | O_RDWR | O_TRUNC, 0600);
    unsigned char *edge = mmap(0, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + (400 << 10), LARGE - (400 << 10));
    memset(edge, 3, 400 << 10);
    DO(write(fd, (void *)1, 10));
    DO(write(fd, (void *)1, LARGE));
    DO(pwrite(fd, (void *)4096, LARGE, 4096));
    DO(write(fd, edge + 5, 0));
    DO(write(fd, from, LARGE));
    GET(pread(fd, (void *)1, 10, 0));
    GET(pread(fd, (void *)4096, LARGE, 0));
    DO(pwrite(fd, edge + 5, LARGE, 100) > 0);
    DO(pread(fd, edge + 5, LARGE, 100) > 0);
    DO(readv(fd, (void *)8, 2));
    DO(pwritev(fd, (void *)8, 2, 0));
    DO(copy_file_range(fd, (void *)8, fd, (void *)8, 10, 0));
    DO(sendfile(1, fd, (void *)8, 10));
    DO(close(fd));
}

static void appends(void) {
    int fd = open("d", O_CREAT | O_WRONLY | O_APPEND | O_TRUNC, 0600), other = open("d", O_RDWR);
    DO(write(fd, from, LARGE));
    DO(write(other, from + 9, 5000));
    DO(write(fd, from + 1, 10));
    DO(pwrite(fd, from + 2, LARGE, 0));
    AT(fd);
    GET(pread(other, to, SPACE - 64, 0));
    DO(fcntl(fd, F_SETFL, 0));
    DO(pwrite(fd, from + 3, LARGE, 1));
    GET(pread(other, to, SPACE - 64, 0));
    DO(close(fd));
    DO(close(other));
}

static void shared(void) {
    int fd = open("e", O_CREAT | O_WRONLY | O_TRUNC, 0600), copy = dup(fd);
    DO(write(fd, from, LARGE));
    DO(write(copy, from + 1, LARGE));
    AT(fd);
    DO(close(fd));
    DO(write(copy, from + 2, 100));
    pid_t child = fork();
    if (child == 0) {
        DO(write(copy, from + 3, LARGE));
        DO(close(copy));
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    line("child %d\n", WEXITSTATUS(status));
    AT(copy);
    DO(write(copy, from + 4, LARGE));
    DO(close(copy));
    fd = open("e", O_RDONLY);
    child = fork();
    if (child == 0) {
        GET(read(fd, to, LARGE));
        exit(0);
    }
    waitpid(child, &status, 0);
    GET(read(fd, to, LARGE));
    AT(fd);
    DO(dup2(fd, 50));
    GET(read(50, to, 5000));
    DO(dup3(50, fd, O_CLOEXEC));
    GET(read(fd, to, LARGE));
    DO(close_range(50, 60, 0));
    DO(close(50));
    DO(unlink("e"));
    GET(read(fd, to, LARGE));
    DO(close(fd));
    fd = open("e", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    DO(dup2(fd, 1000));
    DO(write(1000, from, LARGE));
    DO(close(1000));
    DO(close(fd));
    DO(close(900));
    DO(close(901));
    /* Written by a shell and its children through one description. */
    DO(system("{ cat a; echo between; cat b; } > shell; head -c 100000 a >> shell; cat < shell | wc -c > count"));
}

static void vectors(void) {
    int fd = open("f", O_CREAT | O_RDWR | O_TRUNC, 0600);
    struct iovec out[3] = {{from, 10}, {from + 5, LARGE}, {from + 7, 70000}}, in[2] = {{to, 100000}, {to + 100003, LARGE}};
    DO(writev(fd, out, 3));
    DO(pwritev(fd, out, 3, 77));
    DO(pwritev(fd, out, 3, -1));
    DO(pwritev2(fd, out, 3, -1, 0));
    DO(pwritev2(fd, out, 3, 5, RWF_APPEND));
    DO(pwritev2(fd, out, 3, 5, 0x40000000));
    DO(lseek(fd, 99, SEEK_SET));
    GET(readv(fd, in, 2));
    AT(fd);
    GET(preadv(fd, in, 2, 1));
    GET(preadv2(fd, in, 2, -1, 0));
    GET(preadv2(fd, in, 2, 100, 0x40000000));
    GET(readv(fd, in, -1));
    GET(readv(fd, in, 5000));
    DO(writev(fd, out, 0));
    AT(fd);
    DO(close(fd));
}

static void kernel_copies(void) {
    int fd = open("b", O_CREAT | O_RDWR, 0600), out = open("g", O_CREAT | O_RDWR | O_TRUNC, 0600), pipes[2];
    off_t at = 100, to_at = 5000;
    DO(pwrite(fd, from, SPACE, 0));
    DO(copy_file_range(fd, &at, out, &to_at, LARGE, 0));
    line("%ld %ld\n", (long)at, (long)to_at);
    DO(lseek(fd, 3, SEEK_SET));
    DO(copy_file_range(fd, 0, out, 0, 1 << 30, 0));
    AT(fd);
    AT(out);
    DO(copy_file_range(fd, 0, out, 0, 10, 0));
    DO(copy_file_range(fd, 0, -1, 0, 10, 0));
    DO(copy_file_range(fd, 0, out, 0, 10, 77));
    at = 50;
    DO(sendfile(out, fd, &at, LARGE));
    line("%ld\n", (long)at);
    DO(lseek(fd, 9, SEEK_SET));
    DO(sendfile(out, fd, 0, 1 << 30));
    AT(fd);
    AT(out);
    DO(sendfile(-1, fd, 0, 10));
    DO(pipe(pipes));
    at = 30000;
    DO(splice(fd, &at, pipes[1], 0, 10000, 0));
    GET(read(pipes[0], to, 100000));
    GET(pread(out, to, SPACE - 64, 0));
    DO(close(pipes[0]));
    signal(SIGPIPE, SIG_IGN);
    DO(write(pipes[1], from, LARGE));
    DO(close(pipes[1]));
    DO(close(fd));
    DO(close(out));
}

static void maps(void) {
    int fd = open("h", O_CREAT | O_RDWR | O_TRUNC, 0600);
    DO(write(fd, from, SPACE));
    unsigned char *map = mmap(0, SPACE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[1000] ^= 255;
    map[LARGE + 1] ^= 255;
    GET(pread(fd, to, SPACE - 64, 0));
    DO(pwrite(fd, from + 77, LARGE, 8192));
    line("map %lx\n", sum(map, SPACE));
    DO(msync(map, SPACE, MS_SYNC));
    map[5] = 1;
    DO(munmap(map, SPACE));
    GET(pread(fd, to, LARGE, 0));
    DO(close(fd));
}

static void streams(void) {
    FILE *file = fopen("i", "w+");
    line("stream %d\n", fileno(file));
    DO(fwrite(from, 1, SPACE, file));
    DO(fseek(file, 1000, SEEK_SET));
    GET(fread(to, 1, LARGE, file));
    DO(fputs("text", file));
    DO(fclose(file));
    file = fopen("i", "a+");
    DO(fprintf(file, "%d", 12345));
    DO(ftell(file));
    DO(fclose(file));
    file = fopen("i", "r");
    GET(fread(to, 1, SPACE - 64, file));
    DO(fread(to, 1, SPACE, file));
    DO(feof(file));
    DO(fclose(file));
    line("none %d\n", fopen("missing", "r") == 0);
    file = fopen("/dev/full", "w");
    DO(fputs("text", file));
    DO(fclose(file));
    /* Still open at the end of the process. */
    file = fopen("j", "w");
    DO(fwrite(from, 1, 100001, file));
}

static int is_locked(const char *name) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open(name, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        fcntl(fd, F_GETLK, &lock);
        _exit(lock.l_type != F_UNLCK);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void locks(void) {
    int fd = open("k", O_CREAT | O_RDWR | O_TRUNC, 0600), reader = open("k", O_RDONLY);
    DO(pwrite(fd, from, SPACE, 0));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    DO(fcntl(fd, F_SETLK, &lock));
    line("locked %d\n", is_locked("k"));
    GET(pread(fd, to, LARGE, 0));
    GET(read(reader, to, LARGE));
    DO(pwrite(fd, from, LARGE, SPACE));
    DO(write(fd, from, 100));
    line("locked %d\n", is_locked("k"));
    DO(close(reader));
    line("locked %d\n", is_locked("k"));
    DO(lockf(fd, F_LOCK, 0));
    line("locked %d\n", is_locked("k"));
    DO(close(fd));
    fd = open("k", O_RDWR);
    DO(flock(fd, LOCK_EX));
    DO(write(fd, from, 500));
    DO(write(fd, from, LARGE));
    DO(close(fd));
    fd = open("k", O_RDWR);
    DO(flock(fd, LOCK_EX | LOCK_NB));
    DO(close(fd));
}

static void others(void) {
    int fd = open(".", O_RDONLY), pair[2];
    GET(read(fd, to, LARGE));
    DO(write(fd, from, LARGE));
    DO(close(fd));
    fd = eventfd(3, 0);
    GET(read(fd, to, 8));
    DO(close(fd));
    fd = open("/dev/zero", O_RDWR);
    GET(read(fd, to, LARGE));
    DO(write(fd, from, LARGE));
    DO(close(fd));
    fd = open("/dev/full", O_WRONLY);
    DO(write(fd, from, LARGE));
    DO(write(fd, from, 5));
    DO(close(fd));
    DO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    DO(write(pair[0], from, 70000));
    GET(read(pair[1], to, 70000));
    DO(close(pair[0]));
    GET(read(pair[1], to, 70000));
    DO(pread(pair[1], to, LARGE, 0));
    DO(close(pair[1]));
    fd = open("/proc/self/comm", O_RDONLY);
    GET(read(fd, to, LARGE));
    GET(pread(fd, to, 5, 1));
    DO(close(fd));
    fd = open("l", O_CREAT | O_RDWR | O_TRUNC | O_SYNC, 0600);
    DO(write(fd, from, LARGE));
    DO(close(fd));
    fd = open("l", O_PATH);
    GET(read(fd, to, LARGE));
    DO(close(fd));
    fd = open("l", O_RDWR | O_DIRECT);
    if (fd >= 0) {
        GET(pread(fd, to, 1 << 20, 0));
        GET(pread(fd, to + 1, 1 << 20, 1));
        DO(pwrite(fd, from, 1 << 20, 4096));
        DO(pwrite(fd, from + 1, LARGE, 1));
        DO(close(fd));
    }
}

static void limits(void) {
    struct rlimit limit = {LARGE + 100000, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("m", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    setrlimit(RLIMIT_FSIZE, &limit);
    DO(write(fd, from, LARGE));
    long total = 0, count;
    while ((count = write(fd, from, LARGE)) > 0) total += count;
    line("until the limit %ld %d\n", total, errno);
    DO(write(fd, from, 100));
    AT(fd);
    DO(pwrite(fd, from, LARGE, 2 << 20));
    setrlimit(RLIMIT_FSIZE, &before);
    DO(close(fd));
}

static void *reader(void *argument) {
    int fd = open("b", O_RDONLY);
    unsigned char *own = malloc(LARGE);
    unsigned long all = 0;
    for (long i = 0; i < 20; i++) {
        long len = pread(fd, own, i % 2 ? 5000 : LARGE, i * 100003);
        all ^= sum(own, len);
    }
    free(own);
    close(fd);
    *(unsigned long *)argument = all;
    return 0;
}

static int ticks, tick_file;
static void tick(int signal) {
    (void)signal;
    if (write(tick_file, from, 1000) == 1000) ticks++;
}

static void at_once(void) {
    pthread_t threads[4];
    unsigned long sums[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, reader, &sums[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 4; i++) line("thread %lx\n", sums[i]);
    /* A handler that writes, at any place of another write. */
    tick_file = open("n", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    int fd = open("o", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    signal(SIGALRM, tick);
    ualarm(500, 500);
    for (int i = 0; i < 200; i++) pwrite(fd, from, i % 20 ? 3000 : LARGE, i * 3000);
    ualarm(0, 0);
    line("ticks %d\n", (int)(lseek(tick_file, 0, SEEK_CUR) == ticks * 1000L));
    DO(close(tick_file));
    DO(close(fd));
    DO(unlink("n"));
}

static int cached(const char *name) {
    int fd = open(name, O_RDONLY);
    struct stat meta;
    fstat(fd, &meta);
    long pages = (meta.st_size + 4095) / 4096, halves[2] = {0, 0};
    unsigned char *map = mmap(0, meta.st_size, PROT_READ, MAP_SHARED, fd, 0), *state = calloc(pages, 1);
    mincore(map, meta.st_size, state);
    for (long i = 0; i < pages; i++) halves[i >= pages / 2] += state[i] & 1;
    printf("%ld %ld\n", halves[0], halves[1]);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3) return cached(arguments[2]);
    from = mmap(0, SPACE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    to = mmap(0, SPACE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t state = 88172645463325252UL;
    for (long i = 0; i < SPACE + 4096; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        from[i] = state;
    }
    positions();
    offsets();
    memory();
    appends();
    shared();
    vectors();
    kernel_copies();
    maps();
    streams();
    locks();
    others();
    limits();
    at_once();
    int fd = open("a", O_RDONLY);
    line("lowest %d\n", fd);
    return 42;
}
