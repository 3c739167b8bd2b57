// Keys of every recipe and config group, spoilt in every way a hand can slip: each time the report
// must point at the line, and for a typo name the right key first.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

using namespace mtrain;

namespace {

std::string slurp(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

const PluginHost& plugins() {
  static const PluginHost kHost = testing::built_plugins();
  return kHost;
}

const SchemaCatalog& catalog() {
  static const SchemaCatalog kCatalog = schema_catalog(plugins());
  return kCatalog;
}

/// Errors that recipes of the tree have: a feature left out of this build, and the folder of
/// weights of recipes that fine-tune or distill, which is the user's to set.
bool is_standing(const Diagnostic& d) {
  return d.code == "not-built" || d.code == "rule peft-base" ||
         d.code == "rule distillation-teacher";
}

bool made_up(const ConfigContainer& config) {
  const Node* type = config.root().find("dataset.type");
  return type && type->is(NodeKind::string) && type->as_text() == "mock";
}

/// A copy of the recipes in which one file can be spoilt.
class Copy {
 public:
  Copy() : root_(fs::temp_directory_path() / cat("mtrain-mutations-", getpid())) {
    fs::copy(testing::source_root() / "recipes", root_, fs::copy_options::recursive);
  }
  ~Copy() { fs::remove_all(root_); }
  const fs::path& root() const { return root_; }
  Recipe read(const fs::path& recipe) const {
    RecipeRequest request{
        .recipe = recipe.string(), .text = {}, .directory = {}, .overrides = {}, .cluster = {}};
    // Made-up data has no path, and the others need one.
    Recipe read = read_recipe(request, plugins());
    if (recipe.stem() == "quickstart" || made_up(read.config)) return read;
    request.overrides.push_back({"++dataset.path=data/corpus", 2});
    return read_recipe(request, plugins());
  }
  /// Reads the recipe while `file` holds `text`.
  Recipe read_with(const fs::path& recipe, const fs::path& file, const std::string& text) const {
    std::string before = slurp(file);
    std::ofstream(file) << text;
    Recipe out = read(recipe);
    std::ofstream(file) << before;
    return out;
  }

 private:
  fs::path root_;
};

/// A key of a file, and where its parts stand in the text.
struct Key {
  std::string path, name;  // "model.layers", "layers"
  int line = 0;
  size_t key_at = 0, value_at = 0, value_end = 0;  // bytes; value_at 0: no scalar
  const FieldSpec* field = nullptr;
  bool shadowed = false;
};

size_t offset_of(const std::string& text, const Location& where) {
  size_t at = 0;
  for (int line = 1; line < where.line; ++line) at = text.find('\n', at) + 1;
  return at + static_cast<size_t>(where.column - 1);
}

/// The end of a scalar or flow list that begins at `at`.
size_t end_of_value(const std::string& text, size_t at) {
  if (text[at] == '[') return text.find(']', at) + 1;
  if (text[at] == '"' || text[at] == '\'') return text.find(text[at], at + 1) + 1;
  size_t end = at;
  while (end < text.size() && text[end] != '\n' && text[end] != ',' && text[end] != '}' &&
         text.compare(end, 2, " #") != 0)
    ++end;
  while (end > at && text[end - 1] == ' ') --end;
  return end;
}

const FieldSpec* field_of(const ConfigContainer& config, const std::string& path) {
  std::string section = path.substr(0, path.find('.'));
  if (!catalog().section(section)) return nullptr;  // defaults, sweep, patch
  auto found = catalog().settings_at(path, config.type_of(section));
  return found.empty() ? nullptr : found.front();
}

void collect(const Node& map, const std::string& path, const std::string& text,
             const ConfigContainer& config, std::vector<Key>& keys) {
  for (const auto& entry : map.entries()) {
    if (entry.key == "defaults" && !path.empty()) continue;
    Key key;
    key.name = entry.key;
    key.path = join_path(path, entry.key);
    key.line = entry.key_where.line;
    key.key_at = offset_of(text, entry.key_where);
    key.field = field_of(config, key.path);
    const Node* value = config.root().find(key.path);
    key.shadowed = value && value->loc().line != key.line;  // another file has the last word
    if (!entry.value.is_map() && !entry.value.is_null()) {
      key.value_at = offset_of(text, entry.value.loc());
      key.value_end = end_of_value(text, key.value_at);
    }
    keys.push_back(key);
    if (entry.value.is_map() && entry.key != "sweep")
      collect(entry.value, key.path, text, config, keys);
  }
}

std::string with(std::string text, size_t begin, size_t end, const std::string& replacement) {
  return text.replace(begin, end - begin, replacement);
}

std::vector<std::string> typos(const std::string& name) {
  std::vector<std::string> out = {name + name.back()};
  size_t middle = name.size() / 2;
  if (name.size() > 2) out.push_back(name.substr(0, middle) + name.substr(middle + 1));
  if (name.size() > 2 && name[middle] != name[middle - 1]) {
    std::string swapped = name;
    std::swap(swapped[middle], swapped[middle - 1]);
    out.push_back(swapped);
  }
  std::string changed = name;
  changed[middle] = changed[middle] == 'q' ? 'x' : 'q';
  out.push_back(changed);
  return out;
}

/// Values that this setting cannot have, as YAML.
std::vector<std::string> bad_values(const FieldSpec& spec) {
  std::vector<std::string> out;
  bool list = spec.type == FieldType::integer_list || spec.type == FieldType::number_list ||
              spec.type == FieldType::string_list;
  if (spec.type == FieldType::tree) return out;
  out.emplace_back(list ? "{a: 1}" : "[1, [2]]");
  if (spec.type == FieldType::boolean) out.insert(out.end(), {"12", "yes"});
  if (spec.type == FieldType::integer) out.insert(out.end(), {"many", "1.5", "010", "true"});
  if (spec.type == FieldType::number) out.insert(out.end(), {"large", "true"});
  if (!spec.choices.empty()) out.emplace_back(list ? "[no_such_choice]" : "no_such_choice");
  if (!list && spec.min)
    out.push_back(shortest(spec.exclusive_min ? *spec.min : *spec.min - 1).substr(0, 12));
  if (!list && spec.max)
    out.push_back(shortest(spec.exclusive_max ? *spec.max : *spec.max + 1).substr(0, 12));
  if (spec.type == FieldType::integer)
    for (auto& value : out)
      if (value.ends_with(".0")) value.resize(value.size() - 2);
  return out;
}

/// Errors besides those about parts that are missing.
const Diagnostic* error_at(const Report& report, const fs::path& file, int line) {
  for (const auto& d : report.diagnostics())
    if (d.severity == Severity::error && !is_standing(d) && d.where &&
        fs::path(d.where.source->name()).filename() == file.filename() && d.where.line == line)
      return &d;
  return nullptr;
}

struct Counts {
  int keys = 0, repeated = 0, typos = 0, found = 0, corrected = 0, values = 0, values_found = 0,
      deletions = 0;
  std::vector<std::string> misses;
  std::map<std::string, int> seen;  // by the key's path
};

/// The same setting is spoilt in so many files at most; MTRAIN_MUTATIONS=all spoils it in all.
int files_per_setting() {
  const char* wanted = std::getenv("MTRAIN_MUTATIONS");
  return wanted && std::string_view(wanted) == "all" ? std::numeric_limits<int>::max() : 1;
}

void spoil_names(const Copy& copy, const fs::path& recipe, const fs::path& file,
                 const std::string& text, const Key& key, Counts& counts) {
  for (const auto& typo : typos(key.name)) {
    Recipe read =
        copy.read_with(recipe, file, with(text, key.key_at, key.key_at + key.name.size(), typo));
    const Diagnostic* d = error_at(read.report, file, key.line);
    ++counts.typos;
    counts.found += d != nullptr;
    if (!d) {
      counts.misses.push_back(
          cat(file.filename().string(), ": ", typo, " for ", key.path, " is not seen"));
      continue;
    }
    size_t help = d->help.find("did you mean ");
    std::string offered = help == std::string::npos ? "" : d->help.substr(help + 13);
    offered = offered.substr(0, offered.find_first_of(" ?"));
    bool right = offered == key.path || offered == key.name ||
                 key.path.starts_with(offered + ".") || offered.starts_with(key.path + ".");
    counts.corrected += right && !offered.empty();
    if (!right || offered.empty())
      counts.misses.push_back(
          cat(file.filename().string(), ": ", typo, " for ", key.path, ": '", d->help, "'"));
  }
}

void spoil_values(const Copy& copy, const fs::path& recipe, const fs::path& file,
                  const std::string& text, const Key& key, Counts& counts) {
  if (!key.field || key.value_at == 0 || key.shadowed) return;
  for (const auto& value : bad_values(*key.field)) {
    Recipe read = copy.read_with(recipe, file, with(text, key.value_at, key.value_end, value));
    const Diagnostic* d = error_at(read.report, file, key.line);
    ++counts.values;
    counts.values_found += d != nullptr;
    if (!d)
      counts.misses.push_back(
          cat(file.filename().string(), ": ", key.path, "=", value, " is not refused"));
  }
}

/// Without its line a setting is missing, or has the value of its default or of another file.
void remove_line(const Copy& copy, const fs::path& recipe, const fs::path& file,
                 const std::string& text, const Key& key, Counts& counts) {
  size_t begin = text.rfind('\n', key.key_at) + 1, end = text.find('\n', key.key_at) + 1;
  bool alone = text.find_first_not_of(' ', begin) == key.key_at && key.value_at != 0 &&
               key.value_end + 1 <= end;
  if (!alone || text.compare(end, 1, " ") == 0) {
    // Part of a flow map, or the only key above others: what is left would be another text
    // altogether.
    if (!alone) return;
  }
  Recipe read = copy.read_with(recipe, file, with(text, begin, end, ""));
  ++counts.deletions;
  const Node* value = read.config.root().is_map() ? read.config.root().find(key.path) : nullptr;
  bool elsewhere = value && (!value->loc() || value->loc().line != key.line ||
                             fs::path(value->loc().source->name()).filename() != file.filename());
  bool reported = false;
  for (const auto& d : read.report.diagnostics())
    reported = reported || (d.severity == Severity::error && !is_standing(d));
  if (!elsewhere && !reported)
    counts.misses.push_back(
        cat(file.filename().string(), ": nothing is said when ", key.path, " is removed"));
}

void spoil(const Copy& copy, const fs::path& recipe, const fs::path& file, Counts& counts) {
  std::string text = slurp(file);
  Recipe sound = copy.read(recipe);
  for (const auto& d : sound.report.diagnostics())
    if (d.severity == Severity::error)
      REQUIRE_MESSAGE(is_standing(d), d.code, ": ", d.path, ": ", d.message);
  Report report;
  auto root = load_yaml(std::make_shared<Source>(SourceKind::file, file.string(), text), report);
  REQUIRE(root.has_value());
  // The keys of a group's file are relative to its package.
  bool at_root =
      file.parent_path() == copy.root() || text.find("# @package _global_") != std::string::npos;
  std::string package = at_root ? "" : fs::relative(file.parent_path(), copy.root()).string();
  std::vector<Key> keys;
  collect(*root, package, text, sound.config, keys);
  for (const auto& key : keys) {
    ++counts.keys;
    if (++counts.seen[key.path] > files_per_setting()) {
      ++counts.repeated;
      continue;
    }
    spoil_names(copy, recipe, file, text, key, counts);
    spoil_values(copy, recipe, file, text, key, counts);
    remove_line(copy, recipe, file, text, key, counts);
  }
}

}  // namespace

TEST_CASE("keys of every recipe, spoilt, are found on their lines") {
  Copy copy;
  std::map<fs::path, fs::path> used_by;  // each file, and a whole recipe that holds it
  for (const auto& entry : fs::directory_iterator(copy.root())) {
    if (entry.path().extension() != ".yaml") continue;
    used_by[entry.path()] = entry.path();
    Recipe recipe = copy.read(entry.path());
    for (const auto& part : recipe.config.composition().files)
      if (!part.file.empty()) used_by.try_emplace(fs::path(part.file), entry.path());
  }
  Counts counts;
  for (const auto& [file, recipe] : used_by)
    if (file.string().starts_with(copy.root().string())) spoil(copy, recipe, file, counts);
  MESSAGE(counts.keys, " keys of ", used_by.size(), " files, ", counts.repeated,
          " left out (MTRAIN_MUTATIONS=all: none): ", counts.found, " of ", counts.typos,
          " typos found on their line, ", counts.corrected, " with the right name first; ",
          counts.values_found, " of ", counts.values, " bad values found; ", counts.deletions,
          " lines removed");
  for (const auto& miss : counts.misses) MESSAGE(miss);
  CHECK(counts.keys > 10);
  CHECK(counts.found == counts.typos);
  CHECK(counts.corrected * 100 >= counts.typos * 95);
  CHECK(counts.values_found == counts.values);
}
