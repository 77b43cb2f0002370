// The one inner loop: C[r][j] (+)= sum over k of X[r][k] * W[j][k], with W in panels of 16 columns.
//
// Packed layouts: bfloat16 [N/16][ceil(K/2)][16][2], float32 [N/16][K][16]; N and K padded with
// zeros. Every C element is one chain of fused multiply-adds in the order of k, whatever the
// number of rows or panels in the register block: that is what makes a row's result independent of
// the batch. `accumulate` continues the chain from C.
#pragma once

#include "vec.h"

namespace dg {

constexpr int kPanel = 16;
constexpr int kMaxRows = 6;
constexpr int kMaxPanels = 4;
constexpr int kVecs = kPanel / W;

inline int64_t packed_depth(float, int64_t k) { return k; }
inline int64_t packed_depth(bf16, int64_t k) { return (k + 1) / 2 * 2; }

inline uint32_t load_pair(const bf16* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

#if defined(__AVX512BF16__)
inline vf dot_pair(vf acc, uint32_t x, const bf16* w) {
  return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(int(x)), (__m512bh)_mm512_loadu_si512(w));
}
#elif defined(__AVX512F__)
inline vf dot_pair(vf acc, uint32_t x, const bf16* w) {
  const __m512i pair = _mm512_loadu_si512(w);
  const __m512i high = _mm512_set1_epi32(int(0xffff0000u));
  const vf x0 = _mm512_castsi512_ps(_mm512_set1_epi32(int(x << 16)));
  const vf x1 = _mm512_castsi512_ps(_mm512_set1_epi32(int(x & 0xffff0000u)));
  acc = fma(x0, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)), acc);
  return fma(x1, _mm512_castsi512_ps(_mm512_and_si512(pair, high)), acc);
}
#else
inline vf dot_pair(vf acc, uint32_t x, const bf16* w) {
  const __m256i pair = _mm256_loadu_si256((const __m256i*)w);
  const __m256i high = _mm256_set1_epi32(int(0xffff0000u));
  const vf x0 = _mm256_castsi256_ps(_mm256_set1_epi32(int(x << 16)));
  const vf x1 = _mm256_castsi256_ps(_mm256_set1_epi32(int(x & 0xffff0000u)));
  acc = fma(x0, _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)), acc);
  return fma(x1, _mm256_castsi256_ps(_mm256_and_si256(pair, high)), acc);
}
#endif

// Memory to bring into the second-level cache while a pass computes: `step` bytes per iteration.
struct Ahead {
  const char* at = nullptr;
  int64_t step = 0;

  void fetch() {
    for (const char* end = at + step; at != end; at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
};

template <int MR, int NP>
inline void micro(const bf16* x, int64_t ldx, const bf16* w, int64_t panel_stride, int64_t k,
                  float* c, int64_t ldc, bool accumulate, Ahead& ahead) {
  vf acc[MR][NP * kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP * kVecs; j++) acc[r][j] = accumulate ? load(c + r * ldc + j * W) : zero();
  const int64_t pairs = k / 2;
  for (int64_t i = 0; i < pairs; i++) {
    const bf16* wi = w + i * 2 * kPanel;
    ahead.fetch();
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++) {
      const uint32_t xr = load_pair(x + r * ldx + 2 * i);
#pragma GCC unroll 8
      for (int j = 0; j < NP * kVecs; j++)
        acc[r][j] = dot_pair(acc[r][j], xr, wi + (j / kVecs) * panel_stride + (j % kVecs) * 2 * W);
    }
  }
  if (k % 2) {
    const bf16* wi = w + pairs * 2 * kPanel;
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
      for (int j = 0; j < NP * kVecs; j++)
        acc[r][j] = dot_pair(acc[r][j], x[r * ldx + k - 1].bits,
                             wi + (j / kVecs) * panel_stride + (j % kVecs) * 2 * W);
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP * kVecs; j++) store(c + r * ldc + j * W, acc[r][j]);
}

template <int MR, int NP>
inline void micro(const float* x, int64_t ldx, const float* w, int64_t panel_stride, int64_t k,
                  float* c, int64_t ldc, bool accumulate, Ahead& ahead) {
  vf acc[MR][NP * kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP * kVecs; j++) acc[r][j] = accumulate ? load(c + r * ldc + j * W) : zero();
  for (int64_t i = 0; i < k; i++) {
    vf b[NP * kVecs];
    ahead.fetch();
#pragma GCC unroll 8
    for (int j = 0; j < NP * kVecs; j++)
      b[j] = load(w + (j / kVecs) * panel_stride + i * kPanel + (j % kVecs) * W);
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++) {
      const vf xr = splat(x[r * ldx + i]);
#pragma GCC unroll 8
      for (int j = 0; j < NP * kVecs; j++) acc[r][j] = fma(xr, b[j], acc[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP * kVecs; j++) store(c + r * ldc + j * W, acc[r][j]);
}

template <class T>
using MicroFn = void (*)(const T*, int64_t, const T*, int64_t, int64_t, float*, int64_t, bool,
                         Ahead&);

// Registers bound how many panels a block of several rows may hold: 32 with AVX-512, 16 with AVX2.
constexpr int panels_for(int rows) { return W == 16 || rows == 1 ? kMaxPanels : rows <= 3 ? 2 : 1; }

template <class T, int NP>
MicroFn<T> micro_for_rows(int rows) {
  switch (rows) {
    case 1: return micro<1, NP>;
    case 2: return micro<2, NP>;
    case 3: return micro<3, NP>;
    case 4: return micro<4, NP>;
    case 5: return micro<5, NP>;
    default: return micro<6, NP>;
  }
}

template <class T>
MicroFn<T> choose_micro(int rows, int panels) {
  switch (panels) {
    case 1: return micro_for_rows<T, 1>(rows);
    case 2: return micro_for_rows<T, 2>(rows);
    case 3: return micro_for_rows<T, 3>(rows);
    default: return micro_for_rows<T, 4>(rows);
  }
}

// C[rows][16 * panels] (+)= X[rows][k] . W for up to any number of rows and panels.
template <class T>
inline void gemm_rows(const T* x, int64_t ldx, int rows, const T* w, int64_t panel_stride,
                      int panels, int64_t k, float* c, int64_t ldc, bool accumulate, Ahead ahead = {}) {
  const int blocks = (rows + kMaxRows - 1) / kMaxRows;
  for (int b = 0, r = 0; b < blocks; b++) {
    const int count = (rows - r + (blocks - b) - 1) / (blocks - b);
    const int step = panels_for(count);
    for (int p = 0; p < panels; p += step) {
      const int wide = panels - p < step ? panels - p : step;
      choose_micro<T>(count, wide)(x + r * ldx, ldx, w + p * panel_stride, panel_stride, k,
                                   c + r * ldc + p * kPanel, ldc, accumulate, ahead);
    }
    r += count;
  }
}

}  // namespace dg
