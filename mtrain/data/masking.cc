#include "mtrain/data/masking.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/sample_draws.h"

namespace mtrain {

namespace {

/// Tokens [begin, end) of a sample that are predicted together or not at all.
struct Unit {
  size_t begin, end;
};

std::string text_of(const Tokenizer& tokenizer, int32_t id) {
  try {
    return tokenizer.decode_bytes(std::span(&id, 1));
  } catch (const Error&) {  // an unused id
    return {};
  }
}

bool continues_word(std::string_view text) {
  return text.size() > 2 && text.starts_with("##") && text[2] != '#';
}

}  // namespace

std::vector<TokenKind> token_kinds(const Tokenizer& tokenizer) {
  std::vector<TokenKind> kinds(static_cast<size_t>(tokenizer.vocab_size()), TokenKind::special);
  for (size_t id = 0; id < kinds.size(); ++id) {
    const std::string text = text_of(tokenizer, static_cast<int32_t>(id));
    if (!text.empty())
      kinds[id] = continues_word(text) ? TokenKind::continuation : TokenKind::ordinary;
  }
  auto make_special = [&](std::optional<int32_t> id) {
    if (id && *id >= 0 && static_cast<size_t>(*id) < kinds.size())
      kinds[static_cast<size_t>(*id)] = TokenKind::special;
  };
  for (const auto& token : tokenizer.special_tokens()) make_special(token.id);
  for (auto id : {tokenizer.eod(), tokenizer.bos(), tokenizer.pad()}) make_special(id);
  return kinds;
}

Masking::Masking(MaskingConfig config, uint64_t seed, std::string_view stream)
    : config_(std::move(config)), seed_(seed), stream_(name_key(stream)) {
  for (size_t id = 0; id < config_.kinds.size(); ++id)
    if (config_.kinds[id] != TokenKind::special) ordinary_.push_back(static_cast<int32_t>(id));
  MT_CHECK(config_.random_share == 0 || !ordinary_.empty(), "no ordinary token to draw");
}

TokenKind Masking::kind(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < config_.kinds.size()
             ? config_.kinds[static_cast<size_t>(id)]
             : TokenKind::special;
}

void Masking::hide(int32_t& token, SampleDraws& draws) const {
  const double share = draws.share();
  if (share < config_.mask_share)
    token = config_.mask;
  else if (share < config_.mask_share + config_.random_share)
    token = ordinary_[draws.below(ordinary_.size())];
}

void Masking::apply(uint64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) const {
  MT_CHECK_EQ(tokens.size(), targets.size());
  std::fill(targets.begin(), targets.end(), kIgnoredTarget);
  std::vector<Unit> units;
  size_t candidates = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenKind now = kind(tokens[i]);
    if (now == TokenKind::special) continue;
    ++candidates;
    // A sample may begin inside a word, and a word does not continue after a special token.
    const bool goes_on = config_.whole_words && now == TokenKind::continuation && !units.empty() &&
                         units.back().end == i;
    if (goes_on)
      ++units.back().end;
    else
      units.push_back({i, i + 1});
  }
  if (units.empty()) return;
  const auto wanted = static_cast<size_t>(
      std::max<int64_t>(1, std::llround(config_.probability * static_cast<double>(candidates))));
  SampleDraws draws(seed_, stream_, sample);
  size_t chosen = 0;
  for (size_t i = 0; i < units.size() && chosen < wanted; ++i) {  // a partial shuffle
    std::swap(units[i], units[i + draws.below(units.size() - i)]);
    const size_t size = units[i].end - units[i].begin;
    if (chosen > 0 && chosen + size > wanted) continue;  // a shorter word may fit
    chosen += size;
    for (size_t at = units[i].begin; at < units[i].end; ++at) {
      targets[at] = tokens[at];
      hide(tokens[at], draws);
    }
  }
}

}  // namespace mtrain
