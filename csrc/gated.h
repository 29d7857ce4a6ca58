// Units with a reset gate r and an update gate g, for the rows of a shard, block by block, each block through all steps:
//
//     r = sigmoid(W_r h + U_r x + b_r),   g = sigmoid(W_g h + U_g x + b_g),   s = W_c h + b_s,
//     c = act(r s + U_c x, b_c),          h' = g h + (1 - g) c.
//
// With tanh it is the GRU, with modReLU the GORU. Rows of W and U stand in the order r, g, c, those of b as r, g, c, s.
#pragma once
#include "backward.h"
#include "forward.h"

namespace scornn::SCORNN_ISA {

constexpr int kSpans = 3, kGateNumbers = 4;  // kept of a unit at a step: r, g, c, s

// The column that row i of W makes of h, and row i of U of x.
template <class T> SCORNN_INLINE i64 column_from_h(i64 n, i64 i) {
    return (i / n + 1) % kSpans * panels<T>(n) * kPanel<T> + i % n;
}
template <class T> SCORNN_INLINE i64 column_from_x(i64 n, i64 i) { return i / n * panels<T>(n) * kPanel<T> + i % n; }

template <class T> bool pack_gate_bias(const scornn_sequence &s, Panels<T> &bias) {
    const T *b = static_cast<const T *>(s.b);
    if (!bias.allocate(1, kGateNumbers * panels<T>(s.hidden) * kPanel<T>)) return false;
    for (i64 q = 0; b && q < kGateNumbers; ++q)
        bias.put(0, q * panels<T>(s.hidden) * kPanel<T>, b + q * s.hidden, 1, s.hidden);
    return true;
}

template <class T, template <class> class Act> class GatedForward {
  public:
    explicit GatedForward(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input), span_(panels<T>(s.hidden)), hx_(s) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!gates_.allocate(n_ + m_, 2 * span_ * kPanel<T>) || !W_.allocate(n_, n_) || !U_.allocate(m_, n_) ||
            !pack_gate_bias(s_, bias_) || !hx_.allocate(most) || !x_.allocate(most, m_) || !z_.allocate(most, kGateNumbers * kPanel<T>))
            return SCORNN_OUT_OF_MEMORY;
        for (i64 i = 0; i < kSpans * n_; ++i) {
            const T *w = static_cast<const T *>(s_.W) + i * n_, *u = static_cast<const T *>(s_.U) + i * m_;
            const i64 gate = i / n_, column = gate < 2 ? interleaved<T>(2, gate, i % n_) : i % n_;
            T *from_h = (gate < 2 ? gates_ : W_).at(column / kPanel<T>, 0) + column % kPanel<T>;
            T *from_x = gate < 2 ? from_h + n_ * kPanel<T> : U_.at(column / kPanel<T>, 0) + column % kPanel<T>;
            for (i64 j = 0; j < n_; ++j) from_h[j * kPanel<T>] = w[j];
            for (i64 j = 0; j < m_; ++j) from_x[j * kPanel<T>] = u[j];
        }
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) {
            walk<T>(
                s_, begin, rows, [this](const Block<T> &block, i64 r) { hx_.start(block, r); },
                [this](const Block<T> &block) { step(block); },
                [this](const Block<T> &block, i64 r) { hx_.end(block, r); });
        });
        return SCORNN_OK;
    }

  private:
    void step(const Block<T> &block) {
        hx_.put_x(block);
        const i64 alive = block.alive(), stride = hx_.now().stride();
        const T *hx = hx_.now().at(0, 0), *x = block.find(s_.x, s_.x_stride);
        for (i64 r = 0; r < alive; ++r) x_.put(r, 0, x + r * s_.x_stride[1], s_.x_stride[2], m_);
        Ahead ahead;
        ahead.add(block.at(s_.output, n_), alive * n_);
        if (s_.gates) ahead.add(block.at(s_.gates, kGateNumbers * n_), alive * kGateNumbers * n_);
        for (i64 panel = 0; panel < span_; ++panel) {
            ahead.fetch(panel, span_);
            const i64 after = panel + 1;
            multiply(hx, stride, alive, gates_, n_ + m_, 2 * panel, 2 * after, z_.at(0, 0), z_.stride());
            multiply(hx, stride, alive, W_, n_, panel, after, z_.at(2, 0), z_.stride());
            multiply(x_.at(0, 0), x_.stride(), alive, U_, m_, panel, after, z_.at(3, 0), z_.stride());
            for_vectors<T>(smaller<i64>(kPanel<T>, n_ - panel * kPanel<T>),
                           [&](i64 lane, i64 left) SCORNN_INLINED { states(block, panel, lane, left, alive); });
        }
        hx_.turn();
    }

    // From z = [r, g, W_c h, U_c x] to the state, for one vector of units, `left` of which exist, of `rows` rows. The
    // candidate waits for the gates, so it has a loop of its own, in which the rows overlap.
    SCORNN_INLINE void states(const Block<T> &block, i64 panel, i64 lane, i64 left, i64 rows) {
        const i64 column = panel * kPanel<T> + lane;
        Vec<T> b[kGateNumbers];
        for (int q = 0; q < kGateNumbers; ++q) b[q] = load(bias_.at(q * span_ + panel, 0) + lane);
        T *gates = s_.gates ? block.at(s_.gates, kGateNumbers * n_) + column : nullptr;
        T *out = block.at(s_.output, n_) + column;
        Panels<T> &now = hx_.now(), &next = hx_.next();
        for (i64 row = 0; row < rows; ++row)
            for (int q = 0; q < 2; ++q) {
                T *z = z_.at(q, row) + lane;
                const Vec<T> gate = sigmoid<T>(load(z) + b[q]);
                store(z, gate);
                if (gates) store_first(gates + (row * kGateNumbers + q) * n_, gate, left);
            }
        for (i64 row = 0; row < rows; ++row) {
            const auto z = [&](int q) { return load(z_.at(q, row) + lane); };
            const Vec<T> s = z(2) + b[3], c = Act<T>::forward(z(0) * s + z(3), b[2]);
            const Vec<T> h = z(1) * load(now.at(panel, row) + lane) + (T(1) - z(1)) * c;
            store(next.at(panel, row) + lane, h);
            store_first(out + row * n_, h, left);
            if (!gates) continue;
            T *unit = gates + row * kGateNumbers * n_;
            store_first(unit + 2 * n_, c, left);
            store_first(unit + 3 * n_, s, left);
        }
    }

    const scornn_sequence &s_;
    const i64 n_, m_, span_;
    Inputs<T> hx_;
    Panels<T> gates_, W_, U_, bias_, x_, z_;  // gates_: [W U] of r and g, W_ and U_ of c
};

