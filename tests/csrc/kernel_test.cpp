// Calls the C interface of the kernel on arrays of exactly the size it may touch, misaligned by one element, and compares
// with a plain loop in double. Meant to run under the sanitizers: `threads` as the first argument shares one batch among
// threads.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "scornn.h"

namespace {

using i64 = std::int64_t;
int failures = 0;

void expect(bool ok, const char *what, const char *where) {
    if (ok) return;
    ++failures;
    std::printf("FAILED %s: %s\n", where, what);
}

// `size` elements that end where the allocation ends and begin one element after its start.
template <class T> struct Array {
    std::unique_ptr<T[]> memory;
    i64 size;
    explicit Array(i64 size) : memory(new T[size + 1]), size(size) {
        for (i64 i = 0; i <= size; ++i) memory[i] = std::nan("");
    }
    T *data() { return memory.get() + 1; }
    T &operator[](i64 i) { return data()[i]; }
    void fill(std::mt19937 &random, double scale) {
        std::normal_distribution<double> normal(0, scale);
        for (i64 i = 0; i < size; ++i) data()[i] = T(normal(random));
    }
};

struct Case {
    i64 T, B, n, m;
    int activation;
    bool reverse, packed;
};

double act(int kind, double z, double b) {
    switch (kind) {
        case SCORNN_RELU: return z + b > 0 ? z + b : 0;
        case SCORNN_LEAKY_RELU: return z + b > 0 ? z + b : 0.1 * (z + b);
        case SCORNN_TANH: return std::tanh(z + b);
        case SCORNN_MODRELU: return std::fabs(z) + b > 0 ? std::copysign(std::fabs(z) + b, z) : 0;
        default: return z + b;
    }
}

double slope(int kind, double h) {
    switch (kind) {
        case SCORNN_RELU: return h > 0;
        case SCORNN_LEAKY_RELU: return h > 0 ? 1 : 0.1;
        case SCORNN_TANH: return 1 - h * h;
        case SCORNN_MODRELU: return h != 0;
        default: return 1;
    }
}

template <class T> struct Problem {
    Case c;
    std::vector<i64> sizes, starts;
    i64 rows;
    i64 p;  // of the head; some cases have none
    Array<T> x, h0, W, U, b, output, h_n, g, g_n, dx, dh0, dW, dU, db, V, c_, y, dy, dV;
    scornn_sequence s{};
    scornn_gradients d{};

    static std::vector<i64> batch_sizes(const Case &c) {
        std::vector<i64> sizes;
        for (i64 t = 0; t < c.T; ++t) sizes.push_back(c.packed ? std::max<i64>(1, c.B - t * c.B / c.T) : c.B);
        return sizes;
    }
    static i64 total(const std::vector<i64> &sizes) {
        i64 sum = 0;
        for (i64 size : sizes) sum += size;
        return sum;
    }

    Problem(const Case &c, int isa)
        : c(c), sizes(batch_sizes(c)), rows(total(sizes)), p((c.n + c.B) % 12), x(rows * c.m), h0(c.B * c.n), W(c.n * c.n), U(c.n * c.m), b(c.n),
          output(rows * c.n), h_n(c.B * c.n), g(rows * c.n), g_n(c.B * c.n), dx(rows * c.m), dh0(c.B * c.n), dW(c.n * c.n),
          dU(c.n * c.m), db(c.n), V(p * c.n), c_(p), y(rows * p), dy(rows * p), dV(p * c.n) {
        std::mt19937 random(1);
        x.fill(random, 1), h0.fill(random, 1), W.fill(random, 0.7 / std::sqrt(double(c.n))), U.fill(random, 0.5);
        b.fill(random, 0.1), g.fill(random, 1), g_n.fill(random, 1);
        V.fill(random, 0.3), c_.fill(random, 1), dy.fill(random, 1);
        i64 start = 0;
        for (i64 size : sizes) starts.push_back(start), start += size;
        s.steps = c.T, s.batch = c.B, s.hidden = c.n, s.input = c.m;
        s.dtype = sizeof(T) == 4 ? SCORNN_FLOAT32 : SCORNN_FLOAT64;
        s.cell = c.activation, s.reverse = c.reverse, s.isa = isa;
        s.batch_sizes = c.packed ? sizes.data() : nullptr;
        s.x = x.data(), s.h0 = h0.data(), s.W = W.data(), s.U = U.data(), s.b = b.data();
        s.output = output.data(), s.h_n = h_n.data();
        s.heads = p, s.V = V.data(), s.c = c_.data(), s.y = y.data();
        s.x_stride[0] = c.B * c.m, s.x_stride[1] = c.m, s.x_stride[2] = 1;
        d.output = g.data(), d.h_n = g_n.data();
        d.output_stride[0] = c.B * c.n, d.output_stride[1] = c.n, d.output_stride[2] = 1;
        d.x = dx.data(), d.h0 = dh0.data(), d.W = dW.data(), d.U = dU.data(), d.b = db.data();
        if (p) d.y = dy.data(), d.V = dV.data();
    }

    // The same in double, one number at a time.
    void compare(const char *where) {
        const i64 n = c.n, m = c.m;
        std::vector<double> H(rows * n), rW(n * n), rU(n * m), rb(n), rx(rows * m), rh0(c.B * n), carry(c.B * n);
        std::vector<double> ry(rows * p), rV(p * n);
        auto time = [&](i64 k) { return c.reverse ? c.T - 1 - k : k; };
        auto before = [&](i64 k, i64 r, i64 j) {
            const bool carried = k > 0 && r < sizes[time(k - 1)];
            return carried ? H[(starts[time(k - 1)] + r) * n + j] : double(h0[r * n + j]);
        };
        for (i64 k = 0; k < c.T; ++k)
            for (i64 r = 0; r < sizes[time(k)]; ++r)
                for (i64 i = 0; i < n; ++i) {
                    double z = 0;
                    for (i64 j = 0; j < n; ++j) z += double(W[i * n + j]) * before(k, r, j);
                    for (i64 j = 0; j < m; ++j) z += double(U[i * m + j]) * double(x[(starts[time(k)] + r) * m + j]);
                    H[(starts[time(k)] + r) * n + i] = act(c.activation, z, double(b[i]));
                }
        for (i64 r = 0; r < c.B; ++r)
            for (i64 i = 0; i < n; ++i) carry[r * n + i] = g_n[r * n + i];
        for (i64 k = c.T - 1; k >= 0; --k)
            for (i64 r = 0; r < sizes[time(k)]; ++r) {
                const i64 row = starts[time(k)] + r;
                std::vector<double> dz(n), dh(n), read(n);
                for (i64 i = 0; i < p; ++i) {
                    ry[row * p + i] = c_[i];
                    for (i64 j = 0; j < n; ++j) {
                        ry[row * p + i] += double(V[i * n + j]) * H[row * n + j];
                        rV[i * n + j] += double(dy[row * p + i]) * H[row * n + j];
                        read[j] += double(dy[row * p + i]) * double(V[i * n + j]);
                    }
                }
                for (i64 i = 0; i < n; ++i) {
                    const double h = H[row * n + i];
                    dz[i] = slope(c.activation, h) * (carry[r * n + i] + double(g[row * n + i]) + read[i]);
                    rb[i] += c.activation == SCORNN_MODRELU ? std::copysign(1, h) * dz[i] : dz[i];
                    for (i64 j = 0; j < n; ++j) rW[i * n + j] += dz[i] * before(k, r, j), dh[j] += dz[i] * double(W[i * n + j]);
                    for (i64 j = 0; j < m; ++j) {
                        rU[i * m + j] += dz[i] * double(x[row * m + j]);
                        rx[row * m + j] += dz[i] * double(U[i * m + j]);
                    }
                }
                for (i64 j = 0; j < n; ++j) carry[r * n + j] = rh0[r * n + j] = dh[j];
            }
        const double tolerance = 200 * c.T * (sizeof(T) == 4 ? 1.2e-7 : 2.3e-16) * double(n + m + p + rows);
        auto close = [&](Array<T> &ours, const std::vector<double> &theirs, const char *what) {
            bool ok = true;
            for (i64 i = 0; i < ours.size; ++i) ok = ok && std::fabs(double(ours[i]) - theirs[i]) <= tolerance;
            expect(ok, what, where);
        };
        close(output, H, "output"), close(dx, rx, "dx"), close(dh0, rh0, "dh0"), close(dW, rW, "dW"), close(dU, rU, "dU");
        close(db, rb, "db"), close(y, ry, "y"), close(dV, rV, "dV");
        bool last = true;
        for (i64 r = 0; r < c.B; ++r) {
            i64 k = c.T - 1;
            while (r >= sizes[time(k)]) --k;
            last = last && !std::memcmp(&h_n[r * n], &output[(starts[time(k)] + r) * n], n * sizeof(T));
        }
        expect(last, "h_n", where);
    }
};

template <class T> void check(const Case &c, int isa) {
    char where[128];
    std::snprintf(where, sizeof where, "T=%d B=%d n=%d m=%d activation=%d reverse=%d packed=%d isa=%d float%d", int(c.T),
                  int(c.B), int(c.n), int(c.m), c.activation, c.reverse, c.packed, isa, int(8 * sizeof(T)));
    Problem<T> p(c, isa);
    expect(scornn_forward(&p.s, 0, c.B) == SCORNN_OK, "status of forward", where);
    expect(scornn_backward(&p.s, &p.d, 0, c.B) == SCORNN_OK, "status of backward", where);
    p.compare(where);
}

void check_grid() {
    const i64 sizes[] = {1, 3, 8, 17, 33};
    for (int isa : {SCORNN_ISA_PORTABLE, SCORNN_ISA_AVX2, SCORNN_ISA_AVX512}) {
        if (!scornn_isa_supported(isa)) continue;
        int k = 0;
        for (i64 n : sizes)
            for (i64 B : {1, 2, 7, 13, 65})
                for (int activation = SCORNN_IDENTITY; activation <= SCORNN_MODRELU; ++activation, ++k) {
                    const Case c{1 + k % 4, B, n, sizes[k % 5], activation, k % 3 == 0, k % 2 == 0};
                    check<float>(c, isa);
                    check<double>(c, isa);
                }
        check<float>({150, 2, 9, 1, SCORNN_MODRELU, false, false}, isa);  // several chunks of the weight gradient
    }
}

// The LSTM writes every number that it should and touches no other; ops/test_lstm.py compares the numbers themselves.
template <class T> void check_lstm(const Case &c, int isa) {
    const std::vector<i64> sizes = Problem<T>::batch_sizes(c);
    const i64 rows = Problem<T>::total(sizes), n = c.n, m = c.m, B = c.B;
    Array<T> x(rows * m), h0(B * n), c0(B * n), W(4 * n * n), U(4 * n * m), b(4 * n), g(rows * n), g_h(B * n), g_c(B * n);
    std::mt19937 random(1);
    for (Array<T> *in : {&x, &h0, &c0, &W, &U, &b, &g, &g_h, &g_c}) in->fill(random, 0.5);
    Array<T> output(rows * n), h_n(B * n), c_n(B * n), cells(rows * n), gates(rows * 4 * n);
    Array<T> dx(rows * m), dh0(B * n), dc0(B * n), dW(4 * n * n), dU(4 * n * m), db(4 * n);
    scornn_sequence s{};
    s.steps = c.T, s.batch = B, s.hidden = n, s.input = m, s.cell = SCORNN_LSTM, s.reverse = c.reverse, s.isa = isa;
    s.dtype = sizeof(T) == 4 ? SCORNN_FLOAT32 : SCORNN_FLOAT64;
    s.batch_sizes = c.packed ? sizes.data() : nullptr;
    s.x = x.data(), s.x_stride[0] = B * m, s.x_stride[1] = m, s.x_stride[2] = 1;
    s.h0 = h0.data(), s.c0 = c0.data(), s.W = W.data(), s.U = U.data(), s.b = b.data();
    s.output = output.data(), s.h_n = h_n.data(), s.c_n = c_n.data(), s.c_all = cells.data(), s.gates = gates.data();
    scornn_gradients d{};
    d.output = g.data(), d.output_stride[0] = B * n, d.output_stride[1] = n, d.output_stride[2] = 1;
    d.h_n = g_h.data(), d.c_n = g_c.data(), d.x = dx.data(), d.h0 = dh0.data(), d.c0 = dc0.data();
    d.W = dW.data(), d.U = dU.data(), d.b = db.data();
    expect(scornn_forward(&s, 0, B) == SCORNN_OK && scornn_backward(&s, &d, 0, B) == SCORNN_OK, "status", "lstm");
    for (Array<T> *out : {&output, &h_n, &c_n, &cells, &gates, &dx, &dh0, &dc0, &dW, &dU, &db}) {
        bool finite = true;
        for (i64 i = 0; i < out->size; ++i) finite = finite && std::isfinite((*out)[i]);
        expect(finite, "finite", "lstm");
    }
    s.heads = 1;
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "a head", "lstm");
    s.heads = 0, s.gates = nullptr;
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "cells without gates", "lstm");
    s.c_all = nullptr;
    expect(scornn_forward(&s, 0, B) == SCORNN_OK, "states alone", "lstm");
    expect(scornn_backward(&s, &d, 0, B) == SCORNN_INVALID, "gradients without gates", "lstm");
}

