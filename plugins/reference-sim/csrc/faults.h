// Faults that tests inject, and the error state of a device.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>

namespace dougong_sim {

struct Device;
struct Task;

// One injected fault, waiting for its moment.
struct Fault {
  std::string kind;  // error, lost, hang, slow, corrupt, oom, peer_dead
  std::string op;    // the task name it is aimed at; empty: any
  std::string message;
  int64_t after = 0;  // let this many matching ones pass first
  int64_t times = 1;  // then strike so often
  bool is_sticky = true;
  int64_t milliseconds = 0;  // slow: how long
  int64_t bit = 0;           // corrupt: which bit of the first output
};

// Error codes as torch.AcceleratorError carries them; the numbers are CUDA's, which people know.
enum class ErrorCode : int { kBusy = 46, kBadOrdinal = 101, kLost = 700, kFailed = 719 };

// All faults of one device. Thread-safe.
class Faults {
 public:
  void inject(Fault fault);
  // The fault of this kind that is due now for this task, if any; it is used up.
  std::optional<Fault> take(const std::string& kind, const std::string& op);

  // Records the first failure; later ones are lost, as on a real device.
  void fail(const std::string& message, bool is_sticky);
  bool has_failed();
  // Raises the recorded failure. A sticky one stays, and then also every launch raises it.
  void raise_failure(c10::DeviceIndex index);
  void raise_reported_failure(c10::DeviceIndex index);

  void lose() { is_lost_ = true; }
  bool is_lost() const { return is_lost_; }
  void hang() { is_hung_ = true; }
  void unhang() { is_hung_ = false; }
  bool is_hung() const { return is_hung_; }
  // Forgets failures, hang, loss and all injected faults.
  void reset();

 private:
  std::atomic<bool> is_lost_{false};
  std::atomic<bool> is_hung_{false};
  std::atomic<bool> has_injected_{false};  // spares the healthy device a lock per task
  std::mutex mutex_;
  std::list<Fault> injected_;
  std::string failure_;
  bool is_sticky_ = false;
  bool is_reported_ = false;
};

[[noreturn]] void raise_device_error(ErrorCode code, const std::string& message);

// Runs a task under the device's faults: it may be delayed, cancelled, struck or corrupted.
// Whatever it throws becomes a failure of the device; nothing leaves this function.
void run_under_faults(Device& device, const Task& task);

// For a collective backend: makes the device fail as a kernel would.
void fail_device(Device& device, const std::string& message, bool is_sticky);

}  // namespace dougong_sim
