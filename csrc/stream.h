// A network frame by frame: a list of operations on the arrays of a workspace, its weights packed beforehand.
//
// All of it lies in memory of the caller's, at distances from its begin, so that a copy of the bytes is another stream.
// A step allocates nothing, takes no lock, and its instructions depend on no number.
#pragma once
#include "activation.h"
#include "product.h"

namespace scornn::SCORNN_ISA {

template <class T> class Stream {
  public:
    // Where the parts begin, in bytes, and the bytes of all.
    struct Head {
        std::int32_t isa, dtype;  // first: dispatch.cpp reads them
        i64 batch, inputs, outputs, operations, workspace, start, work, bytes;
    };

    // Bytes that the network takes. With memory, fills it.
    static i64 prepare(const scornn_network &net, std::int32_t isa, char *memory) {
        i64 at = aligned(i64(sizeof(Head)) + net.operations * i64(sizeof(scornn_operation)));
        const i64 weights = at;
        for (i64 k = 0; k < net.operations; ++k)
            for (int which = 0; which < 2; ++which) at += weight_bytes(net.operation[k], which);
        const i64 start = at, workspace = place(net, net.arrays);
        const i64 work = start + workspace * i64(sizeof(T)), bytes = work + net.batch * workspace * i64(sizeof(T));
        if (!memory) return bytes;
        std::memset(memory, 0, bytes);
        *reinterpret_cast<Head *>(memory) = {isa,   net.dtype, net.batch, net.array_size[0], net.array_size[1], net.operations,
                                             workspace, start,     work,      bytes};
        at = weights;
        for (i64 k = 0; k < net.operations; ++k) {
            scornn_operation o = net.operation[k];
            for (int which = 0; which < 2; ++which) {
                const i64 size = weight_bytes(o, which);
                if (size) pack(o, which, reinterpret_cast<T *>(memory + at));
                o.weights[which] = size ? reinterpret_cast<const void *>(at) : nullptr;
                at += size;
            }
            for (i64 &x : o.x) x = x < 0 ? 0 : place(net, x);
            o.y = place(net, o.y);
            reinterpret_cast<scornn_operation *>(memory + sizeof(Head))[k] = o;
        }
        T *const first = reinterpret_cast<T *>(memory + start);
        for (i64 k = 0; k < net.arrays; ++k)
            if (net.array_start[k])
                std::memcpy(first + place(net, k), net.array_start[k], net.array_size[k] * sizeof(T));
        reset(memory);
        return bytes;
    }

    static void reset(char *memory) {
        const Head &head = *reinterpret_cast<const Head *>(memory);
        for (i64 b = 0; b < head.batch; ++b)
            std::memcpy(memory + head.work + b * head.workspace * i64(sizeof(T)), memory + head.start,
                        head.workspace * sizeof(T));
    }

    // Frames (frames, B, m) in, outputs (·, B, p) out. Returns how many outputs a sequence has.
    static i64 step(char *memory, i64 frames, const T *x, T *y) {
        const Head &head = *reinterpret_cast<const Head *>(memory);
        i64 made = 0;
        for (i64 b = 0; b < head.batch; ++b) {
            T *const work = reinterpret_cast<T *>(memory + head.work) + b * head.workspace;
            const T *const out = work + padded(head.inputs);
            made = 0;
            for (i64 t = 0; t < frames; ++t) {
                std::memcpy(work, x + (t * head.batch + b) * head.inputs, head.inputs * sizeof(T));
                if (!run(memory, head.operations, work)) continue;
                std::memcpy(y + (made * head.batch + b) * head.outputs, out, head.outputs * sizeof(T));
                ++made;
            }
        }
        return made;
    }

  private:
    static i64 aligned(i64 bytes) { return (bytes + 63) / 64 * 64; }
    static i64 padded(i64 size) { return (size / kPanel<T> + 2) * kPanel<T>; }  // a vector may begin at any number
    static i64 place(const scornn_network &net, i64 array) {
        i64 at = 0;
        for (i64 k = 0; k < array; ++k) at += padded(net.array_size[k]);
        return at;
    }

    static i64 weight_size(const scornn_operation &o, int which) {
        if (!o.weights[which]) return 0;
        switch (o.kind) {
            case SCORNN_MULTIPLY: return which ? o.n : panels<T>(o.n) * kPanel<T> * o.m;
            case SCORNN_GATES: return (o.cell == SCORNN_GRU ? 4 : 3) * o.n;
            case SCORNN_TURN: return 4 * padded(o.n);
            default: return o.n;
        }
    }
    static i64 weight_bytes(const scornn_operation &o, int which) {
        const i64 size = weight_size(o, which);
        return size ? aligned(padded(size) * i64(sizeof(T))) : 0;
    }

    // A matrix as panels of its transpose, the four parts of a turn each at a distance of padded(n), others as they are.
    static void pack(const scornn_operation &o, int which, T *to) {
        const T *from = static_cast<const T *>(o.weights[which]);
        if (o.kind == SCORNN_MULTIPLY && which == 0) {
            for (i64 i = 0; i < o.n; ++i)
                for (i64 k = 0; k < o.m; ++k)
                    to[i / kPanel<T> * o.m * kPanel<T> + k * kPanel<T> + i % kPanel<T>] = from[i * o.m + k];
        } else if (o.kind == SCORNN_TURN) {
            for (i64 part = 0; part < 4; ++part)
                std::memcpy(to + part * padded(o.n), from + part * o.n, o.n * sizeof(T));
        } else {
            std::memcpy(to, from, weight_size(o, which) * sizeof(T));
        }
    }

    template <class Run> static SCORNN_INLINE void each(i64 n, Run run) {
        for (i64 i = 0; i < n; i += kWidth<T>) run(i);
    }

    // False where the frame has no output.
    static bool run(const char *memory, i64 count, T *work) {
        const scornn_operation *operation = reinterpret_cast<const scornn_operation *>(memory + sizeof(Head));
        for (i64 k = 0; k < count; ++k) {
            const scornn_operation &o = operation[k];
            const auto weights = [&](int which) {
                const i64 at = reinterpret_cast<i64>(o.weights[which]);
                return at ? reinterpret_cast<const T *>(memory + at) : nullptr;
            };
            const T *const A = weights(0), *const b = weights(1);
            T *const u = work + o.x[0], *const v = work + o.x[1], *const c = work + o.x[2], *const y = work + o.y;
            const i64 n = o.n, m = o.m;
            switch (o.kind) {
                case SCORNN_MULTIPLY: multiply_one(u, A, b, n, m, y); break;
                case SCORNN_ACTIVATE:
                    with_activation(o.cell, [&](auto act) { return activate_one(act, n, u, v, A, y); });
                    break;
                case SCORNN_GATES:
                    if (o.cell == SCORNN_LSTM) {
                        lstm_one(n, u, v, c, y);
                    } else if (o.cell == SCORNN_GRU) {
                        gated_one<Tanh>(n, u, v, A, A + 3 * n, y);
                    } else {
                        gated_one<ModReLU>(n, u, v, A, nullptr, y);
                    }
                    break;
                case SCORNN_TURN: turn_one(n, A, u, y); break;
                case SCORNN_NORM: norm_one(n, T(o.number), u, A, b, y); break;
                case SCORNN_GATE:
                    for (i64 i = 0; i < n; ++i) y[i] = gelu(u[i] + v[i]);
                    each(n, [&](i64 i) { store(y + i, load(y + i) * sigmoid<T>(load(u + n + i) + load(v + n + i))); });
                    break;
                case SCORNN_ADD: each(n, [&](i64 i) { store(y + i, load(y + i) + load(u + i)); }); break;
                case SCORNN_PICK:
                    for (i64 i = 0; i < n; ++i) y[i] = u[i * m];
                    break;
                case SCORNN_MEAN:
                    c[0] += 1;
                    each(n, [&](i64 i) {
                        store(v + i, load(v + i) + load(u + i));
                        store(y + i, load(v + i) / c[0]);
                    });
                    break;
                case SCORNN_GELU:
                    for (i64 i = 0; i < n; ++i) y[i] = gelu(y[i]);
                    break;
                case SCORNN_EVERY:
                    y[0] += 1;
                    if (y[0] < T(m)) return false;
                    y[0] = 0;
                    break;
            }
        }
        return true;
    }

    static void multiply_one(const T *x, const T *A, const T *b, i64 n, i64 m, T *y) {
        const i64 stride = m * kPanel<T>, count = panels<T>(n);
        i64 p = 0;
        for (; p + 4 <= count; p += 4)
            TileProduct<T, 1, 8>::run(x, kPanel<T>, A + p * stride, stride, m, y + p * kPanel<T>, kPanel<T>);
        for (; p + 2 <= count; p += 2)
            TileProduct<T, 1, 4>::run(x, kPanel<T>, A + p * stride, stride, m, y + p * kPanel<T>, kPanel<T>);
        if (p < count) TileProduct<T, 1, 2>::run(x, kPanel<T>, A + p * stride, stride, m, y + p * kPanel<T>, kPanel<T>);
        if (b) each(n, [&](i64 i) { store(y + i, load(y + i) + load(b + i)); });
    }

    template <template <class> class Act>
    static int activate_one(Name<Act>, i64 n, const T *u, const T *v, const T *b, T *y) {
        each(n, [&](i64 i) { store(y + i, Act<T>::forward(load(u + i) + load(v + i), b ? load(b + i) : Vec<T>{})); });
        return SCORNN_OK;
    }

    static void lstm_one(i64 n, const T *u, const T *v, T *c, T *h) {
        each(n, [&](i64 k) {
            const auto z = [&](i64 gate) { return load(u + gate * n + k) + load(v + gate * n + k); };
            const Vec<T> cell = sigmoid<T>(z(1)) * load(c + k) + sigmoid<T>(z(0)) * tanh<T>(z(2));
            store(c + k, cell);
            store(h + k, sigmoid<T>(z(3)) * tanh<T>(cell));
        });
    }

    template <template <class> class Act>
    static void gated_one(i64 n, const T *u, const T *v, const T *b, const T *b_s, T *h) {
        each(n, [&](i64 k) {
            const auto z = [&](i64 gate) { return load(u + gate * n + k) + load(v + gate * n + k) + load(b + gate * n + k); };
            const Vec<T> r = sigmoid<T>(z(0)), g = sigmoid<T>(z(1));
            const Vec<T> s = load(v + 2 * n + k) + (b_s ? load(b_s + k) : Vec<T>{});
            const Vec<T> candidate = Act<T>::forward(r * s + load(u + 2 * n + k), load(b + 2 * n + k));
            store(h + k, g * load(h + k) + (T(1) - g) * candidate);
        });
    }

    static void turn_one(i64 n, const T *R, const T *z, T *h) {
        const i64 part = padded(n);
        each(n, [&](i64 i) {
            const Vec<T> a = load(h + i), other = swap_pairs<T>(a);
            const Vec<T> low = load(R + 2 * part + i) * a + load(R + 3 * part + i) * other + load(z + i);
            store(h + i, low + (load(R + i) * a + load(R + part + i) * other));
        });
    }

    static void norm_one(i64 n, T epsilon, const T *x, const T *weight, const T *bias, T *y) {
        T mean = 0, square = 0;
        for (i64 i = 0; i < n; ++i) mean += x[i];
        mean /= T(n);
        for (i64 i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
        const T scale = 1 / square_root<T>(broadcast<T>(square / T(n) + epsilon))[0];
        each(n, [&](i64 i) { store(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i)); });
    }

    static float error_function(float x) { return __builtin_erff(x); }
    static double error_function(double x) { return __builtin_erf(x); }
    static T gelu(T x) { return T(0.5) * x * (1 + error_function(T(0.70710678118654752440) * x)); }
};

}  // namespace scornn::SCORNN_ISA
