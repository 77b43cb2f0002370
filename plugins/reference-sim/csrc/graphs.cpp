// torch.accelerator.Graph: a graph is the list of tasks that one thread would have queued.
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>

#include "counters.h"
#include "device.h"
#include "memory.h"

namespace dougong_sim {
namespace {

// Pools by id, so that several graphs can share one.
struct Pools {
  std::mutex mutex;
  std::map<c10::MempoolId_t, std::weak_ptr<Pool>> by_id;
  c10::CaptureId_t next = 1;
};

Pools& pools() {
  static auto* pools = new Pools;
  return *pools;
}

}  // namespace

class SimGraph final : public at::GraphImplInterface {
 public:
  explicit SimGraph(const at::GraphImplArgs&) {}
  ~SimGraph() override {
    if (is_capturing()) {
      set_current_capture(nullptr);
    }
    forget();
  }

  void capture_begin(c10::MempoolId_t id, at::GraphCaptureMode) override {
    TORCH_CHECK(current_capture() == nullptr, "sim: this thread captures another graph already");
    TORCH_CHECK(tasks_.empty(), "sim: this graph holds a capture; reset it first");
    Device& owner = device(current_device());
    ensure_context(owner);
    synchronize(current_queue(owner));
    join_pool(id);
    capture_.emplace(Capture{owner, tasks_, pool_});
    set_current_capture(&*capture_);
  }
  void capture_end() override {
    TORCH_CHECK(is_capturing(), "sim: this thread does not capture this graph");
    set_current_capture(nullptr);
  }
  void instantiate() override {}
  void replay() override {
    TORCH_CHECK(capture_.has_value(), "sim: nothing was captured");
    refuse_in_capture("a replay");
    Device& owner = capture_->device;
    check_usable(owner);
    count("graph_replay");
    submit_graph(current_queue(owner), tasks_);
  }
  void reset() override {
    TORCH_CHECK(!is_capturing(), "sim: end the capture before you reset the graph");
    forget();
  }
  c10::MempoolId_t pool() const override { return pool_id_; }

  void enable_debug_mode() override {}
  // One task a line, in the order of their replay.
  void debug_dump(const std::string& path) override {
    std::ofstream file(path);
    for (const TaskPtr& task : tasks_) {
      file << task->name << '\n';
    }
  }

 private:
  bool is_capturing() const {
    return capture_.has_value() && current_capture() == &*capture_;
  }

  void join_pool(c10::MempoolId_t id) {
    std::lock_guard lock(pools().mutex);
    pool_id_ = id == c10::MempoolId_t{0, 0} ? c10::MempoolId_t{0, pools().next++} : id;
    std::weak_ptr<Pool>& known = pools().by_id[pool_id_];
    pool_ = known.lock();
    if (pool_ == nullptr) {
      pool_ = std::make_shared<Pool>();
      known = pool_;
    }
  }

  // The last graph of a pool gives its memory back.
  void forget() {
    tasks_.clear();
    if (!capture_.has_value()) {
      return;
    }
    Device& owner = capture_->device;
    capture_.reset();
    std::lock_guard lock(pools().mutex);
    if (pool_.use_count() == 1) {
      owner.memory->release(pool_);
      pools().by_id.erase(pool_id_);
    }
    pool_.reset();
  }

  std::vector<TaskPtr> tasks_;
  std::optional<Capture> capture_;  // kept after the capture: it names the device
  std::shared_ptr<Pool> pool_;
  c10::MempoolId_t pool_id_{0, 0};
};

}  // namespace dougong_sim

namespace at {
// The key is the device's name in capitals, so it must have been renamed before this is loaded.
using SimGraph = ::dougong_sim::SimGraph;
REGISTER_GRAPH_IMPL(SIM, SimGraph)
}  // namespace at
