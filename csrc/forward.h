// h_t = act([h_{t-1} x_t] [W U]^T) and y_t = V h_t + c for the rows of a shard, block by block, each block through all
// steps.
#pragma once
#include "activation.h"
#include "product.h"
#include "sequence.h"

namespace scornn {
namespace SCORNN_ISA {

// Turns z (panels, in place) into h and writes it to `rows` rows of the output.
template <class T, template <class> class Act>
void activate(T *z, i64 stride, i64 rows, const Panels<T> &bias, i64 n, T *output) {
    for (i64 column = 0; column < n; column += kPanel<T>, z += stride) {
        const T *b = bias.at(column / kPanel<T>, 0);
        const Vec<T> b_low = load(b), b_high = load(b + kWidth<T>);
        T *out = output + column;
        const i64 left = n - column;
        for (i64 r = 0; r < rows; ++r, out += n) {
            T *row = z + r * kPanel<T>;
            const Vec<T> low = Act<T>::forward(load(row), b_low);
            const Vec<T> high = Act<T>::forward(load(row + kWidth<T>), b_high);
            store(row, low);
            store(row + kWidth<T>, high);
            store_first(out, low, left);
            if (left > kWidth<T>) store_first(out + kWidth<T>, high, left - kWidth<T>);
        }
    }
}

// Writes `rows` rows of y, which lies in panels and lacks c.
template <class T> void write_heads(const Panels<T> &y, const T *c, i64 rows, i64 p, T *out) {
    for (i64 r = 0; r < rows; ++r, out += p) {
        y.get(r, 0, out, p);
        for (i64 i = 0; i < p; ++i) out[i] += c[i];
    }
}

template <class T, template <class> class Act>
int forward_rows(const scornn_sequence &s, i64 row_begin, i64 row_end) {
    const i64 n = s.hidden, m = s.input, p = s.heads, width = panels<T>(n);
    const i64 most = smaller<i64>(kBlock, row_end - row_begin);
    Panels<T> B, bias, hx[2];  // hx: [h_{t-1} x_t], and the one under construction
    if (!pack_forward(s, B) || !pack_bias(s, bias) || !hx[0].allocate(most, n + m) || !hx[1].allocate(most, n + m))
        return SCORNN_OUT_OF_MEMORY;
    Panels<T> V, y;
    if (p && (!pack_head(s, V) || !y.allocate(most, p))) return SCORNN_OUT_OF_MEMORY;
    const T *h0 = static_cast<const T *>(s.h0);
    T *output = static_cast<T *>(s.output), *h_n = static_cast<T *>(s.h_n);

    for_each_block(row_begin, row_end, [&](i64 begin, i64 rows) {
        Block<T> block(s, begin, rows);
        Panels<T> *now = &hx[0], *next = &hx[1];
        for (i64 index = 0; index < s.steps; ++index) {
            block.move_to(index);
            const i64 alive = block.alive(index);
            for (i64 r = block.alive(index - 1); r < alive; ++r) now->put(r, 0, h0 + (begin + r) * n, 1, n);
            const T *x = block.find(s.x, s.x_stride);
            for (i64 r = 0; r < alive; ++r) now->put(r, n, x + r * s.x_stride[1], s.x_stride[2], m);
            T *out = output + block.row() * n;
            Ahead ahead;
            ahead.add(out, alive * n);
            multiply(now->at(0, 0), now->stride(), alive, B, n + m, 0, width, next->at(0, 0), next->stride(), ahead);
            activate<T, Act>(next->at(0, 0), next->stride(), alive, bias, n, out);
            if (p) {
                multiply(next->at(0, 0), next->stride(), alive, V, n, 0, panels<T>(p), y.at(0, 0), y.stride());
                write_heads(y, static_cast<const T *>(s.c), alive, p, static_cast<T *>(s.y) + block.row() * p);
            }
            for (i64 r = block.alive(index + 1); r < alive; ++r)
                std::memcpy(h_n + (begin + r) * n, out + r * n, n * sizeof(T));
            Panels<T> *swap = now;
            now = next;
            next = swap;
        }
    });
    return SCORNN_OK;
}

}  // namespace SCORNN_ISA
}  // namespace scornn
