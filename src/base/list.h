/*
 * list - an intrusive doubly linked ring. A node is embedded in its owner; the head is a node too.
 * A node that is in no list points at itself (list_init) or is zero, and so does or is an empty
 * head; list_remove is fine on both. A node is in one list at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *node)
{
    node->next = node->prev = node;
}

static inline bool list_empty(const struct list *head)
{
    return !head->next || head->next == head;
}

static inline void list_insert_(struct list *node, struct list *prev, struct list *next)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static inline void list_append(struct list *head, struct list *node)
{
    if (!head->next)
        list_init(head);
    list_insert_(node, head->prev, head);
}

static inline void list_prepend(struct list *head, struct list *node)
{
    if (!head->next)
        list_init(head);
    list_insert_(node, head, head->next);
}

static inline void list_remove(struct list *node)
{
    if (node->next) {
        node->next->prev = node->prev;
        node->prev->next = node->next;
    }
    list_init(node);
}

static inline struct list *list_pop(struct list *head)
{
    if (list_empty(head))
        return NULL;
    struct list *node = head->next;
    list_remove(node);
    return node;
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_each(pos, head)                                                                       \
    for (struct list *pos = (head)->next; pos && pos != (head); pos = pos->next)
/* The body may remove `pos`. */
#define list_each_safe(pos, head)                                                                  \
    for (struct list *pos = (head)->next, *pos##_next = pos ? pos->next : NULL;                    \
         pos && pos != (head); pos = pos##_next, pos##_next = pos##_next->next)
