// Causal attention over a paged cache: prefill, decode and mixtures in one call.
//
// A row's result is a fixed function of its own query and keys. Keys are taken in tiles of 64
// positions; a running softmax goes over the tiles of one chunk of 512 positions and starts afresh
// in the next; chunks are merged in order. Neither the batch, nor the query tile, nor the block
// size, nor the number of threads enters, so a long decode may spread its chunks over cores.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "attention_direct.h"
#include "attention_tile.h"
#include "scratch.h"

namespace dg {

extern "C" struct dg_attention_desc {
  const void* k_cache;  // [num_blocks, num_kv_heads, block_size, head_dim], last axis contiguous
  const void* v_cache;
  int64_t k_stride_block, k_stride_head, k_stride_token;
  int64_t v_stride_block, v_stride_head, v_stride_token;
  int64_t block_size;
  int64_t head_dim;
  int64_t sliding_window;  // positions a query sees, itself included; 0: all
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t dtype;        // of q and out
  int32_t cache_dtype;  // of the cache
  float scale;
  float softcap;  // 0: none
  int32_t num_threads;
};

namespace {

constexpr int64_t kChunk = 512;
constexpr int kTargetRows = 96;
// What split units may hold at once, but never less than a few parts for each thread. Threads wait
// for each other once per so much, so it is worth a few milliseconds of work.
constexpr int64_t kSplitBytes = int64_t(8) << 20;
constexpr int64_t kPartsPerThread = 4;
// Query-key products times head_dim; below it, some 25 us, a fork costs more than it saves.
constexpr int64_t kSerialWork = 300000;

struct Batch {
  const int32_t* block_table;
  int64_t table_stride;
  const int32_t* seq_lens;
  const int32_t* cu_seqlens_q;
  int64_t num_seqs;
};

struct Unit {
  int32_t seq;
  int32_t kv_head;
  int32_t first;  // query tokens [first, first + count) of the sequence
  int32_t count;
};

// What a range of keys contributed to each row.
struct Part {
  RowState* state;  // [rows]
  float* acc;       // [rows][head_dim]

  void clear(int rows, int64_t dim) const {
    for (int r = 0; r < rows; r++) {
      state[r].top = -INFINITY;
      std::fill(state[r].sum, state[r].sum + W, 0.0f);
    }
    std::fill(acc, acc + rows * dim, 0.0f);
  }
};

// Merging into a cleared part copies, bit for bit.
void merge(const Part& into, const Part& from, int rows, int64_t dim) {
  for (int r = 0; r < rows; r++) {
    RowState& a = into.state[r];
    const RowState& b = from.state[r];
    const float top = std::max(a.top, b.top);
    if (top == -INFINITY) continue;
    const vf keep = splat(a.top == -INFINITY ? 0.0f : exp_scalar(a.top - top));
    const vf take = splat(b.top == -INFINITY ? 0.0f : exp_scalar(b.top - top));
    a.top = top;
    store(a.sum, fma(load(a.sum), keep, mul(load(b.sum), take)));
    for (int64_t d = 0; d < dim; d += W) {
      float* to = into.acc + r * dim + d;
      store(to, fma(load(to), keep, mul(load(from.acc + r * dim + d), take)));
    }
  }
}

template <class Q, class C, class E>
class Attention {
 public:
  Attention(const dg_attention_desc& desc, const Batch& batch, const Q* q, int64_t ldq, Q* out,
            int64_t ldo)
      : d_(desc), b_(batch), q_(q), ldq_(ldq), out_(out), ldo_(ldo) {
    group_ = d_.num_heads / d_.num_kv_heads;
    query_tile_ = std::max(1, kTargetRows / group_);
  }

  void run() {
    const std::vector<Unit> units = plan();
    int64_t most_chunks = 0, work = 0;
    for (const Unit& u : units) {
      most_chunks = std::max(most_chunks, last_chunk(u) - first_chunk(u) + 1);
      work += u.count * group_ * (position(u, u.count - 1) + 1) * d_.head_dim;
    }
    const int threads = work < kSerialWork ? 1 : d_.num_threads;
    if (threads > 1 && most_chunks > 1 && int64_t(units.size()) < 4 * threads)
      run_split(units, threads);
    else
      for_each_unit(threads, int64_t(units.size()), [&](int64_t i) {
        // Likely the next one of this thread.
        whole(units[i], size_t(i + threads) < units.size() ? &units[i + threads] : nullptr);
      });
  }

