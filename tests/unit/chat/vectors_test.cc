// Templates that models are shipped with, against what Jinja 3.1.2 made of them with transformers'
// settings.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/omissions.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::chat;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

fs::path vectors() { return testing::shared_root() / "data/vectors/chat"; }

Json read(const fs::path& file) {
  std::ifstream in(file);
  return Json::parse(in);
}

std::string outcome(const ChatTemplate& chat_template, const ChatInput& input) {
  try {
    return chat_template.render(input).text.bytes;
  } catch (const Error& e) {
    return "error " + e.message();
  }
}

ChatInput input_of(const Json& file, const Json& test_case) {
  ChatInput input;
  input.messages =
      messages_from_json(file["messages"][test_case["case"].get<std::string>()].dump());
  if (test_case["tools"].get<bool>()) input.tools = from_json(file["tools"].dump());
  input.add_generation_prompt = test_case["add_generation_prompt"].get<bool>();
  input.special = {{"bos_token", file["bos_token"].get<std::string>()},
                   {"eos_token", file["eos_token"].get<std::string>()}};
  std::istringstream(file["now"].get<std::string>()) >> std::get_time(&input.now, "%Y-%m-%d %H:%M");
  return input;
}

}  // namespace

TEST_CASE("templates of real models render as Jinja renders them") {
  if (!fs::exists(vectors())) {
    MESSAGE("skipped: no sample data at " << vectors().string());
    return;
  }
  int files = 0, cases = 0, errors = 0;
  for (const auto& entry : fs::directory_iterator(vectors())) {
    Json file = read(entry.path());
    CAPTURE(entry.path().filename().string());
    ChatTemplate chat_template(file["template"].get<std::string>(), entry.path().stem().string());
    ++files;
    for (const auto& test_case : file["cases"]) {
      CAPTURE(test_case.dump());
      std::string got = outcome(chat_template, input_of(file, test_case));
      ++cases;
      if (test_case.contains("error")) {
        ++errors;
        CHECK_MESSAGE(
            (got.starts_with("error ") && got.ends_with(test_case["error"].get<std::string>())),
            got);
      } else {
        CHECK(got == test_case["rendered"].get<std::string>());
      }
    }
  }
  MESSAGE(files << " templates, " << cases << " conversations, " << errors
                << " of them refused as they should be");
  CHECK(cases >= 200);
}

TEST_CASE("the messages that templates of real models leave out are found, and no others") {
  if (!fs::exists(vectors())) {
    MESSAGE("skipped: no sample data at " << vectors().string());
    return;
  }
  std::set<std::string> omissions;
  for (const auto& entry : fs::directory_iterator(vectors())) {
    Json file = read(entry.path());
    const std::string name = entry.path().stem().string();
    ChatTemplate chat_template(file["template"].get<std::string>(), name);
    for (const auto& test_case : file["cases"]) {
      if (test_case.contains("error")) continue;
      const ChatInput input = input_of(file, test_case);
      const Text text = chat_template.render(input).text;
      try {
        require_messages_written({.name = name, .source = {}, .special = {}, .text_marks = {}},
                                 input, text);
      } catch (const Error& error) {
        omissions.insert(error.message());
      }
    }
  }
  const std::string left_out = "', which the chat template ";
  CHECK(omissions ==
        std::set<std::string>{cat("message 0 (system) has the text 'You are terse.", left_out,
                                  "mistralai-Mistral-Nemo-Instruct-2407 leaves out"),
                              cat("message 2 (tool) has the text '{\"t\": 21}", left_out,
                                  "microsoft-Phi-3.5-mini-instruct leaves out")});
}
