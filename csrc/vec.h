// Vectors of one register's width, by the compilers' vector extension: the same source serves every instruction set.
// The comparison of two vectors is a mask of integers, and `mask ? a : b` selects by lane.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#ifndef SCORNN_ISA
#error "compile with -DSCORNN_ISA=<name>: every instruction set lives in a namespace of its own"
#endif

// Register tile: SCORNN_ROWS rows by two vectors of accumulators, two vectors of the panel and one broadcast have to
// fit the register file. A test may ask for another size: the compiler makes wide vectors out of narrow ones.
#if defined(SCORNN_VECTOR_BYTES)
#elif defined(__AVX512F__)
#define SCORNN_VECTOR_BYTES 64
#define SCORNN_ROWS 14
#elif defined(__AVX2__)
#define SCORNN_VECTOR_BYTES 32
#define SCORNN_ROWS 6
#elif defined(__aarch64__)
#define SCORNN_VECTOR_BYTES 16
#define SCORNN_ROWS 12
#else
#define SCORNN_VECTOR_BYTES 16
#define SCORNN_ROWS 4
#endif

#define SCORNN_INLINE inline __attribute__((always_inline))
#define SCORNN_INLINED __attribute__((always_inline))  // of a lambda

// Before a loop over the vectors of a register tile: left as a loop, an array stays in memory. GCC unrolls 16 turns by
// itself, and not always; a tile has up to 28.
#define SCORNN_UNROLL _Pragma("GCC unroll 32")

namespace scornn::SCORNN_ISA {

using i64 = std::int64_t;

template <class T> struct Lane;
template <> struct Lane<float> { using Bits = std::uint32_t; };
template <> struct Lane<double> { using Bits = std::uint64_t; };

template <class T> struct Simd {
    typedef T Vec __attribute__((vector_size(SCORNN_VECTOR_BYTES)));
    typedef T Loose __attribute__((vector_size(SCORNN_VECTOR_BYTES), aligned(sizeof(T))));  // anywhere in an array of T
    typedef typename Lane<T>::Bits Bits __attribute__((vector_size(SCORNN_VECTOR_BYTES)));
    static constexpr int width = SCORNN_VECTOR_BYTES / sizeof(T);
};

template <class T> using Vec = typename Simd<T>::Vec;
template <class T> using Bits = typename Simd<T>::Bits;
template <class T> constexpr int kWidth = Simd<T>::width;
template <class T> constexpr int kPanel = 2 * kWidth<T>;  // columns of a panel: see panel.h
constexpr int kRows = SCORNN_ROWS;

template <class T> SCORNN_INLINE Vec<T> broadcast(T value) { return value - Vec<T>{}; }  // exact, -0 and NaN included

// Not by memcpy, which may write to anything: the compiler would read every pointer and size again after each store.
template <class T> SCORNN_INLINE Vec<T> load(const T *p) { return *reinterpret_cast<const typename Simd<T>::Loose *>(p); }

template <class T> SCORNN_INLINE void store(T *p, Vec<T> v) { *reinterpret_cast<typename Simd<T>::Loose *>(p) = v; }

// Some lanes alone, fewer than all, by the instructions with a mask where there are any.
#if defined(__AVX512F__)
SCORNN_INLINE Vec<float> load_some(const float *p, i64 count) { return _mm512_maskz_loadu_ps((1u << count) - 1, p); }
SCORNN_INLINE Vec<double> load_some(const double *p, i64 count) { return _mm512_maskz_loadu_pd((1u << count) - 1, p); }
SCORNN_INLINE void store_some(float *p, Vec<float> v, i64 count) { _mm512_mask_storeu_ps(p, (1u << count) - 1, v); }
SCORNN_INLINE void store_some(double *p, Vec<double> v, i64 count) { _mm512_mask_storeu_pd(p, (1u << count) - 1, v); }
#else
template <class T> SCORNN_INLINE Vec<T> load_some(const T *p, i64 count) {
    Vec<T> v{};
    for (i64 i = 0; i < count; ++i) v[i] = p[i];
    return v;
}

template <class T> SCORNN_INLINE void store_some(T *p, Vec<T> v, i64 count) {
    for (i64 i = 0; i < count; ++i) p[i] = v[i];
}
#endif

// The first `count` lanes; the others are zero. Nothing beyond them is touched.
template <class T> SCORNN_INLINE Vec<T> load_first(const T *p, i64 count) {
    return count >= kWidth<T> ? load(p) : load_some(p, count);
}

template <class T> SCORNN_INLINE void store_first(T *p, Vec<T> v, i64 count) {
    if (count >= kWidth<T>) return store(p, v);
    store_some(p, v, count);
}

// Calls run(column, left) for each vector of n columns, `left` of which exist: to the compiler a constant but at the end.
template <class T, class Run> SCORNN_INLINE void for_vectors(i64 n, Run run) {
    i64 column = 0;
    for (; column + kWidth<T> <= n; column += kWidth<T>) run(column, i64(kWidth<T>));
    if (column < n) run(column, n - column);
}

template <class T> SCORNN_INLINE Bits<T> bits(Vec<T> v) { return (Bits<T>)v; }

template <class T> SCORNN_INLINE Bits<T> sign_bit(Vec<T> v) {
    using Word = typename Lane<T>::Bits;
    return bits<T>(v) & (Word(1) << (8 * sizeof(T) - 1));
}

template <class T> SCORNN_INLINE Vec<T> absolute(Vec<T> v) { return (Vec<T>)(bits<T>(v) ^ sign_bit<T>(v)); }

template <class T> SCORNN_INLINE Vec<T> square_root(Vec<T> v) {
    for (int i = 0; i < kWidth<T>; ++i) v[i] = sizeof(T) == 4 ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
    return v;
}

// Lanes (a, b, c, d, ...) -> (b, a, d, c, ...).
template <class T> SCORNN_INLINE Vec<T> swap_pairs(Vec<T> v) {
    Vec<T> w = v;
    for (int i = 0; i < kWidth<T>; ++i) w[i] = v[i ^ 1];
    return w;
}

template <class T> SCORNN_INLINE constexpr T smaller(T a, T b) { return a < b ? a : b; }
template <class T> SCORNN_INLINE constexpr T larger(T a, T b) { return a > b ? a : b; }

}  // namespace scornn::SCORNN_ISA
