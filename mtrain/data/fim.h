// Fill in the middle (Bavarian et al. 2022, arXiv:2207.14255): a text is cut in three and written
// so that its middle comes last, behind what stands around it. What is cut where is Megatron's FIM
// dataset; the draws are functions of (seed, sample), so a sample is the same whenever it is asked
// for.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

class SampleDraws;

struct FimConfig {
  double rate = 0;  // share of texts that are rearranged
  double spm_rate =
      0;  // share of those written suffix, prefix, middle; the others: prefix, suffix, middle
  bool by_token = false;  // cut between tokens instead of characters; then nothing is encoded anew
  int32_t prefix = 0, middle = 0, suffix = 0, pad = 0;  // marks
  std::optional<int32_t> eod;                           // texts end there
  std::optional<int32_t>
      fragment;  // texts are cut there into fragments first (files of a repository)
  double fragment_rate =
      0;  // share of the fragments that are rearranged, in the share `rate` of texts that have any
  std::string no_prefix;  // texts that begin so stay as they are
};

/// Immutable; refers to its tokenizer; safe from any thread.
class MT_API FimTransform {
 public:
  FimTransform(const Tokenizer& tokenizer, FimConfig config, uint64_t seed)
      : tokenizer_(tokenizer), config_(std::move(config)), seed_(seed) {}
  /// Rearranges a sample's texts in place. What no longer fits is cut off at the end; what becomes
  /// too short is filled with pad.
  void apply(uint64_t sample, std::span<int32_t> ids) const;

 private:
  void text(std::span<const int32_t> ids, SampleDraws& draws, std::vector<int32_t>& out) const;
  void permute(std::span<const int32_t> ids, double rate, SampleDraws& draws,
               std::vector<int32_t>& out) const;
  const Tokenizer& tokenizer_;
  FimConfig config_;
  uint64_t seed_;
};

}  // namespace mtrain