// Writes every number that it should, and touches no other, by a call of both passes.
template <class T>
void check_written(scornn_sequence &s, scornn_gradients &d, std::vector<Array<T> *> in, std::vector<Array<T> *> out,
                   const char *where) {
    std::mt19937 random(1);
    for (Array<T> *array : in) array->fill(random, 0.5);
    expect(scornn_forward(&s, 0, s.batch) == SCORNN_OK, "forward", where);
    expect(scornn_backward(&s, &d, 0, s.batch) == SCORNN_OK, "backward", where);
    for (Array<T> *array : out) {
        bool finite = true;
        for (i64 i = 0; i < array->size; ++i) finite = finite && std::isfinite((*array)[i]);
        expect(finite, "finite", where);
    }
}

template <class T> void set_sizes(scornn_sequence &s, const Case &c, const std::vector<i64> &sizes, i64 state, int isa) {
    s.steps = c.T, s.batch = c.B, s.hidden = state, s.input = c.m, s.reverse = c.reverse, s.isa = isa;
    s.cell = c.activation, s.dtype = sizeof(T) == 4 ? SCORNN_FLOAT32 : SCORNN_FLOAT64;
    s.batch_sizes = c.packed ? sizes.data() : nullptr;
    s.x_stride[0] = c.B * c.m, s.x_stride[1] = c.m, s.x_stride[2] = 1;
}

