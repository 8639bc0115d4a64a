/* What the C decoders (libjpeg-turbo, libwebp, zstd and our Huffman decoder) do, as libFuzzer
 * counts it. It knows the tables that Clang and rustc write; GCC, with which they are compiled here,
 * only calls a function at each edge. This counts the calls by their place, in a section that
 * libFuzzer looks at after each input. Two places may share a counter: an edge is then overlooked,
 * nothing else. */

#include <stdint.h>

#define COUNTERS (1u << 16)

__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t counters[COUNTERS];

__attribute__((no_sanitize_coverage, no_sanitize_address)) void
__wrap___sanitizer_cov_trace_pc(void)
{
    uint64_t place = (uint64_t)__builtin_return_address(0);
    counters[(place * 0x9E3779B97F4A7C15u) >> 48]++;
}

/* GCC tells of these comparisons, too, and libFuzzer has no use for them. */
void __sanitizer_cov_trace_cmpf(float one, float other);
void __sanitizer_cov_trace_cmpd(double one, double other);

void __sanitizer_cov_trace_cmpf(float one, float other)
{
    (void)one;
    (void)other;
}

void __sanitizer_cov_trace_cmpd(double one, double other)
{
    (void)one;
    (void)other;
}
