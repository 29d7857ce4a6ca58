// Sums of outer products, the gradients of weights: G += D^T H over the rows of a chunk, where D and H are panels.
#pragma once
#include "product.h"

namespace scornn::SCORNN_ISA {

// G[i][c] += sum_k D[k][i] H[k][c] for kHeight columns i of D and one panel of columns of H.
template <class T, int kHeight> struct TileOuter {
    static void run(const T *d, const T *h, i64 depth, T *g) {
        Vec<T> sum[kHeight][2];
        SCORNN_UNROLL
        for (int i = 0; i < kHeight; ++i) sum[i][0] = sum[i][1] = Vec<T>{};
#pragma GCC unroll 4
        for (i64 k = 0; k < depth; ++k) {
            Vec<T> low = load(h + k * kPanel<T>), high = load(h + k * kPanel<T> + kWidth<T>);
            SCORNN_UNROLL
            for (int i = 0; i < kHeight; ++i) {
                Vec<T> value = broadcast<T>(d[k * kPanel<T> + i]);
                sum[i][0] += value * low;
                sum[i][1] += value * high;
            }
        }
        SCORNN_UNROLL
        for (int i = 0; i < kHeight; ++i) {
            T *row = g + i * kPanel<T>;
            store(row, load(row) + sum[i][0]);
            store(row + kWidth<T>, load(row + kWidth<T>) + sum[i][1]);
        }
    }
};

// The same with a height known only at run time.
template <class T, int kHeight = kRows, class... Args> SCORNN_INLINE void tile_outer(i64 height, Args... args) {
    if (height == kHeight) {
        TileOuter<T, kHeight>::run(args...);
    } else if constexpr (kHeight > 1) {
        tile_outer<T, kHeight - 1>(height, args...);
    }
}

// G (columns of D, columns of H). Where few columns of H are left over by its whole panels, they are summed transposed:
// a panel for one column of x would cost as much as sixteen.
template <class T> class OuterSum {
  public:
    bool allocate(i64 rows, i64 columns) {
        const i64 left = columns % kPanel<T>;
        whole_ = left <= kRows ? columns - left : columns;
        thin_ = columns - whole_;
        return wide_.allocate(rows, whole_) && transposed_.allocate(thin_, rows);
    }

    // Adds `depth` rows, for panels of H from `first` on, and d_columns of D, from its panel d_first on.
    void add(const Panels<T> &D, i64 d_first, i64 d_columns, const Panels<T> &H, i64 first, i64 depth) {
        const i64 count = panels<T>(d_columns);
        for (i64 from = 0; from < count; from += kStripe) {
            const i64 to = smaller<i64>(count, from + kStripe);
            for (i64 panel = first; panel < panels<T>(whole_); ++panel)
                for (i64 i = from; i < to; ++i) {
                    const i64 column = i * kPanel<T>;
                    const Tiles tiles(smaller<i64>(kPanel<T>, d_columns - column));
                    for (i64 tile = 0; tile < tiles.count; ++tile) {
                        const i64 lane = tiles.begin(tile);
                        tile_outer<T>(tiles.begin(tile + 1) - lane, D.at(d_first + i, 0) + lane, H.at(panel, 0), depth,
                                      wide_.at(panel, column + lane));
                    }
                }
            for (i64 i = from; thin_ && i < to; ++i)
                tile_outer<T>(thin_, H.at(whole_ / kPanel<T>, 0), D.at(d_first + i, 0), depth, transposed_.at(i, 0));
        }
    }

    T &at(i64 row, i64 column) {
        return column < whole_ ? wide_.at(column / kPanel<T>, row)[column % kPanel<T>]
                               : transposed_.at(row / kPanel<T>, column - whole_)[row % kPanel<T>];
    }

    // `count` numbers of row `row`, from column `column` on.
    void get(i64 row, i64 column, T *target, i64 count) {
        const i64 straight = smaller<i64>(count, larger<i64>(0, whole_ - column));
        wide_.get(row, column, target, straight);
        for (i64 i = straight; i < count; ++i) target[i] = at(row, column + i);
    }

  private:
    static constexpr i64 kStripe = 8;  // panels of D that stay in cache while those of H pass by
    i64 whole_ = 0, thin_ = 0;
    Panels<T> wide_, transposed_;
};

}  // namespace scornn::SCORNN_ISA
