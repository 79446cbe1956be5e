// Preloaded into a process: the Nth call that writes to (or reads) a file below a folder fails, is cut short, or kills after half of its data.
//   FAULT_UNDER   the folder; FAULT_CALLS  "write" or "read"; FAULT_AT  N, from 1
//   FAULT_ACTION  "kill", "short" (every call moves half of the bytes), or the number of an error;
//   FAULT_STAYS   set: later calls fail, too
//   FAULT_COUNT   file that gets the number of calls when the process ends
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *under, *calls, *action;
static long at, count;
static int stays;

__attribute__((constructor)) static void begin(void) {
    under = getenv("FAULT_UNDER");
    calls = getenv("FAULT_CALLS");
    action = getenv("FAULT_ACTION");
    at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
    stays = getenv("FAULT_STAYS") != NULL;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld", count);
        fclose(file);
    }
}

static int is_under(const char *path) {
    char whole[2 * PATH_MAX], folder[PATH_MAX];
    if (!under) return 0;
    if (path[0] != '/') {
        if (!getcwd(folder, sizeof folder)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", folder, path);
        path = whole;
    }
    return !strncmp(path, under, strlen(under));
}

// Whether this call, of the kind "write" or "read", is to fail; errno is set then.
static int strikes_data(const char *kind, const char *path, int fd, const void *data, size_t half) {
    if (!calls || strcmp(kind, calls) || !is_under(path)) return 0;
    long n = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (!action || !strcmp(action, "short") || n < at || (n > at && !stays)) return 0;
    if (!strcmp(action, "kill")) {
        if (data) syscall(SYS_write, fd, data, half);
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = atoi(action);
    return 1;
}

static int strikes(const char *kind, const char *path) { return strikes_data(kind, path, -1, NULL, 0); }

static int strikes_fd_data(const char *kind, int fd, const void *data, size_t *size) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (size && action && !strcmp(action, "short") && calls && !strcmp(kind, calls) && is_under(path))
        *size = (*size + 1) / 2;
    return strikes_data(kind, path, fd, data, size ? *size / 2 : 0);
}

static int strikes_fd(const char *kind, int fd, size_t *size) { return strikes_fd_data(kind, fd, NULL, size); }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    return strikes_fd_data("write", fd, data, &size) ? -1 : NEXT(write)(fd, data, size);
}
ssize_t writev(int fd, const struct iovec *parts, int number) {
    size_t size = parts[0].iov_len, all = size;
    if (strikes_fd_data("write", fd, parts[0].iov_base, &size)) return -1;
    return size < all ? NEXT(write)(fd, parts[0].iov_base, size) : NEXT(writev)(fd, parts, number);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return strikes_fd("write", fd, &size) ? -1 : NEXT(pwrite)(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return strikes_fd("write", fd, &size) ? -1 : NEXT(pwrite64)(fd, data, size, offset);
}
int fsync(int fd) { return strikes_fd("write", fd, NULL) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return strikes_fd("write", fd, NULL) ? -1 : NEXT(fdatasync)(fd); }
int rename(const char *from, const char *to) { return strikes("write", to) ? -1 : NEXT(rename)(from, to); }
int mkdir(const char *path, mode_t mode) {
    int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    return strikes("write", path) ? -1 : next(path, mode);
}
ssize_t read(int fd, void *data, size_t size) {
    return strikes_fd("read", fd, &size) ? -1 : NEXT(read)(fd, data, size);
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    return strikes_fd("read", fd, &size) ? -1 : NEXT(pread)(fd, data, size, offset);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    return strikes_fd("read", fd, &size) ? -1 : NEXT(pread64)(fd, data, size, offset);
}
