// Records of a JSON file: one object a line, or one list of objects. Streams: memory holds one
// record. Stateless.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "mtrain/base/file.h"

namespace mtrain::finetune {

using Json = nlohmann::ordered_json;

/// What to do with records that cannot be read, and how many there were.
class MT_API BadRecords {
 public:
  /// `skip`: leave them out, up to `limit` of them; otherwise the first ends the reading.
  BadRecords(bool skip, int64_t limit) : skip_(skip), limit_(limit) {}
  /// Returns when the record is to be left out, else throws Error(data) with the place.
  void reject(const std::string& place, const std::string& fault, const std::string& hint);
  int64_t skipped() const { return skipped_; }

 private:
  bool skip_;
  int64_t limit_, skipped_ = 0;
};

/// Gets a record and its place, "chats.jsonl:7" or "chats.json: record 7".
using OnRecord = std::function<void(Json& record, const std::string& place)>;

/// Calls `each` with every record, in order. Error(io) for a file that cannot be read; Error(data)
/// with the place for text that is no JSON, no object, nested too deeply, or has a field twice. A
/// fault inside a list is the end of it, whatever `bad` says.
MT_API void read_records(const fs::path& path, BadRecords& bad, const OnRecord& each);

/// SHA-256 of the file's bytes, in hex.
MT_API std::string record_digest(const fs::path& path);

}  // namespace mtrain::finetune
