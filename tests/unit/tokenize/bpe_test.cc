// Byte pair encoding against its definition, for short words, long ones and ones split into
// windows.
#include "mtrain/tokenize/bpe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "mtrain/base/error.h"

using namespace mtrain;
using namespace mtrain::tokenize;

namespace {

/// A vocabulary of all bytes and of merges chosen at random over few letters, so that much merges.
struct Made {
  TokenTable tokens;
  std::vector<BpeMerge> merges;
  std::map<std::pair<int32_t, int32_t>, BpeMerge> by_pair;

  explicit Made(uint32_t seed, int count, const std::string& alphabet) {
    std::mt19937 random(seed);
    for (int b = 0; b < 256; ++b) {
      const char c = static_cast<char>(b);
      tokens.add({&c, 1}, b, "test");
    }
    std::vector<int32_t> pool;
    for (const char letter : alphabet) pool.push_back(static_cast<unsigned char>(letter));
    while (static_cast<int>(merges.size()) < count) {
      const int32_t a = pool[random() % pool.size()], b = pool[random() % pool.size()];
      std::string joined = std::string(tokens.text(a)) + std::string(tokens.text(b));
      if (by_pair.contains({a, b}) || joined.size() > 40) continue;
      int32_t id = tokens.find(joined);
      if (id < 0) {
        id = static_cast<int32_t>(tokens.size());
        tokens.add(joined, id, "test");
        pool.push_back(id);
      }
      merges.push_back({a, b, id, static_cast<uint32_t>(merges.size())});
      by_pair[{a, b}] = merges.back();
    }
  }

  /// The same merges in any order, and some of them once more at the end.
  void shuffle(std::mt19937& random) {
    std::shuffle(merges.begin(), merges.end(), random);
    const size_t count = merges.size();
    for (size_t i = 0; i < count; i += 3) merges.push_back(merges[i]);
    for (size_t i = 0; i < merges.size(); ++i) {
      merges[i].rank = static_cast<uint32_t>(i);
      if (i < count) by_pair[{merges[i].left, merges[i].right}] = merges[i];
    }
  }
  /// Adds the merge of two tokens that are there, which may make one that is there.
  void merge(const std::string& left, const std::string& right) {
    int32_t id = tokens.find(left + right);
    if (id < 0) {
      id = static_cast<int32_t>(tokens.size());
      tokens.add(left + right, id, "test");
    }
    const int32_t a = tokens.find(left), b = tokens.find(right);
    merges.push_back({a, b, id, static_cast<uint32_t>(merges.size())});
    by_pair.try_emplace({a, b}, merges.back());
  }
  /// A word of tokens side by side.
  std::string word(std::mt19937& random, size_t count) const {
    std::string out;
    for (; count > 0; --count) out += tokens.text(merges[random() % merges.size()].result);
    return out;
  }

  std::vector<int32_t> by_definition(const std::string& word) const {
    std::vector<int32_t> ids(word.begin(), word.end());
    for (auto& id : ids) id &= 255;
    for (;;) {
      const BpeMerge* best = nullptr;
      size_t where = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        auto at = by_pair.find({ids[i], ids[i + 1]});
        if (at != by_pair.end() && (!best || at->second.rank < best->rank))
          best = &at->second, where = i;
      }
      if (!best) return ids;
      ids[where] = best->result;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
  }
};

std::vector<int32_t> encode(const Bpe& bpe, const std::string& word) {
  WordTokens out;
  bpe.encode(word, out);
  size_t bytes = 0;
  for (auto size : out.bytes) bytes += size;
  CHECK(bytes == word.size());
  return out.ids;
}

std::string random_word(std::mt19937& random, size_t size, const std::string& alphabet) {
  std::string out(size, 'a');
  for (auto& c : out) c = alphabet[random() % alphabet.size()];
  return out;
}

std::string letters(size_t count) { return std::string("abcd").substr(0, count); }

}  // namespace

TEST_CASE("words of every length are merged by rank, the leftmost first") {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::string alphabet = letters(1 + seed % 4);
    Made made(seed, alphabet.size() == 1 ? 12 : 60, alphabet);
    for (bool by_bytes : {true, false}) {
      Bpe bpe(made.tokens, made.merges, {.by_bytes = by_bytes}, "test");
      for (int i = 0; i < 100; ++i) {
        const std::string word = random_word(random, random() % 120, alphabet);
        INFO(word);
        REQUIRE(encode(bpe, word) == made.by_definition(word));
      }
    }
  }
}

