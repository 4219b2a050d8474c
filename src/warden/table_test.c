/* The table of boxes against a naive model: thousands taken, found and left at random. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/test.h"
#include "warden/boxes.h"

struct model {
    bool used;
    char id[BOX_ID_SIZE];
    pid_t pid;
    uint64_t upper;
    bool due;
};
static struct model model[BOX_SLOTS];
static unsigned ran;

static void name(char id[BOX_ID_SIZE], unsigned number)
{
    memset(id, 0, BOX_ID_SIZE);
    snprintf(id, BOX_ID_SIZE, "b%u", number);
}

static void take(unsigned number)
{
    struct box *box = table_free();
    struct model *m = box ? &model[table_slot(box)] : NULL;

    if (!box)
        return;
    CHECK(!m->used);
    *m = (struct model){ .used = true,
                         .pid = (pid_t)(number + 2),
                         .upper = test_rand(2) ? number + 1 : 0 };
    name(m->id, number);
    table_take(box, m->id, BOX_RUNNING);
    table_set_pid(box, m->pid);
    table_set_upper(box, m->upper);
}

static void check_one(uint32_t slot)
{
    const struct model *m = &model[slot];

    if (!m->used) {
        CHECK_INT(table_at(slot)->state, BOX_FREE);
        return;
    }
    CHECK(table_find(m->id) == table_at(slot));
    CHECK(table_find_child(m->pid) == table_at(slot));
    CHECK(!m->upper || table_upper(m->upper) == table_at(slot));
    CHECK_INT(table_at(slot)->due_ms != 0, m->due);
}

static void leave(uint32_t slot)
{
    struct model *m = &model[slot];

    if (!m->used)
        return;
    table_leave(table_at(slot));
    CHECK(!table_find(m->id) && !table_find_child(m->pid));
    CHECK(!m->upper || !table_upper(m->upper));
    *m = (struct model){ 0 };
}

static void due(uint32_t slot)
{
    struct model *m = &model[slot];

    if (!m->used)
        return;
    m->due = !m->due;
    if (m->due)
        table_due(table_at(slot), 100000);
    else
        table_due_off(table_at(slot));
}

static void on_due(struct box *box)
{
    struct model *m = &model[table_slot(box)];

    CHECK(m->used && m->due && !box->due_ms);
    m->due = false;
    ran++;
    if (test_rand(4) == 0) { /* as an end that must be tried again */
        table_due(box, 100000);
        m->due = true;
    } else if (test_rand(4) == 0) {
        leave(table_slot(box));
    }
}

static unsigned count(void)
{
    unsigned used = 0;

    for (const struct box *box = table_next(0); box; box = table_next(table_slot(box) + 1))
        used++;
    return used;
}

TEST(boxes_are_found_by_everything_they_are_known_by)
{
    unsigned used = 0;

    for (unsigned i = 0; i < 60000; i++) {
        uint32_t slot = (uint32_t)test_rand(i % 20000 < 10000 ? 200 : BOX_SLOTS);

        switch (test_rand(5)) {
        case 0:
            leave(slot);
            break;
        case 1:
            due(slot);
            break;
        default:
            take(i);
        }
        check_one(slot);
    }
    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++) {
        check_one(slot);
        used += model[slot].used;
    }
    CHECK_INT(count(), used);
    unsigned have_due = 0;
    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++)
        have_due += model[slot].due;
    CHECK(have_due > 10);
    CHECK_INT(table_due_first() != 0, true);
    table_run_due(table_due_first() - 1, on_due);
    CHECK_INT(ran, 0);
    table_run_due(clock_mono_ms() + 200000, on_due);
    CHECK_INT(ran, have_due); /* each once, whatever became of it */
    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++)
        leave(slot);
    CHECK_INT(count(), 0);
    CHECK_INT(table_due_first(), 0);
}

TEST(the_last_index_is_used_and_there_is_none_after_it)
{
    table_reserve(table_at(0), true);
    for (unsigned i = 0; i < BOX_SLOTS - 1; i++)
        take(i);
    CHECK(model[BOX_SLOTS - 1].used && !model[0].used);
    CHECK(table_free() == NULL);
    table_reserve(table_at(0), false);
    CHECK(table_free() == table_at(0));
    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++)
        leave(slot);
    CHECK(table_free() == table_at(0));
}

/* The ids of a box that was made under another base lie across two of ours. */
TEST(an_index_whose_ids_another_has_is_not_given_out)
{
    char id[BOX_ID_SIZE];
    struct box *box = table_at(9);

    box_host.uid_first = 1000000;
    name(id, 1);
    table_take(box, id, BOX_RUNNING);
    CHECK_INT(box->uid_first, 1000000 + 9 * BOX_UIDS);
    table_set_ids(box, box->uid_first, BOX_UIDS); /* its own */
    CHECK(table_free() == table_at(0));
    table_set_ids(box, 1000000 - 1, BOX_UIDS);
    CHECK(table_free() == table_at(1));
    table_set_ids(box, 1000000 + BOX_UIDS + 1, BOX_UIDS);
    CHECK(table_free() == table_at(3));
    table_set_ids(box, 1000000 + 8191 * BOX_UIDS + 1, BOX_UIDS); /* the last, and beyond */
    CHECK(table_free() == table_at(3));
    table_leave(box);
    CHECK(table_free() == table_at(0));
    box_host.uid_first = 0;
}
