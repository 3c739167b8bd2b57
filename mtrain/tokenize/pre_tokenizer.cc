#include "mtrain/tokenize/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "mtrain/tokenize/byte_alphabet.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

struct Piece {
  TextSpan span;
  bool match;
};

/// Splits a range into alternating pieces: matches of the pattern and the text between them.
std::vector<Piece> pieces_of(std::string_view text, const TextSpan& range, const Regex& pattern,
                             bool invert) {
  std::vector<Piece> out;
  uint32_t done = range.begin;
  pattern.each(text.substr(range.begin, range.end - range.begin), [&](size_t begin, size_t end) {
    const auto from = static_cast<uint32_t>(range.begin + begin),
               to = static_cast<uint32_t>(range.begin + end);
    if (from > done) out.push_back({{done, from}, invert});
    out.push_back({{from, to}, !invert});
    done = to;
  });
  if (done < range.end) out.push_back({{done, range.end}, invert});
  return out;
}

/// The same, where each character that passes the test is a match.
std::vector<Piece> pieces_of(std::string_view text, const TextSpan& range, const CharTest& test) {
  std::vector<Piece> out;
  for (uint32_t at = range.begin; at < range.end;) {
    const auto c = decode_char(text, at);
    const bool match = test(c.value);
    if (!match && !out.empty() && !out.back().match)
      out.back().span.end += c.bytes;
    else
      out.push_back({{at, at + c.bytes}, match});
    at += c.bytes;
  }
  return out;
}

void append_pieces(std::vector<Piece> pieces, SplitBehavior behavior, std::vector<TextSpan>& out) {
  const size_t first = out.size();
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(pieces.begin(), pieces.end());
  bool match_before = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const bool any = out.size() > first;
    switch (behavior) {
      case SplitBehavior::removed:
        if (!piece.match) out.push_back(piece.span);
        break;
      case SplitBehavior::isolated:
        out.push_back(piece.span);
        break;
      case SplitBehavior::contiguous:
        if (any && piece.match == match_before)
          out.back().end = piece.span.end;
        else
          out.push_back(piece.span);
        break;
      case SplitBehavior::merged_with_previous:
        if (any && piece.match && !match_before)
          out.back().end = piece.span.end;
        else
          out.push_back(piece.span);
        break;
      case SplitBehavior::merged_with_next:
        if (any && piece.match && !match_before)
          out.back().begin = piece.span.begin;
        else
          out.push_back(piece.span);
        break;
    }
    match_before = piece.match;
  }
  if (backwards) std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

/// Splits every range by a function that appends its parts.
template <class Split>
class Splitter final : public PreTokenizer {
 public:
  explicit Splitter(Split split) : split_(std::move(split)) {}
  void apply(Words& words) const override {
    std::vector<TextSpan> out;
    out.reserve(words.ranges.size());
    for (const auto& range : words.ranges)
      if (range.end > range.begin) split_(std::string_view(words.text.text), range, out);
    words.ranges = std::move(out);
  }

 private:
  Split split_;
};

template <class Split>
PreTokenizerPtr splitter(Split split) {
  return std::make_unique<Splitter<Split>>(std::move(split));
}

void split_known_range(KnownPattern pattern, std::string_view text, const TextSpan& range,
                       std::vector<TextSpan>& out) {
  std::array<uint32_t, 256> ends;
  const auto part = text.substr(range.begin, range.end - range.begin);
  uint32_t begin = range.begin;
  for (size_t at = 0; at < part.size();) {
    const size_t count = scan_words(pattern, part, at, ends.data(), ends.size());
    for (size_t i = 0; i < count; ++i) {
      out.push_back({begin, range.begin + ends[i]});
      begin = range.begin + ends[i];
    }
  }
}

