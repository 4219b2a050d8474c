/* import: an unpacker that is played, in the model of a warden; whatever fails, nothing stays. */
#include "box/job.h"
#include "box/model_rig.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static struct importer {
    struct image_op op;
    struct image_import *import;
    int done;
    struct err err;
} importer;

static void told(struct image_op *op, const struct err *err)
{
    (void)op;
    importer.done++;
    importer.err = err ? *err : (struct err){ 0 };
}

static int begin(const char *name, struct err *err)
{
    importer = (struct importer){ .op = { .tenant = "default", .by = "me", .done = told } };
    return image_import(boxes, name, &importer.op, &importer.import, err);
}

/* ---- the unpacker ---- */

static struct {
    const char *inspect; /* its answer; NULL: it says nothing */
    int inspect_code;
    const char *unpack;
    int unpack_code;
    unsigned unpacked; /* layers so far */
    char args[8][64];  /* of its last command */
} play;

static const char one_layer[] =
    "{\"format\":\"tar\",\"digest\":\"sha256:" ZEROS "\",\"architecture\":\"amd64\",\"name\":\"\","
    "\"config\":{\"env\":[\"A=1\"],\"user\":\"0\",\"workdir\":\"/"
    "srv\",\"entrypoint\":[],\"cmd\":[],"
    "\"labels\":{}},\"layers\":[{\"diff_id\":\"sha256:" ZEROS
    "\",\"packed\":9,\"bytes\":1000,\"entries\":3}]}\n";

/* As many layers as wished, each with a digest of its own. */
static const char *layers_told(unsigned count, const char *last)
{
    static char text[32768];
    size_t len = (size_t)snprintf(
        text, sizeof(text),
        "{\"format\":\"oci\",\"digest\":\"sha256:" ZEROS
        "\",\"architecture\":\"amd64\",\"name\":\"x\",\"config\":{\"env\":[],\"user\":\"\","
        "\"workdir\":\"\",\"entrypoint\":[],\"cmd\":[],\"labels\":{}},\"layers\":[");

    for (unsigned i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "%s{\"diff_id\":\"sha256:%064u\",\"packed\":1,\"bytes\":1,"
                                "\"entries\":1}",
                                i ? "," : "", i + 1);
    snprintf(text + len, sizeof(text) - len, "%s]}", last);
    return text;
}

static void read_args(const char *body)
{
    struct init_exec head;

    memcpy(&head, body, sizeof(head));
    body += sizeof(head);
    memset(play.args, 0, sizeof(play.args));
    for (unsigned i = 0; i < head.argc; i++, body += strlen(body) + 1)
        if (i < ARRAY_LEN(play.args))
            snprintf(play.args[i], sizeof(play.args[i]), "%.63s", body);
}

/* Plays one command of the unpacker; false when there was none. */
static bool play_command(void)
{
    static char body[8192];
    uint32_t exec;

    if (!heard(INIT_EXEC, &exec, body, sizeof(body)))
        return false;
    read_args(body);
    bool inspects = strcmp(play.args[2], "inspect") == 0;
    const char *answer = inspects ? play.inspect : play.unpack;
    say(INIT_STARTED, exec, &(struct init_started){ .pid = 7 }, sizeof(struct init_started), NULL);
    if (answer)
        for (size_t at = 0; at < strlen(answer); at += 16384) {
            static char piece[16385];

            snprintf(piece, sizeof(piece), "%s", answer + at);
            say_output(exec, INIT_OUT, at, piece);
            turn(1);
        }
    say_exited(exec, inspects ? play.inspect_code : play.unpack_code, answer ? strlen(answer) : 0,
               0);
    play.unpacked += !inspects;
    return true;
}

/* The unpacker's box, whose init we are; NULL: there is none. */
static struct model_box *unpacker(void)
{
    for (unsigned i = 0; i < MODEL_MAX; i++)
        if (strncmp(model_boxes[i].id, "hp", 2) == 0)
            return &model_boxes[i];
    return NULL;
}

/* Until the import is over, or waits for something that we do not play. */
static void play_import(void)
{
    for (int quiet = 0; quiet < 2 && !model_dead;) {
        model_run();
        struct model_box *box = unpacker();
        int before = init_end;

        init_end = box ? box->init : -1;
        bool played = init_end >= 0 && play_command();
        init_end = before;
        quiet = played ? 0 : quiet + 1;
    }
}

