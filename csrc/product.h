// The product of register tiles. Every result is one chain of multiply-adds in the order of k, whatever the height of
// the tile it falls into: a row's numbers never depend on the rows beside it.
#pragma once
#include "panel.h"

namespace scornn::SCORNN_ISA {

// Cuts `rows` into ceil(rows / kRows) tiles whose heights differ by at most one.
struct Tiles {
    i64 rows, count;
    explicit Tiles(i64 rows) : rows(rows), count((rows + kRows - 1) / kRows) {}
    i64 begin(i64 tile) const { return tile * rows / count; }
};

// C[r][c] = sum_k A[r][k] B[k][c] for kHeight rows and kVectors vectors of columns: one, or two from each of some
// panels. A, B and C are stored as panels; the k-th row of B belongs to the k-th column of A. With kAdd the sum begins
// with what C holds.
template <class T, int kHeight, int kVectors, bool kAdd = false> struct TileProduct {
    static SCORNN_INLINE void step(const T *a, const T *b, i64 b_stride, Vec<T> (&sum)[kHeight][kVectors]) {
        // Hold the fewer of the two, rows or vectors, in registers: all 16 of AVX2 are in use.
        if constexpr (kHeight < kVectors) {
            Vec<T> value[kHeight];
            SCORNN_UNROLL
            for (int r = 0; r < kHeight; ++r) value[r] = broadcast<T>(a[r * kPanel<T>]);
            SCORNN_UNROLL
            for (int v = 0; v < kVectors; ++v) {
                const Vec<T> row = load(b + (v / 2) * b_stride + (v % 2) * kWidth<T>);
                SCORNN_UNROLL
                for (int r = 0; r < kHeight; ++r) sum[r][v] += value[r] * row;
            }
        } else {
            Vec<T> row[kVectors];
            SCORNN_UNROLL
            for (int v = 0; v < kVectors; ++v) row[v] = load(b + (v / 2) * b_stride + (v % 2) * kWidth<T>);
            SCORNN_UNROLL
            for (int r = 0; r < kHeight; ++r) {
                const Vec<T> value = broadcast<T>(a[r * kPanel<T>]);
                SCORNN_UNROLL
                for (int v = 0; v < kVectors; ++v) sum[r][v] += value * row[v];
            }
        }
    }

    static void run(const T *a, i64 a_stride, const T *b, i64 b_stride, i64 depth, T *c, i64 c_stride) {
        Vec<T> sum[kHeight][kVectors];
        SCORNN_UNROLL
        for (int r = 0; r < kHeight; ++r)
            SCORNN_UNROLL
            for (int v = 0; v < kVectors; ++v)
                sum[r][v] = kAdd ? load(c + (v / 2) * c_stride + r * kPanel<T> + (v % 2) * kWidth<T>) : Vec<T>{};
        for (; depth >= kPanel<T>; depth -= kPanel<T>) {
            // Four at once, no more: two heights of tile take turns, and Intel's cache of decoded instructions has to
            // hold both loops. Unrolled whole they are decoded anew each time.
#pragma GCC unroll 4
            for (int k = 0; k < kPanel<T>; ++k) step(a + k, b + k * kPanel<T>, b_stride, sum);
            a += a_stride;
            b += kPanel<T> * kPanel<T>;
        }
        for (; depth > 0; --depth) {
            step(a, b, b_stride, sum);
            a += 1;
            b += kPanel<T>;
        }
        SCORNN_UNROLL
        for (int r = 0; r < kHeight; ++r)
            SCORNN_UNROLL
            for (int v = 0; v < kVectors; ++v)
                store(c + (v / 2) * c_stride + r * kPanel<T> + (v % 2) * kWidth<T>, sum[r][v]);
    }
};

// The same with a height known only at run time.
template <class T, int kVectors, bool kAdd = false, int kHeight = kRows, class... Args>
SCORNN_INLINE void tile_product(i64 height, Args... args) {
    if (height == kHeight) {
        TileProduct<T, kHeight, kVectors, kAdd>::run(args...);
    } else if constexpr (kHeight > 1) {
        tile_product<T, kVectors, kAdd, kHeight - 1>(height, args...);
    }
}

// Memory that will be wanted soon: a product asks for it piece by piece between its tiles, so that it arrives during
// the arithmetic. In the second cache, that is: asking for many lines at once in the first waits for its few buffers.
class Ahead {
  public:
    template <class T> void add(const T *begin, i64 count) {
        ranges_[used_++] = {reinterpret_cast<const char *>(begin), count * i64(sizeof(T))};
    }
    SCORNN_INLINE void fetch(i64 piece, i64 pieces) const {
        for (int i = 0; i < used_; ++i) {
            const i64 end = ranges_[i].bytes * (piece + 1) / pieces;
            for (i64 at = ranges_[i].bytes * piece / pieces; at < end; at += 64)
                __builtin_prefetch(ranges_[i].begin + at, 0, 2);
        }
    }

  private:
    struct Range {
        const char *begin;
        i64 bytes;
    };
    Range ranges_[2];
    int used_ = 0;
};

// C = A B for `rows` rows from a on, and panels [first, last) of B's columns; c is where panel `first` goes. Few rows
// take several panels at once, so that enough independent sums are under way to hide the latency of the multiply-add.
// Of a narrow panel the second half may be left as it was.
template <class T>
void multiply(const T *a, i64 a_stride, i64 rows, const Panels<T> &B, i64 depth, i64 first, i64 last, T *c,
              i64 c_stride, const Ahead &ahead = Ahead()) {
    const i64 b_stride = B.stride(), count = last - first;
    i64 done = 0;
    if (rows == 1)
        for (; done + 4 <= count; done += 4)
            TileProduct<T, 1, 8>::run(a, a_stride, B.at(first + done, 0), b_stride, depth, c + done * c_stride, c_stride);
    if (rows <= 3)
        for (; done + 2 <= count; done += 2)
            tile_product<T, 4, false, 3>(rows, a, a_stride, B.at(first + done, 0), b_stride, depth, c + done * c_stride,
                                  c_stride);
    const Tiles tiles(rows);
    for (; done < count; ++done) {
        const T *b = B.at(first + done, 0);
        for (i64 i = 0; i < tiles.count; ++i) {
            ahead.fetch(done * tiles.count + i, count * tiles.count);
            const i64 row = tiles.begin(i), height = tiles.begin(i + 1) - row;
            const T *from = a + row * kPanel<T>;
            T *to = c + done * c_stride + row * kPanel<T>;
            if (B.narrow(first + done)) {
                tile_product<T, 1>(height, from, a_stride, b, b_stride, depth, to, c_stride);
            } else {
                tile_product<T, 2>(height, from, a_stride, b, b_stride, depth, to, c_stride);
            }
        }
    }
}

}  // namespace scornn::SCORNN_ISA
