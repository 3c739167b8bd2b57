#include "mtrain/nn/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mtrain {
namespace {

/// log of the sum of exp(lse) over the ranks, in their order.
float joint_lse(const std::vector<float>& all, size_t tokens, size_t token, size_t ranks) {
  float top = -std::numeric_limits<float>::infinity();
  for (size_t r = 0; r < ranks; ++r) top = std::max(top, all[r * tokens + token]);
  if (!std::isfinite(top)) return top;
  float sum = 0;
  for (size_t r = 0; r < ranks; ++r) sum += std::exp(all[r * tokens + token] - top);
  return top + std::log(sum);
}

void join(const Axis& axis, const Tensor& targets, const Tensor& loss, const Tensor& lse) {
  ExecutionContext& ctx = loss.context();
  if (!ctx.backend().computes()) return;  // planning: there are no values
  auto tokens = static_cast<size_t>(loss.numel()), ranks = static_cast<size_t>(axis.size());
  std::vector<float> own(tokens * 2), all(tokens * ranks);
  std::vector<int32_t> ids(tokens);
  ctx.download(lse, own.data());
  ctx.download(loss, own.data() + tokens);
  ctx.download(targets, ids.data());
  std::span<float> logits(own.data() + tokens,
                          tokens);  // minus the target's, of the one rank that has it
  axis.comm().all_gather(std::span<const float>(own.data(), tokens), std::span(all));
  axis.comm().all_reduce(logits);
  for (size_t t = 0; t < tokens; ++t) {
    own[t] = joint_lse(all, tokens, t, ranks);
    logits[t] = ids[t] < 0 ? 0 : own[t] + logits[t];
  }
  ctx.upload(lse, own.data());
  ctx.upload(loss, logits.data());
}

void join_sums(const Axis& axis, const Tensor& values) {
  ExecutionContext& ctx = values.context();
  if (!ctx.backend().computes()) return;
  std::vector<float> sums(static_cast<size_t>(values.numel()));
  ctx.download(values, sums.data());
  axis.comm().all_reduce(std::span(sums));
  ctx.upload(values, sums.data());
}

}  // namespace

VocabularyPart vocabulary_part(const Axis* axis, int64_t vocab) {
  if (!active_axis(axis)) return {};
  return {.first = even_piece(vocab, axis).global,
          .largest = (vocab + axis->size() - 1) / axis->size(),
          .join = [axis](const Tensor& targets, const Tensor& loss,
                         const Tensor& lse) { join(*axis, targets, loss, lse); },
          .add = [axis](const Tensor& values) { join_sums(*axis, values); }};
}

}  // namespace mtrain
