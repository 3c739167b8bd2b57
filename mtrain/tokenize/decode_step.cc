#include "mtrain/tokenize/decode_step.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "mtrain/base/text.h"
#include "mtrain/tokenize/byte_alphabet.h"

namespace mtrain::tokenize {
namespace {

using Texts = std::vector<std::string>;

template <class Change>
class Step final : public DecodeStep {
 public:
  explicit Step(Change change) : change_(std::move(change)) {}
  void apply(Texts& texts) const override { change_(texts); }

 private:
  Change change_;
};

template <class Change>
DecodeStepPtr step(Change change) {
  return std::make_unique<Step<Change>>(std::move(change));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.size() < from.size()) return;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Removes the spaces that BERT's tokenizer inserts where English has none.
void clean_blanks(std::string& text) {
  constexpr std::array<std::array<std::string_view, 2>, 11> kRules = {{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" do not", " don't"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

void join_bytes(Texts& texts) {
  Texts out;
  std::string run;
  size_t run_tokens = 0;
  auto finish = [&](bool at_end) {
    if (run_tokens == 0) return;
    if (!at_end && !valid_utf8(run)) {
      run.clear();
      for (size_t i = 0; i < run_tokens; ++i) run += "\xEF\xBF\xBD";
    }
    out.push_back(std::move(run));
    run.clear();
    run_tokens = 0;
  };
  for (auto& text : texts) {
    if (const int byte = byte_token_value(text); byte >= 0) {
      run += static_cast<char>(static_cast<unsigned char>(byte));
      ++run_tokens;
      continue;
    }
    finish(false);
    out.push_back(std::move(text));
  }
  finish(true);
  texts = std::move(out);
}

}  // namespace

int byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  uint8_t value = 0;  // unsigned: from_chars reads no sign
  auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  return error == std::errc() && end == text.data() + 5 ? value : -1;
}

DecodeStepPtr decode_byte_level() {
  return step([](Texts& texts) {
    std::string out;
    for (const auto& text : texts)
      if (!chars_to_bytes(text, out)) out += text;
    texts.assign(1, std::move(out));
  });
}

DecodeStepPtr decode_word_piece(std::string prefix, bool cleanup) {
  return step([prefix = std::move(prefix), cleanup](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && texts[i].starts_with(prefix))
        texts[i].erase(0, prefix.size());
      else if (i > 0)
        texts[i].insert(0, 1, ' ');
      if (cleanup) clean_blanks(texts[i]);
    }
  });
}

DecodeStepPtr decode_metaspace(std::string replacement, PrependScheme scheme) {
  return step([replacement = std::move(replacement), scheme](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i)
      replace_all(texts[i], replacement, i == 0 && scheme != PrependScheme::never ? "" : " ");
  });
}

DecodeStepPtr decode_bpe_suffix(std::string suffix) {
  return step([suffix = std::move(suffix)](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i)
      replace_all(texts[i], suffix, i + 1 == texts.size() ? "" : " ");
  });
}

DecodeStepPtr decode_replace(Regex pattern, std::string content) {
  auto shared = std::make_shared<const Regex>(std::move(pattern));
  return step([shared, content = std::move(content)](Texts& texts) {
    for (auto& text : texts) {
      if (!valid_utf8(text)) continue;
      std::string out;
      size_t done = 0;
      shared->each(text, [&](size_t begin, size_t end) {
        out.append(text, done, begin - done).append(content);
        done = end;
      });
      if (done > 0) text = out.append(text, done);
    }
  });
}

DecodeStepPtr decode_fuse() {
  return step([](Texts& texts) {
    std::string out;
    for (const auto& text : texts) out += text;
    texts.assign(1, std::move(out));
  });
}

DecodeStepPtr decode_strip(std::string content, int64_t start, int64_t stop) {
  return step([content = std::move(content), start, stop](Texts& texts) {
    if (content.empty()) return;
    for (auto& text : texts) {
      for (int64_t i = 0; i < start && text.starts_with(content); ++i)
        text.erase(0, content.size());
      for (int64_t i = 0; i < stop && text.ends_with(content); ++i)
        text.resize(text.size() - content.size());
    }
  });
}

DecodeStepPtr decode_byte_fallback() { return step(join_bytes); }

DecodeStepPtr decode_ctc(std::string pad, std::string word_delimiter, bool cleanup) {
  return step(
      [pad = std::move(pad), word_delimiter = std::move(word_delimiter), cleanup](Texts& texts) {
        texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
        for (auto& text : texts) {
          replace_all(text, pad, "");
          if (!cleanup) continue;
          clean_blanks(text);
          replace_all(text, word_delimiter, " ");
        }
        std::erase_if(texts, [](const auto& text) { return text.empty(); });
      });
}

}  // namespace mtrain::tokenize
