#include "mtrain/base/plugin_call.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/fiber.h"

namespace mtrain {
namespace {

struct Entry {
  PluginCode code;
  uintptr_t begin = 0, end = 0;
  const Entry* next = nullptr;
};

// Entries are added and never removed: a signal handler may walk the list at any time.
std::atomic<const Entry*> entries{nullptr};

// Initial-exec: access never allocates, so a signal handler may read it.
__attribute__((tls_model("initial-exec"))) thread_local const PluginCall* current_call = nullptr;

/// Sets begin and end to the extent of the mapped file around `inside`; leaves them empty if there
/// is none.
void find_extent(Entry& entry, uintptr_t inside) {
  struct Search {
    uintptr_t inside;
    Entry& entry;
  } search{inside, entry};
  auto visit = [](dl_phdr_info* object, size_t, void* argument) {
    auto& wanted = *static_cast<Search*>(argument);
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (size_t i = 0; i < object->dlpi_phnum; ++i) {
      const auto& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      const uintptr_t from = object->dlpi_addr + segment.p_vaddr;
      begin = std::min(begin, from);
      end = std::max(end, from + segment.p_memsz);
    }
    if (wanted.inside < begin || wanted.inside >= end) return 0;
    wanted.entry.begin = begin;
    wanted.entry.end = end;
    return 1;
  };
  ::dl_iterate_phdr(visit, &search);
}

Error failure(const PluginCode& plugin, const char* call, std::string_view what) {
  return {ErrorClass::plugin, cat(plugin.title, " failed in ", call, ": ", printable(what, 500)),
          cat("this is a fault of the plugin: show this line to the author of ", plugin.path)};
}

bool out_of_resources(const std::system_error& error) {
  const auto& category = error.code().category();
  if (category != std::generic_category() && category != std::system_category()) return false;
  return error.code().value() == EAGAIN || error.code().value() == ENOMEM;
}

}  // namespace

void register_plugin_code(PluginCode code, const void* inside) {
  if (plugin_at(inside)) return;  // another host has already loaded it
  auto entry = std::make_unique<Entry>();
  entry->code = std::move(code);
  find_extent(*entry, reinterpret_cast<uintptr_t>(inside));
  entry->next = entries.load();
  while (!entries.compare_exchange_weak(entry->next, entry.get())) {
  }
  static_cast<void>(entry.release());  // lives as long as the plugin: until the process exits
}

const PluginCode* plugin_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Entry* entry = entries.load(); entry; entry = entry->next)
    if (at >= entry->begin && at < entry->end) return &entry->code;
  return nullptr;
}

const PluginCall* PluginCall::current() { return current_call; }

const PluginCall* PluginCall::exchange_current(const PluginCall* call) {
  return std::exchange(current_call, call);
}

void rethrow_from_plugin(const void* inside, const char* call) {
  const PluginCode* plugin = plugin_at(inside);
  if (!plugin) throw;
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const FiberUnwinding&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::system_error& error) {
    if (out_of_resources(error)) throw;
    throw failure(*plugin, call, error.what());
  } catch (const std::exception& error) {
    throw failure(*plugin, call, error.what());
  } catch (...) {
    throw failure(*plugin, call, "it threw something that is not a std::exception");
  }
}

}  // namespace mtrain
