#include "mtrain/train/observers/console.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/train/observers/console_stream.h"
#include "mtrain/train/observers/progress_line.h"

namespace mtrain {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kSmoothing = 0.95;                       // an average over about twenty steps
constexpr size_t kMaxText = 4096;                         // maximum length of an event's line
constexpr size_t kMaxPrompt = 100, kMaxGenerated = 1000;  // bytes of texts; files have all of them

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string_view value = environment(name);
    if (value.empty()) continue;
    std::string lower;
    for (char c : value) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An exponential moving average with bias correction, so it is valid from the first value on.
class Smoothed {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum_ = kSmoothing * sum_ + value;
    weight_ = kSmoothing * weight_ + 1;
  }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

 private:
  double sum_ = 0, weight_ = 0;
};

// 1234567 -> "1,234,567".
std::string grouped(int64_t count) {
  std::string digits = std::to_string(count), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') out += ',';
    out += digits[i];
  }
  return out;
}

// The text with its lines indented; truncated at a character.
std::string indented(std::string_view text, size_t max_bytes) {
  size_t end = std::min(text.size(), max_bytes);
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) --end;
  std::string out;
  for (const char c : printable_lines(text.substr(0, end))) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return end < text.size() ? out + "…" : out;
}

class Console final : public Observer {
 public:
  explicit Console(ConsoleOptions options)
      : options_(std::move(options)),
        stream_(options_.fd),
        live_(options_.mode == ConsoleMode::live) {
    if (!options_.clock) options_.clock = monotonic_seconds;
    std::string_view terminal = environment("TERM");
    if (options_.mode == ConsoleMode::automatic)
      live_ = stream_.is_terminal() && !terminal.empty() && terminal != "dumb";
    style_ = {.color = live_ && environment("NO_COLOR").empty(), .blocks = utf8_locale()};
    start_time_ = options_.clock();
  }
  ~Console() override {
    if (line_shown_) stream_.write("\n");  // an error message follows
  }

  void on_start(const RunInfo& info) override {
    info_ = info;
    start_time_ = options_.clock();
    progress_.total = info.total_steps;
    progress_.step = info.first_step;
    if (options_.interval <= 0) options_.interval = plain_interval(info.total_steps);
    banner();
  }

  void on_step(const StepMetrics& m) override {
    double now = options_.clock();
    if (!first_step_time_) {
      first_step_ = m.step;
      first_step_time_ = now;
    }
    update(m, now);
    if (live_) {
      if (now - drawn_at_ >= kRedrawSeconds || m.step >= info_.total_steps) draw(now);
    } else if (m.step % options_.interval == 0 || m.step == info_.total_steps ||
               m.step == info_.first_step + 1) {
      plain_line(m);
    }
  }

  void on_eval(const EvalMetrics& m) override {
    std::string tokens = human_count(static_cast<double>(m.tokens));
    print(cat("step ", m.step, ": ", m.split, " loss ", short_loss(m.loss),
              m.figures.empty() ? cat(", perplexity ", short_number(std::exp(m.loss)))
                                : further_losses(m.figures),
              "  (", tokens, " tokens in ", short_number(m.seconds), "s)"));
  }

  void on_generations(const Generations& g) override {
    std::string block = cat("step ", g.step, ": ", counted(std::ssize(g.texts), "generated text"),
                            "  (", short_number(g.seconds), "s)");
    for (const auto& one : g.texts)
      block += cat("\n  > ", printable(one.prompt, kMaxPrompt), "\n    ",
                   indented(one.text, kMaxGenerated), "  [", counted(one.tokens, "token"), ", ",
                   one.end(), "]");
    print(block);
  }

  void on_event(const std::string& text) override { print(printable(text, kMaxText)); }

  void on_end(int64_t step) override {
    erase();
    int64_t done = step - info_.first_step;
    double seconds = options_.clock() - start_time_;
    std::string how =
        step >= info_.total_steps
            ? cat("done: ", grouped(done), done == 1 ? " step" : " steps")
            : cat("stopped after step ", grouped(step), " of ", grouped(info_.total_steps));
    print(cat(how, " in ", human_seconds(seconds),
              done > 0 ? cat(", last loss ", short_loss(last_loss_), mean_note()) : ""));
  }

 private:
  static std::string short_number(double value) {
    if (!std::isfinite(value)) return short_loss(value);
    if (value >= 1000) return human_count(value);
    std::ostringstream out;
    out << std::fixed << std::setprecision(value < 10 ? 2 : 1) << value;
    return out.str();
  }

  void banner() {
    const RunInfo& i = info_;
    int64_t tokens = i.global_batch_size * i.seq_length;
    print(cat(printable(i.name.empty() ? "run" : i.name), ": ",
              human_count(static_cast<double>(i.parameters)), " parameters",
              i.trained > 0 && i.trained < i.parameters
                  ? cat(" (", human_count(static_cast<double>(i.trained)), " trained)")
                  : "",
              ", ", i.dtype, " on ", printable(i.device), printable(dtype_note(i))));
    const bool changes = i.batch_sizes.find(',') != std::string::npos;
    print(changes
              ? cat("  batch  (", i.batch_sizes, ") x ", grouped(i.seq_length), " tokens per step")
              : cat("  batch  ", grouped(i.global_batch_size), " x ", grouped(i.seq_length), " = ",
                    grouped(tokens), " tokens per step"));
    print(cat("  steps  ", grouped(i.total_steps), " = ",
              human_count(static_cast<double>(i.total_tokens > 0 ? i.total_tokens
                                                                 : tokens * i.total_steps)),
              " tokens",
              i.first_step > 0 ? cat(", continuing after step ", grouped(i.first_step)) : ""));
    for (const std::string& group : i.param_groups)
      print(cat("  group  ", printable(group, kMaxText)));
    if (!i.pipeline.empty()) print(cat("  stages ", printable(i.pipeline, kMaxText)));
    if (i.planned_bytes > 0)
      print(cat("  memory ", human_bytes(i.planned_memory.total()), ": ", i.planned_memory.text()));
    print(cat("  folder ", printable(i.directory, kMaxText)));
  }

