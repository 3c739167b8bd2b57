#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/checked.h"
#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/safetensors_header.h"

namespace mtrain {
namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

[[noreturn]] void refuse_save(const std::string& what) {
  throw Error(ErrorClass::checkpoint, cat("cannot save: ", what));
}

uint64_t bytes_of(const TensorSpec& spec) {
  Checked<uint64_t> bytes(size_of(spec.dtype));
  for (int64_t dim : spec.shape) {
    if (dim < 0) refuse_save(cat("tensor '", printable(spec.name), "' has shape ", spec.shape));
    bytes = bytes * static_cast<uint64_t>(dim);
  }
  if (!bytes.valid())
    refuse_save(
        cat("tensor '", printable(spec.name), "' of shape ", spec.shape, " overflows 64 bits"));
  return bytes.value();
}

void sort_and_check(std::vector<TensorSpec>& specs) {
  if (specs.size() > kMaxTensors)
    refuse_save(cat(specs.size(), " tensors are over the limit of ", kMaxTensors));
  std::vector<std::string_view> names;
  for (const auto& spec : specs) {
    if (std::string why = bad_tensor_name(spec.name); !why.empty()) refuse_save(why);
    if (spec.name == "__metadata__") refuse_save("\"__metadata__\" cannot name a tensor");
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  if (auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    refuse_save(cat("two tensors are named '", printable(*twin), "'"));
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    size_t wide_a = size_of(a.dtype), wide_b = size_of(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(fs::path path, std::string site,
                                     std::vector<TensorSpec> tensors,
                                     std::map<std::string, std::string> metadata)
    : order_(std::move(tensors)), file_(std::move(path), std::move(site)) {
  sort_and_check(order_);
  metadata.emplace("format", "pt");  // some readers require this entry
  std::string text = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    text += cat(text.back() == '{' ? "" : ",", json_string(key), ':', json_string(value));
  text += '}';
  uint64_t at = 0;
  for (const auto& spec : order_) {
    offsets_.push_back(at);
    auto end = checked_add(at, bytes_of(spec));
    if (!end) refuse_save("the tensors together overflow 64 bits");
    std::string shape;
    for (int64_t dim : spec.shape) shape += cat(shape.empty() ? "" : ",", dim);
    text += cat(',', json_string(spec.name), ":{\"dtype\":\"", safetensors_dtype(spec.dtype),
                "\",\"shape\":[", shape, "],\"data_offsets\":[", at, ',', *end, "]}");
    at = *end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    refuse_save(cat("a header of ", text.size(), " bytes is over the limit of ", kMaxHeaderBytes));

  std::string start(8, '\0');
  for (size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(text.size() >> (8 * i));
  start += text;
  header_bytes_ = start.size();
  header_crc_ = crc32c(std::as_bytes(std::span(start.data(), start.size())));
  for (auto& offset : offsets_) offset += header_bytes_;
  file_bytes_ = header_bytes_ + at;
  file_.write(start);
}

void SafetensorsWriter::write(std::span<const std::byte> data) {
  MT_CHECK(data.size() <= file_bytes_ - file_.bytes(), "more data than the header of ",
           file_.path().string(), " declares");
  file_.write(data);
}

void SafetensorsWriter::finish() {
  MT_CHECK_EQ(file_.bytes(), file_bytes_);
  file_.sync();
  file_.close();
}

}  // namespace mtrain
