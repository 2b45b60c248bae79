#include "driver/new.h"

#include <ctype.h>
#include <unistd.h>

#include "codegen/link.h"
#include "driver/command.h"
#include "driver/fmt.h"
#include "driver/options.h"

static const char *const example[] = {"chargpt", "classifier", "gpt2", "llama", "mlp", NULL};

// How to get data of each kind, as comments for the head of the model; the kind is the word that
// the train block has. In each, a text or arrays that are at hand become data.
static const struct {
  const char *kind, *text;
} data_help[] = {
    {"bytes", "# Data: any file, a byte a token. Where there is a text:\n"
              "#     ./train --data text.txt --sample 400\n"},
    {"tokens",
     "# Data: numbers of tokens in 16 bits each, as nanoGPT's prepare.py and llm.c's scripts "
     "write\n"
     "# them. Without these, a text's bytes will do as tokens:\n"
     "#     python3 -c \"import array; array.array('H', [*open('text.txt', 'rb').read()]).tofile("
     "open('train.bin', 'wb'))\"\n"
     "#     ./train --data train.bin\n"},
    {"arrays",
     "# Data: NumPy arrays with a sample a row, as numpy.save writes them; the train block names\n"
     "# the files. To try it with made-up data:\n"
     "#     python3 DATA/make_arrays.py EXAMPLE .\n"
     "#     ./train\n"},
};

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Replaces a word wherever it stands alone.
static void put_with(const char *text, Str word, Str by, Buf *out) {
  size_t n = strlen(word);
  for (const char *p = text; *p;) {
    bool here = !strncmp(p, word, n) && !is_word(p[n]) && (p == text || !is_word(p[-1]));
    if (here) buf_printf(out, "%s", by);
    else buf_write(out, p, 1);
    p += here ? n : 1;
  }
}

static char *replaced(Arena *a, const char *text, Str word, Str by) {
  Buf b = {0};
  put_with(text, word, by, &b);
  char *to = arena_copy(a, b.n ? b.text : "", b.n + 1);
  buf_free(&b);
  return to;
}

// The word behind `before` at the start of a line; NULL: there is none.
static Str word_behind(const char *text, const char *before) {
  const char *at = strstr(text, before);
  size_t n = 0;
  while (at && is_word(at[strlen(before) + n])) n++;
  return n ? str_internn(at + strlen(before), n) : NULL;
}

// tiny-gpt.dt holds the model TinyGpt. NULL where no name can be made of it.
static Str model_name(Str path) {
  const char *p = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  char name[128];
  size_t n = 0;
  bool up = true;
  for (; *p && strcmp(p, ".dt") && n + 1 < sizeof name; p++) {
    if (*p != '_' && !isalnum((unsigned char)*p)) {
      if (*p != '-' && *p != '.' && *p != ' ') return NULL;
      up = true;
      continue;
    }
    name[n++] = (char)(up ? toupper((unsigned char)*p) : *p);
    up = false;
  }
  return n && isalpha((unsigned char)name[0]) ? str_internn(name, n) : NULL;
}

// The comments at the file's head end where its first `use` stands: the help on data goes there.
static void put_model(Arena *a, char *text, Str path, Str name, Str from, Buf *out) {
  Str old = word_behind(text, "\nmodel "), kind = word_behind(strstr(text, "\ntrain "), "= ");
  Str share = str_printf("%s/share/dtc/examples/data", install_dir());
  text = replaced(a, text, old, name);
  if (from) text = replaced(a, text, str_printf("examples/%s.dt", from), path);
  text = replaced(a, text, str_intern("PATH"), path);
  text = replaced(a, text, str_intern("examples/data"), share);
  const char *use = strstr(text, "\nuse ") + 1;
  buf_write(out, text, (size_t)(use - text));
  buf_printf(out, "#\n");
  for (size_t i = 0; i < sizeof data_help / sizeof *data_help; i++) {
    if (strcmp(data_help[i].kind, kind)) continue;
    const char *help = replaced(a, data_help[i].text, str_intern("DATA"), share);
    put_with(help, str_intern("EXAMPLE"), from ? from : "", out);
  }
  buf_printf(out, "%s", use);
}

static int make(Arena *a, const char *word, Str from) {
  size_t n = strlen(word), got;
  bool dt = n > 3 && !strcmp(word + n - 3, ".dt");
  Str path = dt ? word : str_printf("%s.dt", word), name = model_name(word), share = install_dir();
  if (!name)
    return command_usage("new", "'%s' is not a name for a model: use letters, digits, _ and -", word);
  if (!access(path, F_OK)) {
    fprintf(stderr, "dtc new: %s exists already, and is left unchanged\n", path);
    return EXIT_MODEL;
  }
  char *text = command_read(a, "new",
                            from ? str_printf("%s/share/dtc/examples/%s.dt", share, from)
                                 : str_printf("%s/share/dtc/new/model.dt", share),
                            &got);
  if (!text) return EXIT_TOOL;
  Buf model = {0}, out = {0};
  put_model(a, text, path, name, from, &model);
  fmt_text(a, model.text, model.n, &out); // another name, other columns
  bool ok = command_write("new", path, &out);
  buf_free(&model);
  buf_free(&out);
  if (!ok) return EXIT_MODEL;
  printf("%s is a model to start from. Its first lines explain how to get data, and\n"
         "    dtc %s -o train && ./train --help\n",
         path, path);
  return 0;
}

int new_command(Arena *a, int argc, char **argv) {
  Str from = NULL, word = NULL;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--help"))
      return command_help(
          "new",
          "Writes NAME.dt, a small commented GPT over bytes, or a copy of an example, and\n"
          "explains in its first lines how to get data. An existing file is not changed.\n\n"
          "  --from chargpt|classifier|gpt2|llama|mlp   copy that example");
    bool apart = !strcmp(argv[i], "--from");
    if (apart || str_begins(argv[i], "--from=")) {
      if (apart && i + 1 == argc) return command_usage("new", "option '--from' needs a value");
      from = apart ? argv[++i] : argv[i] + 7;
    } else if (argv[i][0] == '-') return command_usage("new", "unknown option '%s'", argv[i]);
    else if (word)
      return command_usage("new", "more than one name given: '%s' and '%s'", word, argv[i]);
    else word = argv[i];
  }
  if (!word) return command_usage("new", "no name given");
  bool known = !from;
  for (const char *const *e = example; from && *e; e++) known |= !strcmp(*e, from);
  if (!known)
    return command_usage(
        "new", "--from %s: the examples are chargpt, classifier, gpt2, llama and mlp", from);
  return make(a, word, from);
}
