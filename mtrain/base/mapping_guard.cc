#include "mtrain/base/mapping_guard.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

struct Mapping {
  uintptr_t begin, end;
  std::string message;  // formatted in advance: the signal handler must not allocate
};

/// The handler may read this list at any time, so blocks are only added, and a slot is cleared
/// before its Mapping is deleted.
struct Block {
  std::array<std::atomic<const Mapping*>, 256> slots{};
  std::atomic<Block*> next{nullptr};
};

Block first_block;
std::mutex mutex;  // serializes writers
struct sigaction handled_before {};

template <class Visit>
void each_slot(Visit&& visit) {
  for (Block* block = &first_block; block; block = block->next.load(std::memory_order_acquire))
    for (auto& slot : block->slots)
      if (visit(slot)) return;
}

extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  each_slot([&](std::atomic<const Mapping*>& slot) {
    const Mapping* mapping = slot.load(std::memory_order_acquire);
    if (!mapping || at < mapping->begin || at >= mapping->end) return false;
    for (std::string_view rest = mapping->message; !rest.empty();) {
      pollfd wait{.fd = 2, .events = POLLOUT, .revents = 0};
      if (::poll(&wait, 1, 0) == 0) break;  // the pipe is full
      ssize_t got = ::write(2, rest.data(), rest.size());
      if (got < 0 && errno != EINTR) break;
      if (got > 0) rest.remove_prefix(static_cast<size_t>(got));
    }
    _exit(static_cast<int>(ErrorClass::io));
  });
  sigaction(SIGBUS, &handled_before,
            nullptr);  // the instruction runs again and raises the signal for the previous handler
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &handled_before);
}

}  // namespace

void guard_mapping(const void* at, size_t bytes, const fs::path& path) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const auto begin = reinterpret_cast<uintptr_t>(at);
  auto mapping = std::make_unique<const Mapping>(Mapping{
      begin, begin + bytes,
      cat("mtrain: error[io]: cannot read ", printable(path.string()), ", which had ", bytes,
          " bytes when it was opened: it was made shorter, or its disk failed\n"
          "  help: restore the file, and let no program write to it while it is in use\n")});
  std::lock_guard lock(mutex);
  Block* last = &first_block;
  bool done = false;
  each_slot([&](std::atomic<const Mapping*>& slot) {
    if (!slot.load(std::memory_order_relaxed))
      slot.store(mapping.release(), std::memory_order_release), done = true;
    return done;
  });
  if (done) return;
  while (Block* next = last->next.load(std::memory_order_relaxed)) last = next;
  auto* added = new Block;  // lives until the process exits
  added->slots[0].store(mapping.release(), std::memory_order_relaxed);
  last->next.store(added, std::memory_order_release);
}

void unguard_mapping(const void* at) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  std::lock_guard lock(mutex);
  each_slot([&](std::atomic<const Mapping*>& slot) {
    const Mapping* mapping = slot.load(std::memory_order_relaxed);
    if (!mapping || mapping->begin != begin) return false;
    slot.store(nullptr, std::memory_order_release);
    delete mapping;
    return true;
  });
}

}  // namespace mtrain
