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

namespace scornn::SCORNN_ISA {

constexpr i64 kDepth = 256;

// dh += g for `rows` rows of a gradient with any strides.
template <class T> void add_rows(const T *g, i64 row_stride, i64 column_stride, i64 rows, i64 n, Panels<T> &dh) {
    for (i64 r = 0; r < rows; ++r)
        for (i64 j = 0; j < n; ++j)
            dh.at(j / kPanel<T>, r)[j % kPanel<T>] += g[r * row_stride + j * column_stride];
}

// Row r of panels from row r of a contiguous (rows, n) array, or zero where there is none.
template <class T> void put_row(Panels<T> &to, i64 r, const T *rows, i64 n) {
    const T zero = 0;
    if (rows) {
        to.put(r, 0, rows + r * n, 1, n);
    } else {
        to.put(r, 0, &zero, 0, n);
    }
}

// [dh dx], what reaches the states before a step and its inputs, on its way back through time.
template <class T> class Carry {
  public:
    Carry(const scornn_sequence &s, const scornn_gradients &g) : s_(s), g_(g), n_(s.hidden), m_(s.input) {}
    bool allocate(i64 most, bool dx) { return rows_.allocate(most, dx ? n_ + m_ : n_); }

    T *at(i64 panel, i64 row) { return rows_.at(panel, row); }
    i64 stride() const { return rows_.stride(); }

    void end(const Block<T> &block, i64 r) { put_row(rows_, r, block.first(g_.h_n, n_), n_); }

    // The gradient of the output at a step where its columns are adjacent, for the cell to add. Others are added to dh
    // here, and give NULL.
    const T *output_gradient(const Block<T> &block) {
        const T *g = block.find(g_.output, g_.output_stride);
        if (!g || g_.output_stride[2] == 1) return g;
        add_rows(g, g_.output_stride[1], g_.output_stride[2], block.alive(), n_, rows_);
        return nullptr;
    }

    // [dh dx] = dz B, of which only what somebody reads is made.
    void step(const Block<T> &block, const T *dz, i64 dz_stride, const Panels<T> &B, i64 depth, const Ahead &ahead) {
        const i64 first = block.has(-1) || g_.h0 ? 0 : n_ / kPanel<T>, last = panels<T>(g_.x ? n_ + m_ : n_);
        if (block.has(-1) || g_.h0 || g_.x)
            multiply(dz, dz_stride, block.alive(), B, depth, first, last, at(first, 0), stride(), ahead);
        for (i64 r = 0; g_.x && r < block.alive(); ++r) rows_.get(r, n_, block.at(g_.x, m_) + r * m_, m_);
    }

    void start(const Block<T> &block, i64 r) const {
        if (g_.h0) rows_.get(r, 0, block.first(g_.h0, n_) + r * n_, n_);
    }

  private:
    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, m_;
    Panels<T> rows_;
};

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
        : s_(s), g_(g), n_(s.hidden), p_(g.y ? s.heads : 0), sums_(s, g, p_), carry_(s, g) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_backward(s_, p_, g_.x != nullptr, B_) || !pack_bias(s_, bias_) || !sums_.allocate(most, kDepth) ||
            !carry_.allocate(most, g_.x != nullptr))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) {
            walk_back<T>(
                s_, begin, rows,
                [this](const Block<T> &block, i64 r) {
                    carry_.end(block, r);
                    if (p_) read_last(r, block.at(g_.y, p_) + r * p_, block.at(s_.output, n_) + r * n_);
                },
                [this](const Block<T> &block) { step(block); },
                [this](const Block<T> &block, i64 r) { carry_.start(block, r); });
            sums_.add_chunk();
        });
        sums_.write();
        return SCORNN_OK;
    }

  private:
    void step(const Block<T> &block) {
        const i64 alive = block.alive(), before = block.alive(-1), back = block.rows_to(-1);
        const T *g = carry_.output_gradient(block), *h = block.at(s_.output, n_);
        sums_.make_room(alive);
        differentiate_rows(g, h, alive);
        if (p_) sums_.keep_heads(block);
        sums_.keep_inputs(block);
        Ahead ahead;
        if (block.has(-2)) ahead.add(h + 2 * back * n_, before * n_);
        if (block.has(-1) && g && g_.output_stride[1] == n_) ahead.add(g + back * n_, before * n_);
        carry_.step(block, sums_.dz(0), sums_.dz_stride(), B_, n_ + p_, ahead);
        sums_.done(alive);
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
        for_vectors<T>(n_, [&](i64 column, i64 left) SCORNN_INLINED {
            const i64 panel = column / kPanel<T>, lane = column % kPanel<T>, g_row = g_.output_stride[1];
            const T *dh = carry_.at(panel, 0) + lane;
            T *dz = sums_.dz(panel) + lane;
            const Vec<T> b = load(bias_.at(panel, 0) + lane);
            sums_.add_bias(panel, lane, g ? differentiate<T, Act>(dh, g + column, g_row, h + column, n_, rows, left, b, dz)
                                          : differentiate<T, Act>(dh, nullptr, 0, h + column, n_, rows, left, b, dz));
        });
    }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, p_;
    Sums<T> sums_;
    Carry<T> carry_;
    Panels<T> B_, bias_;
};

}  // namespace scornn::SCORNN_ISA
