#include "mtrain/pipeline/schedule_text.h"

#include <charconv>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/config/location.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr const char* kExample =
    "examples of actions: 0F3 (stage 0, forward, micro-batch 3), 2B0, 2W0, 1RecvX3, 0SendX3, 2R";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_separator(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r' || c == '\n' || c == '#';
}

std::optional<ActionKind> kind_of(std::string_view text) {
  for (size_t i = 0; i < kNumActionKinds; ++i)
    if (text == name(static_cast<ActionKind>(i))) return static_cast<ActionKind>(i);
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Schedule run() {
    Schedule schedule;
    while (at_ < text_.size()) {
      Program program = line();
      if (!program.empty()) schedule.push_back(std::move(program));
    }
    if (schedule.empty()) fail("an action", text_.size());
    return schedule;
  }

 private:
  [[noreturn]] void fail(std::string_view wanted, size_t at) const {
    auto source = std::make_shared<Source>(SourceKind::file, name_, std::string(text_));
    size_t end = at;
    while (end < text_.size() && !is_separator(text_[end])) ++end;
    std::string got = at >= text_.size() ? "the end of the text"
                      : end == at        ? "nothing"
                                         : cat("'", printable(text_.substr(at, end - at), 40), "'");
    throw Error(ErrorClass::config,
                cat(locate(source, at).text(), ": wanted ", wanted, ", got ", got), kExample);
  }

  Program line() {
    Program program;
    for (; at_ < text_.size() && text_[at_] != '\n';) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.size(), text_.find('\n', at_));
      } else if (is_separator(text_[at_])) {
        ++at_;
      } else {
        program.push_back(action());
      }
    }
    if (at_ < text_.size()) ++at_;
    return program;
  }

  Action action() {
    auto stage = number<int16_t>("a stage number from 0 to 32767");
    size_t begin = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    auto what = kind_of(text_.substr(begin, at_ - begin));
    if (!what)
      fail("F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after the stage",
           begin);
    int32_t micro =
        has_micro_batch(*what) ? number<int32_t>("a micro-batch number from 0 to 2147483647") : 0;
    bool overlapped = *what == ActionKind::forward && at_ < text_.size() && text_[at_] == '+';
    if (overlapped) ++at_;
    if (at_ < text_.size() && !is_separator(text_[at_]))
      fail("a blank, a comma or the end of the line after an action", at_);
    return {*what, stage, micro, overlapped};
  }

  template <class T>
  T number(std::string_view wanted) {
    T value = 0;
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail(wanted, at_);
    auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(wanted, at_);
    at_ = static_cast<size_t>(stop - text_.data());
    return value;
  }

  std::string_view text_;
  std::string name_;
  size_t at_ = 0;
};

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view name) {
  return Reader(text, name).run();
}

Schedule load_schedule(const std::filesystem::path& path) {
  return parse_schedule(read_file(path, kMaxBytes), path.string());
}

}  // namespace mtrain
