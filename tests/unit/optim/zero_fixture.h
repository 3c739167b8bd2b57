// Trains a small language model on thread ranks with some kind of sharding, and returns the
// results.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "contract/harness.h"
#include "mtrain/comm/call.h"
#include "mtrain/optim/gradient_messages.h"
#include "mtrain/tensor/memory_use.h"

namespace mtrain::zero {

struct Job {
  int ranks = 2, zero_stage = 0, hsdp = 1;
  bool outer_zero = false, overlap = false, in_order = false, recompute = false;
  bool whole = false;           // the optimizer works on whole matrices
  bool deferred = true;         // the buckets allocate the parameters if ranks share them
  bool spare = false;           // the model has a parameter that nothing uses
  bool stages = false;          // Gather, Release and Scatter are actions of the program
  bool padded = false;          // buckets are multiples of kBucketPadding
  int64_t norms = 0, mlps = 0;  // of the model, which its blocks use in turn; 0: each block has its
                                // own
  bool backwards = false;       // the model creates its last parts first
  bool declared = false;        // the parts are those that the model declares
  GradientWire wire = GradientWire::fp32;
  int micro_batches = 2;  // of each rank
  int steps = 3;
  int64_t bucket_size = 700, layers = 3, width = 24;
  DType dtype = DType::f32;
  double clip = 0.3;
  enum class Fp8 : uint8_t { none, tensorwise, delayed } fp8 = Fp8::none;  // products of blocks
  bool codes = false;  // values of weights are FP8 codes where they may be
};

struct Outcome {
  std::map<std::string, contract::Values> masters;  // assembled from the elements that ranks count
  std::map<std::string, contract::Values> gradients;  // of the last step
  std::vector<double> losses, norms;
  int64_t numel = 0, buckets = 0;
  int64_t quantized = 0, matrices = 0;  // elements of the buckets of weights with FP8 products,
                                        // padding included; those weights
  CommCounters bytes;                   // of rank 0 in the last step, but for losses and norms
  std::vector<MemoryBreakdown> held;    // by rank, after the last step
  std::vector<size_t> peak;             // by rank, in all steps
};

/// Trains; checks on each rank that values are those of the masters, also after these were written,
/// and that each element is counted once.
Outcome train(const Job& job);
std::string text(const Job& job);
/// The same bits: parameters, losses and norms.
bool same(const Outcome& a, const Outcome& b);

}  // namespace mtrain::zero
