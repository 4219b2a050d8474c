/* prompt: the table of what counts as a question, and screens that show one. */
#include "term/prompt.h"

#include "base/test.h"

static int percent(const char *line)
{
    return (int)(prompt_score(str_of(line), NULL) * 100 + 0.5);
}

TEST(lines_are_judged_by_the_table_in_its_order)
{
    CHECK_INT(percent("Delete 3 files? (y/n)"), 95);
    CHECK_INT(percent("Overwrite? [y/N]: "), 95);
    CHECK_INT(percent("❯ "), 95);
    CHECK_INT(percent("❯"), 0); /* without the blank */
    CHECK_INT(percent("Are you sure?"), 90);
    CHECK_INT(percent("Press any key to go on"), 85);
    CHECK_INT(percent("agent@vm:~$ "), 60);
    CHECK_INT(percent("root@vm:~# "), 60);
    CHECK_INT(percent("mysql> "), 55);
    CHECK_INT(percent("agent@vm:~$"), 0);
    CHECK_INT(percent("What is your name?  "), 40);
    CHECK_INT(percent("Compiling"), 0);
    CHECK_INT(percent(""), 0);
    CHECK_INT(percent("   "), 0);
}

static int shown(const char *bytes, const char *want)
{
    autoscreen struct screen *screen = screen_new(5, 40, 0);
    autobuf struct buf text = { 0 };

    screen_feed(screen, str_of(bytes));
    int score = (int)(screen_prompt(screen, &text) * 100 + 0.5);
    CHECK_STR(buf_cstr(&text), want);
    return score;
}

TEST(a_screen_is_judged_by_its_last_line_that_shows_anything)
{
    CHECK_INT(shown("Building\r\nCompiling\r\n", ""), 0);
    CHECK_INT(shown("one (y/n)\r\ntwo", ""), 0); /* a question that was answered */
    CHECK_INT(shown("\033[K Add a custom script? [y/N]: \033[1;3r", " Add a custom script? [y/N]:"),
              95);
    CHECK_INT(shown("\033[2;1Hagent@vm:~$ ", "agent@vm:~$"), 60);
    CHECK_INT(shown("agent@vm:~$", ""), 0);
}