// GRU and GORU; ops/test_gated.py compares the numbers themselves.
template <class T> void check_gated(const Case &c, int isa) {
    const std::vector<i64> sizes = Problem<T>::batch_sizes(c);
    const i64 rows = Problem<T>::total(sizes), n = c.n, m = c.m, B = c.B;
    Array<T> x(rows * m), h0(B * n), W(3 * n * n), U(3 * n * m), b(4 * n), g(rows * n), g_h(B * n);
    Array<T> output(rows * n), h_n(B * n), gates(rows * 4 * n);
    Array<T> dx(rows * m), dh0(B * n), dW(3 * n * n), dU(3 * n * m), db(4 * n);
    scornn_sequence s{};
    set_sizes<T>(s, c, sizes, n, isa);
    s.x = x.data(), s.h0 = h0.data(), s.W = W.data(), s.U = U.data(), s.b = b.data();
    s.output = output.data(), s.h_n = h_n.data(), s.gates = gates.data();
    scornn_gradients d{};
    d.output = g.data(), d.output_stride[0] = B * n, d.output_stride[1] = n, d.output_stride[2] = 1;
    d.h_n = g_h.data(), d.x = dx.data(), d.h0 = dh0.data(), d.W = dW.data(), d.U = dU.data(), d.b = db.data();
    check_written<T>(s, d, {&x, &h0, &W, &U, &b, &g, &g_h}, {&output, &h_n, &gates, &dx, &dh0, &dW, &dU, &db}, "gated");
    s.gates = nullptr;
    expect(scornn_backward(&s, &d, 0, B) == SCORNN_INVALID, "gradients without gates", "gated");
    s.heads = 1;
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "a head", "gated");
}

