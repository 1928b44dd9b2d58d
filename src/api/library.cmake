# The C++ library: the target gpuprof::gpuprof, and its package where there is no Python build.
configure_file(include/gpuprof/version.hpp.in include/gpuprof/version.hpp @ONLY)
file(GLOB _api_sources CONFIGURE_DEPENDS src/api/*.cpp)
add_library(gpuprof STATIC ${_api_sources} $<TARGET_OBJECTS:gpuprof_core>)
add_library(gpuprof::gpuprof ALIAS gpuprof)
target_compile_features(gpuprof PUBLIC cxx_std_17)
target_include_directories(
  gpuprof PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                 $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/include>)
target_link_libraries(gpuprof PUBLIC Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE $<BUILD_INTERFACE:gpuprof_settings>)
# Each shared object has a copy of its own. Without this what the standard library's templates make
# of gpuprof's types, such as std::optional<gpuprof::timer>, would be the first one's for all that
# have the same version. (Hidden types would do as well, but then GCC warns of each class with one.)
set(_is_loaded "$<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY$<SEMICOLON>MODULE_LIBRARY>")
target_link_options(
  gpuprof INTERFACE "$<$<AND:$<PLATFORM_ID:Linux>,${_is_loaded}>:LINKER:-Bsymbolic-functions>")
if(GPUPROF_PYTHON)  # a wheel has the extension alone
  set_target_properties(gpuprof PROPERTIES EXCLUDE_FROM_ALL ON)
  return()
endif()
if(NOT GPUPROF_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpuprof)
install(TARGETS gpuprof EXPORT gpuprofTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/gpuprof ${CMAKE_CURRENT_BINARY_DIR}/include/gpuprof
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT gpuprofTargets NAMESPACE gpuprof:: DESTINATION ${_package_dir})
configure_package_config_file(src/api/gpuprofConfig.cmake.in gpuprofConfig.cmake
                              INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(gpuprofConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH _include_from_lib ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(_symbolic "-Wl,-Bsymbolic-functions ")  # for shared objects, as above
endif()
configure_file(src/api/gpuprof.pc.in gpuprof.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gpuprof.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gpuprofConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/gpuprofConfigVersion.cmake DESTINATION ${_package_dir})