/// Rebuilds the text range by range; `edit_range` appends a range's new text.
template <class Edit>
void rebuild(Words& words, Edit edit_range) {
  TextEditor edit(words.text);
  std::vector<TextSpan> out;
  out.reserve(words.ranges.size());
  for (const auto& range : words.ranges) {
    const auto begin = static_cast<uint32_t>(edit.size());
    edit_range(edit, range);
    out.push_back({begin, static_cast<uint32_t>(edit.size())});
  }
  words.text = edit.take();
  words.ranges = std::move(out);
}

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const ByteLevelSplit& options) : options_(options) {}
  void apply(Words& words) const override {
    if (options_.add_prefix_space)
      rebuild(words, [&](TextEditor& edit, const TextSpan& range) {
        if (range.end > range.begin && words.text.text[range.begin] != ' ')
          edit.put(" ", range.begin);
        edit.copy(range.begin, range.end);
      });
    if (options_.use_regex) {
      std::vector<TextSpan> out;
      for (const auto& range : words.ranges)
        split_known_range(KnownPattern::gpt2, words.text.text, range, out);
      words.ranges = std::move(out);
    }
    if (options_.to_chars)
      rebuild(words, [&](TextEditor& edit, const TextSpan& range) {
        for (uint32_t at = range.begin; at < range.end; ++at)
          edit.put(byte_chars()[static_cast<unsigned char>(words.text.text[at])], at);
      });
  }

 private:
  ByteLevelSplit options_;
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  bool wants_origin() const override { return scheme_ == PrependScheme::first; }

  void apply(Words& words) const override {
    const std::string& text = words.text.text;
    rebuild(words, [&](TextEditor& edit, const TextSpan& range) {
      if (range.end == range.begin) return;
      const bool has_one =
          text[range.begin] == ' ' || std::string_view(text)
                                          .substr(range.begin, range.end - range.begin)
                                          .starts_with(replacement_);
      const bool wanted =
          scheme_ == PrependScheme::always ||
          (scheme_ == PrependScheme::first && words.text.origin[range.begin].begin == 0);
      if (wanted && !has_one) edit.put(replacement_, range.begin);
      for (uint32_t at = range.begin; at < range.end; ++at)
        text[at] == ' ' ? edit.put(replacement_, at) : edit.copy(at, at + 1);
    });
    if (!split_) return;
    std::vector<TextSpan> out;
    const Regex pattern = Regex::literal(replacement_);
    for (const auto& range : words.ranges)
      append_pieces(pieces_of(words.text.text, range, pattern, false),
                    SplitBehavior::merged_with_next, out);
    words.ranges = std::move(out);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class Steps final : public PreTokenizer {
 public:
  explicit Steps(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
  void apply(Words& words) const override {
    for (const auto& step : steps_) step->apply(words);
  }
  bool wants_origin() const override {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const auto& step) { return step->wants_origin(); });
  }

 private:
  std::vector<PreTokenizerPtr> steps_;
};

}  // namespace

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !is_word_char(c) ? true : c == '_';
  return CharTable::get().is(c, kPunctuation);
}

bool is_white_space(char32_t c) { return CharTable::get().is(c, kWhiteSpace); }

PreTokenizerPtr split_regex(Regex pattern, SplitBehavior behavior, bool invert) {
  auto shared = std::make_shared<const Regex>(std::move(pattern));
  return splitter(
      [shared, behavior, invert](std::string_view text, const TextSpan& range, auto& out) {
        append_pieces(pieces_of(text, range, *shared, invert), behavior, out);
      });
}

PreTokenizerPtr split_known(KnownPattern pattern) {
  return splitter([pattern](std::string_view text, const TextSpan& range, auto& out) {
    split_known_range(pattern, text, range, out);
  });
}

PreTokenizerPtr split_chars(CharTest test, SplitBehavior behavior) {
  return splitter(
      [test = std::move(test), behavior](std::string_view text, const TextSpan& range, auto& out) {
        append_pieces(pieces_of(text, range, test), behavior, out);
      });
}

PreTokenizerPtr split_words_and_marks() {
  return splitter([](std::string_view text, const TextSpan& range, std::vector<TextSpan>& out) {
    int before = 0;  // 0 space, 1 word, 2 punctuation
    for (uint32_t at = range.begin; at < range.end;) {
      const auto c = decode_char(text, at);
      const int kind = is_word_char(c.value) ? 1 : is_white_space(c.value) ? 0 : 2;
      if (kind != 0 && kind == before)
        out.back().end = at + c.bytes;
      else if (kind != 0)
        out.push_back({at, at + c.bytes});
      before = kind;
      at += c.bytes;
    }
  });
}

PreTokenizerPtr split_before_runs(std::string mark) {
  return splitter([mark = std::move(mark)](std::string_view text, const TextSpan& range,
                                           std::vector<TextSpan>& out) {
    uint32_t begin = range.begin;
    const std::string_view part = text.substr(0, range.end);
    for (size_t at = part.find(mark, begin); at != std::string_view::npos;) {
      if (at > begin) {
        out.push_back({begin, static_cast<uint32_t>(at)});
        begin = static_cast<uint32_t>(at);
      }
      while (part.substr(at).starts_with(mark)) at += mark.size();
      at = part.find(mark, at);
    }
    if (begin < range.end) out.push_back({begin, range.end});
  });
}

PreTokenizerPtr split_scripts() {
  return splitter([](std::string_view text, const TextSpan& range, std::vector<TextSpan>& out) {
    const size_t first = out.size();
    int last = kAnyScript;
    for (uint32_t at = range.begin; at < range.end;) {
      const auto c = decode_char(text, at);
      const int script = script_group(c.value);
      if (script != kAnyScript && (script != last || out.size() == first)) {
        if (out.size() > first) out.back().end = at;
        out.push_back({at, range.end});
        last = script;
      }
      at += c.bytes;
    }
  });
}

PreTokenizerPtr split_every(int64_t chars) {
  return splitter(
      [chars](std::string_view text, const TextSpan& range, std::vector<TextSpan>& out) {
        int64_t left = 0;
        for (uint32_t at = range.begin; at < range.end; --left) {
          const auto bytes = static_cast<uint32_t>(char_bytes(text[at]));
          if (left == 0) out.push_back({at, at}), left = chars;
          at += bytes;
          out.back().end = at;
        }
      });
}

PreTokenizerPtr byte_level(const ByteLevelSplit& options) {
  return std::make_unique<ByteLevel>(options);
}

PreTokenizerPtr metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

PreTokenizerPtr in_turn(std::vector<PreTokenizerPtr> steps) {
  return std::make_unique<Steps>(std::move(steps));
}

}  // namespace mtrain::tokenize