// Maps in place of W; ops/test_product.py compares the numbers themselves.
template <class T> void check_map(const Case &c, int kind, int isa) {
    const std::vector<i64> sizes = Problem<T>::batch_sizes(c);
    const bool complex = c.activation == SCORNN_COMPLEX_MODRELU;
    const i64 rows = Problem<T>::total(sizes), n = c.n, m = c.m, B = c.B, state = complex ? 2 * n : n;
    std::vector<i64> index;
    i64 pairs = 0;
    if (kind == SCORNN_FOURIER) {
        for (i64 i = 0; i < n; ++i) index.push_back((i + 1) % n);
    } else {
        index = {0, 1, n / 2, 1, 1, (n - 1) / 2, 0, n / 2 ? n / 2 : 1, n / 2};
        for (i64 k = 0; k < 3; ++k) pairs += index[3 * k + 2];
    }
    const bool fourier = kind == SCORNN_FOURIER;
    Array<T> x(rows * m), h0(B * state), U(state * m), b(n), g(rows * state), g_h(B * state);
    Array<T> first(fourier ? 6 * n : 2 * pairs), second(fourier ? 4 * n : 2 * pairs), third(2 * n);
    Array<T> output(rows * state), h_n(B * state), dx(rows * m), dh0(B * state), dU(state * m), db(n);
    Array<T> dfirst(fourier ? 3 * n : pairs), dsecond(fourier ? 4 * n : complex ? pairs : 0);
    Array<T> dthird(fourier || !complex ? 0 : n);
    scornn_map map{kind, fourier ? 0 : 3, index.data(), {first.data(), second.data(), third.data()}};
    scornn_sequence s{};
    set_sizes<T>(s, c, sizes, state, isa);
    s.x = x.data(), s.h0 = h0.data(), s.U = U.data(), s.b = b.data(), s.output = output.data(), s.h_n = h_n.data();
    s.map = &map;
    scornn_gradients d{};
    d.output = g.data(), d.output_stride[0] = B * state, d.output_stride[1] = state, d.output_stride[2] = 1;
    d.h_n = g_h.data(), d.x = dx.data(), d.h0 = dh0.data(), d.U = dU.data(), d.b = db.data();
    d.factor[0] = dfirst.data(), d.factor[1] = dsecond.data(), d.factor[2] = dthird.data();
    check_written<T>(s, d, {&x, &h0, &U, &b, &g, &g_h, &first, &second, &third},
                     {&output, &h_n, &dx, &dh0, &dU, &db, &dfirst, &dsecond, &dthird}, "map");
    index.back() = n;  // out of the states, or more pairs than there are
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "an index out of range", "map");
    map.kind = 2;
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "no such map", "map");
}

