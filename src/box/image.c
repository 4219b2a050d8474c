/* The set of images, their rows, and who needs them: see image.h. Importing is import.c. */
#include "box/image.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

/* ---- the set ---- */

/* "A=1" to key and value; checked by image_told_check. */
static struct field_pair *split_env(struct arena *arena, const char **env)
{
    size_t count = 0;

    while (env[count])
        count++;
    struct field_pair *pairs = arena_alloc(arena, (count + 1) * sizeof(*pairs));
    for (size_t i = 0; i < count; i++) {
        struct str value = str_of(env[i]), key = str_cut(&value, '=');

        pairs[i].key = arena_memdup0(arena, key.p, key.n);
        pairs[i].value = arena_memdup0(arena, value.p, value.n);
    }
    return pairs;
}

int image_told_read(struct arena *arena, struct str text, struct image_told *out, struct err *err)
{
    struct json *json;

    if (json_parse(arena, text, &json, err) < 0 ||
        field_decode(image_told_fields, json, out, arena, NULL, err) < 0)
        return -1;
    return image_told_check(out, err);
}

struct image *image_new(struct boxes *boxes, const char *tenant, const char *by, const char *name,
                        struct str text, struct err *err)
{
    struct image *image = xnew(struct image);

    image->boxes = boxes;
    snprintf(image->tenant, sizeof(image->tenant), "%s", tenant);
    snprintf(image->by, sizeof(image->by), "%s", by);
    image->name = arena_strdup(&image->arena, name);
    image->text = arena_memdup0(&image->arena, text.p, text.n);
    list_init(&image->node);
    if (image_told_read(&image->arena, str_of(image->text), &image->told, err) < 0) {
        image_free(image);
        return NULL;
    }
    image->env = split_env(&image->arena, image->told.config->env);
    return image;
}

void image_free(struct image *image)
{
    list_remove(&image->node);
    arena_free(&image->arena);
    free(image);
}

void images_free(struct boxes *boxes)
{
    while (!list_empty(&boxes->images))
        image_free(list_entry(boxes->images.next, struct image, node));
}

struct image *image_next(struct boxes *boxes, const char *tenant, struct image *after)
{
    struct list *at = after ? &after->node : &boxes->images;

    do
        at = at->next;
    while (at != &boxes->images && strcmp(list_entry(at, struct image, node)->tenant, tenant) != 0);
    return at == &boxes->images ? NULL : list_entry(at, struct image, node);
}

struct image *image_named(struct boxes *boxes, const char *tenant, const char *name)
{
    struct image *image = NULL;

    while ((image = image_next(boxes, tenant, image)))
        if (strcmp(image->name, name) == 0)
            return image;
    return NULL;
}

int image_find(struct boxes *boxes, const char *tenant, const char *name, struct image **out,
               struct err *err)
{
    autobuf struct buf names = { .max = 300 };
    struct image *image = NULL;

    *out = image_named(boxes, tenant, name);
    if (*out)
        return 0;
    while ((image = image_next(boxes, tenant, image)))
        buf_printf(&names, "%s%s", names.len ? ", " : "", image->name);
    return err_set(err, ERR_NOT_FOUND, "no image %.64s%s%s%s", name,
                   names.len ? "; there is " : "; there are none yet", buf_cstr(&names),
                   buf_ok(&names) ? "" : "…");
}

struct image *box_image(const struct box *box)
{
    const char *tenant = box->pool ? pool_tenant(box->pool) : box->tenant;

    return box->spec.image ? image_named(box->boxes, tenant, box->spec.image) : NULL;
}

/* ---- who needs it ---- */

/* Does the wish that a snapshot keeps name this image? */
static bool spec_names(const char *spec, const char *name)
{
    autoarena struct arena arena = { 0 };
    struct json *json;
    struct err err;

    return json_parse(&arena, str_of(spec), &json, &err) == 0 &&
           str_is(json_text(json, "image"), name);
}

