/* What the files of `scornn export --to c` are made of: each takes those that its network calls. */

/* y = W x + b, W (rows, columns); b may be 0. Four sums at once: one alone waits for each addition. */
static void multiply(int rows, int columns, const float *W, const float *b, const float *x, float *y) {
    int i, j;
    for (i = 0; i < rows; ++i) {
        const float *row = W + i * columns;
        float s0 = b ? b[i] : 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
        for (j = 0; j + 4 <= columns; j += 4) {
            s0 += row[j] * x[j];
            s1 += row[j + 1] * x[j + 1];
            s2 += row[j + 2] * x[j + 2];
            s3 += row[j + 3] * x[j + 3];
        }
        for (; j < columns; ++j) s0 += row[j] * x[j];
        y[i] = (s0 + s1) + (s2 + s3);
    }
}

/* y = W x + b, W (rows, columns) in 8 bits with a scale for each row; b may be 0. */
static void multiply8(int rows, int columns, const signed char *W, const float *scale, const float *b,
                      const float *x, float *y) {
    int i, j;
    for (i = 0; i < rows; ++i) {
        const signed char *row = W + i * columns;
        float sum = 0.0f;
        for (j = 0; j < columns; ++j) sum += (float)row[j] * x[j];
        y[i] = scale[i] * sum + (b ? b[i] : 0.0f);
    }
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static float gelu_of(float x) { return 0.5f * x * (1.0f + erff(0.70710678f * x)); }

/* sign(z) relu(|z| + b), z = u + v */
static void modrelu(int n, const float *b, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; ++i) {
        const float z = u[i] + v[i], size = (z < 0.0f ? -z : z) + (b ? b[i] : 0.0f);
        h[i] = size > 0.0f && z != 0.0f ? (z < 0.0f ? -size : size) : 0.0f;
    }
}

/* z relu(|z| + b) / (|z| + epsilon) of pairs z = u + v */
static void complex_modrelu(int n, const float *b, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; i += 2) {
        const float re = u[i] + v[i], im = u[i + 1] + v[i + 1], r = sqrtf(re * re + im * im);
        const float size = r + (b ? b[i] : 0.0f), gain = size > 0.0f ? size / (r + 1.0e-05f) : 0.0f;
        h[i] = gain * re;
        h[i + 1] = gain * im;
    }
}

static void identity(int n, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; ++i) {
        const float z = u[i] + v[i];
        h[i] = z;
    }
}

static void relu(int n, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; ++i) {
        const float z = u[i] + v[i];
        h[i] = z > 0.0f ? z : 0.0f;
    }
}

static void leaky_relu(int n, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; ++i) {
        const float z = u[i] + v[i];
        h[i] = z > 0.0f ? z : 1.0e-01f * z;
    }
}

static void tanh_of(int n, const float *u, const float *v, float *h) {
    int i;
    for (i = 0; i < n; ++i) {
        const float z = u[i] + v[i];
        h[i] = tanhf(z);
    }
}

static void lstm(int n, const float *u, const float *v, float *c, float *h) {
    int k;
    for (k = 0; k < n; ++k) {
        const float i = sigmoid(u[k] + v[k]), f = sigmoid(u[n + k] + v[n + k]);
        const float g = tanhf(u[2 * n + k] + v[2 * n + k]), o = sigmoid(u[3 * n + k] + v[3 * n + k]);
        c[k] = f * c[k] + i * g;
        h[k] = o * tanhf(c[k]);
    }
}

static void gru(int n, const float *b, const float *u, const float *v, float *h) {
    int k;
    for (k = 0; k < n; ++k) {
        const float r = sigmoid(u[k] + v[k] + b[k]), g = sigmoid(u[n + k] + v[n + k] + b[n + k]);
        const float c = tanhf(r * (v[2 * n + k] + b[3 * n + k]) + u[2 * n + k] + b[2 * n + k]);
        h[k] = g * h[k] + (1.0f - g) * c;
    }
}

static void goru(int n, const float *b, const float *u, const float *v, float *h) {
    int k;
    for (k = 0; k < n; ++k) {
        const float r = sigmoid(u[k] + v[k] + b[k]), g = sigmoid(u[n + k] + v[n + k] + b[n + k]);
        const float a = r * v[2 * n + k] + u[2 * n + k], size = (a < 0.0f ? -a : a) + b[2 * n + k];
        const float c = size > 0.0f && a != 0.0f ? (a < 0.0f ? -size : size) : 0.0f;
        h[k] = g * h[k] + (1.0f - g) * c;
    }
}

/* h = R h + z: R turns pairs of units. Its numbers come in two parts, whose sum has twice the digits: a rounded
 * angle would drift away over many steps. */
static void turn(int n, const float *R, const float *z, float *h) {
    int i;
    for (i = 0; i < n; i += 2) {
        const float a = h[i], b = i + 1 < n ? h[i + 1] : 0.0f;
        const float *r = R + i;
        h[i] = (r[2 * n] * a + r[3 * n] * b + z[i]) + (r[0] * a + r[n] * b);
        ++r;
        if (i + 1 < n) h[i + 1] = (r[2 * n] * b + r[3 * n] * a + z[i + 1]) + (r[0] * b + r[n] * a);
    }
}

static void norm(int n, const float *weight, const float *bias, float epsilon, const float *x, float *y) {
    int i;
    float mean = 0.0f, square = 0.0f, scale;
    for (i = 0; i < n; ++i) mean += x[i];
    mean /= (float)n;
    for (i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
    scale = 1.0f / sqrtf(square / (float)n + epsilon);
    for (i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/* gelu(a) sigmoid(g), (a, g) = u + v */
static void gate(int n, const float *u, const float *v, float *y) {
    int i;
    for (i = 0; i < n; ++i) y[i] = gelu_of(u[i] + v[i]) * sigmoid(u[n + i] + v[n + i]);
}

static void add(int n, const float *x, float *y) {
    int i;
    for (i = 0; i < n; ++i) y[i] += x[i];
}

static void pick(int n, int stride, const float *x, float *y) {
    int i;
    for (i = 0; i < n; ++i) y[i] = x[i * stride];
}

static void mean(int n, const float *x, float *sum, float *count, float *y) {
    int i;
    *count += 1.0f;
    for (i = 0; i < n; ++i) {
        sum[i] += x[i];
        y[i] = sum[i] / *count;
    }
}

static void gelu(int n, float *x) {
    int i;
    for (i = 0; i < n; ++i) x[i] = gelu_of(x[i]);
}
