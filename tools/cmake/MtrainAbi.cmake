# Generates mtrain/plugin/abi_hash.h at build time from the public headers; it is part of a plugin's stamp.
set_property(GLOBAL PROPERTY MTRAIN_IN_TREE ON)
set(MT_GENERATED ${CMAKE_BINARY_DIR}/generated)  # the root of generated headers
set(MT_ABI_HEADER ${MT_GENERATED}/mtrain/plugin/abi_hash.h)
file(GLOB_RECURSE abi_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mtrain/*.h)
add_custom_command(OUTPUT ${MT_ABI_HEADER}
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR}/mtrain -DOUTPUT=${MT_ABI_HEADER} -DVERSION=${PROJECT_VERSION}
    -P ${CMAKE_SOURCE_DIR}/tools/cmake/MtrainAbiHash.cmake
  DEPENDS ${abi_headers} ${CMAKE_SOURCE_DIR}/tools/cmake/MtrainAbiHash.cmake
  COMMENT "Hashing the public headers" VERBATIM)
target_sources(mtrain_plugin PRIVATE ${MT_ABI_HEADER})
target_include_directories(mtrain_plugin PUBLIC $<BUILD_INTERFACE:${MT_GENERATED}>)