TEST_CASE("longest matches that are taken back give what merging gives") {
  std::mt19937 random(6);
  std::array<int32_t, 256> bytes;
  for (int b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = b;
  for (bool shuffled : {false, true}) {  // shuffled: merges before those of their parts
    int known = 0, all = 0;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      // Bytes that begin characters, and whole ones of three bytes, torn ones too.
      const std::string alphabet =
          std::string(seed % 8 < 4 ? "\xE0\xE1\xE2\xE3" : "\x81\xE3\x82\x83")
              .substr(0, 1 + seed % 4);
      Made made(seed, alphabet.size() == 1 ? 12 : 20 + static_cast<int>(random() % 80), alphabet);
      if (shuffled) made.shuffle(random);
      Bpe exact(made.tokens, made.merges, {.by_bytes = true}, "test");
      auto greedy = GreedyBpe::make(made.tokens, made.merges, bytes, exact);
      REQUIRE(greedy);
      for (int i = 0; i < 200; ++i, ++all) {
        const std::string word = i % 2 ? random_word(random, 1 + random() % 40, alphabet)
                                       : made.word(random, 1 + random() % 4);
        REQUIRE(GreedyBpe::takes(word));
        WordTokens out;
        out.add(7, 1);
        const bool done = greedy->encode(word, exact, out);
        REQUIRE((out.ids.front() == 7 && out.ids.size() == out.bytes.size()));
        out.ids.erase(out.ids.begin());
        if (done) REQUIRE(out.ids == made.by_definition(word));
        if (!done) REQUIRE(out.ids.empty());
        known += done;
      }
    }
    MESSAGE(known << " of " << all << " words");
    CHECK(known > (shuffled ? all / 2 : all * 99 / 100));
  }
  CHECK_FALSE(GreedyBpe::takes(""));
  CHECK(GreedyBpe::takes("a\xE3\x81"));
  CHECK_FALSE(GreedyBpe::takes("\xE3\x81\x82\xE3\x81\x82\xE3\x81\x82\xE3\x81\x82 "));
  CHECK_FALSE(GreedyBpe::takes("\xE3 \x81\x82\xE3\x81\x82\xE3\x81\x82\xE3\x81\x82\xE3\x81\x82"));
}

TEST_CASE("merges that come before those of their parts, again, or of other texts") {
  // q z a x y c n are E0 to E6.
  auto text = [](const char* letters) {
    std::string out;
    for (; *letters; ++letters)
      out += static_cast<char>(0xE0 + std::string_view("qzaxycn").find(*letters));
    return out;
  };
  auto check = [&](std::initializer_list<std::pair<const char*, const char*>> merges,
                   const char* word) {
    Made made(0, 0, "");
    for (const auto& [left, right] :
         merges)  // all texts first: a merge may name what a later one makes
      for (const std::string& part : {text(left), text(right)})
        if (made.tokens.find(part) < 0) made.tokens.add(part, made.tokens.size(), "test");
    for (const auto& [left, right] : merges) made.merge(text(left), text(right));
    CHECK(encode(Bpe(made.tokens, made.merges, {.by_bytes = true}, "test"), text(word)) ==
          made.by_definition(text(word)));
  };
  // zaxyc may be made by the sixth or the seventh.
  check({{"z", "a"},
         {"a", "xy"},
         {"x", "y"},
         {"xy", "c"},
         {"a", "xyc"},
         {"z", "axyc"},
         {"za", "xyc"},
         {"q", "za"},
         {"xyc", "n"}},
        "qzaxycn");
  check({{"za", "x"}, {"z", "a"}, {"x", "y"}, {"za", "x"}}, "zaxy");  // the first holds
  Made made(3, 20, "\xE0\xE1");
  made.tokens.add("", made.tokens.size(), "test");
  const int32_t nothing = made.tokens.find(""), some = made.merges[4].result;
  for (const auto& [left, right] :
       {std::pair{nothing, some}, std::pair{some, nothing}, std::pair{some, some}}) {
    auto merges = made.merges;
    merges.push_back({left, right, made.merges[9].result, 20});
    std::array<int32_t, 256> bytes;
    for (int b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = b;
    const Bpe exact(made.tokens, merges, {.by_bytes = true}, "test");
    CHECK_FALSE(GreedyBpe::make(made.tokens, merges, bytes, exact));
    CHECK(encode(exact, "\xE0\xE1\xE0\xE1").size() > 0);
  }
}

TEST_CASE("a word that is a token no merge makes is that token where words are taken whole") {
  for (int letter : {int{'a'}, 0xE0}) {  // merged, and by longest matches
    Made made(2, 30, {static_cast<char>(letter), static_cast<char>(letter + 1)});
    const std::string word(9, static_cast<char>(letter + 1)),
        other = word + static_cast<char>(letter);
    const int64_t id = made.tokens.size();
    REQUIRE(made.tokens.find(word) < 0);
    made.tokens.add(word, id, "test");
    const Bpe whole(made.tokens, made.merges, {.by_bytes = true, .whole_words = true}, "test");
    CHECK(encode(whole, word) == std::vector<int32_t>{static_cast<int32_t>(id)});
    CHECK(encode(whole, other) == made.by_definition(other));
    for (const auto& merge : made.merges)
      CHECK(encode(whole, std::string(made.tokens.text(merge.result))) ==
            std::vector<int32_t>{merge.result});
    CHECK(encode(Bpe(made.tokens, made.merges, {.by_bytes = true}, "test"), word) ==
          made.by_definition(word));
  }
}

TEST_CASE("windows of a long word join as if it were merged whole") {
  std::mt19937 random(4);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const std::string alphabet = letters(1 + seed % 3);
    Made made(seed, alphabet.size() == 1 ? 20 : 200, alphabet);
    Bpe bpe(made.tokens, made.merges, {.by_bytes = true}, "test");
    // A rank no pair has makes the options differ: with an inner prefix no windows are used.
    Bpe whole(made.tokens, made.merges, {.end_suffix = "\x01"}, "test");
    std::string word = random_word(random, 200000, alphabet);
    if (seed == 0) word.assign(200000, 'a');
    std::vector<int32_t> expected = encode(whole, word + "\x02");
    std::vector<int32_t> got = encode(bpe, word + "\x02");
    if (got.size() != expected.size())
      expected.push_back(2);  // the suffix makes the last character unknown
    CHECK(got == expected);
  }
}

