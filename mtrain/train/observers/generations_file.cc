#include "mtrain/train/observers/generations_file.h"

#include <nlohmann/json.hpp>
#include <string>

#include "mtrain/train/observers/record_file.h"

namespace mtrain {
namespace {

class GenerationsFile final : public Observer {
 public:
  GenerationsFile(const fs::path& path, int64_t first_step) : file_(path, "generations") {
    file_.truncate(bytes_up_to_step(path, first_step));
  }

  void on_generations(const Generations& g) override {
    std::string lines;
    for (const auto& one : g.texts) {
      const nlohmann::ordered_json line = {{"step", g.step},
                                           {"prompt", one.prompt},
                                           {"text", one.text},
                                           {"tokens", one.tokens},
                                           {"ended", one.end()}};
      lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    file_.append(lines);
  }

 private:
  RecordFile file_;
};

}  // namespace

std::unique_ptr<Observer> make_generations_file(const fs::path& path, int64_t first_step) {
  return std::make_unique<GenerationsFile>(path, first_step);
}

}  // namespace mtrain
