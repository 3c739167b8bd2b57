#include "mtrain/recipe/input_paths.h"

#include <algorithm>
#include <tuple>

#include "mtrain/base/log.h"
#include "mtrain/config/provenance.h"

namespace mtrain {
namespace {

bool from_file(const Location& where) { return where && where.source->kind() == SourceKind::file; }

class Resolver {
 public:
  /// `every`: paths relative to the recipe's own folder become absolute, too.
  Resolver(ConfigContainer& config, const PathBases& bases, bool every,
           std::vector<std::string> settings)
      : config_(config), bases_(bases), every_(every), settings_(std::move(settings)) {}

  void run() {
    for (const std::string& path : settings_) setting(path);
  }
  std::vector<InputPath> found;

 private:
  void setting(const std::string& path) {
    const Node* value = config_.root().find(path);
    if (!value) return;
    Node now = *value;
    bool changed = false;
    if (value->is_list())
      for (Node& item : now.items())
        changed = one(path, item, item.loc() ? item.loc() : value->loc()) || changed;
    else
      changed = one(path, now, value->loc());
    if (changed) config_.rewrite(path, std::move(now));
  }

  /// Where the path of a value is written. A value that begins with another setting's path,
  /// "${a.b}" or "${a.b}/c", starts where that one starts, so that both name the same folder.
  Location origin_of(std::string path, const Node& value, Location where) const {
    constexpr int kLongest = 64;  // of a chain of references
    const Node* node = &value;
    for (int i = 0; i < kLongest && node; ++i) {
      const std::string& text = node->expression();
      const std::string first = text.substr(0, text.find('}') + 1);
      if (!first.starts_with("${") || first.find_first_of(":=") != std::string::npos) break;
      const auto inputs = inputs_of(config_.root(), path, first);
      if (inputs.size() != 1) break;
      path = inputs[0];
      const size_t last = path.rfind('.');
      const std::string list = path.substr(0, last);  // of an item: dataset.paths.0
      const bool names_file = is_setting(path) || is_setting(list);
      node = names_file ? config_.root().find(path) : nullptr;
      if (node) where = node->loc() ? node->loc() : config_.root().at(list).loc();
    }
    return where;
  }

  bool is_setting(const std::string& path) const {
    return std::find(settings_.begin(), settings_.end(), path) != settings_.end();
  }

  /// True if the value was changed.
  bool one(const std::string& path, Node& value, const Location& where) {
    if (value.kind() != NodeKind::string || value.as_text().empty() || value.is_missing())
      return false;
    const std::string given = value.as_text();
    const Location origin = origin_of(path, value, where);
    InputPath input{.setting = path, .given = given, .where = origin, .base = {}, .result = given};
    if (!input.result.is_absolute()) {
      input.base = bases_.of(origin);
      input.result = input.base / given;
    }
    if (!input.base.empty() && bases_.may_be_shared(origin) && !input_exists(input.result) &&
        input_exists(shared_folder(given))) {
      input.base = shared_folder("");
      input.result = input.base / given;
      input.shared = true;
    }
    input.result = plain_path(input.result);
    const bool elsewhere = !input.base.empty() && (every_ || input.base != bases_.directory());
    if (elsewhere && !value.confidential()) {
      Node absolute = Node::string(input.result.string());
      absolute.set_location(where).adopt_provenance(value);
      if (absolute.expression().empty()) absolute.computed_from(given);
      value = std::move(absolute);
    }
    const bool changed = elsewhere && !value.confidential();
    if (!value.confidential()) found.push_back(std::move(input));
    return changed;
  }

  ConfigContainer& config_;
  const PathBases& bases_;
  bool every_;
  std::vector<std::string> settings_;  // that name files
};

/// Calls `visit` with the path of each setting that names files. `type_of`: of a section.
template <class TypeOf, class Visit>
void each_input_setting(const SchemaCatalog& catalog, const TypeOf& type_of, const Visit& visit) {
  for (const auto& section : catalog.sections())
    for (const Schema* owner : catalog.owners(section.name, type_of(section.name)))
      for (const auto& spec : owner->fields)
        if (spec.input_path) visit(cat(section.name, ".", spec.path));
}

std::vector<InputPath> resolve(ConfigContainer& config, const SchemaCatalog& catalog,
                               const PathBases& bases, bool every) {
  std::vector<std::string> settings;
  each_input_setting(
      catalog, [&](const std::string& section) { return config.type_of(section); },
      [&](const std::string& setting) { settings.push_back(setting); });
  Resolver resolver(config, bases, every, std::move(settings));
  resolver.run();
  return std::move(resolver.found);
}

}  // namespace

fs::path plain_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path);
  fs::path normal = whole.lexically_normal();
  std::error_code error;
  const fs::path real = fs::weakly_canonical(whole, error);
  if (!normal.has_filename()) normal = normal.parent_path();
  return !error && fs::weakly_canonical(normal, error) != real ? whole : normal;
}

