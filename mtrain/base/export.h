// MT_API exports a symbol from a shared library; all other symbols are hidden. MT_HD marks
// functions for CPU and GPU. Macros only.
#pragma once

#define MT_API __attribute__((visibility("default")))

// Functions that are compiled for the CPU and, under nvcc, also for the GPU.
#ifdef __CUDACC__
#define MT_HD __host__ __device__ __forceinline__
#else
#define MT_HD inline __attribute__((always_inline))
#endif