static void fresh(void)
{
    model_up();
    memset(&play, 0, sizeof(play));
    play.inspect = one_layer;
    play.unpack = "{\"entries\":3}";
}

static void import_it(const char *name)
{
    struct err err;

    CHECK_OK(begin(name, &err), &err);
    image_import_eof(importer.import);
    play_import();
}

static void nothing_is_left(void)
{
    CHECK(unpacker() == NULL);
    CHECK_INT(model_count_disks(), 0);
    CHECK(list_empty(&boxes->imports) && list_empty(&boxes->images) && list_empty(&boxes->disks));
    CHECK_INT(boxes->import_count, 0);
    CHECK_INT(boxes->count, 0);
}

/* ---- as it should be ---- */

TEST(an_archive_becomes_an_image)
{
    struct err err;
    struct image *image;
    struct image_view view;

    fresh();
    import_it("base:1");
    CHECK(importer.done == 1 && !importer.err.code);
    CHECK(unpacker() == NULL && boxes->count == 0);
    CHECK_INT(model_count_disks(), 1); /* the layer; the scratch disk is gone */
    CHECK_STR(play.args[0], "/run/atoll");
    CHECK_STR(play.args[4], "/out/0");
    CHECK_STR(play.args[5], "0");
    CHECK_OK(image_find(boxes, "default", "base:1", &image, &err), &err);
    CHECK(image_find(boxes, "other", "base:1", &image, &err) < 0);
    model_again();
    CHECK_OK(image_find(boxes, "default", "base:1", &image, &err), &err);
    image_view(image, &view);
    CHECK(view.bytes == 1000 && view.layers.count == 1 && view.sandboxes == 0);
    CHECK_STR(view.config->env[0], "A=1");
    CHECK_INT(model_count_disks(), 1);
    down();
}

TEST(a_sandbox_gets_layers_user_and_place)
{
    struct caller caller = caller_new();
    struct sandbox_spec spec = { .image = "base", .storage = "memory" };
    struct err err = { 0 };
    struct image *image;

    fresh();
    CHECK(boxes_create(boxes, &spec, &caller.op, &err) < 0);
    CHECK(err.code == ERR_NOT_FOUND && strstr(err.msg, "there are none yet"));
    import_it("base");
    CHECK_OK(boxes_create(boxes, &spec, &caller.op, &err), &err);
    model_run();
    CHECK(caller.done == 1 && !caller.failed);
    struct model_box *box = model_box(caller.op.box->id);
    CHECK(box->spec.layer_count == 1 && model_disk(box->spec.layers[0]));
    CHECK_STR(caller.op.box->spec.user, "root");
    CHECK_OK(image_find(boxes, "default", "base", &image, &err), &err);
    CHECK(image_remove(image, &importer.op, &err) < 0 && err.code == ERR_CONFLICT);
    spec.image = "bass";
    CHECK(boxes_create(boxes, &spec, &caller.op, &err) < 0);
    CHECK_STR(err.msg, "no image bass; there is base");
    struct caller deleter = caller_new();
    CHECK_OK(box_delete(caller.op.box, &deleter.op, &err), &err);
    model_run();
    importer.done = 0;
    CHECK_OK(image_remove(image, &importer.op, &err), &err);
    CHECK(image_remove(image, &importer.op, &err) < 0);
    model_run();
    CHECK(importer.done == 1 && !importer.err.code);
    nothing_is_left();
    down();
}

TEST(layers_are_kept_once_and_go_with_the_last)
{
    struct err err;
    struct image *one, *two;

    fresh();
    play.inspect = layers_told(2, "");
    import_it("one");
    CHECK_INT(play.unpacked, 2);
    play.inspect = layers_told(3, "");
    import_it("two");
    CHECK_INT(play.unpacked, 3); /* only what was not there */
    CHECK_INT(model_count_disks(), 3);
    CHECK_OK(image_find(boxes, "default", "one", &one, &err), &err);
    CHECK_OK(image_find(boxes, "default", "two", &two, &err), &err);
    CHECK(one->layers[0] == two->layers[0] && one->layers[1] == two->layers[1]);
    CHECK_OK(image_remove(one, &importer.op, &err), &err);
    model_run();
    CHECK_INT(model_count_disks(), 3);
    CHECK_OK(image_remove(two, &importer.op, &err), &err);
    model_run();
    nothing_is_left();
    down();
}

