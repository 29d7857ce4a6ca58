// The gradients, from the states alone, for the rows of a shard; time runs backwards.
//
//     dz_t = act'(h_t) (dh_t + gradient of output_t),
//     [dh_{t-1} dx_t] = [dz_t dy_{t-1}] [[W U] [V 0]],   [[dW dU] [dV .]] += [dz_t dy_{t-1}]^T [h_{t-1} x_t].
//
// The head's gradient thus rides along in both products; only the last state of a sequence, which no later step follows,
// is treated by itself. The second product is that of sums.h.
#pragma once
#include "activation.h"
#include "sums.h"

namespace scornn {
namespace SCORNN_ISA {

constexpr i64 kDepth = 256;

// dh += g for `rows` rows of a gradient with any strides.
template <class T> void add_rows(const T *g, i64 row_stride, i64 column_stride, i64 rows, i64 n, Panels<T> &dh) {
    for (i64 r = 0; r < rows; ++r)
        for (i64 j = 0; j < n; ++j)
            dh.at(j / kPanel<T>, r)[j % kPanel<T>] += g[r * row_stride + j * column_stride];
}

// dz = act'(h) dh for one vector of columns, `left` of which exist, of `rows` rows; g, where it is not NULL, is added
// to dh first. Returns the bias gradient, by lane.
template <class T, template <class> class Act>
SCORNN_INLINE Vec<T> differentiate(const T *dh, const T *g, i64 g_row, const T *h, i64 h_row, i64 rows, i64 left,
                                   Vec<T> b, T *dz) {
    Vec<T> sum{};
    for (i64 r = 0; r < rows; ++r) {
        Vec<T> d = load(dh + r * kPanel<T>), db;
        if (g) d += load_first(g + r * g_row, left);
        const Vec<T> state = load_first(h + r * h_row, left);
        d = Act<T>::backward(d, state, b, db);
        store(dz + r * kPanel<T>, d);
        sum += db;
    }
    return sum;
}

template <class T, template <class> class Act> class Backward {
  public:
    Backward(const scornn_sequence &s, const scornn_gradients &g)
        : s_(s), g_(g), n_(s.hidden), m_(s.input), p_(g.y ? s.heads : 0), sums_(s, g, p_) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_backward(s_, p_, g_.x != nullptr, B_) || !pack_bias(s_, bias_) || !sums_.allocate(most, kDepth) ||
            !carry_.allocate(most, g_.x ? n_ + m_ : n_))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) { run_block(begin, rows); });
        sums_.write();
        return SCORNN_OK;
    }

  private:
    void run_block(i64 begin, i64 rows) {
        Block<T> block(s_, begin, rows);
        const T *output = static_cast<const T *>(s_.output), *h0 = static_cast<const T *>(s_.h0);
        const T *dh_n = static_cast<const T *>(g_.h_n), *dy = static_cast<const T *>(g_.y);
        T *dx = static_cast<T *>(g_.x), *dh0 = static_cast<T *>(g_.h0);
        const i64 width = panels<T>(n_);
        for (i64 index = s_.steps - 1; index >= 0; --index) {
            block.move_to(index);
            const i64 alive = block.alive(index), before = block.alive(index - 1);
            for (i64 r = block.alive(index + 1); r < alive; ++r) {  // sequences that end here
                put_row(carry_, r, dh_n ? dh_n + begin * n_ : nullptr, n_);
                if (p_) read_last(r, dy + (block.row() + r) * p_, output + (block.row() + r) * n_);
            }
            sums_.make_room(alive);
            const T *g = g_.output ? block.find(g_.output, g_.output_stride) : nullptr;
            if (g && g_.output_stride[2] != 1) {
                add_rows(g, g_.output_stride[1], g_.output_stride[2], alive, n_, carry_);
                g = nullptr;
            }
            differentiate_rows(g, output + block.row() * n_, alive);
            const i64 back = block.rows_to(index - 1);  // from here to the step before
            if (p_) sums_.keep_heads(dy + (block.row() + back) * p_, alive, before);
            sums_.keep_inputs(block, alive, before, output + (block.row() + back) * n_, h0 + begin * n_);
            Ahead ahead;
            if (index > 1) ahead.add(output + (block.row() + 2 * back) * n_, before * n_);
            if (index > 0 && g && g_.output_stride[1] == n_) ahead.add(g + back * n_, before * n_);
            const i64 first = index > 0 || dh0 ? 0 : n_ / kPanel<T>;
            const i64 last = dx ? panels<T>(n_ + m_) : width;
            if (first < last && (index > 0 || dh0 || dx))
                multiply(sums_.dz(0), sums_.dz_stride(), alive, B_, n_ + p_, first, last, carry_.at(first, 0),
                         carry_.stride(), ahead);
            if (dx)
                for (i64 r = 0; r < alive; ++r) carry_.get(r, n_, dx + (block.row() + r) * m_, m_);
            if (dh0)
                for (i64 r = before; r < alive; ++r) carry_.get(r, 0, dh0 + (begin + r) * n_, n_);
            sums_.done(alive);
        }
        sums_.add_chunk();
    }

    // What the head adds at the last state h of a sequence, row r of the block, to dh and to dV.
    void read_last(i64 r, const T *dy, const T *h) {
        for (i64 j = 0; j < n_; ++j) {
            const i64 panel = j / kPanel<T>, lane = j % kPanel<T>;
            for (i64 i = 0; i < p_; ++i) carry_.at(panel, r)[lane] += dy[i] * B_.at(panel, n_ + i)[lane];
        }
        sums_.read_last(dy, h);
    }

    // From dh in carry_, and the gradient g of the output (columns adjacent, or NULL), to dz.
    void differentiate_rows(const T *g, const T *h, i64 rows) {
        for (i64 column = 0; column < n_; column += kWidth<T>) {
            const i64 panel = column / kPanel<T>, lane = column % kPanel<T>, left = n_ - column;
            const i64 g_row = g_.output_stride[1];
            const T *dh = carry_.at(panel, 0) + lane;
            T *dz = sums_.dz(panel) + lane;
            const Vec<T> b = load(bias_.at(panel, 0) + lane);
            Vec<T> sum;
            if (left < kWidth<T>) {
                sum = differentiate<T, Act>(dh, g ? g + column : nullptr, g_row, h + column, n_, rows, left, b, dz);
            } else if (g) {
                sum = differentiate<T, Act>(dh, g + column, g_row, h + column, n_, rows, kWidth<T>, b, dz);
            } else {
                sum = differentiate<T, Act>(dh, nullptr, 0, h + column, n_, rows, kWidth<T>, b, dz);
            }
            sums_.add_bias(panel, lane, sum);
        }
    }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, m_, p_;
    Sums<T> sums_;
    Panels<T> B_, bias_, carry_;
};

}  // namespace SCORNN_ISA
}  // namespace scornn
