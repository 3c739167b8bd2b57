#include "mtrain/recipe/foreign_names.h"

#include <cctype>
#include <string>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// The setting at a path, in any component of its section; null: none.
const FieldSpec* find_setting(const SchemaCatalog& catalog, std::string_view path) {
  const size_t dot = path.find('.');
  for (const Schema* owner : catalog.all_owners(path.substr(0, dot)))
    for (const FieldSpec& spec : owner->fields)
      if (spec.path == path.substr(dot + 1)) return &spec;
  return nullptr;
}

/// The spelling of the table: lora_r for the command-line option LoRA-R.
std::string plain(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Lower case without separators: mistral7b, mistralforcausallm.
std::string folded(std::string_view name) {
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The model family of a name: the family's name, a model of it (mistral7b), or a prefix (qwen: the
/// first match).
const HfFamily* meant_family(const std::string& name, const HfFamilies& families) {
  const HfFamily* found = nullptr;
  size_t longest = 0;
  for (const HfFamily& family : families.all()) {
    const std::string type = folded(family.model_type);
    if (type == name) return &family;
    for (std::string_view architecture : family.architectures)
      if (folded(architecture) == name) return &family;
    const size_t common = name.starts_with(type)                       ? type.size()
                          : name.size() >= 3 && type.starts_with(name) ? 1
                                                                       : 0;
    if (common > longest) found = &family, longest = common;
  }
  return found;
}

/// "true is fp32, false is bf16" of ddp.grads_dtype: "ddp.grads_dtype=fp32 for true,
/// ddp.grads_dtype=bf16 for false"; empty where `how` has another form.
std::string with_values(std::string_view setting, std::string_view how) {
  std::string out;
  while (!how.empty()) {
    const size_t is = how.find(" is ");
    if (is == std::string_view::npos || how.substr(0, is).find(' ') != std::string_view::npos)
      return {};
    const std::string_view theirs = how.substr(0, is);
    how.remove_prefix(is + 4);
    const size_t end = how.starts_with('[') ? how.find(']') + 1 : how.find(',');
    const std::string_view ours = how.substr(0, end);
    if (ours.empty() || (ours[0] != '[' && ours.find(' ') != std::string_view::npos)) return {};
    out += cat(out.empty() ? "" : ", ", setting, '=', ours, " for ", theirs);
    how.remove_prefix(ours.size());
    if (how.starts_with(", ")) how.remove_prefix(2);
  }
  return out;
}

std::string help_of(const ForeignName& row, const SchemaCatalog& catalog) {
  const std::string origin = cat(" (", row.name, " is a name of ", row.trainers, ")");
  if (row.setting.empty()) return cat("leave it out: ", row.how, origin);
  const FieldSpec* spec = find_setting(catalog, row.setting);
  if (!spec) return {};  // belongs to a plugin that is not installed
  const bool lacking = !spec->needs.empty() && spec->needs_values.empty();
  const std::string values = lacking ? "" : with_values(row.setting, row.how);
  if (!values.empty()) return cat("use ", values, origin);
  return cat(lacking ? "the setting would be " : "use ", row.setting, row.how.empty() ? "" : ": ",
             row.how, lacking ? cat("; it needs ", spec->needs, ", not implemented yet") : "",
             origin);
}

/// profiling.enabled: the type of a section chooses whether it does anything.
std::string switch_help(std::string_view path, const SchemaCatalog& catalog) {
  for (std::string_view last : {".enabled", ".enable"}) {
    if (!path.ends_with(last)) continue;
    const std::string type = cat(path.substr(0, path.size() - last.size()), ".type");
    if (const FieldSpec* spec = find_setting(catalog, type); spec && !spec->choices.empty())
      return cat("choose ", type, ": ", join(spec->choices, ", "));
  }
  return {};
}

}  // namespace

const ForeignName* find_foreign_name(std::string_view name) {
  const std::string wanted = plain(name);
  for (const ForeignName& row : foreign_names())
    if (row.name == wanted) return &row;
  return nullptr;
}

std::string foreign_name_help(std::string_view path, const SchemaCatalog& catalog) {
  // optimizer.name=adamw, tokenizer._target_: the component of a section is its type.
  for (std::string_view last : {".name", ".kind", ".class", "._target_"})
    if (path.ends_with(last))
      if (const std::string type = cat(path.substr(0, path.size() - last.size()), ".type");
          find_setting(catalog, type))
        return cat("use ", type, ", which names the component");
  // try the last part first: fp16.enabled means fp16
  for (std::string_view name = path;;) {
    const size_t dot = name.rfind('.');
    const ForeignName* row =
        find_foreign_name(dot == std::string_view::npos ? name : name.substr(dot + 1));
    if (row)
      return row->setting == name
                 ? ""
                 : help_of(
                       *row,
                       catalog);  // it is a setting of a component that the recipe does not choose
    if (dot == std::string_view::npos) return switch_help(path, catalog);
    name = name.substr(0, dot);
  }
}

std::string foreign_model_help(std::string_view name, const HfFamilies& families,
                               const PluginSchema& schema_of) {
  const HfFamily* family = meant_family(folded(name), families);
  if (!family) return {};
  const std::string &type = family->model_type, &plugin = family->plugin;
  if (const std::string lacks = lacking_part(*family, schema_of(plugin)); !lacks.empty())
    return cat(type, " is not supported; not implemented: ", lacks);
  return cat("write ", plugin, type == plugin ? "" : cat(", which implements ", type),
             "; for trained weights model.init_from=DIR, a Hugging Face folder");
}

}  // namespace mtrain