// The Cayley transform, of a full A and of a band; ops/test_cayley.py compares the numbers themselves.
template <class T> void check_cayley(i64 n, i64 bandwidth, int isa) {
    std::mt19937 random(1);
    const i64 count = n * bandwidth - bandwidth * (bandwidth + 1) / 2;
    Array<T> v(count), D(n), W(n * n), R(n * n), dW(n * n), dv(count);
    v.fill(random, 0.5), dW.fill(random, 1);
    for (i64 i = 0; i < n; ++i) D[i] = i < n / 2 ? T(1) : T(-1);
    const scornn_cayley c{n,        bandwidth, sizeof(T) == 4 ? SCORNN_FLOAT32 : SCORNN_FLOAT64, isa, 1e-3, v.data(),
                          D.data(), W.data(),  R.data(), dW.data(), dv.data()};
    expect(scornn_cayley_forward(&c) == SCORNN_OK && scornn_cayley_backward(&c) == SCORNN_OK, "runs", "cayley");
    for (i64 i = 0; i < n; ++i) {
        double norm = 0;
        for (i64 j = 0; j < n; ++j) norm += double(W[i * n + j]) * W[i * n + j];
        expect(std::fabs(norm - 1) < 1e-4, "a row of W", "cayley");
    }
    for (i64 k = 0; k < count; ++k) expect(std::isfinite(dv[k]), "finite", "cayley");
    if (count) {
        v[count - 1] = T(std::nan(""));
        expect(scornn_cayley_forward(&c) == SCORNN_INACCURATE, "NaN", "cayley");
    }
}

// A stream of one LSTM unit layer, in memory of exactly its size.
template <class T> void check_stream(i64 n, int isa) {
    std::mt19937 random(1);
    Array<T> U(4 * n * 2), W(4 * n * n), V(n), h(n), c(n), x(2 * 7), y(7), again(7);
    for (Array<T> *in : {&U, &W, &V, &h, &c, &x}) in->fill(random, 0.3);
    const i64 sizes[] = {2, 1, n, n, 4 * n, 4 * n};
    const void *const starts[] = {nullptr, nullptr, h.data(), c.data(), nullptr, nullptr};
    scornn_operation operations[] = {{SCORNN_MULTIPLY, 0, 4 * n, 2, 0, {U.data(), nullptr}, {0, -1, -1}, 4},
                                     {SCORNN_MULTIPLY, 0, 4 * n, n, 0, {W.data(), nullptr}, {2, -1, -1}, 5},
                                     {SCORNN_GATES, SCORNN_LSTM, n, 0, 0, {nullptr, nullptr}, {4, 5, 3}, 2},
                                     {SCORNN_MULTIPLY, 0, 1, n, 0, {V.data(), nullptr}, {2, -1, -1}, 1}};
    const scornn_network network{sizeof(T) == 4 ? SCORNN_FLOAT32 : SCORNN_FLOAT64, isa, 1, 6, 4, sizes, starts, operations};
    const i64 bytes = scornn_prepare(&network, nullptr);
    void *const memory = std::aligned_alloc(64, std::size_t(bytes));
    expect(bytes > 0 && bytes % 64 == 0 && scornn_prepare(&network, memory) == bytes, "prepare", "stream");
    i64 made = scornn_step(memory, 3, x.data(), y.data()) + scornn_step(memory, 4, x.data() + 6, y.data() + 3);
    scornn_reset(memory);
    made += scornn_step(memory, 7, x.data(), again.data());
    expect(made == 14, "outputs", "stream");
    for (i64 t = 0; t < 7; ++t) expect(y[t] == again[t], "blocks", "stream");
    std::free(memory);
    operations[2].x[2] = 9;
    expect(scornn_prepare(&network, nullptr) == -1, "no such array", "stream");
}

