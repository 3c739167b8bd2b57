// Runs mtrain in a folder through a shell, for what depends on the working directory; shared by the
// tests in this folder.
#pragma once
#include "../process.h"

namespace mtrain::testing {

/// `home`: the user's configuration.
inline Outcome cli_in(const std::filesystem::path& folder, const std::string& words,
                      const std::filesystem::path& home = "/nowhere") {
  return run({.arguments = {"/bin/sh", "-c",
                            "cd " + folder.string() + " && exec " + mtrain_binary() + " " + words},
              .environment = {"XDG_CONFIG_HOME=" + home.string()}});
}

inline void write_at(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace mtrain::testing
