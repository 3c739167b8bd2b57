// Reads the records of a JSON file: one object per line, or one list of objects; also compressed.
// Streams: memory holds one record. Stateless functions; safe from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "mtrain/base/file.h"

namespace mtrain::finetune {

using Json = nlohmann::ordered_json;

/// The number of records that are encoded at once.
inline constexpr size_t kRecordsAtOnce = 1024;

/// The policy for records that cannot be read, and their number. Not synchronised: one thread at a
/// time.
class MT_API BadRecords {
 public:
  /// `skip`: omit them, up to `limit`; otherwise the first one is an error.
  BadRecords(bool skip, int64_t limit) : skip_(skip), limit_(limit) {}
  /// Returns when the record is to be omitted; otherwise throws Error(data) with its location.
  void reject(const std::string& place, const std::string& fault, const std::string& hint);
  int64_t skipped() const { return skipped_; }

 private:
  bool skip_;
  int64_t limit_, skipped_ = 0;
};

/// Receives a record and its location, "chats.jsonl:7" or "chats.json: record 7".
using OnRecord = std::function<void(Json& record, const std::string& place)>;

/// Calls `each` with every record, in order. Error(io) when the file cannot be read; Error(data)
/// with the location for a record that is not JSON, is not an object, is nested too deeply, or has
/// a field twice. After a fault inside a JSON list nothing more can be read, so it is an error even
/// when `bad` skips records.
MT_API void read_records(const fs::path& path, BadRecords& bad, const OnRecord& each);

/// SHA-256 of the file's bytes, in hex.
MT_API std::string record_digest(const fs::path& path);

}  // namespace mtrain::finetune
