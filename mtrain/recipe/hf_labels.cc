#include "mtrain/recipe/hf_labels.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/nn/score_head.h"

namespace mtrain {
namespace hf {

bool has_scores(const Json& config, const HfFamily& family) {
  const std::string architecture = architecture_of(config);
  return !architecture.empty() &&
         (architecture == family.classification || architecture == family.token_classification);
}

void take_labels(const Json& config, const HfFamily& family, HfFolderConfig& out) {
  constexpr int64_t kDefault = 2;  // of transformers
  if (!has_scores(config, family)) return;
  const Json names = config.value("id2label", Json()), number = config.value("num_labels", Json());
  const bool named = names.is_object() && !names.empty(), given = number.is_number_integer();
  const int64_t count = named   ? static_cast<int64_t>(names.size())
                        : given ? number.get<int64_t>()
                                : kDefault;
  out.settings.push_back({.path = cat("model.", kLabelsSetting),
                          .theirs = named ? "id2label" : "num_labels",
                          .value = Node::integer(count),
                          .omitted = !named && !given});
  const bool tokens = architecture_of(config) == family.token_classification;
  out.settings.push_back({.path = cat("model.", kLabelsOfSetting),
                          .theirs = "architectures",
                          .value = Node::string(tokens ? "token" : "sequence")});
  if (tokens) return;  // transformers does not read problem_type there
  const Json problem = config.value("problem_type", Json());
  const bool single = problem.is_null() || problem == "single_label_classification",
             reward = problem == "regression" && count == 1;
  if (single || reward) return;
  out.refused.push_back(
      {.key = "problem_type",
       .what = cat("problem_type is ", problem.dump(),
                   "; mtrain supports single-label classification "
                   "(single_label_classification), and a single score as a reward"),
       .fix = "if the labels exclude each other, set problem_type to null in config.json"});
}

void write_labels(Json& config, const Json& source, size_t count,
                  const std::vector<std::string>& names) {
  if (source.contains("problem_type")) config["problem_type"] = source["problem_type"];
  const bool own = names.size() == count, kept = source.contains("id2label") &&
                                                 source["id2label"].is_object() &&
                                                 source["id2label"].size() == count;
  if (!own && kept) {
    for (const char* key : {"id2label", "label2id"})
      if (source.contains(key)) config[key] = source[key];
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string name = own ? names[i] : cat("LABEL_", i);
    config["id2label"][std::to_string(i)] = name;
    config["label2id"][name] = i;
  }
}

std::string unexpressed_scores(const HfFamily& family, const HfModel& model) {
  const bool tokens = model.token_scores();
  if (!model.scores() || !(tokens ? family.token_classification : family.classification).empty())
    return {};
  return cat("model.", kLabelsSetting, "=", model.number(kLabelsSetting), ": ", family.model_type,
             " has no architecture with a head of scores of ", tokens ? "tokens" : "sequences");
}

}  // namespace hf

bool hf_has_scores(const std::string& config_json, const std::string& file_name,
                   const HfFamily& family) {
  return hf::has_scores(hf::parse(config_json, file_name), family);
}

std::vector<std::string> hf_label_names(const std::string& config_json,
                                        const std::string& file_name) {
  const hf::Json config = hf::parse(config_json, file_name);
  const hf::Json names = config.value("id2label", hf::Json());
  std::vector<std::string> out;
  bool own = false;
  for (size_t i = 0; names.is_object() && i < names.size(); ++i) {
    const auto name = names.find(std::to_string(i));
    if (name == names.end() || !name->is_string()) return {};
    out.push_back(name->get<std::string>());
    own |= out.back() != cat("LABEL_", i);
  }
  return own ? out : std::vector<std::string>();
}

}  // namespace mtrain
