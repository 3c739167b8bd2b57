#include "mtrain/record/run_history.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/plugin/stamp.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kFacts = "invocation.json";
constexpr const char* kTexts[] = {"recipe.yaml",     "overrides.txt",    "resolved.yaml",
                                  "provenance.json", "environment.json", "files"};
constexpr uint64_t kMaxFacts = 1 << 16;  // bytes
constexpr size_t kMaxReason = 1000;      // bytes

/// "007" -> 7; -1 for any other name.
int number_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int number = -1;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return name.size() >= 3 && error == std::errc() && end == name.data() + name.size() ? number : -1;
}

std::string name_of(int number) { return fmt::format("{:03}", number); }

std::vector<int> numbers(const fs::path& config) {
  std::vector<int> out;
  std::error_code ignored;
  for (fs::directory_iterator it(config, ignored), end; !ignored && it != end;
       it.increment(ignored))
    if (int number = number_of(it->path()); number >= 0 && it->is_directory(ignored))
      out.push_back(number);
  std::sort(out.begin(), out.end());
  return out;
}

std::string facts(const Invocation& invocation) {
  OrderedJson json = {{"mtrain", invocation.version},
                      {"started", invocation.started},
                      {"first_step", invocation.first_step},
                      {"last_step", nullptr},
                      {"steps", invocation.steps}};
  if (invocation.last_step) json["last_step"] = *invocation.last_step;
  if (invocation.rewound_to) json["rewound_to"] = *invocation.rewound_to;
  if (const auto& failure = invocation.failure)
    json["failure"] = {
        {"step", failure->step}, {"status", failure->status}, {"reason", failure->reason}};
  return json.dump(2) + "\n";
}

void write_facts(const Invocation& invocation, const fs::path& folder) {
  write_file_atomic(folder / kFacts, facts(invocation), "history", Readers::owner);
}

/// Moves the texts of an old version without history to a record of their own.
void adopt_old_texts(const fs::path& config) {
  std::error_code ignored;
  if (!numbers(config).empty() || !fs::exists(config / "resolved.yaml", ignored)) return;
  const fs::path temporary = config / ".000";
  make_directories(temporary);
  for (const char* name : kTexts)
    if (fs::exists(config / name, ignored)) fs::rename(config / name, temporary / name, ignored);
  durable_rename(temporary, config / name_of(0), "history");
}

/// Points the names directly below config/ to this record. They are for people; the program reads
/// the records.
void point_names_at(const fs::path& config, const std::string& record) {
  for (const char* name : kTexts) {
    const fs::path link = config / name, temporary = config / cat(".", name);
    std::error_code error, absent;
    fs::remove_all(temporary, absent);
    if (!fs::exists(config / record / name, absent)) {
      fs::remove_all(link, absent);
      continue;
    }
    fs::create_symlink(fs::path(record) / name, temporary, error);
    if (error) {  // the file system does not support links
      error.clear();
      fs::copy(config / record / name, temporary, fs::copy_options::recursive, error);
    }
    if (fs::is_directory(fs::symlink_status(link, absent))) fs::remove_all(link, absent);
    if (!error) fs::rename(temporary, link, error);
    if (error) log_warn("cannot make ", link.string(), " point to ", record, ": ", error.message());
  }
}

Invocation read_facts(const fs::path& folder, int number) {
  Invocation out{.number = number,
                 .folder = folder,
                 .version = {},
                 .started = {},
                 .last_step = {},
                 .rewound_to = {}};
  std::error_code ignored;
  if (number == 0 && !fs::exists(folder / kFacts, ignored)) return out;
  try {
    const OrderedJson json = OrderedJson::parse(read_file(folder / kFacts, kMaxFacts));
    out.version = json.at("mtrain").get<std::string>();
    out.started = json.at("started").get<std::string>();
    out.first_step = json.at("first_step").get<int64_t>();
    out.steps = json.at("steps").get<int64_t>();
    if (!json.at("last_step").is_null()) out.last_step = json.at("last_step").get<int64_t>();
    if (json.contains("rewound_to")) out.rewound_to = json["rewound_to"].get<int64_t>();
    if (json.contains("failure")) {
      const OrderedJson& failure = json["failure"];
      out.failure = {failure.at("step").get<int64_t>(), failure.at("status").get<int>(),
                     failure.at("reason").get<std::string>()};
    }
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorClass::checkpoint,
                cat((folder / kFacts).string(), " cannot be read: ", printable(error.what())),
                cat("remove ", printable(folder.parent_path().string()),
                    " to continue without the run's history"));
  }
}

/// The run that the checkpoints of a folder name; empty if none does.
fs::path run_named_in(const fs::path& checkpoints) {
  std::error_code ignored;
  if (!fs::is_directory(checkpoints, ignored)) return {};
  const CheckpointStore store(checkpoints);
  const std::vector<CheckpointInfo> all = store.list();
  auto newest = std::find_if(all.rbegin(), all.rend(),
                             [](const CheckpointInfo& info) { return info.problem.empty(); });
  if (newest == all.rend()) return {};
  const std::string where = newest->path.string();
  try {
    return identity_of(
               saved_config_from_json(meta_from_json(store.meta(newest->step), where).saved, where))
        .run;
  } catch (const Error&) {  // written by an older version
    return {};
  }
}

}  // namespace

