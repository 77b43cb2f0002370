#include "counters.h"

#include <mutex>

namespace dougong_sim {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, Counter> counters;  // a map never moves its values
};

// Leaked, as all globals here: worker threads outlive the destructors of static objects.
Table& table() {
  static auto* table = new Table;
  return *table;
}

}  // namespace

Counter& counter(const std::string& name) {
  std::lock_guard lock(table().mutex);
  return table().counters[name];
}

std::map<std::string, int64_t> counter_values() {
  std::lock_guard lock(table().mutex);
  std::map<std::string, int64_t> values;
  for (const auto& [name, value] : table().counters) {
    if (value != 0) {
      values[name] = value;
    }
  }
  return values;
}

void clear_counters() {
  std::lock_guard lock(table().mutex);
  for (auto& entry : table().counters) {
    entry.second = 0;
  }
}

}  // namespace dougong_sim
