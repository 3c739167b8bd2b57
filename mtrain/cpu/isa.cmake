# mtrain/cpu/kernels is compiled once per x86-64 level, each time into its own namespace (MT_ISA); isa.cc picks one at
# run time. The plain build (level "base") runs on every CPU. FMA contraction and if-conversion are allowed there: neither
# changes what NaN and infinity do.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/*.cc)
set(kernel_flags -fopenmp-simd -ffp-contract=fast -fno-trapping-math $<$<NOT:$<CONFIG:Debug>>:-O3>)
# Never joined (CMAKE_UNITY_BUILD): a file's code must not depend on what the compiler sees next to it.
set_source_files_properties(${kernel_sources} PROPERTIES COMPILE_OPTIONS "${kernel_flags}" SKIP_UNITY_BUILD_INCLUSION ON)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(flags_v3 -march=x86-64-v3)
  # g++ 12 warns about the intentionally undefined operands in its own AVX-512 header.
  set(flags_v4 -march=x86-64-v4 -mprefer-vector-width=512 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
  set(flags_v4_bf16 ${flags_v4} -mavx512bf16)
  set(flags_v4_amx ${flags_v4_bf16} -mamx-tile -mamx-bf16)
  set(levels v3 v4)
  # clang 16 crashes on the bf16 products of attention; its builds use plain AVX-512 there.
  if(NOT (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 17))
    list(APPEND levels v4_bf16 v4_amx)
    target_compile_definitions(mtrain_cpu PRIVATE MT_X86_BF16)
  endif()
  foreach(level IN LISTS levels)
    set(sources_${level} ${kernel_sources})
  endforeach()
  # Tiles are used by products alone; the other kernels are those of v4_bf16 (isa_kernels.h).
  set(sources_v4_amx)
  foreach(file attention attention_backward gemm_packed fill_kernels)
    list(APPEND sources_v4_amx ${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/${file}.cc)
  endforeach()
  foreach(level IN LISTS levels)
    add_library(mtrain_cpu_${level} OBJECT ${sources_${level}})
    set_target_properties(mtrain_cpu_${level} PROPERTIES UNITY_BUILD OFF)
    target_compile_definitions(mtrain_cpu_${level} PRIVATE MT_ISA=${level})
    target_compile_options(mtrain_cpu_${level} PRIVATE ${flags_${level}})
    target_include_directories(mtrain_cpu_${level} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(mtrain_cpu_${level} PRIVATE mtrain_options mtrain_tensor mtrain_kernel)
    target_sources(mtrain_cpu PRIVATE $<TARGET_OBJECTS:mtrain_cpu_${level}>)
    set_property(GLOBAL APPEND PROPERTY MT_OBJECTS $<TARGET_OBJECTS:mtrain_cpu_${level}>)
  endforeach()
  target_compile_definitions(mtrain_cpu PRIVATE MT_X86_LEVELS)
endif()
