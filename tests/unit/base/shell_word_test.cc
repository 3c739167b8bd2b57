// Words of suggested commands are what a shell reads back.
#include "mtrain/base/shell_word.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "temp_dir.h"

using mtrain::shell_word;

namespace {

/// What a program gets as its argument.
std::string read_back(const std::string& word) {
  const mtrain::testing::TempDir folder;
  std::ofstream(folder.path() / "say.sh", std::ios::binary) << "printf %s " << word << '\n';
  FILE* pipe = ::popen(("exec bash " + (folder.path() / "say.sh").string()).c_str(), "r");
  REQUIRE(pipe);
  std::string out;
  std::array<char, 256> part{};
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    out.append(part.data(), n);
  REQUIRE(::pclose(pipe) == 0);
  return out;
}

}  // namespace

TEST_CASE("plain words stay, others are quoted") {
  for (const char* plain : {"runs/a-b_c.1", "k=v", "a,b", "x@y", "10%", "/é/ü"})
    CHECK(shell_word(plain) == plain);
  CHECK(shell_word("") == "''");
  CHECK(shell_word("my text.txt") == "'my text.txt'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("a\nb\x1b") == "$'a\\012b\\033'");
  CHECK(shell_word("~/a") == "'~/a'");
}

TEST_CASE("a shell reads back what was written") {
  for (const std::string word : {"my text.txt", "it's \"so\" $HOME `ls`", "a\\b", "*?[x]",
                                 "a;b&c|d", "(x) {y} <z>", "a\tb\nc", "#x", "!!",
                                 "x\xff"
                                 "y",
                                 "'"}) {
    CAPTURE(word);
    CHECK(read_back(shell_word(word)) == word);
  }
}
