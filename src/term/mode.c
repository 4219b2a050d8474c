/* Modes: one line for each that changes something here; the others are none of a screen's business.
 */
#include "term/own.h"

struct mode {
    uint16_t number;
    bool private;  /* CSI ? N h */
    uint8_t value; /* of an enum; 0 for a bool */
    uint16_t at;   /* in struct screen_modes */
};

#define MODE(number, private, field)                                                               \
    {                                                                                              \
        number, private, 0, offsetof(struct screen_modes, field)                                   \
    }
#define MODE_OF(number, field, value)                                                              \
    {                                                                                              \
        number, true, value, offsetof(struct screen_modes, field)                                  \
    }

/* clang-format off */
static const struct mode modes[] = {
    MODE(4,    false, insert),
    MODE(20,   false, newline),
    MODE(1,    true,  app_cursor),
    MODE(5,    true,  reverse),
    MODE(66,   true,  app_keypad),
    MODE(1004, true,  focus_events),
    MODE(2004, true,  bracketed_paste),
    MODE(2026, true,  synchronized),
    MODE_OF(9,    mouse, SCREEN_MOUSE_X10),
    MODE_OF(1000, mouse, SCREEN_MOUSE_BUTTONS),
    MODE_OF(1002, mouse, SCREEN_MOUSE_DRAG),
    MODE_OF(1003, mouse, SCREEN_MOUSE_ALL),
    MODE_OF(1005, mouse_code, SCREEN_MOUSE_UTF8),
    MODE_OF(1006, mouse_code, SCREEN_MOUSE_SGR),
    MODE_OF(1015, mouse_code, SCREEN_MOUSE_URXVT),
    MODE_OF(1016, mouse_code, SCREEN_MOUSE_PIXELS),
};
/* clang-format on */

static const struct mode *find(bool private, unsigned number)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (modes[i].number == number && modes[i].private == private)
            return &modes[i];
    return NULL;
}

static void *field_of(struct screen *screen, const struct mode *mode)
{
    return (char *)&screen->modes + mode->at;
}

/* Modes of one kind exclude each other: setting one ends the others, resetting any ends all. */
static void set_field(struct screen *screen, const struct mode *mode, bool set)
{
    if (mode->value)
        *(unsigned *)field_of(screen, mode) = set ? mode->value : 0;
    else
        *(bool *)field_of(screen, mode) = set;
}

void mode_put(const struct screen *screen, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (modes[i].private && mode_get(screen, true, modes[i].number) == 1)
            buf_printf(out, "\033[?%uh", modes[i].number);
}

/* Those that do something at once. Returns false for others. */
static bool act(struct screen *screen, unsigned number, bool set)
{
    switch (number) {
    case 6:
        screen->at.origin = set;
        control_goto(screen, set ? screen->top : 0, 0);
        return true;
    case 7:
        screen->modes.autowrap = set;
        screen->at.wrap_next = screen->at.wrap_next && set;
        return true;
    case 12:
        screen->blinking = set;
        return true;
    case 25:
        screen->hidden = !set;
        return true;
    case 47:
    case 1047:
        control_alternate(screen, set);
        return true;
    case 1048:
        (set ? control_save : control_restore)(screen);
        return true;
    case 1049:
        if (set)
            control_save(screen);
        control_alternate(screen, set);
        if (!set)
            control_restore(screen);
        return true;
    default:
        return false;
    }
}

void mode_run(struct screen *screen, const struct csi *csi, bool set)
{
    for (unsigned i = 0; i < csi->count; i++) {
        unsigned number = csi_count(csi, i, 0);
        const struct mode *mode = find(csi->private != 0, number);

        if (mode)
            set_field(screen, mode, set);
        else if (csi->private)
            act(screen, number, set);
    }
}

/* DECRQM's answer: 0 not known, 1 set, 2 reset. */
int mode_get(const struct screen *screen, bool private, unsigned number)
{
    const struct mode *mode = find(private, number);
    const char *field = (const char *)&screen->modes + (mode ? mode->at : 0);

    if (mode && mode->value)
        return *(const unsigned *)(const void *)field == mode->value ? 1 : 2;
    if (mode)
        return *(const bool *)(const void *)field ? 1 : 2;
    if (!private)
        return 0;
    switch (number) {
    case 6:
        return screen->at.origin ? 1 : 2;
    case 7:
        return screen->modes.autowrap ? 1 : 2;
    case 12:
        return screen->blinking ? 1 : 2;
    case 25:
        return screen->hidden ? 2 : 1;
    case 47:
    case 1047:
    case 1049:
        return screen->on == &screen->alt ? 1 : 2;
    default:
        return 0;
    }
}
