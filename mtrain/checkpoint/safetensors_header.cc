#include "mtrain/checkpoint/safetensors_header.h"

#include <array>

#include "mtrain/checkpoint/refuse.h"
#include "mtrain/checkpoint/strict_json.h"

namespace mtrain {
namespace {

constexpr std::array<FileDType, 22> kDTypes = {{
    {"F32", 32, DType::f32},          {"BF16", 16, DType::bf16},
    {"F16", 16, DType::f16},          {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},          {"I32", 32, DType::i32},
    {"I16", 16, DType::i16},          {"I8", 8, DType::i8},
    {"U16", 16, DType::u16},          {"U8", 8, DType::u8},
    {"BOOL", 8, std::nullopt},        {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},        {"C64", 64, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
}};

constexpr std::string_view kMetadata = "__metadata__";

/// Receives the events of the JSON parser and accepts exactly the grammar of a header. The depth is
/// bounded by that grammar.
class HeaderReader final : public JsonEvents {
 public:
  explicit HeaderReader(Header& out) : out_(out) {}

  void start_object() override {
    if (place_ == Place::outside)
      place_ = Place::top;
    else if (place_ == Place::top)
      open_entry();
    else
      refuse("an object");
  }
  void end_object() override {
    if (place_ == Place::tensor) {
      for (size_t i = 0; i < kFields.size(); ++i)
        if (!seen_[i]) fail(cat(tensor(), " has no field \"", kFields[i], '"'));
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    } else {
      place_ = Place::outside;
    }
  }
  void start_array() override {
    if (place_ != Place::tensor || field_ == kDType) refuse("an array");
    place_ = Place::array;
    count_ = 0;
  }
  void end_array() override {
    if (field_ == kOffsets && count_ != 2)
      fail(cat(tensor(), ": data_offsets must have 2 numbers, got ", count_));
    place_ = Place::tensor;
  }
  void key(std::string& text) override {
    if (place_ == Place::top)
      new_entry(text);
    else if (place_ == Place::tensor)
      new_field(text);
    else
      new_metadata(text);
  }
  void string(std::string& text) override {
    if (place_ == Place::metadata) {
      out_.metadata[key_] = std::move(text);
    } else if (place_ == Place::tensor && field_ == kDType) {
      if (!find_file_dtype(text))
        fail(cat(tensor(), ": unknown dtype \"", printable(text, 60), "\"; known dtypes are ",
                 known_file_dtypes()));
      out_.tensors.back().file_dtype = std::move(text);
    } else {
      refuse(cat("the string \"", printable(text, 60), '"'));
    }
  }
  void integer(uint64_t value) override {
    if (place_ != Place::array) refuse(cat("the number ", value));
    HeaderTensor& t = out_.tensors.back();
    ++count_;
    if (field_ == kShape) {
      if (count_ > Shape::kMaxRank)
        fail(cat(tensor(), ": rank is larger than the limit of ", Shape::kMaxRank));
      t.shape.push_back(value);
    } else if (count_ <= 2) {
      (count_ == 1 ? t.begin : t.end) = value;
    } else {
      fail(cat(tensor(), ": data_offsets must have 2 numbers, got more"));
    }
  }
  void other(std::string_view what) override { refuse(what); }

 private:
  enum class Place { outside, top, tensor, metadata, array };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
  static constexpr size_t kDType = 0, kShape = 1, kOffsets = 2;

  std::string tensor() const { return cat("tensor '", printable(out_.tensors.back().name), '\''); }

  void open_entry() {
    seen_ = {};
    place_ = key_ == kMetadata ? Place::metadata : Place::tensor;
  }
  void new_entry(std::string& text) {
    if (text == kMetadata) {
      if (has_metadata_) fail("\"__metadata__\" occurs twice");
      has_metadata_ = true;
    } else {
      if (std::string why = bad_tensor_name(text); !why.empty()) fail(why);
      if (out_.tensors.size() == kMaxTensors) fail(cat("more than ", kMaxTensors, " tensors"));
      out_.tensors.emplace_back().name = text;
    }
    key_ = std::move(text);
  }
  void new_field(const std::string& text) {
    for (size_t i = 0; i < kFields.size(); ++i) {
      if (text != kFields[i]) continue;
      if (seen_[i]) fail(cat(tensor(), ": field \"", text, "\" occurs twice"));
      seen_[i] = true;
      field_ = i;
      return;
    }
    fail(cat(tensor(), ": unknown field \"", printable(text, 60),
             "\"; the fields are dtype, shape, data_offsets"));
  }
  void new_metadata(std::string& text) {
    if (out_.metadata.count(text))
      fail(cat("\"__metadata__\" holds \"", printable(text, 60), "\" twice"));
    key_ = std::move(text);
  }
  [[noreturn]] void refuse(std::string_view got) const {
    switch (place_) {
      case Place::outside:
        fail(cat("the header must be an object, got ", got));
      case Place::top:
        fail(cat("entry '", printable(key_), "' must be an object, got ", got));
      case Place::metadata:
        fail(cat("\"__metadata__\" must contain only strings, got ", got, " for \"",
                 printable(key_, 60), '"'));
      case Place::array:
        fail(
            cat(tensor(), ": ", kFields[field_], " must contain non-negative integers, got ", got));
      case Place::tensor:
        fail(cat(tensor(), ": ", kFields[field_],
                 field_ == kDType ? " must be a string" : " must be an array", ", got ", got));
    }
    fail("unexpected value");
  }

  Header& out_;
  Place place_ = Place::outside;
  std::string key_;
  std::array<bool, 3> seen_{};
  size_t field_ = 0;
  int count_ = 0;
  bool has_metadata_ = false;
};

}  // namespace

const FileDType* find_file_dtype(std::string_view name) {
  for (const auto& row : kDTypes)
    if (row.name == name) return &row;
  return nullptr;
}

std::string known_file_dtypes() {
  std::vector<std::string> names;
  for (const auto& row : kDTypes) names.emplace_back(row.name);
  return join(names, ", ");
}

Header parse_header(std::string_view text, const fs::path& path) {
  Header header;
  HeaderReader reader(header);
  parse_json(text, {.path = path, .offset = 8, .hint = kDamagedSafetensors}, reader);
  return header;
}

const char* safetensors_dtype(DType dtype) {
  for (const auto& row : kDTypes)
    if (row.dtype == dtype) return row.name.data();
  throw_bug(__FILE__, __LINE__, "dtype has a safetensors name", name(dtype));
}

}  // namespace mtrain
