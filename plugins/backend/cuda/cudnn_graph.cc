#ifdef MT_HAVE_CUDNN
#include "cudnn_graph.h"

#include <algorithm>
#include <utility>

namespace mtrain::cuda {

namespace {

void require(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw NoSuchKernel{status, what};
}
Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

}  // namespace

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  require(cudnnBackendCreateDescriptor(type, &raw_), "descriptor");
}
Descriptor::~Descriptor() {
  if (raw_) cudnnBackendDestroyDescriptor(raw_);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  require(cudnnBackendSetAttribute(raw_, name, type, count, values), "attribute");
  return *this;
}
void Descriptor::finish(const char* what) { require(cudnnBackendFinalize(raw_), what); }

namespace {

Descriptor plain_tensor(int64_t uid, const Dims& dims, const Dims& strides, cudnnDataType_t type) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid).set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
        int64_t{type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 16});
  return d;
}

}  // namespace

GraphTensor GraphBuilder::tensor(int64_t uid, const Dims& dims, const Dims& strides,
                                 cudnnDataType_t type, const GraphTensor* ragged) {
  Descriptor d = plain_tensor(uid, dims, strides, type);
  if (ragged) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged->node);
  d.finish("tensor");
  kept_.push_back(std::move(d));
  return {kept_.back().get(), dims};
}

GraphTensor GraphBuilder::scalar(int64_t uid, cudnnDataType_t type) {
  Descriptor d = plain_tensor(uid, {1, 1, 1, 1}, {1, 1, 1, 1}, type);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  d.finish("scalar");
  kept_.push_back(std::move(d));
  return {kept_.back().get(), {1, 1, 1, 1}};
}

GraphTensor GraphBuilder::virtual_tensor(const Dims& dims, cudnnDataType_t type,
                                         const Dims* strides, const GraphTensor* ragged) {
  Descriptor d = plain_tensor(next_uid_++, dims, strides ? *strides : packed(dims), type);
  if (ragged) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged->node);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  d.finish("virtual tensor");
  kept_.push_back(std::move(d));
  return {kept_.back().get(), dims};
}

void GraphBuilder::matmul_to(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c,
                             const Sizes& sizes) {
  Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finish("matmul");
  Descriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.node).set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.node);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.node)
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how.get());
  if (sizes.m) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, sizes.m->node);
  if (sizes.n) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, sizes.n->node);
  if (sizes.k) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sizes.k->node);
  op.finish("matmul operation");
  operations_.push_back(op.get());
  kept_.push_back(std::move(how));
  kept_.push_back(std::move(op));
}

GraphTensor GraphBuilder::matmul(const GraphTensor& a, const GraphTensor& b, cudnnDataType_t type,
                                 const Sizes& sizes) {
  GraphTensor c =
      virtual_tensor({a.dims[0], std::max(a.dims[1], b.dims[1]), a.dims[2], b.dims[3]}, type);
  matmul_to(a, b, c, sizes);
  return c;
}

void GraphBuilder::point(cudnnPointwiseMode_t mode, cudnnDataType_t precision, const GraphTensor& x,
                         const GraphTensor* b, const GraphTensor* t, const GraphTensor& y,
                         int64_t axis) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  how.finish("pointwise");
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.get())
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.node);
  if (b) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->node);
  if (t) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->node);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.node);
  op.finish("pointwise operation");
  operations_.push_back(op.get());
  kept_.push_back(std::move(how));
  kept_.push_back(std::move(op));
}

void GraphBuilder::pointwise_to(cudnnPointwiseMode_t mode, const GraphTensor& x,
                                const GraphTensor* b, const GraphTensor& y) {
  point(mode, CUDNN_DATA_FLOAT, x, b, nullptr, y);
}
GraphTensor GraphBuilder::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x,
                                    const GraphTensor* b, cudnnDataType_t type) {
  GraphTensor y = virtual_tensor(x.dims, type);
  pointwise_to(mode, x, b, y);
  return y;
}
GraphTensor GraphBuilder::comparison(cudnnPointwiseMode_t mode, const GraphTensor& a,
                                     const GraphTensor& b) {
  GraphTensor y = virtual_tensor(a.dims, CUDNN_DATA_BOOLEAN);
  point(mode, CUDNN_DATA_BOOLEAN, a, &b, nullptr, y);
  return y;
}
GraphTensor GraphBuilder::select(const GraphTensor& where, const GraphTensor& yes,
                                 const GraphTensor& no) {
  GraphTensor y = virtual_tensor(yes.dims, CUDNN_DATA_FLOAT);
  point(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, yes, &no, &where, y);
  return y;
}
GraphTensor GraphBuilder::index(const GraphTensor& like, int64_t axis) {
  GraphTensor y = virtual_tensor(like.dims, CUDNN_DATA_INT32);
  point(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, like, nullptr, nullptr, y, axis);
  return y;
}

