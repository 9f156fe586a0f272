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
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x1, fault);
}

__device__ __forceinline__ u64 shape_2(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x1, fault);
}

__device__ __forceinline__ u64 shape_3(const Run& run, const Chain& chain, u64 row, u32& fault) {
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

__device__ __forceinline__ u64 shape_4(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_5(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_6(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_7(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = clip<u64>(x0, constants[0], constants[1]);
    u64 x2 = valid ? x1 : constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_8(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_9(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_float64(x1, fault);
}

__device__ __forceinline__ u64 shape_10(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x1, fault);
}

__device__ __forceinline__ u64 shape_11(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x1, fault);
}

__device__ __forceinline__ u64 shape_12(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_13(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_14(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_15(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_16(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = clip<u64>(x0, constants[0], constants[1]);
    u64 x2 = valid ? x1 : constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_17(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float64(x2, fault);
}

__device__ __forceinline__ u64 shape_18(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_float16(x1, fault);
}

__device__ __forceinline__ u64 shape_19(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x1, fault);
}

__device__ __forceinline__ u64 shape_20(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x1, fault);
}

__device__ __forceinline__ u64 shape_21(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_22(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_23(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_24(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_25(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = clip<u64>(x0, constants[0], constants[1]);
    u64 x2 = valid ? x1 : constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_26(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_27(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_bfloat16(x1, fault);
}

__device__ __forceinline__ u64 shape_28(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x1, fault);
}

__device__ __forceinline__ u64 shape_29(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x1, fault);
}

__device__ __forceinline__ u64 shape_30(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_31(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_32(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_33(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_34(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = clip<u64>(x0, constants[0], constants[1]);
    u64 x2 = valid ? x1 : constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_35(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_bfloat16(x2, fault);
}

__device__ __forceinline__ u64 shape_36(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_37(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_38(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_39(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_40(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_41(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_42(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_43(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_44(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = bucketize(run, constants + 0, x0);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int32(x2, fault);
}

__device__ __forceinline__ u64 shape_45(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_int64(x1, fault);
}

__device__ __forceinline__ u64 shape_46(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_47(const Run& run, const Chain& chain, u64 row, u32& fault) {
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
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_48(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_49(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_50(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_51(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_52(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_53(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = valid ? x0 : constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
}

__device__ __forceinline__ u64 shape_54(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    i64 x2 = bucketize(run, constants + 1, x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_uint8(x2, fault);
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
        case 7: return shape_7(run, chain, row, fault);
        case 8: return shape_8(run, chain, row, fault);
        case 9: return shape_9(run, chain, row, fault);
        case 10: return shape_10(run, chain, row, fault);
        case 11: return shape_11(run, chain, row, fault);
        case 12: return shape_12(run, chain, row, fault);
        case 13: return shape_13(run, chain, row, fault);
        case 14: return shape_14(run, chain, row, fault);
        case 15: return shape_15(run, chain, row, fault);
        case 16: return shape_16(run, chain, row, fault);
        case 17: return shape_17(run, chain, row, fault);
        case 18: return shape_18(run, chain, row, fault);
        case 19: return shape_19(run, chain, row, fault);
        case 20: return shape_20(run, chain, row, fault);
        case 21: return shape_21(run, chain, row, fault);
        case 22: return shape_22(run, chain, row, fault);
        case 23: return shape_23(run, chain, row, fault);
        case 24: return shape_24(run, chain, row, fault);
        case 25: return shape_25(run, chain, row, fault);
        case 26: return shape_26(run, chain, row, fault);
        case 27: return shape_27(run, chain, row, fault);
        case 28: return shape_28(run, chain, row, fault);
        case 29: return shape_29(run, chain, row, fault);
        case 30: return shape_30(run, chain, row, fault);
        case 31: return shape_31(run, chain, row, fault);
        case 32: return shape_32(run, chain, row, fault);
        case 33: return shape_33(run, chain, row, fault);
        case 34: return shape_34(run, chain, row, fault);
        case 35: return shape_35(run, chain, row, fault);
        case 36: return shape_36(run, chain, row, fault);
        case 37: return shape_37(run, chain, row, fault);
        case 38: return shape_38(run, chain, row, fault);
        case 39: return shape_39(run, chain, row, fault);
        case 40: return shape_40(run, chain, row, fault);
        case 41: return shape_41(run, chain, row, fault);
        case 42: return shape_42(run, chain, row, fault);
        case 43: return shape_43(run, chain, row, fault);
        case 44: return shape_44(run, chain, row, fault);
        case 45: return shape_45(run, chain, row, fault);
        case 46: return shape_46(run, chain, row, fault);
        case 47: return shape_47(run, chain, row, fault);
        case 48: return shape_48(run, chain, row, fault);
        case 49: return shape_49(run, chain, row, fault);
        case 50: return shape_50(run, chain, row, fault);
        case 51: return shape_51(run, chain, row, fault);
        case 52: return shape_52(run, chain, row, fault);
        case 53: return shape_53(run, chain, row, fault);
        case 54: return shape_54(run, chain, row, fault);
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
