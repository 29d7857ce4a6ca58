// tanh of a vector, within 2 units in the last place, and the logistic function.
//
// tanh, |x| < 0.625: x + x^3 R(x^2), a polynomial (float) or a rational function (double), with the coefficients of the
// Cephes library. Beyond: 1 - 2 / (exp(2|x|) + 1), where the error of exp is divided by more than 4.
#pragma once
#include "vec.h"

namespace scornn::SCORNN_ISA {

template <class T> struct Exp;

template <> struct Exp<float> {
    static constexpr float log2e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    static constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    static constexpr int mantissa = 23;
    static constexpr std::uint32_t bias = 127;
    static SCORNN_INLINE Vec<float> series(Vec<float> r) {  // exp(r) for |r| <= ln(2)/2
        Vec<float> p = 1.9875691500e-4f * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        return p * r * r + r + 1.0f;
    }
    static SCORNN_INLINE Vec<float> tanh_small(Vec<float> x) {
        Vec<float> z = x * x;
        Vec<float> p = -5.70498872745e-3f * z + 2.06390887954e-2f;
        p = p * z - 5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        p = p * z - 3.33332819422e-1f;
        return x + x * (z * p);
    }
};

template <> struct Exp<double> {
    static constexpr double log2e = 1.44269504088896340736, ln2_high = 6.93145751953125e-1,
                            ln2_low = 1.42860682030941723212e-6;
    static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr int mantissa = 52;
    static constexpr std::uint64_t bias = 1023;
    static SCORNN_INLINE Vec<double> series(Vec<double> r) {  // Taylor: the first term left out is under 4e-18
        Vec<double> p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        return p * r * r + r + 1.0;
    }
    static SCORNN_INLINE Vec<double> tanh_small(Vec<double> x) {
        Vec<double> z = x * x;
        Vec<double> p = -9.64399179425052238628e-1 * z - 9.92877231001918586564e1;
        p = p * z - 1.61468768441708447952e3;
        Vec<double> q = z + 1.12811678491632931402e2;
        q = q * z + 2.23548839060100448583e3;
        q = q * z + 4.84406305325125486048e3;
        return x + x * (z * (p / q));
    }
};

// exp(y) for |y| <= 80.
template <class T> SCORNN_INLINE Vec<T> exponential(Vec<T> y) {
    using V = Vec<T>;
    using E = Exp<T>;
    V shifted = y * E::log2e + E::round;
    V k = shifted - E::round;
    V r = y - k * E::ln2_high - k * E::ln2_low;
    V power = (V)((bits<T>(shifted) + E::bias) << E::mantissa);  // 2^k
    return E::series(r) * power;
}

template <class T> SCORNN_INLINE Vec<T> tanh(Vec<T> x) {
    using V = Vec<T>;
    V a = absolute<T>(x);
    V y = a + a;
    y = y > T(40) ? broadcast<T>(40) : y;  // tanh is 1 long before; a NaN stays
    V large = T(1) - T(2) / (exponential<T>(y) + T(1));
    large = (V)(bits<T>(large) | sign_bit<T>(x));
    return a < T(0.625) ? Exp<T>::tanh_small(x) : large;
}

// 1 / (1 + exp(-x)); below x = -80, where it is under 2e-35, it stays what it is there.
template <class T> SCORNN_INLINE Vec<T> sigmoid(Vec<T> x) {
    using V = Vec<T>;
    V a = absolute<T>(x);
    a = a > T(80) ? broadcast<T>(80) : a;
    V e = exponential<T>(-a);  // at most 1, so nothing overflows
    return (x < T(0) ? e : broadcast<T>(1)) / (T(1) + e);
}

}  // namespace scornn::SCORNN_ISA
