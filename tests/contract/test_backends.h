// The backends on which ops are tested in one test program. Each program links one definition of
// test_backends().
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain::contract {

struct TestBackend {
  std::string name;
  std::function<std::unique_ptr<Backend>(int threads)>
      make;  // a backend without threads ignores their number
};
/// Tests of a single backend use the first one.
std::vector<TestBackend> test_backends();

}  // namespace mtrain::contract
