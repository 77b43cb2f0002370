// Packed linear layers: y = x W^T + b, and the gated pair act(x G^T) * (x U^T).
#include <algorithm>

#include "gemm.h"
#include "scratch.h"

namespace dg {
namespace {

enum Activation : int32_t { kNone = 0, kSilu = 1, kGeluTanh = 2 };

}  // namespace

extern "C" struct dg_linear_desc {
  const void* weight;  // packed
  const float* bias;   // one per packed column (padded), or null
  int64_t n;           // outputs: columns, or half of the columns of a gated pair
  int64_t k;
  int32_t dtype;      // of x and weight
  int32_t out_dtype;  // a gated pair: the same as dtype
  int32_t activation;
  int32_t num_threads;
};

namespace {

// Keeps the weights that one pass over the rows uses within half of a 1 MiB second-level cache.
constexpr int64_t kDepthBlock = 2048;
constexpr int kRowBlock = 120;
constexpr int kFewRows = 48;

template <class T>
void pack_panel(const T* w, int64_t ldw, int64_t n, int64_t k, int64_t panel, T* out) {
  const int64_t depth = packed_depth(T{}, k);
  const int64_t unit = sizeof(T) == 2 ? 2 : 1;
  for (int64_t j = 0; j < kPanel; j++) {
    const int64_t row = panel * kPanel + j;
    for (int64_t i = 0; i < depth; i++) {
      const bool inside = row < n && i < k;
      out[(i / unit) * unit * kPanel + j * unit + i % unit] = inside ? w[row * ldw + i] : T{};
    }
  }
}

// The tanh form of gelu, v/2 (1 + tanh u), is v times the logistic function of 2u.
inline vf activate(vf v, int activation) {
  vf u = v;
  if (activation == kGeluTanh)
    u = mul(mul(splat(2.0f * 0.7978845608f), v), fma(mul(v, v), splat(0.044715f), splat(1.0f)));
  return div(v, add(splat(1.0f), exp(sub(zero(), u))));
}

template <class O>
inline void put(O* out, vf v, int64_t left) {
  if (left >= W)
    store(out, v);
  else
    store_n(out, v, int(left));
}

// Panels come as they are: gate and up panels alternate where there is an activation.
template <class T, class O>
void finish(const dg_linear_desc& d, const float* c, int64_t ldc, int rows, int64_t panel,
            int panels, O* out, int64_t ldo) {
  const bool gated = d.activation != kNone;
  const int step = gated ? 2 : 1;
  for (int r = 0; r < rows; r++) {
    for (int p = 0; p < panels; p += step) {
      for (int v = 0; v < kPanel; v += W) {
        const int64_t col = (panel + p) / step * kPanel + v;
        if (col >= d.n) continue;
        vf y = load(c + r * ldc + p * kPanel + v);
        if (d.bias) y = add(y, load(d.bias + (panel + p) * kPanel + v));
        if (gated) {
          vf up = load(c + r * ldc + (p + 1) * kPanel + v);
          if (d.bias) up = add(up, load(d.bias + (panel + p + 1) * kPanel + v));
          y = mul(round_to<T>(activate(round_to<T>(y), d.activation)), round_to<T>(up));
        }
        put(out + r * ldo + col, y, d.n - col);
      }
    }
  }
}

// The panels after these, spread over the iterations of all passes of this group. At the end of the
// weight it points beyond, which a prefetch may.
template <class T>
Ahead next_group(const T* group, int64_t panel_size, int rows) {
  const int64_t lines = kMaxPanels * kPanel * sizeof(T) * (sizeof(T) == 2 ? 2 : 1) / 64;
  const int64_t passes = (rows + kMaxRows - 1) / kMaxRows;
  const int64_t each = (lines + passes - 1) / passes;
  return {reinterpret_cast<const char*>(group + kMaxPanels * panel_size), each * 64};
}

// All outputs of rows [0, rows) and panels [first, last).
template <class T, class O>
void linear_block(const dg_linear_desc& d, const T* x, int64_t ldx, int rows, int64_t first,
                  int64_t last, O* out, int64_t ldo) {
  static thread_local Scratch scratch;
  const int64_t depth = packed_depth(T{}, d.k);
  const int64_t panel_size = depth * kPanel;
  const T* weight = static_cast<const T*>(d.weight);
  constexpr int64_t ldc = kMaxPanels * kPanel;
  float* c = reinterpret_cast<float*>(scratch.reserve(size_t(rows) * ldc * sizeof(float)));
  for (int64_t p = first; p < last; p += kMaxPanels) {
    const int panels = int(std::min<int64_t>(kMaxPanels, last - p));
    for (int64_t k = 0; k < d.k; k += kDepthBlock) {
      const int64_t count = std::min(kDepthBlock, d.k - k);
      gemm_rows<T>(x + k, ldx, rows, weight + p * panel_size + k * kPanel, panel_size, panels,
                   count, c, ldc, k > 0, next_group(weight + p * panel_size, panel_size, rows));
    }
    finish<T, O>(d, c, ldc, rows, p, panels, out, ldo);
  }
}

template <class T, class O>
void linear(const dg_linear_desc& d, const T* x, int64_t ldx, int64_t m, O* out, int64_t ldo) {
  const int64_t pair = d.activation != kNone ? 2 : 1;
  const int64_t panels = (d.n + kPanel - 1) / kPanel * pair;
  if (m <= kFewRows) {
    const int64_t work = panels * kPanel * d.k * (m + 2);
    const int threads = work < 100000 ? 1 : int(std::min<int64_t>(d.num_threads, panels / pair));
    run_threads(threads, [&](int t, int n) {
      const int64_t first = share_begin(panels / pair, t, n) * pair;
      const int64_t last = share_begin(panels / pair, t + 1, n) * pair;
      linear_block<T, O>(d, x, ldx, int(m), first, last, out, ldo);
    });
    return;
  }
  const int64_t groups = (panels + kMaxPanels - 1) / kMaxPanels;
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock;
  for_each_unit(d.num_threads, groups * row_blocks, [&](int64_t u) {
    const int64_t first = u / row_blocks * kMaxPanels;
    const int64_t row = share_begin(m, int(u % row_blocks), int(row_blocks));
    const int64_t end = share_begin(m, int(u % row_blocks) + 1, int(row_blocks));
    linear_block<T, O>(d, x + row * ldx, ldx, int(end - row), first,
                       std::min(panels, first + kMaxPanels), out + row * ldo, ldo);
  });
}

template <class T>
void gather_row(const T* packed, int64_t k, int64_t row, int64_t col_count, T* out) {
  const int64_t depth = packed_depth(T{}, k);
  const T* panel = packed + row / kPanel * depth * kPanel;
  const int64_t unit = sizeof(T) == 2 ? 2 : 1;
  const int64_t j = row % kPanel;
  for (int64_t i = 0; i < col_count; i++)
    out[i] = panel[(i / unit) * unit * kPanel + j * unit + i % unit];
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

// weight [n, k] with row stride ldw -> packed; second, when given, is the up projection [n, k] whose
// panels alternate with those of weight.
void dg_pack_linear(const void* weight, int64_t ldw, const void* second, int64_t ld_second,
                    int64_t n, int64_t k, int32_t dtype, void* packed, int32_t num_threads) {
  const int64_t panels = (n + kPanel - 1) / kPanel;
  const int64_t pair = second ? 2 : 1;
  run_threads(num_threads, [&](int t, int threads) {
    for (int64_t p = share_begin(panels, t, threads); p < share_begin(panels, t + 1, threads); p++)
      for (int64_t half = 0; half < pair; half++) {
        const void* from = half ? second : weight;
        const int64_t ld = half ? ld_second : ldw;
        const int64_t at = p * pair + half;
        if (dtype == kBFloat16)
          pack_panel((const bf16*)from, ld, n, k, p,
                     (bf16*)packed + at * packed_depth(bf16{}, k) * kPanel);
        else
          pack_panel((const float*)from, ld, n, k, p, (float*)packed + at * k * kPanel);
      }
  });
}

void dg_linear(const dg_linear_desc* d, const void* x, int64_t ldx, int64_t m, void* out,
               int64_t ldo) {
  if (m <= 0) return;
  if (d->dtype == kBFloat16) {
    if (d->out_dtype == kBFloat16)
      linear(*d, (const bf16*)x, ldx, m, (bf16*)out, ldo);
    else
      linear(*d, (const bf16*)x, ldx, m, (float*)out, ldo);
  } else {
    if (d->out_dtype == kBFloat16)
      linear(*d, (const float*)x, ldx, m, (bf16*)out, ldo);
    else
      linear(*d, (const float*)x, ldx, m, (float*)out, ldo);
  }
}

// Rows of a table: packed != 0 reads the packed layout of [n, k], else [n, k] with row stride ldw.
void dg_embedding(const void* table, int64_t ldw, int64_t k, int32_t dtype, int32_t packed,
                  const int64_t* ids, int64_t m, void* out, int64_t ldo) {
  for (int64_t r = 0; r < m; r++) {
    if (dtype == kBFloat16) {
      bf16* to = (bf16*)out + r * ldo;
      if (packed)
        gather_row((const bf16*)table, k, ids[r], k, to);
      else
        std::memcpy(to, (const bf16*)table + ids[r] * ldw, size_t(k) * sizeof(bf16));
    } else {
      float* to = (float*)out + r * ldo;
      if (packed)
        gather_row((const float*)table, k, ids[r], k, to);
      else
        std::memcpy(to, (const float*)table + ids[r] * ldw, size_t(k) * sizeof(float));
    }
  }
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace dg