// A bank of rotations, with U or with x as what enters the state; nn/test_linear_memory.py compares the numbers. With
// true rotations the gradient of a loss on h_n alone keeps its length on the way back to h_0.
template <class T> void check_bank(Case c, bool fused, int isa) {
    const std::vector<i64> sizes = Problem<T>::batch_sizes(c);
    if (!fused) c.m = c.n;
    const i64 rows = Problem<T>::total(sizes), n = c.n, m = c.m, B = c.B;
    Array<T> x(rows * m), h0(B * n), W(4 * n), U(n * m), b(n), g(rows * n), g_h(B * n);
    Array<T> output(rows * n), h_n(B * n), dx(rows * m), dh0(B * n), dW(n), dU(n * m), db(n);
    scornn_sequence s{};
    set_sizes<T>(s, c, sizes, n, isa);
    s.x = x.data(), s.h0 = h0.data(), s.W = W.data(), s.output = output.data(), s.h_n = h_n.data();
    if (fused) s.U = U.data(), s.b = b.data();
    scornn_gradients d{};
    d.output = g.data(), d.output_stride[0] = B * n, d.output_stride[1] = n, d.output_stride[2] = 1;
    d.h_n = g_h.data(), d.x = dx.data(), d.h0 = dh0.data(), d.W = dW.data();
    std::vector<Array<T> *> out{&output, &h_n, &dx, &dh0, &dW};
    if (fused) d.U = dU.data(), d.b = db.data(), out.push_back(&dU), out.push_back(&db);
    check_written<T>(s, d, {&x, &h0, &W, &U, &b, &g, &g_h}, out, "bank");
    for (i64 i = 0; i < n; ++i) {  // an odd n leaves a sign
        const double angle = 0.3 + 0.1 * double(i / 2);
        const bool pair = i / 2 * 2 + 1 < n;
        const double exact[2] = {pair ? std::cos(angle) : -1, pair ? (i % 2 ? 1 : -1) * std::sin(angle) : 0};
        for (int k = 0; k < 2; ++k) W[k * n + i] = T(exact[k]), W[(k + 2) * n + i] = T(exact[k] - double(T(exact[k])));
    }
    d.output = nullptr;
    expect(scornn_forward(&s, 0, B) == SCORNN_OK && scornn_backward(&s, &d, 0, B) == SCORNN_OK, "status", "bank");
    bool same = true;
    for (i64 r = 0; r < B; ++r) {
        double before = 0, after = 0;
        for (i64 i = r * n; i < (r + 1) * n; ++i) before += double(g_h[i]) * g_h[i], after += double(dh0[i]) * dh0[i];
        same = same && std::fabs(after - before) <= 1e-4 * before;
    }
    expect(same, "length of the gradient", "bank");
    if (!fused) {
        s.input = n + 1;
        expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "inputs without U", "bank");
        s.input = n;
    }
    scornn_map map{};
    map.kind = SCORNN_FOURIER;
    s.map = &map;
    expect(scornn_forward(&s, 0, B) == SCORNN_INVALID, "a map", "bank");
}

void check_other_grid() {
    for (int isa : {SCORNN_ISA_PORTABLE, SCORNN_ISA_AVX2, SCORNN_ISA_AVX512}) {
        if (!scornn_isa_supported(isa)) continue;
        int k = 0;
        for (i64 n : {1, 2, 17, 33, 70, 150}) {
            for (i64 bandwidth : {n - 1, n / 2, i64(0)}) {
                check_cayley<float>(n, bandwidth, isa);
                check_cayley<double>(n, bandwidth, isa);
            }
            check_stream<float>(n, isa);
            check_stream<double>(n, isa);
        }
        for (i64 n : {1, 8, 17, 38})
            for (i64 B : {1, 7, 37}) {
                Case c{3, B, n, 1 + 3 * (k % 4), SCORNN_GRU + k % 2, k % 3 == 0, k % 2 == 0};
                check_gated<float>(c, isa);
                check_gated<double>(c, isa);
                c.activation = SCORNN_BANK, c.T = k % 3 ? 3 : 35;  // more steps than a chunk of its backward pass
                check_bank<float>(c, k % 4 != 3, isa);
                check_bank<double>(c, k % 4 != 2, isa);
                c.activation = SCORNN_COMPLEX_MODRELU, c.T = 3;
                check_map<float>(c, SCORNN_FOURIER, isa);
                check_map<double>(c, SCORNN_FOURIER, isa);
                check_map<float>(c, SCORNN_ROTATIONS, isa);
                c.activation = SCORNN_MODRELU;
                check_map<double>(c, SCORNN_ROTATIONS, isa);
                ++k;
            }
    }
}

void check_lstm_grid() {
    for (int isa : {SCORNN_ISA_PORTABLE, SCORNN_ISA_AVX2, SCORNN_ISA_AVX512}) {
        if (!scornn_isa_supported(isa)) continue;
        int k = 0;
        for (i64 n : {1, 8, 17, 33})
            for (i64 B : {1, 7, 65}) {
                const Case c{3, B, n, 1 + 3 * (k % 4), SCORNN_LSTM, k % 3 == 0, k % 2 == 0};
                check_lstm<float>(c, isa);
                check_lstm<double>(c, isa);
                ++k;
            }
    }
}

