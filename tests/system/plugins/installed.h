// An installed mtrain that has been moved after installation, and plugin projects built against it.
// One installation serves all cases of a process.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../process.h"
#include "mtrain/base/text.h"
#include "roots.h"
#include "scratch_folder.h"

namespace mtrain::testing {

inline Outcome must(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {}) {
  Outcome out = run({.arguments = arguments, .environment = environment});
  INFO(join(arguments, " ") << "\n" << out.out << out.err);
  REQUIRE(out.status == 0);
  return out;
}

struct Installed {
  ScratchFolder folder;
  fs::path prefix = folder / "moved";
  std::string mtrain = (prefix / "bin/mtrain").string();

  Installed() {
    const fs::path first = folder / "first";
    must({MT_CMAKE, "--install", build_root().string(), "--prefix", first.string()});
    fs::rename(first, prefix);
  }

  struct Built {
    fs::path folder;
    std::string configured;  // what CMake printed
  };
  Built build(const fs::path& source) const {
    const fs::path out = folder / ("build-" + source.filename().string());
    const Outcome configured =
        must({MT_CMAKE, "-G", MT_GENERATOR, "-S", source.string(), "-B", out.string(),
              "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_COMPILER=" MT_CXX,
              "-DCMAKE_PREFIX_PATH=" + prefix.string()});
    must({MT_CMAKE, "--build", out.string()});
    return {out, configured.out};
  }
};

inline const Installed& installed() {
  static const Installed the_one;
  return the_one;
}

}  // namespace mtrain::testing
