// h_t = act([h_{t-1} x_t] [W U]^T) and y_t = V h_t + c for the rows of a shard, block by block, each block through all
// steps.
#pragma once
#include "activation.h"
#include "product.h"
#include "sequence.h"

namespace scornn::SCORNN_ISA {

// [h_{t-1} x_t] of the rows of a block, and h_t under construction, which becomes h_{t-1}.
template <class T> class Inputs {
  public:
    explicit Inputs(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input) {}
    bool allocate(i64 most) { return hx_[0].allocate(most, n_ + m_) && hx_[1].allocate(most, n_ + m_); }

    Panels<T> &now() { return hx_[turn_]; }
    Panels<T> &next() { return hx_[1 - turn_]; }  // beyond n a state may fall on x, which the next step puts anew

    void start(const Block<T> &block, i64 r) { now().put(r, 0, block.first(s_.h0, n_) + r * n_, 1, n_); }
    void put_x(const Block<T> &block) {
        const T *x = block.find(s_.x, s_.x_stride);
        for (i64 r = 0; r < block.alive(); ++r) now().put(r, n_, x + r * s_.x_stride[1], s_.x_stride[2], m_);
    }
    void turn() { turn_ = 1 - turn_; }
    void end(const Block<T> &block, i64 r) const {
        std::memcpy(block.first(s_.h_n, n_) + r * n_, block.at(s_.output, n_) + r * n_, n_ * sizeof(T));
    }

  private:
    const scornn_sequence &s_;
    const i64 n_, m_;
    int turn_ = 0;
    Panels<T> hx_[2];
};

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

template <class T, template <class> class Act> class Forward {
  public:
    explicit Forward(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input), p_(s.heads), hx_(s) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 most = smaller<i64>(kBlock, row_end - row_begin);
        if (!pack_forward(s_, B_) || !pack_bias(s_, bias_) || !hx_.allocate(most)) return SCORNN_OUT_OF_MEMORY;
        if (p_ && (!pack_head(s_, V_) || !y_.allocate(most, p_))) return SCORNN_OUT_OF_MEMORY;
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
        const i64 alive = block.alive();
        Panels<T> &now = hx_.now(), &next = hx_.next();
        T *out = block.at(s_.output, n_);
        Ahead ahead;
        ahead.add(out, alive * n_);
        multiply(now.at(0, 0), now.stride(), alive, B_, n_ + m_, 0, panels<T>(n_), next.at(0, 0), next.stride(), ahead);
        activate<T, Act>(next.at(0, 0), next.stride(), alive, bias_, n_, out);
        if (p_) {
            multiply(next.at(0, 0), next.stride(), alive, V_, n_, 0, panels<T>(p_), y_.at(0, 0), y_.stride());
            write_heads(y_, static_cast<const T *>(s_.c), alive, p_, block.at(s_.y, p_));
        }
        hx_.turn();
    }

    const scornn_sequence &s_;
    const i64 n_, m_, p_;
    Inputs<T> hx_;
    Panels<T> B_, bias_, V_, y_;
};

}  // namespace scornn::SCORNN_ISA