  // Memory kept between calls by all threads together, at most.
  int64_t workspace_bytes() const {
    const int64_t part = part_floats(most_rows()) * int64_t(sizeof(float));
    const int64_t thread = Scratch::rounded(2 * part) + Scratch::rounded(tile_bytes(most_rows()));
    const int64_t split = Scratch::rounded(part + split_floats(d_.num_threads) * sizeof(float));
    return d_.num_threads * thread + (d_.num_threads > 1 ? split : 0);
  }

 private:
  static constexpr int64_t kState = sizeof(RowState) / sizeof(float);
  alignas(64) static inline const C nothing_[256] = {};

  // Last query tiles first: they see the most keys.
  std::vector<Unit> plan() const {
    std::vector<Unit> units;
    for (int32_t s = 0; s < b_.num_seqs; s++) {
      const int32_t len = b_.cu_seqlens_q[s + 1] - b_.cu_seqlens_q[s];
      if (len <= 0) continue;
      for (int32_t first = (len - 1) / query_tile_ * query_tile_; first >= 0; first -= query_tile_)
        for (int32_t h = 0; h < d_.num_kv_heads; h++)
          units.push_back({s, h, first, std::min<int32_t>(query_tile_, len - first)});
    }
    return units;
  }

  int64_t position(const Unit& u, int64_t token) const {
    const int64_t len = b_.cu_seqlens_q[u.seq + 1] - b_.cu_seqlens_q[u.seq];
    return b_.seq_lens[u.seq] - len + u.first + token;
  }
  int64_t first_key(int64_t position) const {
    return d_.sliding_window > 0 ? std::max<int64_t>(0, position - d_.sliding_window + 1) : 0;
  }
  int64_t first_chunk(const Unit& u) const { return first_key(position(u, 0)) / kChunk; }
  int64_t last_chunk(const Unit& u) const { return position(u, u.count - 1) / kChunk; }
  int64_t rows_of(const Unit& u) const { return int64_t(u.count) * group_; }
  int64_t most_rows() const { return int64_t(query_tile_) * group_; }
  int64_t part_floats(int64_t rows) const { return rows * (d_.head_dim + kState); }

  Part part_at(float* memory, int64_t rows) const {
    return {reinterpret_cast<RowState*>(memory + rows * d_.head_dim), memory};
  }

  void whole(const Unit& u, const Unit* following) const {
    static thread_local Scratch scratch;
    const int rows = int(rows_of(u));
    const int64_t floats = part_floats(rows);
    float* memory =
        reinterpret_cast<float*>(scratch.reserve(size_t(2 * floats) * sizeof(float)));
    const Part chunk = part_at(memory, rows);
    const int64_t first = first_chunk(u), last = last_chunk(u);
    if (first == last) {
      chunk_of_keys(u, first, chunk, following);
      finish(u, chunk);
      return;
    }
    const Part total = part_at(memory + floats, rows);
    total.clear(rows, d_.head_dim);
    for (int64_t c = first; c <= last; c++) {
      chunk_of_keys(u, c, chunk, c < last ? &u : following);
      merge(total, chunk, rows, d_.head_dim);
    }
    finish(u, total);
  }

  int64_t split_floats(int64_t threads) const {
    return std::max<int64_t>(kSplitBytes / int64_t(sizeof(float)),
                             kPartsPerThread * threads * part_floats(most_rows()));
  }

  struct Piece {
    const Unit* unit;
    int64_t chunk;
  };

  // Chunks of keys spread over the threads, as many at once as memory is granted for; merged in
  // order, so that neither number shows in the result.
  void run_split(const std::vector<Unit>& units, int threads) const {
    std::vector<Piece> pieces;
    int64_t floats = 0;
    for (const Unit& u : units)
      for (int64_t c = first_chunk(u); c <= last_chunk(u); c++) {
        pieces.push_back({&u, c});
        floats += part_floats(rows_of(u));
      }
    const int64_t granted = std::min(floats, split_floats(threads));
    const int64_t kept = part_floats(most_rows());
    static thread_local Scratch scratch;
    float* memory = reinterpret_cast<float*>(scratch.reserve(size_t(kept + granted) * sizeof(float)));
    std::vector<Part> parts(pieces.size());
    Part total{};
    for (size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
      for (int64_t used = 0; end < pieces.size(); end++) {
        const int64_t rows = rows_of(*pieces[end].unit);
        if (used + part_floats(rows) > granted) break;
        parts[end] = part_at(memory + kept + used, rows);
        used += part_floats(rows);
      }
      for_each_unit(threads, int64_t(end - begin), [&](int64_t i) {
        const Piece& piece = pieces[begin + i];
        chunk_of_keys(*piece.unit, piece.chunk, parts[begin + i], nullptr);
      });
      for (size_t i = begin; i < end; i++) {
        const Unit& u = *pieces[i].unit;
        if (pieces[i].chunk == first_chunk(u))
          total = parts[i];
        else
          merge(total, parts[i], int(rows_of(u)), d_.head_dim);
        if (pieces[i].chunk == last_chunk(u)) finish(u, total);
      }
      const Piece& latest = pieces[end - 1];
      if (latest.chunk < last_chunk(*latest.unit)) total = keep(memory, total, *latest.unit);
    }
  }

