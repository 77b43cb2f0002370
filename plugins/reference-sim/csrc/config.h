// What the simulation is told from outside: set once by `configure`, some of it changed by tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace dougong_sim {

// When queued work runs. Every mode keeps the order within a stream.
enum class Mode : int {
  kEager = 0,  // before the call that queued it returns
  kLazy = 1,   // when somebody waits for it, on the waiting thread: always in the same order
  kThread = 2  // on one worker thread per stream, not before `delay_us` have passed
};

// What happens when the host has to wait although nobody asked for it (item(), nonzero(), ...).
enum class SyncPolicy : int { kCount = 0, kWarn = 1, kForbid = 2 };

struct Config {
  std::atomic<Mode> mode{Mode::kLazy};
  std::atomic<int64_t> delay_us{0};
  std::atomic<SyncPolicy> sync_policy{SyncPolicy::kCount};
  std::atomic<bool> is_strict{true};
  bool is_exclusive = false;  // one process per physical device
  std::string state_dir;      // where the lock files of exclusive use lie
};

Config& config();

}  // namespace dougong_sim
