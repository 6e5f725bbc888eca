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
#define SLACK 32

static inline int is_stop(uint8_t byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }

#ifdef FMTKIT_SSE2
static inline unsigned stops_of(__m128i bytes) {
    const __m128i last_control = _mm_set1_epi8(0x1f);
    __m128i stop = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    stop = _mm_or_si128(stop, _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
    return (unsigned)_mm_movemask_epi8(stop);
}
#else
#define EACH(byte) (0x0101010101010101ULL * (byte))

/* Not 0 where one of eight bytes may be a stop; a byte beyond ASCII may look like one. */
static inline uint64_t may_stop(uint64_t word) {
    uint64_t quote = word ^ EACH('"'), slash = word ^ EACH('\\');
    uint64_t found = (quote - EACH(1)) & ~quote;
    found |= (slash - EACH(1)) & ~slash;
    found |= (word - EACH(0x20)) & ~word;
    return found & EACH(0x80);
}
#endif

/* Return the first quote, backslash or control byte from `at` on, or `limit`, which is read up to.
   `high` grows by the top bits of bytes that were looked at: 0 means that all are ASCII. */
static inline const uint8_t *find_stop(const uint8_t *at, const uint8_t *limit, unsigned *high) {
#ifdef FMTKIT_SSE2
    while (limit - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        unsigned stops = stops_of(bytes);
        *high |= (unsigned)_mm_movemask_epi8(bytes);
        if (stops) return at + __builtin_ctz(stops);
        at += 16;
    }
#else
    while (limit - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        if (may_stop(word)) break;
        *high |= (word & EACH(0x80)) != 0;
        at += 8;
    }
#endif
    while (at < limit && !is_stop(*at)) *high |= *at++ & 0x80;
    return at;
}

/* As find_stop, and copy what precedes the stop; up to SLACK bytes behind that are overwritten too. */
static inline const uint8_t *copy_to_stop(const uint8_t *at, const uint8_t *limit, uint8_t **out,
                                          unsigned *high) {
    uint8_t *to = *out;
#ifdef FMTKIT_SSE2
    while (limit - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        unsigned stops = stops_of(bytes);
        _mm_storeu_si128((__m128i *)to, bytes);
        *high |= (unsigned)_mm_movemask_epi8(bytes);
        if (stops) {
            unsigned count = (unsigned)__builtin_ctz(stops);
            *out = to + count;
            return at + count;
        }
        at += 16;
        to += 16;
    }
#else
    while (limit - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        if (may_stop(word)) break;
        *high |= (word & EACH(0x80)) != 0;
        memcpy(to, &word, 8);
        at += 8;
        to += 8;
    }
#endif
    while (at < limit && !is_stop(*at)) {
        *high |= *at & 0x80;
        *to++ = *at++;
    }
    *out = to;
    return at;
}

static inline int is_tail(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* Whether a first byte of three, the lowest, is neither E0 nor ED. */
static inline int is_any_second(uint64_t word) { return (word & 15) != 0 && (word & 15) != 13; }

/* Tell whether bytes are UTF-8: shortest forms, no surrogates, at most U+10FFFF. */
static inline int is_utf8(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if (!(word & 0x8080808080808080ULL)) {
                at += 8;
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
