#include "mtrain/base/dtype.h"

#include <array>

namespace mtrain {

namespace {
struct Row {
  DType dtype;
  const char* name;
  size_t bytes;
  bool floating;
};
constexpr std::array<Row, 10> kRows = {{
    {DType::f32, "fp32", 4, true},
    {DType::bf16, "bf16", 2, true},
    {DType::f16, "fp16", 2, true},
    {DType::f64, "fp64", 8, true},
    {DType::i64, "int64", 8, false},
    {DType::i32, "int32", 4, false},
    {DType::i16, "int16", 2, false},
    {DType::i8, "int8", 1, false},
    {DType::u16, "uint16", 2, false},
    {DType::u8, "uint8", 1, false},
}};
const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }
}  // namespace

size_t size_of(DType dtype) { return row(dtype).bytes; }
// Accepts any number, since the value may come from another process.
const char* name(DType dtype) {
  return static_cast<size_t>(dtype) < kRows.size() ? row(dtype).name : "?";
}
bool is_floating(DType dtype) { return row(dtype).floating; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& r : kRows)
    if (name == r.name) return r.dtype;
  return std::nullopt;
}

}  // namespace mtrain
