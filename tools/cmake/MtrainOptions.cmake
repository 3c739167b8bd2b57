# Compiler, hardening and sanitizer flags shared by every target of the tree, and the dependencies.
add_library(mtrain_options INTERFACE)
# Control-flow protection by the processor, with a different flag on each.
set(branch_protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(branch_protection -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(branch_protection -mbranch-protection=standard)
endif()
# Only for C++: nvcc does not accept these flags directly (MtrainCuda.cmake).
set(flags -Wall -Wextra -Werror -Wformat=2 -Werror=format-security -Wimplicit-fallthrough -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-missing-field-initializers
  -fstack-protector-strong -fstack-clash-protection ${branch_protection} -fno-math-errno -ffp-contract=on)
target_compile_options(mtrain_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports overlaps in std::string's own operator+ (GCC bug 105651).
  target_compile_options(mtrain_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # `omp simd` is only a request; clang warns if its vectorizer does not follow it.
  target_compile_options(mtrain_options INTERFACE -Wno-pass-failed)
endif()
target_compile_definitions(mtrain_options INTERFACE _GLIBCXX_ASSERTIONS BOOST_DLL_USE_STD_FS)
target_link_options(mtrain_options INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # The checks of _FORTIFY_SOURCE need an optimizing compiler; tests that compute nothing (MT_UNOPTIMIZED) have none.
  set(optimized "$<NOT:$<BOOL:$<TARGET_PROPERTY:MT_UNOPTIMIZED>>>")
  target_compile_options(mtrain_options INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,${optimized}>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
endif()
if(MT_SANITIZE)
  target_compile_options(mtrain_options INTERFACE -fsanitize=${MT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(mtrain_options INTERFACE -fsanitize=${MT_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 21)  # later ones define them
    foreach(sanitizer ADDRESS THREAD)
      string(TOLOWER ${sanitizer} lower)
      if(",${MT_SANITIZE}," MATCHES ",${lower},")
        target_compile_definitions(mtrain_options INTERFACE __SANITIZE_${sanitizer}__=1)
      endif()
    endforeach()
  endif()
  # Sanitizer instrumentation hides initializations from g++'s analysis (see its manual); other builds keep the warning.
  target_compile_options(mtrain_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(Threads REQUIRED)

# Data and tokenizers: Unicode's tables, regular expressions, a fast parser of JSON, compressed inputs.
find_package(ICU REQUIRED COMPONENTS uc)
find_package(simdjson REQUIRED)
find_package(ZLIB REQUIRED)
find_path(MT_ZSTD_INCLUDE zstd.h REQUIRED)
find_library(MT_ZSTD_LIBRARY NAMES zstd REQUIRED)
add_library(mtrain_zstd INTERFACE)
target_include_directories(mtrain_zstd SYSTEM INTERFACE ${MT_ZSTD_INCLUDE})
target_link_libraries(mtrain_zstd INTERFACE ${MT_ZSTD_LIBRARY})
find_path(MT_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(MT_PCRE2_LIBRARY NAMES pcre2-8 REQUIRED)
add_library(mtrain_pcre2 INTERFACE)
target_include_directories(mtrain_pcre2 SYSTEM INTERFACE ${MT_PCRE2_INCLUDE})
target_link_libraries(mtrain_pcre2 INTERFACE ${MT_PCRE2_LIBRARY})

# The folders, relative to the file itself, in which a program or library of the tree finds its own libraries: the same in the
# build tree and installed. CMake would otherwise append an empty entry to the build tree's list, as room for the installed one,
# and an empty entry means the current working folder.
function(mt_runpath target folders)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${folders}" BUILD_WITH_INSTALL_RPATH ON)
endfunction()
