// The Fourier transform of complex numbers in lanes, for any n, without scaling and in place.
//
// forward: decimation in frequency, from natural order to the order that frequency() tells. inverse: its adjoint, from that
// order back, so no pass over the data puts it in order. A stage of radix R cuts a block of length L into R of m = L / R:
//
//     block j at p = w_L^{pj} sum_k w_R^{jk} x[p + m k],   w_L = exp(-2 pi i / L).
//
// The inverse is done with the forward's numbers, since swapping real and imaginary part is i times the conjugate.
#pragma once
#include <cmath>

#include "lanes.h"

namespace scornn::SCORNN_ISA {

// a_j <- sum_k a_k w_R^{jk} for R numbers. Odd R pairs k with R - k: the sum of a pair meets cosines, its difference
// sines. `table` holds cos and sin of 2 pi i / R.
template <class T, int R> struct Butterfly {
    static SCORNN_INLINE void run(Complex<T> (&a)[R], const T *table) {
        constexpr int kHalf = R / 2;
        Complex<T> sum[kHalf], difference[kHalf], total = a[0];
        for (int k = 0; k < kHalf; ++k) {
            sum[k] = a[k + 1] + a[R - 1 - k];
            difference[k] = a[k + 1] - a[R - 1 - k];
            total = total + sum[k];
        }
        for (int j = 1; j <= kHalf; ++j) {
            Complex<T> even = a[0], odd{};
            for (int k = 0; k < kHalf; ++k) {
                const int i = j * (k + 1) % R;
                const Vec<T> c = broadcast<T>(table[2 * i]), s = broadcast<T>(table[2 * i + 1]);
                even = {even.re + c * sum[k].re, even.im + c * sum[k].im};
                odd = {odd.re + s * difference[k].re, odd.im + s * difference[k].im};
            }
            a[j] = {even.re + odd.im, even.im - odd.re};
            a[R - j] = {even.re - odd.im, even.im + odd.re};
        }
        a[0] = total;
    }
};

template <class T> struct Butterfly<T, 2> {
    static SCORNN_INLINE void run(Complex<T> (&a)[2], const T *) {
        const Complex<T> b = a[1];
        a[1] = a[0] - b;
        a[0] = a[0] + b;
    }
};

template <class T> struct Butterfly<T, 4> {
    static SCORNN_INLINE void run(Complex<T> (&a)[4], const T *) {
        const Complex<T> b = a[0] + a[2], c = a[0] - a[2], d = a[1] + a[3], e = a[1] - a[3];
        a[0] = b + d;
        a[2] = b - d;
        a[1] = {c.re + e.im, c.im - e.re};
        a[3] = {c.re - e.im, c.im + e.re};
    }
};

template <class T> struct Butterfly<T, 8> {
    static SCORNN_INLINE void run(Complex<T> (&a)[8], const T *) {
        const T root = T(0.70710678118654752440);
        Complex<T> even[4], odd[4];
        for (int k = 0; k < 4; ++k) {
            even[k] = a[k] + a[k + 4];
            odd[k] = a[k] - a[k + 4];
        }
        odd[1] = {root * (odd[1].re + odd[1].im), root * (odd[1].im - odd[1].re)};
        odd[2] = {odd[2].im, -odd[2].re};
        odd[3] = {root * (odd[3].im - odd[3].re), -root * (odd[3].re + odd[3].im)};
        Butterfly<T, 4>::run(even, nullptr);
        Butterfly<T, 4>::run(odd, nullptr);
        for (int k = 0; k < 4; ++k) {
            a[2 * k] = even[k];
            a[2 * k + 1] = odd[k];
        }
    }
};

template <class T> class Fourier {
  public:
    // False where memory is short.
    bool prepare(i64 n) {
        Array<i64> before;
        if (!frequency_.allocate(n) || !before.allocate(n)) return false;
        i64 left = n, done = 1;
        for (count_ = 0; left > 1; ++count_) {
            Stage &stage = stages_[count_];
            stage.radix = next_radix(left), stage.part = left / stage.radix, stage.blocks = done;
            if (!stage.fill()) return false;
            for (i64 i = 0; i < done; ++i) before[i] = frequency_[i];
            for (i64 i = 0; i < done; ++i)  // block j of a block with the frequencies f + done i has those of i = j mod R
                for (i64 j = 0; j < stage.radix; ++j) frequency_[i * stage.radix + j] = before[i] + done * j;
            left = stage.part;
            done *= stage.radix;
        }
        return pairs_.allocate(count_ ? 4 * stages_[count_ - 1].radix : 1);
    }

    void forward(T *x) { walk<false>(x, 0); }
    void inverse(T *x) { walk<true>(x, 0); }

    // The frequency that the forward transform leaves at a place.
    i64 frequency(i64 place) const { return frequency_[place]; }

  private:
    static constexpr i64 kUnit = 2 * kWidth<T>;
    static constexpr i64 kClose = (1 << 14) / i64(kUnit * sizeof(T));  // length of a block that stays in the first cache

    struct Stage {
        i64 radix, part, blocks;  // blocks of length radix * part
        Array<T> twiddles;        // (part, radix - 1, 2): w^{pj}
        Array<T> table;           // (radix, 2): cos and sin of 2 pi i / radix

        bool fill() {
            const double turn = 6.283185307179586476925286766559;
            if (!twiddles.allocate(part * (radix - 1) * 2) || !table.allocate(radix * 2)) return false;
            for (i64 p = 0; p < part; ++p)
                for (i64 j = 1; j < radix; ++j) {
                    const double angle = turn * double(p * j % (radix * part)) / double(radix * part);
                    twiddles[(p * (radix - 1) + j - 1) * 2] = T(std::cos(angle));
                    twiddles[(p * (radix - 1) + j - 1) * 2 + 1] = T(-std::sin(angle));
                }
            for (i64 i = 0; i < radix; ++i) {
                table[2 * i] = T(std::cos(turn * double(i) / double(radix)));
                table[2 * i + 1] = T(std::sin(turn * double(i) / double(radix)));
            }
            return true;
        }
    };

    // The largest prime comes last, where its blocks lie close together and have no twiddles.
    static i64 next_radix(i64 left) {
        if (left % 8 == 0 && left != 16) return 8;
        if (left % 4 == 0) return 4;
        for (i64 radix = 2;; ++radix)
            if (left % radix == 0) return radix;
    }

    // Large blocks are finished one after the other, so that they stay in cache; small ones stage by stage.
    template <bool kInverse> void walk(T *x, i64 first) {
        if (first == count_) return;
        const Stage &stage = stages_[first];
        if (stage.radix * stage.part > kClose) {
            if (!kInverse) run_stage<kInverse>(x, stage, 1);
            for (i64 j = 0; j < stage.radix; ++j) walk<kInverse>(x + j * stage.part * kUnit, first + 1);
            if (kInverse) run_stage<kInverse>(x, stage, 1);
            return;
        }
        for (i64 k = 0; k < count_ - first; ++k) {
            const Stage &next = stages_[kInverse ? count_ - 1 - k : first + k];
            run_stage<kInverse>(x, next, next.blocks / stage.blocks);
        }
    }

    template <bool kInverse> void run_stage(T *x, const Stage &stage, i64 blocks) {
        switch (stage.radix) {
            case 2: return pass<2, kInverse>(x, stage, blocks);
            case 3: return pass<3, kInverse>(x, stage, blocks);
            case 4: return pass<4, kInverse>(x, stage, blocks);
            case 5: return pass<5, kInverse>(x, stage, blocks);
            case 7: return pass<7, kInverse>(x, stage, blocks);
            case 8: return pass<8, kInverse>(x, stage, blocks);
            default: return pass_prime<kInverse>(x, stage, blocks);
        }
    }

    template <bool kInverse> static SCORNN_INLINE Complex<T> get(const T *p) {
        return kInverse ? Complex<T>{load(p + kWidth<T>), load(p)} : load_complex(p);
    }
    template <bool kInverse> static SCORNN_INLINE void put(T *p, Complex<T> v) {
        store(p, kInverse ? v.im : v.re);
        store(p + kWidth<T>, kInverse ? v.re : v.im);
    }

    // A twiddle meets its number where this is read (inverse) or written, so that few of both are in registers at once.
    template <int R, bool kInverse> static void pass(T *x, const Stage &stage, i64 blocks) {
        if (stage.part > 1) {
            pass<R, kInverse, true>(x, stage, blocks);
        } else {
            pass<R, kInverse, false>(x, stage, blocks);
        }
    }

    template <int R, bool kInverse, bool kTurned> static void pass(T *x, const Stage &stage, i64 blocks) {
        const i64 part = kTurned ? stage.part : 1, stride = part * kUnit;
        const T *table = stage.table.data();
        for (i64 block = 0; block < blocks; ++block, x += R * stride)
            for (i64 p = 0; p < part; ++p) {
                const T *twiddle = stage.twiddles.data() + p * (R - 1) * 2;
                T *at = x + p * kUnit;
                Complex<T> a[R];
                for (int k = 0; k < R; ++k) {
                    a[k] = get<kInverse>(at + k * stride);
                    if (kInverse && kTurned && k > 0) a[k] = a[k] * broadcast_complex(twiddle + 2 * (k - 1));
                }
                Butterfly<T, R>::run(a, table);
                for (int k = 0; k < R; ++k) {
                    if (!kInverse && kTurned && k > 0) a[k] = a[k] * broadcast_complex(twiddle + 2 * (k - 1));
                    put<kInverse>(at + k * stride, a[k]);
                }
            }
    }

    // The same for a large prime: the pairs go through memory, and two frequencies are summed at a time.
    template <bool kInverse> void pass_prime(T *x, const Stage &stage, i64 blocks) {
        const i64 R = stage.radix, half = R / 2, stride = stage.part * kUnit;
        for (i64 block = 0; block < blocks; ++block, x += R * stride)
            for (i64 p = 0; p < stage.part; ++p) {
                T *at = x + p * kUnit;
                const T *twiddle = stage.twiddles.data() + p * (R - 1) * 2;
                const auto input = [&](i64 k) {
                    const Complex<T> a = get<kInverse>(at + k * stride);
                    return kInverse && stage.part > 1 ? a * broadcast_complex(twiddle + 2 * (k - 1)) : a;
                };
                const Complex<T> first = get<kInverse>(at);
                Complex<T> total = first;
                for (i64 k = 0; k < half; ++k) {
                    const Complex<T> low = input(k + 1), high = input(R - 1 - k);
                    store_complex(pairs_.at(4 * k), low + high);
                    store_complex(pairs_.at(4 * k + 2), low - high);
                    total = total + low + high;
                }
                put<kInverse>(at, total);
                const auto output = [&](i64 j, Complex<T> a) {
                    put<kInverse>(at + j * stride, !kInverse && stage.part > 1 ? a * broadcast_complex(twiddle + 2 * (j - 1)) : a);
                };
                i64 j = 1;
                for (; j + 1 <= half; j += 2) sum_pairs<2>(stage.table.data(), R, j, first, output);
                if (j <= half) sum_pairs<1>(stage.table.data(), R, j, first, output);
            }
    }

    // The frequencies j, j + 1, ... (kCount of them) and R - j, R - j - 1, ... from the pairs in memory.
    template <int kCount, class Output>
    SCORNN_INLINE void sum_pairs(const T *table, i64 R, i64 j, Complex<T> first, const Output &output) {
        Complex<T> even[kCount], odd[kCount];
        i64 place[kCount];
        for (int c = 0; c < kCount; ++c) even[c] = first, odd[c] = Complex<T>{}, place[c] = 0;
        for (i64 k = 0; k < R / 2; ++k) {
            const Complex<T> sum = load_complex(pairs_.at(4 * k)), difference = load_complex(pairs_.at(4 * k + 2));
            for (int c = 0; c < kCount; ++c) {
                place[c] += j + c;
                place[c] -= place[c] >= R ? R : 0;
                const Vec<T> cosine = broadcast<T>(table[2 * place[c]]), sine = broadcast<T>(table[2 * place[c] + 1]);
                even[c] = {even[c].re + cosine * sum.re, even[c].im + cosine * sum.im};
                odd[c] = {odd[c].re + sine * difference.re, odd[c].im + sine * difference.im};
            }
        }
        for (int c = 0; c < kCount; ++c) {
            output(j + c, {even[c].re + odd[c].im, even[c].im - odd[c].re});
            output(R - j - c, {even[c].re - odd[c].im, even[c].im + odd[c].re});
        }
    }

    Stage stages_[64];
    i64 count_ = 0;
    Array<i64> frequency_;
    Lanes<T> pairs_;
};

}  // namespace scornn::SCORNN_ISA
