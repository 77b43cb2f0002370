#include "streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "config.h"
#include "counters.h"
#include "device.h"

namespace dougong_sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr c10::StreamId kNumStreams = 32;  // beside the default one, per device
// A lazy queue that nobody waits for runs half of itself at this length, to bound memory.
constexpr size_t kLongestQueue = 4096;

// One mutex for all queues: tasks run outside it, so it is held for moments only.
std::mutex& queue_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Signalled when a task was queued, has run, or is waited for.
std::condition_variable& queues_changed() {
  static auto* changed = new std::condition_variable;
  return *changed;
}

thread_local std::array<c10::StreamId, kMaxDevices> current_stream_ids{};
thread_local Capture* capture = nullptr;
// A task that frees memory queues work in turn; it must not wait for it.
thread_local bool is_inside_task = false;

using Lock = std::unique_lock<std::mutex>;

// Runs the first task of the queue, unless there is none or one runs already.
bool run_first(Queue& queue, Lock& lock) {
  if (queue.is_running || queue.entries.empty()) {
    return false;
  }
  queue.is_running = true;
  TaskPtr task = std::move(queue.entries.front().task);
  queue.entries.pop_front();
  lock.unlock();
  const bool was_inside_task = std::exchange(is_inside_task, true);
  run_under_faults(queue.device, *task);
  task.reset();  // what it holds is released outside the lock
  is_inside_task = was_inside_task;
  lock.lock();
  queue.is_running = false;
  queue.done++;
  queues_changed().notify_all();
  return true;
}

bool is_work(const Queue& queue) {
  return !queue.entries.empty() && config().mode == Mode::kThread;
}

// A task may not start before it is old enough, unless somebody waits for it.
void sleep_until_due(Queue& queue, Lock& lock) {
  while (is_work(queue) && queue.wanted <= queue.done) {
    const auto due = queue.entries.front().submitted_at +
        std::chrono::microseconds(config().delay_us.load());
    if (Clock::now() >= due) {
      return;
    }
    queues_changed().wait_until(lock, due);
  }
}

[[noreturn]] void work_for_ever(Queue& queue) {
  Lock lock(queue_mutex());
  for (;;) {
    queues_changed().wait(lock, [&] { return is_work(queue); });
    sleep_until_due(queue, lock);
    if (is_work(queue)) {
      run_first(queue, lock);
    }
  }
}

void start_worker(Queue& queue) {
  if (!queue.has_worker) {
    queue.has_worker = true;
    std::thread(work_for_ever, std::ref(queue)).detach();
  }
}

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, index), id);
}

void count_launch() {
  static Counter& launches = counter("launches");
  launches++;
}

// Appends the tasks and gives the number of the last one. Whether they run now is the mode's say.
uint64_t enqueue(Queue& queue, const TaskPtr* tasks, size_t num_tasks) {
  const Mode mode = config().mode;
  const auto now = Clock::now();
  uint64_t number = 0;
  uint64_t run_up_to = 0;
  {
    std::lock_guard lock(queue_mutex());
    for (size_t i = 0; i < num_tasks; i++) {
      queue.entries.push_back({tasks[i], now});
    }
    number = queue.submitted += num_tasks;
    if (mode == Mode::kThread) {
      start_worker(queue);
      queues_changed().notify_all();
    } else if (mode == Mode::kEager) {
      run_up_to = number;
    } else if (queue.entries.size() > kLongestQueue) {
      run_up_to = number - kLongestQueue / 2;
    }
  }
  if (run_up_to != 0 && !is_inside_task) {
    wait_for(queue, run_up_to);
  }
  return number;
}

}  // namespace

Queue& queue_of(const c10::Stream& stream) {
  Device& owner = device(stream.device_index());
  std::lock_guard lock(queue_mutex());
  const auto id = static_cast<size_t>(stream.id());
  TORCH_CHECK(id < owner.queues.size(), "sim: there is no stream ", stream.id());
  return owner.queues[id];
}