  // What a unit has so far, moved to where the next parts do not overwrite it.
  Part keep(float* memory, const Part& total, const Unit& u) const {
    const int64_t rows = rows_of(u);
    if (total.acc != memory) std::copy(total.acc, total.acc + part_floats(rows), memory);
    return part_at(memory, rows);
  }

  int64_t tile_bytes(int64_t rows) const {
    return 2 * kTile * d_.head_dim * int64_t(sizeof(E)) + 2 * kMaxRows * kTile * sizeof(float) +
           rows * d_.head_dim * int64_t(sizeof(E));
  }

  // Softmax-weighted values of the keys in [chunk * kChunk, ...) that the unit's rows see.
  // While the last tile computes, the first one of `following` is fetched: the next chunk where it
  // is this unit again.
  void chunk_of_keys(const Unit& u, int64_t chunk, const Part& part, const Unit* following) const {
    static thread_local Scratch scratch;
    const int64_t dim = d_.head_dim;
    const int rows = int(rows_of(u));
    const size_t panel_bytes = size_t(kTile * dim) * sizeof(E);
    const size_t score_bytes = kMaxRows * kTile * sizeof(float);
    char* memory = scratch.reserve(size_t(tile_bytes(rows)));
    E* keys = reinterpret_cast<E*>(memory);
    E* values = reinterpret_cast<E*>(memory + panel_bytes);
    float* scores = reinterpret_cast<float*>(memory + 2 * panel_bytes);
    E* probabilities = reinterpret_cast<E*>(memory + 2 * panel_bytes + score_bytes);
    E* queries = reinterpret_cast<E*>(memory + 2 * panel_bytes + 2 * score_bytes);
    part.clear(rows, dim);
    copy_queries(u, queries);
    const int64_t begin = std::max(chunk * kChunk, first_key(position(u, 0)) / kTile * kTile);
    const int64_t end = std::min((chunk + 1) * kChunk, position(u, u.count - 1) + 1);
    TileRows<C> located[2];
    locate(u, begin, located[0]);
    for (int64_t tile = begin; tile < end; tile += kTile) {
      const TileRows<C>& here = located[(tile - begin) / kTile % 2];
      TileRows<C>& next = located[(tile - begin) / kTile % 2 ^ 1];
      next.count = 0;
      if (tile + kTile < end || following == &u)
        locate(u, tile + kTile, next);
      else if (following)
        locate(*following, first_key(position(*following, 0)) / kTile * kTile, next);
      if (u.count == 1 && try_direct_tile(u, tile, here, next, queries, scores, probabilities, part))
        continue;
      load_tile(here, next, dim, keys, values);
      const TileRows<C>* hiding = must_hide(u, tile, here) ? &here : nullptr;
      // Rows of earlier tokens than this tile see nothing of it.
      const int64_t skip = std::max<int64_t>(0, tile - position(u, 0)) * group_;
      for (int r = int(skip); r < rows; r += kMaxRows)
        row_block(u, tile, r, std::min(kMaxRows, rows - r), queries, keys, values, scores,
                  probabilities, part, hiding);
    }
  }

