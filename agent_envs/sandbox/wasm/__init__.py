"""The rung "wasm": CPython as a WebAssembly program on wasmtime, which has no call that reaches the machine."""
