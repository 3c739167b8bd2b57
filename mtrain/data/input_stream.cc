#include "mtrain/data/input_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/data/foreign_files.h"

namespace mtrain {
namespace {

constexpr size_t kCompressedBlockBytes = size_t{1} << 18;
constexpr size_t kStartBytes = 16;  // show the format of a file
constexpr std::string_view kGzipStart = "\x1F\x8B", kZstdStart = "\x28\xB5\x2F\xFD";

[[noreturn]] void fail(const char* what, const std::string& name, int error) {
  throw Error(ErrorClass::io, cat("cannot ", what, " ", name, ": ", std::strerror(error)), "");
}

}  // namespace

/// Decompresses bytes.
class InputStream::Decoder {
 public:
  virtual ~Decoder() = default;
  /// Advances `in` past the consumed bytes and returns the number of bytes written. Error(data)
  /// without a location.
  virtual size_t decode(std::string_view& in, char* to, size_t size) = 0;
  /// True when the stream may end here.
  virtual bool complete() const = 0;
};

class InputStream::Gzip final : public InputStream::Decoder {
 public:
  Gzip() { MT_CHECK(inflateInit2(&state_, 15 + 16) == Z_OK, "zlib does not start"); }
  ~Gzip() override { inflateEnd(&state_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  size_t decode(std::string_view& in, char* to, size_t size) override {
    if (complete_) {  // after a member, padding or another member is allowed
      in.remove_prefix(std::min(in.find_first_not_of('\0'), in.size()));
      if (in.empty()) return 0;
      inflateReset(&state_);
      complete_ = false;
    }
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    state_.avail_in = static_cast<uInt>(in.size());
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, UINT32_MAX));
    const uInt room = state_.avail_out;
    const int code = inflate(&state_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      throw Error(ErrorClass::data,
                  cat("is damaged gzip: ", state_.msg ? state_.msg : "no reason given"));
    complete_ = code == Z_STREAM_END;
    in.remove_prefix(in.size() - state_.avail_in);
    return room - state_.avail_out;
  }
  bool complete() const override { return complete_; }

 private:
  z_stream state_{};
  bool complete_ = false;
};

class InputStream::Zstandard final : public InputStream::Decoder {
 public:
  Zstandard() {
    MT_CHECK(state_ != nullptr, "zstd does not start");
    // Accepts windows of `zstd --long=31`. The buffer only uses as much memory as there is text, so
    // a large window in the header costs nothing by itself.
    ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~Zstandard() override { ZSTD_freeDStream(state_); }
  Zstandard(const Zstandard&) = delete;
  Zstandard& operator=(const Zstandard&) = delete;

  size_t decode(std::string_view& in, char* to, size_t size) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer out{to, size, 0};
    const size_t left = ZSTD_decompressStream(state_, &out, &from);
    if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
      throw Error(
          ErrorClass::data,
          "is Zstandard with a window of more than 2 GiB, which decompressors do not support",
          "compress it again, with `zstd --long=31` at most");
    if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
      throw Error(ErrorClass::data,
                  "is Zstandard with a window that needs more memory than there is",
                  "compress it again, without `--long`");
    if (ZSTD_isError(left))
      throw Error(ErrorClass::data, cat("is damaged Zstandard: ", ZSTD_getErrorName(left)));
    if (from.pos > 0 || out.pos > 0) complete_ = left == 0;
    in.remove_prefix(from.pos);
    return out.pos;
  }
  bool complete() const override { return complete_; }

 private:
  ZSTD_DStream* state_ = ZSTD_createDStream();
  bool complete_ = false;
};

InputStream::InputStream(const fs::path& path) : name_(path.string()) {
  if (name_ == "-") {
    name_ = "standard input";
    fd_ = STDIN_FILENO;
    owned_ = false;
  } else {
    fd_ = open_regular_file(path);
  }
  try {
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) fail("read", name_, EISDIR);
    choose_decoder();
  } catch (...) {
    if (owned_) ::close(fd_);
    throw;
  }
}

InputStream::~InputStream() {
  if (owned_) ::close(fd_);
}

size_t InputStream::read_file(char* to, size_t size) {
  for (;;) {
    Fault fault = failpoint("data.read");
    ssize_t got =
        fault.action == FaultAction::fail_errno ? (errno = fault.error, -1) : ::read(fd_, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", name_, errno);
    file_bytes_ += static_cast<uint64_t>(got);
    at_end_ = got == 0;
    return static_cast<size_t>(got);
  }
}

/// Appends to the buffer; false at the end of the file.
bool InputStream::refill() {
  if (at_end_) return false;
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() < end_ + kCompressedBlockBytes) buffer_.resize(end_ + kCompressedBlockBytes);
  const size_t got = read_file(buffer_.data() + end_, kCompressedBlockBytes);
  end_ += got;
  return got > 0;
}

void InputStream::choose_decoder() {
  auto start = [&] { return std::string_view(buffer_).substr(begin_, end_ - begin_); };
  auto known = [&] {  // a line that a user types is enough
    return start().size() >= kStartBytes ||
           (start().size() >= kZstdStart.size() && start().find('\n') != std::string_view::npos);
  };
  while (!known() && refill()) {
  }
  if (start().starts_with(kGzipStart)) decoder_ = std::make_unique<Gzip>();
  if (start().starts_with(kZstdStart)) decoder_ = std::make_unique<Zstandard>();
  if (const auto foreign = foreign_file_of_start(start(), name_))
    throw Error(ErrorClass::data,
                cat(name_, " is ", foreign->format, "; text or JSON lines are required"),
                foreign->help);
}

size_t InputStream::read(char* to, size_t size) {
  if (!decoder_) {
    if (begin_ == end_) return at_end_ ? 0 : read_file(to, size);
    const size_t given = std::min(size, end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, given);
    begin_ += given;
    return given;
  }
  for (;;) {
    std::string_view in(buffer_.data() + begin_, end_ - begin_);
    size_t given = 0;
    try {
      given = decoder_->decode(in, to, size);
    } catch (const Error& error) {
      throw Error(error.error_class(), cat(name_, " ", error.message()),
                  error.hint().empty() ? "get the file again" : error.hint());
    }
    const bool moved = in.size() < end_ - begin_;
    begin_ = end_ - in.size();
    if (given > 0) return given;
    if (moved && !in.empty()) continue;
    if (refill()) continue;
    MT_USER_CHECK(decoder_->complete(), ErrorClass::data,
                  cat(name_, " ends inside its compressed stream"),
                  "the copy is incomplete: get the file again");
    return 0;
  }
}

InputBuffer::InputBuffer(const fs::path& path) : stream_(path), buffer_(kCompressedBlockBytes) {
  if (sgetc() == 0xEF)
    for (int i = 0; i < 3; ++i) sbumpc();
}

InputBuffer::int_type InputBuffer::underflow() {
  const size_t got = stream_.read(buffer_.data(), buffer_.size());
  setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
  return got == 0 ? traits_type::eof() : traits_type::to_int_type(buffer_[0]);
}

fs::path without_compression(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".gz" || extension == ".zst" ? fs::path(path).replace_extension() : path;
}

}  // namespace mtrain
