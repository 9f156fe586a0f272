// The beginning of every generated program: the types that it shares with the host (kernels/src/cuda/layout.rs), the
// device versions of the CPU's loads, ops and casts, and the code with which a block of threads computes a tile and
// writes it row-major.
//
// Each function performs the same IEEE operations in the same order as its CPU version in kernels/src/execute,
// kernels/src/vector and kernels/src/ops, so that results agree to the bit. Programs are compiled without contraction
// of a * b + c and without fast math.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Rows per block: one per thread.
#define THREADS 256u
// Bytes of elements per row of a tile, plus 8 so that consecutive rows start in different banks.
#define TILE_ROW_BYTES 128u
#define TILE_WORDS (THREADS * (TILE_ROW_BYTES + 8u) / 8u)
// Rows per tile on the CPU: of several faults, the reported one is the one that the CPU would find first.
#define CPU_TILE_ROWS 1024u
#define NOTHING (~0ull)

// The kinds of fault in a cell.
#define FINE 0u
#define IS_NULL 1u
#define IS_LOSSY 2u

// The representation of a column's rows.
#define AS_STORED 0u
#define AS_KEYS 1u
#define AS_NUMBERS 2u

// Consecutive columns of one output, which a block writes together.
struct Group {
    u32 output;
    u32 first_chain;
    u32 chains;
    // The first column, the number of columns of a whole row, and the number of columns in the group.
    u32 at;
    u32 width;
    u32 columns;
    u32 element_bytes;
    // The number of columns of a one_hot, which forms its own group; 0 for other groups.
    u32 one_hot;
    // The bits of 1 in the output's dtype.
    u32 one;
    // ceil(2^32 / columns): the high half of its product with i is i / columns, for i below 2^16 and columns up to 2^8.
    u32 reciprocal;
};

struct Chain {
    u32 shape;
    u32 column;
    u64 constants;
};

// A column of this run. Offsets are in bytes from the start of the run's columns.
struct Column {
    u64 values;
    u64 valid;
    u64 keys;
    u64 table_valid;
    u32 form;
    u32 first_value_bit;
    u32 first_valid_bit;
    u32 table_rows;
};

struct Launch {
    u64 rows;
    // The output row of row 0, if the rows have no places.
    u64 first_row;
    // Offsets in the fixed part: groups and chains.
    u64 groups;
    u64 chains;
    // Offsets in the run's part: the outputs' offsets and the rows' places.
    u64 outputs;
    u64 places;
    // One word per chain: its first fault. All bits are set if there is none.
    u64 faults;
    u32 group_count;
    u32 unused;
};

static_assert(sizeof(Group) == 40 && sizeof(Chain) == 16 && sizeof(Column) == 48 && sizeof(Launch) == 64, "as layout.rs has it");

struct Run {
    const u8* fixed;
    u8* columns;
    u8* out;
    Launch launch;
};

template <typename T>
__device__ __forceinline__ const T* at(const u8* base, u64 place) {
    return reinterpret_cast<const T*>(base + place);
}

__device__ __forceinline__ bool bit(const u8* bits, u64 place) {
    return (bits[place >> 3] >> (place & 7)) & 1;
}

// === Loads (execute/load.rs, execute/dictionary.rs) ===

// Stored types without a C number type.
struct Bit {};
struct Half {};

