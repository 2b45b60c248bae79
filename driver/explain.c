#define _GNU_SOURCE // strcasestr, FNM_CASEFOLD
#include "driver/explain.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "driver/command.h"
#include "driver/options.h"
#include "ir/diag.h"
#include "runtime/base/error.h"

static bool is_status(const Explanation *x) { return isdigit((unsigned char)*x->sign); }

static const char *title(const Explanation *x) {
  switch (x->title ? 0 : atoi(x->sign)) {
#define CASE(name, number, meaning) \
  case number: \
    if (number) return meaning; \
    break;
    DT_EXITS(CASE)
  }
  return x->title;
}

// Prints text in lines of at most `most` characters, each after `before`; the first is begun already.
static void put_wrapped(const char *text, const char *before, size_t most) {
  size_t at = strlen(before);
  for (const char *p = text; *p; p += strspn(p, " ")) {
    size_t n = strcspn(p, " ");
    bool fits = p == text || at + 1 + n <= most;
    if (!fits) printf("\n%s", before);
    else if (p > text) putchar(' ');
    at = fits ? at + (p > text) + n : strlen(before) + n;
    printf("%.*s", (int)n, p);
    p += n;
  }
  putchar('\n');
}

static void put_text(const Explanation *x) {
  Str head = is_status(x) ? str_printf("Exit status %s of %s: %s.", x->sign, x->of, title(x))
                          : str_printf("\"%s\", from %s: %s.", x->sign, x->of, title(x));
  put_wrapped(head, "", 79);
  put_wrapped(x->text, "", 79);
  const Cause *c = x->cause;
  if (c->cause) puts("\nUsual causes, and what to do:");
  for (; c < x->cause + MOST_CAUSES && c->cause; c++) {
    fputs("  * ", stdout);
    put_wrapped(c->cause, "    ", 79);
    fputs("    -> ", stdout);
    put_wrapped(c->remedy, "       ", 79);
  }
}

// Characters that Markdown would take for its own are in code.
static void put_markdown(const Explanation *x) {
  printf("\n### %s%s%s: %s\n\n", is_status(x) ? "" : "`", x->sign, is_status(x) ? "" : "`", title(x));
  printf("From %s. %s\n", x->of, x->text);
  const Cause *c = x->cause;
  if (c->cause) puts("\n| usual cause | what to do |\n|---|---|");
  for (; c < x->cause + MOST_CAUSES && c->cause; c++) printf("| %s | %s |\n", c->cause, c->remedy);
}

static int put_page(void) {
  puts("# Exit statuses and messages\n\nMade by `dtc explain --markdown`. `dtc explain 69` or `dtc explain 'PART OF A "
       "MESSAGE'` prints one of these.\n\n## Exit statuses");
  for (int i = 0; i < explanation_count; i++) {
    if (i && is_status(&explanations[i - 1]) && !is_status(&explanations[i]))
      puts("\n## Messages\n\nIn a heading `*` stands for a part that varies.");
    put_markdown(&explanations[i]);
  }
  return 0;
}

static int put_list(void) {
  for (int i = 0; i < explanation_count; i++) {
    const Explanation *x = &explanations[i];
    if (!i) puts("Exit statuses, of a training program unless another is named:");
    else if (is_status(x - 1) && !is_status(x)) puts("\nMessages that hold:");
    if (is_status(x)) printf("  %-6s %s%s\n", x->sign, title(x), x->title ? str_printf(" (%s)", x->of) : "");
    else printf("  %-38s %s\n", x->sign, title(x));
  }
  puts("\n`dtc explain 69` or `dtc explain 'PART OF A MESSAGE'` says more.");
  return 0;
}

// Whether the entry's sign is in the text, or the text in the sign.
static bool fits(const Explanation *x, const char *text) {
  if (is_status(x)) return false;
  return !fnmatch(str_printf("*%s*", x->sign), text, FNM_CASEFOLD) ||
         (strlen(text) > 3 && strcasestr(x->sign, text));
}

static const Explanation *status_named(const char *text) {
  for (int i = 0; i < explanation_count; i++)
    if (is_status(&explanations[i]) && !strcmp(explanations[i].sign, text)) return &explanations[i];
  int n = atoi(text);
  return n > 128 && n < 193 && !strcmp(text, str_printf("%d", n)) ? status_named("128+N") : NULL;
}

static int explain(Str text) {
  int found = 0;
  const Explanation *x = status_named(text);
  if (x) {
    put_text(x);
    return 0;
  }
  for (int i = 0; i < explanation_count; i++) {
    if (!fits(&explanations[i], text)) continue;
    if (found++) putchar('\n');
    put_text(&explanations[i]);
  }
  if (found) return 0;
  fprintf(stderr, "dtc explain: nothing is known about '%s'; `dtc explain` lists all\n", text);
  return EXIT_MODEL;
}

int explain_command(Arena *a, int argc, char **argv) {
  (void)a;
  Buf text = {0};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--help"))
      return command_help("explain",
                          "Explains an exit status of dtc or of a training program, or a message that\n"
                          "holds TEXT: the meaning, the usual causes and what to do. Without an argument\n"
                          "it lists all.\n\n"
                          "  --markdown   print all of them, as doc/errors.md has them");
    if (argc == 2 && !strcmp(argv[i], "--markdown")) return put_page();
    if (argv[i][0] == '-') return command_usage("explain", "unknown option '%s'", argv[i]);
    buf_printf(&text, "%s%s", i > 1 ? " " : "", argv[i]);
  }
  Str all = text.n ? str_intern(text.text) : NULL;
  buf_free(&text);
  return all ? explain(all) : put_list();
}
