#include "mtrain/recipe/reference.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/plugin/stamp.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

/// Notes about a setting besides meaning, value and default.
std::vector<std::string> notes_of(const FieldSpec& spec) {
  std::vector<std::string> notes;
  if (!spec.example.empty()) notes.push_back("e.g. " + spec.example);
  if (spec.resume == ResumeClass::impossible) notes.emplace_back("fixed for a run");
  if (!spec.needs.empty()) {
    std::string values = spec.needs_values.empty() ? "" : join(spec.needs_values, ", ") + ": ";
    notes.push_back(cat(values, "needs ", spec.needs, ", not implemented yet"));
  }
  if (!spec.alternative.empty()) notes.push_back(cat("instead of ", spec.alternative));
  if (spec.secret) notes.emplace_back("secret: never saved or shown");
  if (!spec.renamed_from.empty()) notes.push_back("also known as " + join(spec.renamed_from, ", "));
  return notes;
}

/// Calls part(title, doc, schema, prefix) for each core section, followed by its components.
template <class Part>
void each_part(const SchemaCatalog& catalog, Part&& part) {
  for (const auto& section : catalog.sections()) {
    part(section.name, section.doc, section, section.name);
    std::string kind = catalog.kind_of(section.name);
    if (kind.empty()) continue;
    for (const auto& name : catalog.components(kind)) {
      const Schema* component = catalog.component(kind, name);
      part(cat(section.name, ": ", name), component->doc, *component, section.name);
    }
  }
}

std::string cell(std::string_view text) {
  return replace_all(replace_all(std::string(text), "|", "\\|"), "\n", " ");
}

std::string code(std::string_view text) { return text.empty() ? "" : cat("`", cell(text), "`"); }

}  // namespace

std::string reference_markdown(const SchemaCatalog& catalog) {
  std::string out =
      "# Settings\n\nAll settings of a recipe, by section. `mtrain schema --format markdown` "
      "writes this page; a test checks that it is current.\n`mtrain config explain KEY` shows one "
      "setting.\n\nWrite a setting in its section, or on the command line as "
      "`section.setting=value`. If a section has a `type`, the\nsettings of that component belong "
      "to the same section. A setting that is `fixed for a run` cannot change when a run "
      "resumes.\n";
  each_part(catalog, [&](const std::string& title, const std::string& doc, const Schema& schema,
                         const std::string& prefix) {
    bool component = title != prefix;
    out += cat(component ? "\n### " : "\n## ", title, "\n\n", doc,
               schema.needs.empty() ? "" : "; not implemented yet", ".\n");
    if (schema.fields.empty()) return;
    out += "\n| setting | value | default | meaning |\n|---|---|---|---|\n";
    for (const auto& spec : schema.fields) {
      std::string meaning = spec.doc;
      for (const auto& note : notes_of(spec)) meaning += "; " + note;
      std::string initial = spec.required ? "required" : code(spec.default_value);
      out += cat("| `", spec.path, "` | ", cell(describe(spec)), " | ", initial, " | ",
                 cell(meaning), " |\n");
    }
  });
  return out;
}

std::string reference_man_page(const SchemaCatalog& catalog) {
  auto plain = [](std::string_view text) {
    std::string escaped = replace_all(replace_all(std::string(text), "\\", "\\e"), "-", "\\-");
    return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
  };
  std::string out = cat(
      ".TH MTRAIN\\-RECIPE 5 \"\" \"mtrain ", MT_VERSION,
      "\" \"mtrain manual\"\n.SH NAME\nmtrain\\-recipe \\- the settings of a training recipe\n"
      ".SH DESCRIPTION\nA recipe is a YAML map of sections. Every setting can be changed on the "
      "command line as\n.IR section . setting = value .\n");
  each_part(catalog, [&](const std::string& title, const std::string& doc, const Schema& schema,
                         const std::string& prefix) {
    out += cat(title == prefix ? ".SH \"" : ".SS \"", plain(title), "\"\n", plain(doc), ".\n");
    for (const auto& spec : schema.fields) {
      out += cat(".TP\n.BR ", plain(prefix), ".", plain(spec.path), "\n", plain(spec.doc), ".\n",
                 plain(cat(describe(spec), spec.required ? "; required"
                                           : spec.default_value.empty()
                                               ? ""
                                               : cat("; default ", spec.default_value))),
                 ".\n");
      for (const auto& note : notes_of(spec)) out += plain(note) + ".\n";
    }
  });
  return out;
}

std::string rules_markdown() {
  std::string out =
      "# Rules between settings\n\nThese rules involve more than one setting. `mtrain check RECIPE "
      "[--world-size N] [--gpu TYPE]` checks a recipe against all of\nthem and suggests values "
      "that pass. A rule does not apply if the recipe lacks one of its settings, or if the rule "
      "needs a\nnumber of ranks or a GPU type that was not given. `mtrain schema --format rules` "
      "writes this page; a test checks that it is\ncurrent.\n\n| rule | shown at | where | must "
      "hold | because |\n|---|---|---|---|---|\n";
  for (const auto& rule : recipe_rules().rules()) {
    if (rule.unused) continue;
    out += cat("| ", rule.id, rule.severity == Severity::warning ? " (warning)" : "", " | `",
               rule.path, "` | ", code(rule.when), " | ", code(rule.must), " | ", cell(rule.why),
               " |\n");
  }
  out +=
      "\n## Settings without effect\n\nA setting of this table has an effect only where its "
      "condition holds. Elsewhere, a value that differs from the default is a warning\nif the "
      "recipe's own file or the command line sets it. A file's value is no warning if the command "
      "line sets a setting of the\ncondition, or if the file belongs to a config group.\n\n| rule "
      "| setting | has an effect where | because |\n|---|---|---|---|\n";
  for (const auto& rule : recipe_rules().rules())
    if (rule.unused)
      out += cat("| ", rule.id, " | `", rule.path, "` | ", code(rule.must), " | ", cell(rule.why),
                 " |\n");
  out += "\n## Names\n\nNames that stand for expressions:\n\n| name | value |\n|---|---|\n";
  for (const auto& definition : recipe_rules().definitions())
    out += cat("| `", definition.name, "` | ", code(definition.expression), " |\n");
  return out;
}

std::vector<std::string> undocumented(const SchemaCatalog& catalog) {
  std::vector<std::string> out;
  each_part(catalog, [&](const std::string& title, const std::string& doc, const Schema& schema,
                         const std::string& prefix) {
    if (doc.empty()) out.push_back(title);
    for (const auto& spec : schema.fields)
      if (spec.doc.empty()) out.push_back(cat(prefix, ".", spec.path, " of ", title));
  });
  return out;
}

}  // namespace mtrain
