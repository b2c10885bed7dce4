# make install: libgantry with its own libdnnl beside it, the command line, plugins, headers, pkg-config and CMake files.
include(CMakePackageConfigHelpers)

# The file that oneDNN's SONAME names: libdnnl.so is three equal files in the PyPI package, or links elsewhere.
function(gantry_dnnl_runtime out_file)
    file(REAL_PATH ${gt_dnnl_LIBRARY} library)
    execute_process(COMMAND ${CMAKE_READELF} -d ${library} OUTPUT_VARIABLE dynamic)
    string(REGEX MATCH "SONAME\\)[^[]*\\[([^]]+)\\]" matched "${dynamic}")
    get_filename_component(folder ${gt_dnnl_LIBRARY} DIRECTORY)
    set(${out_file} ${folder}/${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

function(gantry_install)
    get_filename_component(openblas_folder ${gt_openblas_LIBRARY} DIRECTORY)
    set_target_properties(gantry PROPERTIES INSTALL_RPATH "$ORIGIN;${openblas_folder}")
    install(TARGETS gantry EXPORT gantry LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY include/gantry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

    gantry_dnnl_runtime(dnnl)
    get_filename_component(dnnl_name ${dnnl} NAME)
    file(REAL_PATH ${dnnl} dnnl_file)
    install(FILES ${dnnl_file} RENAME ${dnnl_name} DESTINATION ${CMAKE_INSTALL_LIBDIR}
        PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    if(TARGET gantry_cli)
        file(RELATIVE_PATH to_library ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
        set_target_properties(gantry_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
        install(TARGETS gantry_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
    if(TARGET gantry_opencl)
        install(TARGETS gantry_opencl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gantry)
    endif()

    # The template of a provider: docs/plugin-guide.md begins with a copy of it.
    install(DIRECTORY examples/plugin DESTINATION ${CMAKE_INSTALL_DATADIR}/gantry)
    install(FILES docs/man/gantry.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

    # Relative: the prefix may be another one when it is installed, and the folder may be moved later.
    file(RELATIVE_PATH pc_to_include ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
    configure_file(cmake/gantry.pc.in ${CMAKE_BINARY_DIR}/gantry.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/gantry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gantry)
    install(EXPORT gantry NAMESPACE gantry:: FILE gantry-targets.cmake DESTINATION ${package})
    write_basic_package_version_file(${CMAKE_BINARY_DIR}/gantry-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(FILES cmake/gantry-config.cmake cmake/plugin.map ${CMAKE_BINARY_DIR}/gantry-config-version.cmake DESTINATION ${package})
endfunction()
