// The LSTM, for the rows of a shard, block by block, each block through all steps.
//
//     z = [h_{t-1} x_t] [W U]^T + b,   i, f, o = sigmoid(z),   g = tanh(z),
//     c_t = f c_{t-1} + i g,   h_t = o tanh(c_t).
//
// Gate q of the units of panel p lies in panel 4 p + q (column_of_z): the four are multiplied one after the other and
// become states while they are in the nearest cache.
#pragma once
#include "backward.h"
#include "forward.h"

namespace scornn::SCORNN_ISA {

constexpr int kGates = 4;  // i, f, g, o

template <class T> class LstmForward {
  public:
    explicit LstmForward(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input), hx_(s) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_forward(s_, B_) || !pack_bias(s_, bias_) || !hx_.allocate(most) ||
            !z_.allocate(most, kGates * kPanel<T>) || !c_.allocate(most, n_))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) {
            walk<T>(
                s_, begin, rows,
                [this](const Block<T> &block, i64 r) {
                    hx_.start(block, r);
                    c_.put(r, 0, block.first(s_.c0, n_) + r * n_, 1, n_);
                },
                [this](const Block<T> &block) { step(block); },
                [this](const Block<T> &block, i64 r) {
                    hx_.end(block, r);
                    c_.get(r, 0, block.first(s_.c_n, n_) + r * n_, n_);
                });
        });
        return SCORNN_OK;
    }

  private:
    void step(const Block<T> &block) {
        hx_.put_x(block);
        const i64 alive = block.alive(), span = panels<T>(n_);
        Panels<T> &now = hx_.now();
        Ahead ahead;
        ahead.add(block.at(s_.output, n_), alive * n_);
        if (s_.gates) ahead.add(block.at(s_.gates, kGates * n_), alive * kGates * n_);
        for (i64 panel = 0; panel < span; ++panel) {
            ahead.fetch(panel, span);
            multiply(now.at(0, 0), now.stride(), alive, B_, n_ + m_, kGates * panel, kGates * (panel + 1), z_.at(0, 0),
                     z_.stride());
            for_vectors<T>(smaller<i64>(kPanel<T>, n_ - panel * kPanel<T>),
                           [&](i64 lane, i64 left) SCORNN_INLINED { states(block, panel, lane, left, alive); });
        }
        hx_.turn();
    }

    // From z to the states, for one vector of units, `left` of which exist, of `rows` rows. tanh(c) waits for the gates,
    // so it has a loop of its own, in which the rows overlap.
    SCORNN_INLINE void states(const Block<T> &block, i64 panel, i64 lane, i64 left, i64 rows) {
        const i64 column = panel * kPanel<T> + lane;
        Vec<T> b[kGates];
        for (int q = 0; q < kGates; ++q) b[q] = load(bias_.at(kGates * panel + q, 0) + lane);
        T *cells = s_.c_all ? block.at(s_.c_all, n_) + column : nullptr;
        T *gates = s_.gates ? block.at(s_.gates, kGates * n_) + column : nullptr;
        T *out = block.at(s_.output, n_) + column;
        Panels<T> &next = hx_.next();
        for (i64 r = 0; r < rows; ++r) {
            const auto z = [&](int q) { return load(z_.at(q, r) + lane) + b[q]; };
            T *cell = c_.at(panel, r) + lane;
            const Vec<T> i = sigmoid<T>(z(0)), f = sigmoid<T>(z(1)), g = tanh<T>(z(2)), o = sigmoid<T>(z(3));
            const Vec<T> c = f * load(cell) + i * g;
            store(cell, c);
            store(z_.at(3, r) + lane, o);
            if (!gates) continue;
            store_first(cells + r * n_, c, left);
            T *unit = gates + r * kGates * n_;
            store_first(unit, i, left);
            store_first(unit + n_, f, left);
            store_first(unit + 2 * n_, g, left);
            store_first(unit + 3 * n_, o, left);
        }
        for (i64 r = 0; r < rows; ++r) {
            const Vec<T> h = load(z_.at(3, r) + lane) * tanh<T>(load(c_.at(panel, r) + lane));
            store(next.at(panel, r) + lane, h);
            store_first(out + r * n_, h, left);
        }
    }

    const scornn_sequence &s_;
    const i64 n_, m_;
    Inputs<T> hx_;
    Panels<T> B_, bias_, z_, c_;
};

