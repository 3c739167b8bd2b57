// Slice: a box of a named global tensor in host memory, row-major. A checkpoint is made of boxes,
// so it does not depend on the layout that wrote it. Values; a Slice points at memory that others
// own.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "mtrain/base/box.h"
#include "mtrain/base/dtype.h"

namespace mtrain {

struct Slice {
  std::string name;
  DType dtype = DType::f32;
  Shape global;               // of the whole tensor
  Shape offset, local;        // this slice's box in it
  std::span<std::byte> data;  // local.numel() elements

  Box box() const { return {offset, local}; }
};

/// A slice that is the whole tensor.
inline Slice whole_slice(std::string name, DType dtype, const Shape& shape,
                         std::span<std::byte> data) {
  return {std::move(name), dtype, shape, whole_box(shape).offset, shape, data};
}

}  // namespace mtrain