// What is not wanted may be left out, and the rest stays the same bits.
void check_optional() {
    const Case c{5, 4, 19, 3, SCORNN_MODRELU, false, false};
    Problem<float> all(c, SCORNN_ISA_BEST), some(c, SCORNN_ISA_BEST);
    for (Problem<float> *p : {&all, &some}) scornn_forward(&p->s, 0, c.B);
    scornn_backward(&all.s, &all.d, 0, c.B);
    some.d.x = some.d.h0 = some.d.W = some.d.b = some.d.V = nullptr;
    scornn_backward(&some.s, &some.d, 0, c.B);
    expect(!std::memcmp(&all.dU[0], &some.dU[0], all.dU.size * sizeof(float)), "dU alone", "optional");
    some.d.U = nullptr, some.d.V = some.dV.data();
    scornn_backward(&some.s, &some.d, 0, c.B);
    expect(all.p && !std::memcmp(&all.dV[0], &some.dV[0], all.dV.size * sizeof(float)), "dV alone", "optional");
    some.d.V = nullptr, some.d.x = some.dx.data();
    scornn_backward(&some.s, &some.d, 0, c.B);
    expect(!std::memcmp(&all.dx[0], &some.dx[0], all.dx.size * sizeof(float)), "dx alone", "optional");
}

void check_refusals() {
    Problem<float> p({2, 3, 5, 1, SCORNN_COMPLEX_MODRELU, false, false}, SCORNN_ISA_BEST);
    expect(scornn_forward(&p.s, 0, 3) == SCORNN_INVALID, "odd complex", "refusals");
    p.s.cell = 99;
    expect(scornn_forward(&p.s, 0, 3) == SCORNN_INVALID, "activation", "refusals");
    p.s.cell = SCORNN_RELU;
    expect(scornn_forward(&p.s, 0, 4) == SCORNN_INVALID, "rows", "refusals");
    expect(scornn_forward(&p.s, 2, 1) == SCORNN_INVALID, "empty range", "refusals");
    expect(scornn_forward(nullptr, 0, 1) == SCORNN_INVALID, "no sequence", "refusals");
    expect(scornn_backward(&p.s, nullptr, 0, 1) == SCORNN_INVALID, "no gradients", "refusals");
    expect(scornn_forward(&p.s, 1, 1) == SCORNN_OK, "no rows", "refusals");
    scornn_sequence bare{};  // no array is there
    bare.steps = 2, bare.batch = 3, bare.hidden = 5, bare.input = 1;
    const scornn_gradients nowhere{};
    bare.hidden = 6;
    for (int cell : {SCORNN_MODRELU, SCORNN_COMPLEX_MODRELU, SCORNN_LSTM, SCORNN_GRU, SCORNN_GORU, SCORNN_BANK}) {
        bare.cell = cell, bare.input = cell == SCORNN_BANK ? 6 : 1;
        expect(scornn_forward(&bare, 1, 1) == SCORNN_OK, "no rows, no arrays", "refusals");
        expect(scornn_backward(&bare, &nowhere, 1, 1) == SCORNN_OK, "no rows, no arrays", "refusals");
    }
    scornn_gradients d = p.d;
    d.V = p.dV.data(), d.y = nullptr;
    expect(scornn_backward(&p.s, &d, 0, 3) == SCORNN_INVALID, "dV without dy", "refusals");
    p.s.heads = -1;
    expect(scornn_forward(&p.s, 0, 3) == SCORNN_INVALID, "heads", "refusals");
    p.s.heads = p.p;
    p.s.isa = 77;
    expect(scornn_forward(&p.s, 0, 3) == SCORNN_INVALID, "instruction set", "refusals");
    expect(scornn_abi_version() == SCORNN_ABI_VERSION, "version", "refusals");
    expect(scornn_struct_size(SCORNN_STRUCT_SEQUENCE) == i64(sizeof(scornn_sequence)), "size", "refusals");
    expect(scornn_struct_size(SCORNN_STRUCT_TASKS) == i64(sizeof(scornn_tasks)), "size", "refusals");
    expect(scornn_struct_size(99) == 0, "no such struct", "refusals");
    scornn_work(nullptr);
    scornn_tasks none{nullptr, 1, 0};
    scornn_work(&none);
}

// A pointer that is not there is refused, whichever it is; so are batch sizes that no packed sequence has.
void check_missing() {
    Problem<float> p({2, 3, 5, 1, SCORNN_MODRELU, false, false}, SCORNN_ISA_BEST);
    const scornn_sequence whole = p.s;
    auto forward = [&] { return scornn_forward(&p.s, 0, 3); };
    auto backward = [&] { return scornn_backward(&p.s, &p.d, 0, 3); };
    expect(forward() == SCORNN_OK && backward() == SCORNN_OK, "nothing missing", "missing");
    for (const void *scornn_sequence::*field : {&scornn_sequence::x, &scornn_sequence::h0, &scornn_sequence::W,
                                                &scornn_sequence::U, &scornn_sequence::V, &scornn_sequence::c}) {
        p.s.*field = nullptr;
        expect(forward() == SCORNN_INVALID, "input of forward", "missing");
        expect((backward() == SCORNN_INVALID) == (field != &scornn_sequence::c), "input of backward", "missing");
        p.s = whole;
    }
    for (void *scornn_sequence::*field : {&scornn_sequence::output, &scornn_sequence::h_n, &scornn_sequence::y}) {
        p.s.*field = nullptr;
        expect(forward() == SCORNN_INVALID, "result of forward", "missing");
        expect((backward() == SCORNN_INVALID) == (field == &scornn_sequence::output), "states", "missing");
        p.s = whole;
    }
    p.s.b = nullptr;
    expect(forward() == SCORNN_OK && backward() == SCORNN_OK, "no bias", "missing");
    p.s = whole;
    const i64 good[] = {3, 3}, growing[] = {2, 3}, more[] = {4, 3}, ending[] = {3, 0}, fewer[] = {2, 2};
    p.s.batch_sizes = good;
    expect(forward() == SCORNN_OK, "good batch sizes", "missing");
    for (const i64 *sizes : {growing, more, ending, fewer}) {
        p.s.batch_sizes = sizes;
        expect(forward() == SCORNN_INVALID && backward() == SCORNN_INVALID, "batch sizes", "missing");
    }
}

