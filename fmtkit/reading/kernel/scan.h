/* Bytes of JSON strings: where one stops, and whether it is UTF-8. SSE2 where it is, else 8 bytes at once. */

#ifndef FMTKIT_SCAN_H
#define FMTKIT_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(FMTKIT_PORTABLE)
#include <emmintrin.h>
#define FMTKIT_SSE2 1
#endif

/* What may be written behind the end of a text that is being decoded. */
#define SLACK 64

static inline int is_stop(uint8_t byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }

/* The stops of CHUNK bytes are bits of one number, the first of them the lowest, so that a text of many
   escapes is not loaded anew behind each of them. */
#ifdef FMTKIT_SSE2
#define CHUNK 64
#define STOP_BITS 1

static inline __m128i vector_at(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

static inline uint64_t bits_of_bytes(__m128i bytes) {
    return (uint64_t)(unsigned)_mm_movemask_epi8(bytes);
}

static inline __m128i stops_of(__m128i bytes) {
    const __m128i last_control = _mm_set1_epi8(0x1f);
    __m128i stop = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    return _mm_or_si128(stop, _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
}

static inline uint64_t stops_at(const uint8_t *at, int *high) {
    __m128i one = vector_at(at), two = vector_at(at + 16);
    __m128i three = vector_at(at + 32), four = vector_at(at + 48);
    __m128i all = _mm_or_si128(_mm_or_si128(one, two), _mm_or_si128(three, four));
    *high = _mm_movemask_epi8(all) != 0;
    return bits_of_bytes(stops_of(one)) | bits_of_bytes(stops_of(two)) << 16 |
           bits_of_bytes(stops_of(three)) << 32 | bits_of_bytes(stops_of(four)) << 48;
}

static inline void copy_chunk(uint8_t *to, const uint8_t *from) {
    __m128i one = vector_at(from), two = vector_at(from + 16);
    __m128i three = vector_at(from + 32), four = vector_at(from + 48);
    _mm_storeu_si128((__m128i *)(void *)to, one);
    _mm_storeu_si128((__m128i *)(void *)(to + 16), two);
    _mm_storeu_si128((__m128i *)(void *)(to + 32), three);
    _mm_storeu_si128((__m128i *)(void *)(to + 48), four);
}
#else
#define CHUNK 8
#define STOP_BITS 8
#define EACH(byte) (0x0101010101010101ULL * (byte))

/* The top bit of each byte that is 0. */
static inline uint64_t zeros_of(uint64_t word) {
    return ~(((word & EACH(0x7f)) + EACH(0x7f)) | word) & EACH(0x80);
}

static inline uint64_t stops_at(const uint8_t *at, int *high) {
    uint64_t word;
    memcpy(&word, at, 8);
    *high = (word & EACH(0x80)) != 0;
    uint64_t controls = ~(((word & EACH(0x7f)) + EACH(0x60)) | word) & EACH(0x80);
    return zeros_of(word ^ EACH('"')) | zeros_of(word ^ EACH('\\')) | controls;
}

static inline void copy_chunk(uint8_t *to, const uint8_t *from) { memcpy(to, from, CHUNK); }
#endif

/* The place in its chunk of the first of some stops. */
static inline size_t first_stop(uint64_t stops) { return (size_t)__builtin_ctzll(stops) / STOP_BITS; }

/* The stops from a place in the chunk on. */
static inline uint64_t stops_from(uint64_t stops, size_t place) {
    return stops & (~(uint64_t)0 << place * STOP_BITS);
}

/* Return the first quote, backslash or control byte from `at` on, or `limit`, which is read up to. `*high`,
   where it is NULL, becomes a place before which all bytes are ASCII, if there is one beyond it. */
static inline const uint8_t *find_stop(const uint8_t *at, const uint8_t *limit, const uint8_t **high) {
    int is_high;
    while (limit - at >= CHUNK) {
        uint64_t stops = stops_at(at, &is_high);
        if (is_high && !*high) *high = at;
        if (stops) return at + first_stop(stops);
        at += CHUNK;
    }
    for (; at < limit && !is_stop(*at); at++)
        if (*at & 0x80 && !*high) *high = at;
    return at;
}

static inline int is_tail(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* Whether a first byte of three, the lowest, is neither E0 nor ED. */
static inline int is_any_second(uint64_t word) { return (word & 15) != 0 && (word & 15) != 13; }

/* Go on over ASCII, by whole steps. */
static inline const uint8_t *behind_ascii(const uint8_t *at, const uint8_t *end) {
#ifdef FMTKIT_SSE2
    for (; end - at >= 16; at += 16) {
        unsigned high = (unsigned)_mm_movemask_epi8(vector_at(at));
        if (high) return at + __builtin_ctz(high);
    }
#else
    (void)end;
#endif
    return at;
}

/* Tell whether bytes are UTF-8: shortest forms, no surrogates, at most U+10FFFF. */
static inline int is_utf8(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if (!(word & 0x8080808080808080ULL)) {
                at = behind_ascii(at + 8, end);
                continue;
            }
            /* Little-endian: the first byte is the lowest. Two characters of three bytes, of which none
               begins with E0 or ED, which allow not every second byte, are most of what is not Latin. */
            if ((word & 0xC0C0F0C0C0F0ULL) == 0x8080E08080E0ULL && is_any_second(word) &&
                is_any_second(word >> 24)) {
                at += 6;
                continue;
            }
        }
        uint8_t first = *at;
        ptrdiff_t left = end - at;
        if (first < 0x80) {
            at += 1;
        } else if (first < 0xC2) {
            return 0;
        } else if (first < 0xE0) {
            if (left < 2 || !is_tail(at[1])) return 0;
            at += 2;
        } else if (first < 0xF0) {
            if (left < 3 || !is_tail(at[1]) || !is_tail(at[2])) return 0;
            if (first == 0xE0 && at[1] < 0xA0) return 0;
            if (first == 0xED && at[1] > 0x9F) return 0;
            at += 3;
        } else {
            if (first > 0xF4 || left < 4) return 0;
            if (!is_tail(at[1]) || !is_tail(at[2]) || !is_tail(at[3])) return 0;
            if (first == 0xF0 && at[1] < 0x90) return 0;
            if (first == 0xF4 && at[1] > 0x8F) return 0;
            at += 4;
        }
    }
    return 1;
}

#endif