GraphTensor GraphBuilder::shifted_index(const GraphTensor& index, const GraphTensor& by) {
  GraphTensor y = virtual_tensor(index.dims, CUDNN_DATA_INT32);
  point(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, index, &by, nullptr, y, 3);
  return y;
}

void GraphBuilder::reduce_to(cudnnReduceTensorOp_t mode, const GraphTensor& x,
                             const GraphTensor& y) {
  Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finish("reduction");
  Descriptor op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.node)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.node);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how.get()).finish("reduction operation");
  operations_.push_back(op.get());
  kept_.push_back(std::move(how));
  kept_.push_back(std::move(op));
}
GraphTensor GraphBuilder::reduce(cudnnReduceTensorOp_t mode, const GraphTensor& x, const Dims& dims,
                                 cudnnDataType_t type) {
  GraphTensor y = virtual_tensor(dims, type);
  reduce_to(mode, x, y);
  return y;
}

GraphTensor GraphBuilder::transposed(const GraphTensor& x, cudnnDataType_t type) {
  const Dims& d = x.dims;
  return transposed(x, type, {d[1] * d[2] * d[3], d[2] * d[3], 1, d[3]}, nullptr);
}
GraphTensor GraphBuilder::transposed(const GraphTensor& x, cudnnDataType_t type,
                                     const Dims& strides, const GraphTensor* ragged) {
  const Dims& d = x.dims;
  GraphTensor y = virtual_tensor({d[0], d[1], d[3], d[2]}, type, &strides, ragged);
  Descriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.node)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.node)
      .finish("reshape operation");
  operations_.push_back(op.get());
  kept_.push_back(std::move(op));
  return y;
}

Descriptor GraphBuilder::finish(cudnnHandle_t handle) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations_.size()), operations_.data());
  if (handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finish("graph");
  return graph;
}

namespace {

/// Whether the library reports that two runs of an engine may differ.
bool varies(Node choice) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  Node raw = engine.get();
  int64_t count = 0;
  cudnnBackendNumericalNote_t notes[32];
  require(cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
          "engine");
  require(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   32, &count, notes),
          "notes");
  return std::find(notes, notes + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != notes + count;
}

}  // namespace

CompiledGraph compile(const Descriptor& graph, cudnnHandle_t handle, const Descriptor* device,
                      bool any_order) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device->get());
  heuristics.finish("heuristics");
  int64_t proposed = 0;
  require(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &proposed, nullptr),
          "number of engines");
  if (proposed == 0) throw NoSuchKernel{CUDNN_STATUS_NOT_SUPPORTED, "no engine proposed"};
  std::vector<Descriptor> choices;
  std::vector<Node> raw;
  for (int64_t i = 0; i < proposed; ++i)
    raw.push_back(choices.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  require(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, proposed, &proposed, raw.data()),
          "engines");
  cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
  for (int64_t i = 0; i < proposed; ++i) {
    if (!any_order && varies(raw[static_cast<size_t>(i)])) continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, raw[static_cast<size_t>(i)]);
    if (handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    if (device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device->get());
    last = cudnnBackendFinalize(plan.get());
    // Without a driver the kernel is compiled, and only loading it fails.
    if (last == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER && device) return {std::move(plan), 0, i};
    if (last != CUDNN_STATUS_SUCCESS) continue;
    CompiledGraph out{std::move(plan), 0, i};
    int64_t count = 0;
    require(cudnnBackendGetAttribute(out.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &count, &out.workspace),
            "workspace");
    return out;
  }
  throw NoSuchKernel{last, "no proposed engine compiles"};
}

Descriptor device_properties(const std::string& json) {
  Descriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        static_cast<int64_t>(json.size()), json.data());
  d.finish("device properties");
  return d;
}

}  // namespace mtrain::cuda
#endif