bool input_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) || fs::exists(fs::path(path) += ".idx", ignored);
}

std::string InputPath::text() const {
  std::string out = cat(setting, " is '", printable(given), "'");
  if (where) out += cat(" (", where.text(), ")");
  if (base.empty()) return out;
  const bool own = from_file(where) && base == plain_path(where.source->name()).parent_path();
  const char* of = own      ? "the folder of that file, "
                   : shared ? "mtrain's own data folder "
                            : "the current folder ";
  return out +
         cat(", relative to ", of, printable(base.string()), ": ", printable(result.string()));
}

bool InputPath::is_there() const { return input_exists(result); }

PathBases::PathBases(std::string recipe_file, fs::path directory, std::vector<SearchFolder> folders)
    : recipe_file_(std::move(recipe_file)),
      directory_(plain_path(directory)),
      folders_(std::move(folders)) {}

fs::path PathBases::of(const Location& where) const {
  if (!from_file(where)) return fs::current_path();
  if (where.source->name() == recipe_file_) return directory_;
  const fs::path file = plain_path(where.source->name());
  return is_installed(file, folders_) ? fs::current_path() : file.parent_path();
}

bool PathBases::may_be_shared(const Location& where) const {
  return from_file(where) && is_installed(plain_path(where.source->name()), folders_);
}

std::vector<InputPath> resolve_input_paths(ConfigContainer& config, const SchemaCatalog& catalog,
                                           const PathBases& bases) {
  return resolve(config, catalog, bases, false);
}

void make_input_paths_absolute(ConfigContainer& config, const SchemaCatalog& catalog,
                               const PathBases& bases) {
  resolve(config, catalog, bases, true);
}

void make_input_paths_absolute(Node& root, const SchemaCatalog& catalog,
                               const fs::path& directory) {
  const auto absolute = [&](Node& value) {
    if (value.kind() != NodeKind::string || value.is_missing()) return;
    const std::string given = value.as_text();
    const bool relative = !given.empty() && !fs::path(given).is_absolute();
    if (!relative || given.find("${") != std::string::npos) return;
    value = Node::string(plain_path(directory / given).string()).set_location(value.loc());
  };
  const auto type_of = [&](const std::string& section) {
    const Node* type = root.find(section + ".type");
    return type && type->is_scalar() ? type->as_text() : std::string();
  };
  each_input_setting(catalog, type_of, [&](const std::string& setting) {
    Node* value = root.find(setting);
    if (value && value->is_list())
      std::for_each(value->items().begin(), value->items().end(), absolute);
    else if (value)
      absolute(*value);
  });
}

bool same_input(const std::vector<InputPath>& a, const std::vector<InputPath>& b,
                std::string_view setting) {
  auto files = [&](const std::vector<InputPath>& paths) {
    std::vector<fs::path> out;
    for (const auto& path : paths)
      if (path.setting == setting) out.push_back(path.result);
    return out;
  };
  const std::vector<fs::path> of_a = files(a);
  return !of_a.empty() && of_a == files(b);
}

void rethrow_with_origin(const Error& error, const std::vector<InputPath>& paths,
                         std::string_view section) {
  const std::string text = error.message() + error.hint();
  const InputPath* named = nullptr;
  // Several settings may name one folder: the text, or else the section, says which one was read.
  auto fit = [&](const InputPath& path) {
    return std::tuple(path.result.native().size(), text.find(path.setting) != std::string::npos,
                      !section.empty() && path.setting.starts_with(cat(section, ".")));
  };
  // The help may name further files, such as the tokenizer's for a command.
  for (const std::string& place : {error.message(), text}) {
    for (const auto& path : paths) {
      const bool there = place.find(path.result.string()) != std::string::npos ||
                         (!path.base.empty() &&
                          place.find((path.base / path.given).string()) != std::string::npos);
      if (there && (!named || fit(path) > fit(*named))) named = &path;
    }
    if (named) break;
  }
  if (!named || text.find(named->text()) != std::string::npos) throw;
  throw Error(error.error_class(), cat(error.message(), "; ", named->text()), error.hint());
}

}  // namespace mtrain
