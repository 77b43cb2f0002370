// Freed memory, and when it may be used again.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "streams.h"

namespace dougong_sim {

// "All tasks of `queue` up to `number` have run": what must hold before freed bytes are idle.
struct Fence {
  Queue* queue;
  uint64_t number;
  bool holds() const { return queue->done.load() >= number; }
};
using Fences = c10::SmallVector<Fence, 2>;

class FreeList {
 public:
  struct Block {
    size_t offset;
    bool is_idle;  // nothing queued uses it any more
  };

  // The first block of that size that work queued on `user` (null: on any stream) may use without
  // waiting, taken out of the list.
  std::optional<Block> take(size_t size, const Queue* user);
  void put(size_t offset, size_t size, Fences fences);
  // Joins neighbours that became idle after they were put here.
  void join_idle();

  // Moves all blocks to another list, under further fences. Their sizes together.
  size_t move_to(FreeList& other, const Fences& fences);

 private:
  struct Entry {
    size_t size;
    Fences fences;  // empty: idle
  };
  using Entries = std::map<size_t, Entry>;  // by offset

  bool join_with_next(Entries::iterator entry);

  Entries entries_;
};

}  // namespace dougong_sim