static unsigned count_users(const struct image *image)
{
    struct boxes *boxes = image->boxes;
    struct disk *disk = NULL;
    unsigned count = 0;

    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);

        count += strcmp(box->tenant, image->tenant) == 0 && box->spec.image &&
                 strcmp(box->spec.image, image->name) == 0;
    }
    while ((disk = disk_next(boxes, reach_all(image->tenant), DISK_SNAPSHOT, NULL, disk)))
        count += disk->spec[0] && spec_names(disk->spec, image->name);
    return count;
}

void image_view(const struct image *image, struct image_view *out)
{
    const struct image_part *parts = image->told.layers.items;

    *out = (struct image_view){ .name = image->name,
                                .digest = image->told.digest,
                                .format = image->told.format,
                                .architecture = image->told.architecture,
                                .by = image->by,
                                .config = image->told.config,
                                .layers = image->told.layers,
                                .sandboxes = count_users(image),
                                .created_at = image->made_ms };
    for (size_t i = 0; i < image->told.layers.count; i++)
        out->bytes += parts[i].bytes;
}

static bool has_layer(const struct image *image, uint64_t number)
{
    for (unsigned i = 0; i < image->layer_count; i++)
        if (image->layers[i] == number)
            return true;
    return false;
}

/* ---- rows ---- */

static void put_layers(struct buf *out, const uint64_t *layers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        buf_printf(out, "%s%llu", i ? " " : "", (unsigned long long)layers[i]);
}

int image_row_insert(struct db *db, const struct image *image, struct err *err)
{
    autobuf struct buf layers = { 0 };
    autoquery struct query *q =
        db_query(db, "INSERT INTO image (tenant, name, told, layers, by, made_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6)");

    put_layers(&layers, image->layers, image->layer_count);
    query_text(q, 1, image->tenant);
    query_text(q, 2, image->name);
    query_text(q, 3, image->text);
    query_text(q, 4, buf_cstr(&layers));
    query_text(q, 5, image->by);
    query_i64(q, 6, image->made_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store an image") : 0;
}

static int read_layers(struct image *image, struct str text, struct err *err)
{
    while (text.n) {
        struct str number = str_cut(&text, ' ');

        if (image->layer_count == BOX_LAYERS_MAX ||
            !str_to_u64(number, &image->layers[image->layer_count++]))
            return err_set(err, ERR_INTERNAL, "the row of image %s", image->name);
    }
    return 0;
}

static int load_image(struct boxes *boxes, struct query *q, struct err *err)
{
    autoarena struct arena arena = { 0 };
    const char *tenant = arena_memdup0(&arena, query_col_str(q, 0).p, query_col_str(q, 0).n);
    const char *name = arena_memdup0(&arena, query_col_str(q, 1).p, query_col_str(q, 1).n);
    const char *by = arena_memdup0(&arena, query_col_str(q, 4).p, query_col_str(q, 4).n);
    struct image *image = image_new(boxes, tenant, by, name, query_col_str(q, 2), err);

    if (!image)
        return err_wrap(err, "the row of image %s", name);
    image->made_ms = query_col_i64(q, 5);
    list_append(&boxes->images, &image->node);
    return read_layers(image, query_col_str(q, 3), err);
}

int images_load(struct boxes *boxes, struct db *db, struct err *err)
{
    int rc;
    autoquery struct query *q = db_query(
        db, "SELECT tenant, name, told, layers, by, made_ms FROM image ORDER BY made_ms, name");

    while ((rc = query_step(q, err)) > 0)
        if (load_image(boxes, q, err) < 0)
            return -1;
    return rc;
}

int image_event(struct db *db, const char *tenant, const char *name, const char *type,
                const char *key, const char *text, struct err *err)
{
    autobuf struct buf body = { 0 }, object = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "image", name);
    if (key)
        json_kv_text(&json, key, text);
    json_close(&json, '}');
    buf_printf(&object, "image/%s", name);
    return event_add(db, tenant, type, buf_cstr(&object), buf_view(&body), err);
}

/* ---- removing ---- */

