// Functions that need more than an instruction. They are in one place because each must be, operation by operation, what the
// CPU does.

__device__ __forceinline__ f32 ln_1p(f32 value) { return log1pf(value); }
__device__ __forceinline__ f64 ln_1p(f64 value) { return log1p(value); }