TEST_CASE("twenty megabytes in one word") {  // how the work grows: tests/growth
  for (int letter : {int{'a'}, 0xE0}) {      // merged in windows, and by longest matches
    Made made(5, 20, {static_cast<char>(letter)});
    Bpe bpe(made.tokens, made.merges, {.by_bytes = true}, "test");
    const std::string word(size_t{20} << 20, static_cast<char>(letter));
    WordTokens out;
    bpe.encode(word, out);
    CHECK(out.ids.size() < word.size());
  }
}

TEST_CASE("characters without a token") {
  TokenTable tokens;
  for (const char* text : {"<unk>", "a", "b", "ab"}) tokens.add(text, tokens.size(), "test");
  std::vector<BpeMerge> merges = {{1, 2, 3, 0}};
  CHECK(encode(Bpe(tokens, merges, {.unknown = 0}, "t"), "abxé") == std::vector<int32_t>{3, 0, 0});
  CHECK(encode(Bpe(tokens, merges, {.fuse_unknown = true, .unknown = 0}, "t"), "xéab") ==
        std::vector<int32_t>{0, 3});
  CHECK_THROWS_WITH_AS(Bpe(tokens, merges, {.by_bytes = true}, "t.json"),
                       doctest::Contains("t.json"), Error);
  tokens.add("<0xC3>", tokens.size(), "test");
  tokens.add("<0xA9>", tokens.size(), "test");
  CHECK(encode(Bpe(tokens, merges, {.byte_fallback = true, .unknown = 0}, "t"), "aéx") ==
        std::vector<int32_t>{1, 4, 5, 0});
}

TEST_CASE("a table of tokens refuses invalid entries") {
  TokenTable tokens;
  tokens.add("a", 5, "f.json");
  CHECK_THROWS_WITH_AS(tokens.add("a", 6, "f.json"), doctest::Contains("twice"), Error);
  CHECK_THROWS_WITH_AS(tokens.add("b", 5, "f.json"), doctest::Contains("f.json"), Error);
  CHECK_THROWS_AS(tokens.add("b", -1, "f.json"), Error);
  CHECK_THROWS_AS(tokens.add("b", int64_t{1} << 24, "f.json"), Error);
  CHECK_THROWS_AS(tokens.add(std::string(TokenTable::kMaxTokenBytes + 1, 'x'), 7, "f.json"), Error);
  tokens.add(std::string(TokenTable::kMaxTokenBytes, 'x'), 7, "f.json");
  CHECK_NOTHROW(tokens.check_gaps("f.json"));
  tokens.add("far", 1000000, "f.json");
  CHECK_THROWS_WITH_AS(tokens.check_gaps("f.json"), doctest::Contains("largest id"), Error);
  CHECK(tokens.find("far") == 1000000);
  CHECK(tokens.find("nothing") == -1);
}