struct removal {
    struct store_job job;
    struct image *image;
    struct image_op *op;
    uint64_t layers[BOX_LAYERS_MAX]; /* that no other image has */
    unsigned count;
};

static int remove_run(struct store_job *job, struct db *db, struct err *err)
{
    struct removal *removal = container_of(job, struct removal, job);
    struct image *image = removal->image; /* does not change while it is busy */
    autoquery struct query *q = db_query(db, "DELETE FROM image WHERE tenant = $1 AND name = $2");

    query_text(q, 1, image->tenant);
    query_text(q, 2, image->name);
    if (query_run(q, err) < 0)
        return -1;
    for (unsigned i = 0; i < removal->count; i++)
        if (disk_row_drop(db, removal->layers[i], err) < 0)
            return -1;
    if (image_event(db, image->tenant, image->name, "image.deleted", NULL, NULL, err) < 0)
        return -1;
    return removal->op->record ? removal->op->record(removal->op, db, err) : 0;
}

static void remove_done(struct store_job *job)
{
    struct removal *removal = container_of(job, struct removal, job);
    struct image *image = removal->image;
    struct boxes *boxes = image->boxes;

    image->busy = false;
    if (job->rc == 0) {
        for (unsigned i = 0; i < removal->count; i++) {
            struct disk *disk = disk_by_number(boxes, removal->layers[i]);

            if (disk)
                disk_drop(disk);
        }
        image_free(image);
    }
    removal->op->image = NULL;
    removal->op->done(removal->op, job->rc < 0 ? &job->err : NULL);
    free(removal);
}

static bool shared(const struct image *image, uint64_t number)
{
    list_each (pos, &image->boxes->images) {
        const struct image *other = list_entry(pos, struct image, node);

        if (other != image && has_layer(other, number))
            return true;
    }
    return import_uses(image->boxes, number);
}

int image_remove(struct image *image, struct image_op *op, struct err *err)
{
    unsigned users = count_users(image);

    if (image->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (image->busy)
        return err_set(err, ERR_CONFLICT, "image %s is being removed", image->name);
    if (users)
        return err_set(err, ERR_CONFLICT, "%u sandbox%s or snapshot%s need image %s", users,
                       users == 1 ? "" : "es", users == 1 ? "" : "s", image->name);
    const char *pool = pool_of_image(image->boxes, image->tenant, image->name);
    if (pool)
        return err_set(err, ERR_CONFLICT, "pool %s keeps sandboxes of image %s ready", pool,
                       image->name);
    struct removal *removal = xnew(struct removal);
    removal->image = image;
    removal->op = op;
    image->busy = true;
    op->image = image;
    if (op->prepare)
        op->prepare(op);
    for (unsigned i = 0; i < image->layer_count; i++)
        if (!shared(image, image->layers[i]))
            removal->layers[removal->count++] = image->layers[i];
    removal->job = (struct store_job){ .run = remove_run, .done = remove_done };
    store_write(image->boxes->store, &removal->job);
    return 0;
}

/* ---- a sandbox that begins with one ---- */

int image_apply(struct boxes *boxes, struct sandbox_spec *spec, const char *tenant, struct err *err)
{
    struct image *image;

    if (!spec->image)
        return 0;
    if (image_find(boxes, tenant, spec->image, &image, err) < 0) {
        snprintf(err->field, sizeof(err->field), "image");
        return -1;
    }
    if (image->busy)
        return err_field(err, "image", "image %s is being removed", image->name);
    for (unsigned i = 0; i < image->layer_count; i++) {
        struct disk *disk = disk_by_number(boxes, image->layers[i]);

        if (!disk || disk->state == DISK_LOST)
            return err_field(err, "image", "a layer of image %s is lost; import it again",
                             image->name);
    }
    if (!spec->user)
        spec->user = image_user(image->told.config);
    return 0;
}

void image_layers(const struct box *box, struct box_spec *wish)
{
    const struct image *image = box_image(box);

    if (!image)
        return;
    wish->layer_count = image->layer_count;
    memcpy(wish->layers, image->layers, image->layer_count * sizeof(wish->layers[0]));
}
