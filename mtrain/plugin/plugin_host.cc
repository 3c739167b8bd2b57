#include "mtrain/plugin/plugin_host.h"

#include <dlfcn.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/probe.h"
#include "mtrain/plugin/sidecar.h"
#include "mtrain/plugin/trust.h"

namespace mtrain {
namespace {

namespace load_mode = boost::dll::load_mode;

constexpr std::string_view kSuffix = ".so";
constexpr const char* kStaticHint =
    "this is a fault of the plugin: do such work in the constructor of its component";

fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path), out = fs::weakly_canonical(whole, error);
  return error ? whole.lexically_normal() : out;
}

fs::path built_in_folder() { return absolute_path(program_directory() / "../lib/mtrain/plugins"); }

/// The message of the loader without the leading file name, which our message has already.
std::string loader_message(const fs::path& path) {
  const char* text = ::dlerror();
  std::string out = text ? text : "the loader gave no reason";
  std::string prefix = path.string() + ": ";
  if (out.starts_with(prefix)) out.erase(0, prefix.size());
  return printable(out, 500);
}

const char* loader_hint(std::string_view message) {
  if (message.find("undefined symbol") != std::string_view::npos)
    return "link the plugin with everything it uses, and build it against this mtrain";
  if (message.find("cannot open shared object file") != std::string_view::npos)
    return "install the library that it needs, or give the plugin an RPATH to it";
  return "build the plugin again with mtrain_add_plugin";
}

boost::dll::shared_library open_library(const fs::path& path) {
  // Never unmapped: objects, type information and function pointers of a plugin may live until the
  // process ends.
  auto mode = static_cast<load_mode::type>(static_cast<unsigned>(load_mode::rtld_now) |
                                           static_cast<unsigned>(load_mode::rtld_local) |
                                           static_cast<unsigned>(RTLD_NODELETE));
  std::error_code error;
  boost::dll::shared_library library;
  try {
    library.load(path, mode, error);
  } catch (const std::exception& thrown) {
    throw Error(ErrorClass::plugin,
                cat(path.string(), ": a static initialiser threw: ", printable(thrown.what())),
                kStaticHint);
  } catch (...) {
    throw Error(
        ErrorClass::plugin,
        cat(path.string(), ": a static initialiser threw something that is not a std::exception"),
        kStaticHint);
  }
  if (!library.is_loaded()) {
    std::string message = loader_message(path);
    throw Error(ErrorClass::plugin, cat(path.string(), ": cannot be loaded: ", message),
                loader_hint(message));
  }
  return library;
}

void call_entry_point(const boost::dll::shared_library& library, const PluginFileInfo& file,
                      Registry& staging) {
  if (!library.has(kPluginEntryPoint))
    throw Error(ErrorClass::plugin,
                cat(file.path.string(), ": has no entry point ", kPluginEntryPoint),
                "define the plugin with MT_PLUGIN of mtrain/plugin/plugin.h");
  auto& entry_point = library.get<void(Registry&)>(kPluginEntryPoint);
  register_plugin_code({cat(file.kind, " plugin '", file.name, "'"), file.path.string()},
                       reinterpret_cast<const void*>(&entry_point));
  auto failed = [&](std::string_view what) {
    return Error(ErrorClass::plugin,
                 cat(file.path.string(), ": its registration failed: ", printable(what)),
                 "this is a fault of the plugin: show this line to its author");
  };
  try {
    entry_point(staging);
  } catch (const Error& error) {
    throw Error(ErrorClass::plugin,
                cat(file.path.string(), ": its registration failed: ", error.message()),
                error.hint());
  } catch (const std::exception& error) {
    throw failed(error.what());
  } catch (...) {
    throw failed("it threw something that is not a std::exception");
  }
}

/// A plugin must register exactly the component that its file name promises, so that a name in a
/// recipe identifies one file.
void check_registered(const Registry& staging, const PluginFileInfo& file) {
  std::vector<std::string> others;
  for (const auto* entry : staging.entries())
    if (entry->kind != file.kind || entry->name != file.name)
      others.push_back(cat(entry->kind, " '", entry->name, "'"));
  if (others.empty() && staging.find(file.kind, file.name)) return;
  throw Error(ErrorClass::plugin,
              cat(file.path.string(), ": should register ", file.kind, " '", file.name,
                  "' alone, but registered ",
                  staging.entries().empty() ? "nothing"
                  : others.empty()          ? "it not"
                                            : join(others, ", ")),
              "one plugin file holds one component, named as the file: <kind>_<name>.so");
}

}  // namespace

struct PluginHost::Libraries {
  std::vector<boost::dll::shared_library> open;
};

std::vector<fs::path> plugin_folders(const std::vector<std::string>& from_command_line) {
  std::vector<std::string> wanted = from_command_line;
  if (const char* variable = std::getenv("MTRAIN_PLUGIN_PATH"))
    for (auto& folder : split(variable, ':')) wanted.push_back(std::move(folder));
  std::vector<fs::path> out;
  auto add = [&](const fs::path& folder) {
    fs::path place = absolute_path(folder);
    if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(std::move(place));
  };
  for (const auto& folder : wanted)
    if (!folder.empty())
      add(folder);  // an empty entry would mean the current folder, which nobody intends
  add(built_in_folder());
  return out;
}

bool parse_plugin_file_name(std::string_view file_name, std::string& kind, std::string& name) {
  if (!file_name.ends_with(kSuffix)) return false;
  std::string_view stem = file_name.substr(0, file_name.size() - kSuffix.size());
  size_t bar = stem.find('_');
  if (bar == std::string_view::npos) return false;
  if (!valid_plugin_name(stem.substr(0, bar)) || !valid_plugin_name(stem.substr(bar + 1)))
    return false;
  kind = stem.substr(0, bar);
  name = stem.substr(bar + 1);
  return true;
}

