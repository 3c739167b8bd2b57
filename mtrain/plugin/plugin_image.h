// Reads a plugin's file without running any of it: a small ELF64 reader that trusts no number in
// the file. Every offset and size is checked against the file before use, and nothing larger than a
// fixed bound is ever read. Values only; thread-safe.
#pragma once
#include <string>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"
#include "mtrain/plugin/stamp.h"

namespace mtrain {

/// What a plugin's file says about itself.
struct PluginImage {
  PluginStamp stamp{};
  std::string name, doc, version;  // the stamp's texts, printable
  std::string identity;  // "build-id:<hex>", else "sha256:<hex>" of the whole file: changes with
                         // every build
};

/// Reads the stamp and the identity. Throws Error(plugin) with the reason when the file cannot be
/// read, is empty, is no ELF shared library of this machine, is truncated or damaged, or carries no
/// stamp. Does not judge the stamp's content.
MT_API PluginImage read_plugin_image(const fs::path& path);

/// "sha256:<hex>" of the sections that are loaded, without the texts that say where libraries are
/// searched: the same after strip and where a RUNPATH was changed in its place (cmake --install,
/// chrpath); another one when a byte of code or data is damaged, and after patchelf, which moves
/// sections and adds a segment. Throws as read_plugin_image().
MT_API std::string plugin_content_hash(const fs::path& path);

}  // namespace mtrain
