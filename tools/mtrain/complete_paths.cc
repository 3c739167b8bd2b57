#include "complete_paths.h"

#include <algorithm>

#include "cli.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored);
}

bool names_model(const FieldSpec& spec) { return spec.path == "init_from"; }

bool names_pair(const FieldSpec& spec) {
  return spec.doc.find(".bin/.idx") != std::string::npos ||
         spec.doc.find("a pair ") != std::string::npos;
}

}  // namespace

std::vector<Candidate> complete_path(const std::string& typed) {
  return complete_entries(
      typed,
      [](const fs::directory_entry& entry, const std::string& path) -> std::optional<Candidate> {
        return is_folder(entry) ? Candidate{path + "/", "folder"} : Candidate{path, ""};
      });
}

std::vector<Candidate> complete_pair(const std::string& typed) {
  return complete_entries(
      typed,
      [](const fs::directory_entry& entry, const std::string& path) -> std::optional<Candidate> {
        if (is_folder(entry)) return Candidate{path + "/", "folder"};
        if (entry.path().extension() != ".idx") return std::nullopt;
        if (entry.path().stem().extension() == ".learnt") return std::nullopt;  // a loss mask
        return Candidate{path.substr(0, path.size() - 4), "prepared tokens"};
      });
}

std::vector<Candidate> complete_model(const std::string& typed) {
  std::vector<Candidate> out = complete_run(typed);
  for (auto& candidate : out)
    if (candidate.text.ends_with('/') && path_exists(fs::path(candidate.text) / "config.json"))
      candidate = {candidate.text.substr(0, candidate.text.size() - 1), "Hugging Face model"};
  return out;
}

std::vector<Candidate> complete_path_setting(const FieldSpec& spec, const std::string& typed) {
  if (!spec.input_path) return {};
  if (names_model(spec)) return complete_model(typed);
  auto out = complete_path(typed);
  if (!names_pair(spec)) return out;
  auto pairs = complete_pair(typed);
  pairs.erase(std::remove_if(pairs.begin(), pairs.end(),
                             [](const Candidate& c) { return c.text.ends_with('/'); }),
              pairs.end());
  out.erase(std::remove_if(out.begin(), out.end(),
                           [](const Candidate& c) {
                             return c.text.ends_with(".bin") || c.text.ends_with(".idx");
                           }),
            out.end());
  out.insert(out.begin(), pairs.begin(), pairs.end());
  return out;
}

bool is_dead_path(const FieldSpec& spec, const std::string& value) {
  if (!spec.input_path) return false;
  std::string path = value;
  std::erase(path, '\'');
  return !path.empty() && path.find('[') == std::string::npos && !path_exists(path) &&
         !path_exists(path + ".idx");
}

}  // namespace mtrain
