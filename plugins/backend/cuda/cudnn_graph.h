// A builder of cuDNN operation graphs on the library's C interface: tensors, and the few operations
// that attention needs. It needs no device: a graph can be built, and its kernels compiled, for the
// properties of a device that is absent. Owns its descriptors; not thread-safe.
#pragma once
#include <cudnn_backend.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mtrain::cuda {

/// Thrown by the builder and the compiler if the library refuses the graph. The caller then uses
/// another implementation.
struct NoSuchKernel {
  cudnnStatus_t status;
  const char* what;
};

using Dims = std::array<int64_t, 4>;
using Node = cudnnBackendDescriptor_t;

/// Owns one descriptor.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(other.raw_) { other.raw_ = nullptr; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Node get() const { return raw_; }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);
  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, Node value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, bool value) {
    return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  void finish(const char* what);

 private:
  Node raw_ = nullptr;
};

/// A tensor of the graph with its dimensions, which later operations need.
struct GraphTensor {
  Node node = nullptr;
  Dims dims{};
};

class GraphBuilder {
 public:
  /// A tensor in memory that the caller binds by `uid`. `ragged`: the offset of each entry of the
  /// first dimension, in elements.
  GraphTensor tensor(int64_t uid, const Dims& dims, const Dims& strides, cudnnDataType_t type,
                     const GraphTensor* ragged = nullptr);
  /// One number that the caller binds to host memory.
  GraphTensor scalar(int64_t uid, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  /// Number of valid rows, columns and contraction elements per batch entry; null: all of them.
  struct Sizes {
    const GraphTensor *m = nullptr, *n = nullptr, *k = nullptr;
  };
  GraphTensor matmul(const GraphTensor& a, const GraphTensor& b, cudnnDataType_t type,
                     const Sizes& sizes);
  void matmul_to(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c,
                 const Sizes& sizes);
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                        cudnnDataType_t type);
  void pointwise_to(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                    const GraphTensor& y);
  GraphTensor comparison(cudnnPointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b);
  GraphTensor select(const GraphTensor& where, const GraphTensor& yes, const GraphTensor& no);
  /// A tensor of the element indices along one dimension.
  GraphTensor index(const GraphTensor& like, int64_t axis);
  /// Indices plus an int32 scalar.
  GraphTensor shifted_index(const GraphTensor& index, const GraphTensor& by);
  GraphTensor reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const Dims& dims,
                     cudnnDataType_t type);
  void reduce_to(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
  /// Swaps the last two dimensions of a virtual tensor, whose elements are adjacent.
  GraphTensor transposed(const GraphTensor& x, cudnnDataType_t type);
  /// The same for a tensor in memory, as a view. `strides`: those of the result's dimensions in
  /// that memory, by which the kernel reads it. `ragged`: that of the tensor.
  GraphTensor transposed(const GraphTensor& x, cudnnDataType_t type, const Dims& strides,
                         const GraphTensor* ragged);

  /// The graph of all operations so far. `handle` may be null if there is no device.
  Descriptor finish(cudnnHandle_t handle);
  size_t operations() const { return operations_.size(); }

 private:
  GraphTensor virtual_tensor(const Dims& dims, cudnnDataType_t type, const Dims* strides = nullptr,
                             const GraphTensor* ragged = nullptr);
  void point(cudnnPointwiseMode_t mode, cudnnDataType_t precision, const GraphTensor& x,
             const GraphTensor* b, const GraphTensor* t, const GraphTensor& y, int64_t axis = -1);
  std::vector<Descriptor> kept_;
  std::vector<Node> operations_;
  int64_t next_uid_ = 1000;
};

/// A compiled graph.
struct CompiledGraph {
  Descriptor plan;
  int64_t workspace = 0;
  int64_t engine = -1;
};
/// Compiles with the first engine that the library proposes and that compiles; unless `any_order`,
/// with the first deterministic one. `device`: properties to compile for; null: the current device.
/// Throws NoSuchKernel.
CompiledGraph compile(const Descriptor& graph, cudnnHandle_t handle, const Descriptor* device,
                      bool any_order = false);

/// The properties of an absent device, from the library's JSON format.
Descriptor device_properties(const std::string& json);

}  // namespace mtrain::cuda
