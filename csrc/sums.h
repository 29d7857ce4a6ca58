// The gradients of W, U, V and b, summed over the rows of a shard: what both backward passes share.
//
//     [[dW dU] [dV .]] += [dz_t dy_{t-1}]^T [h_{t-1} x_t],   db += the bias gradient of each row.
//
// [dz dy] and [h x] of some steps are kept as panels until the chunk is full; then they enter the sums by one product
// that stays in cache. Sums of sums round less than one long chain.
#pragma once
#include "outer.h"
#include "sequence.h"

namespace scornn::SCORNN_ISA {

template <class T> class Sums {
  public:
    // `heads` columns of dy stand beside those of dz.
    Sums(const scornn_sequence &s, const scornn_gradients &g, i64 heads)
        : s_(s), g_(g), n_(s.hidden), m_(s.input), p_(heads), z_(columns_of_z<T>(s)) {}

    // Room for the `most` rows of a step, and for a chunk of about `depth` rows. False: out of memory.
    bool allocate(i64 most, i64 depth) {
        depth_ = larger<i64>(most, smaller<i64>(depth, most * s_.steps));
        const i64 width = g_.U ? n_ + m_ : n_;
        return dz_.allocate(depth_, z_ + p_) && db_.allocate(1, z_) && db_chunk_.allocate(1, z_) &&
               (!weights() || (hx_.allocate(depth_, width) && G_.allocate(z_ + p_, width)));
    }

    // A step: make_room, then fill dz, bias and the rest, then done.
    void make_room(i64 rows) {
        if (filled_ + rows > depth_) add_chunk();
    }
    void done(i64 rows) { filled_ += rows; }

    T *dz(i64 panel) { return dz_.at(panel, filled_); }
    i64 dz_stride() const { return dz_.stride(); }

    // Adds the bias gradient of a step, by lane.
    SCORNN_INLINE void add_bias(i64 panel, i64 lane, Vec<T> sum) {
        T *db = db_chunk_.at(panel, 0) + lane;
        store(db, load(db) + sum);
    }

    // dy of the step before, beside dz of this one; zero for the sequences that begin here.
    void keep_heads(const Block<T> &block) {
        const T zero = 0, *dy = block.at(g_.y, p_) + block.rows_to(-1) * p_;
        for (i64 r = 0; r < block.alive(); ++r) {
            const bool carried = r < block.alive(-1);
            dz_.put(filled_ + r, z_, carried ? dy + r * p_ : &zero, carried, p_);
        }
    }

    // dV of the last state h of a sequence, which no later step follows.
    void read_last(const T *dy, const T *h) {
        for (i64 j = 0; g_.V && j < n_; ++j)
            for (i64 i = 0; i < p_; ++i) G_.at(z_ + i, j) += dy[i] * h[j];
    }

    // x of a step, and the state before it, which is h0 where a sequence begins.
    void keep_inputs(const Block<T> &block) {
        if (!weights()) return;
        const i64 before = block.alive(-1);
        const T *x = block.find(s_.x, s_.x_stride), *h0 = block.first(s_.h0, n_);
        const T *h = block.at(s_.output, n_) + block.rows_to(-1) * n_;
        for (i64 r = 0; r < block.alive(); ++r) {
            if (g_.W || g_.V) hx_.put(filled_ + r, 0, (r < before ? h : h0) + r * n_, 1, n_);
            if (g_.U) hx_.put(filled_ + r, n_, x + r * s_.x_stride[1], s_.x_stride[2], m_);
        }
    }

    void add_chunk() {
        const i64 first = g_.W || g_.V ? 0 : n_ / kPanel<T>;
        if (weights()) G_.add(dz_, 0, g_.V ? z_ + p_ : z_, hx_, first, filled_);
        for (i64 p = 0; p < panels<T>(z_); ++p)
            for (i64 i = 0; i < kPanel<T>; i += kWidth<T>) {
                T *sum = db_chunk_.at(p, 0) + i, *total = db_.at(p, 0) + i;
                store(total, load(total) + load(sum));
                store(sum, Vec<T>{});
            }
        filled_ = 0;
    }

    void write() {
        T *dW = static_cast<T *>(g_.W), *dU = static_cast<T *>(g_.U), *db = static_cast<T *>(g_.b);
        const i64 rows = gates_of(s_) * n_, lanes = s_.cell == SCORNN_COMPLEX_MODRELU ? 2 : 1;
        for (i64 i = 0; i < rows; ++i) {
            const i64 row = column_of_z<T>(s_, i);
            if (dW) G_.get(row, 0, dW + i * n_, n_);
            if (dU) G_.get(row, n_, dU + i * m_, m_);
        }
        for (i64 i = 0; g_.V && i < p_; ++i) G_.get(z_ + i, 0, static_cast<T *>(g_.V) + i * n_, n_);
        for (i64 i = 0; db && i < rows / lanes; ++i) db_.get(0, column_of_z<T>(s_, i * lanes), db + i, 1);
    }

  private:
    bool weights() const { return g_.W || g_.U || g_.V; }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, m_, p_, z_;
    i64 depth_ = 0, filled_ = 0;
    Panels<T> dz_, hx_, db_, db_chunk_;
    OuterSum<T> G_;
};

}  // namespace scornn::SCORNN_ISA
