// Random numbers on a device: the operations of philox.rs, normal.rs and values.rs, one by one. The
// coefficients are defined before this text. A work-item writes one block of 16 bytes.

#pragma OPENCL FP_CONTRACT OFF

uint4 words(ulong seed, ulong block)
{
    block &= 0x3fffffffffffffffUL;
    uint4 c = (uint4)((uint)block, (uint)(block >> 32), 0, 0);
    uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
    for (int round = 0; round < 10; round++) {
        if (round > 0)
            key += (uint2)(0x9e3779b9u, 0xbb67ae85u);
        uint high_x = mul_hi(0xd2511f53u, c.x), low_x = 0xd2511f53u * c.x;
        uint high_z = mul_hi(0xcd9e8d57u, c.z), low_z = 0xcd9e8d57u * c.z;
        c = (uint4)(high_z ^ c.y ^ key.x, low_z, high_x ^ c.w ^ key.y, low_x);
    }
    return c;
}

ulong2 wide(uint4 w)
{
    return (ulong2)(w.x | (ulong)w.y << 32, w.z | (ulong)w.w << 32);
}

// Stores a block's four numbers, or fewer at the end of the buffer.
void store_4(global uint *out, ulong count, uint4 numbers)
{
    ulong at = get_global_id(0) * 4UL;
    if (at + 4 <= count) {
        vstore4(numbers, 0, out + at);
    } else {
        uint each[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
        for (ulong i = at; i < count; i++)
            out[i] = each[i - at];
    }
}

// Stores a block's two 64-bit numbers.
void store_2(global ulong *out, ulong count, ulong2 numbers)
{
    ulong at = get_global_id(0) * 2UL;
    if (at + 2 <= count)
        vstore2(numbers, 0, out + at);
    else if (at < count)
        out[at] = numbers.x;
}

uint4 here(ulong seed, ulong first)
{
    return words(seed, first + get_global_id(0));
}

kernel void raw_uint32(global uint *out, ulong seed, ulong first, ulong count)
{
    store_4(out, count, here(seed, first));
}

kernel void raw_uint64(global ulong *out, ulong seed, ulong first, ulong count)
{
    store_2(out, count, wide(here(seed, first)));
}

kernel void uniform_float32(global float *out, ulong seed, ulong first, ulong count)
{
    float4 numbers = convert_float4_rte(here(seed, first) >> 8) * 0x1p-24f;
    store_4((global uint *)out, count, as_uint4(numbers));
}

constant float log_32[] = LOG_32;
constant float sin_32[] = SIN_32;
constant float cos_32[] = COS_32;

float polynomial_32(constant float *coefficients, int count, float x)
{
    float sum = coefficients[count - 1];
    for (int i = count - 2; i >= 0; i--)
        sum = fma(sum, x, coefficients[i]);
    return sum;
}

float minus_two_log_32(float u)
{
    uint bits = as_uint(u);
    int exponent = (int)(bits - 0x3f3504f3u) >> 23;
    float f = as_float(bits - ((uint)exponent << 23)) - 1.0f;
    float rest = fma(polynomial_32(log_32, sizeof(log_32) / sizeof(float), f), f, -0.5f);
    float log = fma(f * f, rest, f);
    return -2.0f * fma((float)exponent, LN_2_32, log);
}

float root_32(float square)
{
    float halved = 0.5f * square;
    float inverse = as_float(0x5f3759dfu - (as_uint(square) >> 1));
    for (int step = 0; step < 2; step++)
        inverse *= fma(-(halved * inverse), inverse, 1.5f);
    float root = square * inverse;
    return fma(fma(-root, root, square), 0.5f * inverse, root);
}

float2 pair_32(uint first, uint second)
{
    float u = fma(convert_float_rte((int)(first >> 1)), 0x1p-31f, 0x1p-32f);
    float radius = root_32(minus_two_log_32(u));
    uint quadrant = (second + (1u << 29)) >> 30;
    float x = convert_float_rte((int)(second - (quadrant << 30))) * 0x1p-29f;
    float square = x * x;
    float sin = x * polynomial_32(sin_32, sizeof(sin_32) / sizeof(float), square);
    float cos = polynomial_32(cos_32, sizeof(cos_32) / sizeof(float), square);
    float across = quadrant & 1 ? sin : cos, up = quadrant & 1 ? cos : sin;
    across = as_float(as_uint(across) ^ (((quadrant + 1) & 2) << 30));
    up = as_float(as_uint(up) ^ ((quadrant & 2) << 30));
    return (float2)(radius * across, radius * up);
}

kernel void normal_float32(global float *out, ulong seed, ulong first, ulong count)
{
    uint4 w = here(seed, first);
    float4 numbers = (float4)(pair_32(w.x, w.y), pair_32(w.z, w.w));
    store_4((global uint *)out, count, as_uint4(numbers));
}

#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)

constant double log_64[] = LOG_64;
constant double sin_64[] = SIN_64;
constant double cos_64[] = COS_64;

kernel void uniform_float64(global double *out, ulong seed, ulong first, ulong count)
{
    double2 numbers = convert_double2_rte(wide(here(seed, first)) >> 11) * 0x1p-53;
    store_2((global ulong *)out, count, as_ulong2(numbers));
}

double polynomial_64(constant double *coefficients, int count, double x)
{
    double sum = coefficients[count - 1];
    for (int i = count - 2; i >= 0; i--)
        sum = fma(sum, x, coefficients[i]);
    return sum;
}

double minus_two_log_64(double u)
{
    ulong bits = as_ulong(u);
    long exponent = (long)(bits - 0x3fe6a09e667f3bcdUL) >> 52;
    double f = as_double(bits - ((ulong)exponent << 52)) - 1.0;
    double rest = fma(polynomial_64(log_64, sizeof(log_64) / sizeof(double), f), f, -0.5);
    double log = fma(f * f, rest, f);
    return -2.0 * fma((double)exponent, LN_2_64, log);
}

double root_64(double square)
{
    double halved = 0.5 * square;
    double inverse = as_double(0x5fe6eb50c7b537a9UL - (as_ulong(square) >> 1));
    for (int step = 0; step < 3; step++)
        inverse *= fma(-(halved * inverse), inverse, 1.5);
    double root = square * inverse;
    return fma(fma(-root, root, square), 0.5 * inverse, root);
}

double2 pair_64(ulong first, ulong second)
{
    double step = convert_double_rte((long)(first >> 12) - (1L << 51));
    double radius = root_64(minus_two_log_64(fma(step, 0x1p-52, 0.5 + 0x1p-53)));
    ulong quadrant = (second + (1UL << 61)) >> 62;
    long rest = (long)(second - (quadrant << 62)) >> 10;
    double x = convert_double_rte(rest) * 0x1p-51;
    double square = x * x;
    double sin = x * polynomial_64(sin_64, sizeof(sin_64) / sizeof(double), square);
    double cos = polynomial_64(cos_64, sizeof(cos_64) / sizeof(double), square);
    double across = quadrant & 1 ? sin : cos, up = quadrant & 1 ? cos : sin;
    across = as_double(as_ulong(across) ^ (((quadrant + 1) & 2) << 62));
    up = as_double(as_ulong(up) ^ ((quadrant & 2) << 62));
    return (double2)(radius * across, radius * up);
}

kernel void normal_float64(global double *out, ulong seed, ulong first, ulong count)
{
    ulong2 w = wide(here(seed, first));
    store_2((global ulong *)out, count, as_ulong2(pair_64(w.x, w.y)));
}

#endif
