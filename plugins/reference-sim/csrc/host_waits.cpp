#include "host_waits.h"

#include <c10/util/Exception.h>

#include <vector>

#include "config.h"
#include "counters.h"
#include "streams.h"

namespace dougong_sim {
namespace {

thread_local std::vector<std::string> allowed;

}  // namespace

void note_implicit_sync(const std::string& what) {
  refuse_in_capture(("an implicit wait of the host (" + what + ")").c_str());
  if (!allowed.empty()) {
    count("allowed_sync:" + allowed.back());
    return;
  }
  count("implicit_sync:" + what);
  switch (config().sync_policy.load()) {
    case SyncPolicy::kCount:
      return;
    case SyncPolicy::kWarn:
      TORCH_WARN("sim: implicit wait of the host: ", what);
      return;
    case SyncPolicy::kForbid:
      TORCH_CHECK(
          false,
          "sim: implicit wait of the host is forbidden here: ",
          what,
          ". Keep the value on the device, or name the wait with allow_sync().");
  }
}

void push_allowed_sync(std::string name) {
  allowed.push_back(std::move(name));
}

void pop_allowed_sync() {
  TORCH_CHECK(!allowed.empty(), "sim: no allowed sync to end on this thread");
  allowed.pop_back();
}

}  // namespace dougong_sim
