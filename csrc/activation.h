// The activations and their gradients.
//
// forward(z, b) -> h.  backward(dh, h, b, db) -> dz, from the state h alone; db receives the gradient of the bias, by
// lane. A NaN goes forward through every one of them: comparisons are written so that it takes the branch that keeps it.
// Backward, a NaN state does what it does in the plain loop of PyTorch under autograd.
#pragma once
#include "scornn.h"
#include "tanh.h"

namespace scornn::SCORNN_ISA {

template <class T> struct Identity {
    using V = Vec<T>;
    static SCORNN_INLINE V forward(V z, V b) { return z + b; }
    static SCORNN_INLINE V backward(V dh, V, V, V &db) { return db = dh; }
};

template <class T> struct ReLU {
    using V = Vec<T>;
    static SCORNN_INLINE V forward(V z, V b) {
        z += b;
        return z <= T(0) ? V{} : z;
    }
    static SCORNN_INLINE V backward(V dh, V h, V, V &db) { return db = h <= T(0) ? V{} : dh; }
};

template <class T> struct LeakyReLU {
    using V = Vec<T>;
    static constexpr T slope = T(0.1);
    static SCORNN_INLINE V forward(V z, V b) {
        z += b;
        return z > T(0) ? z : slope * z;
    }
    static SCORNN_INLINE V backward(V dh, V h, V, V &db) { return db = h > T(0) ? dh : slope * dh; }
};

template <class T> struct Tanh {
    using V = Vec<T>;
    static SCORNN_INLINE V forward(V z, V b) { return tanh<T>(z + b); }
    static SCORNN_INLINE V backward(V dh, V h, V, V &db) { return db = dh * (T(1) - h * h); }
};

// h = sign(z) relu(|z| + b); where h is not 0, dh/dz = 1 and dh/db = sign(h). The sign of a NaN is 0.
template <class T> struct ModReLU {
    using V = Vec<T>;
    static SCORNN_INLINE V forward(V z, V b) {
        V r = absolute<T>(z) + b;
        V h = r <= T(0) ? V{} : (V)(bits<T>(r) | sign_bit<T>(z));
        return z == T(0) ? z * r : h;
    }
    static SCORNN_INLINE V backward(V dh, V h, V, V &db) {
        V dz = h == T(0) ? V{} : h == h ? dh : dh * T(0);
        db = (V)(bits<T>(dz) ^ sign_bit<T>(h));
        return dz;
    }
};

// A complex unit in two adjacent lanes, r = |z|, h = z g, g = relu(r + b) / (r + eps).
// Backward: |h| = r (r + b) / (r + eps), so r is the positive root of r^2 + (b - |h|) r - |h| eps = 0; with the unit
// vector u = z/r = h/|h| and c = <dh, u>,
//     dz = g dh + c r g'(r) u,   g'(r) = (eps - b) / (r + eps)^2,   db = c r / (r + eps).
template <class T> struct ComplexModReLU {
    using V = Vec<T>;
    static constexpr T eps = T(1e-5), root_of_eps = T(3.1622776601683794e-3);
    static SCORNN_INLINE V sum_pairs(V v) { return v + swap_pairs<T>(v); }
    // sqrt(x^2 + y^2), whose squares neither overflow nor underflow.
    static SCORNN_INLINE V length(V x, V y) {
        x = absolute<T>(x), y = absolute<T>(y);
        V scale = x > y ? x : y;
        scale = scale == T(0) ? broadcast<T>(1) : scale;
        x /= scale, y /= scale;
        return scale * square_root<T>(x * x + y * y);
    }
    static SCORNN_INLINE V forward(V z, V b) {
        V r = length(z, swap_pairs<T>(z));
        V a = r + b;
        return a <= T(0) ? V{} : z * (a / (r + eps));
    }
    static SCORNN_INLINE V backward(V dh, V h, V b, V &db) {
        V q = length(h, swap_pairs<T>(h));
        V p = q - b;
        V m = root_of_eps * square_root<T>(q);  // of the product eps q, which may underflow
        V d = length(p, T(2) * m);
        V r = p >= T(0) ? T(0.5) * (p + d) : T(2) * m * (m / (d - p));  // the root without cancellation
        V u = h / q;
        V c = sum_pairs(dh * u);
        V s = r + eps;
        V gain = b < T(0) ? q / r : (r + b) / s;  // the same number; each where it is exact
        V dz = gain * dh + c * (r / s) * ((eps - b) / s) * u;
        V zero{};
        db = q == T(0) ? zero : c * (r / s);
        return q == T(0) ? zero : dz;
    }
};

// Stands for an activation where a function takes one.
template <template <class> class Act> struct Name {};

// Calls run with the name of an activation; SCORNN_INVALID where there is none of this number.
template <class Run> int with_activation(std::int32_t cell, Run run) {
    switch (cell) {
        case SCORNN_IDENTITY: return run(Name<Identity>());
        case SCORNN_RELU: return run(Name<ReLU>());
        case SCORNN_LEAKY_RELU: return run(Name<LeakyReLU>());
        case SCORNN_TANH: return run(Name<Tanh>());
        case SCORNN_MODRELU: return run(Name<ModReLU>());
        case SCORNN_COMPLEX_MODRELU: return run(Name<ComplexModReLU>());
        default: return SCORNN_INVALID;
    }
}

}  // namespace scornn::SCORNN_ISA
