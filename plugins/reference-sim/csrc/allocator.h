// Torch's view of device memory and of page-locked host memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace dougong_sim {

struct Queue;

c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer);

// Where the bytes of a device address lie. Raises for any other address; null stays null.
void* host_address(const void* pointer);
// Queues a copy within one device on the current stream.
void copy_on_device(void* to, const void* from, size_t num_bytes);

// The block is also used by work of this queue: it is not handed out again before that has run.
void record_use(const void* pointer, Queue& queue);

void register_allocators();

}  // namespace dougong_sim
