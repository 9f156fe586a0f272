// === Functions that are more than an instruction (vector/math.rs), operation by operation as on the CPU ===

#define LN_2_HIGH 6.93147180369123816490e-01
#define LN_2_LOW 1.90821492927058770002e-10
#define LN_2_HIGH_SINGLE 6.9313812256e-01f
#define LN_2_LOW_SINGLE 9.0580006145e-06f
#define ROOT_HALF_BITS 0x3fe6a09e00000000ull
#define ONE_BITS 0x3ff0000000000000ull
#define FRACTION_BITS 0x000fffffffffffffull
#define ROOT_HALF_BITS_SINGLE 0x3f3504f3u
#define ONE_BITS_SINGLE 0x3f800000u
#define FRACTION_BITS_SINGLE 0x007fffffu
#define THREE_QUARTERS_BITS 0x3f400000u
#define TWO_54 18014398509481984.0
#define TWO_25 33554432.0f
#define LEAST_NORMAL 2.2250738585072014e-308
#define LEAST_NORMAL_SINGLE 1.17549435e-38f

__device__ __forceinline__ u64 bits_of(f64 value) { return (u64)__double_as_longlong(value); }
__device__ __forceinline__ f64 infinity() { return as_f64(0x7ff0000000000000ull); }
__device__ __forceinline__ f64 not_a_number() { return as_f64(0x7ff8000000000000ull); }
__device__ __forceinline__ f32 infinity_single() { return __uint_as_float(0x7f800000u); }
__device__ __forceinline__ f32 not_a_number_single() { return __uint_as_float(0x7fc00000u); }

// Reduces x = 2^k * m, with m in [sqrt(1/2), sqrt(2)), to k and f = m - 1.
__device__ __forceinline__ void reduce(f64 x, f64& k, f64& f) {
    u64 bits = bits_of(x) + (ONE_BITS - ROOT_HALF_BITS);
    k = (f64)((i32)(bits >> 52) - 1023);
    f = as_f64((bits & FRACTION_BITS) + ROOT_HALF_BITS) - 1.0;
}

__device__ __forceinline__ void reduce(f32 x, f32& k, f32& f) {
    u32 bits = __float_as_uint(x) + (ONE_BITS_SINGLE - ROOT_HALF_BITS_SINGLE);
    k = (f32)((i32)(bits >> 23) - 127);
    f = __uint_as_float((bits & FRACTION_BITS_SINGLE) + ROOT_HALF_BITS_SINGLE) - 1.0f;
}

