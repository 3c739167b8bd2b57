#include "mtrain/data/sample_check.h"

#include <algorithm>
#include <string>
#include <typeinfo>

#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/data/id_range.h"

namespace mtrain {
namespace {

class Check {
 public:
  Check(const SampleSource& source, int64_t index, int64_t length)
      : source_(source), index_(index), length_(length) {}

  /// `low`: 0, or the ignore value.
  void ids(const char* name, std::span<const int32_t> values, int64_t low, int64_t vocab) const {
    const int64_t limit = vocab > 0 ? vocab : int64_t{INT32_MAX} + 1;
    const int64_t at = first_outside(values, low, limit);
    if (at < 0) return;
    const int32_t value = values[static_cast<size_t>(at)];
    refuse(cat(name, "[", at, "] is ", value,
               vocab > 0 ? cat(", outside the vocabulary of ", vocab) : ", a negative id"),
           cat(name, " are ids from 0 to ", limit - 1,
               low == 0 ? "; padding has such an id, too"
                        : cat(", or kIgnoredTarget (", kIgnoredTarget,
                              ") where the loss leaves a position out")));
  }

  void positions(std::span<const int32_t> values) const {
    const int64_t at = first_outside(values, 0, length_);
    if (at < 0) return;
    refuse(cat("positions[", at, "] is ", values[static_cast<size_t>(at)], ", outside 0 to ",
               length_ - 1),
           "positions count the tokens of each sequence from 0, below model.seq_length");
  }

  void starts(const std::vector<int32_t>& starts) const {
    const char* hint = "starts has the first position of each sequence: 0, then ascending ones";
    if (starts.empty()) refuse("starts is empty", hint);
    if (starts.front() != 0) refuse(cat("starts[0] is ", starts.front(), ", not 0"), hint);
    for (size_t i = 1; i < starts.size(); ++i)
      if (starts[i] <= starts[i - 1] || starts[i] >= length_)
        refuse(cat("starts[", i, "] is ", starts[i], " after ", starts[i - 1], ", in a sample of ",
                   length_, " positions"),
               hint);
  }

  /// A target in the padding would be a token that experts do not process.
  void padding(const Sample& sample) const {
    if (sample.padding < 0 || sample.padding > length_)
      refuse(cat("padding is ", sample.padding, ", outside 0 to ", length_),
             "get() sets padding to the number of positions at the end that hold no text");
    const auto padded = sample.targets.last(static_cast<size_t>(sample.padding));
    const auto bad = std::ranges::find_if(padded, [](int32_t t) { return t != kIgnoredTarget; });
    if (bad != padded.end())
      refuse(cat("targets[", length_ - sample.padding + (bad - padded.begin()), "] is ", *bad,
                 ", and the last ", sample.padding, " positions are padding"),
             cat("targets of padded positions are kIgnoredTarget (", kIgnoredTarget, ")"));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    const PluginCode* plugin = plugin_at(&typeid(source_));
    throw Error(ErrorClass::plugin,
                cat(plugin ? plugin->title : std::string("the dataset"),
                    " filled a sample wrongly in get(): sample ", index_, ": ", what),
                hint);
  }

 private:
  const SampleSource& source_;
  int64_t index_, length_;
};

bool same(std::span<const int32_t> a, std::span<const int32_t> b) {
  return a.data() == b.data() && a.size() == b.size();
}

}  // namespace

void check_sample(const SampleSource& source, int64_t index, const Sample& sample,
                  const SampleBounds& bounds) {
  const auto length = static_cast<int64_t>(bounds.tokens.size());
  const Check check(source, index, length);
  if (!same(sample.tokens, bounds.tokens) || !same(sample.targets, bounds.targets) ||
      !same(sample.positions, bounds.positions))
    check.refuse("tokens, targets or positions refer to other memory",
                 "get() writes to the elements of these spans and does not replace the spans");
  check.ids("tokens", sample.tokens, 0, bounds.vocab_size);
  check.ids("targets", sample.targets, kIgnoredTarget, bounds.vocab_size);
  check.positions(sample.positions);
  check.starts(sample.starts);
  check.padding(sample);
}

}  // namespace mtrain
