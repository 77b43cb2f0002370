// The simulated devices, and the narrow door through which other files use them.
//
// A collective backend needs only this header: the queue of the current stream, a task to put on
// it, a view of a device tensor for the host code that carries the data, and a way to fail the
// device. For events use c10::Event, which works on this device as on any other.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "faults.h"
#include "streams.h"

namespace at {
class Tensor;
}

namespace dougong_sim {

class Memory;

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 16;

// What a driver knows of one device. Made once by `configure` and never destroyed.
struct Device {
  Device(c10::DeviceIndex index, int physical, int64_t memory_limit);
  ~Device();

  const c10::DeviceIndex index;  // among the visible ones
  const int physical;            // its number on the machine
  std::atomic<int64_t> memory_limit;

  // The "primary context": made by the first use that needs memory or a queue.
  std::atomic<bool> has_context{false};
  std::unique_ptr<Memory> memory;  // exists once has_context
  std::deque<Queue> queues;        // queue 0 is the default stream; guarded by the queue mutex

  Faults faults;
};

// Makes the visible devices: `visible[i]` is the physical number of sim:i. Once per process.
void configure_devices(const std::vector<int64_t>& visible, int64_t memory_limit);
int device_count() noexcept;

// Raises AcceleratorError for an index that is not there.
Device& device(c10::DeviceIndex index);
Device* device_of_pointer(const void* pointer) noexcept;

// The calling thread's current device.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);  // raises for a bad index
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

// Raises if the device is lost, has a sticky error that was reported, or if this process is a fork
// of one that used the device. Every call that launches something begins with it.
void check_usable(Device& device);
// `check_usable`, then makes the context if there is none.
void ensure_context(Device& device);
bool is_bad_fork() noexcept;

// A CPU tensor over the same bytes. It keeps nothing alive: a task that uses it is safe because
// freed memory is handed out again in stream order only.
at::Tensor host_view(const at::Tensor& tensor);

}  // namespace dougong_sim
