/* list: agrees with an array of what is in it, from either end, through removals anywhere. */
#include "base/list.h"

#include <string.h>

#include "base/test.h"

#define NODES 20

struct item {
    int number;
    struct list node;
};

static void check_same(struct list *head, const int *model, size_t count)
{
    size_t i = 0;

    list_each (pos, head)
        CHECK(i < count && list_entry(pos, struct item, node)->number == model[i++]);
    CHECK_INT(i, count);
    CHECK(list_empty(head) == (count == 0));
    for (struct list *pos = head->prev; pos && pos != head; pos = pos->prev)
        CHECK(list_entry(pos, struct item, node)->number == model[--i]);
    CHECK_INT(i, 0);
}

TEST(list_agrees_with_an_array)
{
    struct list head = { 0 };
    struct item items[NODES] = { 0 };
    int model[NODES];
    size_t count = 0;

    for (int i = 0; i < NODES; i++)
        items[i].number = i;
    for (int step = 0; step < 20000; step++) {
        int pick = (int)test_rand(NODES);
        size_t at = 0;

        while (at < count && model[at] != pick)
            at++;
        if (at < count) {
            list_remove(&items[pick].node);
            memmove(model + at, model + at + 1, (count - at - 1) * sizeof(int));
            count--;
        } else if (test_rand(3) == 0) {
            struct list *popped = list_pop(&head);

            CHECK((popped != NULL) == (count > 0));
            if (popped) {
                CHECK_INT(list_entry(popped, struct item, node)->number, model[0]);
                memmove(model, model + 1, --count * sizeof(int));
            }
        } else if (test_rand(2)) {
            list_append(&head, &items[pick].node);
            model[count++] = pick;
        } else {
            list_prepend(&head, &items[pick].node);
            memmove(model + 1, model, count++ * sizeof(int));
            model[0] = pick;
        }
        check_same(&head, model, count);
    }
}

TEST(removing_is_fine_while_walking_and_twice)
{
    struct list head = { 0 };
    struct item items[NODES] = { 0 };
    int odd[] = { 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 };

    list_each_safe (pos, &head)
        CHECK(!pos);
    for (int i = 0; i < NODES; i++) {
        items[i].number = i;
        list_append(&head, &items[i].node);
    }
    list_each_safe (pos, &head)
        if (list_entry(pos, struct item, node)->number % 2 == 0)
            list_remove(pos);
    check_same(&head, odd, ARRAY_LEN(odd));
    list_remove(&items[0].node);
    struct item never = { 0 };
    list_remove(&never.node);
    check_same(&head, odd, ARRAY_LEN(odd));
    list_each_safe (pos, &head)
        list_remove(pos);
    CHECK(list_empty(&head) && !list_pop(&head));
}
