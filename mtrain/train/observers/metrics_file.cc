#include "mtrain/train/observers/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/train/observers/record_file.h"

namespace mtrain {
namespace {

// Space for any double (24 characters) or for a null with its text, so that val_loss can be filled
// in later without moving other bytes. Unused space is filled with blanks after the object.
constexpr size_t kValRoom = sizeof(R"(null,"val_loss_text":"-inf")") - 1;

std::string json_number(double value) { return std::isfinite(value) ? shortest(value) : "null"; }

// The value; if it is not finite, null and its text under a second key.
std::string number_or_text(const char* key, double value) {
  std::string out = json_number(value);
  if (std::isfinite(value)) return out;
  const char* text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  return cat(out, ",\"", key, "_text\":\"", text, "\"");
}

// A line from the value of val_loss to its end.
std::string val_end(const std::string& value) {
  std::string out = value + "}";
  out.resize(std::max(out.size(), kValRoom + 1), ' ');
  return out + "\n";
}

/// `figures`: names and values, as StepMetrics and EvalMetrics have them.
std::string figures_text(const auto& figures, const char* prefix = "") {
  std::string out;
  for (const auto& [name, value] : figures) {
    const std::string key = cat(prefix, name);
    out += cat(",\"", key, "\":", number_or_text(key.c_str(), value));
  }
  return out;
}

std::string step_line(const StepMetrics& m) {
  return cat(
      "{\"step\":", m.step, ",\"loss\":", number_or_text("loss", m.loss),
      ",\"grad_norm\":", number_or_text("grad_norm", m.grad_norm), ",\"lr\":", json_number(m.lr),
      ",\"tokens\":", m.tokens, ",\"tokens_per_second\":", json_number(m.tokens_per_second),
      ",\"step_ms\":", json_number(m.step_seconds * 1e3), ",\"tflops\":", json_number(m.tflops),
      ",\"mfu\":", m.mfu > 0 ? json_number(m.mfu) : "null", ",\"memory_bytes\":", m.memory_bytes,
      figures_text(m.figures), ",\"val_loss\":", val_end("null"));
}

/// A line for a step of which only these values exist. `figures`: further keys, each after a comma.
std::string null_line(int64_t step, const std::string& tokens, const std::string& figures,
                      const std::string& val_loss) {
  return cat("{\"step\":", step,
             ",\"loss\":null,\"grad_norm\":null,\"lr\":null,\"tokens\":", tokens,
             ",\"tokens_per_second\":null,\"step_ms\":null,\"tflops\":null,\"mfu\":null,",
             "\"memory_bytes\":null", figures, ",\"val_loss\":", val_end(val_loss));
}

class MetricsFile final : public Observer {
 public:
  MetricsFile(const fs::path& path, int64_t first_step) : file_(path, "metrics") {
    file_.truncate(bytes_up_to_step(path, first_step));
  }

  void on_step(const StepMetrics& metrics) override { append(metrics.step, step_line(metrics)); }

  void on_skipped_step(int64_t step, int64_t tokens) override {
    append(step, null_line(step, cat(tokens), "", "null"));
  }

  void on_eval(const EvalMetrics& metrics) override {
    if (metrics.split != "valid") return;
    const std::string loss = number_or_text("val_loss", metrics.loss);
    const std::string figures = figures_text(metrics.figures, "val_");
    const bool replaced = metrics.step == step_ && val_offset_ >= 0 &&
                          file_.replace(val_offset_, val_end("null"), val_end(loss));
    if (!replaced) file_.append(null_line(metrics.step, "null", figures, loss));
    // The line of the step has no room for figures.
    if (replaced && !figures.empty())
      file_.append(null_line(metrics.step, "null", figures, "null"));
  }

 private:
  void append(int64_t step, const std::string& line) {
    int64_t offset = file_.append(line);
    step_ = step;
    val_offset_ = offset < 0 ? -1 : offset + static_cast<int64_t>(line.size() - val_end("").size());
  }

  RecordFile file_;
  int64_t step_ = -1;
  int64_t val_offset_ = -1;  // of the space for val_loss in the line of step_
};

}  // namespace

std::unique_ptr<Observer> make_metrics_file(const fs::path& path, int64_t first_step) {
  return std::make_unique<MetricsFile>(path, first_step);
}

}  // namespace mtrain
