// The locations of the source tree and of the build. A bundle (tools/bundle.sh) has both in one
// folder, which MTRAIN_TEST_ROOT names.
//
// These are functions of one source file (roots.cc), not macros of every test: a macro with a path
// makes the compiler cache miss in every other clone.
#pragma once
#include <filesystem>

namespace mtrain::testing {

std::filesystem::path source_root();
std::filesystem::path build_root();

// Larger files of other programs (models, tokenizers, texts): $MTRAIN_SHARED, or the folder
// `shared` next to the source tree. Tests report when it does not exist.
std::filesystem::path shared_root();

}  // namespace mtrain::testing
