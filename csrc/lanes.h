// States with the batch in the lanes: component i of kWidth rows is one vector, and all of them follow one another in
// memory. What is done to components alike for all rows is then plain vector code, whatever their order.
#pragma once
#include <utility>

#include "panel.h"

namespace scornn::SCORNN_ISA {

// An array, zero at first. Not std::vector: its code would be shared among the instruction sets by the linker.
template <class V> class Array {
  public:
    Array() = default;
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array() { std::free(data_); }
    bool allocate(i64 count) {  // false where memory is short
        std::free(data_);
        data_ = static_cast<V *>(std::calloc(larger<i64>(count, 1), sizeof(V)));
        return data_ != nullptr;
    }
    V &operator[](i64 index) { return data_[index]; }
    const V &operator[](i64 index) const { return data_[index]; }
    V *data() { return data_; }
    const V *data() const { return data_; }

  private:
    V *data_ = nullptr;
};

// An array of vectors, zero at first.
template <class T> class Lanes {
  public:
    bool allocate(i64 count) { return memory_.allocate((count + 1) / 2, 1); }
    T *at(i64 index) { return memory_.at(0, 0) + index * kWidth<T>; }
    const T *at(i64 index) const { return memory_.at(0, 0) + index * kWidth<T>; }

  private:
    Panels<T> memory_;  // a panel's row is two vectors
};

// Sums over rows and steps: one vector for each, which now and then goes into a total; sums of sums round less.
template <class T> class LaneSums {
  public:
    bool allocate(i64 count) {
        count_ = count;
        return sums_.allocate(count) && totals_.allocate(1, count);
    }
    SCORNN_INLINE void add(i64 index, Vec<T> term) { store(sums_.at(index), load(sums_.at(index)) + term); }
    void flush() {
        for (i64 i = 0; i < count_; ++i) {
            T sum = 0;
            for (int lane = 0; lane < kWidth<T>; ++lane) sum += sums_.at(i)[lane];
            *total(i) += sum;
            store(sums_.at(i), Vec<T>{});
        }
    }
    T *total(i64 index) { return totals_.at(index / kPanel<T>, 0) + index % kPanel<T>; }

  private:
    i64 count_ = 0;
    Lanes<T> sums_;
    Panels<T> totals_;
};

// A complex number for each lane.
template <class T> struct Complex {
    Vec<T> re, im;
    SCORNN_INLINE Complex operator+(Complex b) const { return {re + b.re, im + b.im}; }
    SCORNN_INLINE Complex operator-(Complex b) const { return {re - b.re, im - b.im}; }
    SCORNN_INLINE Complex operator*(Complex b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
    SCORNN_INLINE Complex conj() const { return {re, -im}; }
};

template <class T> SCORNN_INLINE Complex<T> times_conj(Complex<T> a, Complex<T> b) {
    return {a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im};
}

template <class T> SCORNN_INLINE Complex<T> load_complex(const T *p) { return {load(p), load(p + kWidth<T>)}; }

template <class T> SCORNN_INLINE void store_complex(T *p, Complex<T> v) {
    store(p, v.re);
    store(p + kWidth<T>, v.im);
}

template <class T> SCORNN_INLINE Complex<T> broadcast_complex(const T *pair) {
    return {broadcast<T>(pair[0]), broadcast<T>(pair[1])};
}

// Blocks of kStep lanes: the low result takes those of a at even places, and beside each the block of b from the same
// place; the high result the same from odd places.
template <class T, int kStep, bool kHigh> constexpr int exchanged(int lane) {
    return (lane & kStep) ? kWidth<T> + lane - (kHigh ? 0 : kStep) : lane + (kHigh ? kStep : 0);
}

template <class T, int kStep, bool kHigh, std::size_t... kLane>
SCORNN_INLINE Vec<T> exchange(Vec<T> a, Vec<T> b, std::index_sequence<kLane...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, exchanged<T, kStep, kHigh>(kLane)...);
#else
    const Bits<T> places = {exchanged<T, kStep, kHigh>(kLane)...};
    return __builtin_shuffle(a, b, places);
#endif
}

template <class T, int kStep = kWidth<T> / 2> SCORNN_INLINE void transpose(Vec<T> (&v)[kWidth<T>]) {
    if constexpr (kStep > 0) {
        for (int i = 0; i < kWidth<T>; ++i) {
            if (i & kStep) continue;
            const Vec<T> a = v[i], b = v[i + kStep];
            v[i] = exchange<T, kStep, false>(a, b, std::make_index_sequence<kWidth<T>>());
            v[i + kStep] = exchange<T, kStep, true>(a, b, std::make_index_sequence<kWidth<T>>());
        }
        transpose<T, kStep / 2>(v);
    }
}

// `count` components of one row for each lane, with a stride, into lanes.
template <class T> void to_lanes(const T *const (&rows)[kWidth<T>], i64 stride, i64 count, T *to) {
    i64 i = 0;
    if (stride == 1)
        for (; i + kWidth<T> <= count; i += kWidth<T>) {
            Vec<T> v[kWidth<T>];
            for (int r = 0; r < kWidth<T>; ++r) v[r] = load(rows[r] + i);
            transpose<T>(v);
            for (int k = 0; k < kWidth<T>; ++k) store(to + (i + k) * kWidth<T>, v[k]);
        }
    for (; i < count; ++i)
        for (int r = 0; r < kWidth<T>; ++r) to[i * kWidth<T> + r] = rows[r][i * stride];
}

// The reverse, into `alive` rows that begin n numbers apart.
template <class T> void from_lanes(const T *from, i64 alive, i64 count, T *rows, i64 n) {
    i64 i = 0;
    for (; i + kWidth<T> <= count; i += kWidth<T>) {
        Vec<T> v[kWidth<T>];
        for (int k = 0; k < kWidth<T>; ++k) v[k] = load(from + (i + k) * kWidth<T>);
        transpose<T>(v);
        for (int r = 0; r < kWidth<T>; ++r)
            if (r < alive) store(rows + r * n + i, v[r]);
    }
    for (; i < count; ++i)
        for (i64 r = 0; r < alive; ++r) rows[r * n + i] = from[i * kWidth<T> + r];
}

// One lane alone.
template <class T> void put_lane(T *lanes, i64 lane, const T *row, i64 stride, i64 count) {
    for (i64 i = 0; i < count; ++i) lanes[i * kWidth<T> + lane] = row[i * stride];
}

template <class T> void get_lane(const T *lanes, i64 lane, T *row, i64 count) {
    for (i64 i = 0; i < count; ++i) row[i] = lanes[i * kWidth<T> + lane];
}

}  // namespace scornn::SCORNN_ISA
