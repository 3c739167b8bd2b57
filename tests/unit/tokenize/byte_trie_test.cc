// The double array against a map, over random families of bytes.
#include "mtrain/tokenize/byte_trie.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

using namespace mtrain::tokenize;

namespace {

/// Where a text leads; -2 when nowhere, -1 when to no text's end.
int32_t find(const ByteTrie& trie, const std::string& text) {
  uint32_t node = ByteTrie::kRoot;
  for (const char byte : text)
    if (!trie.step(node, static_cast<unsigned char>(byte))) return -2;
  return trie.is_text(node) ? trie.value(node) : -1;
}

}  // namespace

TEST_CASE("a trie finds its texts, their beginnings and nothing else") {
  std::mt19937 random(1);
  for (const unsigned letters : {2U, 16U, 256U}) {
    std::map<std::string, int32_t> texts;
    std::map<std::string, bool> beginnings;
    for (int i = 0; i < 3000; ++i) {
      std::string text(1 + random() % 6, '\0');
      for (auto& c : text) c = static_cast<char>(random() % letters);
      texts.emplace(text, static_cast<int32_t>(random() % 100));
      for (size_t size = 0; size <= text.size(); ++size) beginnings[text.substr(0, size)] = true;
    }
    std::vector<ByteTrie::Entry> entries;
    for (const auto& [text, value] : texts) entries.push_back({text, value});
    std::shuffle(entries.begin(), entries.end(), random);
    const ByteTrie trie(entries);
    for (const auto& [text, unused] : beginnings) {
      const auto at = texts.find(text);
      REQUIRE(find(trie, text) == (at == texts.end() ? -1 : at->second));
      for (unsigned b = 0; b < 256; ++b) {
        const std::string longer = text + static_cast<char>(b);
        if (!beginnings.contains(longer)) REQUIRE(find(trie, longer) == -2);
      }
    }
  }
  // Long chains of one byte take as long as they are.
  std::vector<std::string> chains;
  for (char first = 'a'; first <= 'z'; ++first)
    chains.push_back(first + std::string(20000, '\xA0'));
  std::vector<ByteTrie::Entry> entries;
  for (const auto& chain : chains) entries.push_back({chain, 1});
  const ByteTrie long_ones(entries);
  for (const auto& chain : chains) CHECK(find(long_ones, chain) == 1);
  const ByteTrie none, empty(std::vector<ByteTrie::Entry>{});
  for (unsigned b = 0; b < 256; ++b)
    for (const ByteTrie* trie : {&none, &empty})
      CHECK(find(*trie, std::string(1, static_cast<char>(b))) == -2);
}
