// Makes a generated program C++ for the host: defines the CUDA keywords and functions that it uses. Tests compile
// programs this way to compare their arithmetic with the CPU kernels on machines without a GPU. This file precedes the
// program; host_entry.h follows it.

#include <cmath>
#include <cstring>
using std::fabs;

#define FOREBAY_ON_HOST
#define __device__
#define __forceinline__ inline

template <typename To, typename From>
inline To reinterpret_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}

inline float __uint_as_float(unsigned int bits) { return reinterpret_bits<float>(bits); }
inline unsigned int __float_as_uint(float value) { return reinterpret_bits<unsigned int>(value); }
inline double __longlong_as_double(long long bits) { return reinterpret_bits<double>(bits); }
inline long long __double_as_longlong(double value) { return reinterpret_bits<long long>(value); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll((unsigned long long)value); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a * b) >> 32); }
inline void atomicMin(unsigned long long* place, unsigned long long value) { *place = value < *place ? value : *place; }
