#include "mtrain/train/hf_team.h"

#include <algorithm>
#include <exception>
#include <new>
#include <numeric>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorClass::io, "too little memory to write the folder",
            "free host memory on this machine"};
  } catch (const std::exception& error) {
    return {ErrorClass::io, error.what()};
  }
}

}  // namespace

void HfTeam::together(const std::function<void()>& part) const {
  std::optional<Error> failure;
  try {
    part();
  } catch (...) {
    failure = current_error();
  }
  if (!ranks_ && failure) throw *failure;
  if (!ranks_) return;
  std::vector<int32_t> classes(static_cast<size_t>(size()));
  int32_t own = failure ? failure->exit_status() : 0;
  ranks_->all_gather(std::span<int32_t>(&own, 1), std::span<int32_t>(classes));
  const auto failed = std::find_if(classes.begin(), classes.end(), [](int32_t c) { return c; });
  if (failed == classes.end()) return;
  const auto root = static_cast<int>(failed - classes.begin());
  const std::string message = broadcast(failure ? failure->message() : "", root),
                    hint = broadcast(failure ? failure->hint() : "", root);
  const int place = ranks_->world_ranks()[static_cast<size_t>(root)];
  throw Error(static_cast<ErrorClass>(*failed),
              place == 0 ? message : cat("rank ", place, ": ", message), hint);
}

std::string HfTeam::of_first(std::string text) const { return broadcast(std::move(text), 0); }

std::string HfTeam::broadcast(std::string text, int root) const {
  if (!ranks_) return text;
  auto size = std::ssize(text);
  ranks_->broadcast(std::span<int64_t>(&size, 1), root);
  text.resize(static_cast<size_t>(size));
  if (size > 0) ranks_->broadcast({text.data(), size, DType::u8}, root);
  return text;
}

std::vector<bool> HfTeam::of_each(bool mine) const {
  if (!ranks_) return {mine};
  int32_t own = mine ? 1 : 0;
  std::vector<int32_t> all(static_cast<size_t>(size()));
  ranks_->all_gather(std::span<int32_t>(&own, 1), std::span<int32_t>(all));
  return {all.begin(), all.end()};
}

std::vector<int> balanced(const std::vector<uint64_t>& sizes, const std::vector<bool>& able) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<uint64_t> load(able.size());
  std::vector<int> out(sizes.size());
  for (size_t i : order) {
    size_t least = 0;
    for (size_t rank = 1; rank < able.size(); ++rank)
      if (able[rank] && load[rank] < load[least]) least = rank;
    out[i] = static_cast<int>(least);
    load[least] += sizes[i];
  }
  return out;
}

}  // namespace mtrain
