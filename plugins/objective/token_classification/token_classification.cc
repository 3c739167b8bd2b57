// The objective of classifiers of tokens: the cross entropy of their scores, as in Hugging Face's
// *ForTokenClassification, and, of names in the form B-PER, the figures of entities of seqeval
// (pypi.org/project/seqeval).
#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "mtrain/base/error.h"
#include "mtrain/data/dataset.h"
#include "mtrain/optim/objective.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct TokenClassificationConfig {
  double label_smoothing = 0;
  void bind(Fields& f) {
    f.objective(Dataset::kTokenClasses);
    f("label_smoothing", label_smoothing,
      "the share of the wanted probability that all classes get in equal parts")
        .min(0)
        .exclusive_max(1);
  }
};

/// A name of a class as a part of an entity: B, I, E or S of its type, or O.
struct Tag {
  char part = 'O';
  std::string type;
};

bool is_tag(const std::string& name) {
  return name == "O" || (name.size() > 2 && name[1] == '-' &&
                         std::string_view("BIES").find(name[0]) != std::string_view::npos);
}

bool is_one_of(char part, std::string_view parts) {
  return parts.find(part) != std::string_view::npos;
}

/// Whether an entity ends before `tag`.
bool ends(const Tag& previous, const Tag& tag) {
  if (is_one_of(previous.part, "ES")) return true;
  if (is_one_of(previous.part, "BI") && is_one_of(tag.part, "BSO")) return true;
  return previous.part != 'O' && previous.type != tag.type;
}

/// Whether an entity begins with `tag`.
bool begins(const Tag& previous, const Tag& tag) {
  if (is_one_of(tag.part, "BS")) return true;
  if (is_one_of(previous.part, "ESO") && is_one_of(tag.part, "EI")) return true;
  return tag.part != 'O' && previous.type != tag.type;
}

class TokenClassification final : public Objective {
 public:
  TokenClassification(const TokenClassificationConfig& config, ObjectiveContext& context)
      : config_(config) {
    const bool tags = std::ranges::all_of(context.labels, is_tag) &&
                      std::ranges::any_of(context.labels, [](const auto& l) { return l != "O"; });
    for (size_t i = 0; tags && i < context.labels.size(); ++i) {
      const std::string& name = context.labels[i];
      tags_.push_back({name[0], name == "O" ? "" : name.substr(2)});
    }
  }

  Records records() const override { return Records::tokens; }
  bool scores() const override { return true; }
  bool needs_reference() const override { return false; }
  std::vector<std::string> figures() const override { return {"accuracy"}; }
  std::vector<std::string> sequence_figures() const override {
    return tags_.empty() ? std::vector<std::string>()
                         : std::vector<std::string>{"precision", "recall", "f1"};
  }

  ClassValue of_class(std::span<const double> scores, int64_t number) const override {
    return class_cross_entropy(scores, number, config_.label_smoothing);
  }

  std::vector<Share> of_sequence(std::span<const int32_t> found,
                                 std::span<const int32_t> wanted) const override {
    const std::set<Entity> guessed = entities(found), real = entities(wanted);
    const auto right = static_cast<double>(
                   std::ranges::count_if(guessed, [&](const auto&e) { return real.contains(e); })),
               of_guessed = static_cast<double>(guessed.size()),
               of_real = static_cast<double>(real.size());
    return {{right, of_guessed}, {right, of_real}, {2 * right, of_guessed + of_real}};
  }

 private:
  using Entity = std::tuple<std::string, size_t, size_t>;  // type, first token, last token

  std::set<Entity> entities(std::span<const int32_t> classes) const {
    std::set<Entity> out;
    Tag previous;
    size_t begin = 0;
    for (size_t i = 0; i <= classes.size(); ++i) {
      const Tag tag = i < classes.size() ? tags_[static_cast<size_t>(classes[i])] : Tag();
      if (ends(previous, tag)) out.emplace(previous.type, begin, i - 1);
      if (begins(previous, tag)) begin = i;
      previous = tag;
    }
    return out;
  }

  const TokenClassificationConfig config_;
  std::vector<Tag> tags_;  // of the classes; empty: they have no names in the form B-PER
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("token_classification", "classes of tokens: the cross entropy of their scores") {
  using namespace mtrain;
  registry.add<Objective, TokenClassification, TokenClassificationConfig>(
      "token_classification", "classes of tokens: the cross entropy of their scores");
}