// With dh the gradient that reaches h', and a = r s + U_c x:
//
//     da = act'(c) dh (1 - g),   ds = da r,   dz_r = da s r (1 - r),   dz_g = dh (h - c) g (1 - g);
//     dh = dh g + [ds dz_r dz_g] W,   dx = [dz_r dz_g da] U,   dW = [ds dz_r dz_g]^T h,   dU = [dz_r dz_g da]^T x.
//
// So four spans ds, dz_r, dz_g, da lie side by side: h belongs to the first three, x to the last three. A span begins a
// panel, so that the numbers of a unit share row and lane; the lanes from n to its end are zero in the weights.
template <class T, template <class> class Act> class GatedBackward {
  public:
    GatedBackward(const scornn_sequence &s, const scornn_gradients &g)
        : s_(s), g_(g), n_(s.hidden), m_(s.input), span_(panels<T>(s.hidden)), depth_(kSpans * span_ * kPanel<T>), carry_(s, g) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        kept_ = larger<i64>(most, smaller<i64>(kDepth, most * s_.steps));
        if (!W_.allocate(depth_, n_) || !pack_gate_bias(s_, bias_) || !dz_.allocate(kept_, depth_ + span_ * kPanel<T>) ||
            !db_.allocate(1, kGateNumbers * span_ * kPanel<T>) || !carry_.allocate(most, false) || !stays_.allocate(most, n_))
            return SCORNN_OUT_OF_MEMORY;
        if (g_.x && (!U_.allocate(depth_, m_) || !dx_.allocate(most, m_))) return SCORNN_OUT_OF_MEMORY;
        if (g_.W && (!h_.allocate(kept_, n_) || !dW_.allocate(depth_, n_))) return SCORNN_OUT_OF_MEMORY;
        if (g_.U && (!x_.allocate(kept_, m_) || !dU_.allocate(depth_, m_))) return SCORNN_OUT_OF_MEMORY;
        for (i64 i = 0; i < kSpans * n_; ++i) {
            W_.put(column_from_h<T>(n_, i), 0, static_cast<const T *>(s_.W) + i * n_, 1, n_);
            if (g_.x) U_.put(column_from_x<T>(n_, i), 0, static_cast<const T *>(s_.U) + i * m_, 1, m_);
        }
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) {
            walk_back<T>(
                s_, begin, rows, [this](const Block<T> &block, i64 r) { carry_.end(block, r); },
                [this](const Block<T> &block) { step(block); },
                [this](const Block<T> &block, i64 r) { carry_.start(block, r); });
            add_chunk();
        });
        write_sums();
        return SCORNN_OK;
    }

  private:
    void step(const Block<T> &block) {
        const i64 alive = block.alive(), before = block.alive(-1), back = block.rows_to(-1);
        if (filled_ + alive > kept_) add_chunk();
        const T *g = carry_.output_gradient(block);
        for_vectors<T>(n_, [&](i64 column, i64 left) SCORNN_INLINED { differentiate(block, g, column, left); });
        if (g_.W || g_.U) keep_inputs(block);
        Ahead ahead;
        if (block.has(-1))
            ahead.add(block.at(s_.gates, kGateNumbers * n_) + back * kGateNumbers * n_, before * kGateNumbers * n_);
        if (block.has(-2)) ahead.add(block.at(s_.output, n_) + 2 * back * n_, before * n_);
        if (block.has(-1) || g_.h0) {
            multiply(dz_.at(0, filled_), dz_.stride(), alive, W_, depth_, 0, span_, carry_.at(0, 0), carry_.stride(), ahead);
            for (i64 column = 0; column < n_; column += kWidth<T>)
                for (i64 r = 0; r < alive; ++r) {
                    T *to = carry_.at(column / kPanel<T>, r) + column % kPanel<T>;
                    store(to, load(to) + load(stays_.at(column / kPanel<T>, r) + column % kPanel<T>));
                }
        }
        if (g_.x) {
            multiply(dz_.at(span_, filled_), dz_.stride(), alive, U_, depth_, 0, panels<T>(m_), dx_.at(0, 0), dx_.stride());
            for (i64 r = 0; r < alive; ++r) dx_.get(r, 0, block.at(g_.x, m_) + r * m_, m_);
        }
        filled_ += alive;
    }

    // From dh, and the gradient g of the output (columns adjacent, or NULL), to the four spans, for one vector of units,
    // `left` of which exist. The state before the step is h0 where a sequence begins.
    SCORNN_INLINE void differentiate(const Block<T> &block, const T *g, i64 column, i64 left) {
        const i64 rows = block.alive(), before = block.alive(-1);
        const T *gates = block.at(s_.gates, kGateNumbers * n_), *h0 = block.first(s_.h0, n_);
        const T *h = block.at(s_.output, n_) + block.rows_to(-1) * n_;
        const i64 panel = column / kPanel<T>, lane = column % kPanel<T>;
        const Vec<T> b = load(bias_.at(2 * span_ + panel, 0) + lane);
        Vec<T> sum[kGateNumbers] = {};
        for (i64 row = 0; row < rows; ++row) {
            const T *unit = gates + row * kGateNumbers * n_ + column;
            const Vec<T> r = load_first(unit, left), u = load_first(unit + n_, left);
            const Vec<T> c = load_first(unit + 2 * n_, left), s = load_first(unit + 3 * n_, left);
            const Vec<T> state = load_first((row < before ? h : h0) + row * n_ + column, left);
            Vec<T> dh = load(carry_.at(panel, row) + lane), db;
            if (g) dh += load_first(g + row * g_.output_stride[1] + column, left);
            const Vec<T> da = Act<T>::backward(dh * (T(1) - u), c, b, db);
            const Vec<T> dz[kGateNumbers] = {da * r, da * s * r * (T(1) - r), dh * (state - c) * u * (T(1) - u), da};
            store(stays_.at(panel, row) + lane, dh * u);
            for (int q = 0; q < kGateNumbers; ++q) store(dz_.at(q * span_ + panel, filled_ + row) + lane, dz[q]);
            sum[0] += dz[1];
            sum[1] += dz[2];
            sum[2] += db;
            sum[3] += dz[0];
        }
        for (int q = 0; q < kGateNumbers; ++q) {
            T *db = db_.at(q * span_ + panel, 0) + lane;
            store(db, load(db) + sum[q]);
        }
    }

    void keep_inputs(const Block<T> &block) {
        const i64 before = block.alive(-1);
        const T *x = block.find(s_.x, s_.x_stride), *h0 = block.first(s_.h0, n_);
        const T *h = block.at(s_.output, n_) + block.rows_to(-1) * n_;
        for (i64 r = 0; r < block.alive(); ++r) {
            if (g_.W) h_.put(filled_ + r, 0, (r < before ? h : h0) + r * n_, 1, n_);
            if (g_.U) x_.put(filled_ + r, 0, x + r * s_.x_stride[1], s_.x_stride[2], m_);
        }
    }

    void add_chunk() {
        if (g_.W) dW_.add(dz_, 0, depth_, h_, 0, filled_);
        if (g_.U) dU_.add(dz_, span_, depth_, x_, 0, filled_);
        filled_ = 0;
    }

    void write_sums() {
        T *dW = static_cast<T *>(g_.W), *dU = static_cast<T *>(g_.U), *db = static_cast<T *>(g_.b);
        for (i64 i = 0; i < kSpans * n_; ++i) {
            if (dW) dW_.get(column_from_h<T>(n_, i), 0, dW + i * n_, n_);
            if (dU) dU_.get(column_from_x<T>(n_, i), 0, dU + i * m_, m_);
        }
        for (i64 q = 0; db && q < kGateNumbers; ++q) db_.get(0, q * span_ * kPanel<T>, db + q * n_, n_);
    }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, m_, span_, depth_;
    i64 kept_ = 0, filled_ = 0;
    Carry<T> carry_;
    Panels<T> W_, U_, bias_, stays_, dx_, dz_, h_, x_, db_;
    OuterSum<T> dW_, dU_;
};

}  // namespace scornn::SCORNN_ISA
