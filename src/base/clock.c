/* Thin over clock_gettime, so that nobody picks the wrong clock by accident. */
#include "base/clock.h"

#include <string.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
    return read_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

static char *put_digits(char *out, int64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--, value /= 10)
        out[i] = (char)('0' + value % 10);
    return out + count;
}

/*
 * Not by gmtime_r, which takes a lock around the time zone. Days are counted from 1 March of the
 * year 0, so that the leap day is the last of its year; 400 years are 146097 days.
 */
void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE])
{
    const int64_t most = 253402300799999; /* the end of 9999: four digits for a year */
    int64_t ms = wall_ms < 0 ? 0 : wall_ms > most ? most : wall_ms;
    int64_t days = ms / 86400000 + 719468, of_day = ms % 86400000;
    int64_t era = days / 146097, of_era = days % 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t march_month = (5 * of_year + 2) / 153;
    int64_t day = of_year - (153 * march_month + 2) / 5 + 1;
    int64_t month = march_month < 10 ? march_month + 3 : march_month - 9;
    char *at = put_digits(out, year_of_era + era * 400 + (month <= 2), 4);

    *at++ = '-';
    at = put_digits(at, month, 2);
    *at++ = '-';
    at = put_digits(at, day, 2);
    *at++ = 'T';
    at = put_digits(at, of_day / 3600000, 2);
    *at++ = ':';
    at = put_digits(at, of_day / 60000 % 60, 2);
    *at++ = ':';
    at = put_digits(at, of_day / 1000 % 60, 2);
    *at++ = '.';
    at = put_digits(at, of_day % 1000, 3);
    *at++ = 'Z';
    *at = 0;
}

void clock_naive(int64_t wall_ms, char out[CLOCK_NAIVE_SIZE])
{
    char text[CLOCK_TEXT_SIZE];
    size_t len = strlen("2026-11-15T09:14:07");

    clock_text(wall_ms, text);
    if (memcmp(text + len, ".000", 4) != 0)
        len += 4;
    memcpy(out, text, len);
    if (text[len] == 'Z') {
        memcpy(out + len, "000", 3);
        len += 3;
    }
    out[len] = 0;
}

/* `count` digits and then `end` (0: nothing is looked at). */
static bool take_digits(struct str *text, unsigned count, char end, int64_t *out)
{
    int64_t value = 0;

    if (text->n < count + (end != 0))
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (text->p[i] < '0' || text->p[i] > '9')
            return false;
        value = value * 10 + (text->p[i] - '0');
    }
    if (end && text->p[count] != end)
        return false;
    *text = str_from(*text, count + (end != 0));
    *out = value;
    return true;
}

static bool take_fraction(struct str *text, int64_t *ms)
{
    int64_t unit = 100;

    if (!text->n || text->p[0] != '.')
        return true;
    *text = str_from(*text, 1);
    if (!text->n || text->p[0] < '0' || text->p[0] > '9')
        return false;
    for (; text->n && text->p[0] >= '0' && text->p[0] <= '9'; unit /= 10) {
        *ms += (text->p[0] - '0') * unit;
        *text = str_from(*text, 1);
    }
    return true;
}

static bool take_zone(struct str text, int64_t *minutes)
{
    int64_t hours, rest;

    if (text.n == 1 && (text.p[0] == 'Z' || text.p[0] == 'z'))
        return true;
    if (text.n != 6 || (text.p[0] != '+' && text.p[0] != '-'))
        return false;
    bool west = text.p[0] == '-';
    text = str_from(text, 1);
    if (!take_digits(&text, 2, ':', &hours) || !take_digits(&text, 2, 0, &rest) || hours > 23 ||
        rest > 59)
        return false;
    *minutes = (hours * 60 + rest) * (west ? -1 : 1);
    return true;
}

static int64_t days_in(int64_t year, int64_t month)
{
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return month == 2 ? 28 + leap : 30 + (month + (month > 7)) % 2;
}

/* Of the calendar, since 1970; the same count as above, backwards. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t from_march = month > 2 ? month - 3 : month + 9, years = year - (month <= 2);

    return years * 365 + years / 4 - years / 100 + years / 400 + (153 * from_march + 2) / 5 + day -
           1 - 719468;
}

bool clock_parse(struct str text, int64_t *wall_ms)
{
    int64_t year, month, day, hour, minute, second, ms = 0, zone = 0;

    if (!take_digits(&text, 4, '-', &year) || !take_digits(&text, 2, '-', &month) ||
        !take_digits(&text, 2, 0, &day) || !text.n || (text.p[0] != 'T' && text.p[0] != 't'))
        return false;
    text = str_from(text, 1);
    if (!take_digits(&text, 2, ':', &hour) || !take_digits(&text, 2, ':', &minute) ||
        !take_digits(&text, 2, 0, &second) || !take_fraction(&text, &ms) || !take_zone(text, &zone))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > days_in(year, month) || hour > 23 ||
        minute > 59 || second > 60) /* a leap second is the next one's first */
        return false;
    int64_t at =
        (days_of(year, month, day) * 86400 + hour * 3600 + (minute - zone) * 60 + second) * 1000 +
        ms;
    if (at < 0)
        return false;
    *wall_ms = at;
    return true;
}
