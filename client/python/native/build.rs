//! Linker arguments of a module that the interpreter loads; only macOS needs any.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
