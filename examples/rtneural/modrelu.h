// A scoRNN as a layer in the style of RTNeural's static models: h = modrelu(W h + U x), all sizes known to the compiler.
//
// The weights of a layer of type "modrelu" in the JSON of to_json.py are {U, W, b}, the matrices (inputs, outputs):
//     layer.setWVals(weights[0]); layer.setUVals(weights[1]); layer.setBVals(weights[2]);
// It allocates nothing, and nothing in it depends on another library.
#pragma once

template <typename T, int in_size, int out_size> class ModReLULayer {
  public:
    static constexpr int in_size_ = in_size, out_size_ = out_size;

    // Matrices with rows and columns in brackets: vectors, arrays, or a JSON of numbers.
    template <typename Matrix> void setWVals(const Matrix &kernel) { copy(kernel, W); }
    template <typename Matrix> void setUVals(const Matrix &recurrent) { copy(recurrent, U); }
    template <typename Vector> void setBVals(const Vector &bias) {
        for (int i = 0; i < out_size; ++i) b[i] = static_cast<T>(bias[i]);
    }

    void reset() {
        for (T &out : outs) out = T(0);
    }

    inline void forward(const T *input) noexcept {
        T sum[out_size] = {};
        for (int j = 0; j < in_size; ++j)
            for (int i = 0; i < out_size; ++i) sum[i] += W[j][i] * input[j];
        for (int j = 0; j < out_size; ++j)
            for (int i = 0; i < out_size; ++i) sum[i] += U[j][i] * outs[j];
        for (int i = 0; i < out_size; ++i) {
            const T size = (sum[i] < T(0) ? -sum[i] : sum[i]) + b[i];
            outs[i] = size > T(0) && sum[i] != T(0) ? (sum[i] < T(0) ? -size : size) : T(0);
        }
    }

    alignas(64) T outs[out_size] = {};

  private:
    template <typename Matrix, int rows> static void copy(const Matrix &from, T (&to)[rows][out_size]) {
        for (int j = 0; j < rows; ++j)
            for (int i = 0; i < out_size; ++i) to[j][i] = static_cast<T>(from[j][i]);
    }

    alignas(64) T W[in_size][out_size] = {};
    alignas(64) T U[out_size][out_size] = {};
    alignas(64) T b[out_size] = {};
};