  // The whole work on one tile of a unit of one query token, where it need not be packed for it.
  bool try_direct_tile(const Unit& u, int64_t tile, const TileRows<C>& here,
                       const TileRows<C>& next, const E* queries, float* scores, E* probabilities,
                       const Part& part) const {
#if defined(__AVX512BF16__)
    if constexpr (sizeof(E) == 2) {
      if (group_ > kMaxRows) return false;
      const int64_t dim = d_.head_dim;
      const Direct direct = direct_for(group_);
      const int computed = (here.count + kPanel - 1) / kPanel * kPanel;
      for (int t = 0; t < computed; t += kPanel) {
        const int last = std::min(t + kPanel, next.count);
        prefetch_rows(next.key, t, last, dim);
        direct.scores(here.key + t, dim, queries, scores + t);
        prefetch_rows(next.value, t, last, dim);
      }
      prefetch_rows(next.key, computed, next.count, dim);
      prefetch_rows(next.value, computed, next.count, dim);
      const int first = int(std::max<int64_t>(0, first_key(position(u, 0)) - tile));
      for (int r = 0; r < group_; r++)
        softmax_row(scores + r * kTile, computed, first, here.count, d_.scale, d_.softcap,
                    part.state[r], part.acc + r * dim, dim, probabilities + r * kTile);
      direct.values(here.value, int(packed_depth(E{}, here.count)), probabilities, part.acc, dim);
      return true;
    }
#endif
    return false;
  }

  // Whether a value that only some of the unit's rows see would spoil the others, whose probability
  // for it is 0: 0 * NaN is NaN.
  bool must_hide(const Unit& u, int64_t tile, const TileRows<C>& rows) const {
    const int64_t begin = first_key(position(u, u.count - 1)) - tile;  // seen by all from here on
    const int64_t end = position(u, 0) + 1 - tile;
    return !all_finite(rows.value, 0, int(std::min<int64_t>(begin, rows.count)), d_.head_dim) ||
           !all_finite(rows.value, int(std::max<int64_t>(end, 0)), rows.count, d_.head_dim);
  }

  void row_block(const Unit& u, int64_t tile, int row, int rows, const E* queries, const E* keys,
                 E* values, float* scores, E* probabilities, const Part& part,
                 const TileRows<C>* hiding) const {
    const int64_t dim = d_.head_dim;
    const int64_t deepest = position(u, (row + rows - 1) / group_);
    if (first_key(position(u, row / group_)) >= tile + kTile) return;
    const int seen = int(std::min<int64_t>(kTile, deepest + 1 - tile));
    const int panels = (seen + kPanel - 1) / kPanel;
    gemm_rows<E>(queries + row * dim, dim, rows, keys, dim * kPanel, panels, dim, scores, kTile,
                 false);
    for (int r = 0; r < rows; r++) {
      const int64_t at = position(u, (row + r) / group_);
      const int first = int(std::max<int64_t>(0, first_key(at) - tile));
      const int last = int(std::min<int64_t>(kTile, at + 1 - tile));
      softmax_row(scores + r * kTile, panels * kPanel, first, last, d_.scale, d_.softcap,
                  part.state[row + r], part.acc + (row + r) * dim, dim, probabilities + r * kTile);
    }
    const int64_t depth = packed_depth(E{}, seen);
    const auto add_values = [&](int r, int count) {
      gemm_rows<E>(probabilities + r * kTile, kTile, count, values, kTile * kPanel,
                   int(dim / kPanel), depth, part.acc + (row + r) * dim, dim, true);
    };
    if (!hiding) return add_values(0, rows);
    for (int r = 0, count; r < rows; r += count) {
      const int token = (row + r) / group_;
      count = std::min(rows - r, (token + 1) * group_ - (row + r));
      pack_seen_values(position(u, token), tile, *hiding, values);
      add_values(r, count);
    }
  }

  // The tile as the query at `at` sees it, zeros for the rest.
  void pack_seen_values(int64_t at, int64_t tile, const TileRows<C>& rows, E* values) const {
    const C* seen[kTile];
    for (int t = 0; t < kTile; t++)
      seen[t] = tile + t >= first_key(at) && tile + t <= at ? rows.value[t] : nothing_;
    pack_values(seen, 0, rows.count, d_.head_dim, values);
  }

