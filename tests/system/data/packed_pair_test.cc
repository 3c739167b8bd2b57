// The commands of `mtrain data` on packs, which are a .bin/.idx pair with files of their own.
#include <doctest/doctest.h>

#include "../process.h"
#include "data_files.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

mtrain::testing::Outcome mtrain_in(const ScratchFolder& scratch, const std::string& words) {
  return run({.arguments = {"/bin/sh", "-c",
                            cat("cd '", scratch.path().string(), "' && exec '",
                                build_root().string(), "/bin/mtrain' ", words)}});
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Writes the packs at `prefix` by the tokenizer byte with these settings.
void pack(const ScratchFolder& scratch, const std::string& prefix,
          const std::string& settings = "") {
  put(scratch / "x.jsonl",
      "{\"prompt\": \"0\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"00\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"000\", \"completion\": \"abcdefgh\"}\n");
  auto done = mtrain_in(
      scratch, cat("data pack x.jsonl --seq-length 16 --force -o ", prefix, " -t byte ", settings));
  REQUIRE_MESSAGE(done.status == 0, done.err);
}

}  // namespace

TEST_CASE("show and verify refuse packs under another tokenizer than the one that packed them") {
  ScratchFolder scratch;
  pack(scratch, "p", "extra_ids=2");
  for (const std::string command : {"data show p", "data verify p"}) {
    CAPTURE(command);
    auto same = mtrain_in(scratch, command + " -t byte extra_ids=2");
    CHECK_MESSAGE(same.status == 0, same.err);
    for (const std::string other : {" -t byte", " -t byte extra_ids=3"}) {
      auto refused = mtrain_in(scratch, command + other);
      CHECK(refused.status == 11);
      for (const char* part : {"p was prepared with another tokenizer", "2 extra",
                               "choose that tokenizer", "--any-tokenizer"})
        CHECK_MESSAGE(has(refused.err, part), refused.err);
      auto accepted = mtrain_in(scratch, command + other + " --any-tokenizer");
      CHECK_MESSAGE(accepted.status == 0, accepted.err);
    }
  }
  // Packs that replace a pair replace its record.
  put(scratch / "x.txt", "text");
  REQUIRE(mtrain_in(scratch, "data prepare -i x.txt -o p -t byte --force").status == 0);
  CHECK(mtrain_in(scratch, "data verify p -t byte").status == 0);
  pack(scratch, "p", "extra_ids=2");
  CHECK_FALSE(fs::exists(scratch / "p.tokenizer.json"));
  CHECK(mtrain_in(scratch, "data verify p -t byte").status == 11);
}
