// A small tokenizer file for tests of Hugging Face folders.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace mtrain::testing {

/// A tokenizer.json of so many ids, one for each character that it knows.
inline std::string small_tokenizer(size_t ids = 200) {
  nlohmann::ordered_json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int c = 0x20; vocab.size() < ids; ++c) {
    if (c >= 0x7F && c < 0xA1) continue;
    std::string text = c < 0x80 ? std::string(1, static_cast<char>(c))
                                : std::string{static_cast<char>(0xC0 | (c >> 6)),
                                              static_cast<char>(0x80 | (c & 0x3F))};
    vocab[text] = vocab.size();
  }
  auto special = nlohmann::ordered_json::array();
  for (int id = 0; id < 3; ++id)
    special.push_back({{"id", id},
                       {"content", id == 0   ? "<unk>"
                                   : id == 1 ? "<s>"
                                             : "</s>"},
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
