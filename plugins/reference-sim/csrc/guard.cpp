// Devices, streams and events as torch's generic code (torch.Stream, torch.Event,
// torch.accelerator, DeviceGuard) asks for them.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "allocator.h"
#include "counters.h"
#include "device.h"

namespace dougong_sim {
namespace {

// A point in a queue. `time_ms` is written by the device when it gets there.
struct EventState {
  Queue* queue = nullptr;
  uint64_t number = 0;
  std::shared_ptr<std::atomic<double>> time_ms;

  bool has_happened() const { return queue->done.load() >= number; }
};

double now_ms() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since_start).count();
}

c10::DeviceIndex index_or_current(c10::DeviceIndex index) {
  return index < 0 ? current_device() : index;
}

struct SimGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }

  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(kDeviceType, current_device()); }
  void setDevice(c10::Device to) const override { set_current_device(to.index()); }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    set_current_device_unchecked(to.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::Stream getStream(c10::Device of) const override {
    return current_stream(index_or_current(of.index()));
  }
  c10::Stream getDefaultStream(c10::Device of) const override {
    const c10::Device owner(kDeviceType, index_or_current(of.index()));
    return c10::Stream(c10::Stream::UNSAFE, owner, 0);
  }
  c10::Stream getNewStream(c10::Device of, int) const override {
    return new_stream(device(index_or_current(of.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    return getNewStream(of, 0);
  }
  c10::Stream exchangeStream(c10::Stream to) const override { return exchange_stream(to); }
  bool queryStream(const c10::Stream& stream) const override {
    Queue& queue = queue_of(stream);
    if (queue.is_idle()) {
      return true;
    }
    poll(queue);
    return false;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count("sync:stream");
    synchronize(queue_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    count("sync:device");
    synchronize(device(index_or_current(index)));
  }
  bool isStreamCapturing(const c10::Stream&) const override {
    return current_capture() != nullptr;
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag)
      const override {
    Queue& queue = queue_of(stream);
    ensure_context(queue.device);
    if (*event == nullptr) {
      *event = new EventState;
    }
    auto& state = *static_cast<EventState*>(*event);
    state.queue = &queue;
    state.time_ms = std::make_shared<std::atomic<double>>(0.0);
    state.number = submit(
        queue, make_task("event_record", false, [time = state.time_ms] { *time = now_ms(); }));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) {
      return;  // never recorded: nothing to wait for
    }
    const auto& state = *static_cast<EventState*>(event);
    Queue& queue = queue_of(stream);
    if (state.queue != &queue) {
      submit(queue, make_task("event_wait", false, [from = state.queue, number = state.number] {
        wait_for(*from, number);
      }));
    }
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    const auto& state = *static_cast<EventState*>(event);
    if (state.has_happened()) {
      return true;
    }
    poll(*state.queue);
    return false;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) {
      return;
    }
    count("sync:event");
    const auto& state = *static_cast<EventState*>(event);
    Device& owner = state.queue->device;
    check_usable(owner);
    refuse_in_capture("waiting for an event");
    wait_for(*state.queue, state.number);
    owner.faults.raise_failure(owner.index);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(
        first != nullptr && second != nullptr, "sim: elapsed_time needs two recorded events");
    const auto& begin = *static_cast<EventState*>(first);
    const auto& end = *static_cast<EventState*>(second);
    TORCH_CHECK(
        begin.has_happened() && end.has_happened(),
        "sim: elapsed_time of an event that has not happened; synchronize it first");
    return *end.time_ms - *begin.time_ms;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<EventState*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data.get(), queue_of(stream));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, SimGuard);

}  // namespace
}  // namespace dougong_sim
