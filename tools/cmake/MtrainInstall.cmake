# cmake --install: bin/mtrain, lib/libmtrain_core.so, lib/mtrain/plugins, include/mtrain, share/mtrain, share/doc, share/man, and the
# package that find_package(mtrain) reads. All paths are relative, so the whole tree may be moved.
# The build tree has the same package: -Dmtrain_DIR=<build>.
include(CMakePackageConfigHelpers)
set(MT_PACKAGE_DIR lib/cmake/mtrain)

target_include_directories(mtrain_core PUBLIC $<INSTALL_INTERFACE:include>)
target_compile_features(mtrain_core PUBLIC cxx_std_20)
set_target_properties(mtrain_core PROPERTIES EXPORT_NAME core)
install(TARGETS mtrain mtrain_core EXPORT mtrainTargets RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
install(EXPORT mtrainTargets NAMESPACE mtrain:: DESTINATION ${MT_PACKAGE_DIR})
export(EXPORT mtrainTargets NAMESPACE mtrain:: FILE ${CMAKE_BINARY_DIR}/mtrainTargets.cmake)

if(NOT CMAKE_CROSSCOMPILING)  # mtrain writes the manual pages of its commands
  install(CODE "execute_process(COMMAND $<TARGET_FILE:mtrain> -q help --man -o ${CMAKE_BINARY_DIR}/man COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/mtrain/ DESTINATION include/mtrain FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/mtrain/plugin/abi_hash.h DESTINATION include/mtrain/plugin)
foreach(folder recipes schemas)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION share/mtrain PATTERN README.md EXCLUDE)
  endif()
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/mtrain/data DESTINATION share/mtrain OPTIONAL)
# Documentation is placed as in the source tree, so that its links work.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/examples DESTINATION share/doc/mtrain)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/doc/mtrain)
install(FILES ${CMAKE_SOURCE_DIR}/recipes/README.md DESTINATION share/doc/mtrain/recipes)
foreach(section 1 5)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/man/ DESTINATION share/man/man${section} FILES_MATCHING PATTERN "*.${section}")
endforeach()

configure_package_config_file(${CMAKE_SOURCE_DIR}/tools/cmake/mtrainConfig.cmake.in
  ${CMAKE_BINARY_DIR}/package/mtrainConfig.cmake INSTALL_DESTINATION ${MT_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/mtrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/mtrainConfig.cmake ${CMAKE_BINARY_DIR}/package/mtrainConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/tools/cmake/MtrainPlugin.cmake DESTINATION ${MT_PACKAGE_DIR})
foreach(file package/mtrainConfig.cmake package/mtrainConfigVersion.cmake)
  get_filename_component(name ${file} NAME)
  configure_file(${CMAKE_BINARY_DIR}/${file} ${CMAKE_BINARY_DIR}/${name} COPYONLY)
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/tools/cmake/MtrainPlugin.cmake ${CMAKE_BINARY_DIR}/MtrainPlugin.cmake COPYONLY)

# cpack -G "TGZ;DEB": one package. The dependencies of the .deb are read from its binaries.
set(CPACK_PACKAGE_NAME mtrain)
set(CPACK_PACKAGE_VENDOR mtrain)
set(CPACK_PACKAGE_CONTACT "mtrain developers <mtrain@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer for language models, driven by one YAML recipe")
set(CPACK_PACKAGE_DESCRIPTION "Trains language models from a YAML recipe that names the model, the data and the optimizer; each of them is a plugin.")
set(CPACK_PACKAGE_FILE_NAME mtrain-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
