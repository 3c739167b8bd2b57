#include "mtrain/config/repository.h"

#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_mistakes.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kExtension = ".yaml";

/// The package in "# @package a.b" in the first comment lines of a text.
std::optional<std::string> package_header(std::string_view text) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    if (!line.starts_with('#')) break;
    line = trim(line.substr(1));
    constexpr std::string_view kMark = "@package";
    if (line.starts_with(kMark)) return std::string(trim(line.substr(kMark.size())));
  }
  return std::nullopt;
}

std::unique_ptr<ConfigFile> split_file(Node root, const std::string& file) {
  auto out = std::make_unique<ConfigFile>();
  out->file = file;
  if (auto package = package_header(root.loc().source->text())) {
    out->package = *package;
    out->has_package = true;
  }
  if (const Node* defaults = root.get("defaults")) {
    out->defaults = *defaults;
    root.erase("defaults");
  }
  out->body = std::move(root);
  return out;
}

/// Paths come from recipes and must not lead out of the search path.
bool stays_inside(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\\') != std::string::npos) return false;
  for (const auto& part : split(path, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

/// Help for a recipe that is not a map.
std::string map_instead_of(const Node& root) {
  if (root.is_list()) return "write its sections as lines `key: value`, without '-' or '[ ]'";
  const Location& first = root.loc();
  std::string_view rest = first.source->text();
  for (int line = 1; line < first.line; ++line)
    rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  const std::string text(
      trim(rest.substr(0, rest.find('\n'))));  // the value has its lines folded into one
  if (looks_like_override(text.substr(0, text.find(' '))))
    return "write settings as `key=value` on the command line, or in a file given with -f";
  const bool one_line = root.as_text().size() <= text.size();  // otherwise it may be prose
  const std::string entry =
      one_line || text.find_first_of(":=") != std::string::npos ? meant_entry(text) : "";
  if (!entry.empty())
    return cat("write `", entry, "`: a key and its value are separated by ':' and a space");
  if (text.find(':') != std::string::npos) return "write a space after the ':'";
  return "write sections such as `train: {steps: 100}`, if this file is meant to be a recipe";
}

}  // namespace

std::optional<fs::path> ConfigRepository::find(const std::string& path) const {
  if (!stays_inside(path)) return std::nullopt;
  for (const auto& folder : folders_) {
    fs::path file = folder / (path + std::string(kExtension));
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return std::nullopt;
}

bool ConfigRepository::is_group(const std::string& group) const {
  return stays_inside(group) && !options(group).empty();
}

std::vector<std::string> ConfigRepository::options(const std::string& group) const {
  std::set<std::string> out;
  if (!group.empty() && !stays_inside(group)) return {};
  for (const auto& folder : folders_) {
    std::error_code fault;
    for (fs::directory_iterator it(folder / group, fault), end; !fault && it != end;
         it.increment(fault))
      if (it->path().extension() == kExtension) out.insert(it->path().stem().string());
  }
  return {out.begin(), out.end()};
}

std::string ConfigRepository::help_for_absent(const std::string& request) const {
  const fs::path parent = fs::path(request).parent_path();
  std::map<std::string, std::string>
      shown;  // by name without .yaml; a file at the given path comes before an option
  std::error_code fault;
  for (fs::directory_iterator it(parent.empty() ? "." : parent, fault), end; !fault && it != end;
       it.increment(fault))
    if (it->path().extension() == kExtension)
      shown.try_emplace(it->path().stem().string(), (parent / it->path().filename()).string());
  for (const std::string& name : options(parent.string()))
    shown.try_emplace(name, (parent / name).string());
  std::vector<std::string> names, near, places;
  for (const auto& [name, unused] : shown) names.push_back(name);
  for (const std::string& name : nearest(fs::path(request).stem().string(), names, 3))
    near.push_back(visible(shown.at(name)));
  for (const fs::path& folder : folders_) {
    std::error_code absent;
    if (fs::is_directory(folder, absent)) places.push_back(folder.string());
  }
  return cat(near.empty() ? "" : cat("did you mean ", join(near, " or "), "? "),
             "searched for the file, and for a recipe of that name in ",
             places.empty() ? "no folder: none of the search path exists" : join(places, ", "),
             "; `mtrain recipes ls` lists recipes, and `mtrain --help` lists commands");
}

const ConfigFile* ConfigRepository::load(const std::string& path, Report& report) {
  auto file = find(path);
  if (!file) return nullptr;
  const ConfigFile* loaded = load_file(file->string(), std::nullopt, report);
  if (loaded) const_cast<ConfigFile*>(loaded)->path = path;
  return loaded;
}

const ConfigFile* ConfigRepository::load_file(const std::string& file,
                                              std::optional<std::string> text, Report& report) {
  auto [entry, fresh] = loaded_.try_emplace(file, nullptr);
  if (!fresh) return entry->second.get();
  std::optional<Node> root;
  if (text)
    root = load_yaml(std::make_shared<Source>(SourceKind::file, file, std::move(*text)), report);
  else
    root = load_yaml_file(file, report);
  return root ? add(file, std::move(*root), report) : nullptr;
}

const ConfigFile* ConfigRepository::add(const std::string& file, Node root, Report& report) {
  if (root.is_null()) {
    Location where = root.loc();
    root = Node::map().set_location(where);
  } else if (!root.is_map()) {
    auto& fault =
        report.error("wrong-type", "", root.loc(),
                     cat("a recipe is a map of sections, this is ", describe(root.kind())));
    fault.fix(map_instead_of(root));
    return nullptr;
  }
  return (loaded_[file] = split_file(std::move(root), file)).get();
}

}  // namespace mtrain