c10::Stream current_stream(c10::DeviceIndex index) {
  device(index);
  return stream_of(index, current_stream_ids[index]);
}

Queue& current_queue(Device& device) {
  return queue_of(current_stream(device.index));
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const c10::Stream before = current_stream(stream.device_index());
  current_stream_ids[stream.device_index()] = stream.id();
  return before;
}

c10::Stream new_stream(Device& device) {
  static std::array<std::atomic<int64_t>, kMaxDevices> made{};
  const auto id = static_cast<c10::StreamId>(made[device.index]++ % kNumStreams + 1);
  std::lock_guard lock(queue_mutex());
  if (static_cast<size_t>(id) == device.queues.size()) {
    device.queues.emplace_back(device, id);
  }
  return stream_of(device.index, id);
}

uint64_t submit(Queue& queue, TaskPtr task) {
  if (capture != nullptr) {
    capture->tasks.push_back(std::move(task));
    return queue.submitted;
  }
  return submit_uncaptured(queue, std::move(task));
}

uint64_t submit_uncaptured(Queue& queue, TaskPtr task) {
  if (task->is_kernel) {
    count_launch();
  }
  return enqueue(queue, &task, 1);
}

void submit_graph(Queue& queue, const std::vector<TaskPtr>& tasks) {
  count_launch();
  enqueue(queue, tasks.data(), tasks.size());
}

void wait_for(Queue& queue, uint64_t number) {
  Lock lock(queue_mutex());
  if (number > queue.wanted) {
    queue.wanted = number;
    queues_changed().notify_all();
  }
  while (queue.done < number) {
    if (config().mode == Mode::kThread || !run_first(queue, lock)) {
      // Another thread runs it. The time limit is for a mode that changes meanwhile.
      queues_changed().wait_for(lock, std::chrono::milliseconds(50));
    }
  }
}

void poll(Queue& queue) {
  if (config().mode == Mode::kLazy) {
    Lock lock(queue_mutex());
    run_first(queue, lock);
  }
}

std::vector<Queue*> all_queues(Device& device) {
  std::lock_guard lock(queue_mutex());
  std::vector<Queue*> queues;
  for (Queue& queue : device.queues) {
    queues.push_back(&queue);
  }
  return queues;
}

int64_t pending_kernels(Device& device) {
  std::lock_guard lock(queue_mutex());
  int64_t pending = 0;
  for (const Queue& queue : device.queues) {
    for (const auto& entry : queue.entries) {
      pending += entry.task->is_kernel ? 1 : 0;
    }
  }
  return pending;
}

void drain(Device& device) {
  for (Queue* queue : all_queues(device)) {
    wait_for(*queue, queue->submitted);
  }
}

void quiet_workers() {
  config().mode = Mode::kLazy;
  Lock lock(queue_mutex());
  queues_changed().wait_for(lock, std::chrono::seconds(1), [] {
    for (int i = 0; i < device_count(); i++) {
      for (const Queue& queue : device(static_cast<c10::DeviceIndex>(i)).queues) {
        if (queue.is_running) {
          return false;
        }
      }
    }
    return true;
  });
}

void synchronize(Queue& queue) {
  check_usable(queue.device);
  refuse_in_capture("waiting for a stream");
  wait_for(queue, queue.submitted);
  queue.device.faults.raise_failure(queue.device.index);
}

void synchronize(Device& device) {
  check_usable(device);
  refuse_in_capture("waiting for the device");
  drain(device);
  device.faults.raise_failure(device.index);
}

Capture* current_capture() noexcept {
  return capture;
}

void set_current_capture(Capture* value) noexcept {
  capture = value;
}

void refuse_in_capture(const char* what) {
  TORCH_CHECK(capture == nullptr, "sim: ", what, " is not permitted while a graph is captured");
}

}  // namespace dougong_sim
