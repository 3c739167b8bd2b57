#include "mtrain/train/observers/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <string>
#include <string_view>

#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/train/observers/record_file.h"

namespace mtrain {
namespace {

// The part of protobuf's wire format that is needed: a key is (field << 3 | type).
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3 | 0);
    varint(value);
    return *this;
  }
  Message& real64(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  void fixed(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  const std::string& text() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>((value & 0x7F) | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

uint32_t masked_crc(std::string_view data) {
  uint32_t crc = crc32c(std::as_bytes(std::span(data.data(), data.size())));
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

std::string record(const std::string& payload) {
  Message length, out;
  length.fixed(payload.size(), 8);
  out.fixed(payload.size(), 8);
  out.fixed(masked_crc(length.text()), 4);
  std::string whole = out.text() + payload;
  Message tail;
  tail.fixed(masked_crc(payload), 4);
  return whole + tail.text();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// tensorflow.Event: 1 wall_time, 2 step, then one of 3 file_version, 5 summary, 7 session_log.
Message event(int64_t step) {
  Message out;
  out.real64(1, unix_seconds());
  if (step != 0) out.integer(2, static_cast<uint64_t>(step));
  return out;
}

// One Summary.Value {1 tag, 2 simple_value} as field 1 of a Summary.
void add_value(Message& summary, std::string_view tag, double value) {
  summary.bytes(1, Message().bytes(1, tag).real32(2, static_cast<float>(value)).text());
}

// One Summary.Value {1 tag, 8 tensor, 9 metadata} of the plugin `text`, which shows Markdown:
// TensorProto {1 dtype, 2 shape {2 dim {1 size}}, 8 string_val}, SummaryMetadata {1 plugin_data
// {1 plugin_name}, 4 data_class}.
void add_text(Message& summary, std::string_view tag, std::string_view markdown) {
  constexpr uint64_t kString = 7, kTensorData = 2;
  const std::string shape = Message().bytes(2, Message().integer(1, 1).text()).text(),
                    tensor =
                        Message().integer(1, kString).bytes(2, shape).bytes(8, markdown).text(),
                    plugin = Message().bytes(1, "text").text(),
                    metadata = Message().bytes(1, plugin).integer(4, kTensorData).text();
  summary.bytes(1, Message().bytes(1, tag).bytes(8, tensor).bytes(9, metadata).text());
}

// The text as a block of code, so that its line ends and characters stay what they are.
std::string code_block(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

// A file name that is not in use: two runs that start within one second must not share a file.
fs::path new_file(const fs::path& dir) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0')
    host = {'l', 'o', 'c', 'a', 'l'};
  std::string name =
      cat("events.out.tfevents.", static_cast<int64_t>(unix_seconds()), ".", host.data());
  for (char& c : name)
    if (c == '/') c = '_';
  fs::path path = dir / name;
  std::error_code ignored;
  for (int i = 1; fs::exists(path, ignored) && i < 1000; ++i) path = dir / cat(name, ".", i);
  return path;
}

class TensorBoard final : public Observer {
 public:
  explicit TensorBoard(const fs::path& dir) : file_(new_file(dir), "tensorboard") {
    file_.append(record(event(0).bytes(3, "brain.Event:2").text()));
  }

  void on_start(const RunInfo& info) override {
    if (info.first_step <= 0) return;
    std::string session = Message().integer(1, 1).text();  // SessionLog{status: START}
    file_.append(record(event(info.first_step + 1).bytes(7, session).text()));
  }

  void on_step(const StepMetrics& m) override {
    Message summary;
    add_value(summary, "train/loss", m.loss);
    add_value(summary, "train/grad_norm", m.grad_norm);
    add_value(summary, "train/lr", m.lr);
    add_value(summary, "train/tokens_per_second", m.tokens_per_second);
    add_value(summary, "train/step_ms", m.step_seconds * 1e3);
    add_value(summary, "train/tflops", m.tflops);
    if (m.mfu > 0) add_value(summary, "train/mfu", m.mfu);
    add_value(summary, "train/memory_bytes", static_cast<double>(m.memory_bytes));
    for (const auto& [name, value] : m.figures) add_value(summary, "train/" + name, value);
    file_.append(record(event(m.step).bytes(5, summary.text()).text()));
  }

  void on_eval(const EvalMetrics& m) override {
    Message summary;
    add_value(summary, m.split + "/loss", m.loss);
    for (const auto& [name, value] : m.figures) add_value(summary, m.split + "/" + name, value);
    file_.append(record(event(m.step).bytes(5, summary.text()).text()));
  }

  void on_generations(const Generations& g) override {
    Message summary;
    for (size_t i = 0; i < g.texts.size(); ++i) {
      const Generations::Text& one = g.texts[i];
      add_text(summary, cat("generated/", i + 1),
               cat(code_block(one.prompt), "\n\n", one.tokens, " tokens, ", one.end(), ":\n\n",
                   code_block(one.text)));
    }
    file_.append(record(event(g.step).bytes(5, summary.text()).text()));
  }

 private:
  RecordFile file_;
};

}  // namespace

std::unique_ptr<Observer> make_tensorboard(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);  // if this fails, RecordFile reports it
  return std::make_unique<TensorBoard>(dir);
}

}  // namespace mtrain
