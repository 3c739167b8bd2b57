# cmake --install: bin/mtrain, lib/libmtrain_core.so, lib/mtrain/plugins, include/mtrain, share/mtrain, and the package
# that find_package(mtrain) reads. Everything is found relative to where it lies, so the whole tree may be moved.
include(CMakePackageConfigHelpers)
set(MT_PACKAGE_DIR lib/cmake/mtrain)

target_include_directories(mtrain_core PUBLIC $<INSTALL_INTERFACE:include>)
target_compile_features(mtrain_core PUBLIC cxx_std_20)
set_target_properties(mtrain_core PROPERTIES EXPORT_NAME core)
install(TARGETS mtrain mtrain_core EXPORT mtrainTargets RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
install(EXPORT mtrainTargets NAMESPACE mtrain:: DESTINATION ${MT_PACKAGE_DIR})

install(FILES ${CMAKE_SOURCE_DIR}/docs/man/mtrain-recipe.5 DESTINATION share/man/man5)
if(NOT CMAKE_CROSSCOMPILING)  # the program writes the pages of its commands itself
  install(CODE "execute_process(COMMAND $<TARGET_FILE:mtrain> -q help --man -o ${CMAKE_BINARY_DIR}/man COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/core/ DESTINATION include/mtrain FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/mtrain/plugin/abi_hash.h DESTINATION include/mtrain/plugin)
foreach(folder recipes schemas)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION share/mtrain)
  endif()
endforeach()

configure_package_config_file(${CMAKE_SOURCE_DIR}/tools/cmake/mtrainConfig.cmake.in
  ${CMAKE_BINARY_DIR}/package/mtrainConfig.cmake INSTALL_DESTINATION ${MT_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/mtrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/mtrainConfig.cmake ${CMAKE_BINARY_DIR}/package/mtrainConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/tools/cmake/MtrainPlugin.cmake DESTINATION ${MT_PACKAGE_DIR})
