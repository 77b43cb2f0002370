// Packed linear layers: y = x W^T + b, and the gated pair act(x G^T) * (x U^T).
#include <algorithm>

#include "blocks.h"
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
  int32_t storage;  // of the weight; see blocks.h
};

namespace {

// Keeps the weights that one pass over the rows uses within half of a 1 MiB second-level cache.
constexpr int64_t kDepthBlock = 2048;
// Of weights that are unpacked on the way: four panels of it stay in the first-level cache.
constexpr int64_t kUnpackedDepth = 128;
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

// C of some panels of a plain weight.
template <class T>
void multiply_plain(const dg_linear_desc& d, const T* x, int64_t ldx, int rows, int64_t panel,
                    int panels, float* c, int64_t ldc) {
  const int64_t panel_size = packed_depth(T{}, d.k) * kPanel;
  const T* weight = static_cast<const T*>(d.weight) + panel * panel_size;
  for (int64_t k = 0; k < d.k; k += kDepthBlock) {
    const int64_t count = std::min(kDepthBlock, d.k - k);
    gemm_rows<T>(x + k, ldx, rows, weight + k * kPanel, panel_size, panels, count, c, ldc, k > 0,
                 next_group(weight, panel_size, rows));
  }
}

// The same of a weight in blocks: the same values in the same order, so the same bits.
template <class T>
void multiply_blocks(const dg_linear_desc& d, const T* x, int64_t ldx, int rows, int64_t panel,
                     int panels, float* c, int64_t ldc) {
  alignas(64) T tile[kMaxPanels * kUnpackedDepth * kPanel];
  constexpr int64_t tile_panel = kUnpackedDepth * kPanel;
  const int64_t unit = unit_bytes(d.storage), panel_bytes = d.k / kGroup * unit;
  const uint8_t* weight = static_cast<const uint8_t*>(d.weight) + panel * panel_bytes;
  for (int64_t k = 0; k < d.k; k += kUnpackedDepth) {
    const int64_t count = std::min(kUnpackedDepth, d.k - k);
    for (int p = 0; p < panels; p++)
      unpack_units(d.storage, weight + p * panel_bytes + k / kGroup * unit, count / kGroup,
                   tile + p * tile_panel);
    gemm_rows<T>(x + k, ldx, rows, tile, tile_panel, panels, count, c, ldc, k > 0);
  }
}

// Other widths of W than 16 never get here.
template <class T>
constexpr bool in_words(T) {
  return kHasWords && sizeof(T) == 2;
}

#if defined(__AVX512BF16__)
// From this many rows on it pays to spread the integers once for all of them.
constexpr int kSpreadRows = 13;
constexpr int64_t kSpreadDepth = 256;

template <int S>
void multiply_words(const dg_linear_desc& d, const bf16* x, int64_t ldx, int rows, int64_t panel,
                    int panels, const float* sums, float* c, int64_t ldc) {
  alignas(64) bf16 tile[kMaxPanels * kSpreadDepth * kPanel];
  constexpr int64_t tile_panel = kSpreadDepth * kPanel;
  const int64_t groups = d.k / kGroup, panel_bytes = groups * unit_bytes(S);
  const uint8_t* units = static_cast<const uint8_t*>(d.weight) + panel * panel_bytes;
  if (rows < kSpreadRows) {
    gemm_words<S>(x, ldx, rows, units, panel_bytes, nullptr, 0, panels, groups, sums, groups, c,
                  ldc, false);
    return;
  }
  constexpr int64_t step = kSpreadDepth / kGroup;
  for (int64_t g = 0; g < groups; g += step) {
    const int64_t count = std::min(step, groups - g);
    const uint8_t* at = units + g * unit_bytes(S);
    for (int p = 0; p < panels; p++)
      spread_units<S>(at + p * panel_bytes, count, tile + p * tile_panel);
    gemm_words<S>(x + g * kGroup, ldx, rows, at, panel_bytes, tile, tile_panel, panels, count,
                  sums + g, groups, c, ldc, g > 0);
  }
}

void multiply_in_words(const dg_linear_desc& d, const bf16* x, int64_t ldx, int rows, int64_t panel,
                       int panels, const float* sums, float* c, int64_t ldc) {
  if (d.storage == kQ4_0)
    multiply_words<kQ4_0>(d, x, ldx, rows, panel, panels, sums, c, ldc);
  else if (d.storage == kQ4_1)
    multiply_words<kQ4_1>(d, x, ldx, rows, panel, panels, sums, c, ldc);
  else
    multiply_words<kQ8_0>(d, x, ldx, rows, panel, panels, sums, c, ldc);
}
#else
inline void sum_groups(const bf16*, int64_t, int, int64_t, float*) {}
inline void multiply_in_words(const dg_linear_desc&, const bf16*, int64_t, int, int64_t, int,
                              const float*, float*, int64_t) {}
#endif
inline void sum_groups(const float*, int64_t, int, int64_t, float*) {}
inline void multiply_in_words(const dg_linear_desc&, const float*, int64_t, int, int64_t, int,
                              const float*, float*, int64_t) {}

// All outputs of rows [0, rows) and panels [first, last).
template <class T, class O>
void linear_block(const dg_linear_desc& d, const T* x, int64_t ldx, int rows, int64_t first,
                  int64_t last, O* out, int64_t ldo) {
  static thread_local Scratch scratch;
  constexpr int64_t ldc = kMaxPanels * kPanel;
  const bool words = d.storage != kPlain && in_words(T{});
  const int64_t groups = d.storage == kQ4_1 && words ? d.k / kGroup : 0;
  float* c = reinterpret_cast<float*>(
      scratch.reserve(size_t(rows) * size_t(ldc + groups) * sizeof(float)));
  float* sums = c + rows * ldc;
  if (groups) sum_groups(x, ldx, rows, groups, sums);
  for (int64_t p = first; p < last; p += kMaxPanels) {
    const int panels = int(std::min<int64_t>(kMaxPanels, last - p));
    if (d.storage == kPlain)
      multiply_plain(d, x, ldx, rows, p, panels, c, ldc);
    else if (words)
      multiply_in_words(d, x, ldx, rows, p, panels, sums, c, ldc);
    else
      multiply_blocks(d, x, ldx, rows, p, panels, c, ldc);
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

// Row of a table in units.
template <class T>
void gather_unpacked_row(const uint8_t* packed, int64_t k, int64_t row, int32_t storage, T* out) {
  const int64_t unit = unit_bytes(storage);
  const uint8_t* from = packed + row / kPanel * (k / kGroup) * unit;
  for (int64_t g = 0; g < k / kGroup; g++)
    unpack_output(from + g * unit, storage, in_words(T{}), int(row % kPanel), out + g * kGroup);
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

// The same of a weight in blocks, rows of row_bytes, for inputs of dtype; k is a multiple of 32.
void dg_pack_blocks(const void* weight, const void* second, int64_t row_bytes, int64_t n, int64_t k,
                    int32_t storage, int32_t dtype, void* packed, int32_t num_threads) {
  const bool words = dtype == kBFloat16 && in_words(bf16{});
  const int64_t panels = (n + kPanel - 1) / kPanel, groups = k / kGroup;
  const int64_t pair = second ? 2 : 1;
  run_threads(num_threads, [&](int t, int threads) {
    for (int64_t p = share_begin(panels, t, threads); p < share_begin(panels, t + 1, threads); p++)
      for (int64_t half = 0; half < pair; half++) {
        const uint8_t* rows = (const uint8_t*)(half ? second : weight) + p * kPanel * row_bytes;
        uint8_t* to = (uint8_t*)packed + (p * pair + half) * groups * unit_bytes(storage);
        const int outputs = int(std::min<int64_t>(kPanel, n - p * kPanel));
        for (int64_t g = 0; g < groups; g++)
          pack_unit(rows + g * block_bytes(storage), row_bytes, outputs, storage, words,
                    to + g * unit_bytes(storage));
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

// Rows of a table that dg_pack_blocks made.
void dg_embedding_blocks(const void* packed, int64_t k, int32_t storage, int32_t dtype,
                         const int64_t* ids, int64_t m, void* out, int64_t ldo) {
  for (int64_t r = 0; r < m; r++)
    if (dtype == kBFloat16)
      gather_unpacked_row((const uint8_t*)packed, k, ids[r], storage, (bf16*)out + r * ldo);
    else
      gather_unpacked_row((const uint8_t*)packed, k, ids[r], storage, (float*)out + r * ldo);
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace dg
