/* The C interface of the recurrence kernel.
 *
 *     z_t = U x_t + W h_{t-1},   h_t = act(z_t),   y_t = V h_t + c          for one batch of sequences.
 *
 * The head y may be left out. In one pass with the recurrence it costs little: h_t is in cache when V reads it, and the
 * gradient of y is as thin as y, while that of h is as large as all states.
 *
 * The LSTM is the cell with four rows of W, U and b to a unit, in the order i, f, g, o, and a second state:
 *
 *     i, f, o = sigmoid(z + b),   g = tanh(z + b),   c_t = f c_{t-1} + i g,   h_t = o tanh(c_t).
 *
 * So are the GRU and the GORU, with three rows to a unit, r, g, c, and four numbers of b, the fourth, b_s, beside W_c h:
 *
 *     r, g = sigmoid(z + b),   c = act(r (W_c h + b_s) + U_c x, b_c),   h_t = g h_{t-1} + (1 - g) c,
 *
 * act(a, b) = tanh(a + b) for the GRU and sign(a) relu(|a| + b) for the GORU.
 *
 * A bank of rotations turns the units 2j and 2j + 1 together and has no matrix: W (4, n) holds cos and (-sin, sin) by
 * unit, and what float32 cut off from both, and U may be NULL: then x_t is what enters the state, and m is n. The
 * gradient of W is (n,), the sum of (R^T g) swap(h) by unit, whose difference in a pair is that of the angle. backward
 * reads of the output the states before every 16th step, and may write the gradient of x over x.
 *
 * Every call is single-threaded and touches only the batch rows [row_begin, row_end): sequences are independent, so a
 * caller gives disjoint shards to as many threads as it likes. No state is kept between calls. Inside a call numbers
 * below the smallest normal one, 1.2e-38 in float32, are zero; the thread's own mode is there again when it returns.
 *
 * Sizes: T steps, B sequences, n hidden units, m inputs, p outputs. Strides count elements and may be zero or negative.
 */
#ifndef SCORNN_H
#define SCORNN_H

#include <stdint.h>

#define SCORNN_ABI_VERSION 8

#if defined(_WIN32)
#define SCORNN_API __declspec(dllexport)
#elif defined(__GNUC__)
#define SCORNN_API __attribute__((visibility("default")))
#else
#define SCORNN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum scornn_dtype { SCORNN_FLOAT32 = 0, SCORNN_FLOAT64 = 1 };

enum scornn_cell {
    SCORNN_IDENTITY = 0,
    SCORNN_RELU = 1,
    SCORNN_LEAKY_RELU = 2,      /* slope 0.1 */
    SCORNN_TANH = 3,
    SCORNN_MODRELU = 4,         /* sign(z) relu(|z| + b) */
    SCORNN_COMPLEX_MODRELU = 5, /* adjacent pairs (re, im): z relu(|z| + b) / (|z| + 1e-5) */
    SCORNN_LSTM = 64,           /* the cells that follow are no activations, and have no head */
    SCORNN_GRU = 65,
    SCORNN_GORU = 66,
    SCORNN_BANK = 67            /* h_t = R h_{t-1} + U x_t + b: see above */
};

enum scornn_isa { SCORNN_ISA_BEST = 0, SCORNN_ISA_PORTABLE = 1, SCORNN_ISA_AVX2 = 2, SCORNN_ISA_AVX512 = 3 };

enum scornn_status { SCORNN_OK = 0, SCORNN_OUT_OF_MEMORY = 1, SCORNN_INVALID = 2, SCORNN_INACCURATE = 3 };

/* W as a product of cheap factors that are applied in every step. A complex factor is a pair (re, im), and complex
 * states go with SCORNN_COMPLEX_MODRELU; real rotations with SCORNN_MODRELU or SCORNN_IDENTITY. n counts units.
 *
 * SCORNN_FOURIER:   W = D3 R2 F^-1 D2 P R1 F D1 with D_j = diag(d_j), R_j h = h - 2 (h.v_j) conj(v_j) / |v_j|^2, the
 *                   unitary Fourier transform F and (P h)_i = h_index[i]. index (n,); factor d (3, n), v (2, n).
 * SCORNN_ROTATIONS: W = diag(w) R_L ... R_1. index (L, 3): first unit a, distance, number of pairs; pairs (a, a +
 *                   distance) stand in blocks of twice the distance. Of all pairs, one layer after the other: factor
 *                   (cos, sin) and, in the complex case, e^{i phi}; then w (n,). */
enum scornn_map_kind { SCORNN_FOURIER = 0, SCORNN_ROTATIONS = 1 };

struct scornn_map {
    int32_t kind, layers;
    const int64_t *index;
    const void *factor[3];
};

