// The LSTM, for the rows of a shard, block by block, each block through all steps.
//
//     z = [h_{t-1} x_t] [W U]^T + b,   i, f, o = sigmoid(z),   g = tanh(z),
//     c_t = f c_{t-1} + i g,   h_t = o tanh(c_t).
//
// Gate q of the units of panel p lies in panel 4 p + q (column_of_z): the four are multiplied one after the other and
// become states while they are in the nearest cache.
#pragma once
#include "backward.h"

namespace scornn {
namespace SCORNN_ISA {

constexpr int kGates = 4;  // i, f, g, o

template <class T> class LstmForward {
  public:
    explicit LstmForward(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_forward(s_, B_) || !pack_bias(s_, bias_) || !hx_[0].allocate(most, n_ + m_) ||
            !hx_[1].allocate(most, n_ + m_) || !z_.allocate(most, kGates * kPanel<T>) || !c_.allocate(most, n_))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) { run_block(begin, rows); });
        return SCORNN_OK;
    }

  private:
    void run_block(i64 begin, i64 rows) {
        Block<T> block(s_, begin, rows);
        const T *h0 = static_cast<const T *>(s_.h0), *c0 = static_cast<const T *>(s_.c0);
        T *output = static_cast<T *>(s_.output), *h_n = static_cast<T *>(s_.h_n), *c_n = static_cast<T *>(s_.c_n);
        Panels<T> *now = &hx_[0], *next = &hx_[1];  // [h_{t-1} x_t], and the one under construction
        for (i64 index = 0; index < s_.steps; ++index) {
            block.move_to(index);
            const i64 alive = block.alive(index), span = panels<T>(n_);
            for (i64 r = block.alive(index - 1); r < alive; ++r) {  // sequences that begin here
                now->put(r, 0, h0 + (begin + r) * n_, 1, n_);
                c_.put(r, 0, c0 + (begin + r) * n_, 1, n_);
            }
            const T *x = block.find(s_.x, s_.x_stride);
            for (i64 r = 0; r < alive; ++r) now->put(r, n_, x + r * s_.x_stride[1], s_.x_stride[2], m_);
            T *out = output + block.row() * n_;
            Ahead ahead;
            ahead.add(out, alive * n_);
            if (s_.gates) ahead.add(static_cast<const T *>(s_.gates) + block.row() * kGates * n_, alive * kGates * n_);
            for (i64 panel = 0; panel < span; ++panel) {
                ahead.fetch(panel, span);
                multiply(now->at(0, 0), now->stride(), alive, B_, n_ + m_, kGates * panel, kGates * (panel + 1),
                         z_.at(0, 0), z_.stride());
                for (i64 lane = 0; lane < kPanel<T> && panel * kPanel<T> + lane < n_; lane += kWidth<T>) {
                    const i64 left = n_ - panel * kPanel<T> - lane;
                    if (left < kWidth<T>) {
                        step(panel, lane, left, alive, block.row(), *next);
                    } else {
                        step(panel, lane, kWidth<T>, alive, block.row(), *next);
                    }
                }
            }
            for (i64 r = block.alive(index + 1); r < alive; ++r) {  // sequences that end here
                std::memcpy(h_n + (begin + r) * n_, out + r * n_, n_ * sizeof(T));
                c_.get(r, 0, c_n + (begin + r) * n_, n_);
            }
            Panels<T> *swap = now;
            now = next;
            next = swap;
        }
    }

    // From z to the states, for one vector of units, `left` of which exist, of `rows` rows. tanh(c) waits for the gates,
    // so it has a loop of its own, in which the rows overlap.
    SCORNN_INLINE void step(i64 panel, i64 lane, i64 left, i64 rows, i64 first_row, Panels<T> &next) {
        const i64 column = panel * kPanel<T> + lane;
        Vec<T> b[kGates];
        for (int q = 0; q < kGates; ++q) b[q] = load(bias_.at(kGates * panel + q, 0) + lane);
        T *cells = s_.cells ? static_cast<T *>(s_.cells) + first_row * n_ + column : nullptr;
        T *gates = s_.gates ? static_cast<T *>(s_.gates) + first_row * kGates * n_ + column : nullptr;
        T *out = static_cast<T *>(s_.output) + first_row * n_ + column;
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
            store(next.at(panel, r) + lane, h);  // beyond n it falls on x, which the next step puts anew
            store_first(out + r * n_, h, left);
        }
    }

    const scornn_sequence &s_;
    const i64 n_, m_;
    Panels<T> B_, bias_, hx_[2], z_, c_;
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
        : s_(s), g_(g), n_(s.hidden), m_(s.input), depth_(columns_of_z<T>(s)), sums_(s, g, 0) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_backward(s_, 0, g_.x != nullptr, B_) || !sums_.allocate(most, kDepth) ||
            !carry_.allocate(most, g_.x ? n_ + m_ : n_) || !dc_.allocate(most, n_))
            return SCORNN_OUT_OF_MEMORY;
        for_each_block(row_begin, row_end, [this](i64 begin, i64 rows) { run_block(begin, rows); });
        sums_.write();
        return SCORNN_OK;
    }

  private:
    void run_block(i64 begin, i64 rows) {
        Block<T> block(s_, begin, rows);
        const T *output = static_cast<const T *>(s_.output), *h0 = static_cast<const T *>(s_.h0);
        const T *cells = static_cast<const T *>(s_.cells), *c0 = static_cast<const T *>(s_.c0);
        const T *gates = static_cast<const T *>(s_.gates);
        const T *dh_n = static_cast<const T *>(g_.h_n), *dc_n = static_cast<const T *>(g_.c_n);
        T *dx = static_cast<T *>(g_.x), *dh0 = static_cast<T *>(g_.h0), *dc0 = static_cast<T *>(g_.c0);
        for (i64 index = s_.steps - 1; index >= 0; --index) {
            block.move_to(index);
            const i64 alive = block.alive(index), before = block.alive(index - 1);
            for (i64 r = block.alive(index + 1); r < alive; ++r) {  // sequences that end here
                put_row(carry_, r, dh_n ? dh_n + begin * n_ : nullptr, n_);
                put_row(dc_, r, dc_n ? dc_n + begin * n_ : nullptr, n_);
            }
            sums_.make_room(alive);
            const i64 *stride = g_.output_stride;
            if (g_.output) add_rows(block.find(g_.output, stride), stride[1], stride[2], alive, n_, carry_);
            const i64 back = block.rows_to(index - 1);  // from here to the step before
            const T *c_before = cells + (block.row() + back) * n_, *h_before = output + (block.row() + back) * n_;
            for (i64 column = 0; column < n_; column += kWidth<T>) {
                const i64 left = n_ - column;
                if (left < kWidth<T>) {
                    differentiate(column, left, alive, before, block.row(), c_before, c0 + begin * n_);
                } else {
                    differentiate(column, kWidth<T>, alive, before, block.row(), c_before, c0 + begin * n_);
                }
            }
            sums_.keep_inputs(block, alive, before, h_before, h0 + begin * n_);
            Ahead ahead;
            if (index > 0) ahead.add(gates + (block.row() + back) * kGates * n_, before * kGates * n_);
            if (index > 1) ahead.add(cells + (block.row() + 2 * back) * n_, before * n_);
            const i64 first = index > 0 || dh0 ? 0 : n_ / kPanel<T>;
            const i64 last = panels<T>(dx ? n_ + m_ : n_);
            if (index > 0 || dh0 || dx)
                multiply(sums_.dz(0), sums_.dz_stride(), alive, B_, depth_, first, last, carry_.at(first, 0),
                         carry_.stride(), ahead);
            if (dx)
                for (i64 r = 0; r < alive; ++r) carry_.get(r, n_, dx + (block.row() + r) * m_, m_);
            for (i64 r = before; r < alive; ++r) {  // sequences that begin here
                if (dh0) carry_.get(r, 0, dh0 + (begin + r) * n_, n_);
                if (dc0) dc_.get(r, 0, dc0 + (begin + r) * n_, n_);
            }
            sums_.done(alive);
        }
        sums_.add_chunk();
    }

    // From dh and dc to dz, for one vector of units, `left` of which exist, of `rows` rows; c_{t-1} of row r is in
    // c_before, or in c0 where the sequence begins.
    SCORNN_INLINE void differentiate(i64 column, i64 left, i64 rows, i64 before, i64 first_row, const T *c_before,
                                     const T *c0) {
        const i64 panel = column / kPanel<T>, lane = column % kPanel<T>;
        const T *output = static_cast<const T *>(s_.output) + first_row * n_ + column;
        const T *gates = static_cast<const T *>(s_.gates) + first_row * kGates * n_ + column;
        T *to = sums_.dz(kGates * panel) + lane;
        Vec<T> sum[kGates] = {};
        for (i64 r = 0; r < rows; ++r) {
            const T *unit = gates + r * kGates * n_;
            const Vec<T> i = load_first(unit, left), f = load_first(unit + n_, left);
            const Vec<T> g = load_first(unit + 2 * n_, left), o = load_first(unit + 3 * n_, left);
            const Vec<T> c = load_first((r < before ? c_before : c0) + r * n_ + column, left);
            const Vec<T> h = load_first(output + r * n_, left);
            const Vec<T> dh = load_first(carry_.at(panel, r) + lane, left);  // beyond n there is dx
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
    const i64 n_, m_, depth_;
    Sums<T> sums_;
    Panels<T> B_, carry_, dc_;
};

}  // namespace SCORNN_ISA
}  // namespace scornn
