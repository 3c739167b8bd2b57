// Runs mtrain in a folder through a shell, for what depends on the working directory; shared by
// tests of several folders.
#pragma once
#include "../process.h"

namespace mtrain::testing {

/// `words` are shell text, such as "check r.yaml < input"; `home`: the user's configuration.
inline Outcome cli_in(const std::filesystem::path& folder, const std::string& words,
                      const std::filesystem::path& home = "/nowhere",
                      std::vector<std::string> environment = {}) {
  environment.push_back("XDG_CONFIG_HOME=" + home.string());
  return run(
      {.arguments = {"/bin/sh", "-c",
                     "cd '" + folder.string() + "' && exec '" + mtrain_binary() + "' " + words},
       .environment = std::move(environment)});
}

inline void write_at(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace mtrain::testing
