#include "mtrain/comm/watch_message.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "mtrain/base/authentication.h"
#include "mtrain/base/text.h"

namespace mtrain {

namespace {

constexpr size_t kMostText = 60000;
constexpr double kMostSeconds = 1e9;

struct FailureHead {
  int32_t rank = -1, error_class = 0, num_ranks = 0;
};

bool sane(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 && seconds < kMostSeconds;
}
bool sane(const CallNote& note) {
  return static_cast<int>(note.kind) < kNumCommKinds && note.reduce <= ReduceOp::min &&
         note.dtype <= DType::u8 && std::memchr(note.group, '\0', sizeof note.group);
}

}  // namespace

std::string bytes_of(const RankStatus& status) {
  return {reinterpret_cast<const char*>(&status), sizeof status};
}

std::optional<RankStatus> read_status(std::string_view bytes) {
  RankStatus status;
  if (bytes.size() < sizeof status) return std::nullopt;
  // A received bool must be checked to be 0 or 1 before it is used.
  constexpr size_t kUneven = offsetof(CallNote, uneven);
  for (size_t at : {offsetof(RankStatus, ended), offsetof(RankStatus, failed),
                    offsetof(RankStatus, waits) + kUneven, offsetof(RankStatus, last) + kUneven})
    if (static_cast<unsigned char>(bytes[at]) > 1) return std::nullopt;
  std::memcpy(static_cast<void*>(&status), bytes.data(), sizeof status);
  bool all_sane = sane(status.waits) && sane(status.last) && sane(status.slow_step) &&
                  sane(status.busy_step) && std::memchr(status.doing, '\0', sizeof status.doing);
  return all_sane ? std::optional(status) : std::nullopt;
}

std::string bytes_of(const FailureMessage& message) {
  FailureHead head{message.failure.rank, static_cast<int32_t>(message.failure.error_class),
                   static_cast<int32_t>(message.ranks.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  for (int32_t rank : message.ranks)
    bytes.append(reinterpret_cast<const char*>(&rank), sizeof rank);
  return bytes + message.failure.reason.substr(0, kMostText);
}

std::optional<FailureMessage> read_failure(std::string_view bytes) {
  FailureHead head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  if (head.num_ranks < 0 || bytes.size() / sizeof(int32_t) < static_cast<size_t>(head.num_ranks))
    return std::nullopt;
  FailureMessage message;
  for (int32_t i = 0, rank = 0; i < head.num_ranks; ++i, bytes.remove_prefix(sizeof rank)) {
    std::memcpy(&rank, bytes.data(), sizeof rank);
    message.ranks.push_back(rank);
  }
  message.failure = {.rank = head.rank,
                     .reason = std::string(bytes),
                     .error_class = error_class_of(head.error_class)};
  return message;
}

std::string hello_of(std::string_view word, int rank) { return cat(word, " ", rank); }

std::optional<int> read_hello(std::string_view text, std::string_view word, int num_ranks) {
  if (text.size() <= word.size() + 1 || text[word.size()] != ' ') return std::nullopt;
  if (!same_bytes(std::as_bytes(std::span(text.substr(0, word.size()))),
                  std::as_bytes(std::span(word))))
    return std::nullopt;
  int rank = 0;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data() + word.size() + 1, end, rank);
  if (error != std::errc() || at != end || rank <= 0 || rank >= num_ranks) return std::nullopt;
  return rank;
}

}  // namespace mtrain