PluginFileInfo inspect_plugin_file(const fs::path& path) {
  PluginFileInfo info;
  info.path = fs::absolute(path).lexically_normal();
  if (!parse_plugin_file_name(info.path.filename().string(), info.kind, info.name))
    throw Error(ErrorClass::plugin, cat(info.path.string(), ": is not named as a plugin"),
                "plugin files are called <kind>_<name>.so, e.g. optimizer_lion.so");
  require_trusted(info.path);
  PluginImage image = read_plugin_image(info.path);
  info.doc = image.doc;
  info.version = image.version;
  info.identity = image.identity;
  if (std::string reason = stamp_mismatch(image.stamp); !reason.empty())
    throw Error(ErrorClass::plugin, cat(info.path.string(), ": does not fit this mtrain: ", reason),
                "build the plugin again against this mtrain");
  if (image.name != info.name)
    throw Error(ErrorClass::plugin,
                cat(info.path.string(), ": its name is '", image.name, "' in MT_PLUGIN, but '",
                    info.name, "' in the name of the file"),
                cat("rename the file to ", info.kind, "_", image.name, ".so"));
  return info;
}

PluginHost::PluginHost(std::vector<fs::path> folders)
    : folders_(std::move(folders)), libraries_(std::make_unique<Libraries>()) {}

PluginHost::~PluginHost() = default;

std::vector<PluginFileInfo> PluginHost::list() const {
  std::vector<PluginFileInfo> out;
  std::set<std::string> seen;
  for (const auto& folder : folders_) {
    std::error_code error;
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == kSuffix) files.push_back(at->path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      PluginFileInfo info;
      try {
        info = inspect_plugin_file(file);
      } catch (const Error& bad) {
        info.path = file;
        parse_plugin_file_name(file.filename().string(), info.kind, info.name);
        info.problem = bad.message();
        info.remedy = bad.hint();
      }
      info.shadowed = !seen.insert(file.filename().string()).second;
      out.push_back(std::move(info));
    }
  }
  return out;
}

Error PluginHost::unknown(std::string_view kind, std::string_view name) const {
  std::vector<std::string> known, ignored, searched;
  for (const auto& file : list()) {
    std::string stem = file.path.stem().string();
    if (file.kind == kind && file.problem.empty() && !file.shadowed)
      known.push_back(file.name);
    else if (file.name == name && !file.kind.empty())
      ignored.push_back(cat(file.path.string(), " is of the kind ", file.kind));
    else if (file.kind.empty() && stem.find(name) != std::string::npos)
      ignored.push_back(file.problem);
  }
  for (const auto& folder : folders_)
    searched.push_back(cat(folder.string(), fs::is_directory(folder) ? "" : " (absent)"));
  std::vector<std::string> near = nearest(name, known);
  std::string hint = near.empty() ? "" : cat("did you mean '", join(near, "' or '"), "'? ");
  hint += cat("available: ", known.empty() ? "none" : join(known, ", "),
              "; searched: ", join(searched, ", "), "; add a folder by --plugin-path DIR");
  if (!ignored.empty()) hint += cat("; passed over: ", join(ignored, "; "));
  return {ErrorClass::plugin,
          cat("there is no ", kind, " plugin named '", printable(name, 64), "'"), hint};
}

PluginFileInfo PluginHost::locate(std::string_view kind, std::string_view name) const {
  // This also prevents a name from being a path: no '/', no '.', and nothing else that a file
  // system interprets.
  if (valid_plugin_name(kind) && valid_plugin_name(name))
    for (const auto& folder : folders_) {
      fs::path path = folder / cat(kind, "_", name, kSuffix);
      std::error_code error;
      // A file that exists but is bad is an error; there is no fallback to a file of the same name
      // in a later folder.
      if (fs::exists(fs::symlink_status(path, error))) return inspect_plugin_file(path);
    }
  throw unknown(kind, name);
}

const Registry::Entry& PluginHost::load(std::string_view kind, std::string_view name) {
  if (const auto* entry = registry_.find(kind, name)) return *entry;
  PluginFileInfo file = locate(kind, name);
  require_undamaged(file);
  return open_and_register(file);
}

const Registry::Entry& PluginHost::load_file(const fs::path& path) {
  PluginFileInfo file = inspect_plugin_file(path);
  const auto* entry = registry_.find(file.kind, file.name);
  if (entry && entry->owner == file.path.string()) return *entry;
  return open_and_register(file);
}

const Registry::Entry& PluginHost::open_and_register(const PluginFileInfo& file) {
  if (file.path.parent_path() !=
      built_in_folder())  // built-in plugins were probed when they were built
    if (std::string fate = probe_plugin(file.path); !fate.empty())
      throw Error(ErrorClass::plugin, cat(file.path.string(), ": ", fate), kStaticHint);
  failpoint("plugin.open");
  boost::dll::shared_library library = open_library(file.path);
  // Checks that the opened file is the checked file, and was not replaced in between.
  if (read_plugin_image(file.path).identity != file.identity)
    throw Error(ErrorClass::plugin,
                cat(file.path.string(), ": was replaced while it was being loaded"), "start again");
  libraries_->open.push_back(std::move(library));
  Registry staging;
  staging.set_owner(file.path.string());
  call_entry_point(libraries_->open.back(), file, staging);
  check_registered(staging, file);
  registry_.take(std::move(staging));
  loaded_.push_back({file.kind, file.name, file.identity, file.path});
  return *registry_.find(file.kind, file.name);
}

}  // namespace mtrain