  void update(const StepMetrics& m, double now) {
    last_loss_ = m.loss;
    loss_.add(m.loss);
    rate_.add(m.tokens_per_second);
    if (std::isfinite(m.loss)) {
      plain_sum_ += m.loss;
      ++plain_count_;
    }
    progress_.step = m.step;
    progress_.loss = std::isfinite(m.loss) ? loss_.value() : m.loss;
    progress_.lr = m.lr;
    progress_.tokens_per_second = rate_.value();
    // The first step includes start-up costs, so time is measured from its end; evaluations and
    // saves are included.
    if (m.step > first_step_) {
      double per_step = (now - *first_step_time_) / static_cast<double>(m.step - first_step_);
      progress_.seconds_left =
          per_step * static_cast<double>(std::max<int64_t>(0, info_.total_steps - m.step));
    }
  }

  // The loss is the mean over the steps since the previous line.
  void plain_line(const StepMetrics& m) {
    double mean = plain_count_ > 0 ? plain_sum_ / static_cast<double>(plain_count_) : m.loss;
    shown_mean_ = mean;
    shown_count_ = std::exchange(plain_count_, 0);
    plain_sum_ = 0;
    std::string total = std::to_string(info_.total_steps), step = std::to_string(m.step);
    step.insert(0, total.size() > step.size() ? total.size() - step.size() : 0, ' ');
    print(cat("step ", step, "/", total, "  loss ",
              short_loss(std::isfinite(m.loss) ? mean : m.loss), "  lr ", short_lr(m.lr),
              further_losses(m.figures), "  grad norm ", short_loss(m.grad_norm), "  ",
              human_count(rate_.value()), " tokens/s  ETA ",
              progress_.seconds_left < 0 ? "?" : human_seconds(progress_.seconds_left)));
  }

  /// The losses of multi-token prediction, and how an objective over answers prefers the chosen
  /// ones, or how many classes are right.
  static std::string further_losses(const std::vector<std::pair<std::string, double>>& figures) {
    std::string out;
    for (const auto& [name, value] : figures)
      if (name.starts_with("mtp_") || name == "rewards/accuracies" || name == "rewards/margins" ||
          name == "accuracy" || name == "margin")
        out += cat("  ", name, " ", short_loss(value));
    return out;
  }

  /// The mean loss of the steps since the last line, or of those of the last line if there are
  /// none, where it differs from the last step's loss.
  std::string mean_note() const {
    const bool newer = !live_ && plain_count_ > 0;
    const int64_t count = newer ? plain_count_ : shown_count_;
    const std::string mean =
        short_loss(newer ? plain_sum_ / static_cast<double>(plain_count_) : shown_mean_);
    return count > 1 && mean != short_loss(last_loss_)
               ? cat(" (mean of the last ", count, " steps ", mean, ")")
               : "";
  }

  void draw(double now) {
    if (stream_.behind()) return;  // the reader is behind: redrawing would add to the backlog
    // One column stays free, since some terminals wrap a full row.
    int columns = (options_.columns > 0 ? options_.columns : stream_.columns()) - 1;
    stream_.write(cat("\r", progress_line(progress_, columns, style_), "\x1b[K"));
    line_shown_ = true;
    drawn_at_ = now;
  }

  void erase() {
    if (std::exchange(line_shown_, false)) stream_.write("\r\x1b[K");
  }

  // Prints a permanent line above the live one.
  void print(const std::string& text) {
    bool shown = line_shown_;
    erase();
    stream_.write(text + "\n");
    if (shown) draw(options_.clock());
  }

  ConsoleOptions options_;
  ConsoleStream stream_;
  bool live_ = false, line_shown_ = false;
  ProgressStyle style_;
  RunInfo info_;
  Progress progress_;
  Smoothed loss_, rate_;
  double start_time_ = 0, drawn_at_ = -1e9, last_loss_ = 0;
  int64_t first_step_ = 0;
  std::optional<double> first_step_time_;
  double plain_sum_ = 0;
  int64_t plain_count_ = 0;
  double shown_mean_ = 0;    // the mean loss in the newest plain line
  int64_t shown_count_ = 0;  // the number of steps in that mean
};

}  // namespace

int64_t plain_interval(int64_t total_steps) {
  int64_t wanted = total_steps / 100 + (total_steps % 100 > 0 ? 1 : 0);
  for (int64_t decade = 1;; decade *= 10)
    for (int64_t factor : {1, 2, 5})
      if (decade * factor >= wanted) return decade * factor;
}

std::unique_ptr<Observer> make_console(ConsoleOptions options) {
  return std::make_unique<Console>(std::move(options));
}

}  // namespace mtrain
