#include "mtrain/train/resume.h"

#include "mtrain/base/log.h"

namespace mtrain {
namespace {

struct Difference {
  std::string path, before, now;
  ResumeClass resume;
};

// Compares two resolved configurations and classes each difference by the schema of its owner.
class Comparison {
 public:
  Comparison(const ConfigContainer& now, SchemaCatalog catalog) : now_(now), catalog_(std::move(catalog)) {}

  std::vector<Difference> run(const Node& before) {
    walk("", before, now_.root());
    return std::move(differences_);
  }

 private:
  void walk(const std::string& path, const Node& before, const Node& now) {
    if (!now.is_map()) {
      if (!before.same_value(now)) differences_.push_back({path, brief(before), brief(now), resume_class(path)});
      return;
    }
    for (const auto& entry : now.entries()) {
      std::string at = join_path(path, entry.key);
      const Node* other = before.get(entry.key);
      if (other) walk(at, *other, entry.value);
      else if (entry.value.is_scalar())
        differences_.push_back({at, "absent", brief(entry.value), ResumeClass::changes_result});
    }
  }

  ResumeClass resume_class(const std::string& path) const {
    std::string section = path.substr(0, path.find('.')), rest = path.substr(std::min(path.size(), section.size() + 1));
    for (const Schema* schema :
         {catalog_.section(section), catalog_.component(catalog_.kind_of(section), now_.type_of(section))}) {
      if (!schema) continue;
      for (const auto& field : schema->fields)
        if (field.path == rest) return field.resume;
    }
    return ResumeClass::changes_result;
  }

  const ConfigContainer& now_;
  SchemaCatalog catalog_;
  std::vector<Difference> differences_;
};

}  // namespace

void check_resume(const Recipe& recipe, const PluginHost& plugins, const CheckpointMeta& before, const CheckpointMeta& now,
                  const std::string& checkpoint) {
  Recipe old = recipe_from_text(before.config, cat(checkpoint, " (its recipe)"), before.directory, {}, plugins);
  std::vector<Difference> differences = Comparison(recipe.config, schema_catalog(plugins)).run(old.config.root());
  std::vector<std::string> impossible;
  for (const auto& d : differences) {
    std::string text = cat(d.path, ": ", d.before, " -> ", d.now);
    if (d.resume == ResumeClass::impossible) impossible.push_back(text);
    else if (d.resume == ResumeClass::changes_result) log_warn("resuming with another setting: ", text);
  }
  if (before.state.seed != now.state.seed) log_warn("resuming with another seed: data order and dropout change");
  if (before.tokenizer != now.tokenizer) impossible.push_back(cat("tokenizer: ", before.tokenizer, " -> ", now.tokenizer));
  if (before.data != now.data) impossible.push_back(cat("dataset files: ", printable(before.data), " -> ", printable(now.data)));
  MT_USER_CHECK(impossible.empty(), ErrorClass::checkpoint,
                cat(checkpoint, " cannot be continued by this recipe:\n  ", join(impossible, "\n  ")),
                "undo these changes, or start a new run: run.dir=ANOTHER/FOLDER");
}

}  // namespace mtrain
