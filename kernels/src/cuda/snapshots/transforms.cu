// === Chains, one function a shape ===

__device__ __forceinline__ u64 shape_0(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = ln_1p(x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_1(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    f64 x2 = ln_1p(x1);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_2(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = ln_1p(x1);
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
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_4(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_5(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_6(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_7(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = valid ? x0 : constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_8(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = ln_1p(x2);
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_9(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = square_root(x0);
    f32 x2 = valid ? x1 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_10(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = square_root(x0);
    f64 x2 = valid ? x1 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_11(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = square_root(x0);
    f32 x2 = valid ? x1 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_12(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_13(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_14(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_15(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_16(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_17(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = square_root(x1);
    f64 x3 = valid ? x2 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_18(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = absolute(x0);
    f32 x2 = valid ? x1 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_19(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = absolute(x0);
    f64 x2 = valid ? x1 : as_f64(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_20(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = absolute(x0);
    f32 x2 = valid ? x1 : as_f32(constants[0]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_21(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = absolute(x1);
    i64 x3 = valid ? x2 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_22(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = absolute(x1);
    i64 x3 = valid ? x2 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_23(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = absolute(x1);
    i64 x3 = valid ? x2 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_24(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = absolute(x1);
    i64 x3 = valid ? x2 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_25(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = clip<u64>(x0, constants[0], constants[1]);
    u64 x2 = absolute(x1);
    u64 x3 = valid ? x2 : constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_26(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = clip<i64>(x0, (i64)constants[0], (i64)constants[1]);
    i64 x2 = absolute(x1);
    i64 x3 = valid ? x2 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_27(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = absolute(x0);
    i64 x2 = valid ? x1 : (i64)constants[0];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_28(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = absolute(x0);
    i64 x2 = valid ? x1 : (i64)constants[0];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_29(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = absolute(x0);
    i64 x2 = valid ? x1 : (i64)constants[0];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_30(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = logit(x1, as_f32(constants[1]), as_f32(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_31(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    f64 x2 = logit(x1, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_32(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = logit(x1, as_f32(constants[1]), as_f32(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_33(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_34(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_35(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_36(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_37(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = valid ? x0 : constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_38(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = logit(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_39(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = box_cox(x1, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_40(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    f64 x2 = box_cox(x1, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_41(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = box_cox(x1, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_42(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_43(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_44(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_45(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_46(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = valid ? x0 : constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_47(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = box_cox(x2, as_f64(constants[1]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_48(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = shift_and_divide(x0, as_f64(constants[0]), as_f64(constants[1]));
    f32 x2 = valid ? x1 : as_f32(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_49(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = shift_and_divide(x0, as_f64(constants[0]), as_f64(constants[1]));
    f64 x2 = valid ? x1 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_50(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = shift_and_divide(x0, as_f64(constants[0]), as_f64(constants[1]));
    f32 x2 = valid ? x1 : as_f32(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_51(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_52(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_53(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_54(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_55(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_56(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    f64 x1 = (f64)x0;
    f64 x2 = shift_and_divide(x1, as_f64(constants[0]), as_f64(constants[1]));
    f64 x3 = valid ? x2 : as_f64(constants[2]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x3, fault);
}

__device__ __forceinline__ u64 shape_57(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = shift_and_divide(x1, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_58(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = valid ? x0 : as_f64(constants[0]);
    valid = true;
    f64 x2 = shift_and_divide(x1, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_59(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = valid ? x0 : as_f32(constants[0]);
    valid = true;
    f32 x2 = shift_and_divide(x1, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x2, fault);
}

__device__ __forceinline__ u64 shape_60(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_61(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_62(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_63(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_64(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = valid ? x0 : constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_65(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = valid ? x0 : (i64)constants[0];
    valid = true;
    f64 x2 = (f64)x1;
    f64 x3 = shift_and_divide(x2, as_f64(constants[1]), as_f64(constants[2]));
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float16(x3, fault);
}

__device__ __forceinline__ u64 shape_66(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<f32, f32>(run, chain, row, valid);
    f32 x1 = positive_mod(x0, (i64)constants[0]);
    f32 x2 = valid ? x1 : as_f32(constants[1]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_67(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f64 x0 = load<f64, f64>(run, chain, row, valid);
    f64 x1 = positive_mod(x0, (i64)constants[0]);
    f64 x2 = valid ? x1 : as_f64(constants[1]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_68(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    f32 x0 = load<Half, f32>(run, chain, row, valid);
    f32 x1 = positive_mod(x0, (i64)constants[0]);
    f32 x2 = valid ? x1 : as_f32(constants[1]);
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_69(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_70(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_71(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i16, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_72(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<u8, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_73(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = positive_mod(x0, (i64)constants[0]);
    u64 x2 = valid ? x1 : constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_74(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_float32(x2, fault);
}

__device__ __forceinline__ u64 shape_75(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_76(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_77(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    u64 x1 = positive_mod(x0, (i64)constants[0]);
    u64 x2 = valid ? x1 : constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_78(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = positive_mod(x0, (i64)constants[0]);
    i64 x2 = valid ? x1 : (i64)constants[1];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_79(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = sigrid_hash(value_bits(x0), constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_80(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = sigrid_hash(value_bits(x0), constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_81(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    i64 x1 = sigrid_hash(value_bits(x0), constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_82(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = sigrid_hash(value_bits(x0), constants[0], (i64)constants[1]);
    i64 x2 = valid ? x1 : (i64)constants[2];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_83(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i64, i64>(run, chain, row, valid);
    i64 x1 = map_id(run, constants + 0, value_bits(x0), valid);
    i64 x2 = valid ? x1 : (i64)constants[8];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_84(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<i32, i64>(run, chain, row, valid);
    i64 x1 = map_id(run, constants + 0, value_bits(x0), valid);
    i64 x2 = valid ? x1 : (i64)constants[8];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_85(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    u64 x0 = load<u64, u64>(run, chain, row, valid);
    i64 x1 = map_id(run, constants + 0, value_bits(x0), valid);
    i64 x2 = valid ? x1 : (i64)constants[8];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
}

__device__ __forceinline__ u64 shape_86(const Run& run, const Chain& chain, u64 row, u32& fault) {
    const u64* constants = at<u64>(run.fixed, chain.constants);
    (void)constants;
    bool valid;
    i64 x0 = load<Bit, i64>(run, chain, row, valid);
    i64 x1 = map_id(run, constants + 0, value_bits(x0), valid);
    i64 x2 = valid ? x1 : (i64)constants[8];
    valid = true;
    if (!valid) {
        fault = IS_NULL;
        return 0;
    }
    return to_int64(x2, fault);
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
        case 55: return shape_55(run, chain, row, fault);
        case 56: return shape_56(run, chain, row, fault);
        case 57: return shape_57(run, chain, row, fault);
        case 58: return shape_58(run, chain, row, fault);
        case 59: return shape_59(run, chain, row, fault);
        case 60: return shape_60(run, chain, row, fault);
        case 61: return shape_61(run, chain, row, fault);
        case 62: return shape_62(run, chain, row, fault);
        case 63: return shape_63(run, chain, row, fault);
        case 64: return shape_64(run, chain, row, fault);
        case 65: return shape_65(run, chain, row, fault);
        case 66: return shape_66(run, chain, row, fault);
        case 67: return shape_67(run, chain, row, fault);
        case 68: return shape_68(run, chain, row, fault);
        case 69: return shape_69(run, chain, row, fault);
        case 70: return shape_70(run, chain, row, fault);
        case 71: return shape_71(run, chain, row, fault);
        case 72: return shape_72(run, chain, row, fault);
        case 73: return shape_73(run, chain, row, fault);
        case 74: return shape_74(run, chain, row, fault);
        case 75: return shape_75(run, chain, row, fault);
        case 76: return shape_76(run, chain, row, fault);
        case 77: return shape_77(run, chain, row, fault);
        case 78: return shape_78(run, chain, row, fault);
        case 79: return shape_79(run, chain, row, fault);
        case 80: return shape_80(run, chain, row, fault);
        case 81: return shape_81(run, chain, row, fault);
        case 82: return shape_82(run, chain, row, fault);
        case 83: return shape_83(run, chain, row, fault);
        case 84: return shape_84(run, chain, row, fault);
        case 85: return shape_85(run, chain, row, fault);
        case 86: return shape_86(run, chain, row, fault);
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