// k ln 2 + ln(1 + f) + c for a small c.
__device__ __forceinline__ f64 ln_parts(f64 k, f64 f, f64 c) {
    f64 s = f / (2.0 + f);
    f64 z = s * s;
    f64 w = z * z;
    f64 even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    f64 odd = z * (6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    f64 r = odd + even;
    f64 half_square = 0.5 * f * f;
    return s * (half_square + r) + (k * LN_2_LOW + c) - half_square + f + k * LN_2_HIGH;
}

__device__ __forceinline__ f32 ln_parts(f32 k, f32 f, f32 c) {
    f32 s = f / (2.0f + f);
    f32 z = s * s;
    f32 w = z * z;
    f32 even = w * (0.40000972152f + w * 0.24279078841f);
    f32 odd = z * (0.66666662693f + w * 0.28498786688f);
    f32 r = odd + even;
    f32 half_square = 0.5f * f * f;
    return s * (half_square + r) + (k * LN_2_LOW_SINGLE + c) - half_square + f + k * LN_2_HIGH_SINGLE;
}

// The logarithm at special values, for which the series does not apply.
__device__ __forceinline__ f64 ln_edges(f64 x, f64 result) {
    result = x == 0.0 ? -infinity() : result;
    result = x < 0.0 ? not_a_number() : result;
    return x < infinity() ? result : x;
}

__device__ __forceinline__ f32 ln_edges(f32 x, f32 result) {
    result = x == 0.0f ? -infinity_single() : result;
    result = x < 0.0f ? not_a_number_single() : result;
    return x < infinity_single() ? result : x;
}

__device__ __forceinline__ f64 ln(f64 x) {
    bool is_small = x < LEAST_NORMAL;
    f64 k, f;
    reduce(is_small ? x * TWO_54 : x, k, f);
    return ln_edges(x, ln_parts(is_small ? k - 54.0 : k, f, 0.0));
}

__device__ __forceinline__ f32 ln(f32 x) {
    bool is_small = x < LEAST_NORMAL_SINGLE;
    f32 k, f;
    reduce(is_small ? x * TWO_25 : x, k, f);
    return ln_edges(x, ln_parts(is_small ? k - 25.0f : k, f, 0.0f));
}

// 2^-k / (1 + f), approximately. Arbitrary for the largest exponents.
__device__ __forceinline__ f64 about_inverse(f64 k, f64 f) {
    return as_f64((u64)(1023 - (i64)(i32)k) << 52) * (1.0 - f + f * f);
}

__device__ __forceinline__ f64 ln_1p(f64 x) {
    f64 u = 1.0 + x;
    f64 k, f;
    reduce(u, k, f);
    // The rounding error of the sum.
    f64 lost = k >= 2.0 ? 1.0 - (u - x) : x - (u - 1.0);
    f64 c = k == 0.0 || k >= 54.0 ? 0.0 : lost * about_inverse(k, f);
    f64 result = ln_parts(k, k == 0.0 ? x : f, c);
    return unless_nan(x, ln_edges(u, fabs(x) < 5.0e-17 ? x : result));
}

__device__ __forceinline__ f32 ln_1p(f32 x) {
    f32 u = 1.0f + x;
    // -k in the position of the exponent bits: adding it to a float's bits divides by 2^k.
    u32 down = (THREE_QUARTERS_BITS + FRACTION_BITS_SINGLE - __float_as_uint(u)) & ~FRACTION_BITS_SINGLE;
    f32 four = __uint_as_float(__float_as_uint(4.0f) + down);
    f32 f = __uint_as_float(__float_as_uint(x) + down) - fmaf(-0.25f, four, 1.0f);
    f32 square = f * f;
    f32 series = fmaf(-0.0451522693f, f, 0.10472551f);
    series = fmaf(series, square, fmaf(-0.131639361f, f, 0.1447763f));
    series = fmaf(series, square, fmaf(-0.166468784f, f, 0.19990848f));
    series = fmaf(series, square, fmaf(-0.250001103f, f, 0.333334506f));
    series = fmaf(series, f, -0.5f);
    f32 k = (f32)(i32)down;
    f32 whole = k * -(LN_2_HIGH_SINGLE / 8388608.0f);
    f32 sum = whole + f;
    f32 lacking = f - (sum - whole);
    f32 result = sum + fmaf(k, -(LN_2_LOW_SINGLE / 8388608.0f), fmaf(square, series, lacking));
    return unless_nan(x, ln_edges(u, result));
}

// ln(x / (1 - x)), after clipping x.
template <typename Number>
__device__ __forceinline__ Number logit(Number x, Number low, Number high) {
    x = clip<Number>(x, low, high);
    Number odds = x / ((Number)1 - x);
    return unless_nan(x, ln(odds == odds ? odds : invalid(x)));
}

// a + b as the nearest double and its error.
__device__ __forceinline__ void two_sum(f64 a, f64 b, f64& sum, f64& low) {
    f64 total = a + b;
    f64 other = total - a;
    low = (a - (total - other)) + (b - other);
    sum = total;
}

__device__ __forceinline__ void split(f64 a, f64& high, f64& low) {
    f64 t = 134217729.0 * a;
    high = t - (t - a);
    low = a - high;
}

// a * b as the nearest double and its error.
__device__ __forceinline__ void two_product(f64 a, f64 b, f64& product, f64& low) {
    f64 a_high, a_low, b_high, b_low;
    split(a, a_high, a_low);
    split(b, b_high, b_low);
    f64 result = a * b;
    low = ((a_high * b_high - result) + a_high * b_low + a_low * b_high) + a_low * b_low;
    product = result;
}

// ln x as a sum of two doubles.
__device__ __forceinline__ void ln_wide(f64 x, f64& log, f64& log_low) {
    bool is_small = x < LEAST_NORMAL;
    f64 k, f;
    reduce(is_small ? x * TWO_54 : x, k, f);
    k = is_small ? k - 54.0 : k;
    f64 d = 2.0 + f;
    f64 d_low = f - (d - 2.0);
    f64 s = f / d;
    f64 product, lacking;
    two_product(s, d, product, lacking);
    f64 s_low = (((f - product) - lacking) - s * d_low) / d;
    f64 z, z_low;
    two_product(s, s, z, z_low);
    z_low = z_low + 2.0 * s * s_low;
    f64 series = 0.0;
    for (f64 power = 29.0; power > 4.0; power -= 2.0) {
        series = z * (2.0 / power + series);
    }
    f64 t, t_low;
    two_sum(2.0 / 3.0, series, t, t_low);
    t_low = t_low + 3.700743415417188e-17;
    f64 zt, zt_low;
    two_product(z, t, zt, zt_low);
    zt_low = zt_low + (z_low * t + z * t_low);
    f64 q, q_low;
    two_product(s, zt, q, q_low);
    q_low = q_low + (s_low * zt + s * zt_low);
    f64 a, a_low, b, b_low;
    two_sum(k * LN_2_HIGH, 2.0 * s, a, a_low);
    two_sum(a, q, b, b_low);
    two_sum(b, a_low + b_low + (k * LN_2_LOW + (2.0 * s_low + q_low)), log, log_low);
}

// 2^k for whole k within +-1022.
__device__ __forceinline__ f64 power_of_two(f64 k) { return as_f64((u64)((i32)k + 1023) << 52); }

// e^(high + low) - 1, for |low| small compared with |high|.
__device__ __forceinline__ f64 exp_m1(f64 high, f64 low) {
    bool is_within = high > -60.0 && high < 800.0;
    f64 y = high > -60.0 ? high : -60.0;
    y = y < 800.0 ? y : 800.0;
    low = is_within ? low : 0.0;
    f64 k = (y * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
    f64 r, r_low;
    two_sum(y - k * LN_2_HIGH, low - k * LN_2_LOW, r, r_low);
    f64 series = 0.0;
    for (f64 divisor = 14.0; divisor > 1.5; divisor -= 1.0) {
        series = r / divisor * (1.0 + series);
    }
    f64 rest = r * series + (r_low + r_low * r);
    f64 half = trunc(k * 0.5);
    f64 up = power_of_two(half), down = power_of_two(-half);
    f64 up_rest = power_of_two(k - half), down_rest = power_of_two(half - k);
    f64 sum, sum_low;
    two_sum(1.0 - down * down_rest, r, sum, sum_low);
    f64 result = (sum + (sum_low + rest)) * up * up_rest;
    // Preserves the sign of zero.
    return high == 0.0 ? high : result;
}

__device__ __forceinline__ f64 box_cox_edges(f64 x, f64 result, f64 lambda) {
    f64 at_zero = lambda > 0.0 ? -1.0 / lambda : -infinity();
    f64 at_infinity = lambda > 0.0 ? infinity() : -1.0 / lambda;
    result = x == 0.0 ? at_zero : result;
    result = x == infinity() ? at_infinity : result;
    return x >= 0.0 ? result : not_a_number();
}

// (x^lambda - 1) / lambda, ln x where lambda is 0.
__device__ __forceinline__ f64 box_cox(f64 x, f64 lambda) {
    if (lambda == 0.0) {
        return unless_nan(x, ln(x));
    }
    f64 log, log_low, y, y_low;
    ln_wide(x, log, log_low);
    two_product(lambda, log, y, y_low);
    return box_cox_edges(x, exp_m1(y, y_low + lambda * log_low) / lambda, lambda);
}

__device__ __forceinline__ f32 box_cox(f32 single, f64 lambda) {
    f64 x = widen(single);
    if (lambda == 0.0) {
        return narrow(ln(x));
    }
    return narrow(box_cox_edges(x, exp_m1(lambda * ln(x), 0.0) / lambda, lambda));
}

// === Further ops (ops/*.rs) ===

__device__ __forceinline__ f32 square_root(f32 value) {
    return unless_nan(value, value < 0.0f ? invalid(value) : sqrtf(value));
}
__device__ __forceinline__ f64 square_root(f64 value) {
    return unless_nan(value, value < 0.0 ? invalid(value) : sqrt(value));
}

__device__ __forceinline__ f32 absolute(f32 value) { return __uint_as_float(__float_as_uint(value) & 0x7fffffffu); }
__device__ __forceinline__ f64 absolute(f64 value) { return as_f64(bits_of(value) & 0x7fffffffffffffffull); }
__device__ __forceinline__ u64 absolute(u64 value) { return value; }
// -2^63, whose absolute value does not fit, is unchanged.
__device__ __forceinline__ i64 absolute(i64 value) { return value < 0 ? (i64)(0ull - (u64)value) : value; }

__device__ __forceinline__ i64 positive_mod(i64 value, i64 modulus) {
    i64 rest = value % modulus;
    return rest < 0 ? rest + modulus : rest;
}
__device__ __forceinline__ u64 positive_mod(u64 value, i64 modulus) { return value % (u64)modulus; }
__device__ __forceinline__ f32 positive_mod(f32 value, i64 modulus) {
    f32 rest = unless_nan(value, fmodf(value, (f32)modulus));
    rest = rest == rest || value != value ? rest : invalid(value);
    return rest < 0.0f ? rest + (f32)modulus : absolute(rest);
}
__device__ __forceinline__ f64 positive_mod(f64 value, i64 modulus) {
    f64 rest = unless_nan(value, fmod(value, (f64)modulus));
    rest = rest == rest || value != value ? rest : invalid(value);
    return rest < 0.0 ? rest + (f64)modulus : absolute(rest);
}

__device__ __forceinline__ i64 sigrid_hash(u64 key, u64 salt, i64 max_value) {
    // Thomas Wang's 64-bit mix.
    key = ~key + (key << 21);
    key ^= key >> 24;
    key = key + (key << 3) + (key << 8);
    key ^= key >> 14;
    key = key + (key << 2) + (key << 4);
    key ^= key >> 28;
    key += key << 31;
    // CityHash's 128-to-64-bit hash.
    u64 a = (key ^ salt) * 0x9ddfea08eb382d69ull;
    u64 b = (salt ^ (a ^ (a >> 47))) * 0x9ddfea08eb382d69ull;
    return positive_mod((i64)((b ^ (b >> 47)) * 0x9ddfea08eb382d69ull), max_value);
}

// Constants: the offsets of keys and slots, the mask of the slots, factor, shift, the offset of the values, the
// default, and whether there is one.
__device__ __forceinline__ i64 map_id(const Run& run, const u64* constants, u64 id, bool& valid) {
    u64 hash;
    if (u32 entry = find(run, constants, id, hash)) {
        return at<i64>(run.fixed, constants[5])[entry - 1];
    }
    valid = valid && constants[7] != 0;
    return (i64)constants[6];
}
