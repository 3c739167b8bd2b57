#include "mtrain/recipe/resolvers.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/config/resolvers.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxText = uint64_t{1} << 16;  // bytes of a file that becomes a value

std::string only(const std::vector<Node>& arguments) {
  return arguments.size() == 1 ? arguments[0].as_text() : "";
}

Node about_gpu(const std::string& type, const std::string& what) {
  MT_USER_CHECK(!type.empty(), ErrorClass::config, "no type of GPU was given",
                "give --gpu TYPE, e.g. --gpu h200");
  const GpuType& gpu = gpu_type(type);
  if (what == "name") return Node::string(gpu.name);
  if (what == "memory_gb") return Node::integer(gpu.memory_gb);
  if (what == "compute_capability") return Node::integer(gpu.compute_capability);
  if (what == "per_domain") return Node::integer(gpu.per_domain);
  throw Error(ErrorClass::config,
              "gpu has the properties name, memory_gb, compute_capability and per_domain",
              "e.g. ${gpu:memory_gb}");
}

/// Restricts file_text to files in the recipe's folder that are not hidden (`.netrc`, `.ssh/…`): a
/// recipe may come from somebody else, and the text is saved with the run.
fs::path inside(const fs::path& directory, const std::string& path) {
  std::error_code error;
  fs::path folder = fs::weakly_canonical(directory, error),
           file = fs::weakly_canonical(folder / path, error);
  bool below =
      std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
  MT_USER_CHECK(
      !error && below && fs::path(path).is_relative(), ErrorClass::config,
      cat("file_text reads only files in the recipe's folder (", folder.string(), "), but ",
          printable(path), " is ",
          fs::path(path).is_absolute() ? "an absolute path"
                                       : cat("outside of it, at ", printable(file.string()))),
      "copy the text into the recipe's folder, or: export NAME=\"$(cat FILE)\" and write "
      "${oc.env:NAME}");
  for (const fs::path& part : file.lexically_relative(folder))
    MT_USER_CHECK(!part.native().starts_with('.') || part == ".", ErrorClass::config,
                  cat("file_text does not read hidden files and folders, but ", printable(path),
                      " is at ", printable(file.string())),
                  "rename it, or: export NAME=\"$(cat FILE)\" and write ${oc.env:NAME}");
  return file;
}

Node file_text(const fs::path& directory, const std::string& path) {
  MT_USER_CHECK(!path.empty(), ErrorClass::config, "file_text needs a path",
                "e.g. ${file_text:token.txt}");
  const fs::path file = inside(directory, path);
  std::string text = read_file(file, kMaxText);
  MT_USER_CHECK(valid_utf8(text), ErrorClass::config, cat(printable(path), " is not UTF-8 text"),
                "");
  Node out = Node::quoted_string(std::string(trim(text)));
  if (suggests_secret(fs::path(path).filename().string())) out.mark_confidential();
  return out;
}

}  // namespace

void add_resolvers(ConfigRequest& request, const Surroundings& around) {
  request.resolvers["run"] = [around, file = request.recipe](const std::vector<Node>& arguments) {
    std::string what = only(arguments);
    if (what == "name") return Node::string(around.name);
    if (what == "recipe") return Node::string(file);
    if (what == "trial") return Node::integer(around.trial);
    throw Error(ErrorClass::config, "run has the properties name, recipe and trial",
                "e.g. ${run:name}");
  };
  fs::path directory = fs::absolute(around.directory).lexically_normal();
  request.resolvers["recipe_dir"] = [directory](const auto&) {
    return Node::string(directory.string());
  };
  request.resolvers["cwd"] = [](const auto&) { return Node::string(fs::current_path().string()); };
  request.resolvers["file_text"] = [directory](const auto& arguments) {
    return file_text(directory, only(arguments));
  };
  request.resolvers["gpu"] = [type = around.cluster.gpu](const auto& arguments) {
    return about_gpu(type, only(arguments));
  };
  request.resolvers["world_size"] = [world = std::max<int64_t>(1, around.cluster.world_size)](
                                        const auto&) { return Node::integer(world); };
}

}  // namespace mtrain
