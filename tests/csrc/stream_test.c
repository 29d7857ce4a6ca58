/* A stream of a scoRNN whose steps must not allocate: malloc and its kin end the program while a step runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "scornn.h"

static int stepping = 0;

static void check(const char *name) {
    if (stepping) {
        fputs(name, stderr);
        abort();
    }
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) { return check("malloc"), __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return check("calloc"), __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return check("realloc"), __libc_realloc(memory, size); }
void free(void *memory) { check("free"), __libc_free(memory); }
int posix_memalign(void **memory, size_t alignment, size_t size) {
    check("posix_memalign");
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL;
}

int main(int argc, char **argv) {
    enum { n = 40 };
    static float U[n], W[n * n], b[n], V[n], c[1], x[64], y[64];
    const float value = argc > 1 ? (float)atof(argv[1]) : 1.0f;
    for (int i = 0; i < n; ++i) {
        U[i] = 0.01f * (float)(i + 1);
        W[i * n + (i + 1) % n] = 1.0f;
        V[i] = 0.1f;
    }
    for (int t = 0; t < 64; ++t) x[t] = t % 3 ? value : -0.5f * value;
    const int64_t sizes[] = {1, 1, n, n, n};
    const float state[n] = {0};
    const void *starts[] = {NULL, NULL, state, NULL, NULL};
    const struct scornn_operation operations[] = {
        {SCORNN_MULTIPLY, 0, n, 1, 0, {U, NULL}, {0, -1, -1}, 3},
        {SCORNN_MULTIPLY, 0, n, n, 0, {W, NULL}, {2, -1, -1}, 4},
        {SCORNN_ACTIVATE, SCORNN_MODRELU, n, 0, 0, {b, NULL}, {3, 4, -1}, 2},
        {SCORNN_MULTIPLY, 0, 1, n, 0, {V, c}, {2, -1, -1}, 1},
    };
    const struct scornn_network network = {SCORNN_FLOAT32, SCORNN_ISA_BEST, 1, 5, 4, sizes, starts, operations};
    const int64_t bytes = scornn_prepare(&network, NULL);
    void *memory = NULL;
    if (bytes < 0 || posix_memalign(&memory, 64, (size_t)bytes) || scornn_prepare(&network, memory) != bytes) return 2;
    stepping = 1;
    int64_t made = 0;
    for (int t = 0; t < 64; ++t) made += scornn_step(memory, 1, x + t, y + t);
    scornn_reset(memory);
    made += scornn_step(memory, 64, x, y);
    stepping = 0;
    free(memory);
    return made == 128 ? 0 : 1;
}