// Numbers below the smallest normal one are zero inside a call, and what they were outside it.
void check_subnormals() {
#if defined(__SSE2__) || defined(__aarch64__)
    for (int isa : {SCORNN_ISA_PORTABLE, SCORNN_ISA_BEST}) {
        Problem<float> p({1, 2, 17, 1, SCORNN_IDENTITY, false, false}, isa);
        for (i64 i = 0; i < p.x.size; ++i) p.x[i] = 0;
        for (i64 i = 0; i < p.W.size; ++i) p.W[i] = i % 18 == 0;
        for (i64 i = 0; i < p.h0.size; ++i) p.h0[i] = 1e-40f;
        p.s.b = nullptr;
        volatile float tiny = 1e-40f;
        expect(scornn_forward(&p.s, 0, 2) == SCORNN_OK, "status", "subnormals");
        expect(tiny * 1 > 0, "the caller's mode", "subnormals");
        for (i64 i = 0; i < p.output.size; ++i) expect(p.output[i] == 0, "output", "subnormals");
    }
#endif
}

// Threads on disjoint rows of the same arrays give the bits of one thread.
void check_threads() {
    const Case c{20, 23, 33, 3, SCORNN_MODRELU, false, true};
    Problem<float> one(c, SCORNN_ISA_BEST), many(c, SCORNN_ISA_BEST);
    scornn_forward(&one.s, 0, c.B);
    scornn_backward(&one.s, &one.d, 0, c.B);
    const int count = 4;
    std::vector<std::unique_ptr<Problem<float>>> sums;
    for (int k = 0; k < count; ++k) sums.emplace_back(new Problem<float>(c, SCORNN_ISA_BEST));
    for (bool backward : {false, true}) {
        std::vector<scornn_gradients> gradients(count, many.d);
        std::vector<scornn_task> tasks;
        for (int k = 0; k < count; ++k) {
            scornn_gradients &d = gradients[k];
            d.W = sums[k]->dW.data(), d.U = sums[k]->dU.data(), d.b = sums[k]->db.data(), d.V = sums[k]->dV.data();
            tasks.push_back({&many.s, backward ? &d : nullptr, k * c.B / count, (k + 1) * c.B / count, -1});
        }
        scornn_tasks list{tasks.data(), count, 0};
        std::vector<std::thread> threads;
        for (int k = 0; k < count; ++k) threads.emplace_back(scornn_work, &list);
        for (std::thread &thread : threads) thread.join();
        for (const scornn_task &task : tasks) expect(task.status == SCORNN_OK, "status", "threads");
    }
    for (i64 i = 0; i < many.dW.size; ++i) many.dW[i] = 0;
    for (int k = 0; k < count; ++k)
        for (i64 i = 0; i < many.dW.size; ++i) many.dW[i] += sums[k]->dW[i];
    expect(!std::memcmp(&one.output[0], &many.output[0], one.output.size * sizeof(float)), "output", "threads");
    expect(!std::memcmp(&one.y[0], &many.y[0], one.y.size * sizeof(float)), "y", "threads");
    expect(!std::memcmp(&one.dx[0], &many.dx[0], one.dx.size * sizeof(float)), "dx", "threads");
    expect(!std::memcmp(&one.dh0[0], &many.dh0[0], one.dh0.size * sizeof(float)), "dh0", "threads");
    bool close = true;
    for (i64 i = 0; i < many.dW.size; ++i) close = close && std::fabs(many.dW[i] - one.dW[i]) <= 1e-3;
    expect(close, "dW", "threads");
}

}  // namespace

int main(int argc, char **argv) {
    if (argc > 1 && !std::strcmp(argv[1], "threads")) {
        check_threads();
    } else {
        check_grid();
        check_lstm_grid();
        check_other_grid();
        check_optional();
        check_refusals();
        check_missing();
        check_subnormals();
    }
    std::printf("%s\n", failures ? "failed" : "ok");
    return failures != 0;
}
