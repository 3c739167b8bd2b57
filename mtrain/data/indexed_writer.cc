#include "mtrain/data/indexed_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/data/indexed_file.h"

namespace mtrain {
namespace {

constexpr size_t kWriteBufferBytes = size_t{1} << 20;

fs::path partial(fs::path path) { return path += ".partial"; }

template <class T>
void append(std::vector<std::byte>& buffer, std::span<const T> values) {
  auto bytes = std::as_bytes(values);
  buffer.insert(buffer.end(), bytes.begin(), bytes.end());
}

template <class T>
void append_narrow(std::vector<std::byte>& buffer, std::span<const int32_t> ids) {
  uint32_t all = 0;  // every bit that any id has; a negative one has the highest
  for (int32_t id : ids) all |= static_cast<uint32_t>(id);
  if (all > std::numeric_limits<T>::max())
    for (int32_t id : ids)
      if (!std::in_range<T>(id))
        throw Error(ErrorClass::data,
                    cat("token id ", id, " does not fit the file's ", name(DTypeOf<T>::value)));
  size_t at = buffer.size();
  buffer.resize(at + ids.size() * sizeof(T));
  std::byte* to = buffer.data() + at;
  for (size_t i = 0; i < ids.size(); ++i) {
    const T value = static_cast<T>(ids[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

/// Opens and locks the file whose rename is the commit; the kernel releases the lock when the
/// process ends for any reason.
int lock_partial(const fs::path& path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    throw Error(ErrorClass::io, cat("cannot create ", path.string(), ": ", std::strerror(errno)),
                "check that the folder of --output exists and can be written");
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  int error = errno;
  ::close(fd);
  if (error == EWOULDBLOCK)
    throw Error(ErrorClass::io, cat(path.string(), " is being written by another process"),
                "wait for it, or choose another name");
  throw Error(ErrorClass::io, cat("cannot lock ", path.string(), ": ", std::strerror(error)));
}

}  // namespace

DType token_dtype(int64_t vocab_size) { return vocab_size < 65500 ? DType::u16 : DType::i32; }

IndexedWriter::IndexedWriter(const fs::path& prefix, DType dtype, Options options)
    : prefix_(prefix),
      dtype_(dtype),
      options_(options),
      lengths_(prefix.parent_path()),
      bounds_(prefix.parent_path()),
      modes_(prefix.parent_path()) {
  bounds_.push_back(0);
  MT_CHECK(dtype == DType::u8 || dtype == DType::u16 || dtype == DType::i32, "element type ",
           name(dtype));
  fs::path idx = idx_path(prefix_), bin = bin_path(prefix_);
  std::error_code ignored;
  // A .bin next to an .idx.partial remains after a kill between the two renames; it may be
  // replaced.
  bool taken =
      fs::exists(idx, ignored) || (fs::exists(bin, ignored) && !fs::exists(partial(idx), ignored));
  if (taken && !options_.overwrite)
    throw Error(ErrorClass::io,
                cat((fs::exists(idx, ignored) ? idx : bin).string(), " exists already"),
                "choose another --output, or pass --force to replace it");
  lock_ = lock_partial(partial(idx));
  try {
    bin_ = std::make_unique<FileWriter>(partial(bin), "data.bin", true);
  } catch (...) {
    ::unlink(partial(idx).c_str());
    ::close(lock_);
    throw;
  }
  buffer_.reserve(kWriteBufferBytes * 2);
}

IndexedWriter::~IndexedWriter() {
  if (!finished_) {
    ::unlink(partial(bin_path(prefix_)).c_str());
    ::unlink(partial(idx_path(prefix_)).c_str());
    std::error_code ignored;
    if (bin_renamed_ && !fs::exists(idx_path(prefix_), ignored))
      ::unlink(bin_path(prefix_).c_str());
  }
  if (lock_ >= 0) ::close(lock_);
}

void IndexedWriter::add_sequence(std::span<const int32_t> ids, int8_t mode) {
  MT_USER_CHECK(ids.size() <= INT32_MAX, ErrorClass::data,
                cat("a sequence of ", ids.size(), " tokens; the format holds 2147483647 at most"),
                "split the document");
  switch (dtype_) {
    case DType::u8:
      append_narrow<uint8_t>(buffer_, ids);
      break;
    case DType::u16:
      append_narrow<uint16_t>(buffer_, ids);
      break;
    default:
      append(buffer_, ids);
  }
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  if (options_.modes) modes_.push_back(mode);
  num_tokens_ += static_cast<int64_t>(ids.size());
  if (buffer_.size() >= kWriteBufferBytes) flush();
}

void IndexedWriter::end_document() { bounds_.push_back(num_sequences()); }

void IndexedWriter::flush() {
  bin_->write(buffer_);
  buffer_.clear();
}

void IndexedWriter::write_index() {
  FileWriter file(partial(idx_path(prefix_)), "data.idx", true);
  std::vector<std::byte> header;
  append(header, std::span(indexed_format::kMagic));
  uint64_t version = indexed_format::kVersion, sequences = lengths_.size(), bounds = bounds_.size();
  uint8_t code = indexed_format::code_of(dtype_).value();
  append(header, std::span<const uint64_t>(&version, 1));
  append(header, std::span<const uint8_t>(&code, 1));
  append(header, std::span<const uint64_t>(&sequences, 1));
  append(header, std::span<const uint64_t>(&bounds, 1));
  file.write(header);
  auto copy = [&](std::span<const std::byte> bytes) { file.write(bytes); };
  lengths_.each(copy);
  const auto item = static_cast<int64_t>(size_of(dtype_));
  int64_t pointer = 0;
  lengths_.each([&](std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(int32_t)) {
      int32_t length = 0;
      std::memcpy(&length, bytes.data() + at, sizeof(length));
      append(buffer_, std::span<const int64_t>(&pointer, 1));
      pointer += length * item;
    }
    file.write(buffer_);
    buffer_.clear();
  });
  bounds_.each(copy);
  modes_.each(copy);
  file.sync();
  file.close();
}

void IndexedWriter::finish() {
  MT_CHECK(!finished_, "finish() twice");
  MT_CHECK_EQ(bounds_.back(), num_sequences());
  fs::path idx = idx_path(prefix_), bin = bin_path(prefix_);
  flush();
  bin_->sync();
  bin_->close();
  write_index();
  // From here on, no .idx may exist at any time that belongs to other tokens.
  if (::unlink(idx.c_str()) == 0) sync_directory(idx.parent_path(), "data.unlink");
  bin_renamed_ = true;
  durable_rename(partial(bin), bin, "data.bin");
  durable_rename(partial(idx), idx, "data.idx");
  finished_ = true;
}

}  // namespace mtrain