/* One batch of sequences. With batch_sizes the batch is packed: step t holds the first batch_sizes[t] sequences, its
 * rows follow those of step t-1, and stride [0] (time) of x is not used. The first batch size is B; none is larger than
 * the one before it, none is under 1.
 *
 * x, h0, U, output, and W or a map, are always there; forward needs h_n, with a head V, c and y, the LSTM c0 and c_n;
 * the backward pass of LSTM, GRU and GORU gates, the LSTM's c_all. What is said to be NULL otherwise may be NULL. A call
 * that finds another pointer NULL, batch sizes that grow, a map that leads out of the states, or sizes that do not fit
 * returns SCORNN_INVALID and touches nothing; a call for no rows looks at sizes alone and writes nothing. How long the
 * arrays are it cannot know. */
struct scornn_sequence {
    int64_t steps, batch, hidden, input; /* T, B, n, m */
    int64_t heads;                       /* p, or 0: no head */
    int32_t dtype, cell, reverse, isa;
    const int64_t *batch_sizes;          /* (T,) or NULL */
    const void *x;                       /* (T, B, m), or (N, m) packed */
    int64_t x_stride[3];                 /* time, row, column */
    const void *h0;                      /* (B, n) contiguous */
    const void *W;                       /* (n, n) contiguous; LSTM: (4n, n); GRU, GORU: (3n, n) */
    const void *U;                       /* (n, m) contiguous; LSTM: (4n, m); GRU, GORU: (3n, m) */
    const void *b;                       /* (n,), (n/2,) for complex_modrelu, (4n,) for LSTM, GRU and GORU; NULL: zero */
    void *output;                        /* (T, B, n) or (N, n), contiguous: written by forward, read by backward */
    void *h_n;                           /* (B, n) contiguous: written by forward */
    const void *V;                       /* (p, n) contiguous */
    const void *c;                       /* (p,) */
    void *y;                             /* (T, B, p) or (N, p), contiguous: written by forward */
    /* LSTM alone. */
    const void *c0;                      /* (B, n) contiguous */
    void *c_n;                           /* (B, n) contiguous: written by forward */
    void *c_all;                         /* c_t, shape of output: written by forward, read by backward */
    void *gates;                         /* LSTM: i, f, g, o; GRU and GORU: r, g, c, s. (T, B, 4n) or (N, 4n): written
                                            by forward, read by backward. NULL, as c_all: no backward */
    const struct scornn_map *map;        /* in place of W, which is then not read, or NULL; without a head */
};

/* Gradients of a loss. The first ones come in (NULL: zero), those from x on go out (NULL: not wanted). W, U, b and V
 * receive the sum over the shard's rows alone; x, h0 and c0 receive the shard's rows. That of c is the sum of y's. */
struct scornn_gradients {
    const void *output;       /* shape of output */
    int64_t output_stride[3]; /* time, row, column */
    const void *h_n;          /* (B, n) contiguous */
    const void *y;            /* shape of y, contiguous */
    const void *c_n;          /* (B, n) contiguous */
    void *x;                  /* shape of x, contiguous */
    void *h0;                 /* (B, n) contiguous */
    void *c0;                 /* (B, n) contiguous */
    void *W;                  /* shape of W, contiguous */
    void *U;                  /* shape of U, contiguous */
    void *b;                  /* shape of b */
    void *V;                  /* (p, n) contiguous; needs y */
    void *factor[3];          /* SCORNN_FOURIER: of the angles (3, n) and of v; SCORNN_ROTATIONS: of the angles theta
                                 and phi of all pairs, and of the angle of w (n,) */
};

/* W = (2 R - I) D, R = (I + A)^-1, of the free numbers v of a skew-symmetric A: row by row above the diagonal, with a
 * bandwidth l those with j - i <= l. Where the squared norm of a row of W is off 1 by more than the tolerance, A is
 * too large for an elimination without exchanges: the call returns SCORNN_INACCURATE, also where v is not finite. */
struct scornn_cayley {
    int64_t size, bandwidth; /* n; 0 to n - 1 */
    int32_t dtype, isa;
    double tolerance;
    const void *v;           /* read by scornn_cayley_forward */
    const void *D;           /* (n,), each 1 or -1 */
    void *W;                 /* (n, n) contiguous: written by forward */
    void *R;                 /* (n, n) contiguous: written by forward, read by backward */
    const void *dW;          /* (n, n) contiguous: read by scornn_cayley_backward */
    void *dv;                /* written by backward */
};
SCORNN_API int32_t scornn_cayley_forward(const struct scornn_cayley *cayley);
SCORNN_API int32_t scornn_cayley_backward(const struct scornn_cayley *cayley);

SCORNN_API int32_t scornn_abi_version(void);

