// A bank of rotations, h_t = R h_{t-1} + z_t with z_t = U x_t + b, for the rows of a shard.
//
// R turns the units 2j and 2j + 1 together: R h = c h + s swap(h), where c and s hold cos and (-sin, sin) by unit and
// swap exchanges the two units of a pair. In float32 they come in two parts, high and low, so that R is a rotation to
// 2^-48 and the error after T steps is that of T roundings, not of T wrong angles.
//
// The backward pass reads of the output the states before each chunk of steps and makes the others once more: there is
// more memory to wait for than arithmetic. Walking back from h_n instead, h_{t-1} = R^T (h_t - z_t), would leave a
// rounding of the largest later state on every earlier one.
//
// There is little arithmetic for each number of the output, and a block's rows of one step lie far from those of the
// next: so each step asks for the memory of the next, which halved the time.
#pragma once
#include "sequence.h"

namespace scornn::SCORNN_ISA {

constexpr i64 kStateBytes = 16384;  // the states of a block of rows stay in the first cache
constexpr i64 kSumRows = 256;       // rows that are added up before their sum joins the total
constexpr i64 kChunk = 16;          // steps whose states are made again together: they stay in the second cache

template <class T> SCORNN_INLINE Vec<T> load_apart(const T *p, i64 stride, i64 count) {
    if (stride == 1) return load_first(p, count);
    Vec<T> v{};
    for (i64 i = 0; i < smaller<i64>(count, kWidth<T>); ++i) v[i] = p[i * stride];
    return v;
}

// M inputs to a row, where the compiler should know it: 0 stands for z itself (no U), -1 for any other number.
template <class T, int M> class Bank {
  public:
    Bank(const scornn_sequence &s, const scornn_gradients *g)
        : s_(s), g_(g), n_(s.hidden), m_(M == 0 ? 0 : s.input), width_(panels<T>(s.hidden) * kPanel<T>) {}

    int run(i64 row_begin, i64 row_end) {
        const i64 fit = larger<i64>(4, kStateBytes / (width_ * i64(sizeof(T))));
        const i64 most = smaller<i64>(smaller<i64>(kBlock, fit), row_end - row_begin);
        if (!flat(turn_, 4) || !flat(U_, m_) || !flat(b_, 1) || !flat(h_, most)) return SCORNN_OUT_OF_MEMORY;
        if (g_ && (!flat(carry_, most) || !flat(part_, 2 + m_) || !flat(total_, 2 + m_) || !flat(dx_, m_ / width_ + 1)))
            return SCORNN_OUT_OF_MEMORY;
        if (g_ && !flat(chunk_, most * kChunk)) return SCORNN_OUT_OF_MEMORY;
        const T *W = static_cast<const T *>(s_.W), *U = static_cast<const T *>(s_.U), *b = static_cast<const T *>(s_.b);
        for (i64 k = 0; k < 4; ++k) std::memcpy(row(turn_, k), W + k * n_, n_ * sizeof(T));
        for (i64 i = 0; i < n_; ++i)
            for (i64 j = 0; j < m_; ++j) row(U_, j)[i] = U[i * m_ + j];
        if (b) std::memcpy(row(b_, 0), b, n_ * sizeof(T));
        for (i64 begin = row_begin; begin < row_end; begin += most) {
            const i64 rows = smaller<i64>(most, row_end - begin);
            if (g_) {
                backward(begin, rows);
            } else {
                forward(begin, rows);
            }
        }
        if (g_) write_sums();
        return SCORNN_OK;
    }

  private:
    bool flat(Panels<T> &p, i64 rows) { return p.allocate(1, larger<i64>(1, rows) * width_); }
    T *row(Panels<T> &p, i64 r) { return p.at(0, 0) + r * width_; }

    SCORNN_INLINE i64 inputs() const { return M > 0 ? M : m_; }

    // R v + z, or with back = true R^T v + z. The low parts are added first: after a rounding they would be lost.
    SCORNN_INLINE Vec<T> turned(Vec<T> v, Vec<T> swapped, Vec<T> z, i64 column, bool back) {
        const T *c = row(turn_, 0) + column;
        const Vec<T> w = back ? -swapped : swapped;
        if (sizeof(T) == 4) z = load(c + 2 * width_) * v + (load(c + 3 * width_) * w + z);
        return load(c) * v + (load(c + width_) * w + z);
    }

    SCORNN_INLINE Vec<T> entering(const T *x, i64 column) {
        if (M == 0) return load_apart(x + column * s_.x_stride[2], s_.x_stride[2], n_ - column);
        Vec<T> z = load(row(b_, 0) + column);
        for (i64 j = 0; j < inputs(); ++j) z += broadcast(x[j * s_.x_stride[2]]) * load(row(U_, j) + column);
        return z;
    }

    SCORNN_INLINE Vec<T> next(const T *h, const T *x, i64 column) {
        const Vec<T> v = load(h + column);
        return turned(v, swap_pairs<T>(v), entering(x, column), column, false);
    }

    void forward(i64 begin, i64 rows) {
        walk<T>(
            s_, begin, rows,
            [this](const Block<T> &block, i64 r) { start(block, r, row(h_, r)); },
            [this](const Block<T> &block) {
                const T *x = block.find(s_.x, s_.x_stride);
                T *out = block.at(s_.output, n_);
                const i64 ahead = block.rows_to(+1) * n_;  // to what the next step writes, which is asked for now
                for (i64 r = 0; r < block.alive(); ++r, x += s_.x_stride[1], out += n_) {
                    T *h = row(h_, r);
                    for (i64 column = 0; column < n_; column += kWidth<T>) {
                        __builtin_prefetch(out + ahead + column, 1, 2);
                        const Vec<T> v = next(h, x, column);
                        store(h + column, v);
                        store_first(out + column, v, n_ - column);
                    }
                }
            },
            [this](const Block<T> &block, i64 r) {
                std::memcpy(block.first(s_.h_n, n_) + r * n_, row(h_, r), n_ * sizeof(T));
            });
    }

    // The state before the first step of a sequence.
    void start(const Block<T> &block, i64 r, T *h) {
        std::memcpy(h, block.first(s_.h0, n_) + r * n_, n_ * sizeof(T));
    }

    void backward(i64 begin, i64 rows) {
        const i64 size = rows * width_;
        walk_back<T>(
            s_, begin, rows,
            [this](const Block<T> &block, i64 r) {
                const T *dh_n = block.first(g_->h_n, n_);
                if (dh_n) {
                    std::memcpy(row(carry_, r), dh_n + r * n_, n_ * sizeof(T));
                } else {
                    std::memset(row(carry_, r), 0, n_ * sizeof(T));
                }
            },
            [this, size](const Block<T> &block) {
                if (!block.has(+1) || (block.index() + 1) % kChunk == 0) make_chunk(block, size);
                back_step(block, row(chunk_, 0) + block.index() % kChunk * size);
            },
            [this](const Block<T> &block, i64 r) {
                if (g_->h0) std::memcpy(block.first(g_->h0, n_) + r * n_, row(carry_, r), n_ * sizeof(T));
            });
    }

    // The states before each step of the chunk that ends at the block's.
    void make_chunk(Block<T> block, i64 size) {
        const i64 last = block.index(), first = last / kChunk * kChunk;
        T *h = row(chunk_, 0);
        block.move_to(first);
        const i64 carried = smaller<i64>(block.alive(-1), block.alive());
        const T *before = block.at(s_.output, n_) + block.rows_to(-1) * n_;
        for (i64 r = 0; r < carried; ++r) std::memcpy(h + r * width_, before + r * n_, n_ * sizeof(T));
        for (i64 r = carried; r < block.alive(); ++r) start(block, r, h + r * width_);
        for (i64 index = first; index < last; h += size) {
            const T *x = block.find(s_.x, s_.x_stride);
            for (i64 r = 0; r < block.alive(); ++r, x += s_.x_stride[1])
                for (i64 column = 0; column < n_; column += kWidth<T>)
                    store(h + size + r * width_ + column, next(h + r * width_, x, column));
            block.move_to(++index);
            for (i64 r = block.alive(-1); r < block.alive(); ++r) start(block, r, h + size + r * width_);
        }
    }

    // One step back, from the states before it.
    void back_step(const Block<T> &block, const T *h) {
        const i64 *stride = g_->output_stride, inputs = M == 0 ? n_ : m_;
        const T *x = block.find(s_.x, s_.x_stride), *g = block.find(g_->output, stride);
        T *dx = block.at(g_->x, inputs);
        ahead_ = g && stride[2] == 1 ? block.rows_to(-1) * stride[1] : 0;
        for (i64 r = 0; r < block.alive(); ++r, h += width_) {
            back_row(r, h, x, g, dx);
            x += s_.x_stride[1];
            if (g) g += stride[1];
            if (dx) dx += inputs;
            if (++summed_ == kSumRows) join();
        }
    }

    // One row of one step: from h_{t-1} and what reaches h_t to what reaches h_{t-1}.
    SCORNN_INLINE void back_row(i64 r, const T *h, const T *x, const T *g_out, T *dx) {
        const i64 stride = g_->output_stride[2];
        T *carry = row(carry_, r), *by_angle = row(part_, 0), *by_bias = row(part_, 1);
        Vec<T> read[M > 0 ? M : 1] = {};
        if (M < 0) std::memset(row(dx_, 0), 0, inputs() * sizeof(T));
        for (i64 column = 0; column < n_; column += kWidth<T>) {
            Vec<T> g = load(carry + column);
            if (g_out) {
                __builtin_prefetch(g_out + ahead_ + column, 0, 2);
                g += load_apart(g_out + column * stride, stride, n_ - column);
            }
            const Vec<T> back = turned(g, swap_pairs<T>(g), Vec<T>{}, column, true);
            store(carry + column, back);
            store(by_angle + column, load(by_angle + column) + back * swap_pairs<T>(load(h + column)));
            if (M == 0) {
                if (dx) store_first(dx + column, g, n_ - column);
                continue;
            }
            store(by_bias + column, load(by_bias + column) + g);
            for (i64 j = 0; j < inputs(); ++j) {
                T *by_U = row(part_, 2 + j) + column;
                store(by_U, load(by_U) + g * broadcast(x[j * s_.x_stride[2]]));
                const Vec<T> term = g * load(row(U_, j) + column);
                if (M > 0) {
                    read[M > 0 ? j : 0] += term;
                } else if (dx) {
                    row(dx_, 0)[j] += sum(term);
                }
            }
        }
        for (i64 j = 0; M != 0 && dx && j < inputs(); ++j) dx[j] = M > 0 ? sum(read[M > 0 ? j : 0]) : row(dx_, 0)[j];
    }

    static SCORNN_INLINE T sum(Vec<T> v) {
        T total = 0;
        for (int i = 0; i < kWidth<T>; ++i) total += v[i];
        return total;
    }

    void join() {
        T *part = row(part_, 0), *total = row(total_, 0);
        for (i64 i = 0; i < (2 + m_) * width_; ++i) total[i] += part[i];
        std::memset(part, 0, (2 + m_) * width_ * sizeof(T));
        summed_ = 0;
    }

    void write_sums() {
        join();
        T *dW = static_cast<T *>(g_->W), *db = static_cast<T *>(g_->b), *dU = static_cast<T *>(g_->U);
        if (dW) std::memcpy(dW, row(total_, 0), n_ * sizeof(T));
        if (db) std::memcpy(db, row(total_, 1), n_ * sizeof(T));
        for (i64 i = 0; dU && i < n_; ++i)
            for (i64 j = 0; j < m_; ++j) dU[i * m_ + j] = row(total_, 2 + j)[i];
    }

    const scornn_sequence &s_;
    const scornn_gradients *g_;
    const i64 n_, m_, width_;
    i64 summed_ = 0, ahead_ = 0;  // ahead_: from a gradient of the output to that of the step before
    Panels<T> turn_, U_, b_, h_, carry_, part_, total_, dx_, chunk_;
};

template <class T> int run_bank(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    if (!s.U) return Bank<T, 0>(s, g).run(begin, end);
    if (s.input == 1) return Bank<T, 1>(s, g).run(begin, end);
    return Bank<T, -1>(s, g).run(begin, end);
}

}  // namespace scornn::SCORNN_ISA
