// The memory of one device: two address ranges, blocks handed out in stream order, poison.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "free_list.h"
#include "streams.h"

namespace dougong_sim {

// Memory that belongs to captured graphs: it stays theirs between replays, whoever frees it.
class Pool {
 public:
  FreeList free;
};
using PoolPtr = std::shared_ptr<Pool>;

// `data_ptr()` of a tensor is an address in a range that nobody may touch, so host code that
// takes it for ordinary memory dies at once. Kernels add a constant and land in the second range,
// which holds the bytes.
//
// Freed memory is handed out again in stream order and not before: at once to the stream that it
// was allocated on (whose later work runs after its earlier work), to others when the work that
// was queued at the time of the free has run. Tasks therefore need not own what they use; memory
// used on a second stream without `record_stream` is overwritten under it, as on a real device.
class Memory {
 public:
  explicit Memory(Device& device);

  // Null for nothing. Raises OutOfMemoryError beyond the limit. `home` is the current queue.
  void* allocate(size_t num_bytes, Queue& home);
  // False if the pointer was never allocated here.
  bool free(void* pointer);
  void record_use(const void* pointer, Queue& queue);

  bool contains(const void* pointer) const {
    return pointer >= guarded_ && pointer < guarded_ + kSpan;
  }
  void* host_address(const void* pointer) const {
    return bytes_ + (static_cast<const char*>(pointer) - guarded_);
  }

  // The pool's memory goes back to everybody; what is still in use follows when it is freed.
  void release(const PoolPtr& pool);

  size_t free_bytes();  // up to the limit
  c10::CachingDeviceAllocator::DeviceStats stats();
  void reset_accumulated();
  void reset_peak();

 private:
  static constexpr size_t kSpan = size_t{64} << 30;

  struct LiveBlock {
    size_t size;
    size_t num_bytes;  // as asked for
    Queue* home;
    std::vector<Queue*> also_used_on;
    std::weak_ptr<Pool> pool;
  };
  // Where a new block lies, and what its bytes are.
  struct Place {
    size_t offset;
    bool is_idle;  // nothing queued uses it any more
    bool is_new;   // never used: still all ones
  };

  Place find(size_t size, size_t num_bytes, Queue& home, Pool* pool);
  Place extend(size_t size);
  void refuse_beyond_limit(size_t size, size_t num_bytes);
  Fences poison(size_t offset, const LiveBlock& block, bool is_captured);
  void fill(size_t offset, size_t size, unsigned char byte) const;

  Device& device_;
  char* guarded_;  // [guarded_, guarded_ + kSpan): no access
  char* bytes_;    // the same length: the contents
  std::mutex mutex_;
  size_t mapped_ = 0;  // bytes of the second range that are backed
  size_t top_ = 0;     // nothing above was ever handed out
  FreeList free_;
  std::unordered_map<size_t, LiveBlock> live_;
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

// The pool new memory comes from: that of the graph being captured, or none.
PoolPtr current_pool();

}  // namespace dougong_sim