TEST(a_layer_that_an_import_counts_on_stays)
{
    static struct importer remover;
    struct err err;
    struct image *one, *two;

    fresh();
    play.inspect = layers_told(2, "");
    import_it("one");
    play.inspect = layers_told(3, "");
    CHECK_OK(begin("two", &err), &err);
    image_import_eof(importer.import);
    model_run();
    init_end = unpacker()->init;
    CHECK(play_command()); /* it has said which layers there are */
    init_end = -1;
    turn(20);
    CHECK_OK(image_find(boxes, "default", "one", &one, &err), &err);
    remover = (struct importer){ .op = { .tenant = "default", .by = "me", .done = told } };
    CHECK_OK(image_remove(one, &remover.op, &err), &err);
    play_import();
    CHECK_OK(image_find(boxes, "default", "two", &two, &err), &err);
    for (unsigned i = 0; i < 3; i++)
        CHECK(model_disk(two->layers[i]) && disk_by_number(boxes, two->layers[i]));
    down();
}

TEST(more_layers_than_a_sandbox_takes_share_a_disk)
{
    struct err err;
    struct image *image;

    fresh();
    play.inspect = layers_told(BOX_LAYERS_MAX, "");
    import_it("most");
    CHECK_INT(play.unpacked, BOX_LAYERS_MAX);
    play.unpacked = 0;
    play.inspect = layers_told(BOX_LAYERS_MAX + 3, "");
    import_it("more");
    CHECK_OK(image_find(boxes, "default", "more", &image, &err), &err);
    CHECK_INT(image->layer_count, BOX_LAYERS_MAX);
    CHECK_INT(image->told.layers.count, BOX_LAYERS_MAX + 3);
    CHECK_INT(play.unpacked, 4); /* the lowest four as one, and the last three */
    /* The first again on top: its lower self is not needed. */
    play.inspect =
        layers_told(2, ",{\"diff_id\":\"sha256:"
                       "0000000000000000000000000000000000000000000000000000000000000001\","
                       "\"packed\":1,\"bytes\":1,\"entries\":1}");
    import_it("again");
    CHECK_OK(image_find(boxes, "default", "again", &image, &err), &err);
    CHECK_INT(image->layer_count, 2);
    down();
}

/* ---- as it should not be ---- */

TEST(what_an_unpacker_says_is_not_believed)
{
    static char long_answer[IMAGE_INFO_MAX + 100];
    static const struct {
        const char *inspect;
        int code;
        enum err_code err;
        const char *says;
    } cases[] = {
        { "{\"error\":{\"code\":\"invalid\",\"message\":\"no\\nway\"}}", 1, ERR_INVALID,
          "no\\nway" },
        { "{\"error\":{\"code\":\"too_large\",\"message\":\"x\"}}", 1, ERR_LIMIT, "x" },
        { "{\"error\":{\"code\":\"internal\",\"message\":\"x\"}}", 1, ERR_UNPROCESSABLE, "x" },
        { "{\"error\":7}", 0, ERR_UNPROCESSABLE, "" },
        { NULL, 0, ERR_UNPROCESSABLE, "no answer" },
        { "nonsense", 0, ERR_UNPROCESSABLE, "no answer" },
        { one_layer, 3, ERR_UNPROCESSABLE, "failed (3)" },
        { "{}", 0, ERR_INVALID, "" },
        { long_answer, 0, ERR_UNPROCESSABLE, "no answer" },
    };

    memset(long_answer, ' ', sizeof(long_answer) - 1);
    memcpy(long_answer, one_layer, strlen(one_layer)); /* would be fine but for its length */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fresh();
        play.inspect = cases[i].inspect;
        play.inspect_code = cases[i].code;
        import_it("bad");
        CHECK_INT(importer.done, 1);
        CHECK_INT(importer.err.code, cases[i].err);
        CHECK(strstr(importer.err.msg, cases[i].says));
        nothing_is_left();
        down();
    }
    fresh();
    play.unpack = "{\"error\":{\"code\":\"no_space\",\"message\":\"full\"}}";
    play.unpack_code = 1;
    import_it("bad");
    CHECK(importer.done == 1 && importer.err.code == ERR_NO_SPACE);
    nothing_is_left();
    down();
}

