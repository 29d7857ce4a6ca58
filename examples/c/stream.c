/* A scoRNN layer with its head, frame by frame, through csrc/scornn.h: the state is all that is kept between calls.
 *
 *     cc stream.c -I ../../csrc libscornn.so -o stream && ./stream weights.bin < frames.txt
 *
 * weights.bin: n, m, p as int64, then W (n, n), U (n, m), b (n), h0 (n), V (p, n), c (p) as float32, made by
 * weights.py. Each line of the input is a frame of m numbers; each line of the output is V h + c. */
#include <stdio.h>
#include <stdlib.h>
#include "scornn.h"

static float *numbers(FILE *file, int64_t count) {
    float *made = malloc((size_t)count * sizeof(float));
    if (!made || fread(made, sizeof(float), (size_t)count, file) != (size_t)count) exit(3);
    return made;
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    int64_t size[3];
    if (!file || fread(size, sizeof size[0], 3, file) != 3) return 2;
    if (scornn_abi_version() != SCORNN_ABI_VERSION) return 4;
    const int64_t n = size[0], m = size[1], p = size[2];
    float *W = numbers(file, n * n), *U = numbers(file, n * m), *b = numbers(file, n), *h = numbers(file, n);
    float *V = numbers(file, p * n), *c = numbers(file, p);
    float *x = calloc((size_t)m, sizeof *x), *after = calloc((size_t)n, sizeof *after);
    float *output = calloc((size_t)n, sizeof *output), *y = calloc((size_t)p, sizeof *y);
    struct scornn_sequence s = {.steps = 1, .batch = 1, .hidden = n, .input = m, .heads = p,
                                .dtype = SCORNN_FLOAT32, .cell = SCORNN_MODRELU, .isa = SCORNN_ISA_BEST,
                                .x = x, .x_stride = {m, m, 1}, .h0 = h, .W = W, .U = U, .b = b,
                                .output = output, .h_n = after, .V = V, .c = c, .y = y};
    for (;;) {
        for (int64_t i = 0; i < m; ++i)
            if (scanf("%f", &x[i]) != 1) return i ? 3 : 0;
        if (scornn_forward(&s, 0, 1) != SCORNN_OK) return 1;
        for (int64_t i = 0; i < n; ++i) h[i] = after[i]; /* the next frame starts from here */
        for (int64_t i = 0; i < p; ++i) printf("%.9g%c", y[i], i + 1 < p ? ' ' : '\n');
        fflush(stdout);
    }
}
