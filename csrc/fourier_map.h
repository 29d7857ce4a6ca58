// W = D3 R2 F^-1 D2 P R1 F D1 of the restricted-capacity uRNN, on states in lanes: D_j are diagonal with numbers of
// modulus 1, R_j h = h - 2 (h.v) conj(v) / |v|^2 with h.v unconjugated, F is the unitary Fourier transform, P a
// permutation. R1 and P work on the frequencies in the order in which the transform leaves them.
#pragma once
#include "fft.h"
#include "scornn.h"

namespace scornn::SCORNN_ISA {

template <class T> class FourierMap {
  public:
    static constexpr int kParts = 2;

    // False where memory is short.
    bool prepare(const scornn_map &map, i64 n, bool gradients) {
        n_ = n, gradients_ = gradients;
        Array<i64> place;  // of a frequency
        if (!fourier_.prepare(n) || !place.allocate(n) || !from_.allocate(n) || !X_.allocate(2 * n) ||
            !Y_.allocate(2 * n))
            return false;
        for (Array<T> *table : {&d1_, &d2_, &d3_, &v1_, &v1_from_, &v2_})
            if (!table->allocate(2 * n)) return false;
        if (gradients && (!P_.allocate(2 * n) || !H_.allocate(2 * n) || !theta_.allocate(3 * n) || !dv_.allocate(4 * n) || !turn_.allocate(2)))
            return false;
        const T *phases = static_cast<const T *>(map.factor[0]), *v = static_cast<const T *>(map.factor[1]);
        const T scale = T(1 / std::sqrt(double(n)));
        double length[2] = {0, 0};
        for (i64 i = 0; i < 2 * n; ++i) {
            length[0] += double(v[i]) * double(v[i]);
            length[1] += double(v[2 * n + i]) * double(v[2 * n + i]);
        }
        length1_ = T(length[0]), length2_ = T(length[1]);
        for (i64 i = 0; i < n; ++i) place[fourier_.frequency(i)] = i;
        for (i64 i = 0; i < n; ++i) {
            const i64 f = fourier_.frequency(i), from = map.index[f];
            from_[i] = place[from];
            for (int part = 0; part < 2; ++part) {
                d1_[2 * i + part] = scale * phases[2 * i + part];
                d2_[2 * i + part] = scale * phases[2 * (n + f) + part];
                d3_[2 * i + part] = phases[2 * (2 * n + i) + part];
                v1_[2 * i + part] = v[2 * f + part];
                v1_from_[2 * i + part] = v[2 * from + part];
                v2_[2 * i + part] = v[2 * (n + i) + part];
            }
        }
        return true;
    }

    // Makes W h, of which result() tells the units. Keeps what the backward pass needs: X = F D1 h, P = D2 P R1 X,
    // Y = F^-1 P, and the products of X and Y with v.
    void forward(const T *h) {
        for (i64 i = 0; i < n_; ++i) store_complex(X_.at(2 * i), get(h, i) * pair(d1_, i));
        fourier_.forward(X_.at(0));
        s1_ = product(X_.at(0), v1_);
        const Complex<T> k1 = scaled(s1_, T(2) / length1_);
        for (i64 i = 0; i < n_; ++i) {
            const Complex<T> a = reflected(X_.at(2 * from_[i]), k1, v1_from_, i) * pair(d2_, i);
            store_complex(Y_.at(2 * i), a);
            if (gradients_) store_complex(P_.at(2 * i), a);
        }
        fourier_.inverse(Y_.at(0));
        s2_ = product(Y_.at(0), v2_);
        q_ = Complex<T>{};
    }

    // The units [i, end) of W h.
    void result(i64 i, i64 end, T *z) const {
        const Complex<T> k2 = scaled(s2_, T(2) / length2_);
        for (; i < end; ++i, z += kUnit) store_complex(z, reflected(Y_.at(2 * i), k2, v2_, i) * pair(d3_, i));
    }

    // Before backward, for all units in turn: g = dL/dz of z = result(), with the gradient of D3, becomes what stands
    // before D3.
    void enter(i64 i, i64 end, const T *z, T *g) {
        Complex<T> q = q_;
        for (; i < end; ++i, z += kUnit, g += kUnit) {
            const Complex<T> e = load_complex(g), d = times_conj(e, pair(d3_, i));
            theta_.add(2 * n_ + i, times_conj(e, load_complex(z)).im);  // d(a e^{it}) = i a e^{it} dt
            q = q + d * pair(v2_, i);
            store_complex(g, d);
        }
        q_ = q;
    }

    // From what enter() left in g to dL/dh there, for the h of the last call of forward, with the factors' gradients.
    void backward(const T *h, T *g) {
        reflect(g, Y_.at(0), s2_, q_, v2_, T(2) / length2_, 2 * n_);
        turn_.add(1, times_conj(s2_, q_).re);
        fourier_.forward(g);
        Complex<T> q{};
        for (i64 i = 0; i < n_; ++i) {
            const Complex<T> e = get(g, i), d = times_conj(e, pair(d2_, i));
            theta_.add(n_ + i, times_conj(e, get(P_.at(0), i)).im);
            q = q + d * pair(v1_from_, i);
            store_complex(H_.at(2 * from_[i]), d);
        }
        reflect(H_.at(0), X_.at(0), s1_, q, v1_, T(2) / length1_, 0);
        turn_.add(0, times_conj(s1_, q).re);
        fourier_.inverse(H_.at(0));
        for (i64 i = 0; i < n_; ++i) {
            const Complex<T> d = times_conj(get(H_.at(0), i), pair(d1_, i));
            theta_.add(i, times_conj(d, get(h, i)).im);
            store_complex(g + i * kUnit, d);
        }
    }

    void flush() {
        theta_.flush();
        dv_.flush();
        turn_.flush();
    }

    // The sums: of the angles (3, n), and of the vectors (2, n, 2).
    void write(void *const (&factor)[3]) {
        T *theta = static_cast<T *>(factor[0]), *dv = static_cast<T *>(factor[1]);
        for (i64 i = 0; i < n_; ++i) {
            const i64 f = fourier_.frequency(i);
            if (theta) {
                theta[i] = *theta_.total(i);
                theta[n_ + f] = *theta_.total(n_ + i);
                theta[2 * n_ + i] = *theta_.total(2 * n_ + i);
            }
            for (int part = 0; dv && part < 2; ++part) {
                const T turn1 = T(4) * *turn_.total(0) / (length1_ * length1_);
                const T turn2 = T(4) * *turn_.total(1) / (length2_ * length2_);
                dv[2 * f + part] = turn1 * v1_[2 * i + part] - T(2) / length1_ * *dv_.total(2 * i + part);
                dv[2 * (n_ + i) + part] =
                    turn2 * v2_[2 * i + part] - T(2) / length2_ * *dv_.total(2 * n_ + 2 * i + part);
            }
        }
    }

  private:
    static constexpr i64 kUnit = 2 * kWidth<T>;

    static SCORNN_INLINE Complex<T> get(const T *h, i64 i) { return load_complex(h + i * kUnit); }
    static SCORNN_INLINE Complex<T> pair(const Array<T> &table, i64 i) { return broadcast_complex(table.data() + 2 * i); }
    static SCORNN_INLINE Complex<T> scaled(Complex<T> a, T factor) { return {factor * a.re, factor * a.im}; }
    static SCORNN_INLINE Complex<T> reflected(const T *a, Complex<T> k, const Array<T> &v, i64 i) {
        return load_complex(a) - times_conj(k, pair(v, i));
    }

    // h.v for each lane, by four chains that wait less for one another.
    Complex<T> product(const T *h, const Array<T> &v) const {
        Complex<T> sum[4] = {};
        i64 i = 0;
        for (; i + 4 <= n_; i += 4)
            for (int k = 0; k < 4; ++k) sum[k] = sum[k] + get(h, i + k) * pair(v, i + k);
        for (; i < n_; ++i) sum[0] = sum[0] + get(h, i) * pair(v, i);
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    // g <- R g where g.v = q, and the terms of v's gradient at the state a with a.v = s.
    void reflect(T *g, const T *a, Complex<T> s, Complex<T> q, const Array<T> &v, T factor, i64 first) {
        const Complex<T> k = scaled(q, factor);
        for (i64 i = 0; i < n_; ++i) {
            const Complex<T> d = get(g, i), term = times_conj(q, get(a, i)) + times_conj(s, d);
            dv_.add(first + 2 * i, term.re);
            dv_.add(first + 2 * i + 1, term.im);
            store_complex(g + i * kUnit, d - times_conj(k, pair(v, i)));
        }
    }

    i64 n_ = 0;
    T length1_ = 0, length2_ = 0;
    Fourier<T> fourier_;
    Array<i64> from_;  // the place that the permutation fetches a frequency from
    Array<T> d1_, d2_, d3_, v1_, v1_from_, v2_;
    Lanes<T> X_, P_, Y_, H_;
    Complex<T> s1_, s2_, q_;  // X.v1, Y.v2, and the sum that enter and backward are making
    bool gradients_ = false;
    LaneSums<T> theta_, dv_, turn_;
};

}  // namespace scornn::SCORNN_ISA