__device__ __forceinline__ f32 half_to_f32(u16 half) {
    u32 sign = (u32)(half & 0x8000u) << 16;
    u32 exponent = (half >> 10) & 0x1fu;
    u32 mantissa = half & 0x3ffu;
    if (exponent == 31) {
        // A NaN becomes quiet.
        return __uint_as_float(sign | 0x7f800000u | (mantissa ? 0x00400000u | (mantissa << 13) : 0u));
    }
    if (exponent == 0) {
        // Zero and denormals: mantissa * 2^-24, exactly.
        f32 magnitude = (f32)mantissa * 5.9604644775390625e-8f;
        return __uint_as_float(sign | __float_as_uint(magnitude));
    }
    return __uint_as_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

template <typename Stored>
struct Reader {
    template <typename Number>
    static __device__ __forceinline__ Number read(const u8* values, u32, u64 row) {
        return (Number)reinterpret_cast<const Stored*>(values)[row];
    }
};

template <>
struct Reader<Bit> {
    template <typename Number>
    static __device__ __forceinline__ Number read(const u8* values, u32 first, u64 row) {
        return (Number)bit(values, first + row);
    }
};

template <>
struct Reader<Half> {
    template <typename Number>
    static __device__ __forceinline__ Number read(const u8* values, u32, u64 row) {
        return (Number)half_to_f32(reinterpret_cast<const u16*>(values)[row]);
    }
};

template <typename Stored, typename Number>
__device__ __forceinline__ Number load(const Run& run, const Chain& chain, u64 row, bool& valid) {
    const Column& column = at<Column>(run.columns, 0)[chain.column];
    valid = column.valid == NOTHING || bit(run.columns + column.valid, column.first_valid_bit + row);
    if (column.form == AS_STORED) {
        return Reader<Stored>::template read<Number>(run.columns + column.values, column.first_value_bit, row);
    }
    if (column.form == AS_NUMBERS) {
        return at<Number>(run.columns, column.values)[row];
    }
    u32 key = at<u32>(run.columns, column.keys)[row];
    // Keys out of range occur only under nulls.
    if (!valid || key >= column.table_rows) {
        return (Number)0;
    }
    valid = column.table_valid == NOTHING || bit(run.columns + column.table_valid, key);
    return at<Number>(run.columns, column.values)[key];
}

// === Ops (ops/*.rs) ===

__device__ __forceinline__ f64 as_f64(u64 bits) { return __longlong_as_double((i64)bits); }
__device__ __forceinline__ f32 as_f32(u64 bits) { return __uint_as_float((u32)bits); }

// === NaN: the CPU's bits ===
//
// The CPU's arithmetic keeps the payload of a NaN and makes it quiet; a GPU's gives a NaN of its own. No operation has
// two NaNs, as constants are numbers.

__device__ __forceinline__ f32 quiet(f32 nan) { return __uint_as_float(__float_as_uint(nan) | 0x00400000u); }
__device__ __forceinline__ f64 quiet(f64 nan) {
    return __longlong_as_double((i64)((u64)__double_as_longlong(nan) | 0x0008000000000000ull));
}

// The NaN of operations such as inf - inf. The compiler's options define its sign, which depends on the CPU.
__device__ __forceinline__ f32 invalid(f32) { return __uint_as_float((INVALID_SIGN << 31) | 0x7fc00000u); }
__device__ __forceinline__ f64 invalid(f64) {
    return __longlong_as_double((i64)(((u64)INVALID_SIGN << 63) | 0x7ff8000000000000ull));
}

// The result of a function of a number; of a NaN that NaN, quiet.
template <typename Number>
__device__ __forceinline__ Number unless_nan(Number value, Number result) {
    return value == value ? result : quiet(value);
}

__device__ __forceinline__ f32 narrow(f64 value) {
    u64 bits = (u64)__double_as_longlong(value);
    f32 nan = __uint_as_float(((u32)(bits >> 32) & 0x80000000u) | 0x7fc00000u | ((u32)(bits >> 29) & 0x003fffffu));
    return value == value ? (f32)value : nan;
}
__device__ __forceinline__ f64 widen(f32 value) {
    u32 bits = __float_as_uint(value);
    u64 nan = ((u64)(bits & 0x80000000u) << 32) | 0x7ff8000000000000ull | ((u64)(bits & 0x003fffffu) << 29);
    return value == value ? (f64)value : __longlong_as_double((i64)nan);
}

// Conversions of every kind of number.
__device__ __forceinline__ f32 single_of(f32 value) { return value; }
__device__ __forceinline__ f32 single_of(f64 value) { return narrow(value); }
__device__ __forceinline__ f32 single_of(i64 value) { return (f32)value; }
__device__ __forceinline__ f32 single_of(u64 value) { return (f32)value; }
__device__ __forceinline__ f64 double_of(f32 value) { return widen(value); }
__device__ __forceinline__ f64 double_of(f64 value) { return value; }
__device__ __forceinline__ f64 double_of(i64 value) { return (f64)value; }
__device__ __forceinline__ f64 double_of(u64 value) { return (f64)value; }

template <typename Number>
__device__ __forceinline__ Number clip(Number value, Number min, Number max) {
    Number raised = value < min ? min : value;
    return raised > max ? max : raised;
}

__device__ __forceinline__ f32 shift_and_divide(f32 value, f64 shift, f64 divisor) {
    return unless_nan(value, (f32)(((f64)value - shift) / divisor));
}

__device__ __forceinline__ f64 shift_and_divide(f64 value, f64 shift, f64 divisor) {
    return unless_nan(value, (value - shift) / divisor);
}

// The number of boundaries, which must not decrease, that are <= the value.
template <typename Number>
__device__ __forceinline__ i64 count_until(const Number* boundaries, u64 len, Number value) {
    u64 low = 0;
    while (len > 0) {
        u64 half = len / 2;
        bool within = boundaries[low + half] <= value;
        low = within ? low + half + 1 : low;
        len = within ? len - half - 1 : half;
    }
    return (i64)low;
}

__device__ __forceinline__ i64 bucketize(const Run& run, const u64* constants, i64 value) {
    return count_until(at<i64>(run.fixed, constants[0]), constants[1], value);
}

__device__ __forceinline__ i64 bucketize(const Run& run, const u64* constants, u64 value) {
    return count_until(at<u64>(run.fixed, constants[0]), constants[1], value);
}

__device__ __forceinline__ i64 bucketize(const Run& run, const u64* constants, f64 value) {
    // NaN sorts after every boundary.
    return value != value ? (i64)constants[1] : count_until(at<f64>(run.fixed, constants[0]), constants[1], value);
}

__device__ __forceinline__ i64 bucketize(const Run& run, const u64* constants, f32 value) {
    return bucketize(run, constants, (f64)value);
}

// The bits that identify a value in hashes and vocabularies: all zeros are equal, and all NaNs.
__device__ __forceinline__ u64 value_bits(i64 value) { return (u64)value; }
__device__ __forceinline__ u64 value_bits(u64 value) { return value; }
__device__ __forceinline__ u64 value_bits(f64 value) {
    if (value != value) {
        return 0x7ff8000000000000ull;
    }
    return value == 0.0 ? 0ull : (u64)__double_as_longlong(value);
}
__device__ __forceinline__ u64 value_bits(f32 value) { return value_bits((f64)value); }

__device__ __forceinline__ u64 rotate_left(u64 value, u32 count) { return (value << count) | (value >> (64 - count)); }

// XXH3-64 of the 8 little-endian bytes of a value, as xxHash's specification defines it for inputs of 4 to 8 bytes.
__device__ __forceinline__ u64 xxh3_64_of_8_bytes(u64 bits, u64 seed) {
    u32 low = (u32)bits;
    u32 high = (u32)(bits >> 32);
    u32 seed_low = (u32)seed;
    u32 swapped = (seed_low << 24) | ((seed_low << 8) & 0xff0000u) | ((seed_low >> 8) & 0xff00u) | (seed_low >> 24);
    seed ^= (u64)swapped << 32;
    // Bytes 8 to 15 and 16 to 23 of the default secret.
    u64 flip = (0x1cad21f72c81017cull ^ 0xdb979083e96dd4deull) - seed;
    u64 hash = ((u64)high + ((u64)low << 32)) ^ flip;
    hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
    hash *= 0x9fb21c651e98df25ull;
    hash ^= (hash >> 35) + 8;
    hash *= 0x9fb21c651e98df25ull;
    return hash ^ (hash >> 28);
}

__device__ __forceinline__ i64 hash_bucket(u64 bits, const u64* constants) {
    return (i64)(xxh3_64_of_8_bytes(bits, constants[1]) % constants[0]);
}

// The position of a number in a list, from 1, or 0; and its hash. Constants: the offsets of keys and slots, the mask of
// the slots, and the factor and the shift that map a hash to its first slot.
__device__ __forceinline__ u32 find(const Run& run, const u64* constants, u64 bits, u64& hash) {
    const u64* keys = at<u64>(run.fixed, constants[0]);
    const u32* slots = at<u32>(run.fixed, constants[1]);
    hash = xxh3_64_of_8_bytes(bits, 0);
    u64 slot = (hash * constants[3]) >> constants[4];
    // At least half of the slots are empty, so the loop ends.
    while (u32 entry = slots[slot]) {
        if (keys[entry - 1] == bits) {
            return entry;
        }
        slot = (slot + 1) & constants[2];
    }
    return 0;
}

// Constants after those of `find`: the length of the list, and the number of buckets after it.
__device__ __forceinline__ i64 vocab(const Run& run, const u64* constants, u64 bits) {
    u64 hash;
    if (u32 entry = find(run, constants, bits, hash)) {
        return (i64)entry;
    }
    return constants[6] == 0 ? 0 : (i64)(constants[5] + 1 + hash % constants[6]);
}

// The index of a one_hot, or a fault.
__device__ __forceinline__ u64 index_below(u64 value, u64 size, u32& fault) {
    if (value >= size) {
        fault = IS_LOSSY;
    }
    return value;
}
__device__ __forceinline__ u64 one_hot(u64 value, u64 size, u32& fault) { return index_below(value, size, fault); }
__device__ __forceinline__ u64 one_hot(i64 value, u64 size, u32& fault) { return index_below((u64)value, size, fault); }
__device__ __forceinline__ u64 one_hot(f64 value, u64 size, u32& fault) {
    if (!(value >= 0.0 && value < 18446744073709551616.0) || (f64)(u64)value != value) {
        fault = IS_LOSSY;
        return 0;
    }
    return index_below((u64)value, size, fault);
}
__device__ __forceinline__ u64 one_hot(f32 value, u64 size, u32& fault) { return one_hot((f64)value, size, fault); }

// === Casts (vector/cast.rs): the bits of an element, or a fault ===

__device__ __forceinline__ u64 f32_bits(f32 value) { return __float_as_uint(value); }
__device__ __forceinline__ u64 f64_bits(f64 value) { return (u64)__double_as_longlong(value); }

#define FLOAT32_DIGITS 24
#define FLOAT64_DIGITS 53
#define FLOAT16_MAX 65519ull
#define ANY_MAGNITUDE 0xffffffffffffffffull

// Integers stay exact in a float, or are a fault; 16-bit floats round those that an f32 holds.
__device__ __forceinline__ void keep_magnitude(u64 magnitude, i32 digits, u64 max, u32& fault) {
    i32 used = (i32)__clzll((i64)(magnitude & (0ull - magnitude))) - (i32)__clzll((i64)magnitude) + 1;
    if (magnitude > max || (magnitude != 0 && used > digits)) {
        fault = IS_LOSSY;
    }
}
__device__ __forceinline__ void keep_integer(i64 value, i32 digits, u64 max, u32& fault) {
    keep_magnitude(value < 0 ? 0ull - (u64)value : (u64)value, digits, max, fault);
}
__device__ __forceinline__ void keep_integer(u64 value, i32 digits, u64 max, u32& fault) {
    keep_magnitude(value, digits, max, fault);
}
__device__ __forceinline__ void keep_integer(f32, i32, u64, u32&) {}
__device__ __forceinline__ void keep_integer(f64, i32, u64, u32&) {}

// A value of a chain that keeps integers: fractions round, whole numbers must not change. Beyond 2^53 an integer may
// already have changed when it became a double.
__device__ __forceinline__ f64 unless_whole(f64 value, i32 digits, u64 max, u32& fault) {
    f64 magnitude = fabs(value);
    if (magnitude > 9007199254740992.0) {
        if (magnitude <= 1.7976931348623157e308) {
            fault = IS_LOSSY;
        }
    } else if ((f64)(i64)value == value) {
        keep_integer((i64)value, digits, max, fault);
    }
    return value;
}

template <typename Number>
__device__ __forceinline__ u64 to_float32(Number value, u32& fault) {
    keep_integer(value, FLOAT32_DIGITS, ANY_MAGNITUDE, fault);
    return f32_bits(single_of(value));
}

template <typename Number>
__device__ __forceinline__ u64 to_float64(Number value, u32& fault) {
    keep_integer(value, FLOAT64_DIGITS, ANY_MAGNITUDE, fault);
    return f64_bits(double_of(value));
}

// An f64 as f32, rounded to odd: rounding that again gives the result of rounding the f64 once.
__device__ __forceinline__ f32 odd_from_f64(f64 value) {
    f32 near = narrow(value);
    f64 back = (f64)near;
    if (back == value || value != value) {
        return near;
    }
    u32 away = fabs(back) > fabs(value) ? 1u : 0u;
    return __uint_as_float((__float_as_uint(near) - away) | 1u);
}

__device__ __forceinline__ f32 odd(f32 value) { return value; }
__device__ __forceinline__ f32 odd(f64 value) { return odd_from_f64(value); }
// Exact: other integers are a fault.
__device__ __forceinline__ f32 odd(u64 value) { return (f32)value; }
__device__ __forceinline__ f32 odd(i64 value) { return (f32)value; }

// Rounds to nearest, ties to even; values beyond the largest half become infinite.
__device__ __forceinline__ u64 f32_to_half(f32 value) {
    u32 bits = __float_as_uint(value);
    u32 sign = (bits >> 16) & 0x8000u;
    u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    }
    if (magnitude >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (magnitude < 0x38800000u) {
        // Denormal: a multiple of 2^-24, rounded by the addition, whose last bit has that value.
        f32 sum = __uint_as_float(magnitude) + 0.5f;
        return sign | (__float_as_uint(sum) - 0x3f000000u);
    }
    u32 even = (magnitude >> 13) & 1u;
    return sign | ((magnitude + 0xfffu + even - (112u << 23)) >> 13);
}

__device__ __forceinline__ u64 f32_to_bfloat16(f32 value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (bits >> 16) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

template <typename Number>
__device__ __forceinline__ u64 to_float16(Number value, u32& fault) {
    keep_integer(value, FLOAT32_DIGITS, FLOAT16_MAX, fault);
    return f32_to_half(odd(value));
}

template <typename Number>
__device__ __forceinline__ u64 to_bfloat16(Number value, u32& fault) {
    keep_integer(value, FLOAT32_DIGITS, ANY_MAGNITUDE, fault);
    return f32_to_bfloat16(odd(value));
}

// Integers are exact or a fault. Bounds: the smallest value, and the one past the largest.
__device__ __forceinline__ u64 whole(i64 value, i64 min, i64 max, f64, f64, u32& fault) {
    if (value < min || value > max) {
        fault = IS_LOSSY;
    }
    return (u64)value;
}
__device__ __forceinline__ u64 whole(u64 value, i64, i64 max, f64, f64, u32& fault) {
    if (value > (u64)max) {
        fault = IS_LOSSY;
    }
    return value;
}
__device__ __forceinline__ u64 whole(f64 value, i64, i64, f64 min, f64 past_max, u32& fault) {
    if (!(value >= min && value < past_max) || (f64)(i64)value != value) {
        fault = IS_LOSSY;
        return 0;
    }
    return (u64)(i64)value;
}
__device__ __forceinline__ u64 whole(f32 value, i64 low, i64 high, f64 min, f64 past_max, u32& fault) {
    return whole((f64)value, low, high, min, past_max, fault);
}

template <typename Number>
__device__ __forceinline__ u64 to_int32(Number value, u32& fault) {
    return whole(value, -2147483648ll, 2147483647ll, -2147483648.0, 2147483648.0, fault);
}

template <typename Number>
__device__ __forceinline__ u64 to_int64(Number value, u32& fault) {
    return whole(value, -9223372036854775807ll - 1, 9223372036854775807ll, -9223372036854775808.0, 9223372036854775808.0, fault);
}

template <typename Number>
__device__ __forceinline__ u64 to_uint8(Number value, u32& fault) {
    return whole(value, 0ll, 255ll, 0.0, 256.0, fault);
}

// === Tiles ===

// One cell of the output: its bits, the index of a one_hot, or a fault. Generated below.
__device__ __forceinline__ u64 cell(const Run& run, const Chain& chain, u64 row, u32& fault);

__device__ __forceinline__ u64 rows_of(const Run& run, u64 first) {
    u64 rest = run.launch.rows - first;
    return rest < THREADS ? rest : THREADS;
}

// Elements of a tile's row are adjacent; an odd distance between rows, in units of 4 bytes, keeps threads in separate
// banks.
__device__ __forceinline__ u32 tile_stride(const Group& group) { return group.columns | 1u; }

__device__ __forceinline__ void put(u64* tile, const Group& group, u32 place, u64 bits) {
    if (group.element_bytes == 4) {
        reinterpret_cast<u32*>(tile)[place] = (u32)bits;
    } else if (group.element_bytes == 2) {
        reinterpret_cast<u16*>(tile)[place] = (u16)bits;
    } else if (group.element_bytes == 8) {
        tile[place] = bits;
    } else {
        reinterpret_cast<u8*>(tile)[place] = (u8)bits;
    }
}

// Computes a thread's row through all chains of its block's group, into the tile.
__device__ __forceinline__ void compute(const Run& run, u64 block, u32 thread, u64* tile) {
    const Group& group = at<Group>(run.fixed, run.launch.groups)[block % run.launch.group_count];
    u64 row = block / run.launch.group_count * THREADS + thread;
    if (row >= run.launch.rows) {
        return;
    }
    for (u32 place = 0; place < group.chains; ++place) {
        u32 number = group.first_chain + place;
        u32 fault = FINE;
        u64 bits = cell(run, at<Chain>(run.fixed, run.launch.chains)[number], row, fault);
        if (fault != FINE) {
            // The CPU reports the first of its tiles with a fault and, within a tile, a null before a number that does
            // not fit.
            u64 key = row / CPU_TILE_ROWS * (2 * CPU_TILE_ROWS) + (fault - IS_NULL) * CPU_TILE_ROWS + row % CPU_TILE_ROWS;
            atomicMin(reinterpret_cast<u64*>(run.columns + run.launch.faults) + number, key);
            bits = group.one_hot != 0 ? 0xffffffffull : 0;
        }
        if (group.one_hot != 0) {
            reinterpret_cast<u32*>(tile)[thread] = (u32)bits;
        } else {
            put(tile, group, thread * tile_stride(group) + place, bits);
        }
    }
}

template <typename Element>
__device__ __forceinline__ void write_elements(const Run& run, const Group& group, u64 first, u32 thread, const u64* tile) {
    const u32* places = run.launch.places == NOTHING ? nullptr : at<u32>(run.columns, run.launch.places);
    Element* out = reinterpret_cast<Element*>(run.out + at<u64>(run.columns, run.launch.outputs)[group.output]);
    u64 rows = rows_of(run, first);
    const Element* elements = reinterpret_cast<const Element*>(tile);
    const u32* hot = reinterpret_cast<const u32*>(tile);
    // Wide one_hots are written row by row, everything else as one run of elements over the rows.
    if (group.one_hot > 256) {
        for (u32 row = 0; row < rows; ++row) {
            u64 target = places ? places[first + row] : run.launch.first_row + first + row;
            for (u32 column = thread; column < group.columns; column += THREADS) {
                out[target * group.width + group.at + column] = (Element)(hot[row] == column ? group.one : 0);
            }
        }
        return;
    }
    for (u32 element = thread; element < rows * group.columns; element += THREADS) {
        u32 row = group.columns == 1 ? element : __umulhi(element, group.reciprocal);
        u32 column = element - row * group.columns;
        u64 target = places ? places[first + row] : run.launch.first_row + first + row;
        Element bits = group.one_hot != 0 ? (Element)(hot[row] == column ? group.one : 0)
                                          : elements[row * tile_stride(group) + column];
        out[target * group.width + group.at + column] = bits;
    }
}

// Writes the block's tile to the output; neighbouring threads write neighbouring elements.
__device__ __forceinline__ void write(const Run& run, u64 block, u32 thread, const u64* tile) {
    const Group& group = at<Group>(run.fixed, run.launch.groups)[block % run.launch.group_count];
    u64 first = block / run.launch.group_count * THREADS;
    if (group.element_bytes == 4) {
        write_elements<u32>(run, group, first, thread, tile);
    } else if (group.element_bytes == 2) {
        write_elements<u16>(run, group, first, thread, tile);
    } else if (group.element_bytes == 8) {
        write_elements<u64>(run, group, first, thread, tile);
    } else {
        write_elements<u8>(run, group, first, thread, tile);
    }
}