  // Positions outside [unseen, count) are not read, nor their block table entries; a zero row
  // stands for them.
  void locate(const Unit& u, int64_t tile, TileRows<C>& rows) const {
    const int64_t end = position(u, u.count - 1) + 1;
    const int64_t unseen = first_key(position(u, 0)) - tile;
    rows.count = int(std::min<int64_t>(kTile, end - tile));
    const int32_t* table = b_.block_table + u.seq * b_.table_stride;
    const C* k = static_cast<const C*>(d_.k_cache) + u.kv_head * d_.k_stride_head;
    const C* v = static_cast<const C*>(d_.v_cache) + u.kv_head * d_.v_stride_head;
    const int start = int(std::max<int64_t>(0, unseen));
    std::fill(rows.key, rows.key + start, nothing_);
    std::fill(rows.value, rows.value + start, nothing_);
    for (int t = start; t < rows.count;) {
      const int64_t block = (tile + t) / d_.block_size, offset = (tile + t) % d_.block_size;
      const int end = int(std::min<int64_t>(rows.count, t + d_.block_size - offset));
      const C* key = k + table[block] * d_.k_stride_block + offset * d_.k_stride_token;
      const C* value = v + table[block] * d_.v_stride_block + offset * d_.v_stride_token;
      for (; t < end; t++, key += d_.k_stride_token, value += d_.v_stride_token) {
        rows.key[t] = key;
        rows.value[t] = value;
      }
    }
    std::fill(rows.key + rows.count, rows.key + kTile, nothing_);
    std::fill(rows.value + rows.count, rows.value + kTile, nothing_);
  }

  void copy_queries(const Unit& u, E* to) const {
    const int64_t dim = d_.head_dim;
    const Q* from = q_ + (b_.cu_seqlens_q[u.seq] + u.first) * ldq_ + u.kv_head * group_ * dim;
    for (int t = 0; t < u.count; t++, from += ldq_)
      for (int64_t i = 0; i < group_ * dim; i += W) store(to + t * group_ * dim + i, load(from + i));
  }

  void finish(const Unit& u, const Part& part) const {
    const int64_t dim = d_.head_dim;
    Q* to = out_ + (b_.cu_seqlens_q[u.seq] + u.first) * ldo_ + u.kv_head * group_ * dim;
    for (int t = 0; t < u.count; t++, to += ldo_)
      for (int g = 0; g < group_; g++) {
        const int64_t r = t * group_ + g;
        const vf inverse = splat(1.0f / reduce_add(load(part.state[r].sum)));
        for (int64_t i = 0; i < dim; i += W)
          store(to + g * dim + i, mul(load(part.acc + r * dim + i), inverse));
      }
  }

  const dg_attention_desc& d_;
  const Batch& b_;
  const Q* q_;
  int64_t ldq_;
  Q* out_;
  int64_t ldo_;
  int group_;
  int query_tile_;
};

#if defined(__AVX512BF16__)
using BF16Compute = bf16;
#else
using BF16Compute = float;
#endif

// Calls body with the attention of the descriptor's dtypes.
template <class Body>
void with_attention(const dg_attention_desc& d, const Batch& batch, const void* q, int64_t ldq,
                    void* out, int64_t ldo, const Body& body) {
  const auto make = [&](auto query, auto cache, auto compute) {
    using Q = decltype(query);
    body(Attention<Q, decltype(cache), decltype(compute)>(
        d, batch, static_cast<const Q*>(q), ldq, static_cast<Q*>(out), ldo));
  };
  if (d.dtype == kBFloat16)
    make(bf16{}, bf16{}, BF16Compute{});
  else if (d.cache_dtype == kBFloat16)
    make(float{}, bf16{}, float{});
  else
    make(float{}, float{}, float{});
}

}  // namespace

// Rows cu_seqlens_q[i] .. cu_seqlens_q[i + 1] of q are the last positions of sequence i; a sequence
// without queries is skipped. Entries of block_table beyond seq_lens[i] are never read.
extern "C" __attribute__((visibility("default"))) void dg_paged_attention(const dg_attention_desc* d, const void* q, int64_t ldq,
                                   const int32_t* block_table, int64_t table_stride,
                                   const int32_t* seq_lens, const int32_t* cu_seqlens_q,
                                   int64_t num_seqs, void* out, int64_t ldo) {
  const Batch batch{block_table, table_stride, seq_lens, cu_seqlens_q, num_seqs};
  with_attention(*d, batch, q, ldq, out, ldo, [](auto&& attention) { attention.run(); });
}

// Bytes all threads together keep between calls, at most, whatever the lengths; only the heads, the
// dtypes and the number of threads of `d` matter.
extern "C" __attribute__((visibility("default"))) void dg_attention_workspace(
    const dg_attention_desc* d, int64_t* bytes) {
  with_attention(*d, Batch{}, nullptr, 0, nullptr, 0,
                 [&](auto&& attention) { *bytes = attention.workspace_bytes(); });
}

}  // namespace dg
