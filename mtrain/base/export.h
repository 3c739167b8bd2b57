// MT_API marks what crosses a shared-library boundary; everything else is hidden.
#pragma once

#define MT_API __attribute__((visibility("default")))

// Functions compiled for CPU and, under nvcc, for the GPU as well.
#ifdef __CUDACC__
#define MT_HD __host__ __device__ __forceinline__
#else
#define MT_HD inline __attribute__((always_inline))
#endif
