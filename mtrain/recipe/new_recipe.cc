#include "mtrain/recipe/new_recipe.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/provenance.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/data/dataset.h"
#include "mtrain/nn/score_head.h"

namespace mtrain {
namespace {

constexpr std::string_view kModeline = "# yaml-language-server:";

/// A valid value to start with, for the user to change.
Node first_value(const FieldSpec& spec) {
  if (!spec.example.empty()) return parse_yaml(spec.example);
  if (!spec.choices.empty()) return Node::string(spec.choices.front());
  if (spec.type == FieldType::integer || spec.type == FieldType::number)
    return Node::integer(static_cast<int64_t>(spec.min.value_or(1)));
  return Node::string("???");
}

/// The components of a kind that this build has, without planned ones.
std::vector<std::string> built_components(const SchemaCatalog& catalog, const std::string& kind) {
  std::vector<std::string> names = catalog.components(kind);
  std::erase_if(names, [&](const std::string& name) {
    return !catalog.component(kind, name)->needs.empty();
  });
  return names;
}

/// Throws Error(config) for a component that does not exist or is not implemented.
const Schema& component_of(const SchemaCatalog& catalog, const char* kind,
                           const std::string& name) {
  const std::vector<std::string> built = built_components(catalog, kind);
  const std::string all = cat("there are: ", join(built, ", "));
  const Schema* found = catalog.component(kind, name);
  if (!found) {
    const auto near = nearest(name, built, 1);
    throw Error(ErrorClass::config, cat("there is no ", kind, " '", printable(name, 60), "'"),
                near.empty() ? all : cat("did you mean ", near[0], "?"));
  }
  MT_USER_CHECK(found->needs.empty(), ErrorClass::config,
                cat("the ", kind, " '", name, "' needs ", found->needs,
                    ", which mtrain does not implement yet"),
                all);
  return *found;
}

bool is_size(const FieldSpec& spec) {
  return spec.fact == Fact::layers || spec.fact == Fact::hidden_size || spec.fact == Fact::heads ||
         spec.fact == Fact::ffn_hidden_size;
}

std::string objective_of(const Schema& component) {
  return component.objective.empty() ? std::string(Dataset::kNextToken) : component.objective;
}

/// Whether an objective over answers or classes learns from the dataset, in place of the model's.
bool has_token_classes(const Schema& dataset) {
  return dataset.objective == Dataset::kTokenClasses;
}
bool has_classes(const Schema& dataset) {
  return dataset.objective == Dataset::kClasses || has_token_classes(dataset);
}
bool is_for_answers(const Schema& dataset) {
  return dataset.objective == Dataset::kPreferences || has_classes(dataset);
}
bool has_labels(const Schema& model) {
  return std::ranges::any_of(model.fields,
                             [](const FieldSpec& spec) { return spec.path == kLabelsSetting; });
}

/// The built datasets with samples for the model's objective, as the rule same-objective wants
/// them: gpt first, and those for any objective last.
std::vector<std::string> datasets_for(const Schema& model, const SchemaCatalog& catalog) {
  std::vector<std::string> own, any;
  for (const std::string& name : built_components(catalog, "dataset")) {
    const std::string objective = objective_of(*catalog.component("dataset", name));
    if (objective == Fields::kAnyObjective)
      any.push_back(name);
    else if (objective_of(model) == objective || objective_of(model) == Fields::kAnyObjective)
      own.insert(name == "gpt" ? own.begin() : own.end(), name);
  }
  own.insert(own.end(), any.begin(), any.end());
  return own;
}

/// The dataset of a new recipe: `wanted`, or the first that suits the model.
std::string dataset_of(const SchemaCatalog& catalog, const std::string& model,
                       const std::string& wanted) {
  const Schema& learner = component_of(catalog, "model", model);
  const std::vector<std::string> fitting = datasets_for(learner, catalog);
  if (wanted.empty()) {
    MT_USER_CHECK(
        !fitting.empty(), ErrorClass::config,
        cat("no dataset has samples for the objective '", objective_of(learner), "' of ", model),
        "`mtrain plugins ls` lists the datasets; dataset plugins are searched in "
        "--plugin-path");
    return fitting.front();
  }
  const Schema& dataset = component_of(catalog, "dataset", wanted);
  const std::string predicted = objective_of(learner);
  if (is_for_answers(dataset) &&
      (predicted == Dataset::kNextToken ||
       (has_token_classes(dataset) && predicted == Dataset::kMaskedToken)) &&
      (!has_classes(dataset) || has_labels(learner)))
    return wanted;
  MT_USER_CHECK(std::ranges::find(fitting, wanted) != fitting.end(), ErrorClass::config,
                cat(wanted, " has samples for the objective '", objective_of(dataset), "', but ",
                    model, " learns the objective '", objective_of(learner), "'"),
                cat("datasets for ", model, ": ", join(fitting, ", ")));
  return wanted;
}

}  // namespace

std::string with_modeline(const std::string& text, const std::string& schema) {
  std::string out = cat(kModeline, " $schema=", schema, "\n");
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (!std::string_view(text).substr(at).starts_with(kModeline)) out.append(text, at, end - at);
    at = end;
  }
  return out;
}

