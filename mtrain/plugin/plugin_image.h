// Reads a plugin's file without running any of its code: a small ELF64 reader that trusts no number
// in the file. Every offset and size is checked against the file's size before use, and nothing
// larger than a fixed bound is read. Value types; thread-safe.
#pragma once
#include <string>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"
#include "mtrain/plugin/stamp.h"

namespace mtrain {

/// The content of a plugin's file that identifies it.
struct PluginImage {
  PluginStamp stamp{};
  std::string name, doc, version;  // the texts of the stamp, made printable
  std::string identity;  // "build-id:<hex>", else "sha256:<hex>" of the whole file: changes with
                         // every build
};

/// Reads the stamp and the identity. Throws Error(plugin) with the reason if the file cannot be
/// read, is empty, is not an ELF shared library for this machine, is truncated or damaged, or has
/// no stamp. Does not check the content of the stamp.
MT_API PluginImage read_plugin_image(const fs::path& path);

/// "sha256:<hex>" of the loaded sections, without the strings that give library search paths. The
/// hash stays the same after strip, and after an in-place change of RUNPATH (cmake --install,
/// chrpath). It changes when a byte of code or data is damaged, and after patchelf, which moves
/// sections and adds a segment. Throws like read_plugin_image().
MT_API std::string plugin_content_hash(const fs::path& path);

}  // namespace mtrain
