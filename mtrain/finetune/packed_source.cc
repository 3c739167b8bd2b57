#include "mtrain/finetune/packed_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/permutation.h"

namespace mtrain::finetune {

void ExampleStore::add(const TokenizedExample& example) {
  MT_CHECK(example.ids.size() >= 2 && example.ids.size() == example.trained.size(),
           "an example of ", example.ids.size());
  ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
  trained_.insert(trained_.end(), example.trained.begin(), example.trained.end());
  begin_.push_back(static_cast<int64_t>(ids_.size()));
}

std::span<const int32_t> ExampleStore::ids(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return std::span(ids_).subspan(static_cast<size_t>(begin_[at]),
                                 static_cast<size_t>(begin_[at + 1] - begin_[at]));
}

std::span<const uint8_t> ExampleStore::trained(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return std::span(trained_).subspan(static_cast<size_t>(begin_[at]),
                                     static_cast<size_t>(begin_[at + 1] - begin_[at]));
}

TokenizedExample scored_example(TokenizedExample example, int32_t target) {
  example.trained.assign(example.ids.size(), 0);
  example.ids.push_back(target);
  example.trained.push_back(1);
  return example;
}

size_t write_example(std::span<const int32_t> ids, std::span<const uint8_t> trained, size_t at,
                     Sample& out) {
  const size_t count = ids.size() - 1;
  MT_CHECK(at + count <= out.tokens.size(), "an example of ", count, " at ", at, " of ",
           out.tokens.size());
  out.starts.push_back(static_cast<int32_t>(at));
  for (size_t i = 0; i < count; ++i) {
    out.tokens[at + i] = ids[i];
    out.targets[at + i] = trained[i + 1] ? ids[i + 1] : kIgnoredTarget;
    out.positions[at + i] = static_cast<int32_t>(i);
  }
  return at + count;
}

void write_padding(size_t at, int32_t pad_id, Sample& out) {
  out.padding = static_cast<int64_t>(out.tokens.size() - at);
  if (at == out.tokens.size()) return;
  const auto offset = static_cast<std::ptrdiff_t>(at);
  out.starts.push_back(static_cast<int32_t>(at));
  std::fill(out.tokens.begin() + offset, out.tokens.end(), pad_id);
  std::fill(out.targets.begin() + offset, out.targets.end(), kIgnoredTarget);
  std::iota(out.positions.begin() + offset, out.positions.end(), 0);
}

std::string epochs_text(int64_t samples, int64_t per_epoch) {
  std::string text = shortest(
      std::round(100 * static_cast<double>(samples) / static_cast<double>(per_epoch)) / 100);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return cat(text, text == "1" ? " epoch" : " epochs");
}

int64_t SampleOrder::size(int64_t count) const {
  MT_CHECK(count > 0, "nothing to order");
  return num_samples == Dataset::kOneEpoch
             ? count
             : std::max<int64_t>(1, (num_samples + count - 1) / count) * count;
}

int64_t SampleOrder::item(int64_t index, int64_t count) const {
  const int64_t at = index % count;
  if (!shuffle_seed) return at;
  return Permutation(count, *shuffle_seed, name_key("finetune.order"),
                     static_cast<uint64_t>(index / count))(at);
}

PackedSource::PackedSource(std::shared_ptr<const ExampleStore> store,
                           std::shared_ptr<const Packs> packs, SampleOrder order, int32_t pad_id,
                           std::vector<bool> good, std::vector<float> margins)
    : store_(std::move(store)),
      packs_(std::move(packs)),
      order_(order),
      pad_id_(pad_id),
      size_(order.size(packs_->size())),
      good_(std::move(good)),
      margins_(std::move(margins)) {}

void PackedSource::get(int64_t index, Sample& out) const {
  MT_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  out.starts.clear();
  size_t at = 0;
  for (int32_t item : (*packs_)[order_.item(index, packs_->size())]) {
    at = write_example(store_->ids(item), store_->trained(item), at, out);
    if (!good_.empty()) out.good = good_[static_cast<size_t>(item)];
    if (!margins_.empty()) out.margin = margins_[static_cast<size_t>(item / 2)];
  }
  write_padding(at, pad_id_, out);
}

}  // namespace mtrain::finetune