std::string new_recipe(const SchemaCatalog& catalog, const std::string& model,
                       const std::string& dataset) {
  const std::string fed = dataset_of(catalog, model, dataset);
  Node recipe = Node::map();
  std::map<std::string, std::string> docs;
  auto require = [&](const std::string& section, const Schema& schema, const std::string& type) {
    for (const auto& spec : schema.fields) {
      std::string path = section + "." + spec.path;
      if (!spec.required || recipe.find(path)) continue;
      recipe.set(path, spec.path == "type" ? Node::string(type) : first_value(spec));
      docs[path] = spec.doc;
    }
  };
  for (const auto& section : catalog.sections()) {
    const bool chosen = section.name == "model" || section.name == "dataset";
    const std::string& type = section.name == "model" ? model : fed;
    require(section.name, section, type);
    if (!chosen) continue;
    const Schema& component = component_of(catalog, section.name.c_str(), type);
    require(section.name, component, type);
    // The sizes decide the memory, so that the user sees them.
    for (const auto& spec : component.fields)
      if (section.name == "model" && is_size(spec) && !recipe.find("model." + spec.path)) {
        recipe.set("model." + spec.path, default_value(spec, model));
        docs["model." + spec.path] = spec.doc;
      }
    // A dataset of files has several ways to name them, so no single one is required.
    for (const auto& spec : component.fields)
      if (section.name == "dataset" && spec.path == "path" && spec.input_path) {
        recipe.set("dataset.path", first_value(spec));
        docs["dataset.path"] = spec.doc;
      }
  }
  if (has_classes(*catalog.component("dataset", fed))) {
    const bool tokens = has_token_classes(*catalog.component("dataset", fed));
    recipe.set("objective.type", Node::string(tokens ? "token_classification" : "classification"));
    if (tokens) recipe.set(cat("model.", kLabelsOfSetting), Node::string("token"));
    docs["objective.type"] = "what training minimizes over classes";
    recipe.set(cat("model.", kLabelsSetting), Node::integer(2));
    docs[cat("model.", kLabelsSetting)] = "the number of classes";
  } else if (is_for_answers(*catalog.component("dataset", fed))) {
    recipe.set("objective.type", Node::string("dpo"));
    docs["objective.type"] = "what training minimizes over answers";
  }
  // Masking needs special tokens, which the default tokenizer does not have.
  const std::vector<std::string> tokenizers = built_components(catalog, "tokenizer");
  const bool masks = objective_of(*catalog.component("dataset", fed)) == Dataset::kMaskedToken;
  if (masks && std::ranges::find(tokenizers, "hf") != tokenizers.end()) {
    recipe.set("tokenizer.type", Node::string("hf"));
    docs["tokenizer.type"] = "a tokenizer that has the special tokens of the dataset";
    require("tokenizer", *catalog.component("tokenizer", "hf"), "hf");
    if (recipe.find("tokenizer.path"))  // the setting's own example is a model without a mask token
      recipe.set("tokenizer.path", Node::string("/models/bert-base-uncased"));
  }
  // So does span corruption, whose spans begin with <extra_id_0> and so on.
  if (fed == "t5" || fed == "t5_seq2seq") {
    recipe.set("tokenizer.type", Node::string("byte"));
    recipe.set("tokenizer.extra_ids", Node::integer(100));
    docs["tokenizer.extra_ids"] = "the tokens <extra_id_0> to <extra_id_99> of the dataset";
  }
  WriteOptions options;
  options.comment = [&](const std::string& path, const Node&) { return docs[path]; };
  return "# One line about this recipe, which `mtrain recipes ls` shows.\n" +
         write_yaml(recipe, options);
}

}  // namespace mtrain
