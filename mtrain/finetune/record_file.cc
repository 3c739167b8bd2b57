#include "mtrain/finetune/record_file.h"

#include <algorithm>
#include <fstream>
#include <istream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "mtrain/base/errno_hint.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/text.h"
#include "mtrain/data/absent_path.h"
#include "mtrain/data/foreign_files.h"
#include "mtrain/data/line_reader.h"

namespace mtrain::finetune {
namespace {

constexpr int kMaxDepth = 64;
constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;
constexpr const char* kHint = "wanted one object per line, or one list of objects";

/// Thrown for a record that is invalid regardless of the meaning of its fields.
struct BadJson {
  std::string what;
};

/// The parser's message without its own location.
std::string reason(const nlohmann::json::exception& error) {
  std::string_view what = error.what();
  size_t detail = what.find("; last read"),
         begin = what.rfind(": ", detail == what.npos ? what.size() : detail);
  if (begin == what.npos) return printable(what, 100);
  return printable(what.substr(begin + 2, detail == what.npos ? detail : detail - begin - 2), 100);
}

/// Refuses deep nesting and duplicate fields; passes on the objects at `record_depth`.
class Watch {
 public:
  Watch(int record_depth, std::function<void(Json&)> each)
      : record_depth_(record_depth), each_(std::move(each)) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) throw BadJson{cat("is nested deeper than ", kMaxDepth)};
    if (event == Event::object_start) open(depth);
    if (event == Event::key &&
        !names_[static_cast<size_t>(depth) - 1].insert(parsed.get<std::string>()).second)
      throw BadJson{cat("has the field '", printable(parsed.get<std::string>(), 60), "' twice")};
    if (depth != record_depth_) return true;
    if (event == Event::value || event == Event::array_end)
      throw BadJson{cat("is ", parsed.type_name(), ", not an object")};
    if (event != Event::object_end) return true;
    each_(parsed);
    return record_depth_ == 0;  // objects of a list that were passed on are not kept
  }

 private:
  void open(int depth) {
    if (names_.size() <= static_cast<size_t>(depth)) names_.resize(static_cast<size_t>(depth) + 1);
    names_[static_cast<size_t>(depth)].clear();
  }
  int record_depth_;
  std::function<void(Json&)> each_;
  std::vector<std::set<std::string>> names_;  // of the open object of each depth
};

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

/// Refuses a file of one object that only contains the list of the records: {"data": [{…}, …]}.
void refuse_wrapped_list(const Json& record, const fs::path& path) {
  if (record.size() != 1) return;
  const Json& list = record.begin().value();
  if (!list.is_array() || list.empty() || !list[0].is_object()) return;
  // Those of a record, not of a message in a list of messages.
  constexpr const char* kFields[] = {"messages", "conversations", "prompt", "completion",
                                     "question", "instruction",   "chosen", "input_ids"};
  if (std::ranges::none_of(kFields, [&](const char* f) { return list[0].contains(f); })) return;
  const std::string name = printable(record.begin().key(), 60), file = printable(path.string());
  throw Error(ErrorClass::data,
              cat(file, " is one object whose field '", name, "' has the list of records"),
              cat(kHint, "; write the list alone: jq -c '.[\"", name, "\"][]' ", file,
                  " > records.jsonl, then dataset.path=records.jsonl"));
}

void read_lines(const fs::path& path, BadRecords& bad, const OnRecord& each) {
  LineReader reader(path, kMaxRecordBytes, "split the record, or leave it out");
  std::string_view line;
  bool first = true;
  while (reader.next(line)) {
    if (blank(line)) continue;
    Json record;
    try {
      Watch watch(0, [](Json&) {});
      record = Json::parse(line, std::ref(watch));
      if (!record.is_object()) throw BadJson{cat("is ", record.type_name(), ", not an object")};
    } catch (const nlohmann::json::parse_error& error) {
      bad.reject(reader.place(), cat("is not valid JSON at byte ", error.byte, ": ", reason(error)),
                 kHint);
      continue;
    } catch (const nlohmann::json::exception& error) {  // a number beyond all types: 1e400
      bad.reject(reader.place(), cat("cannot be read: ", reason(error)), kHint);
      continue;
    } catch (const BadJson& fault) {
      bad.reject(reader.place(), fault.what, kHint);
      continue;
    }
    if (std::exchange(first, false)) refuse_wrapped_list(record, path);
    each(record, reader.place());
  }
}

void read_list(const fs::path& path, const OnRecord& each) {
  InputBuffer text(path);
  std::istream in(&text);
  int64_t number = 0;
  auto place = [&] { return cat(printable(path.string()), ": record ", number); };
  Watch watch(1, [&](Json& record) {
    each(record, place());
    ++number;
  });
  try {
    Json all = Json::parse(in, std::ref(watch));
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(
        ErrorClass::data,
        cat(place(), " is not valid JSON at byte ", error.byte, " of the file: ", reason(error)),
        kHint);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorClass::data, cat(place(), " cannot be read: ", reason(error)), kHint);
  } catch (const BadJson& fault) {
    throw Error(ErrorClass::data, cat(place(), " ", fault.what), kHint);
  }
}

/// True when the first character of the text that is not blank opens a list.
bool begins_list(const fs::path& path) {
  InputBuffer text(path);
  int first = text.sgetc();
  while (first == ' ' || first == '\t' || first == '\r' || first == '\n') first = text.snextc();
  return first == '[';
}

/// As many as identify a format.
std::string first_bytes(const fs::path& path) {
  constexpr size_t kStart = 16;
  std::ifstream file(path, std::ios::binary);
  std::string out(kStart, '\0');
  file.read(out.data(), kStart);
  out.resize(static_cast<size_t>(file.gcount()));
  return out;
}

}  // namespace

void BadRecords::reject(const std::string& place, const std::string& fault,
                        const std::string& hint) {
  if (!skip_) throw Error(ErrorClass::data, cat(place, ": ", fault), hint);
  MT_USER_CHECK(++skipped_ <= limit_, ErrorClass::data,
                cat(place, ": ", fault, "; more than ", limit_, " records are invalid"),
                "correct the file, or raise dataset.max_bad");
}

void read_records(const fs::path& path, BadRecords& bad, const OnRecord& each) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  const std::string name = printable(path.string());
  MT_USER_CHECK(type != fs::file_type::none, ErrorClass::io,
                cat("cannot read ", name, ": ", error.message()), errno_hint(error.value()));
  const bool folder = type == fs::file_type::directory;
  auto foreign = folder ? std::nullopt : foreign_file_of_name(without_compression(path));
  if (!foreign && type == fs::file_type::regular)
    foreign = foreign_file_of_start(first_bytes(path), path.string());
  if (foreign)
    throw Error(ErrorClass::data, cat(name, " is ", foreign->format, "; JSON lines are required"),
                help_for_records(*foreign));
  MT_USER_CHECK(type != fs::file_type::not_found || !fs::exists(path.string() + ".idx", error),
                ErrorClass::data, cat(name, " are prepared tokens without records"),
                "give the .json or .jsonl file of the records; dataset=gpt reads these tokens");
  MT_USER_CHECK(!folder && type != fs::file_type::not_found, ErrorClass::io,
                cat(name, folder ? " is a folder" : " does not exist"),
                cat("name an existing .json or .jsonl file",
                    advice_for_comma(path, "join the records of several files in one")));
  begins_list(path) ? read_list(path, each) : read_lines(path, bad, each);
}

std::string record_digest(const fs::path& path) {
  MappedFile file(path);
  file.advise_sequential();
  return sha256(file.bytes());
}

}  // namespace mtrain::finetune
