#include "mtrain/pipeline/layout.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr size_t kMaxLetters = 100'000;
constexpr int kMaxDepth = 16;

/// Expands repeats: "E(t|)*2" becomes "Et|t|".
class Unroller {
 public:
  explicit Unroller(std::string_view text) : text_(text) {}

  std::string run(std::string& fault) {
    std::string out = sequence(0);
    if (fault_.empty() && at_ < text_.size()) fail("a ')' without a '('");
    fault = fault_;
    return out;
  }

 private:
  void fail(std::string message) {
    if (fault_.empty()) fault_ = cat(message, " (character ", at_ + 1, ")");
    at_ = text_.size();
  }

  std::string sequence(int depth) {
    std::string out;
    while (at_ < text_.size() && text_[at_] != ')') {
      char c = text_[at_];
      if (c == ',' || c == ' ') {
        ++at_;
        continue;
      }
      std::string item = c == '(' ? group(depth) : letter();
      auto times = repeats();
      if (!fault_.empty()) return {};
      if (times * item.size() > kMaxLetters || out.size() + times * item.size() > kMaxLetters) {
        fail(cat("more than ", kMaxLetters, " letters"));
        return {};
      }
      for (size_t i = 0; i < times; ++i) out += item;
    }
    return out;
  }

  std::string letter() {
    char c = text_[at_];
    if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
      fail(cat("'", printable({&c, 1}), "' is not one of E t m L | ( ) * ,"));
      return {};
    }
    ++at_;
    return {c};
  }

  std::string group(int depth) {
    if (depth == kMaxDepth) {
      fail("nested too deeply");
      return {};
    }
    ++at_;
    std::string inside = sequence(depth + 1);
    if (!fault_.empty()) return {};
    if (at_ >= text_.size()) {
      fail("a '(' without a ')'");
      return {};
    }
    ++at_;
    return inside;
  }

  size_t repeats() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    const char* begin = text_.data() + at_ + 1;
    const char* end = text_.data() + text_.size();
    uint32_t times = 0;
    auto [stop, error] = std::from_chars(begin, end, times);
    if (error != std::errc() || times == 0) {
      fail("wanted a positive integer after '*'");
      return 1;
    }
    at_ = static_cast<size_t>(stop - text_.data());
    return times;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string fault_;
};

std::string fault_of(const PipelineLayout& layout) {
  std::string all = join(layout.stages, "");
  if (all.empty() || all.front() != 'E') return "it must begin with E (embedding)";
  if (all.back() != 'L') return "it must end with L (output head and loss)";
  if (layout.count('E') != 1 || layout.count('L') != 1)
    return "it must have exactly one E and one L";
  if (layout.stages.front().empty()) return "E must be in the first stage";
  if (layout.stages.back().empty() && layout.stages.front() != all)
    return "L must be in the last stage";
  size_t first_m = all.find('m');
  if (first_m == std::string::npos) return "";
  if (all.find('t', first_m) != std::string::npos) return "a t cannot follow an m";
  auto has_m = [](const std::string& stage) { return stage.find('m') != std::string::npos; };
  if (std::count_if(layout.stages.begin(), layout.stages.end(), has_m) > 1)
    return "all m must be in the same stage";
  return "";
}

}  // namespace

int64_t PipelineLayout::count(char letter) const {
  int64_t out = 0;
  for (const auto& stage : stages) out += std::count(stage.begin(), stage.end(), letter);
  return out;
}

PipelineLayout parse_pipeline_layout(std::string_view text) {
  PipelineLayout out;
  std::string letters = Unroller(text).run(out.fault);
  if (!out.fault.empty()) return out;
  out.stages.emplace_back();
  for (char c : letters) {
    if (c == '|')
      out.stages.emplace_back();
    else
      out.stages.back() += c;
  }
  out.fault = fault_of(out);
  return out;
}

}  // namespace mtrain
