#include "free_list.h"

#include <algorithm>

namespace dougong_sim {
namespace {

bool all_hold(const Fences& fences) {
  return std::all_of(
      fences.begin(), fences.end(), [](const Fence& fence) { return fence.holds(); });
}

}  // namespace

std::optional<FreeList::Block> FreeList::take(size_t size, const Queue* user) {
  const auto is_usable = [&](const auto& item) {
    const Entry& entry = item.second;
    return entry.size >= size &&
        std::all_of(entry.fences.begin(), entry.fences.end(), [user](const Fence& fence) {
             return fence.queue == user || fence.holds();
           });
  };
  const auto found = std::find_if(entries_.begin(), entries_.end(), is_usable);
  if (found == entries_.end()) {
    return std::nullopt;
  }
  const Block block{found->first, all_hold(found->second.fences)};
  Entry rest = std::move(found->second);
  entries_.erase(found);
  rest.size -= size;
  if (rest.size > 0) {
    entries_.emplace(block.offset + size, std::move(rest));
  }
  return block;
}

void FreeList::put(size_t offset, size_t size, Fences fences) {
  const auto entry = entries_.emplace(offset, Entry{size, std::move(fences)}).first;
  join_with_next(entry);
  if (entry != entries_.begin()) {
    join_with_next(std::prev(entry));
  }
}

void FreeList::join_idle() {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    while (join_with_next(entry)) {
    }
  }
}

size_t FreeList::move_to(FreeList& other, const Fences& fences) {
  size_t moved = 0;
  for (auto& [offset, entry] : entries_) {
    moved += entry.size;
    entry.fences.append(fences.begin(), fences.end());
    other.put(offset, entry.size, std::move(entry.fences));
  }
  entries_.clear();
  return moved;
}

bool FreeList::join_with_next(Entries::iterator entry) {
  const auto next = std::next(entry);
  if (next == entries_.end() || entry->first + entry->second.size != next->first ||
      !all_hold(entry->second.fences) || !all_hold(next->second.fences)) {
    return false;
  }
  entry->second.size += next->second.size;
  entry->second.fences.clear();
  entries_.erase(next);
  return true;
}

}  // namespace dougong_sim
