// === Chains, one function a shape ===

__device__ __forceinline__ u64 shape_0(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x1, fault);
}

__device__ __forceinline__ u64 shape_1(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return one_hot(x1, constants[1], fault);
}

__device__ __forceinline__ u64 shape_2(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_3(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return one_hot(x2, constants[3], fault);
}

__device__ __forceinline__ u64 shape_4(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return one_hot(x1, constants[1], fault);
}

__device__ __forceinline__ u64 shape_5(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    i64 x1 = hash_bucket(value_bits(x0), constants + 0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return one_hot(x2, constants[3], fault);
}

__device__ __forceinline__ u64 shape_6(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = hash_bucket(value_bits(x1), constants + 1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return one_hot(x2, constants[3], fault);
}

__device__ __forceinline__ u64 cell(const Run& run, const Chain& chain, u64 row, u32& fault) {
    switch (chain.shape) {
        case 0: return shape_0(run, chain, row, fault);
        case 1: return shape_1(run, chain, row, fault);
        case 2: return shape_2(run, chain, row, fault);
        case 3: return shape_3(run, chain, row, fault);
        case 4: return shape_4(run, chain, row, fault);
        case 5: return shape_5(run, chain, row, fault);
        case 6: return shape_6(run, chain, row, fault);
        default: return 0;
    }
}

// === Entry ===

#ifndef FOREBAY_ON_HOST
extern "C" __global__ void __launch_bounds__(THREADS)
    forebay_program(const u8* fixed, u8* columns, u8* out, Launch launch) {
    __shared__ u64 tile[TILE_WORDS];
    Run run = {fixed, columns, out, launch};
    compute(run, blockIdx.x, threadIdx.x, tile);
    __syncthreads();
    write(run, blockIdx.x, threadIdx.x, tile);
}
#endif
