#include "mtrain/base/failpoint.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

struct Armed {
  std::string site, action;
  int64_t nth = 1;
};

struct State {
  std::vector<Armed> armed;
  std::mutex mutex;
  std::condition_variable visited;
  std::map<std::string, int64_t, std::less<>> visits;
};

/// The errno of this name; 0 if none of these has it.
int errno_from(std::string_view text) {
  static const std::map<std::string_view, int> kNames = {
      {"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EACCES", EACCES}, {"EROFS", EROFS},
      {"EMFILE", EMFILE}, {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},   {"EINTR", EINTR},
      {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM}};
  auto found = kNames.find(text);
  return found == kNames.end() ? 0 : found->second;
}

bool is_action(std::string_view text) {
  if (text.starts_with("errno=")) return errno_from(text.substr(6)) != 0;
  if (text.starts_with("delay=") || text.starts_with("await=")) return text.size() > 6;
  return text == "kill" || text == "stop" || text == "throw" || text == "short" || text == "nan";
}

/// A misspelled fault would make a test pass that injects nothing, so it is refused.
Armed parse(const std::string& item) {
  auto part = split(item, ':');
  Armed armed{.site = part[0], .action = part.size() > 2 ? part[2] : "kill"};
  char* end = nullptr;
  if (part.size() > 1) armed.nth = std::strtoll(part[1].c_str(), &end, 10);
  if (armed.site.empty() || part.size() > 3 || armed.nth < 0 ||
      (end && (*end || end == part[1].c_str())) || !is_action(armed.action))
    throw Error(
        ErrorClass::usage,
        cat("MTRAIN_FAULT: '", item, "' is not SITE[:NTH[:ACTION]] with an action of kill, ",
            "stop, throw, short, nan, delay=MS, await=SITE/N, errno=NAME"));
  return armed;
}

State* make_state() {
  const char* spec = std::getenv("MTRAIN_FAULT");
  if (!spec || !*spec) return nullptr;
  auto state = std::make_unique<State>();
  for (const auto& item : split(spec, ',')) state->armed.push_back(parse(item));
  return state.release();  // lives until the process exits
}

State* state() {
  static State* const kState = make_state();
  return kState;
}

/// "SITE/N": waits until the site has been visited N times.
void await_visits(State& s, const std::string& what) {
  size_t slash = what.rfind('/');
  const std::string site = what.substr(0, slash);
  const int64_t wanted =
      slash == std::string::npos ? 1 : std::strtoll(what.c_str() + slash + 1, nullptr, 10);
  std::unique_lock lock(s.mutex);
  auto visits = [&] {
    auto at = s.visits.find(site);
    return at == s.visits.end() ? 0 : at->second;
  };
  if (!s.visited.wait_for(lock, std::chrono::minutes(10), [&] { return visits() >= wanted; }))
    throw Error(ErrorClass::io, cat("MTRAIN_FAULT=…:await=", what, ": wanted ", wanted,
                                    " visits of ", site, " within ten minutes, got ", visits()));
}

}  // namespace

Fault failpoint(std::string_view site) {
  State* s = state();
  if (!s) [[likely]]
    return {};
  int64_t visit;
  {
    std::lock_guard lock(s->mutex);
    visit = ++s->visits[std::string(site)];
  }
  s->visited.notify_all();
  for (const auto& armed : s->armed) {
    if (armed.site != site || (armed.nth != 0 && armed.nth != visit)) continue;
    std::string_view action = armed.action;
    if (action == "kill") std::raise(SIGKILL);
    if (action == "stop") std::raise(SIGSTOP);
    if (action == "throw") throw Error(ErrorClass::io, cat("fault injected at ", site));
    if (action == "short") return {FaultAction::short_write, 0};
    if (action == "nan") return {FaultAction::nan, 0};
    if (action.starts_with("delay=")) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::strtoll(armed.action.c_str() + 6, nullptr, 10)));
    } else if (action.starts_with("await=")) {
      await_visits(*s, armed.action.substr(6));
    } else if (action.starts_with("errno=")) {
      return {FaultAction::fail_errno, errno_from(action.substr(6))};
    }
  }
  return {};
}

std::vector<std::string> failpoint_visits() {
  std::vector<std::string> out;
  if (State* s = state()) {
    std::lock_guard lock(s->mutex);
    for (const auto& [site, count] : s->visits) out.push_back(cat(site, " ", count));
  }
  return out;
}

}  // namespace mtrain
