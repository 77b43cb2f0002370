// Streams: queues of tasks, and how tasks come to run.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dougong_sim {

struct Device;
class Pool;

// One thing that a device does. Immutable: a captured task runs again at each replay.
struct Task {
  std::string name;  // "aten::mm", "c10d::allreduce": faults are aimed at it
  // Kernels are what faults strike, what `pending` counts and what an earlier failure cancels;
  // the rest (waits, event records, poison) keeps streams in order and always runs.
  bool is_kernel;
  std::function<void()> run;
  // Host address of its first output, for the fault that flips a bit there.
  void* output = nullptr;
  size_t output_bytes = 0;
};
using TaskPtr = std::shared_ptr<const Task>;

// One stream. `submitted` and `done` count its tasks: task number n has run when done >= n.
struct Queue {
  Queue(Device& device, c10::StreamId id) : device(device), id(id) {}

  struct Entry {
    TaskPtr task;
    std::chrono::steady_clock::time_point submitted_at;
  };

  Device& device;
  const c10::StreamId id;
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> done{0};

  // Guarded by the queue mutex.
  std::deque<Entry> entries;
  uint64_t wanted = 0;      // somebody waits for this one: no delay up to here
  bool is_running = false;  // a task of this queue runs now
  bool has_worker = false;

  bool is_idle() const { return done.load() >= submitted.load(); }
};

Queue& queue_of(const c10::Stream& stream);
// The queue of the calling thread's current stream on that device.
Queue& current_queue(Device& device);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream exchange_stream(const c10::Stream& stream);
// From a ring of 32 per device, as on the devices that this one imitates.
c10::Stream new_stream(Device& device);

// Puts the task behind all others of the queue and returns its number. While the calling thread
// captures a graph, the task goes into the graph instead.
uint64_t submit(Queue& queue, TaskPtr task);
// The same, but never into a graph.
uint64_t submit_uncaptured(Queue& queue, TaskPtr task);
// Puts all tasks of a captured graph on the queue, as one launch.
void submit_graph(Queue& queue, const std::vector<TaskPtr>& tasks);
inline TaskPtr make_task(std::string name, bool is_kernel, std::function<void()> run) {
  return std::make_shared<const Task>(Task{std::move(name), is_kernel, std::move(run)});
}

// Blocks until task `number` of the queue has run, whatever became of it. Raises nothing.
void wait_for(Queue& queue, uint64_t number);
// Runs one task if the mode is lazy, so that a host that polls makes progress.
void poll(Queue& queue);
std::vector<Queue*> all_queues(Device& device);
int64_t pending_kernels(Device& device);
// Lets everything that is queued run; used when the mode changes.
void drain(Device& device);

// At the end of the process: no task begins any more unless somebody waits for it, and those that
// run get a second to end, so that none runs while torch is being taken down.
void quiet_workers();

// What a host asks for by name. Wait, then raise the error that the device has met, if any.
void synchronize(Queue& queue);
void synchronize(Device& device);

// A capture under way on the calling thread.
struct Capture {
  Device& device;
  std::vector<TaskPtr>& tasks;
  std::shared_ptr<Pool> pool;
};
Capture* current_capture() noexcept;
void set_current_capture(Capture* capture) noexcept;
// Raises if the calling thread captures a graph: what cannot be replayed cannot be captured.
void refuse_in_capture(const char* what);

}  // namespace dougong_sim