/* The bytes of a struct as the library was compiled, for a caller in another language; 0 for an unknown one. */
enum scornn_struct {
    SCORNN_STRUCT_SEQUENCE = 0,
    SCORNN_STRUCT_GRADIENTS = 1,
    SCORNN_STRUCT_TASK = 2,
    SCORNN_STRUCT_TASKS = 3,
    SCORNN_STRUCT_MAP = 4,
    SCORNN_STRUCT_CAYLEY = 5,
    SCORNN_STRUCT_OPERATION = 6,
    SCORNN_STRUCT_NETWORK = 7
};
SCORNN_API int64_t scornn_struct_size(int32_t which);

/* Whether this machine runs an instruction set, and which one SCORNN_ISA_BEST stands for. */
SCORNN_API int32_t scornn_isa_supported(int32_t isa);
SCORNN_API int32_t scornn_best_isa(void);

SCORNN_API int32_t scornn_forward(const struct scornn_sequence *sequence, int64_t row_begin, int64_t row_end);

SCORNN_API int32_t scornn_backward(const struct scornn_sequence *sequence,
                                   const struct scornn_gradients *gradients, int64_t row_begin, int64_t row_end);

/* A call of scornn_forward (gradients NULL) or scornn_backward, and a list of them to be shared among threads. */
struct scornn_task {
    const struct scornn_sequence *sequence;
    const struct scornn_gradients *gradients;
    int64_t row_begin, row_end;
    int32_t status; /* set when the task is done */
};

struct scornn_tasks {
    struct scornn_task *tasks;
    int64_t count;
    int64_t next; /* the first that nobody has taken: 0 at the start */
};

/* Takes tasks from a struct scornn_tasks until none is left. Any number of threads may do so on the same list. */
SCORNN_API void scornn_work(void *tasks);

/* A network frame by frame. Its operations work on arrays, of which array 0 is the frame that comes in and array 1 what
 * goes out; they are numbered, and begin with array_start or zero, at the first frame and after a reset. Weights are
 * read by prepare alone.
 *
 * MULTIPLY  y = A x0 + b             A = weights[0] (n, m), b = weights[1] (n,) or NULL
 * ACTIVATE  y = act(x0 + x1, b)      the activation `cell`, b = weights[0] by unit or NULL
 * GATES     y from x0 = U x + b, x1 = W y, and of an LSTM x2 = c; GRU (4n,), GORU (3n,): b = weights[0], not in x0
 * TURN      y = R y + x0             a bank of rotations: weights[0] (4, n) as W of SCORNN_BANK
 * NORM      y = layer_norm(x0)       weights (n,) and (n,), number: epsilon
 * GATE      y = gelu(a) sigmoid(g)   (a, g) = x0 + x1
 * ADD       y = y + x0
 * PICK      y[i] = x0[m i]
 * MEAN      y = mean of x0 so far    x1: its sum, x2[0]: the count
 * GELU      y = gelu(y)
 * EVERY     y[0] counts; of m frames the last alone goes on and has an output */
enum scornn_operation_kind {
    SCORNN_MULTIPLY = 0,
    SCORNN_ACTIVATE = 1,
    SCORNN_GATES = 2,
    SCORNN_TURN = 3,
    SCORNN_NORM = 4,
    SCORNN_GATE = 5,
    SCORNN_ADD = 6,
    SCORNN_PICK = 7,
    SCORNN_MEAN = 8,
    SCORNN_GELU = 9,
    SCORNN_EVERY = 10
};

struct scornn_operation {
    int32_t kind, cell;
    int64_t n, m;
    double number;
    const void *weights[2];
    int64_t x[3], y; /* numbers of arrays; -1: none */
};

struct scornn_network {
    int32_t dtype, isa;
    int64_t batch, arrays, operations; /* batch: sequences that run beside one another */
    const int64_t *array_size;
    const void *const *array_start;
    const struct scornn_operation *operation;
};

/* The bytes that a network takes, or -1 where it is not one. With memory of so many bytes, at a multiple of 64, writes
 * it there, ready for its first frame. A copy of these bytes is a stream of its own; there is nothing to free. */
SCORNN_API int64_t scornn_prepare(const struct scornn_network *network, void *memory);

/* Takes frames (frames, B, m) and writes outputs (outputs, B, p); returns how many outputs. No allocation, no lock, no
 * call of the system, and where no GELU is in it, no branch on a number. */
SCORNN_API int64_t scornn_step(void *memory, int64_t frames, const void *x, void *y);

/* Begins new sequences. */
SCORNN_API void scornn_reset(void *memory);

/* Runs independent fused multiply-adds in registers and returns how many floating-point operations it did: the most
 * that one thread can reach, when timed by the caller. */
SCORNN_API double scornn_peak(int32_t dtype, int32_t isa, int64_t iterations);

#ifdef __cplusplus
}
#endif
#endif
