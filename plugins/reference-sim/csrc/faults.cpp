#include "faults.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "device.h"

namespace dougong_sim {
namespace {

std::string name_of(c10::DeviceIndex index) {
  return "sim:" + std::to_string(static_cast<int>(index));
}

void sleep_ms(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

void flip_bit(const Task& task, int64_t bit) {
  if (task.output_bytes == 0) {
    return;
  }
  const auto at = static_cast<size_t>(bit) % (task.output_bytes * 8);
  static_cast<unsigned char*>(task.output)[at / 8] ^= static_cast<unsigned char>(1u << (at % 8));
}

// Faults that strike before a kernel begins. False: it does not run at all.
bool may_begin(Device& device, const Task& task) {
  Faults& faults = device.faults;
  if (faults.has_failed()) {
    return false;  // after a failure nothing runs, and outputs stay poisoned
  }
  if (auto fault = faults.take("slow", task.name)) {
    sleep_ms(fault->milliseconds);
  }
  if (faults.take("hang", task.name)) {
    faults.hang();
    while (faults.is_hung() && !faults.is_lost()) {
      sleep_ms(1);
    }
  }
  if (faults.take("lost", task.name)) {
    faults.lose();
  }
  if (auto fault = faults.take("error", task.name)) {
    faults.fail(fault->message + " [in " + task.name + "]", fault->is_sticky);
  }
  return !faults.is_lost() && !faults.has_failed();
}

void run_isolated(const Task& task) {
  // Neither the Python modes nor the autocast of whichever thread happens to wait may reach in.
  c10::InferenceMode inference(true);
  c10::impl::ExcludeDispatchKeyGuard no_python(c10::DispatchKeySet(
      {c10::DispatchKey::Python,
       c10::DispatchKey::PythonTLSSnapshot,
       c10::DispatchKey::PythonDispatcher}));
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  task.run();
}

}  // namespace

void raise_device_error(ErrorCode code, const std::string& message) {
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int>(code), message);
}

void Faults::inject(Fault fault) {
  std::lock_guard lock(mutex_);
  injected_.push_back(std::move(fault));
  has_injected_ = true;
}

std::optional<Fault> Faults::take(const std::string& kind, const std::string& op) {
  if (!has_injected_) {
    return std::nullopt;
  }
  std::lock_guard lock(mutex_);
  for (auto it = injected_.begin(); it != injected_.end(); ++it) {
    if (it->kind != kind || (!it->op.empty() && it->op != op)) {
      continue;
    }
    if (it->after > 0) {
      it->after--;
      continue;
    }
    Fault due = *it;
    if (--it->times == 0) {
      injected_.erase(it);
      has_injected_ = !injected_.empty();
    }
    return due;
  }
  return std::nullopt;
}

void Faults::fail(const std::string& message, bool is_sticky) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = message;
    is_sticky_ = is_sticky;
    is_reported_ = false;
  }
}

bool Faults::has_failed() {
  std::lock_guard lock(mutex_);
  return !failure_.empty();
}

void Faults::raise_failure(c10::DeviceIndex index) {
  if (is_lost_) {
    raise_device_error(ErrorCode::kLost, name_of(index) + ": device lost");
  }
  std::string message;
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      return;
    }
    message = failure_;
    is_reported_ = true;
    if (!is_sticky_) {
      failure_.clear();
    }
  }
  raise_device_error(ErrorCode::kFailed, name_of(index) + ": asynchronous error: " + message);
}

void Faults::raise_reported_failure(c10::DeviceIndex index) {
  if (is_lost_) {
    raise_device_error(ErrorCode::kLost, name_of(index) + ": device lost");
  }
  std::string message;
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty() || !is_reported_) {
      return;
    }
    message = failure_;
  }
  raise_device_error(
      ErrorCode::kFailed, name_of(index) + ": " + message + " (sticky: the device must be reset)");
}

void Faults::reset() {
  std::lock_guard lock(mutex_);
  is_lost_ = false;
  is_hung_ = false;
  has_injected_ = false;
  injected_.clear();
  failure_.clear();
}

void run_under_faults(Device& device, const Task& task) {
  if (device.faults.is_lost() || (task.is_kernel && !may_begin(device, task))) {
    return;
  }
  try {
    run_isolated(task);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    device.faults.fail("failure in " + task.name + ": " + what.substr(0, what.find('\n')), true);
    return;
  }
  if (task.is_kernel) {
    if (auto fault = device.faults.take("corrupt", task.name)) {
      flip_bit(task, fault->bit);
    }
  }
}

void fail_device(Device& device, const std::string& message, bool is_sticky) {
  device.faults.fail(message, is_sticky);
}

}  // namespace dougong_sim
