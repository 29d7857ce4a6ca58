// Panels: how the kernel lays out matrices.
//
// A matrix with `rows` rows is cut into panels of P = kPanel columns, each stored as [row][P]: element (r, c) is at
// (c / P) * rows * P + r * P + c % P. A row's P numbers are two aligned vectors, and walking down a panel is a walk
// through memory. Columns beyond the matrix's width fill the last panel and hold anything: nothing reads them.
#pragma once
#include <cstdlib>
#if defined(_WIN32)
#include <malloc.h>
#endif

#include "vec.h"

namespace scornn::SCORNN_ISA {

template <class T> SCORNN_INLINE i64 panels(i64 columns) { return (columns + kPanel<T> - 1) / kPanel<T>; }

// Memory that begins at a multiple of 64 bytes, or null. Windows has no posix_memalign.
inline void *allocate_aligned(i64 bytes) {
#if defined(_WIN32)
    return _aligned_malloc(std::size_t(bytes), 64);
#else
    void *data = nullptr;
    return posix_memalign(&data, 64, std::size_t(bytes)) == 0 ? data : nullptr;
#endif
}

inline void free_aligned(void *data) {
#if defined(_WIN32)
    _aligned_free(data);
#else
    std::free(data);
#endif
}

template <class T> class Panels {
  public:
    Panels() = default;
    Panels(const Panels &) = delete;
    Panels &operator=(const Panels &) = delete;
    ~Panels() { free_aligned(data_); }

    // False where memory is short. Contents: zero.
    bool allocate(i64 rows, i64 columns) {
        stride_ = rows * kPanel<T>;
        columns_ = columns;
        i64 bytes = panels<T>(columns) * stride_ * i64(sizeof(T));
        data_ = static_cast<T *>(allocate_aligned(larger<i64>(bytes, 64)));
        if (!data_) return false;
        std::memset(data_, 0, bytes);
        return true;
    }

    i64 stride() const { return stride_; }  // from one panel to the next
    bool narrow(i64 panel) const { return columns_ - panel * kPanel<T> <= kWidth<T>; }  // its columns fill one vector
    T *at(i64 panel, i64 row) { return data_ + panel * stride_ + row * kPanel<T>; }
    const T *at(i64 panel, i64 row) const { return data_ + panel * stride_ + row * kPanel<T>; }

    // Writes `count` numbers with the given stride into row `row`, from column `column` on.
    void put(i64 row, i64 column, const T *source, i64 stride, i64 count) {
        i64 panel = column / kPanel<T>, lane = column % kPanel<T>;
        while (count > 0) {
            i64 run = smaller<i64>(count, kPanel<T> - lane);
            T *target = at(panel, row) + lane;
            if (stride == 1 && run == kPanel<T>) {
                std::memcpy(target, source, kPanel<T> * sizeof(T));
            } else {
                for (i64 i = 0; i < run; ++i) target[i] = source[i * stride];
            }
            source += run * stride;
            count -= run;
            lane = 0;
            ++panel;
        }
    }

    // The reverse of put, with stride 1.
    void get(i64 row, i64 column, T *target, i64 count) const {
        i64 panel = column / kPanel<T>, lane = column % kPanel<T>;
        while (count > 0) {
            i64 run = smaller<i64>(count, kPanel<T> - lane);
            std::memcpy(target, at(panel, row) + lane, run * sizeof(T));
            target += run;
            count -= run;
            lane = 0;
            ++panel;
        }
    }

  private:
    T *data_ = nullptr;
    i64 stride_ = 0, columns_ = 0;
};

}  // namespace scornn::SCORNN_ISA
