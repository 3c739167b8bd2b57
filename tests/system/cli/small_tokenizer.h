// A small tokenizer file for tests of Hugging Face folders.
#pragma once
#include <array>
#include <nlohmann/json.hpp>
#include <string>

namespace mtrain::testing {

/// The character of an id of small_tokenizer() that is no special one: 3, 4, …
inline std::string small_token(size_t id) {
  const size_t ascii = 0x20 + id - 3, c = ascii < 0x7F ? ascii : ascii - 0x7F + 0xA1;
  return c < 0x80 ? std::string(1, static_cast<char>(c))
                  : std::string{static_cast<char>(0xC0 | (c >> 6)),
                                static_cast<char>(0x80 | (c & 0x3F))};
}

/// A tokenizer.json of so many ids, one for each character that it knows.
inline std::string small_tokenizer(size_t ids = 200, const std::array<const char*, 3>& names = {
                                                         "<unk>", "<s>", "</s>"}) {
  nlohmann::ordered_json vocab;
  for (size_t id = 0; id < 3; ++id) vocab[names[id]] = id;
  for (size_t id = 3; id < ids; ++id) vocab[small_token(id)] = id;
  auto special = nlohmann::ordered_json::array();
  for (size_t id = 0; id < 3; ++id)
    special.push_back({{"id", id},
                       {"content", names[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  return nlohmann::ordered_json{{"version", "1.0"},
                                {"added_tokens", special},
                                {"normalizer", nullptr},
                                {"pre_tokenizer", nullptr},
                                {"post_processor", nullptr},
                                {"decoder", {{"type", "Fuse"}}},
                                {"model",
                                 {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", "<unk>"},
                                  {"vocab", vocab},
                                  {"merges", nlohmann::json::array()}}}}
      .dump();
}

}  // namespace mtrain::testing
