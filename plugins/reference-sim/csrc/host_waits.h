// Waits that the host did not ask for by name: `item()`, `nonzero()`, a copy to ordinary memory.
#pragma once

#include <string>

namespace dougong_sim {

// Called before such a wait. Inside `allow_sync(name)` it is counted as `allowed_sync:<name>`;
// elsewhere as `implicit_sync:<what>`, and then warned about or refused, as the policy says.
void note_implicit_sync(const std::string& what);

// The permission of the calling thread; the innermost name counts.
void push_allowed_sync(std::string name);
void pop_allowed_sync();

}  // namespace dougong_sim