// With dc_t the gradient that reaches c_t, from h_t and from c_{t+1}, and tanh(c_t) = h_t / o:
//
//     dz_o = dh tanh(c_t) o (1 - o),   dc_t = dc + dh o (1 - tanh(c_t)^2),
//     dz_i = dc_t g i (1 - i),   dz_f = dc_t c_{t-1} f (1 - f),   dz_g = dc_t i (1 - g^2),   dc = dc_t f;
//
// then dh, dx and the weights' gradients follow from dz as those of the plain recurrence do.
template <class T> class LstmBackward {
  public:
    LstmBackward(const scornn_sequence &s, const scornn_gradients &g)
        : s_(s), g_(g), n_(s.hidden), depth_(columns_of_z<T>(s)), sums_(s, g, 0), carry_(s, g) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_backward(s_, 0, g_.x != nullptr, B_) || !sums_.allocate(most, kDepth) ||
            !carry_.allocate(most, g_.x != nullptr) || !dc_.allocate(most, n_))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) {
            walk_back<T>(
                s_, begin, rows,
                [this](const Block<T> &block, i64 r) {
                    carry_.end(block, r);
                    put_row(dc_, r, block.first(g_.c_n, n_), n_);
                },
                [this](const Block<T> &block) { step(block); },
                [this](const Block<T> &block, i64 r) {
                    carry_.start(block, r);
                    if (g_.c0) dc_.get(r, 0, block.first(g_.c0, n_) + r * n_, n_);
                });
            sums_.add_chunk();
        });
        sums_.write();
        return SCORNN_OK;
    }

  private:
    void step(const Block<T> &block) {
        const i64 alive = block.alive(), before = block.alive(-1), back = block.rows_to(-1);
        const T *g = carry_.output_gradient(block);
        sums_.make_room(alive);
        for_vectors<T>(n_, [&](i64 column, i64 left) SCORNN_INLINED { differentiate(block, g, column, left); });
        sums_.keep_inputs(block);
        Ahead ahead;
        if (block.has(-1)) ahead.add(block.at(s_.gates, kGates * n_) + back * kGates * n_, before * kGates * n_);
        if (block.has(-2)) ahead.add(block.at(s_.c_all, n_) + 2 * back * n_, before * n_);
        carry_.step(block, sums_.dz(0), sums_.dz_stride(), B_, depth_, ahead);
        sums_.done(alive);
    }

    // From dh, dc and the gradient g of the output (columns adjacent, or NULL) to dz, for one vector of units, `left` of
    // which exist; c_{t-1} is c0 where a sequence begins.
    SCORNN_INLINE void differentiate(const Block<T> &block, const T *g_out, i64 column, i64 left) {
        const i64 rows = block.alive(), before = block.alive(-1);
        const T *c0 = block.first(s_.c0, n_), *c_before = block.at(s_.c_all, n_) + block.rows_to(-1) * n_;
        const i64 panel = column / kPanel<T>, lane = column % kPanel<T>;
        const T *output = block.at(s_.output, n_) + column, *gates = block.at(s_.gates, kGates * n_) + column;
        T *to = sums_.dz(kGates * panel) + lane;
        Vec<T> sum[kGates] = {};
        for (i64 r = 0; r < rows; ++r) {
            const T *unit = gates + r * kGates * n_;
            const Vec<T> i = load_first(unit, left), f = load_first(unit + n_, left);
            const Vec<T> g = load_first(unit + 2 * n_, left), o = load_first(unit + 3 * n_, left);
            const Vec<T> c = load_first((r < before ? c_before : c0) + r * n_ + column, left);
            const Vec<T> h = load_first(output + r * n_, left);
            Vec<T> dh = load_first(carry_.at(panel, r) + lane, left);  // beyond n there is dx
            if (g_out) dh += load_first(g_out + r * g_.output_stride[1] + column, left);
            const Vec<T> t = left < kWidth<T> ? o == T(0) ? Vec<T>{} : h / o : h / o;
            T *carried = dc_.at(panel, r) + lane;
            const Vec<T> dc = load(carried) + dh * o * (T(1) - t * t);
            const Vec<T> dz[kGates] = {dc * g * i * (T(1) - i), dc * c * f * (T(1) - f), dc * i * (T(1) - g * g),
                                       dh * h * (T(1) - o)};
            store(carried, dc * f);
            for (int q = 0; q < kGates; ++q) {
                store(to + q * sums_.dz_stride() + r * kPanel<T>, dz[q]);
                sum[q] += dz[q];
            }
        }
        for (int q = 0; q < kGates; ++q) sums_.add_bias(kGates * panel + q, lane, sum[q]);
    }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, depth_;
    Sums<T> sums_;
    Carry<T> carry_;
    Panels<T> B_, dc_;
};

}  // namespace scornn::SCORNN_ISA
