#include "mtrain/data/gpt_source.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/data/permutation.h"

namespace mtrain {

GptSource::GptSource(std::shared_ptr<const IndexedFile> file, GptIndex index,
                     GptSourceConfig config)
    : file_(std::move(file)), index_(std::move(index)), config_(std::move(config)) {
  bool needs_eod =
      config_.reset_position_ids || config_.reset_attention_mask || config_.eod_mask_loss;
  MT_CHECK(config_.eod || !needs_eod, "no end-of-document id");
  MT_CHECK(config_.extra_tokens == 1 || !config_.fim,
           "fill-in-the-middle needs extra_tokens = 1: it rearranges texts with their last target");
  MT_CHECK_EQ(index_.samples.size(), index_.shuffle.size() + 1);
}

void GptSource::get(int64_t index, Sample& out) const {
  const auto seq = static_cast<size_t>(config_.seq_length);
  MT_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  MT_CHECK(out.tokens.size() == seq && out.targets.size() == seq && out.positions.size() == seq,
           "sample of ", seq);
  const size_t sample = index_.shuffle[static_cast<size_t>(index)];
  const int64_t count = copy_tokens(index_.samples[sample], index_.samples[sample + 1], out);
  if (config_.fim) rearrange(sample, count, out);
  std::copy(out.tokens.begin() + 1, out.tokens.end(),
            out.targets.begin());  // the last target is already set
  if (count <
      config_.seq_length + 1) {  // no extra token; or the data ended: only with drop_last off
    auto last =
        static_cast<size_t>(std::max<int64_t>(count - 1, 0));  // its next token is not known
    std::fill(out.targets.begin() + static_cast<std::ptrdiff_t>(last), out.targets.end(),
              kIgnoredTarget);
  }
  std::iota(out.positions.begin(), out.positions.end(), 0);
  out.starts.assign(1, 0);
  if (config_.reset_position_ids || config_.reset_attention_mask || config_.eod_mask_loss)
    mark_documents(out);
  for (auto i = static_cast<size_t>(count); i < seq; ++i) out.tokens[i] = 0;  // any valid id
  out.padding = std::max<int64_t>(0, config_.seq_length - count);
}

std::string GptSource::order() const {
  return cat(counted(index_.num_epochs, "epoch"),
             index_.separate_last_epoch ? ", the last one shuffled by itself" : "");
}

/// Writes the first seq_length tokens to out.tokens (fills the rest with -1) and the next token to
/// the end of out.targets.
int64_t GptSource::copy_tokens(SampleStart begin, SampleStart end, Sample& out) const {
  const auto seq = static_cast<size_t>(config_.seq_length);
  size_t filled = 0;
  for (uint32_t position = begin.position; position <= end.position; ++position) {
    const int32_t sequence = index_.documents[position];
    const int64_t from = position == begin.position ? begin.offset : 0;
    const int64_t to = position == end.position ? int64_t{end.offset} + config_.extra_tokens
                                                : int64_t{file_->length(sequence)};
    const auto count = static_cast<size_t>(std::max<int64_t>(to - from, 0));
    MT_CHECK(filled + count <= seq + 1, "a sample of ", filled + count, " tokens");
    const size_t inputs = std::min(count, seq - std::min(filled, seq));
    copy_part(sequence, from, out.tokens.subspan(std::min(filled, seq), inputs));
    if (inputs < count)
      copy_part(sequence, from + static_cast<int64_t>(inputs), out.targets.last(1));
    filled += count;
  }
  if (filled < seq)
    std::fill(out.tokens.begin() + static_cast<std::ptrdiff_t>(filled), out.tokens.end(), -1);
  return static_cast<int64_t>(filled);
}

void GptSource::copy_part(int32_t sequence, int64_t offset, std::span<int32_t> out) const {
  file_->read(sequence, offset, out);
  const auto limit = config_.vocab_size > 0
                         ? static_cast<uint32_t>(std::min<int64_t>(config_.vocab_size, INT32_MAX))
                         : uint32_t{INT32_MAX} + 1;
  uint32_t largest = 0;  // a negative id counts as a very large one
  for (int32_t id : out) largest = std::max(largest, static_cast<uint32_t>(id));
  if (largest < limit) return;
  auto bad = std::find_if(out.begin(), out.end(),
                          [limit](int32_t id) { return static_cast<uint32_t>(id) >= limit; });
  int64_t document = file_->document_of(sequence), position = offset + (bad - out.begin());
  for (int64_t s = file_->document_begin(document); s < sequence; ++s) position += file_->length(s);
  throw Error(ErrorClass::data,
              cat(bin_path(file_->prefix()).string(), ": document ", document, ", token ", position,
                  ": id ", *bad,
                  config_.vocab_size > 0 ? cat(" is outside the vocabulary of ", config_.vocab_size)
                                         : " is negative"),
              "the data was prepared with another tokenizer or is damaged: prepare it with the "
              "recipe's tokenizer");
}

void GptSource::rearrange(size_t sample, int64_t count, Sample& out) const {
  std::vector<int32_t> ids(out.tokens.begin(), out.tokens.end());
  ids.push_back(out.targets.back());
  config_.fim->apply(out.draw.value_or(sample), std::span(ids).first(static_cast<size_t>(count)));
  std::copy(ids.begin(), ids.end() - 1, out.tokens.begin());
  out.targets.back() = ids.back();
}

void GptSource::mark_documents(Sample& out) const {
  const auto seq = static_cast<int32_t>(out.tokens.size());
  int32_t begin = 0;
  for (int32_t i = 0; i < seq; ++i) {
    const auto at = static_cast<size_t>(i);
    if (config_.reset_position_ids) out.positions[at] = i - begin;
    if (out.tokens[at] != *config_.eod) continue;
    if (config_.eod_mask_loss) out.targets[at] = kIgnoredTarget;
    begin = i + 1;
    if (config_.reset_attention_mask && begin < seq) out.starts.push_back(begin);
  }
}

EpochSource::EpochSource(std::unique_ptr<SampleSource> epoch, int64_t num_samples, uint64_t seed,
                         std::string_view stream)
    : epoch_(std::move(epoch)), seed_(seed), stream_(name_key(stream)) {
  const int64_t count = epoch_->size();
  size_ = std::max<int64_t>(1, (num_samples + count - 1) / count) * count;
}

void EpochSource::get(int64_t index, Sample& out) const {
  MT_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  const int64_t count = epoch_->size();
  const Permutation order(count, seed_, stream_, static_cast<uint64_t>(index / count));
  out.draw = static_cast<uint64_t>(index);  // different in each epoch
  epoch_->get(order(index % count), out);
}

BlendSource::BlendSource(std::vector<std::unique_ptr<SampleSource>> sources, BlendIndex index)
    : sources_(std::move(sources)), index_(std::move(index)) {
  std::vector<int64_t> needed(sources_.size(), 0);
  for (size_t i = 0; i < index_.dataset.size(); ++i) {
    int64_t& most = needed.at(static_cast<size_t>(index_.dataset[i]));
    most = std::max(most, index_.sample[i] + 1);
  }
  for (size_t d = 0; d < sources_.size(); ++d) {
    const int64_t size = sources_[d] ? sources_[d]->size() : 0;
    MT_CHECK(needed[d] <= size, "the blend needs ", needed[d], " samples of dataset ", d,
             ", which has ", size);
  }
}

void BlendSource::get(int64_t index, Sample& out) const {
  MT_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto at = static_cast<size_t>(index);
  sources_[static_cast<size_t>(index_.dataset[at])]->get(index_.sample[at], out);
}

std::string BlendSource::order() const {
  std::vector<std::string> parts;
  for (const auto& source : sources_) {
    if (!source) continue;
    parts.push_back(source->order());
    if (parts.back().empty()) return {};
  }
  return join(parts, "; ");
}

}  // namespace mtrain
