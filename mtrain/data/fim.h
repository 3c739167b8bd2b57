// Fill in the middle (Bavarian et al. 2022, arXiv:2207.14255): splits a text in three and moves the
// middle to the end, after prefix and suffix. The split follows Megatron's FIM dataset; the random
// draws are functions of (seed, sample), so a sample is always the same.
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
  double rate = 0;      // fraction of texts that are rearranged
  double spm_rate = 0;  // fraction of those in the order suffix, prefix, middle; the others:
                        // prefix, suffix, middle
  bool by_token =
      false;  // split between tokens instead of characters; then no text is encoded again
  int32_t prefix = 0, middle = 0, suffix = 0, pad = 0;  // ids of the special tokens
  std::optional<int32_t> eod;                           // ends a text
  std::optional<int32_t> fragment;  // splits a text into fragments first (files of a repository)
  double fragment_rate = 0;         // within a text with fragments that was chosen by `rate`: the
                                    // fraction of its fragments that are rearranged
  std::string no_prefix;            // texts with this beginning are not rearranged
};

/// Refers to its tokenizer, which must outlive it. Immutable; safe from any thread.
class MT_API FimTransform {
 public:
  FimTransform(const Tokenizer& tokenizer, FimConfig config, uint64_t seed)
      : tokenizer_(tokenizer), config_(std::move(config)), seed_(seed) {}
  /// Rearranges a sample's texts in place. A result that is too long is truncated at the end; one
  /// that is too short is padded.
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
