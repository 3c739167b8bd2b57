#include "mtrain/data/mismatched.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"

namespace mtrain {
namespace {

/// Positions of a micro-batch: of a sequence with targets, its begin, its first target, and the
/// position after its last target.
struct Answered {
  size_t begin = 0, first = 0, end = 0;
  size_t prompt() const { return first - begin; }
  size_t answer() const { return end - first; }
};

/// Of each row, the sequences with targets.
std::vector<std::vector<Answered>> answered_of(const MicroBatch& batch) {
  std::vector<std::vector<Answered>> out(static_cast<size_t>(batch.rows));
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const auto begin = static_cast<size_t>(batch.cu_seqlens[s]);
    Answered found{.begin = begin};
    for (size_t t = begin; t < static_cast<size_t>(batch.cu_seqlens[s + 1]); ++t) {
      if (batch.targets[t] == kIgnoredTarget) continue;
      if (found.end == 0) found.first = t;
      found.end = t + 1;
    }
    if (found.end > 0) out[begin / static_cast<size_t>(batch.seq_length)].push_back(found);
  }
  return out;
}

void require_alike(int64_t sample, size_t own, int64_t other, size_t before) {
  MT_USER_CHECK(own == before && own > 0, ErrorClass::data,
                cat("sample ", sample, " has ", counted(static_cast<int64_t>(own), "answer"),
                    ", and sample ", other, ", of which it gets mismatched answers, has ", before),
                "the objective compares with the answers of other records of the batch: either all "
                "records are pairs, or all have one answer (dataset=preference)");
}

/// The lengths of answers that fit after these prompts.
std::vector<size_t> fitting(const std::vector<Answered>& prompts,
                            const std::vector<Answered>& answers, size_t seq_length) {
  std::vector<size_t> out;
  size_t total = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    out.push_back(answers[i].answer());
    total += prompts[i].prompt() + out.back();
  }
  for (; total > seq_length; --total) --*std::ranges::max_element(out);
  return out;
}

/// Writes one sequence at position `at` of `out`; returns the position after it.
size_t write(const MicroBatch& own, const Answered& prompt, const MicroBatch& other,
             const Answered& answer, size_t length, size_t at, MicroBatch& out) {
  out.cu_seqlens.push_back(static_cast<int32_t>(at));
  const size_t asked = prompt.prompt(), count = asked + length;
  out.max_seqlen = std::max(out.max_seqlen, static_cast<int32_t>(count));
  for (size_t i = 0; i < count; ++i, ++at) {
    const size_t from = answer.first + i - asked;  // the target's place
    // The input at the first target is the prompt's last token.
    out.tokens[at] = i <= asked ? own.tokens[prompt.begin + i] : other.tokens[from];
    out.targets[at] = i < asked ? kIgnoredTarget : other.targets[from];
    out.positions[at] = static_cast<int32_t>(i);
  }
  return at;
}

void pad(const MicroBatch& own, size_t row, size_t at, MicroBatch& out) {
  const size_t end = (row + 1) * static_cast<size_t>(own.seq_length);
  out.padding.push_back(static_cast<int32_t>(end - at));
  if (at == end) return;
  out.cu_seqlens.push_back(static_cast<int32_t>(at));
  out.max_seqlen = std::max(out.max_seqlen, out.padding.back());
  // Any id of the vocabulary does, but the dataset's own is the one that its author expects.
  const int32_t id = own.padding.empty() || own.padding[row] == 0 ? 0 : own.tokens[end - 1];
  for (int32_t position = 0; at < end; ++at) {
    out.tokens[at] = id;
    out.targets[at] = kIgnoredTarget;
    out.positions[at] = position++;
  }
}

}  // namespace

void mismatch(const MicroBatch& own, const MicroBatch& before, MicroBatch& out) {
  out.rows = own.rows, out.seq_length = own.seq_length, out.first_sample = own.first_sample;
  for (auto* values : {&out.tokens, &out.targets, &out.positions})
    values->resize(own.tokens.size());
  out.cu_seqlens.clear(), out.padding.clear(), out.max_seqlen = 0;
  out.good = own.good, out.margins = own.margins;
  const auto mine = answered_of(own), theirs = answered_of(before);
  for (size_t row = 0; row < mine.size(); ++row) {
    const MicroBatch& other = row == 0 ? before : own;
    const std::vector<Answered>& answers = row == 0 ? theirs.back() : mine[row - 1];
    require_alike(own.first_sample + static_cast<int64_t>(row), mine[row].size(),
                  row == 0 ? before.first_sample : own.first_sample + static_cast<int64_t>(row) - 1,
                  answers.size());
    const auto lengths = fitting(mine[row], answers, static_cast<size_t>(own.seq_length));
    size_t at = row * static_cast<size_t>(own.seq_length);
    for (size_t i = 0; i < answers.size(); ++i)
      at = write(own, mine[row][i], other, answers[i], lengths[i], at, out);
    pad(own, row, at, out);
  }
  out.cu_seqlens.push_back(static_cast<int32_t>(out.tokens.size()));
  out.num_target_tokens = std::ssize(out.targets) - std::ranges::count(out.targets, kIgnoredTarget);
}

}  // namespace mtrain
