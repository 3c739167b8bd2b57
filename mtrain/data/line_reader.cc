#include "mtrain/data/line_reader.h"

#include <algorithm>
#include <cstring>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

LineReader::LineReader(const fs::path& path, uint64_t max_line_bytes, std::string too_long_help)
    : stream_(path), max_line_bytes_(max_line_bytes), too_long_help_(std::move(too_long_help)) {
  while (end_ < 4 && refill()) {
  }
  check_start();
}

std::string LineReader::place() const { return cat(name(), ":", line_number_); }

void LineReader::check_start() {
  auto start = std::string_view(buffer_).substr(begin_, end_ - begin_);
  if (start.starts_with("\xEF\xBB\xBF")) begin_ += 3;
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF"))
    throw Error(ErrorClass::data, cat(name(), " is UTF-16 text; UTF-8 is required"),
                cat("convert it: iconv -f UTF-16 -t UTF-8 ", name(), " > utf8.txt"));
}

/// Appends to the bytes that are not yet returned; false at the end of the file.
bool LineReader::refill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kReadBytes)
    buffer_.resize(std::max(buffer_.size() * 2, end_ + kReadBytes));
  const size_t got = stream_.read(buffer_.data() + end_, kReadBytes);
  end_ += got;
  at_end_ = got == 0;
  return got > 0;
}

bool LineReader::next(std::string_view& line) {
  size_t seen = 0;  // bytes after begin_ that contain no line end
  for (;;) {
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from + seen, '\n', end_ - begin_ - seen);
    if (found || at_end_) {
      size_t size =
          found ? static_cast<size_t>(static_cast<const char*>(found) - from) : end_ - begin_;
      if (!found && size == 0) return false;
      ++line_number_;
      had_end_ = found != nullptr;
      begin_ += size + (found ? 1 : 0);
      text_bytes_ += size + (found ? 1 : 0);
      if (found && size > 0 && from[size - 1] == '\r') --size;
      line = {from, size};
      if (size <= max_line_bytes_) return true;
    }
    seen = end_ - begin_;
    if (found || at_end_ || seen > max_line_bytes_ + 1) {
      if (!found && !at_end_) ++line_number_;
      throw Error(
          ErrorClass::data,
          cat(place(), ": the line is longer than the limit of ", human_bytes(max_line_bytes_)),
          too_long_help_);
    }
    refill();
  }
}

}  // namespace mtrain
