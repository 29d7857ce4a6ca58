// The scaled Cayley transform W = (2R - I) D, R = (I + A)^-1, from the free numbers of a skew-symmetric A, and its
// gradient -2 R^T (dW D) R^T, gathered into the free numbers.
//
// R comes by a Gauss-Jordan elimination in place whose pivots are the blocks on the diagonal: all but n P of its 2 n^3
// operations are products of tiles. Blocks need no exchange with others: the symmetric part of I + A is I, and that of
// every Schur complement, I + C^T R1^T R1 C, is at least I. What it loses where A is huge shows in the rows of W, whose
// norms are 1: a row that is off is mended by a step of Newton's, R (2I - (I + A) R), or the caller is told.
#pragma once
#include "outer.h"
#include "scornn.h"

namespace scornn {
namespace SCORNN_ISA {

// Calls run(i, j, count, k): the free numbers k, k + 1, ... are A[i][j], A[i][j + 1], ..., all in one panel of columns.
// Square by square, so that the transposed entries of a call are near those of the next.
template <class T, class Run> void for_each_free_run(i64 n, i64 bandwidth, Run run) {
    constexpr i64 side = kPanel<T>;
    for (i64 rows = 0; rows < n; rows += side)
        for (i64 columns = rows; columns < n && columns < rows + side + bandwidth; columns += side)
            for (i64 i = rows; i < smaller(rows + side, n); ++i) {
                const i64 full = smaller<i64>(i, n - bandwidth), cut = i - full;  // rows above: a whole band, or less
                const i64 before = full * bandwidth + cut * (n - 1 - full) - cut * (cut - 1) / 2;
                const i64 first = larger(columns, i + 1), last = smaller(smaller(columns + side, n), i + 1 + bandwidth);
                if (first < last) run(i, first, last - first, before + first - i - 1);
            }
}

template <class T> class Inverse {
  public:
    Inverse(Panels<T> &M, i64 n) : M(M), n(n) {}

    // False where memory is short.
    bool run() {
        const i64 count = panels<T>(n), step = count > 2 * kStep ? kStep : 1;
        if (!column_.allocate(n, step * kPanel<T>) || !row_.allocate(step * kPanel<T>, n)) return false;
        sweep(0, count, step);
        return true;
    }

  private:
    // Inverts the square of the panels [low, high), `step` of them at a time.
    void sweep(i64 low, i64 high, i64 step) {
        for (i64 first = low; first < high; first += step) {
            const i64 last = smaller(first + step, high);
            if (step == 1) {
                invert_block(first);
            } else {
                sweep(first, last, 1);
            }
            eliminate(low, high, first, last);
        }
    }

    // With the inverse P of the pivot block in its place: [P, PX; YP, Z - Y P X] for [., X; Y, Z].
    void eliminate(i64 low, i64 high, i64 first, i64 last) {
        const i64 top = low * kPanel<T>, begin = first * kPanel<T>;
        const i64 end = smaller(last * kPanel<T>, n), bottom = smaller(high * kPanel<T>, n), depth = end - begin;
        const T *P = M.at(first, begin);
        for (i64 p = first; p < last; ++p)
            for (i64 r = top; r < bottom; ++r)
                for (i64 lane = 0; lane < kPanel<T>; lane += kWidth<T>)
                    store(column_.at(p - first, r) + lane, -load(M.at(p, r) + lane));
        for (i64 p = low; p < high; ++p) {
            const bool pivot = p >= first && p < last;
            if (pivot) {
                update<false>(p, top, begin, M.at(p, begin), depth);
                update<false>(p, end, bottom, M.at(p, begin), depth);
            } else {
                T *const X = row_.at(p, 0);
                product<false>(p, depth, P, M.stride(), M.at(p, begin), depth, X);
                std::memcpy(M.at(p, begin), X, depth * kPanel<T> * sizeof(T));
                update<true>(p, top, begin, X, depth);
                update<true>(p, end, bottom, X, depth);
            }
        }
    }

    // Rows [begin, end) of a panel: plus, or in place of what is there, the rows of column_ times B.
    template <bool kAdd> void update(i64 panel, i64 begin, i64 end, const T *b, i64 depth) {
        if (begin < end)
            product<kAdd>(panel, end - begin, column_.at(0, begin), column_.stride(), b, depth, M.at(panel, begin));
    }

    // C = A B, or with kAdd C += A B, for one panel of columns.
    template <bool kAdd> void product(i64 panel, i64 rows, const T *a, i64 stride, const T *b, i64 depth, T *c) const {
        const Tiles tiles(rows);
        for (i64 i = 0; i < tiles.count; ++i) {
            const i64 row = tiles.begin(i), height = tiles.begin(i + 1) - row;
            if (M.narrow(panel)) {
                tile_product<T, 1, kAdd>(height, a + row * kPanel<T>, stride, b, i64(0), depth, c + row * kPanel<T>, i64(0));
            } else {
                tile_product<T, 2, kAdd>(height, a + row * kPanel<T>, stride, b, i64(0), depth, c + row * kPanel<T>, i64(0));
            }
        }
    }

    // A block on the diagonal, in place.
    void invert_block(i64 panel) {
        const i64 first = panel * kPanel<T>, size = smaller(n - first, i64(kPanel<T>));
        T *const a = M.at(panel, first);
        for (i64 k = 0; k < size; ++k) {
            T *const pivot = a + k * kPanel<T>;
            const T inverse = 1 / pivot[k];
            pivot[k] = 1;
            const Vec<T> low = load(pivot) * broadcast<T>(inverse), high = load(pivot + kWidth<T>) * broadcast<T>(inverse);
            // Column k begins anew, by a mask: a store of one number would hold up the load of the row that follows it.
            const Bits<T> keep_low = other_lanes(k), keep_high = other_lanes(k - kWidth<T>);
            for (i64 r = 0; r < size; ++r) {
                T *const row = a + r * kPanel<T>;
                const Vec<T> factor = broadcast<T>(row[k]);
                store(row, Vec<T>(bits<T>(load(row)) & keep_low) - factor * low);
                store(row + kWidth<T>, Vec<T>(bits<T>(load(row + kWidth<T>)) & keep_high) - factor * high);
            }
            store(pivot, low);
            store(pivot + kWidth<T>, high);
        }
    }

    static Bits<T> other_lanes(i64 lane) {
        Bits<T> mask{};
        for (i64 i = 0; i < kWidth<T>; ++i) mask[i] = i == lane ? 0 : ~typename Lane<T>::Bits(0);
        return mask;
    }

    static constexpr i64 kStep = 4;  // panels of a pivot block of a large matrix, which passes the cache less often so
    Panels<T> &M;
    const i64 n;
    Panels<T> column_, row_;
};

// M = I + A. False where memory is short.
template <class T> bool pack_one_plus_skew(const scornn_cayley &c, Panels<T> &M) {
    const i64 n = c.size;
    const T *v = static_cast<const T *>(c.v);
    if (!M.allocate(n, n)) return false;
    for (i64 i = 0; i < n; ++i) M.at(i / kPanel<T>, i)[i % kPanel<T>] = 1;
    for_each_free_run<T>(n, c.bandwidth, [&](i64 i, i64 j, i64 count, i64 k) {
        M.put(i, j, v + k, 1, count);
        T *column = M.at(i / kPanel<T>, j) + i % kPanel<T>;
        for (i64 at = 0; at < count; ++at) column[at * kPanel<T>] = -v[k + at];
    });
    return true;
}

// M = scale M + diagonal I.
template <class T> void scale_and_shift(Panels<T> &M, i64 n, T scale, T diagonal) {
    for (i64 i = 0; i < n; ++i) {
        for (i64 p = 0; p < panels<T>(n); ++p)
            for (i64 lane = 0; lane < kPanel<T>; lane += kWidth<T>)
                store(M.at(p, i) + lane, scale * load(M.at(p, i) + lane));
        M.at(i / kPanel<T>, i)[i % kPanel<T>] += diagonal;
    }
}

// R as it is, and W = (2 R - I) D. Returns how far the squared norm of a row of W is from 1; NaN where a number is.
template <class T> T write(const scornn_cayley &c, const Panels<T> &R) {
    const i64 n = c.size;
    const T *D = static_cast<const T *>(c.D);
    T worst = 0;
    for (i64 i = 0; i < n; ++i) {
        T *const W_row = static_cast<T *>(c.W) + i * n, *const R_row = static_cast<T *>(c.R) + i * n;
        Vec<T> squares{};
        for (i64 j = 0; j < n; j += kWidth<T>) {
            const i64 count = n - j;
            const Vec<T> r = load_first(R.at(j / kPanel<T>, i) + j % kPanel<T>, count);
            Vec<T> w = r + r;
            if (i >= j && i < j + kWidth<T>) w[i - j] -= 1;
            w *= load_first(D + j, count);
            store_first(R_row + j, r, count);
            store_first(W_row + j, w, count);
            squares += w * w;
        }
        T off = -1;
        for (int lane = 0; lane < kWidth<T>; ++lane) off += squares[lane];
        off = off < 0 ? -off : off;
        if (!(off <= worst)) worst = off;
        if (worst != worst) break;
    }
    return worst;
}

template <class T> int cayley_forward(const scornn_cayley &c) {
    constexpr T hopeless = T(0.1);
    const i64 n = c.size, count = panels<T>(n);
    Panels<T> R;
    if (!pack_one_plus_skew(c, R) || !Inverse<T>(R, n).run()) return SCORNN_OUT_OF_MEMORY;
    T off = write(c, R);
    if (off > T(c.tolerance) && off < hopeless) {
        Panels<T> M, E, refined;
        if (!pack_one_plus_skew(c, M) || !E.allocate(n, n) || !refined.allocate(n, n)) return SCORNN_OUT_OF_MEMORY;
        multiply<T>(M.at(0, 0), M.stride(), n, R, n, 0, count, E.at(0, 0), E.stride());
        scale_and_shift<T>(E, n, -1, 2);
        multiply<T>(R.at(0, 0), R.stride(), n, E, n, 0, count, refined.at(0, 0), refined.stride());
        off = write(c, refined);
    }
    return off <= T(c.tolerance) ? SCORNN_OK : SCORNN_INACCURATE;
}

template <class T> int cayley_backward(const scornn_cayley &c) {
    const i64 n = c.size, count = panels<T>(n);
    const T *D = static_cast<const T *>(c.D), *dW = static_cast<const T *>(c.dW);
    T *dv = static_cast<T *>(c.dv);
    Panels<T> R, G, product;
    if (!R.allocate(n, n) || !G.allocate(n, n) || !product.allocate(n, n)) return SCORNN_OUT_OF_MEMORY;
    for (i64 i = 0; i < n; ++i) {
        R.put(i, 0, static_cast<const T *>(c.R) + i * n, 1, n);
        for (i64 j = 0; j < n; j += kWidth<T>)
            store(G.at(j / kPanel<T>, i) + j % kPanel<T>, load_first(dW + i * n + j, n - j) * load_first(D + j, n - j));
    }
    // (dW D)^T R, and R times that, which is the transpose of R^T (dW D) R^T.
    for (i64 j = 0; j < count; ++j)
        for (i64 i = 0; i < count; ++i) {
            const Tiles tiles(smaller(n - i * kPanel<T>, i64(kPanel<T>)));
            for (i64 tile = 0; tile < tiles.count; ++tile) {
                const i64 lane = tiles.begin(tile);
                tile_outer<T>(tiles.begin(tile + 1) - lane, G.at(i, 0) + lane, R.at(j, 0), n,
                              product.at(j, i * kPanel<T> + lane));
            }
        }
    Panels<T> &VT = G;
    multiply<T>(R.at(0, 0), R.stride(), n, product, n, 0, count, VT.at(0, 0), VT.stride());
    for_each_free_run<T>(n, c.bandwidth, [&](i64 i, i64 j, i64 length, i64 k) {
        const T *row = VT.at(j / kPanel<T>, i) + j % kPanel<T>, *column = VT.at(i / kPanel<T>, j) + i % kPanel<T>;
        for (i64 at = 0; at < length; ++at) dv[k + at] = 2 * (row[at] - column[at * kPanel<T>]);
    });
    return SCORNN_OK;
}

}  // namespace SCORNN_ISA
}  // namespace scornn
