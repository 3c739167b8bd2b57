# Cross build for Arm64 Linux with Debian's compiler against the sysroot that `tools/setup.sh --cross arm64` makes.
# cmake --preset arm64 reads this; a build on an Arm64 machine does not need it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(MT_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../build/sysroot-arm64" CACHE PATH "libraries and headers of Debian's arm64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MT_SYSROOT)
get_filename_component(CMAKE_SYSROOT "${MT_SYSROOT}" ABSOLUTE)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  message(FATAL_ERROR "no arm64 libraries in ${CMAKE_SYSROOT}: run `tools/setup.sh --cross arm64`, or set MT_SYSROOT")
endif()
# Programs come from this machine; libraries and headers come only from the sysroot.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# Built programs run on this machine in an emulator, to write the sidecars of plugins and to run tests with ctest. The processor
# is that of Graviton2, which has none of the later extensions (SVE, bf16, pointer authentication).
find_program(MT_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(MT_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${MT_QEMU} -cpu neoverse-n1 -L ${CMAKE_SYSROOT})
endif()
