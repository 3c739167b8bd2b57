// Sizes that settings ask for: no product of them wraps.
#include "mtrain/base/shape.h"

#include <doctest/doctest.h>

using namespace mtrain;

TEST_CASE("the elements of a shape are counted, or the shape is refused as what was asked for") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{3, 4, 5}.numel() == 60);
  CHECK(Shape{3, 0, 5}.numel() == 0);
  CHECK(Shape{int64_t{1} << 30, int64_t{1} << 29}.numel() == Shape::kMostElements);
  const int64_t huge = int64_t{1} << 62;
  for (const Shape& shape :
       {Shape{huge}, Shape{huge, huge}, Shape{int64_t{1} << 31, int64_t{1} << 31}, Shape{4, huge},
        Shape{huge, huge, 0}, Shape{-4, 3}, Shape{3037000500, 3037000500}}) {
    CAPTURE(cat(shape));
    try {
      (void)shape.numel();
      FAIL("it was counted");
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      CHECK(error.message().find(cat(shape)) != std::string::npos);
      CHECK(error.hint().find("model.hidden_size") != std::string::npos);
    }
  }
}
