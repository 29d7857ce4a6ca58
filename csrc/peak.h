// The most that the multiply-adds of an instruction set can do: as many independent sums as a register tile has, which
// never leave their registers.
#pragma once
#include "vec.h"

namespace scornn::SCORNN_ISA {

template <class T> double peak_of(i64 iterations) {
    constexpr int kSums = 2 * kRows;
    Vec<T> sum[kSums];
    volatile T start = 2;  // unknown to the compiler, which leaves out a sum that it sees to stand still
    SCORNN_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = broadcast<T>(start + T(i));
    const Vec<T> factor = broadcast<T>(T(0.999)), term = broadcast<T>(T(0.001));
    for (i64 k = 0; k < iterations; ++k)
        SCORNN_UNROLL
        for (int i = 0; i < kSums; ++i) sum[i] = sum[i] * factor + term;
    Vec<T> total{};
    SCORNN_UNROLL
    for (int i = 0; i < kSums; ++i) total += sum[i];
    volatile T sink = total[0];
    (void)sink;
    return 2.0 * kSums * kWidth<T> * double(iterations);
}

}  // namespace scornn::SCORNN_ISA
