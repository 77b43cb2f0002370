// The driver's back door, torch.ops.dougong_sim.*: numbers and strings only, so the library needs
// nothing of Python. `dougong_sim.device` gives these names and documentation.
#include <torch/library.h>

#include "config.h"
#include "counters.h"
#include "generator.h"
#include "host_waits.h"
#include "op_info.h"
#include "tensors.h"

namespace dougong_sim {
namespace {

void configure(
    std::vector<int64_t> visible, int64_t memory_limit, bool is_exclusive, std::string state_dir) {
  config().is_exclusive = is_exclusive;
  config().state_dir = std::move(state_dir);
  configure_devices(visible, memory_limit);
}

// What was queued under the old mode has run before the new one begins.
void set_mode(int64_t mode, int64_t delay_us) {
  TORCH_CHECK(mode >= 0 && mode <= 2, "sim: there is no mode ", mode);
  for (int i = 0; i < device_count(); i++) {
    drain(device(static_cast<c10::DeviceIndex>(i)));
  }
  config().delay_us = delay_us;
  config().mode = static_cast<Mode>(mode);
}

Device& device_at(int64_t index) {
  return device(static_cast<c10::DeviceIndex>(index));
}

void set_rng_state(int64_t index, const at::Tensor& state) {
  as_sim(default_generator(device_at(index).index)).set_state(*state.unsafeGetTensorImpl());
}

void set_memory_limit(int64_t index, int64_t num_bytes) {
  TORCH_CHECK(
      num_bytes >= 0 && num_bytes <= int64_t{32} << 30, "sim: at most 32 GiB of memory per device");
  device_at(index).memory_limit = num_bytes;
}

void seed(int64_t index, int64_t value) {
  const c10::DeviceIndex asked = device_at(index).index;
  as_sim(default_generator(asked)).set_current_seed(static_cast<uint64_t>(value));
}

void inject(
    int64_t index,
    std::string kind,
    std::string op,
    std::string message,
    int64_t after,
    int64_t times,
    bool is_sticky,
    int64_t milliseconds,
    int64_t bit) {
  device_at(index).faults.inject({
      std::move(kind), std::move(op), std::move(message), after, times, is_sticky, milliseconds,
      bit});
}

// Twice: what is still queued must not fail anew, and must not leave its failure behind.
void reset(int64_t index) {
  Device& asked = device_at(index);
  asked.faults.reset();
  drain(asked);
  asked.faults.reset();
}

c10::Dict<std::string, int64_t> counters() {
  c10::Dict<std::string, int64_t> values;
  for (const auto& [name, value] : counter_values()) {
    values.insert(name, value);
  }
  return values;
}

TORCH_LIBRARY(dougong_sim, library) {
  library.def(
      "configure(int[] visible, int memory_limit, bool is_exclusive, str state_dir) -> ()",
      configure);
  library.def("set_mode(int mode, int delay_us) -> ()", set_mode);
  library.def("quiet_workers() -> ()", quiet_workers);
  library.def("mode() -> int", [] { return static_cast<int64_t>(config().mode.load()); });
  library.def("delay_us() -> int", [] { return config().delay_us.load(); });
  library.def("set_strict(bool value) -> bool", [](bool value) {
    return config().is_strict.exchange(value);
  });
  library.def("set_sync_policy(int policy) -> int", [](int64_t policy) {
    TORCH_CHECK(policy >= 0 && policy <= 2, "sim: there is no sync policy ", policy);
    return static_cast<int64_t>(config().sync_policy.exchange(static_cast<SyncPolicy>(policy)));
  });
  library.def("push_allowed_sync(str name) -> ()", push_allowed_sync);
  library.def("pop_allowed_sync() -> ()", pop_allowed_sync);
  library.def("declare_ops(str[] names) -> ()", [](std::vector<std::string> names) {
    declare_ops(names);
  });

  library.def("memory_limit(int device) -> int", [](int64_t index) {
    return device_at(index).memory_limit.load();
  });
  library.def("set_memory_limit(int device, int num_bytes) -> ()", set_memory_limit);
  library.def(
      "inject(int device, str kind, str op, str message, int after, int times, bool is_sticky, int "
      "milliseconds, int bit) -> ()",
      inject);
  library.def("fail(int device, str message, bool is_sticky) -> ()",
      [](int64_t index, const std::string& message, bool is_sticky) {
        fail_device(device_at(index), message, is_sticky);
      });
  library.def("lose(int device) -> ()", [](int64_t index) { device_at(index).faults.lose(); });
  library.def("unhang(int device) -> ()", [](int64_t index) { device_at(index).faults.unhang(); });
  library.def("reset(int device) -> ()", reset);

  library.def("pending(int device) -> int", [](int64_t index) {
    return pending_kernels(device_at(index));
  });
  library.def("counters() -> Dict(str, int)", counters);
  library.def("clear_counters() -> ()", clear_counters);
  library.def("device_count() -> int", [] { return static_cast<int64_t>(device_count()); });
  library.def("physical_index(int device) -> int", [](int64_t index) {
    return static_cast<int64_t>(device_at(index).physical);
  });
  library.def("has_context(int device) -> bool", [](int64_t index) {
    return device_at(index).has_context.load();
  });
  library.def("is_bad_fork() -> bool", [] { return is_bad_fork(); });
  library.def("seed(int device, int value) -> ()", seed);
  library.def("rng_state(int device) -> Tensor", [](int64_t index) {
    return at::Tensor(as_sim(default_generator(device_at(index).index)).get_state());
  });
  library.def("set_rng_state(int device, Tensor state) -> ()");
  library.def("host_view(Tensor tensor) -> Tensor");
}

TORCH_LIBRARY_IMPL(dougong_sim, PrivateUse1, library) {
  library.impl("host_view", host_view);
}

TORCH_LIBRARY_IMPL(dougong_sim, CPU, library) {
  library.impl("set_rng_state", set_rng_state);
}

}  // namespace
}  // namespace dougong_sim
