// Named event counters: what the device was asked to do, for tests to look at.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace dougong_sim {

using Counter = std::atomic<int64_t>;

// The counter of this name; the reference stays valid for ever, so hot paths look it up once.
Counter& counter(const std::string& name);

inline void count(const std::string& name) {
  counter(name)++;
}

// All counters that are not zero.
std::map<std::string, int64_t> counter_values();
void clear_counters();

}  // namespace dougong_sim