Invocation begin_invocation(const SavedConfig& saved, const fs::path& run, int64_t first_step,
                            int64_t steps) {
  const fs::path config = run / "config";
  make_directories(config);
  adopt_old_texts(config);
  const std::vector<int> known = numbers(config);
  Invocation out{.number = known.empty() ? 1 : known.back() + 1,
                 .folder = {},
                 .version = MT_VERSION,
                 .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                 .first_step = first_step,
                 .steps = steps,
                 .last_step = {},
                 .rewound_to = {}};
  out.folder = config / name_of(out.number);
  const fs::path temporary = config / ".new";
  std::error_code ignored;
  fs::remove_all(temporary, ignored);  // left by an invocation that was killed here
  write_saved_config(saved, temporary);
  write_facts(out, temporary);
  failpoint("history.record");
  durable_rename(temporary, out.folder, "history");
  failpoint("history.names");
  point_names_at(config, name_of(out.number));
  return out;
}

void end_invocation(const Invocation& invocation, int64_t last_step) {
  Invocation ended = invocation;
  ended.last_step = last_step;
  try {
    write_facts(ended, invocation.folder);
  } catch (const Error& error) {
    log_warn("the last step was not recorded in the run's history: step ", last_step, ": ",
             error.message());
  }
}

void fail_invocation(const Invocation& invocation, const RunFailure& failure) {
  Invocation ended = invocation;
  ended.failure = failure;
  ended.failure->reason = printable(failure.reason, kMaxReason);
  if (failure.step == invocation.first_step) ended.last_step = failure.step;
  try {
    write_facts(ended, invocation.folder);
  } catch (const Error& error) {
    log_warn("the error that ended the run was not recorded in its history: ", error.message());
  }
}

void note_rewind(const fs::path& run, int64_t step) {
  std::vector<Invocation> history = run_history(run);
  if (history.empty() || (history.back().last_step && *history.back().last_step <= step)) return;
  history.back().rewound_to = step;
  write_facts(history.back(), history.back().folder);
}

std::optional<int64_t> rewound_to(const std::vector<Invocation>& history) {
  return history.empty() ? std::nullopt : history.back().rewound_to;
}

std::vector<Invocation> run_history(const fs::path& run) {
  std::vector<Invocation> out;
  for (int number : numbers(run / "config"))
    out.push_back(read_facts(run / "config" / name_of(number), number));
  return out;
}

std::vector<HistoryPart> parts_of_history(const std::vector<Invocation>& history) {
  std::vector<HistoryPart> out;
  for (const auto& invocation : history) {
    while (!out.empty() && out.back().first >= invocation.first_step) out.pop_back();
    if (!out.empty()) out.back().last = invocation.first_step;
    out.push_back({invocation, invocation.first_step, {}});
  }
  if (const auto step = rewound_to(history)) {
    while (out.size() > 1 && out.back().first >= *step) out.pop_back();
    out.back().last.reset();
  }
  return out;
}

fs::path run_of(fs::path path) {
  path = path.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename().string().starts_with("step-")) path = path.parent_path();
  const fs::path named = path.filename() == "checkpoints" ? path.parent_path() : path;
  if (!numbers(named / "config").empty()) return named;
  const fs::path run = run_named_in(path);
  std::error_code absent;
  return !run.empty() && fs::equivalent(checkpoint_folder_of(run), path, absent) ? run : named;
}

fs::path checkpoint_folder_of(const fs::path& run) {
  const std::vector<int> records = numbers(run / "config");
  if (records.empty()) return run / "checkpoints";
  const fs::path environment = run / "config" / name_of(records.back()) / "environment.json";
  std::error_code ignored;
  SavedConfig texts;
  if (fs::exists(environment, ignored)) texts.environment = read_file(environment);
  const SavedIdentity saved = identity_of(texts);
  const fs::path within =
      fs::path(saved.checkpoints)
          .lexically_relative(saved.run);  // the run's folder may have been moved
  if (saved.checkpoints.empty()) return run / "checkpoints";
  return within.empty() || *within.begin() == ".." ? fs::path(saved.checkpoints) : run / within;
}

CheckpointPlace checkpoints_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = checkpoint_folder_of(path);
  if (folder == path / "checkpoints" || !fs::is_directory(path, ignored))
    return locate_checkpoints(path);
  MT_USER_CHECK(fs::is_directory(folder, ignored), ErrorClass::checkpoint,
                cat(printable(path.string()), ": its checkpoints are in ",
                    printable(folder.string()), " (checkpoint.dir), which does not exist"),
                "give the folder that contains the checkpoints now");
  return {folder, std::nullopt};
}

}  // namespace mtrain
