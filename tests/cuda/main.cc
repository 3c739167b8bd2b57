// Runs the tests where there is a GPU; elsewhere says why not and leaves with 77, which ctest takes
// as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "runtime_api.h"

int main(int argc, char** argv) {
  mtrain::cuda::Verdict verdict = mtrain::cuda::judge(mtrain::cuda::ask_machine());
  if (verdict.probe.devices == 0) {
    std::printf("skipped, no GPU to test on: %s\n", verdict.probe.reason.c_str());
    return 77;
  }
  for (const std::string& line : mtrain::cuda::describe_devices(verdict.probe.devices))
    std::printf("GPU: %s\n", line.c_str());
  return doctest::Context(argc, argv).run();
}
