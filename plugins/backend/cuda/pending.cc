#include "pending.h"

#include <algorithm>
#include <utility>

namespace mtrain::cuda {

PendingWork::PendingWork(Launches launches, int adamw_batch, int norm_batch, size_t slots)
    : launches_(std::move(launches)),
      adamw_batch_(static_cast<size_t>(adamw_batch)),
      norm_batch_(static_cast<size_t>(norm_batch)),
      slots_(slots) {}

void PendingWork::add(const AdamWArgs& args) {
  if (!norms_.empty()) flush_norms();  // norms may read what the update changes
  bool alike = updates_.empty() || ((updates_[0].value == nullptr) == (args.value == nullptr) &&
                                    (!args.value || updates_[0].value_dtype == args.value_dtype));
  // Updates of one launch run concurrently: a second update of the same memory is the next launch.
  bool again = std::any_of(updates_.begin(), updates_.end(), [&](const AdamWArgs& u) {
    return args.param < u.param + u.count && u.param < args.param + args.count;
  });
  if (!alike || again) flush_updates();
  updates_.push_back(args);
  if (updates_.size() == adamw_batch_) flush_updates();
}

bool PendingWork::add(const SquaredNormArgs& args) {
  if (!updates_.empty()) flush_updates();
  if (owed_.size() + norms_.size() == slots_) return false;
  norms_.push_back(args);
  if (norms_.size() == norm_batch_) flush_norms();
  return true;
}

void PendingWork::flush() {
  flush_updates();
  flush_norms();
}

// Taken out first: a launch may allocate memory of the stream, which flushes again.
void PendingWork::flush_updates() {
  if (updates_.empty()) return;
  std::vector<AdamWArgs> list = std::exchange(updates_, {});
  launches_.adamw(list);
}

void PendingWork::flush_norms() {
  if (norms_.empty()) return;
  std::vector<SquaredNormArgs> list = std::exchange(norms_, {});
  size_t first = owed_.size();
  for (const SquaredNormArgs& a : list) owed_.push_back(a.out);
  launches_.norms(list, first);
}

void PendingWork::deliver(const double* slots) {
  for (size_t i = 0; i < owed_.size(); ++i) *owed_[i] = slots[i];
  owed_.clear();
}

}  // namespace mtrain::cuda