TEST(an_upload_given_up_leaves_nothing)
{
    for (unsigned turns = 0; turns < 6; turns++) {
        struct err err;

        fresh();
        CHECK_OK(begin("half", &err), &err);
        for (unsigned i = 0; i < turns; i++) { /* one answer more each time */
            struct test_job job = test_job_of(no_run, NULL);

            store_write(test_store, &job.job);
            loop_run(test_loop);
            if (model_seen < asked_count)
                model_answer(&asked[model_seen++]);
        }
        image_import_drop(importer.import);
        play_import();
        CHECK_INT(importer.done, 0);
        nothing_is_left();
        down();
    }
}

TEST(an_unpacker_that_dies_is_noticed)
{
    struct err err;

    fresh();
    CHECK_OK(begin("dead", &err), &err);
    model_run(); /* it waits for its input now */
    struct model_box *box = unpacker();
    CHECK(box != NULL);
    struct wire_msg msg = { .verb = WIRE_BOX_DIED };
    memcpy(msg.died.name.id, box->id, sizeof(box->id));
    msg.died.oom_kills = 1;
    model_box_end(box);
    boxes_heard(boxes, &msg, NULL, 0);
    play_import();
    CHECK(importer.done == 1 && importer.err.code);
    nothing_is_left();
    down();
}

/* Each question to the warden is once refused, once unanswered, once the last before a kill. */
TEST(whatever_fails_nothing_stays)
{
    static const int ways[] = { MODEL_REFUSES, MODEL_KILLED };
    unsigned refused = 0, killed = 0, lasting = 0;

    for (size_t w = 0; w < ARRAY_LEN(ways); w++)
        for (unsigned at = 1;; at++) {
            fresh();
            play.inspect = layers_told(2, "");
            model_questions = 0;
            model_at = at;
            model_how = ways[w];
            model_errno = EIO;
            import_it("base");
            bool reached = model_questions >= at;
            bool imported = importer.done && !importer.err.code;
            if (!reached) {
                CHECK(imported);
                down();
                break;
            }
            if (!model_dead && !imported)
                refused++;
            killed += model_dead;
            /* One that could still write to the layers is the end of the import. */
            lasting += strstr(importer.err.msg, "does not end") != NULL;
            model_again();
            bool there = !list_empty(&boxes->images);
            CHECK(there || !imported);
            CHECK_INT(model_count_disks(), there ? 2 : 0);
            CHECK_INT(model_count_boxes(), 0);
            down();
        }
    CHECK(refused >= 6 && killed >= 6 && lasting == 1);
}

TEST(imports_and_images_have_limits)
{
    struct err err = { 0 };
    static struct importer many[IMAGE_IMPORTS_MAX];

    fresh();
    for (unsigned i = 0; i < IMAGE_IMPORTS_MAX; i++) {
        char name[8];

        snprintf(name, sizeof(name), "n%u", i);
        CHECK_OK(begin(name, &err), &err);
        many[i] = importer;
    }
    CHECK(begin("one-more", &err) < 0 && err.code == ERR_UNAVAILABLE && err.retry_after);
    for (unsigned i = 0; i < IMAGE_IMPORTS_MAX; i++)
        image_import_drop(many[i].import);
    play_import();
    nothing_is_left();
    import_it("base");
    CHECK(begin("base", &err) < 0 && err.code == ERR_CONFLICT);
    struct image *image = list_entry(boxes->images.next, struct image, node);
    for (unsigned i = 1; i < IMAGES_MAX; i++) {
        struct image *other = image_new(boxes, "default", "me", "other", str_of(image->text), &err);

        CHECK(other != NULL);
        list_append(&boxes->images, &other->node);
    }
    CHECK(begin("too-many", &err) < 0 && err.code == ERR_RATE);
    image_free(list_entry(boxes->images.prev, struct image, node));
    CHECK_OK(begin("fits", &err), &err);
    play_import();
    down();
}
