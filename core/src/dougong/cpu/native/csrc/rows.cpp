// Row-wise work: RMS norm with and without a residual, gated activation, argmax.
#include <algorithm>

#include "scratch.h"
#include "vec.h"

namespace dg {

extern "C" struct dg_norm_desc {
  const void* weight;  // [hidden], same dtype as x, or null for none
  int64_t hidden;
  float eps;
  int32_t dtype;
  int32_t weight_offset;        // multiply with 1 + weight
  int32_t round_before_weight;  // x * rsqrt(...) is rounded to dtype before the weight
  int32_t num_threads;
};

namespace {

// Below this many elements a fork costs more than the second core saves.
constexpr int64_t kSerialElements = 32768;

template <class T>
inline vf take(const T* p, int64_t left) {
  return left >= W ? load(p) : load_n(p, int(left));
}
template <class T>
inline void put(T* p, vf v, int64_t left) {
  if (left >= W)
    store(p, v);
  else
    store_n(p, v, int(left));
}

// One vector of the row that is normed; with a residual, of its sum with it, which is kept there.
template <class T>
inline vf summand(const T* x, T* residual, int64_t i, int64_t left) {
  vf v = take(x + i, left);
  if (residual) {
    v = round_to<T>(add(v, take(residual + i, left)));
    put(residual + i, v, left);
  }
  return v;
}

template <class T>
void norm_row(const dg_norm_desc& d, const T* x, T* residual, T* out) {
  vf sums[4] = {zero(), zero(), zero(), zero()};  // chains that do not wait for one another
  int64_t i = 0;
  for (; i + 4 * W <= d.hidden; i += 4 * W)
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
      const vf v = summand(x, residual, i + c * W, W);
      sums[c] = fma(v, v, sums[c]);
    }
  for (; i < d.hidden; i += W) {
    const vf v = summand(x, residual, i, d.hidden - i);
    sums[0] = fma(v, v, sums[0]);
  }
  const vf sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
  const vf scale = splat(1.0f / std::sqrt(reduce_add(sum) / float(d.hidden) + d.eps));
  const T* from = residual ? residual : x;
  const T* weight = static_cast<const T*>(d.weight);
  for (i = 0; i < d.hidden; i += W) {
    const int64_t left = d.hidden - i;
    vf v = mul(take(from + i, left), scale);
    if (weight) {
      vf w = take(weight + i, left);
      if (d.weight_offset) w = add(w, splat(1.0f));
      v = mul(d.round_before_weight ? round_to<T>(v) : v, w);
    }
    put(out + i, v, left);
  }
}

template <class T>
void norm(const dg_norm_desc& d, const T* x, int64_t ldx, T* residual, int64_t ldr, int64_t m,
          T* out, int64_t ldo) {
  const int threads =
      m * d.hidden < kSerialElements ? 1 : int(std::min<int64_t>(d.num_threads, m));
  run_threads(threads, [&](int t, int n) {
    for (int64_t r = share_begin(m, t, n); r < share_begin(m, t + 1, n); r++)
      norm_row<T>(d, x + r * ldx, residual ? residual + r * ldr : nullptr, out + r * ldo);
  });
}

int64_t argmax_row(const float* x, int64_t n) {
  constexpr int64_t kBlock = 16 * W;  // searched again only where it holds a new largest element
  float top = -INFINITY;
  int64_t where = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    vf best = splat(-INFINITY), difference = zero();
    int64_t i = begin;
    for (; i + W <= end; i += W) {
      const vf v = load(x + i);
      best = max(best, v);
      difference = add(difference, sub(v, v));  // NaN from NaN and from infinities
    }
    const float spread = reduce_add(difference);
    bool unclear = spread != spread;
    float here = reduce_max(best);
    for (; i < end; i++) {
      unclear |= x[i] != x[i];
      here = std::max(here, x[i]);
    }
    if (unclear)
      for (i = begin; i < end; i++)
        if (x[i] != x[i]) return i;
    if (!(here > top)) continue;
    top = here;
    for (where = begin; x[where] != top;) where++;
  }
  return where;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

// residual null: out = norm(x). Otherwise residual += x, rounded, and out = norm(residual).
void dg_rms_norm(const dg_norm_desc* d, const void* x, int64_t ldx, void* residual, int64_t ldr,
                 int64_t m, void* out, int64_t ldo) {
  if (d->dtype == kBFloat16)
    norm(*d, (const bf16*)x, ldx, (bf16*)residual, ldr, m, (bf16*)out, ldo);
  else
    norm(*d, (const float*)x, ldx, (float*)residual, ldr, m, (float*)out, ldo);
}

void dg_argmax_rows(const float* x, int64_t ldx, int64_t m, int64_t n, int64_t* out,
                    int32_t num_threads) {
  const int threads = m * n < 4 * kSerialElements ? 1 : int(std::min<int64_t>(num_threads, m));
  run_threads(threads, [&](int t, int count) {
    for (int64_t r = share_begin(m, t, count); r < share_begin(m, t + 1, count); r++)
      out[r] = argmax_row(x + r * ldx, n);
  });
}

void dg_exp(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += W) put(out + i, exp(take(x + i, n - i)), n - i);
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace dg
